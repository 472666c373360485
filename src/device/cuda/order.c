/* SPDX-License-Identifier: Apache-2.0 */
/* Events, which order streams, and recordings, which turn the work of a step into one launch. Only
 * timed events store a time stamp. */
#include <stdlib.h>
#include <string.h>

#include "device/cuda/cuda.h"

typedef struct cuda_event {
    yoke_device_event base;
    cudaEvent_t event;
    bool slow; /* the host's last wait for it was long */
} cuda_event;

typedef struct cuda_recording {
    yoke_recording base;
    cudaGraphExec_t graph;
} cuda_recording;

/* Events. */

yoke_status cuda_event_create(yoke_device_event **event, yoke_device *device, bool timed) {
    unsigned flags = cudaEventBlockingSync | (timed ? 0u : cudaEventDisableTiming);
    *event = NULL;
    TRY(cuda_use(device));
    cuda_event *created = yoke_calloc(1, sizeof *created);
    if (created == NULL) return FAIL_MEMORY(sizeof *created, "an event");
    created->base.device = device;
    cudaError_t error = cudaEventCreateWithFlags(&created->event, flags);
    if (error != cudaSuccess) {
        yoke_free(created);
        return cuda_failed(cuda_of(device), error, "cudaEventCreateWithFlags");
    }
    *event = &created->base;
    return YOKE_OK;
}

void cuda_event_destroy(yoke_device_event *event) {
    if (cudaEventDestroy(((cuda_event *)event)->event) != cudaSuccess) cudaGetLastError();
    yoke_free(event);
}

/* In a recording the event becomes a node of the graph: work outside waits for it, work inside does
 * not. */
yoke_status cuda_event_record(yoke_device_event *event, yoke_stream stream) {
    cuda_device *cuda = cuda_of(event->device);
    unsigned flags = event->device->recording ? cudaEventRecordExternal : cudaEventRecordDefault;
    TRY(cuda_use(event->device));
    TRY_CUDA(cuda,
             cudaEventRecordWithFlags(((cuda_event *)event)->event, cuda->streams[stream], flags));
    return YOKE_OK;
}

yoke_status cuda_event_wait(yoke_device_event *event, yoke_device *device, yoke_stream stream) {
    cuda_device *cuda = cuda_of(device);
    TRY(cuda_use(device));
    TRY_CUDA(cuda, cudaStreamWaitEvent(cuda->streams[stream], ((cuda_event *)event)->event, 0));
    return YOKE_OK;
}

#define SPIN_NS 50000 /* about the cost of a wake-up */

/* Spins for a short time, then sleeps, so that short waits stay short. If the last wait for this
 * event was long, it sleeps at once and frees the core. */
yoke_status cuda_event_synchronize(yoke_device_event *event) {
    cuda_device *cuda = cuda_of(event->device);
    cuda_event *own = (cuda_event *)event;
    TRY(cuda_check_poison(cuda));
    uint64_t begin = yoke_now_ns(), spin_ns = own->slow ? 0 : SPIN_NS;
    cudaError_t error = own->slow ? cudaErrorNotReady : cudaEventQuery(own->event);
    if (error == cudaErrorNotReady && !own->slow) {
        while (error == cudaErrorNotReady && yoke_now_ns() < begin + spin_ns)
            error = cudaEventQuery(own->event);
        cudaGetLastError(); /* clears "not ready", which the next launch would report as an error */
    }
    if (error == cudaErrorNotReady) error = cudaEventSynchronize(own->event);
    own->slow = yoke_now_ns() > begin + 2 * SPIN_NS;
    return error == cudaSuccess ? YOKE_OK : cuda_failed(cuda, error, "cudaEventSynchronize");
}

yoke_status cuda_event_record_host(yoke_device_event *event, void *stream) {
    cuda_device *cuda = cuda_of(event->device);
    TRY(cuda_use(event->device));
    cudaError_t error =
        cudaEventRecordWithFlags(((cuda_event *)event)->event, stream, cudaEventRecordDefault);
    if (error == cudaSuccess) return YOKE_OK;
    if (error != cudaErrorInvalidResourceHandle)
        return cuda_failed(cuda, error, "cudaEventRecordWithFlags");
    cudaGetLastError();
    return FAIL(YOKE_ERROR_ARGUMENT, "the batch's stream is not one of %s", event->device->name);
}

