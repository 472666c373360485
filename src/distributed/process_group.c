/* SPDX-License-Identifier: Apache-2.0 */
/* How ranks become a group: store, rendezvous, transport. The transport does the work; this file
 * checks its arguments, and a group that failed once returns that failure from every later call. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/device.h"
#include "distributed/membership.h"
#include "distributed/transports.h"

#define TIMEOUT_MS 60000

/* The engine indexes arrays of YOKE_DEVICES_LIMIT by the ranks of yoke_process_group_peers. */
_Static_assert(YOKE_PEERS_LIMIT <= YOKE_DEVICES_LIMIT, "a rank is at most a device index");
_Static_assert(YOKE_PEERS_LIMIT <= YOKE_AGREE_RANKS, "every such group can agree");

static yoke_status open_store(yoke_store **store, const yoke_process_group_options *options) {
    yoke_store_place place;
    TRY(yoke_store_place_choose(&place, options));
    const yoke_store_options wanted = {.address = place.address,
                                       .serve = options->rank->rank == 0,
                                       .run_id = place.run_id,
                                       .token = options->token,
                                       .timeout_ms = options->timeout_ms};
    return yoke_store_create(store, &wanted);
}

static bool wants_nccl(const yoke_process_group_options *options) {
    if (options->transport != YOKE_TRANSPORT_AUTO) return options->transport == YOKE_TRANSPORT_NCCL;
    return options->devices != NULL && !yoke_devices_share_memory(options->devices);
}

/* These transports would read a GPU's address as the host's. */
static yoke_status check_host(const yoke_process_group_options *options) {
    if (options->devices == NULL || yoke_devices_share_memory(options->devices)) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT,
                "shared memory and MPI join ranks with CPUs, but options.devices are GPUs: set "
                "transport to auto");
}

/* It comes before the rendezvous: if this build lacks the transport, no rank needs to wait. */
static yoke_status check_transport(const yoke_process_group_options *options) {
    switch (options->transport) {
    case YOKE_TRANSPORT_AUTO:
        return wants_nccl(options) ? yoke_nccl_check(options) : YOKE_OK;
    case YOKE_TRANSPORT_SHARED_MEMORY:
        return check_host(options);
    case YOKE_TRANSPORT_MPI:
        TRY(check_host(options));
        return yoke_mpi_check();
    case YOKE_TRANSPORT_NCCL:
        return yoke_nccl_check(options);
    }
    return FAIL(YOKE_ERROR_ARGUMENT, "transport is %d: unknown transport", (int)options->transport);
}

static yoke_status open_transport(yoke_process_group **group,
                                  const yoke_transport_request *request) {
    const yoke_process_group_options *options = request->options;
    int elsewhere = yoke_peers_elsewhere(request->peers, options->rank->world);
    if (wants_nccl(options)) return yoke_nccl_group(group, request);
    if (options->transport == YOKE_TRANSPORT_MPI) return yoke_mpi_group(group, request);
    if (elsewhere == 0 || options->transport == YOKE_TRANSPORT_SHARED_MEMORY)
        return yoke_shared_memory_group(group, request);
    yoke_status status = yoke_mpi_check();
    if (status == YOKE_OK) return yoke_mpi_group(group, request);
    yoke_error_prefix("rank 0 is on %s and rank %d on %s, and several machines need MPI",
                      request->peers[0].host, elsewhere, request->peers[elsewhere].host);
    return status;
}

static yoke_status join_group(yoke_process_group **group, const yoke_process_group_options *options,
                              yoke_store *store, yoke_peer *peers) {
    const yoke_transport_request request = {.options = options, .store = store, .peers = peers};
    TRY(yoke_rendezvous(store, options->rank, peers, options->timeout_ms));
    TRY(open_transport(group, &request));
    (*group)->process = getpid();
    (*group)->rank = options->rank->rank;
    (*group)->world = options->rank->world;
    (*group)->timeout_ms = options->timeout_ms;
    (*group)->store = store;
    (*group)->peers = peers;
    return YOKE_OK;
}

/* Keeps the first error, whatever the store says while it closes. */
static yoke_status release_failed(yoke_status status, yoke_store *store, yoke_peer *peers) {
    yoke_error error = yoke_error_take(status);
    yoke_store_destroy(store);
    yoke_free(peers);
    return yoke_error_restore(&error);
}

