/* SPDX-License-Identifier: Apache-2.0 */
/* GPUs as devices: open and close, memory, and the backend table. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/near.h"

/* Life. */

static void cuda_close(yoke_device *device) {
    if (device == NULL) return;
    int before = cuda_current();
    cuda_return_to(cuda_of(device)->ordinal);
    /* Errors of a lost GPU no longer matter here. */
    cuda_device *cuda = cuda_of(device);
    cuda_close_staging(cuda);
    cuda_products_clear(cuda);
    if (cuda->step != NULL) cudaFree(cuda->step);
    if (cuda->arrivals != NULL) cudaFree(cuda->arrivals);
    if (cuda->workspace != NULL) cudaFree(cuda->workspace);
#ifdef YOKE_HAS_CUDNN
    if (cuda->cudnn != NULL) cuda_cudnn()->cudnnDestroy(cuda->cudnn);
#endif
    if (cuda->lt != NULL) cuda_lt()->cublasLtDestroy(cuda->lt);
    for (int i = 0; i < YOKE_STREAMS; i++)
        if (cuda->streams[i] != NULL) cudaStreamDestroy(cuda->streams[i]);
    cuda_return_to(before);
    cudaGetLastError();
    yoke_free(device);
}

/* Says what `yoke devices` says where there is none. */
static yoke_status check_gpu(const yoke_backend_open *request) {
    int count = 0;
    yoke_status status = cuda_count(&count);
    if (status != YOKE_OK) {
        yoke_error_prefix("%s", request->name);
        return status;
    }
    if (count > YOKE_DEVICES_LIMIT) count = YOKE_DEVICES_LIMIT;
    if (request->ordinal >= count)
        return FAIL(
            YOKE_ERROR_DEVICE,
            "%s: this machine has %d usable GPU%s, counted from cuda:0; \"2xcuda:0\" puts two "
            "replicas on one",
            request->name, count, count == 1 ? "" : "s");
    return YOKE_OK;
}

#ifdef YOKE_HAS_CUDNN
static void leave_cudnn_out(cuda_device *cuda, const char *reason) {
    snprintf(cuda->note, sizeof cuda->note, "no cuDNN: %s", reason);
    if (cuda->cudnn != NULL) cuda_cudnn()->cudnnDestroy(cuda->cudnn);
    cuda->cudnn = NULL;
}
#endif

/* A cuDNN that does not start is as good as none: im2col computes every convolution. For lack of
 * memory it may start next time. */
static yoke_status create_cudnn(cuda_device *cuda) {
#ifdef YOKE_HAS_CUDNN
    if (cuda_cudnn() == NULL) return YOKE_OK;
    cudnnStatus_t status = cuda_cudnn()->cudnnCreate(&cuda->cudnn);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cuda_cudnn()->cudnnSetStream(cuda->cudnn, cuda->streams[YOKE_STREAM_COMPUTE]);
    if (status == CUDNN_STATUS_SUCCESS) return YOKE_OK;
    yoke_status failed = cuda_cudnn_failed(cuda, status, "starting cuDNN");
    if (cuda_poisoned(cuda) || failed == YOKE_ERROR_MEMORY) return failed;
    leave_cudnn_out(cuda, cuda_cudnn()->cudnnGetErrorString(status));
#else
    (void)cuda;
#endif
    return YOKE_OK;
}

