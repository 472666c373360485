/* SPDX-License-Identifier: Apache-2.0 */
/* Calls over shared memory: each rank announces its call and goes on when every rank has announced
 * the same one. For an all_reduce_async each rank, in order of the calls, sums its slice of every
 * bucket that all ranks have announced and writes it to every rank's buffer. */
#include "distributed/shared_memory/shared_memory.h"

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

/* Every rank compares each call to rank 0's, so every rank reports the same text. */
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

/* Asynchronous all-reduces. */

/* With two more, a rank could overwrite an announcement that another rank still reads. */
enum { IN_FLIGHT = SHM_OPERATIONS - 2 };

/* Sums this rank's slice of all ranks' buffers, or of the blocks behind them, into each of them. */
static void add_slices(const shm_group *shm, const shm_pending *pending, char *const *buffers) {
    const yoke_rank_blocks *blocks = pending->blocks;
    int world = shm->group.world;
    yoke_fold_set fold = {.element = YOKE_ELEMENT_FLOAT32,
                          .reduction = YOKE_SUM,
                          .ranks = world,
                          .parts = blocks != NULL ? blocks->count : world,
                          .sizes = blocks != NULL ? blocks->sizes : NULL};
    for (int i = 0; i < fold.parts; i++)
        fold.from[i] = blocks == NULL
                           ? buffers[i]
                           : buffers[blocks->ranks[i]] + blocks->offsets[i] * sizeof(float);
    shm_fold_slice(&fold, shm->group.rank, pending->call.what.count, buffers, world);
}

/* Reduces this rank's slice of the next bucket that all ranks have announced. */
static yoke_status advance(shm_group *shm, bool wait, bool *advanced) {
    *advanced = false;
    if (shm->pending_done == shm->pending_count) return YOKE_OK;
    const shm_pending *pending = &shm->pending[shm->pending_done];
    shm_counter *announced = shm_announcement_of(shm, 0, pending->operation);
    if (!wait && !shm_all_reached(shm, announced, pending->operation)) return YOKE_OK;
    TRY(shm_agree(shm, pending->operation));
    char *buffers[SHM_RANKS];
    for (int rank = 0; rank < shm->group.world; rank++)
        buffers[rank] = shm_data_of(shm, shm_call_of(shm, rank, pending->operation), rank);
    add_slices(shm, pending, buffers);
    shm->pending_done++;
    shm_raise(&shm_self(shm)->finished, ++shm->finished);
    *advanced = true;
    return YOKE_OK;
}

/* Removes the buckets of which every rank has reduced its slice. */
static void retire(shm_group *shm) {
    int over = 0;
    shm_counter *finished = &shm->control->ranks[0].finished;
    while (over < shm->pending_done && shm_all_reached(shm, finished, shm->pending[over].step))
        over++;
    if (over == 0) return;
    shm->pending_count -= over;
    shm->pending_done -= over;
    for (int i = 0; i < shm->pending_count; i++)
        shm->pending[i] = shm->pending[i + over];
}

yoke_status shm_progress(yoke_process_group *group, bool wait) {
    shm_group *shm = shm_of(group);
    if (shm->pending_count == 0) return shm_intact(shm);
    TRY(shm_intact(shm));
    shm->current = CALL_ALL_REDUCE_ASYNC;
    for (bool advanced = true; advanced;)
        TRY(advance(shm, wait, &advanced));
    if (wait) TRY(shm_await(shm, &shm->control->ranks[0].finished, shm->finished));
    retire(shm);
    return YOKE_OK;
}

yoke_status shm_all_reduce_async(yoke_process_group *group, float *buffer, size_t count,
                                 const yoke_rank_blocks *blocks) {
    shm_group *shm = shm_of(group);
    TRY(shm_intact(shm));
    shm_call call = {.what = {.kind = CALL_ALL_REDUCE_ASYNC, .root = -1, .count = count}};
    shm_locate(shm, &call, buffer, count * sizeof *buffer);
    if (call.segment == 0) {
        FAIL(YOKE_ERROR_ARGUMENT,
             "rank %d called all_reduce_async on %zu float32 outside the memory of "
             "yoke_process_group_allocate",
             group->rank, count);
        return shm_break(shm, YOKE_ERROR_ARGUMENT);
    }
    if (shm->pending_count == IN_FLIGHT) TRY(shm_progress(group, true));
    uint32_t operation = shm_announce(shm, &call);
    shm->pending[shm->pending_count] = (shm_pending){
        .operation = operation,
        .step = shm->finished + (uint32_t)(shm->pending_count - shm->pending_done) + 1,
        .call = call,
        .blocks = blocks};
    shm->pending_count++;
    return YOKE_OK;
}
