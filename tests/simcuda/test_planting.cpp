/* SPDX-License-Identifier: Apache-2.0 */
/* Planted failures, the report of leaks, and settings. */
#include "simcuda/environment.h"
#include "simcuda/rig.h"

using rig::check;
using rig::run_with;

/* Every kind of thing, made and given back, whatever fails: the first failure. */
static cudaError_t make_all_things() {
    void *values = nullptr, *buffer = nullptr;
    cudaStream_t stream = nullptr;
    cudaEvent_t event = nullptr;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    cudaError_t first = cudaSuccess;
    auto did = [&first](cudaError_t code) {
        if (first == cudaSuccess) first = code;
        return code == cudaSuccess;
    };
    if (did(cudaMalloc(&values, 64)) && did(cudaMallocHost(&buffer, 64)) &&
        did(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)) &&
        did(cudaEventCreateWithFlags(&event, cudaEventDisableTiming)) &&
        did(cudaMemcpyAsync(values, buffer, 64, cudaMemcpyHostToDevice, stream)) &&
        did(cudaEventRecord(event, stream)) && did(cudaEventSynchronize(event)) &&
        did(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal))) {
        did(cudaMemsetAsync(values, 0, 64, stream));
        did(cudaStreamEndCapture(stream, &graph));
    }
    if (graph != nullptr && did(cudaGraphInstantiate(&exec, graph, 0)))
        did(cudaGraphLaunch(exec, stream)) && did(cudaStreamSynchronize(stream));
    if (exec != nullptr) did(cudaGraphExecDestroy(exec));
    if (graph != nullptr) did(cudaGraphDestroy(graph));
    if (event != nullptr) did(cudaEventDestroy(event));
    if (stream != nullptr) did(cudaStreamDestroy(stream));
    did(cudaFree(values));
    did(cudaFreeHost(buffer));
    cudaGetLastError();
    return first;
}

static void every_call_fails_alone_and_leaks_nothing(void **) {
    sim::fail_call(0);
    assert_int_equal(make_all_things(), cudaSuccess);
    uint64_t calls = sim::calls_so_far();
    assert_in_range(calls, 15, 30);
    for (uint64_t i = 1; i <= calls; i++) {
        sim::fail_call(i);
        assert_null(sim::failed_call());
        assert_int_not_equal(make_all_things(), cudaSuccess);
        assert_non_null(sim::failed_call());
        if (sim::outstanding() != 0)
            fail_msg("%s: %s", sim::failed_call(), sim::outstanding_list().c_str());
    }
    sim::fail_call(0);
    assert_int_equal(make_all_things(), cudaSuccess);
}

SCENARIO(third_stream) {
    cudaStream_t streams[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking),
                         i == 2 ? cudaErrorMemoryAllocation : cudaSuccess);
    assert_null(streams[2]);
    assert_int_equal(cudaPeekAtLastError(), cudaErrorMemoryAllocation);
    assert_int_equal(cudaGetLastError(), cudaErrorMemoryAllocation);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    check(cudaStreamDestroy(streams[0]));
    check(cudaStreamDestroy(streams[1]));
}
SCENARIO(no_driver) {
    for (int i = 0; i < 3; i++) {
        int count = -1;
        assert_int_equal(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
        assert_int_equal(count, 0);
    }
}
SCENARIO(no_device) {
    int count = -1;
    assert_int_equal(cudaGetDeviceCount(&count), cudaErrorNoDevice);
    assert_int_equal(count, 0);
}
SCENARIO(sticky) {
    bool ran = false;
    cudaStream_t stream;
    void *values;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)); /* call 1 */
    check(cudaMalloc(&values, 16));
    sim::Joint joint = sim::open_joint("meet", 2, 1000, nullptr);
    check(sim::join(joint, stream));
    check(sim::enqueue(stream, "behind", 1000, [&ran] { ran = true; }));
    assert_int_equal(cudaStreamSynchronize(stream), cudaErrorIllegalAddress); /* nothing hangs */
    assert_int_equal(cudaGetLastError(), cudaErrorIllegalAddress);
    assert_int_equal(cudaGetLastError(), cudaErrorIllegalAddress);
    void *more;
    assert_int_equal(cudaMalloc(&more, 16), cudaErrorIllegalAddress);
    assert_int_equal(cudaFree(values), cudaErrorIllegalAddress); /* yet it is given back */
    assert_int_equal(cudaStreamDestroy(stream), cudaErrorIllegalAddress);
    assert_false(ran);
    assert_int_equal(sim::outstanding(), 0);
}
SCENARIO(fortieth) {
    int device, code = 0, calls = 0;
    while (code == 0 && calls < 100) {
        code = cudaGetDevice(&device);
        calls++;
    }
    assert_int_equal(calls, 40);
    assert_int_equal(code, cudaErrorInitializationError);
}

