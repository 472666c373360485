/* SPDX-License-Identifier: Apache-2.0 */
/* A poisoned context: what a process can still do after __trap() in a kernel, on the same GPU, on
 * another one, and in other contexts of the same GPU. By the runtime alone: it counts what CUDA
 * answers, not what Yoke makes of it. Nothing here resets a GPU; cudaDeviceReset ends this
 * process's own context. */
#include <cuda.h>
#include <dlfcn.h>
#include <string.h>

#include "probe/probe.h"

#define SECTION "poison"
#define WHAT "after __trap() in a kernel"
#define BYTES 4096
#define ANY "nobody knows"

/* Another place to work in: another GPU, or another context of this one. */
typedef struct place {
    bool open;
    cudaStream_t stream;
    int *counter, *pinned;
    cudaEvent_t event;
} place;

typedef CUresult (*create_context)(CUcontext *context, unsigned flags, CUdevice device);
typedef CUresult (*use_context)(CUcontext context);

/* A process of its own asks this, so the scene is a global of it. */
static struct scene {
    gpu_probe *probe;
    place own, other_stream, other_gpu, made_before, made_after;
    CUcontext before, after;
    create_context create;
    use_context use, destroy;
} scene;

#ifdef YOKE_SIMCUDA
CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device);
CUresult cuCtxDestroy_v2(CUcontext context);

static bool find_driver(void) {
    scene.create = cuCtxCreate_v2;
    scene.use = cuCtxSetCurrent;
    scene.destroy = cuCtxDestroy_v2;
    return true;
}
#else
static bool find_driver(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    static const char *const names[] = {"cuCtxCreate_v2", "cuCtxSetCurrent", "cuCtxDestroy_v2"};
    void *found[3];
    for (int i = 0; i < 3; i++)
        if (library == NULL || (found[i] = dlsym(library, names[i])) == NULL) return false;
    memcpy(&scene.create, &found[0], sizeof found[0]);
    memcpy(&scene.use, &found[1], sizeof found[1]);
    memcpy(&scene.destroy, &found[2], sizeof found[2]);
    return true;
}
#endif

/* Places. */

#define RETURN_ERROR(call)                                                                         \
    do {                                                                                           \
        cudaError_t error_ = (call);                                                               \
        if (error_ != cudaSuccess) return error_;                                                  \
    } while (0)

static cudaError_t open_place(place *at) {
    RETURN_ERROR(cudaStreamCreateWithFlags(&at->stream, cudaStreamNonBlocking));
    RETURN_ERROR(cudaEventCreateWithFlags(&at->event, cudaEventDisableTiming));
    RETURN_ERROR(cudaMalloc((void **)&at->counter, BYTES));
    RETURN_ERROR(cudaMallocHost((void **)&at->pinned, BYTES));
    RETURN_ERROR(cudaMemsetAsync(at->counter, 0, BYTES, at->stream));
    RETURN_ERROR(cudaEventRecord(at->event, at->stream));
    at->open = true;
    return cudaStreamSynchronize(at->stream);
}

/* A launch, a copy and a wait. */
static cudaError_t work_in(const place *at) {
    *at->pinned = 0;
    RETURN_ERROR(probe_run_count(at->counter, at->stream));
    RETURN_ERROR(
        cudaMemcpyAsync(at->pinned, at->counter, sizeof(int), cudaMemcpyDeviceToHost, at->stream));
    RETURN_ERROR(cudaStreamSynchronize(at->stream));
    return *at->pinned > 0 ? cudaSuccess : cudaErrorUnknown;
}

/* All of it, and the first error. */
static cudaError_t close_place(place *at) {
    cudaError_t errors[] = {cudaStreamDestroy(at->stream), cudaEventDestroy(at->event),
                            cudaFree(at->counter), cudaFreeHost(at->pinned)};
    at->open = false;
    for (int i = 0; i < 4; i++)
        RETURN_ERROR(errors[i]);
    return cudaSuccess;
}

