/* Joins one GPU of this process with those of other ranks, by NCCL. The communicator is
 * non-blocking: only such a communicator can be aborted safely. */
#include "device/cuda/nccl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef YOKE_HAS_NCCL

typedef struct nccl_communicator {
    yoke_communicator base;
    yoke_device *device;
    int rank, world, timeout_ms;
    ncclComm_t communicator; /* NULL: aborted */
    const char *last;        /* the latest call, for poll's error message */
} nccl_communicator;

static nccl_communicator *nccl_of(yoke_communicator *communicator) {
    return (nccl_communicator *)communicator;
}

static void abort_communicator(yoke_communicator *base) {
    nccl_communicator *own = nccl_of(base);
    if (own->communicator != NULL) cuda_nccl()->ncclCommAbort(own->communicator);
    own->communicator = NULL;
    cudaGetLastError(); /* clears NCCL's CUDA error, which the next CUDA call would report */
}

static yoke_status fail_communicator(nccl_communicator *own, ncclResult_t result) {
    char cause[CUDA_NCCL_CAUSE_BYTES];
    cuda_nccl_cause(result, own->timeout_ms, cause);
    abort_communicator(&own->base);
    return FAIL(YOKE_ERROR_DEVICE, "rank %d: NCCL on %s: %s: %s; set NCCL_DEBUG=INFO for details",
                own->rank, own->device->name, own->last, cause);
}

static yoke_status check_alive(const nccl_communicator *own, const char *call) {
    if (own->communicator != NULL) return YOKE_OK;
    return FAIL(YOKE_ERROR_DEVICE, "rank %d: NCCL on %s: %s: aborted after an earlier failure",
                own->rank, own->device->name, call);
}

/* Collectives. */

static ncclDataType_t type_of(yoke_element element) {
    static const ncclDataType_t types[] = {[YOKE_ELEMENT_FLOAT32] = ncclFloat,
                                           [YOKE_ELEMENT_BFLOAT16] = ncclBfloat16,
                                           [YOKE_ELEMENT_INT64] = ncclInt64,
                                           [YOKE_ELEMENT_FLOAT64] = ncclFloat64};
    return types[element];
}

static ncclRedOp_t operation_of(yoke_reduction reduction) {
    static const ncclRedOp_t operations[] = {
        [YOKE_SUM] = ncclSum, [YOKE_MEAN] = ncclAvg, [YOKE_MIN] = ncclMin, [YOKE_MAX] = ncclMax};
    return operations[reduction];
}

/* The root sends to itself as well, so that all parts are treated alike. */
static ncclResult_t gather_parts(nccl_communicator *own, const yoke_communicator_call *call,
                                 cudaStream_t stream) {
    const cuda_nccl_calls *nccl = cuda_nccl();
    size_t part = call->count * yoke_element_bytes(call->element);
    ncclResult_t result = nccl->ncclSend(call->from, call->count, type_of(call->element),
                                         call->root, own->communicator, stream);
    if (own->rank != call->root) return result;
    for (int rank = 0; rank < own->world && !cuda_nccl_is_failure(result); rank++)
        result = nccl->ncclRecv((char *)call->to + (size_t)rank * part, call->count,
                                type_of(call->element), rank, own->communicator, stream);
    return result;
}

static ncclResult_t scatter_parts(nccl_communicator *own, const yoke_communicator_call *call,
                                  cudaStream_t stream) {
    const cuda_nccl_calls *nccl = cuda_nccl();
    size_t part = call->count * yoke_element_bytes(call->element);
    ncclResult_t result = nccl->ncclRecv(call->to, call->count, type_of(call->element), call->root,
                                         own->communicator, stream);
    if (own->rank != call->root) return result;
    for (int rank = 0; rank < own->world && !cuda_nccl_is_failure(result); rank++)
        result = nccl->ncclSend((const char *)call->from + (size_t)rank * part, call->count,
                                type_of(call->element), rank, own->communicator, stream);
    return result;
}

typedef ncclResult_t (*move_parts)(nccl_communicator *own, const yoke_communicator_call *call,
                                   cudaStream_t stream);

static ncclResult_t as_one(nccl_communicator *own, const yoke_communicator_call *call,
                           cudaStream_t stream, move_parts move) {
    ncclResult_t result = cuda_nccl()->ncclGroupStart();
    if (result != ncclSuccess) return result;
    result = move(own, call, stream);
    ncclResult_t ended = cuda_nccl()->ncclGroupEnd();
    return cuda_nccl_is_failure(result) ? result : ended;
}

static ncclResult_t issue(nccl_communicator *own, const yoke_communicator_call *call) {
    const cuda_nccl_calls *nccl = cuda_nccl();
    ncclDataType_t type = type_of(call->element);
    ncclRedOp_t operation = operation_of(call->reduction);
    cudaStream_t stream = cuda_nccl_stream(own->device);
    switch (call->collective) {
    case YOKE_COLLECTIVE_BROADCAST:
        own->last = "ncclBroadcast";
        return nccl->ncclBroadcast(call->from, call->to, call->count, type, call->root,
                                   own->communicator, stream);
    case YOKE_COLLECTIVE_REDUCE:
        own->last = "ncclReduce";
        return nccl->ncclReduce(call->from, call->to, call->count, type, operation, call->root,
                                own->communicator, stream);
    case YOKE_COLLECTIVE_ALL_REDUCE:
        own->last = "ncclAllReduce";
        return nccl->ncclAllReduce(call->from, call->to, call->count, type, operation,
                                   own->communicator, stream);
    case YOKE_COLLECTIVE_ALL_GATHER:
        own->last = "ncclAllGather";
        return nccl->ncclAllGather(call->from, call->to, call->count, type, own->communicator,
                                   stream);
    case YOKE_COLLECTIVE_REDUCE_SCATTER:
        own->last = "ncclReduceScatter";
        return nccl->ncclReduceScatter(call->from, call->to, call->count, type, operation,
                                       own->communicator, stream);
    case YOKE_COLLECTIVE_GATHER:
        own->last = "gather by ncclSend and ncclRecv";
        return as_one(own, call, stream, gather_parts);
    case YOKE_COLLECTIVE_SCATTER:
        own->last = "scatter by ncclSend and ncclRecv";
        return as_one(own, call, stream, scatter_parts);
    }
    return ncclInvalidArgument;
}

