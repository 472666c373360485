/* SPDX-License-Identifier: Apache-2.0 */
/* Memory spaces: the simulator reports every touch of foreign memory by its cause. */
#include "simcuda/environment.h"
#include "simcuda/rig.h"

using rig::check;

static bool is_closed() { /* to the host: not under the threads scheduler */
    return !sim::settings().threads;
}

static float *allocate(int device, size_t count) {
    float *pointer;
    check(cudaSetDevice(device));
    check(cudaMalloc((void **)&pointer, count * sizeof(float)));
    return pointer;
}

/* A kernel of `device`. */
static void run_on(int device, const std::function<void()> &body) {
    check(cudaSetDevice(device));
    check(sim::enqueue(nullptr, "kernel", 1000, body));
    check(cudaDeviceSynchronize());
}

static volatile float sink;

SCENARIO(host_reads) {
    sink = *allocate(2, 16);
}
SCENARIO(host_writes) {
    allocate(2, 16)[3] = 1;
}
SCENARIO(host_function_reads) {
    float *values = allocate(2, 16);
    check(cudaLaunchHostFunc(
        nullptr, [](void *data) { sink = *(float *)data; }, values));
    check(cudaDeviceSynchronize());
}
SCENARIO(host_reads_between_works) {
    float *values = allocate(0, 16);
    run_on(0, [=] { values[0] = 1; });
    sink = values[0];
}

static void host_code_may_not_touch_device_memory(void **) {
    if (!is_closed()) skip();
    rig::assert_violation("host code reads device 2 memory", "host_reads");
    rig::assert_violation("host code writes device 2 memory", "host_writes");
    rig::assert_violation("12 bytes behind the start of 64 live ones", "host_writes");
    rig::assert_violation("host code reads device 2 memory", "host_function_reads");
    rig::assert_violation("host code reads device 0 memory", "host_reads_between_works");
}

SCENARIO(foreign_read) {
    float *values = allocate(1, 16);
    run_on(0, [=] { sink = values[0]; });
}
SCENARIO(foreign_write_one_way) { /* access is per direction */
    float *values = allocate(0, 16);
    check(cudaSetDevice(0));
    check(cudaDeviceEnablePeerAccess(1, 0));
    run_on(1, [=] { values[0] = 1; });
}
SCENARIO(foreign_operand) {
    float *values = allocate(1, 16);
    run_on(0, [=] { sim::check_range(0, values, 64, "operand"); });
}

static void kernels_touch_peers_only_with_access(void **) {
    rig::assert_violation("without peer access", "foreign_operand");
    if (!is_closed()) return;
    rig::assert_violation("a kernel of device 0 reads memory of device 1 without peer access",
                          "foreign_read");
    rig::assert_violation("a kernel of device 1 writes memory of device 0 without peer access",
                          "foreign_write_one_way");
}

static void peer_access_opens_memory(void **) {
    float *values = allocate(1, 16);
    check(cudaSetDevice(0));
    check(cudaDeviceEnablePeerAccess(1, 0));
    assert_int_equal(cudaDeviceEnablePeerAccess(1, 0), cudaErrorPeerAccessAlreadyEnabled);
    run_on(0, [=] { values[0] = 5; });
    float result;
    check(cudaMemcpy(&result, values, sizeof result, cudaMemcpyDeviceToHost));
    assert_true(result == 5);
    check(cudaSetDevice(0));
    check(cudaDeviceDisablePeerAccess(1));
    assert_int_equal(cudaDeviceDisablePeerAccess(1), cudaErrorPeerAccessNotEnabled);
    assert_int_equal(cudaDeviceEnablePeerAccess(0, 0), cudaErrorInvalidDevice);
    cudaGetLastError();
    check(cudaFree(values));
}

SCENARIO(use_after_free) {
    float *values = allocate(0, 16);
    check(cudaFree(values));
    run_on(0, [=] { sink = values[0]; });
}
SCENARIO(copy_after_free) {
    float *values = allocate(0, 16), result;
    check(cudaFree(values));
    cudaMemcpy(&result, values, sizeof result, cudaMemcpyDeviceToHost);
}
SCENARIO(free_twice) {
    float *values = allocate(0, 16);
    check(cudaFree(values));
    cudaFree(values);
}
SCENARIO(free_within) {
    cudaFree(allocate(0, 16) + 1);
}
SCENARIO(free_foreign) {
    int variable;
    cudaFree(&variable);
}
SCENARIO(free_host_twice) {
    void *buffer;
    check(cudaMallocHost(&buffer, 16));
    check(cudaFreeHost(buffer));
    cudaFreeHost(buffer);
}

