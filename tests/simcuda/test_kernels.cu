/* SPDX-License-Identifier: Apache-2.0 */
/* How kernels run: blocks, threads, barriers and shuffles as on a GPU; the simulator enforces their
 * rules and shows a missing barrier, and what needs an order of blocks. */
#include "device/cuda/kernel.h"
#include "simcuda/environment.h"
#include "simcuda/rig.h"

using rig::Array;

extern "C" __attribute__((weak)) void *__tsan_create_fiber(unsigned flags);

static const cudaStream_t STREAM = nullptr; /* the legacy one */

static __global__ void count_visits(int *visits, size_t count) {
    GRID_STRIDE(i, count) visits[i] += 1;
}

static void loop_visits_every_element_once(void **) {
    for (size_t count : {1u, 255u, 256u, 257u, 100000u}) {
        Array<int> visits(count);
        LAUNCH(count_visits, cuda_blocks(count / 3 + 1), CUDA_THREADS, STREAM, visits.get(), count);
        assert_int_equal(cudaGetLastError(), cudaSuccess);
        for (int visit : visits.read())
            assert_int_equal(visit, 1);
    }
}

static __global__ void sum_blocks(const float *from, float *sums, size_t count) {
    __shared__ float part[CUDA_WARP];
    float sum = 0;
    GRID_STRIDE(i, count) sum += from[i];
    sum = cuda_block_sum(sum, part);
    if (threadIdx.x == 5) sums[blockIdx.x] = sum;
}

static void sum_over_a_block_is_the_sum(void **) {
    for (unsigned threads : {32u, 256u, 1024u}) {
        size_t count = threads * 7;
        std::vector<float> from = rig::values(count, threads);
        Array<float> on_device(from), sums(7);
        LAUNCH_BLOCK(sum_blocks, 7, threads, STREAM, on_device.get(), sums.get(), count);
        std::vector<double> wanted(7);
        for (size_t i = 0; i < count; i++)
            wanted[i / threads] += (double)from[i];
        rig::assert_close(sums.read(), wanted, 1e-5);
    }
}

static __global__ void shuffle_lanes(int *to, double *doubles) {
    int lane = (int)threadIdx.x % CUDA_WARP, i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    int crossed = __shfl_xor_sync(0xffffffffu, i, 5);
    doubles[i] = __shfl_sync(0xffffffffu, i * 0.5, 3);
    if (lane < 8) crossed += 1000 * __shfl_xor_sync(0xffu, lane, 1);
    to[i] = crossed;
}

static void shuffles_exchange_lanes_of_one_warp(void **) {
    Array<int> to((size_t)3 * 96);
    Array<double> doubles((size_t)3 * 96);
    LAUNCH_BLOCK(shuffle_lanes, 3, 96, STREAM, to.get(), doubles.get());
    std::vector<int> crossed = to.read();
    std::vector<double> given = doubles.read();
    for (int i = 0; i < 3 * 96; i++) {
        int lane = i % 32;
        assert_int_equal(crossed[(size_t)i], (i ^ 5) + (lane < 8 ? 1000 * (lane ^ 1) : 0));
        assert_true(given[(size_t)i] == (i - lane + 3) * 0.5);
    }
}

static __global__ void count_threads(int *counter) {
    atomicAdd(counter, 2);
}

static void atomic_additions_are_all_counted(void **) {
    Array<int> counter((size_t)1);
    LAUNCH(count_threads, 40, 100, STREAM, counter.get());
    assert_int_equal(counter.read()[0], 2 * 40 * 100);
}

static __global__ void fill(float *to, float value) {
    to[threadIdx.x] = value;
}

static void arguments_are_copied_at_the_launch(void **) {
    Array<float> to((size_t)8);
    float value = 3;
    float *pointer = to.get();
    LAUNCH(fill, 1, 8, STREAM, pointer, value);
    value = 4;
    pointer = nullptr;
    for (float filled : to.read())
        assert_true(filled == 3);
    assert_true(value == 4 && pointer == nullptr);
}

static void a_bad_launch_fails_and_runs_nothing(void **) {
    Array<float> to((size_t)8);
    for (unsigned threads : {0u, 1025u}) {
        LAUNCH(fill, 1, threads, STREAM, to.get(), 1.0f);
        assert_int_equal(cudaGetLastError(), cudaErrorInvalidConfiguration);
    }
    LAUNCH(fill, 0, 8, STREAM, to.get(), 1.0f);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidConfiguration);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    for (float untouched : to.read())
        assert_true(untouched == 0);
}

