/* SPDX-License-Identifier: Apache-2.0 */
/* What NCCL refuses, waits for and never ends: groups, progress, aborts and its rules. */
#include <atomic>
#include <chrono>
#include <thread>

#include "simcuda/environment.h"
#include "simcuda/ring.h"

using rig::Array;
using rig::Buffers;
using rig::check;
using rig::Rank;
using rig::RANKS;
using rig::Ring;

constexpr size_t COUNT = 2500;

/* Non-blocking communicators on the devices of a ring, of the first `joining` ranks. */
static void init_non_blocking(std::vector<std::unique_ptr<Rank>> &ranks, int joining) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclUniqueId id;
    check(ncclGetUniqueId(&id));
    check(ncclGroupStart());
    for (int r = 0; r < joining; r++) {
        ranks.push_back(std::make_unique<Rank>(r));
        check(ncclCommInitRankConfig(&ranks.back()->comm, RANKS, id, r, &config));
    }
    assert_int_equal(ncclGroupEnd(), ncclInProgress);
}

/* All that one thread owns in one group. */
static void abort_together(std::vector<std::unique_ptr<Rank>> &ranks) {
    check(ncclGroupStart());
    for (auto &rank : ranks) {
        check(ncclCommAbort(rank->comm));
        rank->comm = nullptr;
    }
    check(ncclGroupEnd());
}

/* Answers "in progress" seen before the end, or -1 where there is none. */
static int polls(ncclComm_t comm) {
    for (int seen = 0; seen < 100; seen++) {
        ncclResult_t state;
        check(ncclCommGetAsyncError(comm, &state));
        if (state == ncclSuccess) return seen;
        assert_int_equal(state, ncclInProgress);
    }
    return -1;
}

static void non_blocking_calls_end_after_a_while(void **) {
    std::vector<std::unique_ptr<Rank>> ranks;
    init_non_blocking(ranks, RANKS);
    for (auto &rank : ranks)
        assert_int_not_equal(polls(rank->comm), -1);
    int seen = 0;
    for (int i = 0; i < 20; i++) {
        std::vector<std::unique_ptr<Array<float>>> values;
        for (auto &rank : ranks) {
            rank->use();
            values.push_back(std::make_unique<Array<float>>(std::vector<float>(5, 1)));
        }
        check(ncclGroupStart());
        for (size_t r = 0; r < RANKS; r++)
            check(ncclAllReduce(values[r]->get(), values[r]->get(), 5, ncclFloat32, ncclSum,
                                ranks[r]->comm, ranks[r]->stream));
        assert_int_equal(ncclGroupEnd(), ncclInProgress);
        for (auto &rank : ranks)
            seen += polls(rank->comm);
        for (auto &value : values)
            assert_true(value->read()[4] == RANKS);
    }
    assert_int_not_equal(seen, 0);
}

static void a_missing_rank_leaves_the_others_in_progress_until_they_abort(void **) {
    std::vector<std::unique_ptr<Rank>> ranks;
    init_non_blocking(ranks, RANKS - 1);
    for (auto &rank : ranks)
        assert_int_equal(polls(rank->comm), -1);
    assert_non_null(strstr(ncclGetLastError(nullptr), "rank 2 has not joined"));
    abort_together(ranks);
}

static void ranks_that_disagree_stay_in_progress_until_they_abort(void **) {
    std::vector<std::unique_ptr<Rank>> ranks;
    init_non_blocking(ranks, RANKS);
    check(ncclGroupStart());
    std::vector<std::unique_ptr<Array<float>>> values;
    for (auto &rank : ranks) {
        polls(rank->comm);
        rank->use();
        values.push_back(std::make_unique<Array<float>>(std::vector<float>(5, 1)));
        size_t count = rank->device == 1 ? 4 : 5;
        check(ncclReduce(values.back()->get(), values.back()->get(), count, ncclFloat32, ncclSum, 0,
                         rank->comm, rank->stream));
    }
    assert_int_equal(ncclGroupEnd(), ncclInProgress);
    assert_int_equal(polls(ranks[0]->comm), -1);
    assert_non_null(strstr(ncclGetLastError(nullptr), "ncclReduce(4 float32, sum, root 0)"));
    abort_together(ranks);
    for (auto &rank : ranks)
        rig::check(cudaStreamSynchronize(rank->stream));
}