static void freed_memory_is_gone(void **) {
    rig::assert_violation("a kernel of device 0 reads memory of device 0 that is not allocated",
                          "use_after_free");
    rig::assert_violation("behind the start of 64 freed ones", "use_after_free");
    rig::assert_violation("is freed memory of device 0", "copy_after_free");
    rig::assert_violation("which is free already", "free_twice");
    rig::assert_violation("the start of no allocation", "free_within");
    rig::assert_violation("which cudaMalloc never gave", "free_foreign");
    rig::assert_violation("no pinned memory", "free_host_twice");
}

SCENARIO(kernel_overrun) {
    float *values = allocate(0, 64);
    run_on(0, [=] { values[64] = 1; });
}
SCENARIO(kernel_slight_overrun) {
    float *values = allocate(0, 63);
    run_on(0, [=] { values[63] = 1; });
    cudaFree(values);
}
SCENARIO(copy_overrun) {
    float *values = allocate(0, 16), from[17] = {};
    cudaMemcpy(values, from, sizeof from, cudaMemcpyHostToDevice);
}
SCENARIO(fill_overrun) {
    cudaMemsetAsync(allocate(0, 16), 0, 65, nullptr);
}
SCENARIO(pinned_overrun) {
    void *buffer;
    check(cudaMallocHost(&buffer, 16));
    cudaMemcpyAsync(allocate(0, 16), buffer, 17, cudaMemcpyHostToDevice, nullptr);
}
SCENARIO(overlap) {
    float *values = allocate(0, 16);
    cudaMemcpyAsync(values, values + 1, 32, cudaMemcpyDeviceToDevice, nullptr);
}

static void overruns_are_seen(void **) {
    rig::assert_violation("a kernel of device 0 writes memory of device 0 that is not allocated",
                          "kernel_overrun");
    rig::assert_violation("65 bytes at", "fill_overrun");
    rig::assert_violation("overrun the 64 bytes", "copy_overrun");
    rig::assert_violation("of pinned memory", "pinned_overrun");
    rig::assert_violation("overlap", "overlap");
    rig::Outcome slight = rig::run("kernel_slight_overrun"); /* ASan's to tell, or cudaFree's */
    assert_true(slight.text.find("AddressSanitizer") != std::string::npos ||
                slight.text.find("byte 252 was written behind the 252 bytes") != std::string::npos);
}

