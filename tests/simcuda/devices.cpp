/* SPDX-License-Identifier: Apache-2.0 */
/* Devices: what they are, which one is current, and who may touch whose memory. */
#include <cstdio>
#include <cstring>

#include "simcuda/api.h"
#include "simcuda/memory.h"
#include "simcuda/schedule.h"

using namespace sim;

namespace {

constexpr int MAJOR = 9, MINOR = 0, PROCESSORS = 132;

bool exists(int device) {
    return device >= 0 && device < settings().devices;
}

void name_uuid(cudaUUID_t *uuid, int device) {
    memset(uuid, 0, sizeof *uuid);
    memcpy(uuid->bytes, "simulated-gpu-", 14);
    uuid->bytes[15] = (char)device;
}

int attribute_of(cudaDeviceAttr attribute, int device, bool *known) {
    switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
        return 1024;
    case cudaDevAttrWarpSize:
        return 32;
    case cudaDevAttrMultiProcessorCount:
        return PROCESSORS;
    case cudaDevAttrComputeCapabilityMajor:
        return MAJOR;
    case cudaDevAttrComputeCapabilityMinor:
        return MINOR;
    case cudaDevAttrPciBusId:
        return device + 1;
    case cudaDevAttrPciDeviceId:
        return 0;
    case cudaDevAttrPciDomainId:
        return 0;
    case cudaDevAttrUnifiedAddressing:
        return 1;
    case cudaDevAttrAsyncEngineCount:
        return 2;
    case cudaDevAttrL2CacheSize:
        return 50 << 20;
    case cudaDevAttrMaxSharedMemoryPerBlock:
        return 48 << 10;
    default:
        *known = false;
        return 0;
    }
}

cudaError_t check_peers(int device, int peer) {
    if (!exists(device) || !exists(peer) || device == peer) return cudaErrorInvalidDevice;
    return cudaSuccess;
}

} // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int *count) {
    *count = 0;
    ENTER(cudaErrorInitializationError);
    *count = settings().devices;
    return answer(*count == 0 ? cudaErrorNoDevice : cudaSuccess);
}

cudaError_t cudaSetDevice(int device) {
    ENTER(cudaErrorDevicesUnavailable);
    if (!exists(device)) return answer(cudaErrorInvalidDevice);
    this_host().device = device;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device) {
    ENTER(cudaErrorInitializationError);
    *device = gpu_of(this_host().device);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device) {
    ENTER(cudaErrorInvalidDevice);
    if (!exists(device)) return answer(cudaErrorInvalidDevice);
    bool known = true;
    *value = attribute_of(attribute, device, &known);
    if (!known) violation("%s: attribute %d is not simulated", __func__, (int)attribute);
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device) {
    ENTER(cudaErrorInvalidDevice);
    if (!exists(device)) return answer(cudaErrorInvalidDevice);
    memset(properties, 0, sizeof *properties);
    snprintf(properties->name, sizeof properties->name, "Simulated GPU");
    name_uuid(&properties->uuid, device);
    properties->totalGlobalMem = settings().memory_bytes;
    properties->sharedMemPerBlock = 48 << 10;
    properties->sharedMemPerMultiprocessor = 228 << 10;
    properties->regsPerBlock = 65536;
    properties->warpSize = 32;
    properties->maxThreadsPerBlock = 1024;
    properties->maxThreadsPerMultiProcessor = 2048;
    properties->major = MAJOR;
    properties->minor = MINOR;
    properties->multiProcessorCount = PROCESSORS;
    properties->concurrentKernels = 1;
    properties->asyncEngineCount = 2;
    properties->unifiedAddressing = 1;
    properties->memoryBusWidth = 5120;
    properties->l2CacheSize = 50 << 20;
    properties->streamPrioritiesSupported = 1;
    properties->pciBusID = device + 1;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int bytes, int device) {
    ENTER(cudaErrorInvalidDevice);
    if (!exists(device)) return answer(cudaErrorInvalidDevice);
    if (bytes < 13) return answer(cudaErrorInvalidValue);
    snprintf(text, (size_t)bytes, "0000:%02X:00.0", (unsigned)(device + 1));
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version) {
    ENTER(cudaErrorUnknown);
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
    ENTER(cudaErrorUnknown);
    *version = CUDART_VERSION;
    return cudaSuccess;
}

/* Every kernel was compiled for this machine, whatever it is. */
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *) {
    ENTER(cudaErrorNoKernelImageForDevice);
    *attributes = cudaFuncAttributes();
    attributes->maxThreadsPerBlock = 1024;
    attributes->binaryVersion = attributes->ptxVersion = MAJOR * 10 + MINOR;
    return cudaSuccess;
}

/* Of a kernel whose threads take 128 registers each. */
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *, int threads,
                                                          size_t) {
    ENTER(cudaErrorInvalidDeviceFunction);
    if (threads <= 0 || threads > 1024) return cudaErrorInvalidValue;
    *blocks = 65536 / 128 / threads;
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
    ENTER(cudaErrorInvalidDevice);
    if (!exists(device) || !exists(peer)) return answer(cudaErrorInvalidDevice);
    *can = settings().peers && device != peer;
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
    ENTER(cudaErrorTooManyPeers);
    int device = this_host().device;
    if (cudaError_t code = check_peers(device, peer)) return answer(code);
    if (flags != 0) return answer(cudaErrorInvalidValue);
    if (!settings().peers) return answer(cudaErrorPeerAccessUnsupported);
    bool news = set_peer_access(device, peer, true);
    return answer(news ? cudaSuccess : cudaErrorPeerAccessAlreadyEnabled);
}

/* Work that uses it must be over. */
cudaError_t cudaDeviceDisablePeerAccess(int peer) {
    ENTER(cudaErrorUnknown);
    int device = this_host().device;
    if (cudaError_t code = check_peers(device, peer)) return answer(code);
    bool news = set_peer_access(device, peer, false);
    return answer(news ? cudaSuccess : cudaErrorPeerAccessNotEnabled);
}

} // extern "C"