static yoke_status cuda_build(cuda_device *cuda, const cpu_set_t *cores) {
    TRY(cuda_libraries_open());
    TRY(cuda_use(&cuda->base));
    int major = 0, minor = 0;
    TRY_CUDA(cuda,
             cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, cuda->ordinal));
    TRY_CUDA(cuda,
             cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, cuda->ordinal));
    TRY_CUDA(cuda, cudaDeviceGetAttribute(&cuda->processors, cudaDevAttrMultiProcessorCount,
                                          cuda->ordinal));
    cuda->capability = 10 * major + minor;
    TRY(cuda_check_code(cuda));
    TRY(cuda_near_find(cuda, cores));
    cuda->reach = (uint64_t)1 << cuda->ordinal;
    /* Collectives and updates are short, and other work waits for them: their stream has the
     * highest priority. */
    int least = 0, greatest = 0;
    TRY_CUDA(cuda, cudaDeviceGetStreamPriorityRange(&least, &greatest));
    for (int i = 0; i < YOKE_STREAMS; i++) {
        int priority = i == YOKE_STREAM_COMMUNICATION ? greatest : least;
        TRY_CUDA(cuda,
                 cudaStreamCreateWithPriority(&cuda->streams[i], cudaStreamNonBlocking, priority));
    }
    TRY_LT(cuda, cuda_lt()->cublasLtCreate(&cuda->lt));
    TRY(create_cudnn(cuda));
    TRY_CUDA(cuda, cudaMalloc(&cuda->workspace, CUDA_WORKSPACE_BYTES));
    TRY_CUDA(cuda, cudaMalloc((void **)&cuda->step, sizeof *cuda->step));
    size_t bytes = CUDA_ARRIVALS * sizeof *cuda->arrivals;
    TRY_CUDA(cuda, cudaMalloc((void **)&cuda->arrivals, bytes));
    TRY_CUDA(cuda, cudaMemsetAsync(cuda->arrivals, 0, bytes, cuda->streams[YOKE_STREAM_COMPUTE]));
    return YOKE_OK;
}

static yoke_status connect_all(yoke_device *const *devices, int count) {
    /* Devices that convolve in different ways would compute different bits. */
#ifdef YOKE_HAS_CUDNN
    int with = 0, before = cuda_current();
    for (int k = 0; k < count; k++)
        with += cuda_of(devices[k])->cudnn != NULL;
    for (int k = 0; with < count && k < count; k++) {
        if (cuda_of(devices[k])->cudnn == NULL) continue;
        cuda_return_to(cuda_of(devices[k])->ordinal);
        leave_cudnn_out(cuda_of(devices[k]), "it fails on another GPU");
    }
    cuda_return_to(before);
#else
    (void)devices, (void)count;
#endif
    return cuda_connect(devices, count);
}

/* Restores the caller's current GPU; without a driver there is none. */
static yoke_status build_away(cuda_device *cuda, const yoke_backend_open *request) {
    int before = 0;
    TRY(check_gpu(request));
    TRY(cuda_visit(&cuda->base, &before));
    yoke_status status = cuda_build(cuda, request->cores);
    cuda_return_to(before);
    return status;
}

static yoke_status cuda_open(yoke_device **device, const yoke_backend_open *request) {
    *device = NULL;
    cuda_device *cuda = yoke_calloc(1, sizeof *cuda);
    if (cuda == NULL) return FAIL_MEMORY(sizeof *cuda, "a device");
    cuda->base.backend = yoke_cuda_backend();
    cuda->base.index = request->index;
    cuda->base.threads = 1; /* the worker that queues the GPU's work */
    snprintf(cuda->base.name, sizeof cuda->base.name, "%s", request->name);
    cuda->ordinal = request->ordinal;
    yoke_status status = build_away(cuda, request);
    if (status != YOKE_OK)
        cuda_close(&cuda->base);
    else
        *device = &cuda->base;
    return status;
}

static bool cuda_supports(const yoke_device *device, yoke_precision precision) {
    return precision == YOKE_FLOAT32 || ((const cuda_device *)device)->capability >= 80;
}

/* Memory. */

static yoke_status cuda_clear(yoke_device *device, yoke_stream stream, void *to, size_t bytes) {
    cuda_device *cuda = cuda_of(device);
    TRY(cuda_use(device));
    TRY_CUDA(cuda, cudaMemsetAsync(to, 0, bytes, cuda->streams[stream]));
    return YOKE_OK;
}

static void cuda_release(yoke_device *device, void *pointer) {
    if (pointer == NULL) return;
    int before = cuda_current();
    cuda_return_to(cuda_of(device)->ordinal);
    if (cudaFree(pointer) != cudaSuccess) cudaGetLastError();
    cuda_return_to(before);
}

/* Waits, so that every stream sees the zeros. */
static yoke_status clear_now(yoke_device *device, void *memory, size_t bytes) {
    TRY(cuda_clear(device, YOKE_STREAM_COMPUTE, memory, bytes));
    TRY_CUDA(cuda_of(device), cudaStreamSynchronize(cuda_of(device)->streams[YOKE_STREAM_COMPUTE]));
    return YOKE_OK;
}