/* The default streams are those of the current GPU. */
yoke_status cuda_event_wait_host(yoke_device_event *event, yoke_device *device, void *stream) {
    TRY(cuda_use(device));
    TRY_CUDA(cuda_of(device), cudaStreamWaitEvent(stream, ((cuda_event *)event)->event, 0));
    return YOKE_OK;
}

yoke_status cuda_event_elapsed(yoke_device_event *from, yoke_device_event *to,
                               double *milliseconds) {
    float elapsed = 0;
    TRY(cuda_check_poison(cuda_of(from->device)));
    TRY_CUDA(cuda_of(from->device), cudaEventElapsedTime(&elapsed, ((cuda_event *)from)->event,
                                                         ((cuda_event *)to)->event));
    *milliseconds = (double)elapsed;
    return YOKE_OK;
}

yoke_status cuda_begin_step(yoke_device *device, const yoke_plan_step *step) {
    cuda_device *cuda = cuda_of(device);
    cuda_step values = {.seed = step->seed,
                        .step = step->step,
                        .first_row = step->first_row,
                        .loss_scale = step->loss_scale,
                        .unscale = step->unscale,
                        .mixed = step->mixed,
                        .settled = step->settled};
    if (step->scalar_count > 0)
        memcpy(values.scalars, step->scalars, (size_t)step->scalar_count * sizeof *values.scalars);
    TRY(cuda_use(device));
    TRY_CUDA(cuda, cuda_set_step(cuda->step, &values, step->scalar_count,
                                 cuda->streams[YOKE_STREAM_COMPUTE]));
    return YOKE_OK;
}

/* Recordings. */

/* Relaxed mode allows other threads to call CUDA meanwhile, and a library to load code or allocate
 * memory during a recorded call. */
yoke_status cuda_record_begin(yoke_device *device) {
    cuda_device *cuda = cuda_of(device);
    TRY(cuda_use(device));
    TRY_CUDA(cuda, cudaStreamBeginCapture(cuda->streams[YOKE_STREAM_COMPUTE],
                                          cudaStreamCaptureModeRelaxed));
    return YOKE_OK;
}

static yoke_status make_recording(cuda_recording **recording, cuda_device *cuda,
                                  cudaGraph_t graph) {
    *recording = yoke_calloc(1, sizeof **recording);
    if (*recording == NULL) return FAIL_MEMORY(sizeof **recording, "a recording");
    (*recording)->base.device = &cuda->base;
    TRY_CUDA(cuda, cudaGraphInstantiate(&(*recording)->graph, graph, 0));
    /* Uploads the graph now, so that the first run is as fast as the others. */
    TRY_CUDA(cuda, cudaGraphUpload((*recording)->graph, cuda->streams[YOKE_STREAM_COMPUTE]));
    return YOKE_OK;
}

yoke_status cuda_record_end(yoke_device *device, yoke_recording **recording) {
    cuda_device *cuda = cuda_of(device);
    cuda_recording *made = NULL;
    cudaGraph_t graph = NULL;
    *recording = NULL;
    TRY_CUDA(cuda, cudaStreamEndCapture(cuda->streams[YOKE_STREAM_COMPUTE], &graph));
    yoke_status status = make_recording(&made, cuda, graph);
    cudaGraphDestroy(graph);
    if (status != YOKE_OK && made != NULL) cuda_record_destroy(&made->base);
    if (status == YOKE_OK) *recording = &made->base;
    return status;
}

yoke_status cuda_record_run(yoke_recording *recording) {
    cuda_device *cuda = cuda_of(recording->device);
    TRY(cuda_use(recording->device));
    TRY_CUDA(cuda, cudaGraphLaunch(((cuda_recording *)recording)->graph,
                                   cuda->streams[YOKE_STREAM_COMPUTE]));
    return YOKE_OK;
}

void cuda_record_destroy(yoke_recording *recording) {
    cudaGraphExec_t graph = ((cuda_recording *)recording)->graph;
    if (graph != NULL && cudaGraphExecDestroy(graph) != cudaSuccess) cudaGetLastError();
    yoke_free(recording);
}