static yoke_status take(yoke_communicator *base, const yoke_communicator_call *call) {
    nccl_communicator *own = nccl_of(base);
    TRY(check_alive(own, "a collective"));
    TRY(cuda_use(own->device));
    ncclResult_t result = issue(own, call);
    return cuda_nccl_is_failure(result) ? fail_communicator(own, result) : YOKE_OK;
}

static yoke_status query_stream(cuda_device *device, bool *idle) {
    cudaError_t error = cudaStreamQuery(device->streams[YOKE_STREAM_COMMUNICATION]);
    *idle = error == cudaSuccess;
    if (error == cudaErrorNotReady)
        cudaGetLastError(); /* not ready is no failure */
    else
        TRY_CUDA(device, error);
    return YOKE_OK;
}

static yoke_status poll(yoke_communicator *base, yoke_communicator_stage wanted, bool *reached) {
    nccl_communicator *own = nccl_of(base);
    *reached = false;
    TRY(check_alive(own, own->last));
    ncclResult_t state = cuda_nccl_state(own->communicator);
    if (cuda_nccl_is_failure(state)) return fail_communicator(own, state);
    *reached = state == ncclSuccess;
    if (!*reached || wanted == YOKE_COMMUNICATOR_QUEUED) return YOKE_OK;
    return query_stream(cuda_of(own->device), reached);
}

/* Life. */

static void destroy(yoke_communicator *base) {
    nccl_communicator *own = nccl_of(base);
    if (own->communicator != NULL) {
        ncclResult_t result = cuda_nccl()->ncclCommFinalize(own->communicator);
        if (!cuda_nccl_is_failure(result))
            result = cuda_nccl_settle(own->communicator, cuda_nccl_deadline(own->timeout_ms));
        if (result != ncclSuccess) abort_communicator(base);
    }
    if (own->communicator != NULL) cuda_nccl()->ncclCommDestroy(own->communicator);
    free(own);
}

static yoke_status build(nccl_communicator *own, const yoke_communicator_request *request) {
    own->device = request->device;
    own->rank = request->rank;
    own->world = request->world;
    own->timeout_ms = request->timeout_ms > 0 ? request->timeout_ms : CUDA_NCCL_TIMEOUT_MS;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    config.blocking = 0;
    memcpy(&id, request->id, sizeof id);
    own->last = "ncclGetVersion";
    ncclResult_t result = cuda_nccl_name(own->base.name, sizeof own->base.name);
    if (result != ncclSuccess) return fail_communicator(own, result);
    own->last = "ncclCommInitRankConfig";
    TRY(cuda_use(own->device));
    result =
        cuda_nccl()->ncclCommInitRankConfig(&own->communicator, own->world, id, own->rank, &config);
    return cuda_nccl_is_failure(result) ? fail_communicator(own, result) : YOKE_OK;
}

yoke_status cuda_communicator(yoke_communicator **communicator,
                              const yoke_communicator_request *request) {
    nccl_communicator *created = calloc(1, sizeof *created);
    if (created == NULL) return FAIL_MEMORY(sizeof *created, "a communicator");
    created->base = (yoke_communicator){
        .take = take, .poll = poll, .abort = abort_communicator, .destroy = destroy};
    yoke_status status = build(created, request);
    if (status == YOKE_OK)
        *communicator = &created->base;
    else
        destroy(&created->base);
    return status;
}

yoke_status cuda_communicator_id(yoke_device *device, uint8_t *id) {
    ncclUniqueId own;
    _Static_assert(sizeof own == YOKE_COMMUNICATOR_ID_BYTES, "an id holds NCCL's");
    char cause[CUDA_NCCL_CAUSE_BYTES];
    TRY(cuda_use(device));
    ncclResult_t result = cuda_nccl()->ncclGetUniqueId(&own);
    if (result != ncclSuccess)
        return FAIL(YOKE_ERROR_DEVICE, "NCCL on %s: ncclGetUniqueId: %s", device->name,
                    cuda_nccl_cause(result, 0, cause));
    memcpy(id, &own, sizeof own);
    return YOKE_OK;
}

yoke_status cuda_communicator_check(void) {
    if (cuda_nccl() != NULL) return YOKE_OK;
    return FAIL(YOKE_ERROR_DEVICE, "ranks with GPUs need NCCL: %s", cuda_library_detail("nccl"));
}

#else

yoke_status cuda_communicator(yoke_communicator **communicator,
                              const yoke_communicator_request *request) {
    (void)communicator, (void)request;
    return cuda_communicator_check();
}

yoke_status cuda_communicator_id(yoke_device *device, uint8_t *id) {
    (void)device, (void)id;
    return cuda_communicator_check();
}

yoke_status cuda_communicator_check(void) {
    return FAIL(YOKE_ERROR_DEVICE, "ranks with GPUs need NCCL, which this build does not have: "
                                   "configure it with NCCL_ROOT set to where it is");
}

#endif