yoke_status yoke_group_form(yoke_process_group **group, const yoke_process_group_options *options,
                            yoke_roll *roll) {
    size_t world = (size_t)options->rank->world;
    yoke_store *store = NULL;
    yoke_peer *peers = yoke_calloc(world, sizeof *peers);
    if (peers == NULL) return FAIL_MEMORY(world * sizeof *peers, "the table of ranks");
    yoke_status status = roll != NULL ? yoke_roll_store(&store, roll) : open_store(&store, options);
    if (status == YOKE_OK) {
        if (roll != NULL) (void)yoke_store_timeout(store, options->timeout_ms);
        status = join_group(group, options, store, peers);
    }
    return status == YOKE_OK ? YOKE_OK : release_failed(status, store, peers);
}

yoke_status yoke_process_group_create(yoke_process_group **group,
                                      const yoke_process_group_options *options) {
    TRY(yoke_pointer_check(group, "group"));
    *group = NULL;
    yoke_process_group_options own;
    yoke_rank_info rank;
    /* `own` refers to `rank`, a copy with the defaults filled in. */
    TRY(yoke_options_load(&own, sizeof own, options, "yoke_process_group_options"));
    TRY(yoke_options_load(&rank, sizeof rank, own.rank, "yoke_rank_info"));
    own.rank = &rank;
    if (own.timeout_ms == 0) own.timeout_ms = TIMEOUT_MS;
    if (own.timeout_ms < 0)
        return FAIL(YOKE_ERROR_ARGUMENT, "timeout_ms is %d: 0 (60000) or more is expected",
                    own.timeout_ms);
    if (rank.world == 0 && rank.rank == 0) rank.world = 1;
    if (rank.world < 1 || rank.rank < 0 || rank.rank >= rank.world)
        return FAIL(YOKE_ERROR_ARGUMENT, "rank %d of a world of %d: 0 to world - 1 is expected",
                    rank.rank, rank.world);
    if (rank.local_world == 0) { /* no launcher placed the ranks: all are on this machine */
        rank.local_world = rank.world;
        rank.local_rank = rank.rank;
    }
    if (rank.port < 0 || rank.port > 65535)
        return FAIL(YOKE_ERROR_ARGUMENT, "rank->port is %d: 0 to 65535 is expected", rank.port);
    if (own.min_ranks < 0 || (own.roll == NULL && own.min_ranks > 0))
        return FAIL(YOKE_ERROR_ARGUMENT, "min_ranks is %d%s", own.min_ranks,
                    own.roll == NULL ? ", and roll is NULL: ranks go on without others where they "
                                       "have a roll"
                                     : ": 0 or more is expected");
    rank.address[sizeof rank.address - 1] = '\0';
    rank.run_id[sizeof rank.run_id - 1] = '\0';
    TRY(check_transport(&own));
    return own.roll != NULL ? yoke_membership_create(group, &own)
                            : yoke_group_form(group, &own, NULL);
}

void yoke_group_leave(yoke_process_group *group) {
    yoke_store *store = group->store;
    yoke_peer *peers = group->peers;
    group->destroy(group);
    yoke_store_destroy(store);
    yoke_free(peers);
}

void yoke_process_group_destroy(yoke_process_group *group) {
    if (group == NULL || group->process != getpid()) return; /* a fork must not close the rank */
    yoke_membership *membership = group->membership;
    yoke_group_leave(group);
    yoke_membership_close(membership);
}

int yoke_process_group_rank(const yoke_process_group *group) {
    return group != NULL ? group->rank : -1;
}

int yoke_process_group_world(const yoke_process_group *group) {
    return group != NULL ? group->world : 0;
}

const char *yoke_process_group_transport(const yoke_process_group *group) {
    return group != NULL ? group->transport : "";
}

/* A call refused here has reached no other rank: the group stays usable. */
static yoke_status check_group(const yoke_process_group *group) {
    TRY(yoke_pointer_check(group, "group"));
    TRY(yoke_process_check(group->process, "this process group"));
    return group->broken ? FAIL(YOKE_ERROR_PEER, "the process group is broken: %s", group->cause)
                         : YOKE_OK;
}

