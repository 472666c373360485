/* SPDX-License-Identifier: Apache-2.0 */
/* Workers meet inside a job, at barriers and counters, also when one of them never comes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"

/* More workers than most machines that run this have cores, and waiting as if so. */
enum { CROWD = 8 };

static yoke_workers *start(int count) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    yoke_workers *crew = NULL;
    yoke_workers_options options = {.count = count, .spare_cores = (int)cores - count};
    if (yoke_workers_create(&crew, &options) != YOKE_OK) fail_msg("%s", yoke_last_error());
    return crew;
}

static void sleep_ms(long ms) {
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

typedef struct meeting {
    yoke_workers *crew;
    int count;   /* workers of the run */
    int failing; /* the worker that fails */
    int rounds;
    int written[CROWD], sums[CROWD];
    uint32_t counter;
    _Atomic int cancelled; /* waiters that were sent away */
} meeting;

/* Each round: everybody writes its part, meets, and adds up what all have written. */
static yoke_status meet(int worker, void *context) {
    meeting *call = context;
    for (int round = 0; round < call->rounds; round++) {
        call->written[worker] = round + worker;
        TRY(yoke_workers_barrier(call->crew));
        for (int i = 0; i < call->count; i++)
            call->sums[worker] += call->written[i];
        TRY(yoke_workers_barrier(call->crew));
    }
    return YOKE_OK;
}

static void a_barrier_opens_when_all_have_come(void **state) {
    (void)state;
    yoke_workers *crew = start(CROWD);
    for (int count = 1; count <= CROWD; count++) {
        meeting call = {.crew = crew, .rounds = 200, .count = count};
        assert_int_equal(yoke_workers_run(crew, count, meet, &call, NULL), YOKE_OK);
        int expected = count * (199 * 200 / 2) + 200 * (count * (count - 1) / 2);
        for (int i = 0; i < count; i++)
            assert_int_equal(call.sums[i], expected);
    }
    yoke_workers_destroy(crew);
}

/* The chosen one fails at its third barrier; the others would wait there for ever. */
static yoke_status meet_and_fail(int worker, void *context) {
    meeting *call = context;
    for (int round = 0; round < 5; round++) {
        if (round == 2 && worker == call->failing) {
            if (worker % 2 == 0) sleep_ms(5); /* some wait asleep, some awake */
            return FAIL(YOKE_ERROR_DEVICE, "worker %d is gone", worker);
        }
        yoke_status status = yoke_workers_barrier(call->crew);
        if (status == YOKE_ERROR_CANCELLED) atomic_fetch_add(&call->cancelled, 1);
        TRY(status);
    }
    return YOKE_OK;
}

static void a_failing_worker_releases_the_barrier(void **state) {
    (void)state;
    yoke_workers *crew = start(CROWD);
    for (int round = 0; round < 3; round++) {
        for (int failing = 0; failing < CROWD; failing++) {
            meeting call = {.crew = crew, .failing = failing};
            int failed = -1;
            assert_int_equal(yoke_workers_run(crew, CROWD, meet_and_fail, &call, &failed),
                             YOKE_ERROR_DEVICE);
            assert_int_equal(failed, failing);
            assert_int_equal(atomic_load(&call.cancelled), CROWD - 1);
            meeting healthy = {.crew = crew, .rounds = 10, .count = CROWD};
            assert_int_equal(yoke_workers_run(crew, CROWD, meet, &healthy, NULL), YOKE_OK);
        }
    }
    yoke_workers_destroy(crew);
}

/* Worker 0 publishes values one by one; the others may read value i once the counter is above i. */
static yoke_status follow(int worker, void *context) {
    meeting *call = context;
    for (int i = 0; i < call->rounds; i++) {
        if (worker == 0) {
            call->written[i % CROWD] = i;
            yoke_workers_signal(call->crew, &call->counter);
            TRY(yoke_workers_barrier(call->crew));
        } else {
            TRY(yoke_workers_await(call->crew, &call->counter, (uint32_t)i + 1));
            if (call->written[i % CROWD] != i) return FAIL(YOKE_ERROR_INTERNAL, "read too early");
            TRY(yoke_workers_barrier(call->crew));
        }
    }
    return YOKE_OK;
}

static void a_counter_hands_over_what_was_written_before(void **state) {
    (void)state;
    yoke_workers *crew = start(CROWD);
    for (int count = 2; count <= CROWD; count += 3) {
        meeting call = {.crew = crew, .rounds = 300};
        if (yoke_workers_run(crew, count, follow, &call, NULL) != YOKE_OK)
            fail_msg("%s", yoke_last_error());
        assert_int_equal(call.counter, 300);
    }
    yoke_workers_destroy(crew);
}

/* All raise a counter at once and wait for all: no signal is lost. */
static yoke_status raise_together(int worker, void *context) {
    meeting *call = context;
    (void)worker;
    for (uint32_t i = 1; i <= 300; i++) {
        yoke_workers_signal(call->crew, &call->counter);
        TRY(yoke_workers_await(call->crew, &call->counter, i * CROWD));
    }
    return YOKE_OK;
}

static void signals_at_the_same_time_all_count(void **state) {
    (void)state;
    yoke_workers *crew = start(CROWD);
    meeting call = {.crew = crew};
    assert_int_equal(yoke_workers_run(crew, CROWD, raise_together, &call, NULL), YOKE_OK);
    assert_int_equal(call.counter, 300 * CROWD);
    yoke_workers_destroy(crew);
}

static yoke_status await_the_chosen(int worker, void *context) {
    meeting *call = context;
    if (worker == call->failing) {
        if (worker % 2 == 0) sleep_ms(5);
        return FAIL(YOKE_ERROR_DEVICE, "worker %d is gone", worker);
    }
    yoke_status status = yoke_workers_await(call->crew, &call->counter, 1);
    if (status == YOKE_ERROR_CANCELLED) atomic_fetch_add(&call->cancelled, 1);
    return status;
}

static void a_failing_worker_releases_the_workers_that_await_it(void **state) {
    (void)state;
    yoke_workers *crew = start(CROWD);
    for (int failing = 0; failing < CROWD; failing++) {
        meeting call = {.crew = crew, .failing = failing};
        int failed = -1;
        assert_int_equal(yoke_workers_run(crew, CROWD, await_the_chosen, &call, &failed),
                         YOKE_ERROR_DEVICE);
        assert_int_equal(failed, failing);
        assert_int_equal(atomic_load(&call.cancelled), CROWD - 1);
    }
    yoke_workers_destroy(crew);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_barrier_opens_when_all_have_come),
        cmocka_unit_test(a_failing_worker_releases_the_barrier),
        cmocka_unit_test(a_counter_hands_over_what_was_written_before),
        cmocka_unit_test(signals_at_the_same_time_all_count),
        cmocka_unit_test(a_failing_worker_releases_the_workers_that_await_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