static void new_memory_is_not_a_number(void **) {
    const size_t count = 3 << 20; /* more than one piece of the file of NaN */
    float *values = allocate(0, count), *on_host;
    check(cudaMallocHost((void **)&on_host, count * sizeof(float)));
    assert_true(std::isnan(on_host[0]) && std::isnan(on_host[count - 1]));
    memset(on_host, 0, count * sizeof(float));
    check(cudaMemcpy(on_host, values, count * sizeof(float), cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < count; i++)
        assert_true(std::isnan(on_host[i]));
    double both;
    memcpy(&both, on_host, sizeof both);
    assert_true(std::isnan(both));
    check(cudaFree(values));
    check(cudaFreeHost(on_host));
}

SCENARIO(limit) {
    float *first = allocate(0, 150000), *second;
    assert_int_equal(cudaMalloc((void **)&second, 600000), cudaErrorMemoryAllocation);
    assert_null(second);
    size_t available, total;
    check(cudaMemGetInfo(&available, &total));
    assert_int_equal(total, 1000000);
    assert_in_range(available, 399000, 400000);
    check(cudaFree(first));
    check(cudaMalloc((void **)&second, 600000));
    check(cudaFree(second));
    float *other = allocate(1, 200000); /* another device's memory is its own */
    check(cudaFree(other));
    for (int i = 0; i < 1000; i++) /* addresses come round */
        check(cudaFree(allocate(0, 200000)));
}

static void a_device_holds_no_more_than_its_memory(void **) {
    rig::Environment memory("SIMCUDA_MEMORY", "1000000");
    rig::Outcome outcome = rig::run("limit");
    assert_string_equal(outcome.text.c_str(), "");
    assert_int_equal(outcome.status, 0);
}

static void memory_is_aligned_and_known(void **) {
    float *values = allocate(3, 5);
    assert_int_equal((uintptr_t)values % 256, 0);
    cudaPointerAttributes attributes;
    check(cudaPointerGetAttributes(&attributes, values + 2));
    assert_int_equal(attributes.type, cudaMemoryTypeDevice);
    assert_int_equal(attributes.device, 3);
    assert_int_equal(sim::pointer_device(values), 3);
    check(cudaPointerGetAttributes(&attributes, &attributes));
    assert_int_equal(attributes.type, cudaMemoryTypeUnregistered);
    void *buffer;
    check(cudaHostAlloc(&buffer, 100, cudaHostAllocPortable));
    check(cudaPointerGetAttributes(&attributes, (char *)buffer + 99));
    assert_int_equal(attributes.type, cudaMemoryTypeHost);
    check(cudaFreeHost(buffer));
    check(cudaFree(values));
    check(cudaFree(nullptr));
    check(cudaFreeHost(nullptr));
}

static void a_copy_of_the_wrong_kind_fails(void **) {
    float *values = allocate(0, 16), on_host[16] = {};
    assert_int_equal(cudaMemcpy(values, on_host, 64, cudaMemcpyDeviceToHost),
                     cudaErrorInvalidValue);
    assert_int_equal(cudaMemcpyAsync(on_host, values, 64, cudaMemcpyDeviceToDevice, nullptr),
                     cudaErrorInvalidValue);
    assert_int_equal(cudaMemcpyPeerAsync(values, 1, values, 0, 64, nullptr), cudaErrorInvalidValue);
    assert_int_equal(cudaMemset(on_host, 0, 64), cudaErrorInvalidValue);
    cudaGetLastError();
    check(cudaMemcpy(values, on_host, 64, cudaMemcpyDefault));
    check(cudaFree(values));
}

/* Pageable memory: read before the call returns, written before the call returns. */
static void pageable_copies_are_staged_or_waited_for(void **) {
    cudaStream_t stream;
    float *values = allocate(0, 16), from[16], to[16] = {};
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (float &value : from)
        value = 7;
    check(cudaMemcpyAsync(values, from, sizeof from, cudaMemcpyHostToDevice, stream));
    memset(from, 0, sizeof from);
    check(cudaMemcpyAsync(to, values, sizeof to, cudaMemcpyDeviceToHost, stream));
    assert_true(to[0] == 7 && to[15] == 7);
    check(cudaStreamDestroy(stream));
    check(cudaFree(values));
}

/* 1: came whole. */
static int copy_to_peer(bool access) {
    unsigned char sent[1000], got[1000];
    memset(sent, 0x5a, sizeof sent);
    void *from = allocate(0, 250), *to = allocate(1, 250);
    check(cudaMemcpy(from, sent, sizeof sent, cudaMemcpyHostToDevice));
    check(cudaDeviceSynchronize());
    int can;
    check(cudaDeviceCanAccessPeer(&can, 1, 0));
    if (access && can) check(cudaDeviceEnablePeerAccess(0, 0));
    check(cudaMemcpyPeerAsync(to, 1, from, 0, sizeof sent, nullptr));
    check(cudaMemcpy(got, to, sizeof got, cudaMemcpyDeviceToHost));
    check(cudaFree(from));
    check(cudaFree(to));
    return memcmp(sent, got, sizeof sent) == 0;
}
SCENARIO(peer_copy) {
    exit(copy_to_peer(true));
}
SCENARIO(staged_copy) {
    exit(copy_to_peer(false));
}

static int exit_code(const char *scenario, const char *peers) {
    rig::Environment setting("SIMCUDA_PEERS", peers);
    rig::Outcome outcome = rig::run(scenario);
    assert_true(WIFEXITED(outcome.status));
    assert_string_equal(outcome.text.c_str(), "");
    return WEXITSTATUS(outcome.status);
}

static void broken_peers_corrupt_unstaged_copies(void **) {
    for (const char *peers : {"all", "none"}) {
        assert_int_equal(exit_code("peer_copy", peers), 1);
        assert_int_equal(exit_code("staged_copy", peers), 1);
    }
    assert_int_equal(exit_code("peer_copy", "corrupt"), 0);
    assert_int_equal(exit_code("staged_copy", "corrupt"), 1);
}

SCENARIO(no_peers) {
    int can = 1;
    check(cudaSetDevice(0));
    check(cudaDeviceCanAccessPeer(&can, 0, 1));
    assert_int_equal(can, 0);
    assert_int_equal(cudaDeviceEnablePeerAccess(1, 0), cudaErrorPeerAccessUnsupported);
}

static void a_machine_may_have_no_peers(void **) {
    assert_int_equal(exit_code("no_peers", "none"), 0);
}

int main(int count, char **arguments) {
    const CMUnitTest tests[] = {
        cmocka_unit_test(host_code_may_not_touch_device_memory),
        cmocka_unit_test(kernels_touch_peers_only_with_access),
        cmocka_unit_test(peer_access_opens_memory),
        cmocka_unit_test(freed_memory_is_gone),
        cmocka_unit_test(overruns_are_seen),
        cmocka_unit_test(new_memory_is_not_a_number),
        cmocka_unit_test(a_device_holds_no_more_than_its_memory),
        cmocka_unit_test(memory_is_aligned_and_known),
        cmocka_unit_test(a_copy_of_the_wrong_kind_fails),
        cmocka_unit_test(pageable_copies_are_staged_or_waited_for),
        cmocka_unit_test(broken_peers_corrupt_unstaged_copies),
        cmocka_unit_test(a_machine_may_have_no_peers),
    };
    return RUN_TESTS(count, arguments, tests);
}
