/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives over NCCL. Buckets travel on the communication stream while the host goes on; for any
 * other call the ranks first compare what they call, because NCCL would hang where they differ.
 * Where ranks have no host group, host memory passes through the stage: device memory that grows
 * with what it carries. */
#include <stdlib.h>

#include "distributed/nccl/nccl_group.h"

/* One collective, as its caller requested it. */
typedef struct nccl_request {
    yoke_call_kind kind;
    yoke_reduce_call call;
    const void *from; /* NULL: this rank sends nothing */
    void *to;         /* NULL: this rank receives nothing */
} nccl_request;

/* Calls of the communicator, and waits for it. */

yoke_status nccl_fail(nccl_group *nccl, yoke_status status) {
    yoke_error error = yoke_error_take(status);
    if (nccl->communicator != NULL) yoke_communicator_abort(nccl->communicator);
    return yoke_watchdog_fail(&nccl->watchdog, yoke_error_restore(&error));
}

/* Waits until the communication stream has run all its work. */
static yoke_status wait_idle(nccl_group *nccl) {
    for (;;) {
        bool idle;
        yoke_status status = yoke_communicator_is_idle(nccl->communicator, &idle);
        if (status == YOKE_OK && idle) return YOKE_OK;
        if (status == YOKE_OK) status = yoke_watchdog_wait(&nccl->watchdog);
        if (status != YOKE_OK) return nccl_fail(nccl, status);
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

static yoke_status run_on_device(nccl_group *nccl, const nccl_request *request) {
    const yoke_communicator_call call = {.collective = collective_of(request->kind),
                                         .from = request->from,
                                         .to = request->to,
                                         .count = request->call.count,
                                         .element = request->call.element,
                                         .reduction = request->call.reduction,
                                         .root = request->call.root};
    yoke_watchdog_begin(&nccl->watchdog, request->kind);
    yoke_status status = yoke_communicator_take(nccl->communicator, &call);
    if (status != YOKE_OK) return nccl_fail(nccl, status);
    return request->kind == CALL_ALL_REDUCE_ASYNC ? YOKE_OK : wait_idle(nccl);
}

/* Host memory through the stage. */

static yoke_status grow_stage(nccl_group *nccl, size_t bytes) {
    if (bytes <= nccl->stage_bytes) return YOKE_OK;
    yoke_device_free(nccl->device, nccl->stage);
    nccl->stage = NULL;
    nccl->stage_bytes = 0;
    TRY(yoke_device_allocate(nccl->device, bytes, "the stage of host memory", &nccl->stage));
    nccl->stage_bytes = bytes;
    return YOKE_OK;
}

/* A whole buffer has one part per rank. */
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
    TRY(run_on_device(nccl, &staged));
    return yoke_device_download(nccl->device, stream, request->to, staged.to, taken);
}

static yoke_status run_staged(nccl_group *nccl, const nccl_request *request) {
    yoke_status status = move_staged(nccl, request);
    return status == YOKE_OK ? YOKE_OK : nccl_fail(nccl, status);
}

/* Comparison of calls. */

typedef enum nccl_place { PLACE_NOWHERE, PLACE_HOST, PLACE_DEVICE, PLACE_MIXED } nccl_place;

/* The words of a call that the ranks exchange. */
enum {
    HEADER_KIND,
    HEADER_ELEMENT,
    HEADER_REDUCTION,
    HEADER_ROOT,
    HEADER_COUNT,
    HEADER_PLACE,
    HEADER_ASYNC_CALLS,
    HEADER_ASYNC_ELEMENTS,
    HEADER_WORDS
};

static yoke_status place_one(nccl_group *nccl, const void *pointer, nccl_place *place) {
    bool owns;
    if (pointer == NULL) return YOKE_OK;
    TRY(yoke_device_owns(nccl->device, pointer, &owns));
    nccl_place found = owns ? PLACE_DEVICE : PLACE_HOST;
    *place = *place == PLACE_NOWHERE || *place == found ? found : PLACE_MIXED;
    return YOKE_OK;
}

static nccl_place find_place(nccl_group *nccl, const nccl_request *request) {
    nccl_place place = PLACE_NOWHERE;
    if (request->call.count == 0) return place;
    if (place_one(nccl, request->from, &place) != YOKE_OK ||
        place_one(nccl, request->to, &place) != YOKE_OK)
        return PLACE_MIXED;
    return place;
}

static yoke_call call_in(const int64_t *header) {
    return (yoke_call){.kind = (yoke_call_kind)header[HEADER_KIND],
                       .element = (yoke_element)header[HEADER_ELEMENT],
                       .reduction = (yoke_reduction)header[HEADER_REDUCTION],
                       .root = (int)header[HEADER_ROOT],
                       .count = (uint64_t)header[HEADER_COUNT]};
}

/* Compares a rank with rank 0. */
static yoke_status compare(const int64_t *first, const int64_t *other, int rank) {
    static const char *const places[] = {"no memory", "host memory", "device memory", "mixed"};
    const yoke_call left = call_in(first), right = call_in(other);
    TRY(yoke_call_compare(&left, &right, rank));
    if (other[HEADER_PLACE] == PLACE_MIXED)
        return FAIL(
            YOKE_ERROR_ARGUMENT,
            "rank %d called %s with memory of two kinds: pass GPU memory or host memory, not "
            "both",
            rank, yoke_call_name(right.kind));
    if (first[HEADER_PLACE] != other[HEADER_PLACE])
        return FAIL(YOKE_ERROR_ARGUMENT, "rank 0 called %s with %s, rank %d with %s",
                    yoke_call_name(left.kind), places[first[HEADER_PLACE]], rank,
                    places[other[HEADER_PLACE]]);
    if (first[HEADER_ASYNC_CALLS] != other[HEADER_ASYNC_CALLS] ||
        first[HEADER_ASYNC_ELEMENTS] != other[HEADER_ASYNC_ELEMENTS])
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "rank 0 made %lld calls of all_reduce_async with %lld elements in all, rank %d "
                    "%lld calls with %lld",
                    (long long)first[HEADER_ASYNC_CALLS], (long long)first[HEADER_ASYNC_ELEMENTS],
                    rank, (long long)other[HEADER_ASYNC_CALLS],
                    (long long)other[HEADER_ASYNC_ELEMENTS]);
    return YOKE_OK;
}

