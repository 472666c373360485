/* SPDX-License-Identifier: Apache-2.0 */
/* Joins one GPU of this process with those of other ranks, by NCCL. */
#include "device/cuda/nccl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef YOKE_HAS_NCCL

enum { REGISTERED = 8 }; /* buffers at a time */

typedef struct nccl_communicator {
    yoke_communicator base;
    yoke_device *device;
    int rank, world;
    const char *last; /* the latest call, for error messages */
    struct {
        void *buffer, *handle; /* buffer NULL: free */
    } registered[REGISTERED];
    cuda_nccl_watchdog watchdog;
} nccl_communicator;

static nccl_communicator *nccl_of(yoke_communicator *communicator) {
    return (nccl_communicator *)communicator;
}

/* NULL: aborted. */
static ncclComm_t handle_of(const nccl_communicator *own) {
    return own->watchdog.communicators[0];
}

static void abort_communicator(yoke_communicator *base) {
    nccl_communicator *own = nccl_of(base);
    if (handle_of(own) != NULL) cuda_nccl_abort(&own->watchdog);
}

/* The error that check returned is the cause; NCCL reports the abort that follows it. */
static yoke_status fail_communicator(nccl_communicator *own, ncclResult_t result) {
    char cause[CUDA_NCCL_CAUSE_BYTES];
    cuda_nccl_cause(&own->watchdog, result, cause);
    cuda_nccl_abort(&own->watchdog);
    if (own->watchdog.error.status != YOKE_OK) return yoke_error_restore(&own->watchdog.error);
    return FAIL(YOKE_ERROR_DEVICE, "rank %d: NCCL on %s: %s: %s; set NCCL_DEBUG=INFO for details",
                own->rank, own->device->name, own->last, cause);
}

