/* SPDX-License-Identifier: Apache-2.0 */
/* The process group of the ranks of one machine, over memory that all of them map. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "distributed/shared_memory/shared_memory.h"
#include "distributed/transports.h"

/* A chunk of this size stays in a core's second-level cache from packing to reading. */
#define SLOT_BYTES ((size_t)262144)
#define STORE_KEY "shared_memory"

static yoke_status check_machine(const shm_group *shm) {
    int world = shm->group.world;
    if (world < 1 || world > SHM_RANKS)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "the world is %d: over shared memory 1 to %d ranks are expected", world,
                    SHM_RANKS);
    for (int rank = 1; rank < world; rank++) {
        if (strcmp(shm->peers[rank].host, shm->peers[0].host) == 0) continue;
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "shared memory joins the ranks of one machine: rank 0 is on %s, rank %d on %s",
                    shm->peers[0].host, rank, shm->peers[rank].host);
    }
    return YOKE_OK;
}

/* Rank 0 publishes where the memory is, or its error. */
static yoke_status publish_segment(shm_group *shm, yoke_store *store) {
    char line[YOKE_ERROR_TEXT_BYTES];
    shm_handle handle;
    yoke_status status = shm_segment_create(&shm->first, shm->group.world, &handle);
    if (status != YOKE_OK) {
        yoke_error error = yoke_error_take(status);
        yoke_store_set(store, STORE_KEY, error.text, strlen(error.text) + 1);
        return yoke_error_restore(&error);
    }
    int length =
        snprintf(line, sizeof line, "memory %d %d %llu %llu", handle.pid, handle.descriptor,
                 (unsigned long long)handle.inode, (unsigned long long)handle.bytes);
    return yoke_store_set(store, STORE_KEY, line, (size_t)length + 1);
}

static yoke_status open_published(shm_group *shm, yoke_store *store) {
    char line[YOKE_ERROR_TEXT_BYTES + 1] = "";
    size_t bytes;
    unsigned long long inode, total;
    shm_handle handle;
    TRY(yoke_store_wait_root(store, STORE_KEY, line, sizeof line - 1, &bytes));
    if (sscanf(line, "memory %d %d %llu %llu", &handle.pid, &handle.descriptor, &inode, &total) !=
        4)
        return FAIL(YOKE_ERROR_PEER, "rank 0: %s", line);
    handle.inode = inode;
    handle.bytes = total;
    return shm_segment_open(&shm->first, shm->group.world, &handle);
}

/* Counts the cores of all ranks together: a rank bound to one core sees only that one. */
static bool is_crowded(const shm_group *shm) {
    cpu_set_t all;
    CPU_ZERO(&all);
    for (int rank = 0; rank < shm->group.world; rank++)
        CPU_OR(&all, &all, &shm->control->ranks[rank].cores);
    return CPU_COUNT(&all) < shm->group.world;
}

static yoke_status join(shm_group *shm) {
    shm->control = (shm_control *)shm->first.base;
    shm->crowded = true; /* safe until is_crowded can say */
    shm_rank *self = shm_self(shm);
    self->start_time = yoke_process_start_time(getpid());
    if (sched_getaffinity(0, sizeof self->cores, &self->cores) != 0) CPU_ZERO(&self->cores);
    atomic_store(&self->pid, getpid());
    yoke_status status = shm_segment_reserve(&shm->first, shm->group.rank);
    if (status != YOKE_OK) return shm_break(shm, status);
    shm_call call = {.what = {.kind = CALL_JOIN, .count = shm->first.bytes, .root = -1}};
    TRY(shm_agree(shm, shm_announce(shm, &call)));
    shm->crowded = is_crowded(shm);
    shm_segment_settle(&shm->first, shm->group.rank);
    return YOKE_OK;
}

/* Memory of yoke_process_group_allocate. */

/* Rank 0 creates the segment before it announces the call. After the step every rank has it mapped,
 * or the call failed on every rank. */
