/* Streams, events and who waits for what: what CUDA promises holds, and what it does not promise
 * does not. */
#include <thread>

#include "simcuda/environment.h"
#include "simcuda/rig.h"

using rig::Array;
using rig::check;

static cudaStream_t make_stream() {
    cudaStream_t stream;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

static cudaEvent_t make_event(unsigned flags = cudaEventDefault) {
    cudaEvent_t event;
    check(cudaEventCreateWithFlags(&event, flags));
    return event;
}

static void add_one(float *values, size_t count, cudaStream_t stream) {
    check(sim::enqueue(stream, "add_one", 1000, [=] {
        for (size_t i = 0; i < count; i++)
            values[i] += 1;
    }));
}

static rig::Outcome run_with_seed(const char *scenario, uint64_t seed) {
    rig::Environment setting("SIMCUDA_SEED", std::to_string(seed));
    return rig::run(scenario);
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
    cudaEvent_t ready = make_event(cudaEventDisableTiming);
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
    cudaEvent_t event = make_event();
    check(cudaSetDevice(0));
    cudaEvent_t foreign = make_event();
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
    cudaEvent_t event = make_event();
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

static void a_wait_for_what_cannot_come_is_told_at_once_as_a_deadlock(void **) {
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
    cudaEvent_t start = make_event(), middle = make_event(), end = make_event();
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
    cudaEvent_t event = make_event(), untimed = make_event(cudaEventDisableTiming);
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
    cudaEvent_t event = make_event();
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
        cmocka_unit_test(a_missing_wait_is_a_wrong_result_under_some_seed),
        cmocka_unit_test(a_missing_wait_is_a_data_race_and_a_right_program_has_none),
        cmocka_unit_test(a_missing_host_wait_is_a_data_race_and_a_right_program_has_none),
        cmocka_unit_test(a_joint_orders_its_streams_and_nothing_else_does),
        cmocka_unit_test(a_seed_is_an_order_and_another_seed_is_another),
        cmocka_unit_test(blocking_streams_wait_for_the_default_stream),
        cmocka_unit_test(what_was_destroyed_may_not_be_used),
        cmocka_unit_test(a_wait_for_what_cannot_come_is_told_at_once_as_a_deadlock),
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
