/* SPDX-License-Identifier: Apache-2.0 */
/* What NCCL computes: every operation equals a plain reference, rank by rank. */
#include <thread>

#include "simcuda/ring.h"

using rig::Array;
using rig::Buffers;
using rig::check;
using rig::Rank;
using rig::RANKS;
using rig::Ring;

/* One operation of all ranks in one group, and its end. */
template <typename Call> static void together(Ring &ring, Call call) {
    check(ncclGroupStart());
    for (int r = 0; r < RANKS; r++)
        check(call(r, ring[r].comm, ring[r].stream));
    check(ncclGroupEnd());
    ring.synchronize();
}

constexpr size_t COUNT = 2500;

static double reduced(ncclRedOp_t op, const std::vector<double> &values) {
    double result = values[0];
    for (size_t i = 1; i < values.size(); i++)
        result = op == ncclProd  ? result * values[i]
                 : op == ncclMax ? std::max(result, values[i])
                 : op == ncclMin ? std::min(result, values[i])
                                 : result + values[i];
    return op == ncclAvg ? result / (double)values.size() : result;
}

template <typename T> static void assert_all_reduce(ncclDataType_t type, double tolerance) {
    Ring ring;
    for (ncclRedOp_t op : {ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg}) {
        if (op == ncclProd && sizeof(T) == 1) continue; /* overflows */
        Buffers<T> from(ring, COUNT), to(ring, COUNT);
        together(ring, [&](int r, ncclComm_t comm, cudaStream_t stream) {
            return ncclAllReduce(from[r], to[r], COUNT, type, op, comm, stream);
        });
        for (size_t i = 0; i < COUNT; i += 311) {
            double wanted = reduced(op, {from.at(0, i), from.at(1, i), from.at(2, i)});
            if (std::is_integral<T>::value) wanted = std::trunc(wanted);
            for (int r = 0; r < RANKS; r++)
                if (std::abs(to.now(r, i) - wanted) > tolerance)
                    fail_msg("type %d, operation %d: %g, expected %g", type, op, to.now(r, i),
                             wanted);
        }
    }
}

static void all_reduce_gives_every_rank_the_reduction_of_every_type(void **) {
    assert_all_reduce<float>(ncclFloat32, 1e-6);
    assert_all_reduce<double>(ncclFloat64, 1e-15);
    assert_all_reduce<__nv_bfloat16>(ncclBfloat16, 0.02);
    assert_all_reduce<int32_t>(ncclInt32, 0);
    assert_all_reduce<int64_t>(ncclInt64, 0);
}

static void reductions_go_rank_by_rank(void **) {
    Ring ring;
    Buffers<float> from(ring, COUNT);
    together(ring, [&](int r, ncclComm_t comm, cudaStream_t stream) {
        return ncclAllReduce(from[r], from[r], COUNT, ncclFloat32, ncclSum, comm, stream);
    });
    for (size_t i = 0; i < COUNT; i++)
        if (i % 499 == 0) {
            float sum = from.given[0][i] + from.given[1][i];
            assert_true((float)from.now(1, i) == sum + from.given[2][i]);
        }
}

static void reduce_writes_the_root_alone(void **) {
    Ring ring;
    Buffers<float> from(ring, COUNT), to(ring, COUNT);
    together(ring, [&](int r, ncclComm_t comm, cudaStream_t stream) {
        return ncclReduce(from[r], r == 1 ? to[r] : nullptr, COUNT, ncclFloat32, ncclSum, 1, comm,
                          stream);
    });
    std::vector<double> wanted;
    for (size_t i = 0; i < COUNT; i++)
        wanted.push_back(from.at(0, i) + from.at(1, i) + from.at(2, i));
    rig::assert_close(to.arrays[1]->read(), wanted, 1e-6);
    assert_true(to.arrays[0]->read() == to.given[0]);
}

