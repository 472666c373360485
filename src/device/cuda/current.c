/* SPDX-License-Identifier: Apache-2.0 */
/* Which GPU is current for the calling thread. A worker remembers it from enter to leave: then
 * cuda_use calls the runtime only where another GPU is needed. Elsewhere the host program may have
 * changed it between two calls. */
#include <string.h>

#include "device/cuda/near.h"

enum { UNKNOWN = -1 };

static _Thread_local struct {
    bool remembers;
    int ordinal;    /* UNKNOWN: the next cuda_use sets it */
    bool goes_near; /* to the cores near its GPU (near.h) */
} current = {false, UNKNOWN, false};

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

typedef struct cuda_scope {
    int ordinal;
    bool remembered, went_near;
    cpu_set_t cores; /* none: the thread stayed where it was (near.h) */
} cuda_scope;

_Static_assert(sizeof(cuda_scope) <= sizeof(yoke_device_scope), "a scope holds what enter changed");

yoke_status cuda_enter(yoke_device *device, bool bind, yoke_device_scope *scope) {
    cuda_scope before = {.remembered = current.remembers, .went_near = current.goes_near};
    TRY_CUDA(cuda_of(device), cudaGetDevice(&before.ordinal));
    bool goes = bind || cuda_of(device)->limited;
    if (goes) cuda_near_go(cuda_of(device), &before.cores);
    current.goes_near = goes;
    memcpy(scope->opaque, &before, sizeof before);
    current.remembers = true;
    current.ordinal = before.ordinal;
    yoke_status status = cuda_use(device);
    if (status != YOKE_OK) cuda_leave(device, scope);
    return status;
}

void cuda_step_out(yoke_device *device, const yoke_device_scope *scope) {
    cuda_scope before;
    (void)device;
    memcpy(&before, scope->opaque, sizeof before);
    cuda_near_return(&before.cores);
    cuda_return_to(before.ordinal);
    current.remembers = before.remembered;
}

void cuda_leave(yoke_device *device, const yoke_device_scope *scope) {
    cuda_scope before;
    memcpy(&before, scope->opaque, sizeof before);
    cuda_step_out(device, scope);
    current.goes_near = before.went_near;
}

/* A thread that stepped out remembers again, and goes near its GPU again. */
yoke_status cuda_come_back(yoke_device *device) {
    cpu_set_t before;
    if (!current.remembers) cuda_forget_current();
    current.remembers = true;
    if (current.goes_near) cuda_near_go(cuda_of(device), &before);
    return cuda_use(device);
}

yoke_status cuda_visit(yoke_device *device, int *before) {
    cuda_device *cuda = cuda_of(device);
    TRY(cuda_check_poison(cuda));
    *before = current.ordinal;
    if (!current.remembers || *before == UNKNOWN) TRY_CUDA(cuda, cudaGetDevice(before));
    return cuda_use(device);
}