static yoke_status gather_headers(nccl_group *nccl, const int64_t *own, int64_t *all) {
    const yoke_reduce_call words = {
        .count = HEADER_WORDS, .element = YOKE_ELEMENT_INT64, .root = -1};
    if (nccl->group.host != NULL)
        return nccl->group.host->all_gather(nccl->group.host, all, own, &words);
    const nccl_request request = {.kind = CALL_ALL_GATHER, .call = words, .from = own, .to = all};
    return run_staged(nccl, &request);
}

static yoke_status compare_all(nccl_group *nccl, const nccl_request *request, int64_t *all) {
    const yoke_reduce_call *call = &request->call;
    const int64_t own[HEADER_WORDS] = {
        [HEADER_KIND] = request->kind,
        [HEADER_ELEMENT] = call->element,
        [HEADER_REDUCTION] = call->reduction,
        [HEADER_ROOT] = call->root,
        [HEADER_COUNT] = (int64_t)call->count,
        [HEADER_PLACE] = find_place(nccl, request),
        [HEADER_ASYNC_CALLS] = nccl->async_calls,
        [HEADER_ASYNC_ELEMENTS] = nccl->async_elements,
    };
    TRY(gather_headers(nccl, own, all));
    for (int rank = 0; rank < nccl->group.world; rank++)
        TRY(compare(all, all + (size_t)rank * HEADER_WORDS, rank));
    return YOKE_OK;
}

/* ARGUMENT on every rank unless all made the same call with memory of the same place. */
static yoke_status agree(nccl_group *nccl, const nccl_request *request, nccl_place *place) {
    size_t bytes = (size_t)nccl->group.world * HEADER_WORDS * sizeof(int64_t);
    int64_t *all = yoke_malloc(bytes);
    if (all == NULL) return FAIL_MEMORY(bytes, "the calls of all ranks");
    yoke_status status = compare_all(nccl, request, all);
    if (status == YOKE_OK) *place = (nccl_place)all[HEADER_PLACE];
    yoke_free(all);
    return status;
}

/* Collectives. */

static yoke_status run_on_host(nccl_group *nccl, const nccl_request *request) {
    yoke_process_group *host = nccl->group.host;
    if (host == NULL) return run_staged(nccl, request);
    switch (request->kind) {
    case CALL_BROADCAST:
        return host->broadcast(host, request->to, &request->call);
    case CALL_REDUCE:
    case CALL_ALL_REDUCE:
        return host->reduce(host, (void *)request->from, &request->call);
    case CALL_REDUCE_SCATTER:
        return host->reduce_scatter(host, request->to, request->from, &request->call);
    case CALL_SCATTER:
        return host->scatter(host, request->to, request->from, &request->call);
    default:
        return host->all_gather(host, request->to, request->from, &request->call);
    }
}

static yoke_status collect(nccl_group *nccl, const nccl_request *request) {
    nccl_place place = PLACE_NOWHERE;
    yoke_status status = agree(nccl, request, &place);
    if (status != YOKE_OK) return nccl_fail(nccl, status);
    if (request->call.count == 0) return YOKE_OK;
    return place == PLACE_DEVICE ? run_on_device(nccl, request) : run_on_host(nccl, request);
}

static yoke_status barrier(yoke_process_group *group) {
    const nccl_request request = {.kind = CALL_BARRIER, .call = {.root = -1}};
    return collect(nccl_of(group), &request);
}