static void broadcast_copies_the_root(void **) {
    Ring ring;
    Buffers<float> values(ring, COUNT);
    together(ring, [&](int r, ncclComm_t comm, cudaStream_t stream) {
        return ncclBroadcast(values[r], values[r], COUNT, ncclFloat32, 2, comm, stream);
    });
    for (int r = 0; r < RANKS; r++)
        assert_true(values.arrays[(size_t)r]->read() == values.given[2]);
}

static void reduce_scatter_and_all_gather_make_an_all_reduce_in_place(void **) {
    Ring ring;
    Buffers<float> values(ring, COUNT * RANKS);
    together(ring, [&](int r, ncclComm_t comm, cudaStream_t stream) {
        return ncclReduceScatter(values[r], values[r] + (size_t)r * COUNT, COUNT, ncclFloat32,
                                 ncclSum, comm, stream);
    });
    together(ring, [&](int r, ncclComm_t comm, cudaStream_t stream) {
        return ncclAllGather(values[r] + (size_t)r * COUNT, values[r], COUNT, ncclFloat32, comm,
                             stream);
    });
    std::vector<double> wanted;
    for (size_t i = 0; i < COUNT * RANKS; i++)
        wanted.push_back(values.at(0, i) + values.at(1, i) + values.at(2, i));
    for (int r = 0; r < RANKS; r++)
        rig::assert_close(values.arrays[(size_t)r]->read(), wanted, 1e-6);
}

static void sends_meet_their_receives(void **) {
    Ring ring;
    Buffers<float> from(ring, COUNT), to(ring, COUNT);
    check(ncclGroupStart());
    for (int r = 0; r < RANKS; r++) {
        check(ncclRecv(to[r], COUNT, ncclFloat32, (r + 2) % RANKS, ring[r].comm, ring[r].stream));
        check(ncclSend(from[r], COUNT, ncclFloat32, (r + 1) % RANKS, ring[r].comm, ring[r].stream));
    }
    check(ncclGroupEnd());
    ring.synchronize();
    for (int r = 0; r < RANKS; r++)
        assert_true(to.arrays[(size_t)r]->read() == from.given[(size_t)((r + 2) % RANKS)]);
}

static void one_thread_a_rank_needs_no_group(void **) {
    ncclUniqueId id;
    check(ncclGetUniqueId(&id));
    std::vector<std::thread> threads;
    std::vector<float> results(RANKS);
    for (int r = 0; r < RANKS; r++)
        threads.emplace_back([r, id, &results] {
            Rank rank(r);
            check(ncclCommInitRank(&rank.comm, RANKS, id, r));
            Array<float> value(std::vector<float>(1, (float)(r + 1)));
            for (int i = 0; i < 3; i++)
                check(ncclAllReduce(value.get(), value.get(), 1, ncclFloat32, ncclSum, rank.comm,
                                    rank.stream));
            results[(size_t)r] = value.read()[0];
        });
    for (std::thread &thread : threads)
        thread.join();
    for (float result : results)
        assert_true(result == 6 * 3 * 3);
}

static void a_communicator_knows_its_place(void **) {
    Ring ring;
    int count, rank, device, version;
    check(ncclCommCount(ring[1].comm, &count));
    check(ncclCommUserRank(ring[1].comm, &rank));
    check(ncclCommCuDevice(ring[0].comm, &device));
    check(ncclGetVersion(&version));
    assert_int_equal(count, RANKS);
    assert_int_equal(rank, 1);
    assert_int_equal(device, 2);
    assert_int_equal(version, NCCL_VERSION_CODE);
}

int main(int count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_reduce_gives_every_rank_the_reduction_of_every_type),
        cmocka_unit_test(reductions_go_rank_by_rank),
        cmocka_unit_test(reduce_writes_the_root_alone),
        cmocka_unit_test(broadcast_copies_the_root),
        cmocka_unit_test(reduce_scatter_and_all_gather_make_an_all_reduce_in_place),
        cmocka_unit_test(sends_meet_their_receives),
        cmocka_unit_test(one_thread_a_rank_needs_no_group),
        cmocka_unit_test(a_communicator_knows_its_place),
    };
    return RUN_TESTS(count, arguments, tests);
}
