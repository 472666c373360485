/* SPDX-License-Identifier: Apache-2.0 */
/* Streams, events and waits: what CUDA promises holds, and what it does not promise does not. */
#include <thread>

#include "simcuda/environment.h"
#include "simcuda/rig.h"

using rig::check;
using rig::make_event;
using rig::make_stream;

static rig::Outcome run_with_seed(const char *scenario, uint64_t seed) {
    return rig::run_with("SIMCUDA_SEED", std::to_string(seed), scenario);
}

/* The order in which works of four streams run. */
SCENARIO(four_streams) {
    cudaStream_t streams[4];
    for (cudaStream_t &stream : streams)
        stream = make_stream();
    for (int i = 0; i < 32; i++)
        check(sim::enqueue(streams[i % 4], "note", 1000, [i] { fprintf(stderr, "%d ", i); }));
    check(cudaDeviceSynchronize());
    for (cudaStream_t stream : streams)
        check(cudaStreamDestroy(stream));
}

static void a_seed_is_an_order_and_another_seed_is_another(void **) {
    if (sim::settings().threads) skip();
    std::vector<std::string> orders;
    for (uint64_t seed = 0; seed < 8; seed++) {
        orders.push_back(run_with_seed("four_streams", seed).text);
        assert_string_equal(orders.back().c_str(),
                            run_with_seed("four_streams", seed).text.c_str());
    }
    std::sort(orders.begin(), orders.end());
    orders.erase(std::unique(orders.begin(), orders.end()), orders.end());
    assert_true(orders.size() >= 6);
}

static void works_of_one_stream_run_in_order(void **) {
    cudaStream_t stream = make_stream();
    std::vector<int> order;
    for (int i = 0; i < 100; i++)
        check(sim::enqueue(stream, "note", 1, [i, &order] { order.push_back(i); }));
    check(cudaStreamSynchronize(stream));
    assert_int_equal(order.size(), 100);
    for (int i = 0; i < 100; i++)
        assert_int_equal(order[(size_t)i], i);
    check(cudaStreamDestroy(stream));
}

static void a_launch_needs_its_device_and_an_event_its_own(void **) {
    check(cudaSetDevice(1));
    cudaStream_t stream = make_stream();
    cudaEvent_t event = make_event(cudaEventDefault);
    check(cudaSetDevice(0));
    cudaEvent_t foreign = make_event(cudaEventDefault);
    assert_int_equal(sim::stream_device(stream), 1);
    assert_int_equal(cudaEventRecord(foreign, stream), cudaErrorInvalidResourceHandle);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidResourceHandle);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    check(cudaEventRecord(event, stream)); /* whatever device is current */
    cudaStream_t other = make_stream();
    check(cudaStreamWaitEvent(other, event, 0));
    check(cudaStreamSynchronize(other));
    check(cudaEventQuery(event));
    check(cudaStreamDestroy(stream));
    check(cudaStreamDestroy(other));
    check(cudaEventDestroy(event));
    check(cudaEventDestroy(foreign));
}

SCENARIO(destroyed_stream) {
    cudaStream_t stream = make_stream();
    check(cudaStreamDestroy(stream));
    cudaStreamSynchronize(stream);
}
SCENARIO(event_destroyed_twice) {
    cudaEvent_t event = make_event(cudaEventDefault);
    check(cudaEventDestroy(event));
    cudaEventDestroy(event);
}

static void what_was_destroyed_may_not_be_used(void **) {
    rig::assert_violation("not a live stream", "destroyed_stream");
    rig::assert_violation("not a live event", "event_destroyed_twice");
}

static void a_destroyed_stream_finishes_its_work(void **) {
    bool done = false;
    cudaStream_t stream = make_stream();
    check(sim::enqueue(stream, "late", 1000, [&done] { done = true; }));
    check(cudaStreamDestroy(stream));
    check(cudaDeviceSynchronize());
    assert_true(done);
}

SCENARIO(one_is_missing) {
    cudaStream_t stream = make_stream();
    sim::Joint joint = sim::open_joint("meet", 2, 1000, nullptr);
    check(sim::join(joint, stream));
    cudaStreamSynchronize(stream);
}
SCENARIO(crossed) {
    cudaStream_t one = make_stream(), two = make_stream();
    sim::Joint first = sim::open_joint("first", 2, 1000, nullptr);
    sim::Joint second = sim::open_joint("second", 2, 1000, nullptr);
    check(sim::join(first, one));
    check(sim::join(second, two));
    check(sim::join(second, one));
    check(sim::join(first, two));
    cudaDeviceSynchronize();
}

static void a_wait_that_nothing_can_end_is_a_deadlock_at_once(void **) {
    time_t start = time(nullptr);
    rig::assert_violation("waits for 1 more of 2 streams to join", "one_is_missing");
    rig::assert_violation("device 0 stream 1: first waits for device 0 stream 2", "crossed");
    assert_in_range(time(nullptr) - start, 0, 10);
}

static void a_cancelled_meeting_lets_everybody_go(void **) {
    cudaStream_t stream = make_stream();
    bool done = false;
    sim::Joint joint = sim::open_joint("meet", 2, 1000, [&done] { done = true; });
    check(sim::join(joint, stream));
    sim::cancel(joint);
    check(cudaStreamSynchronize(stream));
    assert_false(done);
    check(cudaStreamDestroy(stream));
}