static void a_launch_on_a_stream_of_another_device_fails(void **) {
    cudaStream_t stream;
    rig::check(cudaSetDevice(1));
    rig::check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    Array<float> to((size_t)8);
    rig::check(cudaSetDevice(0));
    LAUNCH(fill, 1, 8, stream, to.get(), 1.0f);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidResourceHandle);
    rig::check(cudaStreamDestroy(stream));
}

static void a_planted_fault_fails_the_launch(void **) {
    Array<float> to((size_t)8);
    sim::fail_call(1);
    LAUNCH(fill, 1, 8, STREAM, to.get(), 1.0f);
    assert_int_not_equal(cudaGetLastError(), cudaSuccess);
    assert_string_equal(sim::failed_call(), "cudaLaunchKernel");
    sim::fail_call(0);
    for (float untouched : to.read())
        assert_true(untouched == 0);
}

static __global__ void leave_early(float *to) {
    if (threadIdx.x == 7) return;
    __syncthreads();
    to[threadIdx.x] = 1;
}

static __global__ void wait_in_a_branch(float *to) {
    if (threadIdx.x < 32) __syncthreads();
    to[threadIdx.x] = __shfl_sync(0xffffffffu, 1.0f, 0);
}

static __global__ void shuffle_outside_the_mask(float *to) {
    to[threadIdx.x] = __shfl_xor_sync(0xffu, 1.0f, 8);
}

/* An array of the caller's frame; the program ends in a violation. */
#define LAUNCH_AND_WAIT(launch, kernel)                                                            \
    Array<float> to((size_t)64);                                                                   \
    launch(kernel, 1, 64, STREAM, to.get());                                                       \
    cudaDeviceSynchronize()

SCENARIO(barrier_without_barriers) {
    LAUNCH_AND_WAIT(LAUNCH, leave_early);
}
SCENARIO(one_thread_leaves) {
    LAUNCH_AND_WAIT(LAUNCH_BLOCK, leave_early);
}
SCENARIO(half_a_block_waits) {
    LAUNCH_AND_WAIT(LAUNCH_BLOCK, wait_in_a_branch);
}
SCENARIO(lane_outside_the_mask) {
    LAUNCH_AND_WAIT(LAUNCH_BLOCK, shuffle_outside_the_mask);
}

static void rules_of_barriers_are_enforced(void **) {
    rig::assert_violation("launched with LAUNCH:", "barrier_without_barriers");
    rig::assert_violation("1 have left: every thread of a block must reach", "one_thread_leaves");
    rig::assert_violation("32 of its 64 threads wait at __syncthreads", "half_a_block_waits");
    rig::assert_violation("under mask 0xff", "lane_outside_the_mask");
}

template <bool BARRIER> static __global__ void reverse(const int *from, int *to) {
    __shared__ int part[CUDA_THREADS];
    part[threadIdx.x] = from[threadIdx.x];
    if (BARRIER) __syncthreads();
    to[threadIdx.x] = part[blockDim.x - 1 - threadIdx.x];
}

/* Elements that are wrong after one launch. */
static int wrong_elements(bool barrier, int run) {
    std::vector<int> from(CUDA_THREADS);
    for (int i = 0; i < CUDA_THREADS; i++)
        from[(size_t)i] = 1000 * run + i;
    Array<int> on_device(from), to(from);
    auto kernel = barrier ? reverse<true> : reverse<false>;
    LAUNCH_BLOCK(kernel, 1, CUDA_THREADS, STREAM, on_device.get(), to.get());
    std::vector<int> is = to.read();
    int wrong = 0;
    for (int i = 0; i < CUDA_THREADS; i++)
        wrong += is[(size_t)i] != from[(size_t)(CUDA_THREADS - 1 - i)];
    return wrong;
}

static void a_missing_barrier_gives_a_wrong_result(void **) {
    for (int run = 1; run <= 5; run++) {
        assert_int_equal(wrong_elements(true, run), 0);
        assert_int_not_equal(wrong_elements(false, run), 0);
    }
}

/* Each block notes its turn. */
static __global__ void note_turns(int *turns, int *blocks) {
    turns[blockIdx.x] = atomicAdd(blocks, 1);
}

static void every_block_runs_once(void **) {
    const unsigned blocks = 300;
    Array<int> turns((size_t)blocks), count((size_t)1);
    LAUNCH(note_turns, blocks, 1, STREAM, turns.get(), count.get());
    std::vector<int> noted = turns.read();
    std::sort(noted.begin(), noted.end());
    for (unsigned i = 0; i < blocks; i++)
        assert_int_equal(noted[i], (int)i);
}