static yoke_status broadcast(yoke_process_group *group, void *buffer,
                             const yoke_reduce_call *call) {
    const nccl_request request = {
        .kind = CALL_BROADCAST, .call = *call, .from = buffer, .to = buffer};
    return collect(nccl_of(group), &request);
}

static yoke_status reduce(yoke_process_group *group, void *buffer, const yoke_reduce_call *call) {
    bool takes = call->root < 0 || call->root == group->rank;
    const nccl_request request = {.kind = call->root < 0 ? CALL_ALL_REDUCE : CALL_REDUCE,
                                  .call = *call,
                                  .from = buffer,
                                  .to = takes ? buffer : NULL};
    return collect(nccl_of(group), &request);
}

static yoke_status all_gather(yoke_process_group *group, void *to, const void *from,
                              const yoke_reduce_call *call) {
    bool takes = call->root < 0 || call->root == group->rank;
    const nccl_request request = {.kind = call->root < 0 ? CALL_ALL_GATHER : CALL_GATHER,
                                  .call = *call,
                                  .from = from,
                                  .to = takes ? to : NULL};
    return collect(nccl_of(group), &request);
}

static yoke_status reduce_scatter(yoke_process_group *group, void *to, const void *from,
                                  const yoke_reduce_call *call) {
    const nccl_request request = {
        .kind = CALL_REDUCE_SCATTER, .call = *call, .from = from, .to = to};
    return collect(nccl_of(group), &request);
}

static yoke_status scatter(yoke_process_group *group, void *to, const void *from,
                           const yoke_reduce_call *call) {
    const nccl_request request = {.kind = CALL_SCATTER,
                                  .call = *call,
                                  .from = call->root == group->rank ? from : NULL,
                                  .to = to};
    return collect(nccl_of(group), &request);
}

static yoke_status allocate(yoke_process_group *group, size_t bytes, void **memory) {
    nccl_group *nccl = nccl_of(group);
    if (nccl->group.host != NULL)
        return nccl->group.host->allocate(nccl->group.host, bytes, memory);
    const nccl_request request = {.kind = CALL_ALLOCATE, .call = {.count = bytes, .root = -1}};
    nccl_place place;
    yoke_status status = agree(nccl, &request, &place);
    if (status == YOKE_OK) status = yoke_private_memory_add(&nccl->memory, bytes, memory);
    return status == YOKE_OK ? YOKE_OK : nccl_fail(nccl, status);
}

/* Asynchronous all-reduces. The ranks do not compare each one, because that would be a wait; the
 * next blocking call compares how many there were. */

static yoke_status check_device_memory(nccl_group *nccl, const float *buffer, size_t count) {
    bool owns = true;
    if (count > 0) TRY(yoke_device_owns(nccl->device, buffer, &owns));
    if (owns) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT,
                "rank %d called all_reduce_async on %zu float32 of host memory: over NCCL it takes "
                "memory of %s",
                nccl->group.rank, count, yoke_device_name(nccl->device));
}

static yoke_status all_reduce_async(yoke_process_group *group, float *buffer, size_t count,
                                    const yoke_rank_blocks *blocks) {
    (void)blocks;
    nccl_group *nccl = nccl_of(group);
    yoke_status status = check_device_memory(nccl, buffer, count);
    if (status != YOKE_OK) return nccl_fail(nccl, status);
    const nccl_request request = {.kind = CALL_ALL_REDUCE_ASYNC,
                                  .call = {.count = count, .root = -1},
                                  .from = buffer,
                                  .to = buffer};
    nccl->async_calls++;
    nccl->async_elements += (int64_t)count;
    return run_on_device(nccl, &request);
}

/* The stream has the calls, and the host does not wait for it. */
static yoke_status progress(yoke_process_group *group, bool wait) {
    (void)group, (void)wait;
    return YOKE_OK;
}

static yoke_status synchronize(yoke_process_group *group) {
    nccl_group *nccl = nccl_of(group);
    yoke_watchdog_await(&nccl->watchdog, CALL_ALL_REDUCE_ASYNC, nccl->watchdog.operation);
    return wait_idle(nccl);
}

static void expect(yoke_process_group *group, void *memory, size_t bytes) {
    yoke_communicator_register(nccl_of(group)->communicator, memory, bytes);
}

static void forget(yoke_process_group *group, void *memory) {
    yoke_communicator_forget(nccl_of(group)->communicator, memory);
}

void nccl_set_collectives(yoke_process_group *group) {
    group->barrier = barrier;
    group->broadcast = broadcast;
    group->reduce = reduce;
    group->all_gather = all_gather;
    group->reduce_scatter = reduce_scatter;
    group->scatter = scatter;
    group->allocate = allocate;
    group->all_reduce_async = all_reduce_async;
    group->progress = progress;
    group->synchronize = synchronize;
    group->expect = expect;
    group->forget = forget;
}
