/* SPDX-License-Identifier: Apache-2.0 */
/* Captures and graphs: what a program may capture, and that a replay repeats it. */
#include <thread>

#include "simcuda/environment.h"
#include "simcuda/rig.h"

using rig::check;
using rig::make_event;
using rig::make_stream;

static void begin(cudaStream_t stream) {
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
}

static cudaStreamCaptureStatus status_of(cudaStream_t stream) {
    cudaStreamCaptureStatus status;
    check(cudaStreamIsCapturing(stream, &status));
    return status;
}

/* Ends with this code, and with a graph only when that is success. */
static void assert_end(cudaStream_t stream, cudaError_t code) {
    cudaGraph_t graph;
    assert_int_equal(cudaStreamEndCapture(stream, &graph), code);
    cudaGetLastError();
    assert_int_equal(graph != nullptr, code == cudaSuccess);
    if (graph != nullptr) check(cudaGraphDestroy(graph));
    assert_int_equal(status_of(stream), cudaStreamCaptureStatusNone);
}

static cudaGraphExec_t end_and_instantiate(cudaStream_t stream) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    check(cudaStreamEndCapture(stream, &graph));
    check(cudaGraphInstantiate(&exec, graph, 0));
    check(cudaGraphDestroy(graph));
    check(cudaGraphUpload(exec, stream));
    return exec;
}

static void a_replay_runs_what_was_captured_in_order(void **) {
    cudaStream_t stream = make_stream(), other = make_stream();
    std::vector<int> order;
    int *buffer, *values;
    check(cudaMallocHost((void **)&buffer, sizeof(int)));
    check(cudaMalloc((void **)&values, sizeof(int)));
    begin(stream);
    assert_int_equal(status_of(stream), cudaStreamCaptureStatusActive);
    for (int i = 0; i < 5; i++)
        check(sim::enqueue(stream, "note", 1000, [i, &order] { order.push_back(i); }));
    check(cudaMemcpyAsync(values, buffer, sizeof(int), cudaMemcpyHostToDevice, stream));
    cudaGraphExec_t exec = end_and_instantiate(stream);
    check(cudaStreamSynchronize(stream));
    assert_true(order.empty());
    for (int run = 0; run < 3; run++) {
        int result;
        *buffer = run;
        check(cudaGraphLaunch(exec, other));
        check(cudaStreamSynchronize(other));
        check(cudaMemcpy(&result, values, sizeof result, cudaMemcpyDeviceToHost));
        assert_int_equal(result, run);
    }
    assert_true(order == std::vector<int>({0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4}));
    check(cudaGraphExecDestroy(exec));
    check(cudaStreamDestroy(stream));
    check(cudaStreamDestroy(other));
    check(cudaFree(values));
    check(cudaFreeHost(buffer));
}

/* A fork into a second stream of the capture and back; without `fork` or `join` nothing orders it.
 */
static int run_forked(bool fork) {
    const size_t count = 512;
    float *values, *sums, result;
    check(cudaMalloc((void **)&values, count * sizeof(float)));
    check(cudaMalloc((void **)&sums, count * sizeof(float)));
    cudaStream_t stream = make_stream(), side = make_stream();
    cudaEvent_t forked = make_event(), joined = make_event();
    begin(stream);
    if (!fork) {
        check(cudaEventRecord(forked, stream));
        check(cudaStreamWaitEvent(side, forked, 0));
    }
    check(cudaMemsetAsync(values, 0, count * sizeof(float), stream));
    check(sim::enqueue(stream, "set", 1000, [=] {
        for (size_t i = 0; i < count; i++)
            values[i] = 1;
    }));
    if (fork) {
        check(cudaEventRecord(forked, stream));
        check(cudaStreamWaitEvent(side, forked, 0));
    }
    assert_int_equal(status_of(side), cudaStreamCaptureStatusActive);
    check(sim::enqueue(side, "double", 1000, [=] {
        for (size_t i = 0; i < count; i++)
            sums[i] = 2 * values[i];
    }));
    check(cudaEventRecord(joined, side));
    check(cudaStreamWaitEvent(stream, joined, 0));
    check(sim::enqueue(stream, "add", 1000, [=] {
        for (size_t i = 0; i < count; i++)
            values[i] += sums[i];
    }));
    cudaGraphExec_t exec = end_and_instantiate(stream);
    for (int run = 0; run < 2; run++)
        check(cudaGraphLaunch(exec, stream));
    check(cudaStreamSynchronize(stream));
    check(cudaMemcpy(&result, values, sizeof result, cudaMemcpyDeviceToHost));
    check(cudaGraphExecDestroy(exec));
    for (cudaEvent_t event : {forked, joined})
        check(cudaEventDestroy(event));
    for (cudaStream_t one : {stream, side})
        check(cudaStreamDestroy(one));
    check(cudaFree(values));
    check(cudaFree(sums));
    return result != 3;
}
SCENARIO(forked) {
    exit(run_forked(true));
}
SCENARIO(forked_too_early) {
    exit(run_forked(false));
}

