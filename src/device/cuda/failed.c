/* SPDX-License-Identifier: Apache-2.0 */
/* Turns a failed call of CUDA or its libraries into a status and one line that names device, call,
 * cause and cure. A sticky error poisons its device, and no other. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "device/cuda/cuda.h"

#define LOST "this engine is lost; other GPUs still work, and this one does in a new process"
#define UNRECORDED "steps are recorded, and this call cannot be"

/* CUDA documents these errors as sticky: every later call returns the same error. */
static bool is_sticky(cudaError_t error) {
    static const cudaError_t sticky[] = {cudaErrorECCUncorrectable,    cudaErrorIllegalAddress,
                                         cudaErrorLaunchTimeout,       cudaErrorAssert,
                                         cudaErrorHardwareStackError,  cudaErrorIllegalInstruction,
                                         cudaErrorMisalignedAddress,   cudaErrorInvalidAddressSpace,
                                         cudaErrorInvalidPc,           cudaErrorLaunchFailure,
                                         cudaErrorNvlinkUncorrectable, cudaErrorExternalDevice,
                                         cudaErrorMpsClientTerminated};
    for (size_t i = 0; i < sizeof sticky / sizeof sticky[0]; i++) {
        if (sticky[i] == error) return true;
    }
    return false;
}

typedef struct cure {
    yoke_status status;
    const char *text;
} cure;

static cure cure_of(cudaError_t error) {
    static const struct {
        cudaError_t error;
        cure cure;
    } cures[] = {
        {cudaErrorMemoryAllocation, {YOKE_ERROR_MEMORY, "end other programs on this GPU"}},
        {cudaErrorDevicesUnavailable,
         {YOKE_ERROR_DEVICE, "another process uses the GPU exclusively (nvidia-smi shows it)"}},
        {cudaErrorNoKernelImageForDevice,
         {YOKE_ERROR_DEVICE, "build with this GPU in CMAKE_CUDA_ARCHITECTURES"}},
        {cudaErrorStreamCaptureUnsupported, {YOKE_ERROR_DEVICE, UNRECORDED}},
        {cudaErrorStreamCaptureInvalidated, {YOKE_ERROR_DEVICE, UNRECORDED}},
        {cudaErrorStreamCaptureUnjoined, {YOKE_ERROR_DEVICE, UNRECORDED}},
        {cudaErrorStreamCaptureImplicit, {YOKE_ERROR_DEVICE, UNRECORDED}},
        {cudaErrorUnsupportedPtxVersion,
         {YOKE_ERROR_DEVICE, "the driver is older than the build's CUDA: update the driver"}},
    };
    if (is_sticky(error)) return (cure){YOKE_ERROR_DEVICE, LOST};
    for (size_t i = 0; i < sizeof cures / sizeof cures[0]; i++) {
        if (cures[i].error == error) return cures[i].cure;
    }
    return (cure){YOKE_ERROR_SYSTEM, "the system's log (dmesg) may have the driver's message"};
}

/* "cublasLtMatmul" of "cuda_lt()->cublasLtMatmul(handle, ...)". */
static const char *name_of_call(const char *call, int *length) {
    const char *arrow = strstr(call, "()->");
    if (arrow != NULL && arrow == call + strcspn(call, "(")) call = arrow + 4;
    *length = (int)strcspn(call, "(");
    return call;
}

static const char *name_of(const cuda_device *device) {
    return device != NULL ? device->base.name : "CUDA";
}

/* Several threads may see the failure of one device: the first one records it. */
static void poison(cuda_device *device, cudaError_t error, const char *call) {
    cudaError_t none = cudaSuccess;
    if (atomic_compare_exchange_strong(&device->poison, &none, error))
        atomic_store(&device->poison_call, call);
}

bool cuda_poisoned(const cuda_device *device) {
    return atomic_load(&device->poison) != cudaSuccess;
}

