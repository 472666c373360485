/* What the NCCL transport does on its device: a call, and the wait for it. Where ranks have no
 * other way for host memory it goes through a stage: device memory that grows with what passes. */
#include "distributed/nccl_group.h"

yoke_status nccl_break(nccl_group *nccl, yoke_status status) {
    yoke_error error = yoke_error_take(status);
    if (nccl->communicator != NULL) yoke_communicator_abort(nccl->communicator);
    return yoke_watch_break(&nccl->watch, yoke_error_restore(&error));
}

yoke_status nccl_reach(nccl_group *nccl, yoke_communicator_stage wanted) {
    for (;;) {
        bool reached;
        yoke_status status = yoke_communicator_poll(nccl->communicator, wanted, &reached);
        if (status == YOKE_OK && reached) return YOKE_OK;
        if (status == YOKE_OK) status = yoke_watch_wait(&nccl->watch);
        if (status != YOKE_OK) return nccl_break(nccl, status);
    }
}

static yoke_collective collective_of(yoke_call_kind kind) {
    switch (kind) {
    case CALL_BROADCAST:
        return YOKE_COLLECTIVE_BROADCAST;
    case CALL_REDUCE:
        return YOKE_COLLECTIVE_REDUCE;
    case CALL_ALL_GATHER:
        return YOKE_COLLECTIVE_ALL_GATHER;
    case CALL_REDUCE_SCATTER:
        return YOKE_COLLECTIVE_REDUCE_SCATTER;
    case CALL_GATHER:
        return YOKE_COLLECTIVE_GATHER;
    case CALL_SCATTER:
        return YOKE_COLLECTIVE_SCATTER;
    default:
        return YOKE_COLLECTIVE_ALL_REDUCE;
    }
}

static yoke_status queue(nccl_group *nccl, const nccl_request *request) {
    const yoke_communicator_call call = {.collective = collective_of(request->kind),
                                         .from = request->from,
                                         .to = request->to,
                                         .count = request->call.count,
                                         .element = request->call.element,
                                         .reduction = request->call.reduction,
                                         .root = request->call.root};
    yoke_watch_begin(&nccl->watch, request->kind);
    yoke_status status = yoke_communicator_take(nccl->communicator, &call);
    if (status != YOKE_OK) return nccl_break(nccl, status);
    return nccl_reach(nccl, YOKE_COMMUNICATOR_QUEUED);
}

yoke_status nccl_run(nccl_group *nccl, const nccl_request *request) {
    TRY(queue(nccl, request));
    return request->kind == CALL_START ? YOKE_OK : nccl_reach(nccl, YOKE_COMMUNICATOR_IDLE);
}

/* The stage. */

static yoke_status grow_stage(nccl_group *nccl, size_t bytes) {
    if (bytes <= nccl->stage_bytes) return YOKE_OK;
    yoke_device_free(nccl->device, nccl->stage);
    nccl->stage = NULL;
    nccl->stage_bytes = 0;
    TRY(yoke_device_allocate(nccl->device, bytes, "host memory on its way", &nccl->stage));
    nccl->stage_bytes = bytes;
    return YOKE_OK;
}

/* Whole buffers have a part for every rank. */
static size_t from_bytes(const nccl_group *nccl, const nccl_request *request) {
    bool whole = request->kind == CALL_REDUCE_SCATTER || request->kind == CALL_SCATTER;
    size_t part = request->call.count * yoke_element_bytes(request->call.element);
    return request->from == NULL ? 0 : whole ? part * (size_t)nccl->group.world : part;
}

static size_t to_bytes(const nccl_group *nccl, const nccl_request *request) {
    bool whole = request->kind == CALL_ALL_GATHER || request->kind == CALL_GATHER;
    size_t part = request->call.count * yoke_element_bytes(request->call.element);
    return request->to == NULL ? 0 : whole ? part * (size_t)nccl->group.world : part;
}

static yoke_status move_staged(nccl_group *nccl, const nccl_request *request) {
    size_t given = from_bytes(nccl, request), taken = to_bytes(nccl, request);
    size_t begin = (given + 255) / 256 * 256;
    TRY(grow_stage(nccl, begin + taken));
    nccl_request staged = *request;
    staged.from = nccl->stage;
    staged.to = (char *)nccl->stage + begin;
    const yoke_stream stream = YOKE_STREAM_COMMUNICATION;
    TRY(yoke_device_upload(nccl->device, stream, nccl->stage, request->from, given));
    TRY(nccl_run(nccl, &staged));
    return yoke_device_download(nccl->device, stream, request->to, staged.to, taken);
}

yoke_status nccl_run_staged(nccl_group *nccl, const nccl_request *request) {
    yoke_status status = move_staged(nccl, request);
    return status == YOKE_OK ? YOKE_OK : nccl_break(nccl, status);
}