static yoke_status allocate_here(yoke_device *device, size_t bytes, void **memory) {
    TRY_CUDA(cuda_of(device), cudaMalloc(memory, bytes > 0 ? bytes : 1));
    yoke_status status = bytes > 0 ? clear_now(device, *memory, bytes) : YOKE_OK;
    if (status == YOKE_OK) return YOKE_OK;
    cuda_release(device, *memory);
    *memory = NULL;
    return status;
}

/* Any thread allocates: the loader's, and the host program's. */
static yoke_status cuda_allocate(yoke_device *device, size_t bytes, void **memory) {
    int before = 0;
    *memory = NULL;
    TRY(cuda_visit(device, &before));
    yoke_status status = allocate_here(device, bytes, memory);
    cuda_return_to(before);
    return status;
}

static yoke_status cuda_allocate_host(yoke_device *device, size_t bytes, void **memory) {
    int before = 0;
    *memory = NULL;
    TRY(cuda_visit(device, &before));
    cpu_set_t cores;
    cuda_near_go(cuda_of(device), &cores); /* new pages lie near the core that asks for them */
    cudaError_t error =
        cudaHostAlloc(memory, bytes > 0 ? bytes : 1, cudaHostAllocPortable | cudaHostAllocMapped);
    cuda_return_to(before);
    if (error == cudaSuccess) memset(*memory, 0, bytes);
    cuda_near_return(&cores);
    return error == cudaSuccess ? YOKE_OK : cuda_failed(cuda_of(device), error, "cudaHostAlloc");
}

static void cuda_release_host(yoke_device *device, void *pointer) {
    (void)device;
    if (cudaFreeHost(pointer) != cudaSuccess) cudaGetLastError();
}

static yoke_status cuda_memory(yoke_device *device, const void *pointer, yoke_memory *memory) {
    struct cudaPointerAttributes attributes;
    TRY(cuda_check_poison(cuda_of(device)));
    TRY_CUDA(cuda_of(device), cudaPointerGetAttributes(&attributes, pointer));
    *memory = attributes.type == cudaMemoryTypeHost ? YOKE_MEMORY_PINNED : YOKE_MEMORY_ORDINARY;
    if (attributes.type != cudaMemoryTypeDevice) return YOKE_OK;
    *memory = YOKE_MEMORY_DEVICE;
    if (attributes.device == cuda_of(device)->ordinal) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT, "%s: the pointer is memory of GPU %d", device->name,
                attributes.device);
}

/* The copy of pageable memory may still run when CUDA returns; device.h promises that it does
 * not. */
static yoke_status finish_unless_pinned(cuda_device *cuda, yoke_stream stream, const void *host) {
    struct cudaPointerAttributes attributes;
    TRY_CUDA(cuda, cudaPointerGetAttributes(&attributes, host));
    if (attributes.type == cudaMemoryTypeHost) return YOKE_OK;
    TRY_CUDA(cuda, cudaStreamSynchronize(cuda->streams[stream]));
    return YOKE_OK;
}

static yoke_status cuda_queue_upload(yoke_device *device, yoke_stream stream, void *to,
                                     const void *from, size_t bytes) {
    cuda_device *cuda = cuda_of(device);
    TRY(cuda_check_poison(cuda));
    TRY_CUDA(cuda, cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, cuda->streams[stream]));
    return YOKE_OK;
}

static yoke_status cuda_finish_uploads(yoke_device *device, yoke_stream stream) {
    cuda_device *cuda = cuda_of(device);
    TRY_CUDA(cuda, cudaStreamSynchronize(cuda->streams[stream]));
    return YOKE_OK;
}

static yoke_status cuda_upload(yoke_device *device, yoke_stream stream, void *to, const void *from,
                               size_t bytes) {
    TRY(cuda_queue_upload(device, stream, to, from, bytes));
    return finish_unless_pinned(cuda_of(device), stream, from);
}

static yoke_status cuda_download(yoke_device *device, yoke_stream stream, void *to,
                                 const void *from, size_t bytes) {
    cuda_device *cuda = cuda_of(device);
    TRY(cuda_check_poison(cuda));
    TRY_CUDA(cuda, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, cuda->streams[stream]));
    return finish_unless_pinned(cuda, stream, to);
}

/* Waits for the device's own streams: other replicas and other code of the host program may use the
 * GPU. */