static cudaError_t use_own(void) {
    return cudaSetDevice(scene.probe->number);
}

static cudaError_t use_other_gpu(void) {
    int count = 0;
    RETURN_ERROR(cudaGetDeviceCount(&count));
    if (count < 2) return cudaErrorNoDevice;
    return cudaSetDevice(scene.probe->number == 0 ? 1 : 0);
}

static cudaError_t open_context(CUcontext *context, place *at) {
    if (scene.create == NULL) return cudaErrorNotSupported;
    if (scene.create(context, 0, scene.probe->number) != CUDA_SUCCESS)
        return cudaErrorInitializationError;
    return open_place(at);
}

/* Steps: what CUDA answers, in order. Each begins on this GPU's own context. */

static cudaError_t wait_for_trap(void) {
    return cudaStreamSynchronize(scene.own.stream);
}
static cudaError_t last_error(void) {
    return cudaGetLastError();
}
static cudaError_t query_event(void) {
    return cudaEventQuery(scene.own.event);
}
static cudaError_t query_other_stream(void) {
    return cudaStreamQuery(scene.other_stream.stream);
}
static cudaError_t launch(void) {
    return probe_run_count(scene.other_stream.counter, scene.other_stream.stream);
}
static cudaError_t allocate(void) {
    void *memory = NULL;
    RETURN_ERROR(cudaMalloc(&memory, BYTES));
    return cudaFree(memory);
}
static cudaError_t allocate_pinned(void) {
    void *memory = NULL;
    RETURN_ERROR(cudaMallocHost(&memory, BYTES));
    return cudaFreeHost(memory);
}
static cudaError_t touch_pinned(void) {
    volatile int *pinned = scene.own.pinned;
    *pinned = 7;
    return *pinned == 7 ? cudaSuccess : cudaErrorUnknown;
}
static cudaError_t set_device(void) {
    return use_own();
}
static cudaError_t last_error_on_other_gpu(void) {
    RETURN_ERROR(use_other_gpu());
    return cudaGetLastError();
}
/* The thread may still remember the poisoned context's error. */
static cudaError_t work_elsewhere(const place *at) {
    (void)cudaGetLastError();
    return work_in(at);
}
static cudaError_t work_on_other_gpu(void) {
    if (!scene.other_gpu.open) return cudaErrorNoDevice;
    RETURN_ERROR(use_other_gpu());
    return work_elsewhere(&scene.other_gpu);
}
static cudaError_t allocate_on_other_gpu(void) {
    RETURN_ERROR(use_other_gpu());
    return allocate();
}
static cudaError_t close_on_other_gpu(void) {
    RETURN_ERROR(use_other_gpu());
    return scene.other_gpu.open ? close_place(&scene.other_gpu) : cudaErrorNoDevice;
}
static cudaError_t work_in_context_before(void) {
    if (scene.before == NULL) return cudaErrorNotSupported;
    if (scene.use(scene.before) != CUDA_SUCCESS) return cudaErrorInvalidResourceHandle;
    return scene.made_before.open ? work_elsewhere(&scene.made_before) : cudaErrorNotSupported;
}
static cudaError_t work_in_context_after(void) {
    RETURN_ERROR(open_context(&scene.after, &scene.made_after));
    return work_elsewhere(&scene.made_after);
}
static cudaError_t close_context(CUcontext *context, place *at) {
    if (*context == NULL) return cudaErrorNotSupported;
    if (scene.use(*context) != CUDA_SUCCESS) return cudaErrorInvalidResourceHandle;
    cudaError_t error = at->open ? close_place(at) : cudaSuccess;
    CUresult destroyed = scene.destroy(*context);
    *context = NULL;
    return error == cudaSuccess && destroyed != CUDA_SUCCESS ? cudaErrorUnknown : error;
}
static cudaError_t close_contexts(void) {
    cudaError_t before = close_context(&scene.before, &scene.made_before);
    cudaError_t after = close_context(&scene.after, &scene.made_after);
    return before != cudaSuccess ? before : after;
}
static cudaError_t close_other_stream(void) {
    return close_place(&scene.other_stream);
}
static cudaError_t close_own(void) {
    return close_place(&scene.own);
}
static cudaError_t reset(void) {
    return cudaDeviceReset();
}

