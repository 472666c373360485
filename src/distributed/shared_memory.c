/* The process group of the ranks of one machine, over memory they all map. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "distributed/shared_memory.h"

/* Its chunk stays in a core's second-level cache from packing to taking. */
#define SLOT_BYTES ((size_t)262144)
#define STORE_KEY "shared_memory"

static yoke_status check_machine(const shm_group *shm) {
    int world = shm->group.world;
    if (world < 1 || world > SHM_RANKS)
        return FAIL(YOKE_ERROR_ARGUMENT, "%d ranks over shared memory: 1 to %d can be", world,
                    SHM_RANKS);
    for (int rank = 1; rank < world; rank++) {
        if (strcmp(shm->peers[rank].host, shm->peers[0].host) == 0) continue;
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "shared memory joins the ranks of one machine: rank 0 is on %s, rank %d on %s",
                    shm->peers[0].host, rank, shm->peers[rank].host);
    }
    return YOKE_OK;
}

/* Rank 0 tells the store where the memory is, or why there is none. */
static yoke_status publish(shm_group *shm, yoke_store *store) {
    char line[YOKE_ERROR_TEXT_BYTES];
    shm_offer offer;
    yoke_status status = shm_segment_create(&shm->first, shm->group.world, &offer);
    if (status != YOKE_OK) {
        yoke_error error = yoke_error_take(status);
        yoke_store_set(store, STORE_KEY, error.text, strlen(error.text) + 1);
        return yoke_error_restore(&error);
    }
    int length = snprintf(line, sizeof line, "memory %d %d %llu %llu", offer.pid, offer.descriptor,
                          (unsigned long long)offer.inode, (unsigned long long)offer.bytes);
    return yoke_store_set(store, STORE_KEY, line, (size_t)length + 1);
}

static yoke_status follow(shm_group *shm, yoke_store *store) {
    char line[YOKE_ERROR_TEXT_BYTES + 1] = "";
    size_t bytes;
    unsigned long long inode, total;
    shm_offer offer;
    TRY(yoke_store_wait(store, STORE_KEY, line, sizeof line - 1, &bytes));
    if (sscanf(line, "memory %d %d %llu %llu", &offer.pid, &offer.descriptor, &inode, &total) != 4)
        return FAIL(YOKE_ERROR_PEER, "rank 0: %s", line);
    offer.inode = inode;
    offer.bytes = total;
    return shm_segment_open(&shm->first, shm->group.world, &offer);
}

static void introduce(shm_group *shm) {
    shm_rank *self = shm_self(shm);
    self->born = shm_birth_of(getpid());
    if (sched_getaffinity(0, sizeof self->cores, &self->cores) != 0) CPU_ZERO(&self->cores);
    atomic_store(&self->pid, getpid());
}

/* Ranks that are bound to cores of their own see one core each: what counts is what all have. */
static bool is_crowded(const shm_group *shm) {
    cpu_set_t all;
    CPU_ZERO(&all);
    for (int rank = 0; rank < shm->group.world; rank++)
        CPU_OR(&all, &all, &shm->control->ranks[rank].cores);
    return CPU_COUNT(&all) < shm->group.world;
}

static yoke_status join(shm_group *shm) {
    shm->control = (shm_control *)shm->first.base;
    shm->crowded = true; /* until it is known */
    introduce(shm);
    yoke_status status = shm_segment_reserve(&shm->first, shm->group.rank);
    if (status != YOKE_OK) return shm_break(shm, status);
    shm_call call = {.what = {.kind = CALL_JOIN, .count = shm->first.bytes, .root = -1}};
    TRY(shm_agree(shm, shm_announce(shm, &call)));
    shm->crowded = is_crowded(shm);
    shm_segment_settle(&shm->first, shm->group.rank);
    return YOKE_OK;
}

static yoke_status find_peers(yoke_process_group *group, const void *memory, void **peers) {
    shm_group *shm = shm_of(group);
    shm_call call = {.segment = 0};
    shm_locate(shm, &call, memory, 1);
    if (call.segment == 0)
        return FAIL(YOKE_ERROR_ARGUMENT, "rank %d asks for memory that is not the group's",
                    group->rank);
    const shm_segment *segment = &shm->segments[call.segment - 1];
    for (int rank = 0; rank < group->world; rank++)
        peers[rank] = shm_part(segment, rank) + call.offset;
    return YOKE_OK;
}

static yoke_status abandon(yoke_process_group *group, yoke_status status) {
    return shm_break(shm_of(group), status);
}

static void leave(yoke_process_group *group) {
    if (group == NULL) return;
    shm_group *shm = shm_of(group);
    if (shm->control != NULL) atomic_store(&shm_self(shm)->left, true);
    for (size_t i = 0; i < shm->segment_count; i++)
        shm_segment_close(&shm->segments[i]);
    free(shm->segments);
    shm_segment_close(&shm->first);
    free(shm);
}

static yoke_status build(shm_group *shm, const yoke_transport_request *request) {
    int world = request->options->rank->world;
    shm->group = (yoke_process_group){.rank = request->options->rank->rank,
                                      .world = world,
                                      .timeout_ms = request->options->timeout_ms,
                                      .transport = "shared memory",
                                      .barrier = shm_barrier,
                                      .broadcast = shm_broadcast,
                                      .reduce = shm_reduce,
                                      .all_gather = shm_all_gather,
                                      .reduce_scatter = shm_reduce_scatter,
                                      .scatter = shm_scatter,
                                      .allocate = shm_allocate,
                                      .start = shm_start,
                                      .progress = shm_progress,
                                      .peers_of = find_peers,
                                      .abandon = abandon,
                                      .destroy = leave};
    shm->first.descriptor = -1;
    for (int rank = 0; rank < world && rank < SHM_RANKS; rank++)
        shm->peers[rank] = request->peers[rank];
    TRY(check_machine(shm));
    size_t control_bytes = sizeof(shm_control) + (size_t)world * sizeof(shm_rank);
    shm->slot_bytes = SLOT_BYTES;
    shm->first.head_bytes = shm_whole_pages(control_bytes);
    shm->first.part_bytes = 2 * shm->slot_bytes;
    TRY(shm->group.rank == 0 ? publish(shm, request->store) : follow(shm, request->store));
    return join(shm);
}

yoke_status yoke_shared_memory_group(yoke_process_group **group,
                                     const yoke_transport_request *request) {
    *group = NULL;
    shm_group *shm = aligned_alloc(SHM_LINE, (sizeof *shm + SHM_LINE - 1) / SHM_LINE * SHM_LINE);
    if (shm == NULL) return FAIL_MEMORY(sizeof *shm, "a process group");
    memset(shm, 0, sizeof *shm);
    yoke_status status = build(shm, request);
    if (status != YOKE_OK) {
        leave(&shm->group);
        return status;
    }
    *group = &shm->group;
    return YOKE_OK;
}