/* Another host thread brings what the first waits for. */
static void a_host_may_wait_for_what_another_thread_queues(void **) {
    cudaStream_t one = make_stream(), two = make_stream();
    int done = 0;
    sim::Joint joint = sim::open_joint("meet", 2, 1000, [&done] { done++; });
    check(sim::join(joint, one));
    std::thread other([&] {
        usleep(20000);
        check(sim::join(joint, two));
    });
    check(cudaStreamSynchronize(one));
    other.join();
    assert_int_equal(done, 1);
    check(cudaStreamDestroy(one));
    check(cudaStreamDestroy(two));
}

static void virtual_time_adds_up(void **) {
    cudaStream_t one = make_stream(), two = make_stream();
    cudaEvent_t start = make_event(cudaEventDefault), middle = make_event(cudaEventDefault),
                end = make_event(cudaEventDefault);
    check(cudaEventRecord(start, one));
    check(sim::enqueue(one, "slow", 5000000, [] {}));
    check(cudaEventRecord(middle, one));
    check(cudaStreamWaitEvent(two, middle, 0));
    check(sim::enqueue(two, "slow", 2000000, [] {}));
    check(cudaEventRecord(end, two));
    check(cudaDeviceSynchronize());
    float first, both;
    check(cudaEventElapsedTime(&first, start, middle));
    check(cudaEventElapsedTime(&both, start, end));
    assert_true(first >= 5 && first < 5.1f);
    assert_true(both >= 7 && both < 7.1f);
    for (cudaEvent_t event : {start, middle, end})
        check(cudaEventDestroy(event));
    check(cudaStreamDestroy(one));
    check(cudaStreamDestroy(two));
}

static void events_without_a_past_are_done_and_have_no_time(void **) {
    cudaEvent_t event = make_event(cudaEventDefault), untimed = make_event();
    float time;
    check(cudaEventQuery(event));
    check(cudaEventSynchronize(event));
    assert_int_equal(cudaEventElapsedTime(&time, event, event), cudaErrorInvalidResourceHandle);
    check(cudaEventRecord(untimed, nullptr));
    check(cudaEventSynchronize(untimed));
    assert_int_equal(cudaEventElapsedTime(&time, untimed, untimed), cudaErrorInvalidResourceHandle);
    cudaGetLastError();
    check(cudaEventDestroy(event));
    check(cudaEventDestroy(untimed));
}

static void a_query_sees_the_end_at_last(void **) {
    cudaStream_t stream = make_stream();
    cudaEvent_t event = make_event(cudaEventDefault);
    bool done = false;
    check(sim::enqueue(stream, "work", 1000, [&done] { done = true; }));
    check(cudaEventRecord(event, stream));
    while (cudaEventQuery(event) == cudaErrorNotReady)
        usleep(10);
    assert_true(done);
    check(cudaStreamSynchronize(stream));
    check(cudaStreamQuery(stream));
    cudaGetLastError();
    check(cudaEventDestroy(event));
    check(cudaStreamDestroy(stream));
}

SCENARIO(default_stream) {
    cudaStream_t blocking;
    check(cudaStreamCreateWithFlags(&blocking, cudaStreamDefault));
    for (int i = 0; i < 6; i++)
        check(
            sim::enqueue(i % 2 ? blocking : nullptr, "note", 1, [i] { fprintf(stderr, "%d", i); }));
    check(cudaDeviceSynchronize());
    check(cudaStreamDestroy(blocking));
}

static void blocking_streams_wait_for_the_default_stream(void **) {
    for (uint64_t seed = 0; seed < 9; seed++)
        assert_string_equal(run_with_seed("default_stream", seed).text.c_str(), "012345");
}

SCENARIO(call_in_work) {
    cudaStream_t stream = make_stream();
    check(cudaLaunchHostFunc(
        stream, [](void *data) { cudaStreamSynchronize((cudaStream_t)data); }, stream));
    cudaStreamSynchronize(stream);
}

static void work_may_not_call_cuda(void **) {
    rig::assert_violation("no function of CUDA may be", "call_in_work");
}

int main(int count, char **arguments) {
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_seed_is_an_order_and_another_seed_is_another),
        cmocka_unit_test(blocking_streams_wait_for_the_default_stream),
        cmocka_unit_test(what_was_destroyed_may_not_be_used),
        cmocka_unit_test(a_wait_that_nothing_can_end_is_a_deadlock_at_once),
        cmocka_unit_test(work_may_not_call_cuda),
        cmocka_unit_test(works_of_one_stream_run_in_order),
        cmocka_unit_test(a_launch_needs_its_device_and_an_event_its_own),
        cmocka_unit_test(a_destroyed_stream_finishes_its_work),
        cmocka_unit_test(a_cancelled_meeting_lets_everybody_go),
        cmocka_unit_test(a_host_may_wait_for_what_another_thread_queues),
        cmocka_unit_test(virtual_time_adds_up),
        cmocka_unit_test(events_without_a_past_are_done_and_have_no_time),
        cmocka_unit_test(a_query_sees_the_end_at_last),
    };
    return RUN_TESTS(count, arguments, tests);
}