static yoke_status cuda_synchronize(yoke_device *device) {
    cuda_device *cuda = cuda_of(device);
    TRY(cuda_check_poison(cuda));
    for (int i = 0; i < YOKE_STREAMS; i++)
        TRY_CUDA(cuda, cudaStreamSynchronize(cuda->streams[i]));
    return YOKE_OK;
}

/* Plans. */

static yoke_status cuda_plan(yoke_plan **plan, yoke_device *device,
                             const yoke_plan_request *request) {
    cuda_device *cuda = cuda_of(device);
    if (!cuda_supports(device, request->precision))
        return FAIL(YOKE_ERROR_DEVICE, "%s: compute capability %d.%d has no %s; use float32",
                    device->name, cuda->capability / 10, cuda->capability % 10,
                    yoke_precision_name(request->precision));
    TRY(cuda_use(device));
    switch (request->operation->kind) {
    case YOKE_OP_CONV2D:
        return cuda_plan_convolution(plan, cuda, request);
    case YOKE_OP_CONV_TRANSPOSE2D:
        return cuda_plan_transposed_convolution(plan, cuda, request);
    case YOKE_OP_LINEAR:
        return cuda_plan_linear(plan, cuda, request);
    case YOKE_OP_BATCH_NORM:
        return cuda_plan_batch_norm(plan, cuda, request);
    case YOKE_OP_RECURRENCE:
        return cuda_plan_recurrence(plan, cuda, request);
    case YOKE_OP_CONSTANT:
        return cuda_plan_constant(plan, cuda, request);
    case YOKE_OP_ATTENTION:
        return cuda_plan_attention(plan, cuda, request);
    case YOKE_OP_CROSS_ENTROPY:
    case YOKE_OP_MSE:
    case YOKE_OP_BCE:
    case YOKE_OP_HUBER:
    case YOKE_OP_OUTPUT_LOSS:
        return cuda_plan_loss(plan, cuda, request);
    default:
        return cuda_plan_kernels(plan, cuda, request);
    }
}

const yoke_backend *yoke_cuda_backend(void) {
    static const yoke_backend table = {
        .name = "cuda",
        .open = cuda_open,
        .close = cuda_close,
        .describe = cuda_describe,
        .supports = cuda_supports,
        .enter = cuda_enter,
        .leave = cuda_leave,
        .use = cuda_come_back,
        .step_out = cuda_step_out,
        .connect = connect_all,
        .allocate = cuda_allocate,
        .release = cuda_release,
        .allocate_collective = cuda_allocate_collective,
        .release_collective = cuda_release_collective,
        .allocate_host = cuda_allocate_host,
        .release_host = cuda_release_host,
        .upload = cuda_upload,
        .download = cuda_download,
        .copy = cuda_copy,
        .clear = cuda_clear,
        .memory = cuda_memory,
        .queue_upload = cuda_queue_upload,
        .finish_uploads = cuda_finish_uploads,
        .path = cuda_path,
        .synchronize = cuda_synchronize,
        .event_create = cuda_event_create,
        .event_elapsed = cuda_event_elapsed,
        .event_destroy = cuda_event_destroy,
        .event_record = cuda_event_record,
        .event_wait = cuda_event_wait,
        .event_synchronize = cuda_event_synchronize,
        .event_record_host = cuda_event_record_host,
        .event_wait_host = cuda_event_wait_host,
        .begin_step = cuda_begin_step,
        .record_begin = cuda_record_begin,
        .record_end = cuda_record_end,
        .record_run = cuda_record_run,
        .record_destroy = cuda_record_destroy,
        .sum = cuda_sum,
        .square_sum = cuda_square_sum,
        .check_finite = cuda_check_finite,
        .gate = cuda_gate,
        .undo = cuda_undo,
        .update = cuda_update,
        .rescale = cuda_rescale,
        .product = cuda_multiply,
        .shadow = cuda_shadow,
        .accumulate = cuda_accumulate,
        .image_layout = cuda_image_layout,
        .decode = cuda_decode,
        .layout_plain = cuda_layout_plain,
        .layout_convert = cuda_layout_convert,
        .plan = cuda_plan,
        .choose = cuda_choose_for,
        .group = cuda_nccl_group,
        .communicator_check = cuda_communicator_check,
        .communicator_id = cuda_communicator_id,
        .communicator = cuda_communicator,
    };
    return &table;
}