SCENARIO(eight_turns) {
    Array<int> turns((size_t)8), count((size_t)1);
    LAUNCH(note_turns, 8, 1, STREAM, turns.get(), count.get());
    for (int turn : turns.read())
        fprintf(stderr, "%d ", turn);
}

static void a_seed_is_an_order_of_blocks_and_another_seed_is_another(void **) {
    std::vector<std::string> orders;
    for (int seed = 0; seed < 8; seed++) {
        rig::Environment setting("SIMCUDA_SEED", std::to_string(seed));
        orders.push_back(rig::run("eight_turns").text);
        assert_string_equal(orders.back().c_str(), rig::run("eight_turns").text.c_str());
    }
    std::sort(orders.begin(), orders.end());
    assert_true(std::unique(orders.begin(), orders.end()) - orders.begin() >= 7);
}

/* Right where blocks run by their numbers alone. */
static __global__ void add_to_the_block_before(int *to) {
    if (blockIdx.x > 0) to[blockIdx.x] = to[blockIdx.x - 1] + 1;
}

/* Right in every order: the block that comes last adds up what all have left. */
static __global__ void sum_in_the_last_block(int *parts, int *arrived, int *sum) {
    parts[blockIdx.x] = (int)blockIdx.x;
    if (atomicAdd(arrived, 1) != (int)gridDim.x - 1) return;
    for (unsigned i = 0; i < gridDim.x; i++)
        *sum += parts[i];
}

static void a_kernel_that_needs_an_order_of_blocks_gives_a_wrong_result(void **) {
    const int blocks = 64;
    for (int run = 0; run < 5; run++) {
        Array<int> chain((size_t)blocks), parts((size_t)blocks), arrived((size_t)1), sum((size_t)1);
        LAUNCH(add_to_the_block_before, blocks, 1, STREAM, chain.get());
        LAUNCH(sum_in_the_last_block, blocks, 1, STREAM, parts.get(), arrived.get(), sum.get());
        std::vector<int> is = chain.read();
        int wrong = 0;
        for (int i = 0; i < blocks; i++)
            wrong += is[(size_t)i] != i;
        assert_true(wrong > 0);
        assert_int_equal(sum.read()[0], blocks * (blocks - 1) / 2);
    }
}

/* Under ThreadSanitizer, each GPU thread a thread to it. */
static rig::Outcome race_check(const char *scenario) {
    setenv("SIMCUDA_RACECHECK", "1", 1);
    setenv("TSAN_OPTIONS", "exitcode=66 halt_on_error=1", 1);
    rig::Outcome outcome = rig::run(scenario);
    unsetenv("SIMCUDA_RACECHECK");
    unsetenv("TSAN_OPTIONS");
    return outcome;
}

SCENARIO(missing_barrier) {
    wrong_elements(false, 1);
}
SCENARIO(right_kernels) {
    wrong_elements(true, 1);
    loop_visits_every_element_once(nullptr);
    sum_over_a_block_is_the_sum(nullptr);
}

static void a_missing_barrier_is_a_data_race_and_right_kernels_have_none(void **) {
    if (__tsan_create_fiber == nullptr) skip();
    rig::Outcome missing = race_check("missing_barrier"), right = race_check("right_kernels");
    assert_true(WIFEXITED(missing.status) && WEXITSTATUS(missing.status) == 66);
    assert_non_null(strstr(missing.text.c_str(), "data race"));
    assert_non_null(strstr(missing.text.c_str(), "test_kernels.cu"));
    if (right.status != 0) fail_msg("%s", right.text.c_str());
}

int main(int count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loop_visits_every_element_once),
        cmocka_unit_test(sum_over_a_block_is_the_sum),
        cmocka_unit_test(shuffles_exchange_lanes_of_one_warp),
        cmocka_unit_test(atomic_additions_are_all_counted),
        cmocka_unit_test(arguments_are_copied_at_the_launch),
        cmocka_unit_test(a_bad_launch_fails_and_runs_nothing),
        cmocka_unit_test(a_launch_on_a_stream_of_another_device_fails),
        cmocka_unit_test(a_planted_fault_fails_the_launch),
        cmocka_unit_test(rules_of_barriers_are_enforced),
        cmocka_unit_test(a_missing_barrier_gives_a_wrong_result),
        cmocka_unit_test(every_block_runs_once),
        cmocka_unit_test(a_seed_is_an_order_of_blocks_and_another_seed_is_another),
        cmocka_unit_test(a_kernel_that_needs_an_order_of_blocks_gives_a_wrong_result),
        cmocka_unit_test(a_missing_barrier_is_a_data_race_and_right_kernels_have_none),
    };
    return RUN_TESTS(count, arguments, tests);
}