static void assert_passes(const char *fault, const char *scenario) {
    rig::Outcome outcome = run_with("SIMCUDA_FAULT", fault, scenario);
    if (outcome.status != 0) fail_msg("%s: %s", scenario, outcome.text.c_str());
}

static void failures_come_where_they_are_planted(void **) {
    assert_passes("cudaStreamCreateWithFlags@3=2", "third_stream");
    assert_passes("cudaMalloc@9=2;cudaStreamCreateWithFlags@3=x", "third_stream");
    assert_passes("cudaGetDeviceCount@*=35", "no_driver");
    assert_passes("cudaGetDeviceCount@1=100", "no_device");
    assert_passes("*@40=x", "fortieth");
    assert_passes("cudaStreamSynchronize@1=700!", "sticky");
}

SCENARIO(leak) {
    void *values;
    cudaEvent_t event;
    check(cudaSetDevice(3));
    check(cudaMalloc(&values, 12345));
    check(cudaEventCreate(&event));
}
SCENARIO(no_leak) {
    make_all_things();
}

static void a_leak_fails_the_process(void **) {
    rig::Outcome leak = rig::run("leak"), none = rig::run("no_leak");
    assert_true(WIFEXITED(leak.status) && WEXITSTATUS(leak.status) == 1);
    assert_non_null(strstr(leak.text.c_str(), "2 things were not given back"));
    assert_non_null(strstr(leak.text.c_str(), "12345 bytes of device 3, from "));
    assert_non_null(strstr(leak.text.c_str(), "event, from "));
    assert_string_equal(none.text.c_str(), "");
    assert_int_equal(none.status, 0);
    rig::Outcome ignored = run_with("SIMCUDA_LEAKS", "ignore", "leak");
    assert_string_equal(ignored.text.c_str(), "");
    assert_int_equal(ignored.status, 0);
}

static void a_bad_setting_is_named(void **) {
    for (auto bad : {std::pair<const char *, const char *>("SIMCUDA_FAULT", "cudaMalloc"),
                     {"SIMCUDA_FAULT", "cudaMalloc@x=2"},
                     {"SIMCUDA_DEVICES", "65"},
                     {"SIMCUDA_PEERS", "some"},
                     {"SIMCUDA_SCHEDULER", "fast"}}) {
        rig::Outcome outcome = run_with(bad.first, bad.second, "no_leak");
        assert_true(WIFEXITED(outcome.status) && WEXITSTATUS(outcome.status) == 2);
        assert_non_null(strstr(outcome.text.c_str(), bad.first));
        assert_non_null(strstr(outcome.text.c_str(), bad.second));
    }
}

SCENARIO(three_devices) {
    int count, value;
    char text[16];
    cudaDeviceProp properties[2];
    check(cudaGetDeviceCount(&count));
    assert_int_equal(count, 3);
    assert_int_equal(cudaSetDevice(3), cudaErrorInvalidDevice);
    check(cudaSetDevice(2));
    assert_int_equal(sim::current_device(), 2);
    check(cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, 2));
    check(cudaGetDeviceProperties(&properties[0], 0));
    check(cudaGetDeviceProperties(&properties[1], 1));
    assert_int_equal(value, properties[0].major);
    assert_memory_not_equal(&properties[0].uuid, &properties[1].uuid, sizeof(cudaUUID_t));
    check(cudaDeviceGetPCIBusId(text, sizeof text, 2));
    assert_string_equal(text, "0000:03:00.0");
}

static void devices_are_as_many_as_asked_for(void **) {
    assert_int_equal(run_with("SIMCUDA_DEVICES", "3", "three_devices").status, 0);
    assert_int_equal(run_with("SIMCUDA_DEVICES", "0", "no_device").status, 0);
}

static void errors_have_names_and_texts(void **) {
    assert_string_equal(cudaGetErrorName(cudaErrorMemoryAllocation), "cudaErrorMemoryAllocation");
    assert_string_equal(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory");
    assert_string_equal(cudaGetErrorName((cudaError_t)12345), "unrecognized error code");
}

int main(int count, char **arguments) {
    const CMUnitTest tests[] = {
        cmocka_unit_test(every_call_fails_alone_and_leaks_nothing),
        cmocka_unit_test(failures_come_where_they_are_planted),
        cmocka_unit_test(a_leak_fails_the_process),
        cmocka_unit_test(a_bad_setting_is_named),
        cmocka_unit_test(devices_are_as_many_as_asked_for),
        cmocka_unit_test(errors_have_names_and_texts),
    };
    return RUN_TESTS(count, arguments, tests);
}