extern "C" __attribute__((weak)) void __tsan_acquire(void *);

static void a_fork_within_a_capture_is_replayed_as_one(void **) {
    int wrong = 0;
    for (int seed = 0; seed < 12; seed++) {
        rig::Environment setting("SIMCUDA_SEED", std::to_string(seed));
        rig::Outcome right = rig::run("forked");
        assert_string_equal(right.text.c_str(), "");
        assert_int_equal(right.status, 0);
        wrong += rig::run("forked_too_early").status != 0;
    }
    if (!sim::settings().threads || __tsan_acquire != nullptr) assert_true(wrong > 0);
}

static void what_must_wait_for_the_host_invalidates_a_capture(void **) {
    cudaStream_t stream = make_stream();
    void *pointer, *values;
    float pageable[4] = {};
    check(cudaMalloc(&values, 64));
    const std::function<cudaError_t()> calls[] = {
        [&] { return cudaStreamSynchronize(stream); },
        [&] { return cudaStreamQuery(stream); },
        [&] { return cudaDeviceSynchronize(); },
        [&] { return cudaMalloc(&pointer, 16); },
        [&] { return cudaFree(values); },
        [&] { return cudaMallocHost(&pointer, 16); },
        [&] { return cudaMemcpy(values, pageable, 16, cudaMemcpyHostToDevice); },
        [&] { return cudaMemcpyAsync(values, pageable, 16, cudaMemcpyHostToDevice, stream); },
        [&] { return cudaMemcpyAsync(pageable, values, 16, cudaMemcpyDeviceToHost, stream); },
    };
    for (const auto &call : calls) {
        begin(stream);
        assert_int_equal(call(), cudaErrorStreamCaptureUnsupported);
        assert_int_equal(status_of(stream), cudaStreamCaptureStatusInvalidated);
        assert_int_equal(cudaMemsetAsync(values, 0, 16, stream), cudaErrorStreamCaptureInvalidated);
        assert_end(stream, cudaErrorStreamCaptureInvalidated);
    }
    check(cudaFree(values));
    check(cudaStreamDestroy(stream));
}

static void another_thread_may_allocate_unless_the_mode_is_global(void **) {
    cudaStream_t stream = make_stream();
    for (auto mode : {cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeGlobal}) {
        cudaError_t code = cudaSuccess;
        check(cudaStreamBeginCapture(stream, mode));
        std::thread other([&code] {
            void *pointer;
            code = cudaMalloc(&pointer, 16);
            if (code == cudaSuccess) check(cudaFree(pointer));
        });
        other.join();
        bool global = mode == cudaStreamCaptureModeGlobal;
        assert_int_equal(code, global ? cudaErrorStreamCaptureUnsupported : cudaSuccess);
        assert_end(stream, global ? cudaErrorStreamCaptureInvalidated : cudaSuccess);
    }
    check(cudaStreamDestroy(stream));
}

static void streams_of_a_capture_must_be_joined_and_its_own(void **) {
    cudaStream_t stream = make_stream(), side = make_stream();
    cudaEvent_t inside = make_event(), before = make_event(), unrelated = make_event();
    check(cudaEventRecord(before, side));
    begin(stream);
    check(cudaEventRecord(inside, stream));
    check(cudaStreamWaitEvent(side, inside, 0));
    assert_int_equal(cudaEventQuery(inside), cudaErrorCapturedEvent);
    assert_end(stream, cudaErrorStreamCaptureInvalidated);

    begin(stream);
    check(cudaEventRecord(inside, stream));
    check(cudaStreamWaitEvent(side, inside, 0));
    cudaGraph_t graph;
    assert_int_equal(cudaStreamEndCapture(side, &graph), cudaErrorStreamCaptureUnmatched);
    assert_end(stream, cudaErrorStreamCaptureUnjoined);
    assert_int_equal(status_of(side), cudaStreamCaptureStatusNone);

    begin(stream);
    assert_int_equal(cudaStreamWaitEvent(stream, before, 0), cudaErrorStreamCaptureIsolation);
    assert_end(stream, cudaErrorStreamCaptureInvalidated);

    begin(stream);
    begin(side);
    check(cudaEventRecord(unrelated, side));
    assert_int_equal(cudaStreamWaitEvent(stream, unrelated, 0), cudaErrorStreamCaptureMerge);
    assert_end(side, cudaErrorStreamCaptureInvalidated);
    assert_end(stream, cudaErrorStreamCaptureInvalidated);

    for (cudaEvent_t event : {inside, before, unrelated})
        check(cudaEventDestroy(event));
    for (cudaStream_t one : {stream, side})
        check(cudaStreamDestroy(one));
}