static yoke_status check_alive(const nccl_communicator *own, const char *call) {
    if (handle_of(own) != NULL) return YOKE_OK;
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

/* The root sends to itself as well, so that all parts are treated alike. */
static ncclResult_t gather_parts(nccl_communicator *own, const yoke_communicator_call *call,
                                 cudaStream_t stream) {
    const cuda_nccl_calls *nccl = cuda_nccl();
    size_t part = call->count * yoke_element_bytes(call->element);
    ncclResult_t result = nccl->ncclSend(call->from, call->count, type_of(call->element),
                                         call->root, handle_of(own), stream);
    if (own->rank != call->root) return result;
    for (int rank = 0; rank < own->world && result == ncclSuccess; rank++)
        result = nccl->ncclRecv((char *)call->to + (size_t)rank * part, call->count,
                                type_of(call->element), rank, handle_of(own), stream);
    return result;
}

static ncclResult_t scatter_parts(nccl_communicator *own, const yoke_communicator_call *call,
                                  cudaStream_t stream) {
    const cuda_nccl_calls *nccl = cuda_nccl();
    size_t part = call->count * yoke_element_bytes(call->element);
    ncclResult_t result = nccl->ncclRecv(call->to, call->count, type_of(call->element), call->root,
                                         handle_of(own), stream);
    if (own->rank != call->root) return result;
    for (int rank = 0; rank < own->world && result == ncclSuccess; rank++)
        result = nccl->ncclSend((const char *)call->from + (size_t)rank * part, call->count,
                                type_of(call->element), rank, handle_of(own), stream);
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
    return result == ncclSuccess ? ended : result;
}

static ncclResult_t issue(nccl_communicator *own, const yoke_communicator_call *call) {
    static const ncclRedOp_t operations[] = {
        [YOKE_SUM] = ncclSum, [YOKE_MEAN] = ncclAvg, [YOKE_MIN] = ncclMin, [YOKE_MAX] = ncclMax};
    const cuda_nccl_calls *nccl = cuda_nccl();
    ncclDataType_t type = type_of(call->element);
    ncclRedOp_t operation = operations[call->reduction];
    cudaStream_t stream = cuda_nccl_stream(own->device);
    switch (call->collective) {
    case YOKE_COLLECTIVE_BROADCAST:
        own->last = "ncclBroadcast";
        return nccl->ncclBroadcast(call->from, call->to, call->count, type, call->root,
                                   handle_of(own), stream);
    case YOKE_COLLECTIVE_REDUCE:
        own->last = "ncclReduce";
        return nccl->ncclReduce(call->from, call->to, call->count, type, operation, call->root,
                                handle_of(own), stream);
    case YOKE_COLLECTIVE_ALL_REDUCE:
        own->last = "ncclAllReduce";
        return nccl->ncclAllReduce(call->from, call->to, call->count, type, operation,
                                   handle_of(own), stream);
    case YOKE_COLLECTIVE_ALL_GATHER:
        own->last = "ncclAllGather";
        return nccl->ncclAllGather(call->from, call->to, call->count, type, handle_of(own), stream);
    case YOKE_COLLECTIVE_REDUCE_SCATTER:
        own->last = "ncclReduceScatter";
        return nccl->ncclReduceScatter(call->from, call->to, call->count, type, operation,
                                       handle_of(own), stream);
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
    int before = 0;
    TRY(check_alive(own, "a collective"));
    TRY(cuda_visit(own->device, &before));
    cuda_nccl_enter(&own->watchdog);
    ncclResult_t result = cuda_nccl_leave(&own->watchdog, issue(own, call));
    cuda_return_to(before);
    return result == ncclSuccess ? YOKE_OK : fail_communicator(own, result);
}

/* NCCL reports here what failed after a call had queued it. */
static ncclResult_t find_failure(const nccl_communicator *own) {
    ncclResult_t state = ncclSuccess;
    ncclResult_t asked = cuda_nccl()->ncclCommGetAsyncError(handle_of(own), &state);
    return asked == ncclSuccess ? state : asked;
}

static yoke_status is_idle(yoke_communicator *base, bool *idle) {
    nccl_communicator *own = nccl_of(base);
    *idle = false;
    TRY(check_alive(own, own->last));
    ncclResult_t failure = find_failure(own);
    if (failure != ncclSuccess) return fail_communicator(own, failure);
    cudaError_t error = cudaStreamQuery(cuda_nccl_stream(own->device));
    *idle = error == cudaSuccess;
    if (error == cudaErrorNotReady)
        cudaGetLastError(); /* not ready is no failure */
    else
        TRY_CUDA(cuda_of(own->device), error);
    return YOKE_OK;
}

/* Buffers. Registration fails alone: a buffer that NCCL does not know works as well. Handles are
 * given back while the GPU is current. */

static void register_buffer(yoke_communicator *base, void *buffer, size_t bytes) {
    nccl_communicator *own = nccl_of(base);
    int before = 0, i = 0;
    while (i < REGISTERED && own->registered[i].buffer != NULL)
        i++;
    if (i == REGISTERED || handle_of(own) == NULL) return;
    if (cuda_visit(own->device, &before) != YOKE_OK) return;
    if (cuda_nccl()->ncclCommRegister(handle_of(own), buffer, bytes, &own->registered[i].handle) ==
        ncclSuccess)
        own->registered[i].buffer = buffer;
    cuda_return_to(before);
}

/* An abort has given them back. */
static void forget_at(nccl_communicator *own, int i) {
    int before = cuda_current();
    cuda_return_to(cuda_of(own->device)->ordinal);
    if (handle_of(own) != NULL)
        cuda_nccl()->ncclCommDeregister(handle_of(own), own->registered[i].handle);
    own->registered[i].buffer = NULL;
    cuda_return_to(before);
}

static void forget_buffer(yoke_communicator *base, void *buffer) {
    nccl_communicator *own = nccl_of(base);
    for (int i = 0; i < REGISTERED; i++)
        if (buffer != NULL && own->registered[i].buffer == buffer) forget_at(own, i);
}

/* Life. */

static ncclResult_t finalize(nccl_communicator *own) {
    own->watchdog.check = NULL; /* its context may be gone */
    cuda_nccl_enter(&own->watchdog);
    return cuda_nccl_leave(&own->watchdog, cuda_nccl()->ncclCommFinalize(handle_of(own)));
}

static void communicator_destroy(yoke_communicator *base) {
    nccl_communicator *own = nccl_of(base);
    for (int i = 0; i < REGISTERED; i++)
        if (own->registered[i].buffer != NULL) forget_at(own, i);
    if (handle_of(own) != NULL && finalize(own) != ncclSuccess) abort_communicator(base);
    if (handle_of(own) != NULL) cuda_nccl()->ncclCommDestroy(handle_of(own));
    cuda_nccl_watchdog_stop(&own->watchdog);
    yoke_free(own);
}

/* In a group, because the communicator's handle is then known before the call that waits: the
 * watchdog needs it to abort. */
static ncclResult_t join_ranks(nccl_communicator *own, const ncclUniqueId *id) {
    const cuda_nccl_calls *nccl = cuda_nccl();
    ncclResult_t result = nccl->ncclGroupStart();
    if (result != ncclSuccess) return result;
    result = nccl->ncclCommInitRank(&own->watchdog.communicators[0], own->world, *id, own->rank);
    cuda_nccl_enter(&own->watchdog);
    ncclResult_t ended = cuda_nccl_leave(&own->watchdog, nccl->ncclGroupEnd());
    return result == ncclSuccess ? ended : result;
}

static yoke_status communicator_build(nccl_communicator *own,
                                      const yoke_communicator_request *request) {
    own->device = request->device;
    own->rank = request->rank;
    own->world = request->world;
    own->watchdog.count = 1;
    own->watchdog.ordinal = cuda_of(request->device)->ordinal;
    own->watchdog.check = request->check;
    own->watchdog.context = request->context;
    own->watchdog.timeout_ms = request->timeout_ms > 0 ? request->timeout_ms : CUDA_NCCL_TIMEOUT_MS;
    ncclUniqueId id;
    memcpy(&id, request->id, sizeof id);
    TRY(cuda_nccl_watchdog_start(&own->watchdog));
    own->last = "ncclGetVersion";
    ncclResult_t result = cuda_nccl_name(own->base.name, sizeof own->base.name);
    if (result != ncclSuccess) return fail_communicator(own, result);
    own->last = "ncclCommInitRank";
    int before = 0;
    TRY(cuda_visit(own->device, &before));
    result = join_ranks(own, &id);
    cuda_return_to(before);
    return result == ncclSuccess ? YOKE_OK : fail_communicator(own, result);
}

yoke_status cuda_communicator(yoke_communicator **communicator,
                              const yoke_communicator_request *request) {
    nccl_communicator *created = yoke_calloc(1, sizeof *created);
    if (created == NULL) return FAIL_MEMORY(sizeof *created, "a communicator");
    created->base = (yoke_communicator){.take = take,
                                        .is_idle = is_idle,
                                        .register_buffer = register_buffer,
                                        .forget_buffer = forget_buffer,
                                        .abort = abort_communicator,
                                        .destroy = communicator_destroy};
    yoke_status status = communicator_build(created, request);
    if (status == YOKE_OK)
        *communicator = &created->base;
    else
        communicator_destroy(&created->base);
    return status;
}

yoke_status cuda_communicator_id(yoke_device *device, uint8_t *id) {
    ncclUniqueId own;
    _Static_assert(sizeof own == YOKE_COMMUNICATOR_ID_BYTES, "an id holds NCCL's");
    int before = 0;
    TRY(cuda_visit(device, &before));
    ncclResult_t result = cuda_nccl()->ncclGetUniqueId(&own);
    cuda_return_to(before);
    if (result != ncclSuccess)
        return FAIL(YOKE_ERROR_DEVICE, "NCCL on %s: ncclGetUniqueId: %s", device->name,
                    cuda_nccl()->ncclGetErrorString(result));
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
