/* SPDX-License-Identifier: Apache-2.0 */
/* Which GPU is current for the calling thread. A worker remembers it from enter to leave: then
 * cuda_use calls the runtime only where another GPU is needed. Elsewhere the host program may have
 * changed it between two calls. */
#include "device/cuda/cuda.h"

enum { UNKNOWN = -1 };

static _Thread_local struct {
    bool remembers;
    int ordinal; /* UNKNOWN: the next cuda_use sets it */
} current = {false, UNKNOWN};

cudaError_t cuda_set_current(int ordinal) {
    if (current.remembers && current.ordinal == ordinal) return cudaSuccess;
    cudaError_t error = cudaSetDevice(ordinal);
    current.ordinal = error == cudaSuccess ? ordinal : UNKNOWN;
    return error;
}

yoke_status cuda_use(yoke_device *device) {
    cuda_device *cuda = cuda_of(device);
    TRY(cuda_check_poison(cuda));
    TRY_CUDA(cuda, cuda_set_current(cuda->ordinal));
    return YOKE_OK;
}

int cuda_current(void) {
    int ordinal = 0;
    if (current.remembers && current.ordinal != UNKNOWN) return current.ordinal;
    if (cudaGetDevice(&ordinal) != cudaSuccess) cudaGetLastError();
    return ordinal;
}

void cuda_return_to(int ordinal) {
    if (cuda_set_current(ordinal) != cudaSuccess) cudaGetLastError();
}

void cuda_forget_current(void) {
    current.ordinal = UNKNOWN;
}

yoke_status cuda_enter(yoke_device *device, bool bind, yoke_device_scope *scope) {
    (void)bind; /* a worker only queues work, so it needs no core of its own */
    int before = 0;
    TRY_CUDA(cuda_of(device), cudaGetDevice(&before));
    scope->opaque[0] = (uint64_t)before;
    scope->opaque[1] = current.remembers;
    current.remembers = true;
    current.ordinal = before;
    yoke_status status = cuda_use(device);
    if (status != YOKE_OK) cuda_leave(device, scope);
    return status;
}

void cuda_leave(yoke_device *device, const yoke_device_scope *scope) {
    (void)device;
    cuda_return_to((int)scope->opaque[0]);
    current.remembers = scope->opaque[1];
}

/* A thread that stepped out remembers again. */
yoke_status cuda_come_back(yoke_device *device) {
    if (!current.remembers) cuda_forget_current();
    current.remembers = true;
    return cuda_use(device);
}

yoke_status cuda_visit(yoke_device *device, int *before) {
    cuda_device *cuda = cuda_of(device);
    TRY(cuda_check_poison(cuda));
    *before = current.ordinal;
    if (!current.remembers || *before == UNKNOWN) TRY_CUDA(cuda, cudaGetDevice(before));
    return cuda_use(device);
}
