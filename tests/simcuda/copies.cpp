/* SPDX-License-Identifier: Apache-2.0 */
/* Memory: allocation, copies, fills. */
#include <cstring>
#include <memory>

#include "simcuda/api.h"
#include "simcuda/capture.h"
#include "simcuda/count.h"
#include "simcuda/memory.h"

using namespace sim;

namespace {

struct Copy {
    void *to;
    const void *from;
    size_t bytes;
    Address to_address, from_address;
    const char *call;
};

bool is_device(const Address &address) {
    return address.place == Place::device;
}

bool fits(const Copy &copy, cudaMemcpyKind kind) {
    bool to = is_device(copy.to_address), from = is_device(copy.from_address);
    switch (kind) {
    case cudaMemcpyHostToHost:
        return !to && !from;
    case cudaMemcpyHostToDevice:
        return to && !from;
    case cudaMemcpyDeviceToHost:
        return !to && from;
    case cudaMemcpyDeviceToDevice:
        return to && from;
    case cudaMemcpyDefault:
        return true;
    }
    return false;
}

bool overlap(const Copy &copy) {
    uintptr_t to = (uintptr_t)copy.to, from = (uintptr_t)copy.from;
    return to < from + copy.bytes && from < to + copy.bytes;
}

void check(const Copy &copy) {
    check_bounds(copy.to, copy.bytes, copy.call);
    check_bounds(copy.from, copy.bytes, copy.call);
    if (copy.bytes > 0 && overlap(copy))
        violation("%s: %zu bytes at %p and at %p overlap", copy.call, copy.bytes, copy.from,
                  copy.to);
}

/* Gpu to GPU without the host: what peer access changes, and what a broken machine gets wrong. */
bool is_direct(const Copy &copy) {
    int to = copy.to_address.device, from = copy.from_address.device;
    return to >= 0 && from >= 0 && to != from &&
           (has_peer_access(to, from) || has_peer_access(from, to));
}

/* A call, then 25 GB/s over PCIe, 200 GB/s between peers, 2 TB/s within a device. */
uint64_t copy_cost_ns(const Copy &copy) {
    bool both = is_device(copy.to_address) && is_device(copy.from_address);
    double bandwidth = !both                                                ? 25
                       : copy.to_address.device == copy.from_address.device ? 2000
                       : is_direct(copy)                                    ? 200
                                                                            : 12;
    return 3000 + (uint64_t)((double)copy.bytes / bandwidth);
}

uint64_t devices_of(const Copy &copy) {
    uint64_t devices = 0;
    for (const Address &address : {copy.to_address, copy.from_address})
        if (is_device(address)) devices |= device_bit(address.device);
    return devices;
}

/* What is read from pageable memory is taken at once, as the driver stages it. */
Work work_of(const Copy &copy) {
    bool corrupt = settings().corrupt_peers && is_direct(copy) && copy.bytes > 0;
    if (copy.from_address.place == Place::pageable) {
        auto staged = std::make_shared<std::vector<char>>(copy.bytes);
        {
            Outside outside(false); /* the program's own memory: for ThreadSanitizer to see */
            memcpy(staged->data(), copy.from, copy.bytes);
        }
        return [copy, staged] { memcpy(copy.to, staged->data(), copy.bytes); };
    }
    return [copy, corrupt] {
        memcpy(copy.to, copy.from, copy.bytes);
        if (corrupt) ((unsigned char *)copy.to)[copy.bytes / 2] ^= 0x40;
    };
}

bool waits_for_host(const Copy &copy) {
    bool host = !is_device(copy.to_address) && !is_device(copy.from_address);
    return copy.to_address.place == Place::pageable || host;
}

cudaError_t queue_copy(const Copy &copy, CUstream_st &stream) {
    check(copy);
    bool pageable =
        copy.to_address.place == Place::pageable || copy.from_address.place == Place::pageable;
    if (cudaError_t code = pageable ? refuse_capture(stream) : cudaSuccess) return code;
    if (copy.bytes == 0) return cudaSuccess;
    Node node;
    node.what = copy.call;
    node.cost_ns = copy_cost_ns(copy);
    node.work = work_of(copy);
    if (settings().count)
        node.work = count::copy(copy.call, copy.to, copy.from, copy.bytes, std::move(node.work));
    node.device = stream.device;
    node.reach = devices_of(copy);
    if (cudaError_t code = submit(stream, std::move(node))) return code;
    if (waits_for_host(copy) && stream.capture == nullptr) wait_for(stream.last, copy.call);
    return cudaSuccess;
}

Copy make_copy(void *to, const void *from, size_t bytes, const char *call) {
    return {to, from, bytes, find_address(to), find_address(from), call};
}

cudaError_t queue_fill(void *to, int value, size_t bytes, CUstream_st &stream, const char *call) {
    Address address = find_address(to);
    if (address.place == Place::pageable) return cudaErrorInvalidValue;
    check_bounds(to, bytes, call);
    if (bytes == 0) return cudaSuccess;
    Node node;
    node.what = call;
    node.cost_ns = 2000 + bytes / 2000;
    node.work = [to, value, bytes] { memset(to, value, bytes); };
    if (settings().count) node.work = count::copy(call, to, nullptr, bytes, std::move(node.work));
    node.device = stream.device;
    node.reach = is_device(address) ? device_bit(address.device) : 0;
    return submit(stream, std::move(node));
}

cudaError_t allocate_host(void **pointer, size_t bytes) {
    if (cudaError_t code = refuse_unsafe()) return code;
    if (bytes == 0) return cudaSuccess;
    *pointer = allocate_pinned(bytes);
    return *pointer == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}

} // namespace