yoke_status cuda_check_poison(cuda_device *device) {
    if (!cuda_poisoned(device)) return YOKE_OK;
    int length = 0;
    const char *call = atomic_load(&device->poison_call);
    if (call == NULL) call = "a call";
    call = name_of_call(call, &length);
    return FAIL(YOKE_ERROR_DEVICE, "%s: poisoned by %s of %.*s; " LOST, name_of(device),
                cudaGetErrorName(atomic_load(&device->poison)), length, call);
}

yoke_status cuda_failed(cuda_device *device, cudaError_t error, const char *call) {
    cudaGetLastError(); /* clears the error unless it is sticky */
    bool sticky = is_sticky(error) || cudaPeekAtLastError() != cudaSuccess;
    if (device != NULL && cuda_poisoned(device)) return cuda_check_poison(device);
    if (device != NULL && sticky) poison(device, error, call);
    int length = 0;
    const char *name = name_of_call(call, &length);
    cure known = sticky ? (cure){YOKE_ERROR_DEVICE, LOST} : cure_of(error);
    return FAIL(known.status, "%s: %.*s: %s (%s); %s", name_of(device), length, name,
                cudaGetErrorName(error), cudaGetErrorString(error), known.text);
}

/* Each library links a CUDA runtime of its own, and Yoke's runtime does not see its errors. But
 * cudaStreamQuery reports a lost GPU in every runtime. No recording captures the copy stream, so
 * the query is always allowed. */
static cudaError_t error_of_gpu(const cuda_device *device) {
    if (device == NULL || device->streams[YOKE_STREAM_COPY] == NULL) return cudaSuccess;
    cudaError_t error = cudaStreamQuery(device->streams[YOKE_STREAM_COPY]);
    if (error == cudaSuccess) return error;
    cudaGetLastError(); /* clears "not ready", which the next launch would report as an error */
    return error == cudaErrorNotReady ? cudaSuccess : error;
}

/* CUDA's own error is more precise than a library's status, so report it first. Other than out of
 * memory the status is DEVICE: this library fails on this device, another may work. */
static yoke_status library_failed(cuda_device *device, yoke_status status, const char *call,
                                  const char *text) {
    cudaError_t error = error_of_gpu(device);
    if (error != cudaSuccess) {
        cuda_failed(device, error, call);
        return YOKE_ERROR_DEVICE;
    }
    if (device != NULL && cuda_poisoned(device)) return cuda_check_poison(device);
    int length = 0;
    const char *name = name_of_call(call, &length);
    return FAIL(status, "%s: %.*s: %s%s", name_of(device), length, name, text,
                status == YOKE_ERROR_MEMORY ? "; end other programs on this GPU" : "");
}

yoke_status cuda_lt_failed(cuda_device *device, cublasStatus_t status, const char *call) {
    bool memory = status == CUBLAS_STATUS_ALLOC_FAILED;
    return library_failed(device, memory ? YOKE_ERROR_MEMORY : YOKE_ERROR_DEVICE, call,
                          cuda_lt()->cublasLtGetStatusString(status));
}

yoke_status cuda_cudnn_failed(cuda_device *device, cudnnStatus_t status, const char *call) {
#ifdef YOKE_HAS_CUDNN
    bool memory = status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED ||
                  status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
    char reason[256] = "", text[384];
    cuda_cudnn()->cudnnGetLastErrorString(reason, sizeof reason);
    reason[strcspn(reason, "\r\n")] = '\0';
    snprintf(text, sizeof text, "%s%s%s", cuda_cudnn()->cudnnGetErrorString(status),
             reason[0] != '\0' ? ": " : "", reason);
    return library_failed(device, memory ? YOKE_ERROR_MEMORY : YOKE_ERROR_DEVICE, call, text);
#else
    return FAIL(YOKE_ERROR_INTERNAL, "%s: %s: %d without cuDNN", name_of(device), call, status);
#endif
}
