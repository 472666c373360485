/* SPDX-License-Identifier: Apache-2.0 */
/* Slots: as many threads as there are have one each; more wait, asleep, in the order in which they
 * came. */
#ifndef SERVE_SLOTS_H
#define SERVE_SLOTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/base.h"

/* Each on a cache line of its own. */
typedef struct yoke_slot {
    _Alignas(64) atomic_bool taken;
} yoke_slot;

typedef struct yoke_slots {
    yoke_slot *slots; /* [count] */
    int count;
    atomic_int waiters;
    pthread_mutex_t turn; /* of the list */
    struct yoke_slot_waiter *first, *last;
} yoke_slots;

yoke_status yoke_slots_create(yoke_slots *slots, int count);
void yoke_slots_destroy(yoke_slots *slots); /* takes zeroed ones */
/* A slot that is nobody else's until the thread leaves it; the one it had last, if that is free. */
int yoke_slots_take(yoke_slots *slots);
void yoke_slots_leave(yoke_slots *slots, int slot);

#endif