static void a_capture_begins_and_ends_once_in_its_thread(void **) {
    cudaStream_t stream = make_stream();
    cudaGraph_t graph;
    assert_int_equal(cudaStreamEndCapture(stream, &graph), cudaErrorIllegalState);
    assert_int_equal(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeRelaxed),
                     cudaErrorStreamCaptureUnsupported);
    begin(stream);
    assert_int_equal(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed),
                     cudaErrorIllegalState);
    std::thread other([=] {
        cudaGraph_t none;
        assert_int_equal(cudaStreamEndCapture(stream, &none), cudaErrorStreamCaptureWrongThread);
    });
    other.join();
    assert_end(stream, cudaSuccess);
    cudaGetLastError();
    check(cudaStreamDestroy(stream));
}

static void a_joint_within_one_capture_is_replayed(void **) {
    cudaStream_t stream = make_stream(), side = make_stream();
    cudaEvent_t event = make_event();
    int runs = 0;
    begin(stream);
    check(cudaEventRecord(event, stream));
    check(cudaStreamWaitEvent(side, event, 0));
    check(sim::enqueue_joint({stream, side}, "meet", 1000, [&runs] { runs++; }));
    check(cudaEventRecord(event, side));
    check(cudaStreamWaitEvent(stream, event, 0));
    cudaGraphExec_t exec = end_and_instantiate(stream);
    check(cudaGraphLaunch(exec, stream));
    check(cudaStreamSynchronize(stream));
    assert_int_equal(runs, 1);
    begin(stream);
    assert_int_equal(sim::enqueue_joint({stream, side}, "meet", 1000, [] {}),
                     cudaErrorStreamCaptureIsolation);
    assert_end(stream, cudaErrorStreamCaptureInvalidated);
    check(cudaGraphExecDestroy(exec));
    check(cudaEventDestroy(event));
    for (cudaStream_t one : {stream, side})
        check(cudaStreamDestroy(one));
}

/* Whoever waits outside for an event that every launch records waits for the launch before. */
static void an_external_event_is_recorded_by_every_launch(void **) {
    cudaStream_t stream = make_stream(), side = make_stream();
    cudaEvent_t begin_event, event;
    int value = 0, late = 0;
    check(cudaEventCreate(&begin_event));
    check(cudaEventCreate(&event));
    assert_int_equal(cudaEventRecordWithFlags(event, stream, cudaEventRecordExternal),
                     cudaErrorInvalidValue);
    cudaGetLastError();
    begin(stream);
    check(cudaEventRecordWithFlags(begin_event, stream, cudaEventRecordExternal));
    check(sim::enqueue(stream, "count", 1000000, [&value] { value++; }));
    check(cudaEventRecordWithFlags(event, stream, cudaEventRecordExternal));
    check(sim::enqueue(stream, "go on", 1000000, [&late] { late++; }));
    cudaGraphExec_t exec = end_and_instantiate(stream);
    for (int run = 1; run <= 2; run++) {
        float milliseconds = 0;
        int seen = 0;
        check(cudaGraphLaunch(exec, stream));
        check(cudaStreamWaitEvent(side, event, 0));
        check(sim::enqueue(side, "look", 1000, [&] { seen = value; }));
        check(cudaStreamSynchronize(side));
        assert_int_equal(seen, run);
        check(cudaEventSynchronize(event));
        check(cudaEventElapsedTime(&milliseconds, begin_event, event));
        assert_true(milliseconds >= 1);
    }
    check(cudaStreamSynchronize(stream));
    assert_int_equal(late, 2);
    check(cudaGraphExecDestroy(exec));
    for (cudaEvent_t one : {begin_event, event})
        check(cudaEventDestroy(one));
    for (cudaStream_t one : {stream, side})
        check(cudaStreamDestroy(one));
}

SCENARIO(graph_destroyed_twice) {
    cudaStream_t stream = make_stream();
    cudaGraph_t graph;
    begin(stream);
    check(cudaStreamEndCapture(stream, &graph));
    check(cudaGraphDestroy(graph));
    cudaGraphDestroy(graph);
}

static void a_graph_is_destroyed_once(void **) {
    rig::assert_violation("not a live graph", "graph_destroyed_twice");
}

int main(int count, char **arguments) {
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_replay_runs_what_was_captured_in_order),
        cmocka_unit_test(a_fork_within_a_capture_is_replayed_as_one),
        cmocka_unit_test(what_must_wait_for_the_host_invalidates_a_capture),
        cmocka_unit_test(another_thread_may_allocate_unless_the_mode_is_global),
        cmocka_unit_test(streams_of_a_capture_must_be_joined_and_its_own),
        cmocka_unit_test(a_capture_begins_and_ends_once_in_its_thread),
        cmocka_unit_test(a_joint_within_one_capture_is_replayed),
        cmocka_unit_test(an_external_event_is_recorded_by_every_launch),
        cmocka_unit_test(a_graph_is_destroyed_once),
    };
    return RUN_TESTS(count, arguments, tests);
}
