/* The process group of ranks with a GPU each. Gradients travel behind the host on the communication
 * stream; all else is agreed upon over the host's side first, because NCCL would hang where ranks
 * differ. */
#include "distributed/nccl_group.h"

#include <stdlib.h>

/* Agreement. */

typedef enum nccl_place { PLACE_NOWHERE, PLACE_HOST, PLACE_DEVICE, PLACE_MIXED } nccl_place;

/* What every rank tells of a call before it moves anything. */
enum {
    HEADER_KIND,
    HEADER_ELEMENT,
    HEADER_REDUCTION,
    HEADER_ROOT,
    HEADER_COUNT,
    HEADER_PLACE,
    HEADER_STARTED,
    HEADER_STARTED_ELEMENTS,
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

/* One rank beside rank 0; the calls themselves first. */
static yoke_status compare(const int64_t *first, const int64_t *other, int rank) {
    static const char *const places[] = {"no memory", "host memory", "device memory", "mixed"};
    const yoke_call left = call_in(first), right = call_in(other);
    TRY(yoke_call_compare(&left, &right, rank));
    if (other[HEADER_PLACE] == PLACE_MIXED)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "rank %d called %s with memory of two kinds: all is the rank's GPU's, or all "
                    "the host's",
                    rank, yoke_call_name(right.kind));
    if (first[HEADER_PLACE] != other[HEADER_PLACE])
        return FAIL(YOKE_ERROR_ARGUMENT, "rank 0 called %s with %s, rank %d with %s",
                    yoke_call_name(left.kind), places[first[HEADER_PLACE]], rank,
                    places[other[HEADER_PLACE]]);
    if (first[HEADER_STARTED] != other[HEADER_STARTED] ||
        first[HEADER_STARTED_ELEMENTS] != other[HEADER_STARTED_ELEMENTS])
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "rank 0 has started %lld all-reduces of %lld elements together, rank %d %lld "
                    "of %lld",
                    (long long)first[HEADER_STARTED], (long long)first[HEADER_STARTED_ELEMENTS],
                    rank, (long long)other[HEADER_STARTED],
                    (long long)other[HEADER_STARTED_ELEMENTS]);
    return YOKE_OK;
}

static yoke_status gather_headers(nccl_group *nccl, const int64_t *own, int64_t *all) {
    const yoke_reduce_call words = {
        .count = HEADER_WORDS, .element = YOKE_ELEMENT_INT64, .root = -1};
    if (nccl->group.host != NULL)
        return nccl->group.host->all_gather(nccl->group.host, all, own, &words);
    const nccl_request request = {.kind = CALL_ALL_GATHER, .call = words, .from = own, .to = all};
    return nccl_run_staged(nccl, &request);
}

static yoke_status agree_in(nccl_group *nccl, const nccl_request *request, int64_t *all) {
    const yoke_reduce_call *call = &request->call;
    const int64_t own[HEADER_WORDS] = {
        [HEADER_KIND] = request->kind,         [HEADER_ELEMENT] = call->element,
        [HEADER_REDUCTION] = call->reduction,  [HEADER_ROOT] = call->root,
        [HEADER_COUNT] = (int64_t)call->count, [HEADER_PLACE] = find_place(nccl, request),
        [HEADER_STARTED] = nccl->started,      [HEADER_STARTED_ELEMENTS] = nccl->started_elements,
    };
    TRY(gather_headers(nccl, own, all));
    for (int rank = 0; rank < nccl->group.world; rank++)
        TRY(compare(all, all + (size_t)rank * HEADER_WORDS, rank));
    return YOKE_OK;
}

/* Whether all ranks called the same, with memory of one place. */
static yoke_status agree(nccl_group *nccl, const nccl_request *request, nccl_place *place) {
    size_t bytes = (size_t)nccl->group.world * HEADER_WORDS * sizeof(int64_t);
    int64_t *all = malloc(bytes);
    if (all == NULL) return FAIL_MEMORY(bytes, "what all ranks called");
    yoke_status status = agree_in(nccl, request, all);
    if (status == YOKE_OK) *place = (nccl_place)all[HEADER_PLACE];
    free(all);
    return status;
}

/* Collectives. */

static yoke_status run_on_host(nccl_group *nccl, const nccl_request *request) {
    yoke_process_group *host = nccl->group.host;
    if (host == NULL) return nccl_run_staged(nccl, request);
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
    if (status != YOKE_OK) return nccl_break(nccl, status);
    if (request->call.count == 0) return YOKE_OK;
    return place == PLACE_DEVICE ? nccl_run(nccl, request) : run_on_host(nccl, request);
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
    if (status == YOKE_OK) status = yoke_plain_memory_add(&nccl->memory, bytes, memory);
    return status == YOKE_OK ? YOKE_OK : nccl_break(nccl, status);
}

/* All-reduces behind the host. No agreement before each: it would be a wait. The next call that
 * waits for the others tells how many there were. */

