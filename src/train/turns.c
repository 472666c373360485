/* SPDX-License-Identifier: Apache-2.0 */
/* Work announces itself before it waits for its turn, so that questions which come without a pause
 * cannot keep it waiting. */
#include "train/turns.h"

#include "train/trainer_parts.h"

void yoke_turns_begin(yoke_turns *turns) {
    pthread_mutex_init(&turns->turn, NULL); /* cannot fail on Linux */
}

void yoke_turns_end(yoke_turns *turns) {
    pthread_mutex_destroy(&turns->turn);
}

void yoke_turns_pass(yoke_turns *turns) {
    atomic_store(&turns->owner, pthread_self());
}

bool yoke_turns_are_mine(const yoke_turns *turns) {
    return atomic_load(&turns->owner) == pthread_self();
}

yoke_status yoke_trainer_check(const yoke_trainer *trainer) {
    TRY(yoke_pointer_check(trainer, "trainer"));
    return yoke_process_check(trainer->process, "this trainer");
}

static yoke_status refuse(const char *call) {
    return FAIL(YOKE_ERROR_ARGUMENT,
                "%s: another thread uses this trainer; ask that thread, as in on_event, or "
                "afterwards; yoke_trainer_progress answers any thread at any time",
                call);
}

yoke_status yoke_trainer_begin_work(yoke_trainer *trainer, const char *call) {
    TRY(yoke_trainer_check(trainer));
    yoke_turns *turns = &trainer->turns;
    if (yoke_turns_are_mine(turns))
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "%s: this thread is inside a call of the same trainer; wait until that returns",
                    call);
    if (atomic_exchange(&turns->is_working, true)) return refuse(call);
    pthread_mutex_lock(&turns->turn);
    atomic_store(&turns->owner, pthread_self());
    yoke_status status = yoke_data_parallel_bind(trainer->run.parallel);
    if (status != YOKE_OK) yoke_trainer_end_work(trainer);
    return status;
}

void yoke_trainer_end_work(yoke_trainer *trainer) {
    yoke_turns *turns = &trainer->turns;
    yoke_data_parallel_unbind(trainer->run.parallel);
    atomic_store(&turns->owner, 0);
    pthread_mutex_unlock(&turns->turn);
    atomic_store(&turns->is_working, false);
}

yoke_status yoke_trainer_begin_question(yoke_trainer *trainer, const char *call) {
    TRY(yoke_trainer_check(trainer));
    yoke_turns *turns = &trainer->turns;
    if (yoke_turns_are_mine(turns)) return YOKE_OK;
    if (atomic_load(&turns->is_working) || pthread_mutex_trylock(&turns->turn) != 0)
        return refuse(call);
    return YOKE_OK;
}

void yoke_trainer_end_question(yoke_trainer *trainer) {
    if (!yoke_turns_are_mine(&trainer->turns)) pthread_mutex_unlock(&trainer->turns.turn);
}

yoke_status yoke_trainer_check_idle(const yoke_trainer *trainer, const char *call) {
    TRY(yoke_pointer_check(trainer, "trainer"));
    if (yoke_turns_are_mine(&trainer->turns) || !atomic_load(&trainer->turns.is_working))
        return YOKE_OK;
    return refuse(call);
}
