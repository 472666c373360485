/* SPDX-License-Identifier: Apache-2.0 */
/* The last error of a host thread, and the names and texts of errors. */
#include "simcuda/api.h"
#include "simcuda/schedule.h"

using namespace sim;

namespace {

struct Text {
    cudaError_t code;
    const char *name, *text;
};

#define TEXT(code, text)                                                                           \
    { code, #code, text }
const Text texts[] = {
    TEXT(cudaSuccess, "no error"),
    TEXT(cudaErrorInvalidValue, "invalid argument"),
    TEXT(cudaErrorMemoryAllocation, "out of memory"),
    TEXT(cudaErrorInitializationError, "initialization error"),
    TEXT(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    TEXT(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    TEXT(cudaErrorInsufficientDriver,
         "CUDA driver version is insufficient for CUDA runtime version"),
    TEXT(cudaErrorDevicesUnavailable, "CUDA-capable device(s) is/are busy or unavailable"),
    TEXT(cudaErrorInvalidDeviceFunction, "invalid device function"),
    TEXT(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    TEXT(cudaErrorInvalidDevice, "invalid device ordinal"),
    TEXT(cudaErrorNoKernelImageForDevice,
         "no kernel image is available for execution on the device"),
    TEXT(cudaErrorECCUncorrectable, "uncorrectable ECC error encountered"),
    TEXT(cudaErrorPeerAccessUnsupported, "peer access is not supported between these two devices"),
    TEXT(cudaErrorUnsupportedPtxVersion,
         "the provided PTX was compiled with an unsupported toolchain."),
    TEXT(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    TEXT(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    TEXT(cudaErrorNotReady, "device not ready"),
    TEXT(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    TEXT(cudaErrorLaunchOutOfResources, "too many resources requested for launch"),
    TEXT(cudaErrorLaunchTimeout, "the launch timed out and was terminated"),
    TEXT(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled"),
    TEXT(cudaErrorPeerAccessNotEnabled, "peer access has not been enabled"),
    TEXT(cudaErrorContextIsDestroyed, "context is destroyed"),
    TEXT(cudaErrorTooManyPeers, "peer mapping resources exhausted"),
    TEXT(cudaErrorMisalignedAddress, "misaligned address"),
    TEXT(cudaErrorLaunchFailure, "unspecified launch failure"),
    TEXT(cudaErrorNotSupported, "operation not supported"),
    TEXT(cudaErrorSystemNotReady, "system not yet initialized"),
    TEXT(cudaErrorSystemDriverMismatch,
         "system has unsupported display driver / cuda driver combination"),
    TEXT(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    TEXT(cudaErrorStreamCaptureInvalidated,
         "operation failed due to a previous error during capture"),
    TEXT(cudaErrorStreamCaptureMerge,
         "operation would result in a merge of separate capture sequences"),
    TEXT(cudaErrorStreamCaptureUnmatched, "capture was not ended in the same stream as it began"),
    TEXT(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    TEXT(cudaErrorStreamCaptureIsolation,
         "dependency created on uncaptured work in another stream"),
    TEXT(cudaErrorStreamCaptureImplicit,
         "operation would make the legacy stream depend on a capturing blocking stream"),
    TEXT(cudaErrorCapturedEvent,
         "operation not permitted on an event last recorded in a capturing stream"),
    TEXT(cudaErrorStreamCaptureWrongThread,
         "attempt to terminate a thread-local capture sequence from another thread"),
    TEXT(cudaErrorUnknown, "unknown error"),
};

const Text *find(cudaError_t code) {
    for (const Text &one : texts)
        if (one.code == code) return &one;
    return nullptr;
}

} // namespace

namespace sim {

void remember(cudaError_t code) {
    Entry entry;
    this_host().last_error = code;
}

} // namespace sim

extern "C" {

cudaError_t cudaPeekAtLastError(void) {
    Entry entry;
    return this_host().last_error;
}

/* A sticky error stays, once a call of this runtime has answered it. */
cudaError_t cudaGetLastError(void) {
    cudaError_t code = cudaPeekAtLastError();
    if (code != (cudaError_t)sticky_error()) remember(cudaSuccess);
    return code;
}

const char *cudaGetErrorName(cudaError_t code) {
    const Text *found = find(code);
    return found != nullptr ? found->name : "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t code) {
    const Text *found = find(code);
    return found != nullptr ? found->text : "unrecognized error code";
}

} // extern "C"
