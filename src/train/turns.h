/* SPDX-License-Identifier: Apache-2.0 */
/* Who uses a trainer: one thread that works, or one that asks. */
#ifndef TRAIN_TURNS_H
#define TRAIN_TURNS_H

#include <pthread.h>
#include <stdatomic.h>

#include "yoke/trainer.h"

typedef struct yoke_turns {
    pthread_mutex_t turn;    /* held by the thread that works, or asks */
    _Atomic pthread_t owner; /* the thread that works; 0: none */
    atomic_bool is_working;  /* a thread works, or waits for its turn to */
} yoke_turns;

void yoke_turns_begin(yoke_turns *turns);
void yoke_turns_end(yoke_turns *turns);
/* The thread that works passes it on to the calling one. */
void yoke_turns_pass(yoke_turns *turns);
/* Whether this thread works, and a callback of the host program makes the call. */
bool yoke_turns_are_mine(const yoke_turns *turns);

/* ARGUMENT: the trainer is NULL, or this process is a fork of the trainer's. */
yoke_status yoke_trainer_check(const yoke_trainer *trainer);
/* Around a call that trains or evaluates: owns trainer and engine, waits for the question of
 * another thread, and refuses later ones. ARGUMENT: another thread works, or this one does already.
 */
yoke_status yoke_trainer_begin_work(yoke_trainer *trainer, const char *call);
void yoke_trainer_end_work(yoke_trainer *trainer);
/* Around a call that reads. ARGUMENT: another thread uses the trainer. */
yoke_status yoke_trainer_begin_question(yoke_trainer *trainer, const char *call);
void yoke_trainer_end_question(yoke_trainer *trainer);
/* Before a call that reads what only work changes. ARGUMENT: another thread works. */
yoke_status yoke_trainer_check_idle(const yoke_trainer *trainer, const char *call);

#endif