static yoke_status map_segment(shm_group *shm, shm_segment *segment, size_t bytes) {
    int world = shm->group.world, rank = shm->group.rank;
    shm_call call = {.what = {.kind = CALL_ALLOCATE, .count = bytes, .root = -1}};
    if (bytes > SHM_PART_LIMIT) return FAIL_MEMORY(bytes, "shared memory");
    segment->part_bytes = shm_whole_pages(bytes);
    size_t list_bytes = (shm->segment_count + 1) * sizeof *shm->segments;
    shm_segment *segments = yoke_realloc(shm->segments, list_bytes);
    if (segments == NULL) return FAIL_MEMORY(list_bytes, "the list of segments");
    shm->segments = segments;
    if (rank == 0) TRY(shm_segment_create(segment, world, &shm->control->handle));
    TRY(shm_agree(shm, shm_announce(shm, &call)));
    if (rank != 0) TRY(shm_segment_open(segment, world, &shm->control->handle));
    TRY(shm_segment_reserve(segment, rank));
    return shm_step(shm);
}

static yoke_status allocate(yoke_process_group *group, size_t bytes, void **memory) {
    shm_group *shm = shm_of(group);
    shm_segment segment = {.descriptor = -1};
    *memory = NULL;
    TRY(shm_progress(group, true));
    yoke_status status = map_segment(shm, &segment, bytes);
    if (status != YOKE_OK) {
        shm_segment_close(&segment);
        return shm_break(shm, status);
    }
    shm_segment_settle(&segment, group->rank);
    *memory = shm_part(&segment, group->rank);
    shm->segments[shm->segment_count++] = segment;
    return YOKE_OK;
}

static yoke_status find_peers(yoke_process_group *group, const void *memory, void **peers) {
    shm_group *shm = shm_of(group);
    shm_call call = {.segment = 0};
    shm_locate(shm, &call, memory, 1);
    if (call.segment == 0)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "rank %d passed memory that yoke_process_group_allocate did not return",
                    group->rank);
    const shm_segment *segment = &shm->segments[call.segment - 1];
    for (int rank = 0; rank < group->world; rank++)
        peers[rank] = shm_part(segment, rank) + call.offset;
    return YOKE_OK;
}

static yoke_status abort_group(yoke_process_group *group, yoke_status status) {
    return shm_break(shm_of(group), status);
}

static void leave(yoke_process_group *group) {
    if (group == NULL) return;
    shm_group *shm = shm_of(group);
    if (shm->control != NULL) atomic_store(&shm_self(shm)->left, true);
    for (size_t i = 0; i < shm->segment_count; i++)
        shm_segment_close(&shm->segments[i]);
    yoke_free(shm->segments);
    shm_segment_close(&shm->first);
    yoke_free(shm);
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
                                      .allocate = allocate,
                                      .all_reduce_async = shm_all_reduce_async,
                                      .progress = shm_progress,
                                      .peers_of = find_peers,
                                      .abort = abort_group,
                                      .destroy = leave};
    shm->first.descriptor = -1;
    for (int rank = 0; rank < world && rank < SHM_RANKS; rank++)
        shm->peers[rank] = request->peers[rank];
    TRY(check_machine(shm));
    size_t control_bytes = sizeof(shm_control) + (size_t)world * sizeof(shm_rank);
    shm->slot_bytes = SLOT_BYTES;
    shm->first.head_bytes = shm_whole_pages(control_bytes);
    shm->first.part_bytes = 2 * shm->slot_bytes;
    TRY(shm->group.rank == 0 ? publish_segment(shm, request->store)
                             : open_published(shm, request->store));
    return join(shm);
}

yoke_status yoke_shared_memory_group(yoke_process_group **group,
                                     const yoke_transport_request *request) {
    *group = NULL;
    shm_group *shm =
        yoke_aligned_alloc(SHM_LINE, (sizeof *shm + SHM_LINE - 1) / SHM_LINE * SHM_LINE);
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