/* Rank 2's stream stands still, so the others wait in the collective. */
static void abort_releases_streams_that_wait_for_another(void **) {
    Ring ring;
    Buffers<float> values(ring, COUNT);
    sim::Joint gate = sim::open_joint("a closed gate", 2, 0, [] {});
    rig::check(sim::join(gate, ring[2].stream));
    check(ncclGroupStart());
    for (int r = 0; r < RANKS; r++)
        check(ncclAllReduce(values[r], values[r], COUNT, ncclFloat32, ncclSum, ring[r].comm,
                            ring[r].stream));
    check(ncclGroupEnd());
    assert_int_equal(cudaStreamQuery(ring[0].stream), cudaErrorNotReady);
    check(ncclGroupStart());
    check(ncclCommAbort(ring[0].comm));
    check(ncclGroupEnd());
    ring[0].comm = nullptr;
    rig::check(cudaStreamSynchronize(ring[0].stream));
    rig::check(cudaStreamSynchronize(ring[1].stream));
    assert_int_equal(cudaStreamQuery(ring[2].stream), cudaErrorNotReady);
    sim::cancel(gate);
    ring.synchronize();
    assert_true(values.arrays[0]->read() == values.given[0]);
}

static void a_duplicate_gpu_is_invalid_usage(void **) {
    const int devices[] = {1, 0, 1};
    ncclComm_t comms[3];
    assert_int_equal(ncclCommInitAll(comms, 3, devices), ncclInvalidUsage);
    ncclUniqueId id;
    check(ncclGetUniqueId(&id));
    check(ncclGroupStart());
    for (int r = 0; r < 2; r++)
        check(ncclCommInitRank(&comms[r], 2, id, r));
    assert_int_equal(ncclGroupEnd(), ncclInvalidUsage);
    assert_non_null(strstr(ncclGetLastError(nullptr), "duplicate GPU"));
    check(ncclGroupStart());
    for (int r = 0; r < 2; r++)
        check(ncclCommAbort(comms[r]));
    check(ncclGroupEnd());
}

/* Rank 0 of two, in a thread of its own; nobody is rank 1. */
struct Lonely {
    ncclComm_t comm = nullptr;
    std::atomic<bool> waits{false};
    std::atomic<int> result{-1};
    std::thread thread;

