/* Operations of the shared-memory transport: each rank announces what it was called for, and goes
 * on when everybody has announced the same. */
#include <stdlib.h>
#include <string.h>

#include "distributed/shared_memory.h"

void shm_locate(shm_group *shm, shm_call *call, const void *data, size_t bytes) {
    for (size_t i = 0; i < shm->segment_count; i++) {
        const shm_segment *segment = &shm->segments[i];
        uintptr_t begin = (uintptr_t)shm_part(segment, shm->group.rank), at = (uintptr_t)data;
        if (at < begin || at - begin > segment->part_bytes) continue;
        if (bytes > segment->part_bytes - (at - begin)) continue;
        call->segment = 1 + (uint32_t)i;
        call->offset = at - begin;
        return;
    }
}

char *shm_data_of(shm_group *shm, const shm_call *call, int rank) {
    return shm_part(&shm->segments[call->segment - 1], rank) + call->offset;
}

uint32_t shm_announce(shm_group *shm, const shm_call *call) {
    uint32_t operation = ++shm->announced;
    shm_announcement *line = &shm_self(shm)->announcements[operation % SHM_OPERATIONS];
    shm->current = call->what.kind;
    line->call = *call;
    shm_raise(&line->counter, operation);
    return operation;
}

const shm_call *shm_call_of(shm_group *shm, int rank, uint32_t operation) {
    return &shm->control->ranks[rank].announcements[operation % SHM_OPERATIONS].call;
}

/* Every rank compares all to rank 0's, so that every rank says the same. */
yoke_status shm_agree(shm_group *shm, uint32_t operation) {
    TRY(shm_await(shm, shm_announcement_of(shm, 0, operation), operation));
    const shm_call *first = shm_call_of(shm, 0, operation);
    for (int rank = 1; rank < shm->group.world; rank++) {
        const shm_call *other = shm_call_of(shm, rank, operation);
        yoke_status status = yoke_call_compare(&first->what, &other->what, rank);
        if (status != YOKE_OK) return shm_break(shm, status);
    }
    return YOKE_OK;
}

yoke_status shm_step(shm_group *shm) {
    shm_raise(&shm_self(shm)->finished, ++shm->finished);
    return shm_await(shm, &shm->control->ranks[0].finished, shm->finished);
}

yoke_status shm_barrier(yoke_process_group *group) {
    shm_group *shm = shm_of(group);
    TRY(shm_progress(group, true));
    return shm_agree(shm,
                     shm_announce(shm, &(shm_call){.what = {.kind = CALL_BARRIER, .root = -1}}));
}

/* Room for one more. */
static yoke_status extend_list(shm_group *shm) {
    size_t bytes = (shm->segment_count + 1) * sizeof *shm->segments;
    shm_segment *segments = realloc(shm->segments, bytes);
    if (segments == NULL) return FAIL_MEMORY(bytes, "the list of shared memory");
    shm->segments = segments;
    return YOKE_OK;
}

/* Rank 0 makes the segment before the others hear of it; all have it, or none, after. */
static yoke_status share(shm_group *shm, shm_segment *segment, size_t bytes) {
    int world = shm->group.world, rank = shm->group.rank;
    shm_call call = {.what = {.kind = CALL_ALLOCATE, .count = bytes, .root = -1}};
    if (bytes > SHM_PART_LIMIT) return FAIL_MEMORY(bytes, "shared memory");
    segment->part_bytes = shm_whole_pages(bytes);
    TRY(extend_list(shm));
    if (rank == 0) TRY(shm_segment_create(segment, world, &shm->control->offer));
    TRY(shm_agree(shm, shm_announce(shm, &call)));
    if (rank != 0) TRY(shm_segment_open(segment, world, &shm->control->offer));
    TRY(shm_segment_reserve(segment, rank));
    return shm_step(shm);
}

yoke_status shm_allocate(yoke_process_group *group, size_t bytes, void **memory) {
    shm_group *shm = shm_of(group);
    shm_segment segment = {.descriptor = -1};
    *memory = NULL;
    TRY(shm_progress(group, true));
    yoke_status status = share(shm, &segment, bytes);
    if (status != YOKE_OK) {
        shm_segment_close(&segment);
        return shm_break(shm, status);
    }
    shm_segment_settle(&segment, group->rank);
    *memory = shm_part(&segment, group->rank);
    shm->segments[shm->segment_count++] = segment;
    return YOKE_OK;
}