static yoke_status check_started(nccl_group *nccl, const float *buffer, size_t count) {
    bool owns = true;
    if (count > 0) TRY(yoke_device_owns(nccl->device, buffer, &owns));
    if (owns) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT,
                "rank %d started an all-reduce of %zu float32 of the host's memory: over NCCL it "
                "takes memory of %s",
                nccl->group.rank, count, yoke_device_name(nccl->device));
}

static yoke_status start(yoke_process_group *group, float *buffer, size_t count) {
    nccl_group *nccl = nccl_of(group);
    yoke_status status = check_started(nccl, buffer, count);
    if (status != YOKE_OK) return nccl_break(nccl, status);
    const nccl_request request = {
        .kind = CALL_START, .call = {.count = count, .root = -1}, .from = buffer, .to = buffer};
    nccl->started++;
    nccl->started_elements += (int64_t)count;
    return nccl_run(nccl, &request);
}

static yoke_status progress(yoke_process_group *group, bool wait) {
    nccl_group *nccl = nccl_of(group);
    bool queued;
    (void)wait; /* what was started is in the stream */
    yoke_status status =
        yoke_communicator_poll(nccl->communicator, YOKE_COMMUNICATOR_QUEUED, &queued);
    return status == YOKE_OK ? YOKE_OK : nccl_break(nccl, status);
}

static yoke_status synchronize(yoke_process_group *group) {
    nccl_group *nccl = nccl_of(group);
    yoke_watch_await(&nccl->watch, CALL_START, nccl->watch.operation);
    return nccl_reach(nccl, YOKE_COMMUNICATOR_IDLE);
}

/* Life. */

static void leave(yoke_process_group *group) {
    nccl_group *nccl = nccl_of(group);
    if (group->broken && nccl->communicator != NULL) yoke_communicator_abort(nccl->communicator);
    yoke_communicator_destroy(nccl->communicator);
    yoke_device_free(nccl->device, nccl->stage);
    if (nccl->group.host != NULL) {
        nccl->group.host->broken = group->broken;
        nccl->group.host->destroy(nccl->group.host);
    }
    yoke_plain_memory_free(nccl->memory);
    free(nccl);
}

static yoke_status open_host(nccl_group *nccl, const yoke_transport_request *request) {
    if (yoke_peers_elsewhere(request->peers, nccl->group.world) == 0)
        return yoke_shared_memory_group(&nccl->group.host, request);
    return yoke_mpi_launched(request->options->rank) ? yoke_mpi_group(&nccl->group.host, request)
                                                     : YOKE_OK;
}

static yoke_status abandon(yoke_process_group *group, yoke_status status) {
    nccl_group *nccl = nccl_of(group);
    if (nccl->group.host != NULL) status = nccl->group.host->abandon(nccl->group.host, status);
    return nccl_break(nccl, status);
}

static yoke_status build(nccl_group *nccl, const yoke_transport_request *request) {
    const yoke_process_group_options *options = request->options;
    nccl->group = (yoke_process_group){.transport = "nccl",
                                       .rank = options->rank->rank,
                                       .world = options->rank->world,
                                       .timeout_ms = options->timeout_ms,
                                       .barrier = barrier,
                                       .broadcast = broadcast,
                                       .reduce = reduce,
                                       .all_gather = all_gather,
                                       .reduce_scatter = reduce_scatter,
                                       .scatter = scatter,
                                       .allocate = allocate,
                                       .start = start,
                                       .progress = progress,
                                       .synchronize = synchronize,
                                       .abandon = abandon,
                                       .destroy = leave};
    nccl->watch = (yoke_watch){
        .name = "nccl", .group = &nccl->group, .store = request->store, .peers = request->peers};
    nccl->device = yoke_devices_at(options->devices, 0);
    TRY(open_host(nccl, request));
    return nccl_join(nccl, options->devices);
}

yoke_status yoke_nccl_group(yoke_process_group **group, const yoke_transport_request *request) {
    *group = NULL;
    nccl_group *nccl = calloc(1, sizeof *nccl);
    if (nccl == NULL) return FAIL_MEMORY(sizeof *nccl, "a process group");
    yoke_status status = build(nccl, request);
    if (status == YOKE_OK) {
        *group = &nccl->group;
        return YOKE_OK;
    }
    yoke_error error = yoke_error_take(status);
    leave(&nccl->group);
    return yoke_error_restore(&error);
}

yoke_status yoke_nccl_check(const yoke_process_group_options *options) {
    if (options->devices == NULL)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "a group over NCCL joins GPUs: options.devices is to hold this rank's one");
    int count = yoke_devices_count(options->devices);
    if (count != 1)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "options.devices holds %d devices: a group over NCCL takes this rank's one GPU",
                    count);
    return yoke_communicator_check(yoke_devices_at(options->devices, 0));
}
