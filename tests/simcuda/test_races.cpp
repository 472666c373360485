/* SPDX-License-Identifier: Apache-2.0 */
/* Races: accesses that nothing orders show as data races or wrong results; accesses that CUDA orders
 * never do. */
#include "simcuda/environment.h"
#include "simcuda/rig.h"

using rig::check;
using rig::make_event;
using rig::make_stream;

static void add_one(float *values, size_t count, cudaStream_t stream) {
    check(sim::enqueue(stream, "add_one", 1000, [=] {
        for (size_t i = 0; i < count; i++)
            values[i] += 1;
    }));
}

static rig::Outcome run_with_seed(const char *scenario, uint64_t seed) {
    return rig::run_with("SIMCUDA_SEED", std::to_string(seed), scenario);
}

extern "C" __attribute__((weak)) void __tsan_acquire(void *);

static bool has_race(const char *scenario) {
    return rig::run(scenario).text.find("data race") != std::string::npos;
}

/* A producer and a consumer on two streams of one device; what the consumer copied. */
static float pass_on(bool wait) {
    const size_t count = 1000;
    float *values, *copy, result;
    check(cudaMalloc((void **)&values, count * sizeof(float)));
    check(cudaMalloc((void **)&copy, count * sizeof(float)));
    cudaStream_t producer = make_stream(), consumer = make_stream();
    cudaEvent_t ready = make_event();
    check(cudaMemsetAsync(values, 0, count * sizeof(float), producer));
    check(cudaStreamSynchronize(producer));
    add_one(values, count, producer);
    check(cudaEventRecord(ready, producer));
    if (wait) check(cudaStreamWaitEvent(consumer, ready, 0));
    check(cudaMemcpyAsync(copy, values, count * sizeof(float), cudaMemcpyDeviceToDevice, consumer));
    check(cudaStreamSynchronize(consumer));
    check(cudaStreamSynchronize(producer));
    check(cudaMemcpy(&result, copy + count - 1, sizeof result, cudaMemcpyDeviceToHost));
    check(cudaEventDestroy(ready));
    check(cudaStreamDestroy(producer));
    check(cudaStreamDestroy(consumer));
    check(cudaFree(values));
    check(cudaFree(copy));
    return result;
}

SCENARIO(without_wait) {
    exit(pass_on(false) == 1 ? 0 : 1);
}
SCENARIO(with_wait) {
    exit(pass_on(true) == 1 ? 0 : 1);
}

static const uint64_t SEEDS = 24;

static int count_wrong(const char *scenario) {
    int wrong = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        rig::Outcome outcome = run_with_seed(scenario, seed);
        assert_true(WIFEXITED(outcome.status));
        assert_string_equal(outcome.text.c_str(), "");
        wrong += WEXITSTATUS(outcome.status);
    }
    return wrong;
}

static void a_missing_wait_is_a_wrong_result_under_some_seed(void **) {
    if (sim::settings().threads) skip();
    assert_int_equal(count_wrong("with_wait"), 0);
    int wrong = count_wrong("without_wait");
    assert_in_range(wrong, 1, SEEDS - 1); /* a race, not a certainty */
}

static void a_missing_wait_is_a_data_race_and_a_right_program_has_none(void **) {
    if (__tsan_acquire == nullptr) skip();
    assert_true(has_race("without_wait"));
    assert_false(has_race("with_wait"));
}

/* Reuses a pinned buffer while a copy may still read it. */
static void reuse_buffer(bool wait) {
    float *buffer, *values;
    check(cudaMallocHost((void **)&buffer, 4096));
    check(cudaMalloc((void **)&values, 4096));
    cudaStream_t stream = make_stream();
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 1024; k++)
            buffer[k] = (float)i;
        check(cudaMemcpyAsync(values, buffer, 4096, cudaMemcpyHostToDevice, stream));
        if (wait) check(cudaStreamSynchronize(stream));
    }
    check(cudaStreamDestroy(stream));
    check(cudaFree(values));
    check(cudaFreeHost(buffer));
}

SCENARIO(without_host_wait) {
    reuse_buffer(false);
}
SCENARIO(with_host_wait) {
    reuse_buffer(true);
}

static void a_missing_host_wait_is_a_data_race_and_a_right_program_has_none(void **) {
    if (__tsan_acquire == nullptr) skip();
    assert_true(has_race("without_host_wait"));
    assert_false(has_race("with_host_wait"));
}

/* Many streams of many devices that share nothing but the runtime; then all meet. */
static void meet_at_a_joint(bool joint) {
    const int devices = 4;
    const size_t count = 256;
    std::vector<cudaStream_t> streams;
    std::vector<float *> values;
    for (int device = 0; device < devices; device++) {
        check(cudaSetDevice(device));
        values.push_back(nullptr);
        check(cudaMalloc((void **)&values.back(), count * sizeof(float)));
        streams.push_back(make_stream());
        for (int peer = 0; peer < devices; peer++)
            if (peer != device) check(cudaDeviceEnablePeerAccess(peer, 0));
        check(cudaMemsetAsync(values.back(), 0, count * sizeof(float), streams.back()));
        add_one(values.back(), count, streams.back());
    }
    auto sum = [values] {
        for (float *other : values)
            for (size_t i = 0; i < count && other != values[0]; i++)
                values[0][i] += other[i];
    };
    check(cudaSetDevice(0));
    if (joint)
        check(sim::enqueue_joint(streams, "sum", 1000, sum));
    else
        check(sim::enqueue(streams[0], "sum", 1000, sum));
    for (int device = 1; device < devices; device++)
        add_one(values[(size_t)device], count, streams[(size_t)device]);
    float result = 0;
    check(cudaMemcpyAsync(&result, values[0], sizeof result, cudaMemcpyDeviceToHost, streams[0]));
    for (int device = 0; device < devices; device++) {
        check(cudaStreamDestroy(streams[(size_t)device]));
        check(cudaFree(values[(size_t)device]));
    }
    if (joint && result != (float)devices) fprintf(stderr, "the sum is %g", (double)result);
}

SCENARIO(joint) {
    meet_at_a_joint(true);
}
SCENARIO(no_joint) {
    meet_at_a_joint(false);
}

static void a_joint_orders_its_streams_and_nothing_else_does(void **) {
    for (uint64_t seed = 0; seed < 6; seed++) {
        rig::Outcome outcome = run_with_seed("joint", seed);
        assert_string_equal(outcome.text.c_str(), "");
        assert_int_equal(outcome.status, 0);
    }
    if (__tsan_acquire != nullptr) assert_true(has_race("no_joint"));
}

int main(int count, char **arguments) {
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_wait_is_a_wrong_result_under_some_seed),
        cmocka_unit_test(a_missing_wait_is_a_data_race_and_a_right_program_has_none),
        cmocka_unit_test(a_missing_host_wait_is_a_data_race_and_a_right_program_has_none),
        cmocka_unit_test(a_joint_orders_its_streams_and_nothing_else_does),
    };
    return RUN_TESTS(count, arguments, tests);
}