    /* In a group, so that the handle is there before the wait. */
    void join() {
        ncclUniqueId id;
        check(ncclGetUniqueId(&id));
        check(cudaSetDevice(0));
        check(ncclGroupStart());
        check(ncclCommInitRank(&comm, 2, id, 0));
        waits = true;
        result = ncclGroupEnd();
    }
    void start() {
        thread = std::thread([this] { join(); });
        while (!waits)
            std::this_thread::yield();
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
};

static void an_abort_in_a_group_ends_a_blocking_call_and_frees_at_the_groups_end(void **) {
    size_t before = sim::outstanding();
    Lonely lonely;
    lonely.start();
    assert_int_equal(lonely.result, -1);
    check(ncclGroupStart());
    check(ncclCommAbort(lonely.comm));
    lonely.thread.join();
    assert_int_equal(lonely.result, ncclInternalError);
    assert_int_equal(sim::outstanding(), before + 1);
    check(ncclGroupEnd());
    assert_int_equal(sim::outstanding(), before);
}

static void bad_arguments_are_refused(void **) {
    Ring ring;
    Buffers<float> values(ring, 8);
    ncclComm_t comm = ring[0].comm, other;
    cudaStream_t stream = ring[0].stream;
    ncclUniqueId unknown = {};
    ncclConfig_t config = {};
    float *v = values[0];
    assert_int_equal(ncclReduce(v, v, 8, ncclFloat32, ncclSum, 3, comm, stream),
                     ncclInvalidArgument);
    assert_int_equal(ncclReduce(v, v, 8, ncclFloat16, ncclSum, 0, comm, stream),
                     ncclInvalidArgument);
    assert_int_equal(ncclReduce(v, v, 8, ncclFloat32, ncclSum, 0, nullptr, stream),
                     ncclInvalidArgument);
    assert_int_equal(ncclCommInitRank(&other, 2, unknown, 0), ncclInvalidArgument);
    check(ncclGetUniqueId(&unknown));
    assert_int_equal(ncclCommInitRank(&other, 2, unknown, 2), ncclInvalidArgument);
    assert_int_equal(ncclCommInitRankConfig(&other, 2, unknown, 0, &config), ncclInvalidArgument);
    assert_int_equal(ncclGroupEnd(), ncclInvalidUsage);
}

static void a_failing_call_fails_its_whole_group(void **) {
    Ring ring;
    Buffers<float> values(ring, COUNT);
    check(ncclGroupStart());
    sim::fail_call(2);
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(ncclAllReduce(values[r], values[r], COUNT, ncclFloat32, ncclSum,
                                       ring[r].comm, ring[r].stream),
                         r == 1 ? ncclUnhandledCudaError : ncclSuccess);
    sim::fail_call(0);
    assert_int_equal(ncclGroupEnd(), ncclUnhandledCudaError);
    ring.synchronize();
    assert_true(values.arrays[0]->read() == values.given[0]);
    ncclResult_t state;
    check(ncclCommGetAsyncError(ring[0].comm, &state));
    assert_int_equal(state, ncclUnhandledCudaError);
}

static void a_destroy_that_fails_leaks_nothing(void **) {
    size_t before = sim::outstanding();
    ncclComm_t comm;
    const int device = 0;
    check(ncclCommInitAll(&comm, 1, &device));
    assert_int_equal(sim::outstanding(), before + 1);
    sim::fail_call(1);
    assert_int_equal(ncclCommDestroy(comm), ncclInternalError);
    sim::fail_call(0);
    assert_int_equal(sim::outstanding(), before);
}

/* All-reduce on every rank, each of a count, without a group or in one. */
static void all_reduce_counts(Ring &ring, const Buffers<float> &values, const size_t *counts) {
    for (int r = 0; r < RANKS; r++)
        ncclAllReduce(values[r], values[r], counts[r], ncclFloat32, ncclSum, ring[r].comm,
                      ring[r].stream);
}

SCENARIO(no_group) {
    Ring ring;
    Buffers<float> values(ring, 8);
    const size_t counts[] = {8, 8, 8};
    all_reduce_counts(ring, values, counts);
}

SCENARIO(different_counts) {
    Ring ring;
    Buffers<float> values(ring, 8);
    const size_t counts[] = {8, 8, 7};
    ncclGroupStart();
    all_reduce_counts(ring, values, counts);
    ncclGroupEnd();
}

SCENARIO(different_roots) {
    Ring ring;
    Buffers<float> values(ring, 8);
    ncclGroupStart();
    for (int r = 0; r < RANKS; r++)
        ncclBroadcast(values[r], values[r], 8, ncclFloat32, r / 2, ring[r].comm, ring[r].stream);
    ncclGroupEnd();
}

SCENARIO(different_calls) {
    Ring ring;
    Buffers<float> values(ring, 8);
    ncclGroupStart();
    ncclBroadcast(values[0], values[0], 8, ncclFloat32, 0, ring[0].comm, ring[0].stream);
    for (int r = 1; r < RANKS; r++)
        ncclReduce(values[r], values[r], 8, ncclFloat32, ncclSum, 0, ring[r].comm, ring[r].stream);
    ncclGroupEnd();
}

SCENARIO(rank_missing) {
    Ring ring;
    Buffers<float> values(ring, 8);
    ncclGroupStart();
    for (int r = 0; r < 2; r++)
        ncclBroadcast(values[r], values[r], 8, ncclFloat32, 0, ring[r].comm, ring[r].stream);
    ncclGroupEnd();
}

SCENARIO(two_threads) {
    Ring ring;
    Buffers<float> values(ring, 8);
    ncclGroupStart();
    ncclAllReduce(values[0], values[0], 8, ncclFloat32, ncclSum, ring[0].comm, ring[0].stream);
    std::thread([&] {
        ncclAllReduce(values[0], values[0], 8, ncclFloat32, ncclSum, ring[0].comm, ring[0].stream);
    }).join();
}

SCENARIO(abort_under_a_call) {
    Lonely lonely;
    lonely.start();
    ncclCommAbort(lonely.comm);
    lonely.thread.join();
}

SCENARIO(lone_abort) {
    Ring ring;
    ncclCommAbort(ring[0].comm);
}

SCENARIO(non_blocking_abort) {
    std::vector<std::unique_ptr<Rank>> ranks;
    init_non_blocking(ranks, RANKS);
    for (auto &rank : ranks)
        polls(rank->comm);
    Array<float> value(std::vector<float>(5, 1));
    ncclGroupStart();
    ncclAllReduce(value.get(), value.get(), 5, ncclFloat32, ncclSum, ranks[2]->comm,
                  ranks[2]->stream);
    std::thread([&] {
        ncclGroupStart();
        ncclCommAbort(ranks[2]->comm);
    }).join();
}

SCENARIO(dependent_group) {
    Ring ring;
    Buffers<float> values(ring, 8);
    ncclGroupStart();
    for (int r = 0; r < RANKS; r++) {
        ncclReduce(values[r], values[r], 8, ncclFloat32, ncclSum, 0, ring[r].comm, ring[r].stream);
        ncclBroadcast(values[r], values[r], 8, ncclFloat32, 0, ring[r].comm, ring[r].stream);
    }
    ncclGroupEnd();
}

SCENARIO(foreign_stream) {
    Ring ring;
    Buffers<float> values(ring, 8);
    ncclAllReduce(values[0], values[0], 8, ncclFloat32, ncclSum, ring[0].comm, ring[1].stream);
}

SCENARIO(foreign_memory) {
    Ring ring;
    Buffers<float> values(ring, 8);
    ncclAllReduce(values[1], values[0], 8, ncclFloat32, ncclSum, ring[0].comm, ring[0].stream);
}

SCENARIO(too_small) {
    Ring ring;
    Buffers<float> values(ring, 8);
    ncclAllGather(values[0], values[0], 1000, ncclFloat32, ring[0].comm, ring[0].stream);
}

static void what_would_hang_is_reported_with_both_sides(void **) {
    rig::Environment patience("SIMCUDA_DEADLOCK_MS", "300");
    rig::assert_violation("ncclGroupStart and ncclGroupEnd", "no_group");
    rig::assert_violation("rank 0 waits in ncclAllReduce(8 float32, sum); rank 1 waits in "
                          "ncclAllReduce(8 float32, sum); rank 2 waits in ncclAllReduce(7",
                          "different_counts");
    rig::assert_violation("root 1", "different_roots");
    rig::assert_violation("rank 1 waits in ncclReduce", "different_calls");
    rig::assert_violation("rank 2 has called nothing", "rank_missing");
}

static void broken_rules_are_reported(void **) {
    rig::assert_violation("another thread is inside", "two_threads");
    rig::assert_violation("frees the communicator of rank 0 while a thread is inside",
                          "abort_under_a_call");
    rig::assert_violation("may wait for the work of rank 1", "lone_abort");
    rig::assert_violation("a call of a non-blocking communicator", "non_blocking_abort");
    rig::assert_violation("whose calls have no order", "dependent_group");
    rig::assert_violation("a stream of another device", "foreign_stream");
    rig::assert_violation("ncclAllReduce", "foreign_memory");
    rig::assert_violation("ncclAllGather", "too_small");
}

int main(int count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(non_blocking_calls_end_after_a_while),
        cmocka_unit_test(a_missing_rank_leaves_the_others_in_progress_until_they_abort),
        cmocka_unit_test(ranks_that_disagree_stay_in_progress_until_they_abort),
        cmocka_unit_test(abort_releases_streams_that_wait_for_another),
        cmocka_unit_test(a_duplicate_gpu_is_invalid_usage),
        cmocka_unit_test(an_abort_in_a_group_ends_a_blocking_call_and_frees_at_the_groups_end),
        cmocka_unit_test(bad_arguments_are_refused),
        cmocka_unit_test(a_failing_call_fails_its_whole_group),
        cmocka_unit_test(a_destroy_that_fails_leaks_nothing),
        cmocka_unit_test(what_would_hang_is_reported_with_both_sides),
        cmocka_unit_test(broken_rules_are_reported),
    };
    return RUN_TESTS(count, arguments, tests);
}