static yoke_status check_call(const yoke_process_group *group, const yoke_reduce_call *call) {
    TRY(check_group(group));
    if (!yoke_element_is_collective(call->element))
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "element is %d: collectives take float32, bfloat16, int64 and float64",
                    (int)call->element);
    if (call->reduction < YOKE_SUM || call->reduction > YOKE_MAX)
        return FAIL(YOKE_ERROR_ARGUMENT, "reduction is %d: unknown reduction",
                    (int)call->reduction);
    if (call->root < -1 || call->root >= group->world)
        return FAIL(YOKE_ERROR_ARGUMENT, "root is %d: 0 to %d is expected", call->root,
                    group->world - 1);
    size_t limit = SIZE_MAX / sizeof(int64_t) / (size_t)group->world;
    if (call->count > limit)
        return FAIL(YOKE_ERROR_ARGUMENT, "count is %zu: 0 to %zu is expected", call->count, limit);
    return YOKE_OK;
}

/* check_call takes -1, "all ranks"; a rooted call must name its root. */
static yoke_status check_rooted(const yoke_process_group *group, const yoke_reduce_call *call) {
    TRY(check_call(group, call));
    return call->root >= 0 ? YOKE_OK
                           : FAIL(YOKE_ERROR_ARGUMENT, "root is %d: 0 to %d is expected",
                                  call->root, group->world - 1);
}

static yoke_status check_buffer(const void *buffer, const yoke_reduce_call *call,
                                const char *name) {
    return call->count == 0 ? YOKE_OK : yoke_pointer_check(buffer, name);
}

/* A failed call may leave the ranks at different operations, so the group breaks for good. */
static yoke_status record(yoke_process_group *group, yoke_status status) {
    if (status == YOKE_OK || group->broken) return status;
    group->broken = true;
    strncpy(group->cause, yoke_last_error(), sizeof group->cause - 1);
    return status;
}

yoke_status yoke_process_group_barrier(yoke_process_group *group) {
    TRY(check_group(group));
    return record(group, group->barrier(group));
}

yoke_status yoke_process_group_broadcast(yoke_process_group *group, void *buffer, size_t count,
                                         yoke_element element, int root) {
    const yoke_reduce_call call = {.count = count, .element = element, .root = root};
    TRY(check_rooted(group, &call));
    TRY(check_buffer(buffer, &call, "buffer"));
    return record(group, group->broadcast(group, buffer, &call));
}

static yoke_status reduce(yoke_process_group *group, void *buffer, const yoke_reduce_call *call) {
    TRY(check_buffer(buffer, call, "buffer"));
    return record(group, group->reduce(group, buffer, call));
}

yoke_status yoke_process_group_all_reduce(yoke_process_group *group, void *buffer, size_t count,
                                          yoke_element element, yoke_reduction reduction) {
    const yoke_reduce_call call = {
        .count = count, .element = element, .reduction = reduction, .root = -1};
    TRY(check_call(group, &call));
    return reduce(group, buffer, &call);
}

yoke_status yoke_process_group_reduce(yoke_process_group *group, void *buffer, size_t count,
                                      yoke_element element, yoke_reduction reduction, int root) {
    const yoke_reduce_call call = {
        .count = count, .element = element, .reduction = reduction, .root = root};
    TRY(check_rooted(group, &call));
    return reduce(group, buffer, &call);
}

static yoke_status gather(yoke_process_group *group, void *to, const void *from,
                          const yoke_reduce_call *call) {
    if (call->root < 0 || call->root == group->rank) TRY(check_buffer(to, call, "to"));
    TRY(check_buffer(from, call, "from"));
    return record(group, group->all_gather(group, to, from, call));
}

yoke_status yoke_process_group_all_gather(yoke_process_group *group, void *to, const void *from,
                                          size_t count, yoke_element element) {
    const yoke_reduce_call call = {.count = count, .element = element, .root = -1};
    TRY(check_call(group, &call));
    return gather(group, to, from, &call);
}

yoke_status yoke_process_group_gather(yoke_process_group *group, void *to, const void *from,
                                      size_t count, yoke_element element, int root) {
    const yoke_reduce_call call = {.count = count, .element = element, .root = root};
    TRY(check_rooted(group, &call));
    return gather(group, to, from, &call);
}

yoke_status yoke_process_group_reduce_scatter(yoke_process_group *group, void *to, const void *from,
                                              size_t count, yoke_element element,
                                              yoke_reduction reduction) {
    const yoke_reduce_call call = {
        .count = count, .element = element, .reduction = reduction, .root = -1};
    TRY(check_call(group, &call));
    TRY(check_buffer(to, &call, "to"));
    TRY(check_buffer(from, &call, "from"));
    return record(group, group->reduce_scatter(group, to, from, &call));
}

