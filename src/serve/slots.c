/* SPDX-License-Identifier: Apache-2.0 */
/* Taking a free slot is one exchange of its flag. Only where there is none, or another thread
 * waits, a lock is taken. Who leaves a slot first clears its flag and then looks for waiters; who
 * waits first counts itself and then looks at the flags: one of the two sees the other. */
#include "serve/slots.h"

#include <string.h>

typedef struct yoke_slot_waiter {
    struct yoke_slot_waiter *next;
    pthread_cond_t given;
    int slot; /* -1: none yet */
} waiter;

/* The slot that this thread had last, of any object: a search for a free one begins there. */
static _Thread_local int last_slot;

yoke_status yoke_slots_create(yoke_slots *slots, int count) {
    size_t bytes = (size_t)count * sizeof *slots->slots;
    slots->slots = yoke_aligned_alloc(_Alignof(yoke_slot), bytes);
    if (slots->slots == NULL) return FAIL_MEMORY(bytes, "slots");
    memset(slots->slots, 0, bytes);
    slots->count = count;
    pthread_mutex_init(&slots->turn, NULL); /* cannot fail on Linux */
    return YOKE_OK;
}

void yoke_slots_destroy(yoke_slots *slots) {
    if (slots->slots == NULL) return;
    pthread_mutex_destroy(&slots->turn);
    yoke_free(slots->slots);
}

/* -1: there is none. */
static int take_free(yoke_slots *slots) {
    for (int i = 0; i < slots->count; i++) {
        int slot = (last_slot + i) % slots->count;
        atomic_bool *taken = &slots->slots[slot].taken;
        if (!atomic_load(taken) && !atomic_exchange(taken, true)) return slot;
    }
    return -1;
}

/* By a thread that has the turn. */
static void await_slot(yoke_slots *slots, waiter *self) {
    *self = (waiter){.slot = slots->first == NULL ? take_free(slots) : -1};
    if (self->slot >= 0) return;
    pthread_cond_init(&self->given, NULL); /* cannot fail on Linux */
    *(slots->first != NULL ? &slots->last->next : &slots->first) = self;
    slots->last = self;
    while (self->slot < 0)
        pthread_cond_wait(&self->given, &slots->turn);
    pthread_cond_destroy(&self->given);
}

int yoke_slots_take(yoke_slots *slots) {
    int slot = atomic_load(&slots->waiters) == 0 ? take_free(slots) : -1;
    if (slot < 0) {
        waiter self;
        pthread_mutex_lock(&slots->turn);
        atomic_fetch_add(&slots->waiters, 1);
        await_slot(slots, &self);
        atomic_fetch_sub(&slots->waiters, 1);
        pthread_mutex_unlock(&slots->turn);
        slot = self.slot;
    }
    last_slot = slot;
    return slot;
}

/* To the first waiter, if there is one; slot -1: a free one. */
static bool give(yoke_slots *slots, int slot) {
    pthread_mutex_lock(&slots->turn);
    waiter *first = slots->first;
    if (first != NULL && slot < 0) slot = take_free(slots);
    bool gives = first != NULL && slot >= 0;
    if (gives) {
        slots->first = first->next;
        first->slot = slot;
        pthread_cond_signal(&first->given);
    }
    pthread_mutex_unlock(&slots->turn);
    return gives;
}

void yoke_slots_leave(yoke_slots *slots, int slot) {
    if (atomic_load(&slots->waiters) > 0 && give(slots, slot)) return;
    atomic_store(&slots->slots[slot].taken, false);
    if (atomic_load(&slots->waiters) > 0) (void)give(slots, -1);
}