extern "C" {

cudaError_t cudaMalloc(void **pointer, size_t bytes) {
    *pointer = nullptr;
    ENTER(cudaErrorMemoryAllocation);
    if (cudaError_t code = refuse_unsafe()) return answer(code);
    if (bytes == 0) return cudaSuccess;
    *pointer = allocate_device(this_host().device, bytes);
    return answer(*pointer == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}

/* Waits for the device, as CUDA's does. */
cudaError_t cudaFree(void *pointer) {
    Entry entry;
    int planted = fault(__func__, cudaErrorLaunchFailure);
    if (cudaError_t code = refuse_unsafe()) return answer(code);
    if (pointer == nullptr) return answer_planted(planted);
    Address address = find_address(pointer);
    if (is_device(address)) wait_for_device(address.device, __func__);
    free_device(pointer);
    return answer_planted(planted);
}

cudaError_t cudaHostAlloc(void **pointer, size_t bytes, unsigned flags) {
    *pointer = nullptr;
    ENTER(cudaErrorMemoryAllocation);
    if (flags &
        ~(unsigned)(cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined))
        return answer(cudaErrorInvalidValue);
    return answer(allocate_host(pointer, bytes));
}

cudaError_t cudaMallocHost(void **pointer, size_t bytes) {
    *pointer = nullptr;
    ENTER(cudaErrorMemoryAllocation);
    return answer(allocate_host(pointer, bytes));
}

/* Waits for all devices: any may be reading it. */
cudaError_t cudaFreeHost(void *pointer) {
    Entry entry;
    int planted = fault(__func__, cudaErrorLaunchFailure);
    if (cudaError_t code = refuse_unsafe()) return answer(code);
    if (pointer == nullptr) return answer_planted(planted);
    for (int device = 0; device < settings().devices; device++)
        wait_for_device(device, __func__);
    free_pinned(pointer);
    return answer_planted(planted);
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total) {
    ENTER(cudaErrorUnknown);
    *total = settings().memory_bytes;
    *available = *total - device_memory_used(this_host().device);
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *pointer) {
    ENTER(cudaErrorUnknown);
    Address address = find_address(pointer);
    *attributes = cudaPointerAttributes();
    attributes->device = address.device;
    attributes->type = cudaMemoryTypeUnregistered;
    if (address.place == Place::device) attributes->type = cudaMemoryTypeDevice;
    if (address.place == Place::pinned) attributes->type = cudaMemoryTypeHost;
    if (address.place != Place::pageable) attributes->devicePointer = (void *)pointer;
    if (address.place != Place::device) attributes->hostPointer = (void *)pointer;
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
    ENTER(cudaErrorLaunchFailure);
    Copy copy = make_copy(to, from, bytes, __func__);
    if (!fits(copy, kind)) return answer(cudaErrorInvalidValue);
    return answer(queue_copy(copy, find_stream(stream, __func__)));
}

/* Over when it returns, but within a device. */
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
    ENTER(cudaErrorLaunchFailure);
    Copy copy = make_copy(to, from, bytes, __func__);
    if (!fits(copy, kind)) return answer(cudaErrorInvalidValue);
    if (cudaError_t code = refuse_unsafe()) return answer(code);
    CUstream_st &stream = *default_stream(this_host().device);
    if (cudaError_t code = queue_copy(copy, stream)) return answer(code);
    if (!is_device(copy.to_address) || !is_device(copy.from_address))
        wait_for(stream.last, __func__);
    return answer((cudaError_t)sticky_error());
}

cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device,
                                size_t bytes, cudaStream_t stream) {
    ENTER(cudaErrorLaunchFailure);
    Copy copy = make_copy(to, from, bytes, __func__);
    if (copy.to_address.device != to_device || copy.from_address.device != from_device)
        return answer(cudaErrorInvalidValue);
    return answer(queue_copy(copy, find_stream(stream, __func__)));
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream) {
    ENTER(cudaErrorLaunchFailure);
    return answer(queue_fill(to, value, bytes, find_stream(stream, __func__), __func__));
}

cudaError_t cudaMemset(void *to, int value, size_t bytes) {
    ENTER(cudaErrorLaunchFailure);
    if (cudaError_t code = refuse_unsafe()) return answer(code);
    CUstream_st &stream = *default_stream(this_host().device);
    return answer(queue_fill(to, value, bytes, stream, __func__));
}

} // extern "C"
