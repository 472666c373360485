/* SPDX-License-Identifier: Apache-2.0 */
/* Slots have one thread each, and threads get them in their order. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "serve/slots.h"

enum { SLOTS = 3, THREADS = 8, TURNS = 2000, WAITERS = 5 };

typedef struct crowd {
    yoke_slots slots;
    atomic_int inside[SLOTS], wrong;
} crowd;

static void *take_often(void *context) {
    crowd *self = context;
    for (int i = 0; i < TURNS; i++) {
        int slot = yoke_slots_take(&self->slots);
        if (slot < 0 || slot >= SLOTS) abort();
        atomic_fetch_add(&self->wrong, atomic_fetch_add(&self->inside[slot], 1) != 0);
        if (i % 16 == 0) sched_yield();
        atomic_fetch_sub(&self->inside[slot], 1);
        yoke_slots_leave(&self->slots, slot);
    }
    return NULL;
}

static void test_a_slot_has_one_thread(void **state) {
    (void)state;
    crowd self = {0};
    pthread_t threads[THREADS];
    assert_int_equal(yoke_slots_create(&self.slots, SLOTS), YOKE_OK);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_often, &self), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&self.wrong), 0);
    assert_int_equal(atomic_load(&self.slots.waiters), 0);
    int taken[SLOTS] = {0};
    for (int i = 0; i < SLOTS; i++)
        taken[yoke_slots_take(&self.slots)]++;
    for (int i = 0; i < SLOTS; i++)
        assert_int_equal(taken[i], 1);
    yoke_slots_destroy(&self.slots);
}

typedef struct queue {
    yoke_slots slots;
    atomic_int served;
} queue;

typedef struct customer {
    queue *queue;
    int place;
} customer;

static void *take_once(void *context) {
    customer *self = context;
    int slot = yoke_slots_take(&self->queue->slots);
    self->place = atomic_fetch_add(&self->queue->served, 1);
    yoke_slots_leave(&self->queue->slots, slot);
    return NULL;
}

static void test_threads_are_served_in_their_order(void **state) {
    (void)state;
    queue self = {0};
    customer customers[WAITERS];
    pthread_t threads[WAITERS];
    assert_int_equal(yoke_slots_create(&self.slots, 1), YOKE_OK);
    int slot = yoke_slots_take(&self.slots);
    for (int i = 0; i < WAITERS; i++) {
        customers[i] = (customer){&self, -1};
        assert_int_equal(pthread_create(&threads[i], NULL, take_once, &customers[i]), 0);
        while (atomic_load(&self.slots.waiters) < i + 1)
            sched_yield();
        /* It has joined the list once nobody has the turn. */
        pthread_mutex_lock(&self.slots.turn);
        pthread_mutex_unlock(&self.slots.turn);
    }
    assert_int_equal(atomic_load(&self.served), 0);
    yoke_slots_leave(&self.slots, slot);
    for (int i = 0; i < WAITERS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(customers[i].place, i);
    }
    yoke_slots_destroy(&self.slots);
}

static void test_a_thread_gets_the_slot_that_it_had(void **state) {
    (void)state;
    yoke_slots slots = {0};
    assert_int_equal(yoke_slots_create(&slots, SLOTS), YOKE_OK);
    int first = yoke_slots_take(&slots), second = yoke_slots_take(&slots);
    assert_int_not_equal(first, second);
    yoke_slots_leave(&slots, first);
    yoke_slots_leave(&slots, second);
    assert_int_equal(yoke_slots_take(&slots), second);
    yoke_slots_leave(&slots, second);
    yoke_slots_destroy(&slots);
    yoke_slots_destroy(&(yoke_slots){0});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_slot_has_one_thread),
        cmocka_unit_test(test_threads_are_served_in_their_order),
        cmocka_unit_test(test_a_thread_gets_the_slot_that_it_had),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