yoke_status yoke_process_group_scatter(yoke_process_group *group, void *to, const void *from,
                                       size_t count, yoke_element element, int root) {
    const yoke_reduce_call call = {.count = count, .element = element, .root = root};
    TRY(check_rooted(group, &call));
    TRY(check_buffer(to, &call, "to"));
    if (root == group->rank) TRY(check_buffer(from, &call, "from"));
    return record(group, group->scatter(group, to, from, &call));
}

yoke_status yoke_process_group_allocate(yoke_process_group *group, size_t bytes, void **memory) {
    TRY(yoke_pointer_check(memory, "memory"));
    *memory = NULL;
    TRY(check_group(group));
    return record(group, group->allocate(group, bytes, memory));
}

yoke_status yoke_process_group_all_reduce_async(yoke_process_group *group, float *buffer,
                                                size_t count) {
    const yoke_reduce_call call = {.count = count, .root = -1};
    TRY(check_call(group, &call));
    TRY(check_buffer(buffer, &call, "buffer"));
    return record(group, group->all_reduce_async(group, buffer, count, NULL));
}

yoke_status yoke_process_group_all_reduce_blocks(yoke_process_group *group, float *buffer,
                                                 size_t count, const yoke_rank_blocks *blocks) {
    TRY(check_group(group));
    return record(group, group->all_reduce_async(group, buffer, count, blocks));
}

bool yoke_process_group_takes_blocks(const yoke_process_group *group) {
    return group->peers_of != NULL;
}

yoke_status yoke_process_group_progress(yoke_process_group *group) {
    TRY(check_group(group));
    return record(group, group->progress(group, false));
}

yoke_status yoke_process_group_wait(yoke_process_group *group) {
    TRY(check_group(group));
    return record(group, group->progress(group, true));
}

yoke_status yoke_process_group_peers(yoke_process_group *group, const void *memory, void **peers) {
    if (group->peers_of == NULL)
        return FAIL(YOKE_ERROR_DEVICE,
                    "%s has no memory that all ranks share: use the shared memory transport",
                    group->transport);
    return group->peers_of(group, memory, peers);
}

yoke_status yoke_process_group_fix_order(yoke_process_group *group) {
    if (group->host != NULL)
        return FAIL(YOKE_ERROR_DEVICE, "%s picks the order of its sums", group->transport);
    if (group->world > YOKE_PEERS_LIMIT)
        return FAIL(YOKE_ERROR_ARGUMENT, "%d ranks: sums in a fixed order are for %d at most",
                    group->world, YOKE_PEERS_LIMIT);
    group->fixed_order = true;
    return YOKE_OK;
}

void yoke_process_group_patience(yoke_process_group *group, bool patient) {
    group->patient = patient;
    if (group->host != NULL) group->host->patient = patient;
}

int yoke_process_group_timeout(const yoke_process_group *group) {
    return group->timeout_ms;
}

yoke_process_state yoke_process_group_state(const yoke_process_group *group, int rank) {
    return yoke_process_state_of(group->peers[rank].pid, 0);
}

yoke_status yoke_process_group_abort(yoke_process_group *group, yoke_status status) {
    if (group == NULL || group->broken || status == YOKE_OK) return status;
    yoke_error error = yoke_error_take(status);
    group->at_fault = status != YOKE_ERROR_PEER && status != YOKE_ERROR_TIMEOUT;
    if (group->at_fault) yoke_membership_quit(group->membership);
    yoke_error_prefix("rank %d", group->rank);
    record(group, group->abort(group, status));
    return yoke_error_restore(&error);
}

yoke_status yoke_process_group_synchronize(yoke_process_group *group) {
    TRY(yoke_process_group_wait(group));
    return group->synchronize != NULL ? record(group, group->synchronize(group)) : YOKE_OK;
}

void yoke_process_group_expect(yoke_process_group *group, void *memory, size_t bytes) {
    if (group->expect != NULL) group->expect(group, memory, bytes);
}

void yoke_process_group_forget(yoke_process_group *group, void *memory) {
    if (group->forget != NULL) group->forget(group, memory);
}
