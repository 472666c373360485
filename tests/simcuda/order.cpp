/* SPDX-License-Identifier: Apache-2.0 */
/* Streams and events. */
#include "simcuda/api.h"
#include "simcuda/capture.h"
#include "simcuda/handles.h"
#include "simcuda/memory.h"

using namespace sim;

static cudaError_t create_stream(cudaStream_t *stream, unsigned flags) {
    *stream = nullptr;
    if (flags != cudaStreamDefault && flags != cudaStreamNonBlocking) return cudaErrorInvalidValue;
    *stream = make_stream(this_host().device, flags == cudaStreamDefault);
    adopt(*stream, "stream");
    return cudaSuccess;
}

/* Time comes with the mark before which all work of the stream is done. */
static cudaError_t record(CUevent_st &event, CUstream_st &stream, unsigned flags) {
    if (event.device != stream.device) return cudaErrorInvalidResourceHandle;
    if (stream.capture != nullptr) return capture_record(event, stream, flags);
    if (flags & cudaEventRecordExternal) return cudaErrorInvalidValue;
    Node node;
    node.what = "cudaEventRecord";
    node.device = stream.device;
    if (cudaError_t code = submit(stream, node)) return code;
    event.record = stream.last;
    event.capture = nullptr;
    return cudaSuccess;
}

static cudaError_t wait(CUstream_st &stream, const CUevent_st &event, unsigned flags) {
    if (stream.capture != nullptr || event.capture != nullptr)
        return capture_wait(stream, event, flags);
    if (event.record == nullptr) return cudaSuccess;
    Node node;
    node.what = "cudaStreamWaitEvent";
    node.device = stream.device;
    node.waits = {event.record};
    return submit(stream, node);
}

/* A call that asks about an event's past. */
static cudaError_t refuse_captured(const CUevent_st &event) {
    if (event.capture == nullptr) return refuse_unsafe();
    event.capture->invalid = true;
    return cudaErrorCapturedEvent;
}

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
    *stream = nullptr;
    ENTER(cudaErrorMemoryAllocation);
    return answer(create_stream(stream, flags));
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int) {
    *stream = nullptr;
    ENTER(cudaErrorMemoryAllocation);
    return answer(create_stream(stream, flags));
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    ENTER(cudaErrorUnknown);
    if (least != nullptr) *least = 0;
    if (greatest != nullptr) *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
    Entry entry;
    int planted = fault(__func__, cudaErrorUnknown);
    CUstream_st &stream = resolve(handle, "stream", __func__);
    leave_capture(stream);
    disown(&stream);
    drop_stream(stream);
    return answer_planted(planted);
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
    ENTER(cudaErrorLaunchFailure);
    CUstream_st &stream = find_stream(handle, __func__);
    if (cudaError_t code = refuse_capture(stream)) return answer(code);
    wait_for(stream.last, __func__);
    return answer((cudaError_t)sticky_error());
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
    ENTER(cudaErrorLaunchFailure);
    CUstream_st &stream = find_stream(handle, __func__);
    if (cudaError_t code = refuse_capture(stream)) return answer(code);
    return answer(is_done(stream.last) ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned flags) {
    ENTER(cudaErrorUnknown);
    CUstream_st &stream = find_stream(handle, __func__);
    return answer(wait(stream, resolve(event, "event", __func__), flags));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
    *event = nullptr;
    ENTER(cudaErrorMemoryAllocation);
    *event = new CUevent_st{this_host().device, flags};
    adopt(*event, "event");
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event) {
    *event = nullptr;
    ENTER(cudaErrorMemoryAllocation);
    *event = new CUevent_st{this_host().device, cudaEventDefault};
    adopt(*event, "event");
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
    Entry entry;
    int planted = fault(__func__, cudaErrorUnknown);
    CUevent_st &event = resolve(handle, "event", __func__);
    disown(&event);
    delete &event;
    return answer_planted(planted);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    ENTER(cudaErrorUnknown);
    CUstream_st &found = find_stream(stream, __func__);
    return answer(record(resolve(event, "event", __func__), found, cudaEventRecordDefault));
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
    ENTER(cudaErrorUnknown);
    CUstream_st &found = find_stream(stream, __func__);
    return answer(record(resolve(event, "event", __func__), found, flags));
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
    ENTER(cudaErrorLaunchFailure);
    const CUevent_st &event = resolve(handle, "event", __func__);
    if (cudaError_t code = refuse_captured(event)) return answer(code);
    wait_for(event.record, __func__);
    return answer((cudaError_t)sticky_error());
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
    ENTER(cudaErrorLaunchFailure);
    const CUevent_st &event = resolve(handle, "event", __func__);
    if (cudaError_t code = refuse_captured(event)) return answer(code);
    return answer(is_done(event.record) ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end) {
    ENTER(cudaErrorUnknown);
    const CUevent_st &from = resolve(start, "event", __func__);
    const CUevent_st &to = resolve(end, "event", __func__);
    bool timed = !((from.flags | to.flags) & cudaEventDisableTiming);
    if (!timed || from.record == nullptr || to.record == nullptr || from.device != to.device)
        return answer(cudaErrorInvalidResourceHandle);
    if (!from.record->done || !to.record->done) return answer(cudaErrorNotReady);
    *milliseconds = (float)((double)((int64_t)(to.record->time_ns - from.record->time_ns)) / 1e6);
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void) {
    ENTER(cudaErrorLaunchFailure);
    if (cudaError_t code = refuse_unsafe()) return answer(code);
    wait_for_device(this_host().device, __func__);
    return answer((cudaError_t)sticky_error());
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data) {
    ENTER(cudaErrorUnknown);
    CUstream_st &found = find_stream(stream, __func__);
    Node node;
    node.what = "a host function";
    node.cost_ns = 5000;
    node.work = [function, data] { function(data); };
    node.device = found.device;
    node.host = true;
    return answer(submit(found, node));
}

} // extern "C"
