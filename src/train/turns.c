/* SPDX-License-Identifier: Apache-2.0 */
/* Who uses a trainer. Work announces itself before it waits for its turn, so that questions which
 * come without a pause cannot keep it waiting. */
#include "train/run.h"

void yoke_trainer_begin_turns(yoke_trainer *trainer) {
    pthread_mutex_init(&trainer->turns.turn, NULL); /* cannot fail on Linux */
}

void yoke_trainer_end_turns(yoke_trainer *trainer) {
    pthread_mutex_destroy(&trainer->turns.turn);
}

bool yoke_trainer_is_mine(const yoke_trainer *trainer) {
    return atomic_load(&trainer->turns.owner) == pthread_self();
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
    if (yoke_trainer_is_mine(trainer))
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "%s: this thread is inside a call of the same trainer; wait until that returns",
                    call);
    if (atomic_exchange(&turns->is_working, true)) return refuse(call);
    pthread_mutex_lock(&turns->turn);
    atomic_store(&turns->owner, pthread_self());
    yoke_status status = yoke_data_parallel_bind(trainer->parallel);
    if (status != YOKE_OK) yoke_trainer_end_work(trainer);
    return status;
}

void yoke_trainer_end_work(yoke_trainer *trainer) {
    yoke_turns *turns = &trainer->turns;
    yoke_data_parallel_release(trainer->parallel);
    atomic_store(&turns->owner, 0);
    pthread_mutex_unlock(&turns->turn);
    atomic_store(&turns->is_working, false);
}

yoke_status yoke_trainer_begin_question(yoke_trainer *trainer, const char *call) {
    TRY(yoke_trainer_check(trainer));
    yoke_turns *turns = &trainer->turns;
    if (yoke_trainer_is_mine(trainer)) return YOKE_OK;
    if (atomic_load(&turns->is_working) || pthread_mutex_trylock(&turns->turn) != 0)
        return refuse(call);
    return YOKE_OK;
}

void yoke_trainer_end_question(yoke_trainer *trainer) {
    if (!yoke_trainer_is_mine(trainer)) pthread_mutex_unlock(&trainer->turns.turn);
}

yoke_status yoke_trainer_check_idle(const yoke_trainer *trainer, const char *call) {
    TRY(yoke_pointer_check(trainer, "trainer"));
    if (yoke_trainer_is_mine(trainer) || !atomic_load(&trainer->turns.is_working)) return YOKE_OK;
    return refuse(call);
}