static const struct {
    const char *variant, *expected;
    cudaError_t (*ask)(void);
} steps[] = {
    {"waiting for the kernel's stream", "cudaErrorLaunchFailure", wait_for_trap},
    {"cudaGetLastError", "cudaErrorLaunchFailure", last_error},
    {"cudaGetLastError again", "cudaErrorLaunchFailure", last_error},
    {"cudaSetDevice of the same GPU", ANY, set_device},
    {"query of an event that was over before", "cudaErrorLaunchFailure", query_event},
    {"query of another stream", "cudaErrorLaunchFailure", query_other_stream},
    {"launch on another stream", "cudaErrorLaunchFailure", launch},
    {"cudaMalloc", "cudaErrorLaunchFailure", allocate},
    {"cudaMallocHost", "cudaErrorLaunchFailure", allocate_pinned},
    {"the host touches memory pinned before", "cudaSuccess", touch_pinned},
    {"cudaGetLastError on another GPU", ANY, last_error_on_other_gpu},
    {"work on another GPU", "cudaSuccess", work_on_other_gpu},
    {"cudaMalloc and cudaFree on another GPU", "cudaSuccess", allocate_on_other_gpu},
    {"work in a context of this GPU made before", "cudaSuccess", work_in_context_before},
    {"work in a context of this GPU made afterwards", "cudaSuccess", work_in_context_after},
    {"giving back what the other contexts hold", "cudaSuccess", close_contexts},
    {"giving back what the other GPU holds", "cudaSuccess", close_on_other_gpu},
    {"giving back stream, event and memory", "cudaErrorLaunchFailure", close_other_stream},
    {"the same of the kernel's stream", "cudaErrorLaunchFailure", close_own},
    {"cudaDeviceReset", ANY, reset},
    {"cudaMalloc after cudaDeviceReset", "cudaErrorLaunchFailure", allocate},
};

static void print(const char *variant, const char *expected, cudaError_t found) {
    probe_row row = PROBE_ROW_INIT;
    row.section = SECTION;
    row.what = WHAT;
    row.variant = variant;
    row.expected = expected;
    row.found = cudaGetErrorName(found);
    bool open = strcmp(expected, ANY) == 0;
    row.verdict = open ? NULL : strcmp(expected, row.found) == 0 ? "as expected" : "OTHERWISE";
    if (found == cudaErrorNoDevice) row.verdict = "there is no other GPU";
    if (found == cudaErrorNotSupported) row.verdict = "the driver made no such context";
    probe_print(scene.probe, &row);
}

static cudaError_t prepare(void) {
    RETURN_ERROR(use_own());
    RETURN_ERROR(open_place(&scene.own));
    RETURN_ERROR(open_place(&scene.other_stream));
    if (use_other_gpu() == cudaSuccess) RETURN_ERROR(open_place(&scene.other_gpu));
    RETURN_ERROR(use_own());
    if (find_driver())
        print("a second context of this GPU", "cudaSuccess",
              open_context(&scene.before, &scene.made_before));
    return use_own();
}

yoke_status probe_poison(gpu_probe *probe) {
    scene.probe = probe;
    if (!probe_ask(probe, SECTION, WHAT, NULL)) return YOKE_OK;
    cudaError_t error = prepare();
    if (error == cudaSuccess) error = probe_run_trap(scene.own.counter, scene.own.stream);
    if (error != cudaSuccess)
        return FAIL(YOKE_ERROR_DEVICE, "no kernel to poison a context with: %s",
                    cudaGetErrorString(error));
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        (void)use_own(); /* one of the steps says what it answers */
        print(steps[i].variant, steps[i].expected, steps[i].ask());
    }
    probe_answered(probe, SECTION, WHAT, NULL);
    return YOKE_OK;
}
