/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts: a GPU's primary one, which has the GPU's number, and those that the driver makes, which
 * have numbers behind those of all GPUs; so each has memory, streams and errors of its own. What a
 * kernel's trap does to one. */
#include <cuda.h>

#include "simcuda/api.h"
#include "simcuda/handles.h"
#include "simcuda/memory.h"
#include "simcuda/schedule.h"

using namespace sim;

struct CUctx_st {
    int number;
};

namespace {

struct Contexts {
    int made = 0; /* by the driver */
    int gpus[DEVICES_LIMIT] = {};
    int errors[DEVICES_LIMIT] = {};
};

Contexts &contexts() {
    static Contexts *const all = new Contexts;
    return *all;
}

} // namespace

namespace sim {

int gpu_of(int context) {
    return context < settings().devices ? context : contexts().gpus[context];
}

int context_error(int context) {
    return contexts().errors[context];
}

void poison_running_context() {
    Entry entry;
    contexts().errors[running_device()] = cudaErrorLaunchFailure;
}

} // namespace sim

extern "C" {

/* The versions that every driver exports, whatever a toolkit's header calls them. */
CUresult CUDAAPI cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device);
CUresult CUDAAPI cuCtxDestroy_v2(CUcontext context);

CUresult cuCtxCreate_v2(CUcontext *context, unsigned, CUdevice device) {
    Entry entry;
    *context = nullptr;
    if (int planted = fault("cuCtxCreate", CUDA_ERROR_OUT_OF_MEMORY)) return (CUresult)planted;
    int number = settings().devices + contexts().made;
    if (device < 0 || device >= settings().devices) return CUDA_ERROR_INVALID_DEVICE;
    if (number >= DEVICES_LIMIT) return CUDA_ERROR_OUT_OF_MEMORY;
    contexts().made++;
    contexts().gpus[number] = device;
    *context = new CUctx_st{number};
    adopt(*context, "context");
    this_host().device = number;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
    Entry entry;
    if (int planted = fault("cuCtxSetCurrent", CUDA_ERROR_INVALID_CONTEXT))
        return (CUresult)planted;
    this_host().device = resolve(context, "context", __func__).number;
    return CUDA_SUCCESS;
}

CUresult cuCtxDestroy_v2(CUcontext context) {
    Entry entry;
    int planted = fault("cuCtxDestroy", CUDA_ERROR_INVALID_CONTEXT);
    CUctx_st &given = resolve(context, "context", __func__);
    if (this_host().device == given.number) this_host().device = gpu_of(given.number);
    disown(&given);
    delete &given;
    return (CUresult)planted;
}

/* A poisoned context stays so. Of a healthy one, that held things would have to go: no test needs
 * it. */
cudaError_t cudaDeviceReset(void) {
    ENTER(cudaErrorUnknown);
    violation("%s of a healthy device is not simulated", __func__);
}

} // extern "C"
