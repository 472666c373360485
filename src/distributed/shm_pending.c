/* All-reduces that were started: every rank reduces its slice of each, in order, once all have
 * announced it, and writes it to every rank's buffer. */
#include "distributed/shared_memory.h"

enum { IN_FLIGHT = SHM_OPERATIONS - 2 }; /* no announcement is overwritten that somebody may read */

static void reduce_slice(shm_group *shm, const shm_pending *pending) {
    yoke_fold_set fold = {
        .element = YOKE_ELEMENT_FLOAT32, .reduction = YOKE_SUM, .ranks = shm->group.world};
    for (int rank = 0; rank < fold.ranks; rank++)
        fold.from[rank] = shm_data_of(shm, shm_call_of(shm, rank, pending->operation), rank);
    shm_fold_slice(&fold, shm->group.rank, pending->call.what.count, fold.from, fold.ranks);
}

/* Reduces this rank's slice of the next one that all have announced. */
static yoke_status advance(shm_group *shm, bool wait, bool *advanced) {
    *advanced = false;
    if (shm->pending_done == shm->pending_count) return YOKE_OK;
    const shm_pending *pending = &shm->pending[shm->pending_done];
    shm_counter *announced = shm_announcement_of(shm, 0, pending->operation);
    if (!wait && !shm_all_reached(shm, announced, pending->operation)) return YOKE_OK;
    TRY(shm_agree(shm, pending->operation));
    reduce_slice(shm, pending);
    shm->pending_done++;
    shm_raise(&shm_self(shm)->finished, ++shm->finished);
    *advanced = true;
    return YOKE_OK;
}

/* Forgets those that every rank has done its part of. */
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
    shm->current = CALL_START;
    for (bool advanced = true; advanced;)
        TRY(advance(shm, wait, &advanced));
    if (wait) TRY(shm_await(shm, &shm->control->ranks[0].finished, shm->finished));
    retire(shm);
    return YOKE_OK;
}

yoke_status shm_start(yoke_process_group *group, float *buffer, size_t count) {
    shm_group *shm = shm_of(group);
    TRY(shm_intact(shm));
    shm_call call = {.what = {.kind = CALL_START, .root = -1, .count = count}};
    shm_locate(shm, &call, buffer, count * sizeof *buffer);
    if (call.segment == 0) {
        FAIL(YOKE_ERROR_ARGUMENT,
             "rank %d started an all-reduce of %zu float32 outside the memory of "
             "yoke_process_group_allocate",
             group->rank, count);
        return shm_break(shm, YOKE_ERROR_ARGUMENT);
    }
    if (shm->pending_count == IN_FLIGHT) TRY(shm_progress(group, true));
    uint32_t operation = shm_announce(shm, &call);
    shm->pending[shm->pending_count] = (shm_pending){
        .operation = operation,
        .step = shm->finished + (uint32_t)(shm->pending_count - shm->pending_done) + 1,
        .call = call};
    shm->pending_count++;
    return YOKE_OK;
}
