/* SPDX-License-Identifier: Apache-2.0 */
/* Workers: every one runs the job, an error comes back by value, nobody waits for a worker that
 * failed. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
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

typedef struct roll {
    int calls[CROWD];
    pthread_t threads[CROWD];
    int failing; /* the worker that fails */
} roll;

static yoke_status answer(int worker, void *context) {
    roll *call = context;
    call->calls[worker]++;
    call->threads[worker] = pthread_self();
    return YOKE_OK;
}

static void every_worker_is_called_once_each_on_its_own_thread(void **state) {
    (void)state;
    yoke_workers *crew = start(CROWD);
    roll call = {0};
    int failed = 77;
    assert_int_equal(yoke_workers_run(crew, CROWD, answer, &call, &failed), YOKE_OK);
    assert_int_equal(failed, -1);
    assert_true(pthread_equal(call.threads[0], pthread_self()));
    for (int i = 0; i < CROWD; i++) {
        assert_int_equal(call.calls[i], 1);
        for (int j = 0; j < i; j++)
            assert_false(pthread_equal(call.threads[i], call.threads[j]));
    }
    roll again = {0};
    assert_int_equal(yoke_workers_run(crew, CROWD, answer, &again, NULL), YOKE_OK);
    for (int i = 0; i < CROWD; i++)
        assert_true(pthread_equal(call.threads[i], again.threads[i]));
    yoke_workers_destroy(crew);
}

static void workers_beyond_the_count_are_left_asleep(void **state) {
    (void)state;
    yoke_workers *crew = start(CROWD);
    roll call = {0};
    for (int run = 0; run < 300; run++)
        assert_int_equal(yoke_workers_run(crew, 1 + run % CROWD, answer, &call, NULL), YOKE_OK);
    for (int i = 0; i < CROWD; i++) {
        int expected = 0;
        for (int run = 0; run < 300; run++)
            expected += i < 1 + run % CROWD;
        assert_int_equal(call.calls[i], expected);
    }
    yoke_workers_destroy(crew);
}

static void thousands_of_jobs_lose_none(void **state) {
    (void)state;
    static const int sizes[] = {1, 2, 3, CROWD};
    for (size_t size = 0; size < sizeof sizes / sizeof sizes[0]; size++) {
        yoke_workers *crew = start(sizes[size]);
        roll call = {0};
        for (int run = 0; run < 2000; run++) {
            /* Now and then everybody has fallen asleep. */
            if (run % 500 == 499) sleep_ms(2);
            assert_int_equal(yoke_workers_run(crew, sizes[size], answer, &call, NULL), YOKE_OK);
        }
        for (int i = 0; i < sizes[size]; i++)
            assert_int_equal(call.calls[i], 2000);
        yoke_workers_destroy(crew);
    }
}

static void a_count_that_cannot_be_is_refused(void **state) {
    (void)state;
    yoke_workers *crew = start(2);
    assert_int_equal(yoke_workers_run(crew, 3, answer, NULL, NULL), YOKE_ERROR_ARGUMENT);
    assert_int_equal(yoke_workers_run(crew, 0, answer, NULL, NULL), YOKE_ERROR_ARGUMENT);
    yoke_workers_destroy(crew);
    static const int counts[] = {-1, 0, 1025};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        yoke_workers_options options = {.count = counts[i]};
        assert_int_equal(yoke_workers_create(&crew, &options), YOKE_ERROR_ARGUMENT);
        assert_null(crew);
    }
    yoke_workers_destroy(NULL);
}

static yoke_status fail_if_chosen(int worker, void *context) {
    roll *call = context;
    call->calls[worker]++;
    if (worker != call->failing) return YOKE_OK;
    return FAIL(YOKE_ERROR_NUMERIC, "worker %d: the loss is not finite", worker);
}

static void each_workers_failure_comes_back_with_its_text(void **state) {
    (void)state;
    yoke_workers *crew = start(CROWD);
    for (int failing = 0; failing < CROWD; failing++) {
        roll call = {.failing = failing};
        int failed = -1;
        (void)FAIL(YOKE_ERROR_IO, "an older error");
        assert_int_equal(yoke_workers_run(crew, CROWD, fail_if_chosen, &call, &failed),
                         YOKE_ERROR_NUMERIC);
        assert_int_equal(failed, failing);
        char text[64];
        snprintf(text, sizeof text, "worker %d: the loss is not finite", failing);
        assert_string_equal(yoke_last_error(), text);
        /* Nobody was stopped, and all can work again. */
        assert_int_equal(yoke_workers_run(crew, CROWD, answer, &call, &failed), YOKE_OK);
        assert_int_equal(failed, -1);
        for (int i = 0; i < CROWD; i++)
            assert_int_equal(call.calls[i], 2);
    }
    yoke_workers_destroy(crew);
}

/* context: the worker that fails next. The higher the index the earlier: the first in time is not
 * the first in order. */
static yoke_status fail_in_turn(int worker, void *context) {
    atomic_int *turn = context;
    while (atomic_load(turn) != worker)
        sleep_ms(1);
    if (worker < 2) sleep_ms(100); /* the one before returns meanwhile */
    atomic_store(turn, worker - 1);
    return FAIL(YOKE_ERROR_DEVICE, "worker %d gave up", worker);
}

static void the_first_failure_in_time_is_the_cause(void **state) {
    (void)state;
    yoke_workers *crew = start(3);
    atomic_int turn = 2;
    int failed = -1;
    assert_int_equal(yoke_workers_run(crew, 3, fail_in_turn, &turn, &failed), YOKE_ERROR_DEVICE);
    assert_int_equal(failed, 2);
    assert_string_equal(yoke_last_error(), "worker 2 gave up");
    yoke_workers_destroy(crew);
}

/* A cancelled worker, later the one whose failure was the reason. */
static yoke_status cancelled_first(int worker, void *context) {
    (void)context;
    if (worker == 0) return FAIL(YOKE_ERROR_CANCELLED, "worker 0 was stopped");
    sleep_ms(20);
    if (worker == 1) return FAIL(YOKE_ERROR_MEMORY, "worker 1 has no memory");
    return FAIL(YOKE_ERROR_CANCELLED, "worker 2 was stopped");
}

static yoke_status all_cancelled(int worker, void *context) {
    (void)context;
    return FAIL(YOKE_ERROR_CANCELLED, "worker %d was stopped", worker);
}

static void cancelled_is_the_cause_only_when_nothing_else_is(void **state) {
    (void)state;
    yoke_workers *crew = start(3);
    int failed = -1;
    assert_int_equal(yoke_workers_run(crew, 3, cancelled_first, NULL, &failed), YOKE_ERROR_MEMORY);
    assert_int_equal(failed, 1);
    assert_string_equal(yoke_last_error(), "worker 1 has no memory");
    assert_int_equal(yoke_workers_run(crew, 3, all_cancelled, NULL, &failed), YOKE_ERROR_CANCELLED);
    yoke_workers_destroy(crew);
}

typedef struct door_book {
    _Atomic int entered, left;
    int refused; /* the worker whose enter fails; 0: none */
    pthread_t threads[CROWD];
} door_book;

static yoke_status sign_in(int worker, void *context) {
    door_book *book = context;
    if (worker == book->refused) return FAIL(YOKE_ERROR_DEVICE, "no core for worker %d", worker);
    book->threads[worker] = pthread_self();
    atomic_fetch_add(&book->entered, 1);
    return YOKE_OK;
}

static void sign_out(int worker, void *context) {
    door_book *book = context;
    if (pthread_equal(book->threads[worker], pthread_self())) atomic_fetch_add(&book->left, 1);
}

static void threads_enter_before_create_returns_and_leave_at_the_end(void **state) {
    (void)state;
    door_book book = {0};
    yoke_workers *crew = NULL;
    yoke_workers_options options = {
        .count = CROWD, .spare_cores = -1, .enter = sign_in, .leave = sign_out, .context = &book};
    assert_int_equal(yoke_workers_create(&crew, &options), YOKE_OK);
    assert_int_equal(atomic_load(&book.entered), CROWD - 1);
    assert_int_equal(atomic_load(&book.left), 0);
    roll call = {0};
    assert_int_equal(yoke_workers_run(crew, CROWD, answer, &call, NULL), YOKE_OK);
    for (int i = 1; i < CROWD; i++)
        assert_true(pthread_equal(book.threads[i], call.threads[i]));
    yoke_workers_destroy(crew);
    assert_int_equal(atomic_load(&book.left), CROWD - 1);
}

static void a_thread_that_cannot_enter_fails_the_creation(void **state) {
    (void)state;
    for (int refused = 1; refused < CROWD; refused++) {
        door_book book = {.refused = refused};
        yoke_workers *crew = (yoke_workers *)&book;
        yoke_workers_options options = {.count = CROWD,
                                        .spare_cores = -1,
                                        .enter = sign_in,
                                        .leave = sign_out,
                                        .context = &book};
        assert_int_equal(yoke_workers_create(&crew, &options), YOKE_ERROR_DEVICE);
        assert_null(crew);
        char text[64];
        snprintf(text, sizeof text, "no core for worker %d", refused);
        assert_string_equal(yoke_last_error(), text);
        /* One enters after the other: whoever came in before has gone out. */
        assert_int_equal(atomic_load(&book.entered), refused - 1);
        assert_int_equal(atomic_load(&book.left), refused - 1);
    }
}

/* Bytes of address space in use. */
static rlim_t address_space(void) {
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%lu", &pages) != 1) pages = 0;
    if (file != NULL) fclose(file);
    return (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
}

static void threads_that_cannot_start_fail_the_creation(void **state) {
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); /* its runtime ends the program when it can't have memory */
#endif
    struct rlimit before, limit;
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    limit = before;
    limit.rlim_cur = address_space() + (64 << 20);
    yoke_workers *crew = NULL;
    yoke_workers_options options = {.count = 1024, .spare_cores = -1};
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
    struct rlimit now;
    if (getrlimit(RLIMIT_AS, &now) != 0 || now.rlim_cur != limit.rlim_cur)
        skip(); /* an emulator of processors has no such limit */
    yoke_status status = yoke_workers_create(&crew, &options);
    setrlimit(RLIMIT_AS, &before);
    assert_int_equal(status, YOKE_ERROR_SYSTEM);
    assert_null(crew);
    assert_non_null(strstr(yoke_last_error(), "of 1024"));
}

static yoke_status look_at_signals(int worker, void *context) {
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    ((int *)context)[worker] = sigismember(&blocked, SIGINT);
    return YOKE_OK;
}

static void signals_are_left_to_the_host_programs_threads(void **state) {
    (void)state;
    yoke_workers *crew = start(3);
    int blocked[3] = {-1, -1, -1};
    assert_int_equal(yoke_workers_run(crew, 3, look_at_signals, blocked, NULL), YOKE_OK);
    assert_int_equal(blocked[0], 0);
    assert_int_equal(blocked[1], 1);
    assert_int_equal(blocked[2], 1);
    yoke_workers_destroy(crew);
}

static void *use_own_crew(void *context) {
    yoke_workers *crew = start(3);
    roll *call = context;
    for (int run = 0; run < 300; run++)
        if (yoke_workers_run(crew, 3, answer, call, NULL) != YOKE_OK) break;
    yoke_workers_destroy(crew);
    return NULL;
}

static void two_crews_do_not_meet(void **state) {
    (void)state;
    roll calls[2] = {0};
    pthread_t other;
    assert_int_equal(pthread_create(&other, NULL, use_own_crew, &calls[1]), 0);
    use_own_crew(&calls[0]);
    pthread_join(other, NULL);
    for (int crew = 0; crew < 2; crew++)
        for (int i = 0; i < 3; i++)
            assert_int_equal(calls[crew].calls[i], 300);
}

static int64_t cpu_ns(void) {
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return used.tv_sec * 1000000000LL + used.tv_nsec;
}

static yoke_status nap_if_first(int worker, void *context) {
    (void)context;
    if (worker == 0) sleep_ms(100);
    return YOKE_OK;
}

/* While worker 0 is away for 100 ms the others are done: spinning they would use 100 ms each. */
static void waiting_workers_leave_the_cores_alone(void **state) {
    (void)state;
    static const int spare[] = {0, -6};
    for (int i = 0; i < 2; i++) {
        yoke_workers *crew = NULL;
        yoke_workers_options options = {.count = CROWD, .spare_cores = spare[i]};
        assert_int_equal(yoke_workers_create(&crew, &options), YOKE_OK);
        int64_t before = cpu_ns();
        assert_int_equal(yoke_workers_run(crew, CROWD, nap_if_first, NULL, NULL), YOKE_OK);
        int64_t used = cpu_ns() - before;
        if (used > 50000000) fail_msg("%lld ns of processor time while waiting", (long long)used);
        yoke_workers_destroy(crew);
    }
}

/* Deadlines. */

typedef struct late_work {
    atomic_bool waited, released; /* a worker gave up its wait; the one that hangs may go on */
    int slow;
    bool hangs;
    yoke_workers *crew;
} late_work;

static yoke_status be_late(int worker, void *context) {
    late_work *work = context;
    if (worker != work->slow) {
        yoke_status status = yoke_workers_barrier(work->crew);
        atomic_store(&work->waited, true);
        return status;
    }
    while (!atomic_load(work->hangs ? &work->released : &work->waited))
        sleep_ms(1);
    return YOKE_OK;
}

/* One that comes back at once is late, and on a busy machine lost: it is the cause all the same. */
static void a_worker_that_is_late_is_the_cause(void **state) {
    (void)state;
    for (int slow = 0; slow < 3; slow++) {
        late_work work = {.slow = slow, .crew = start(3)};
        int failed = 77;
        yoke_workers_limit(work.crew, 20000000);
        assert_int_equal(yoke_workers_run(work.crew, 3, be_late, &work, &failed),
                         YOKE_ERROR_TIMEOUT);
        assert_int_equal(failed, slow);
        yoke_workers_limit(work.crew, 0);
        roll call = {0};
        if (!yoke_workers_lost(work.crew))
            assert_int_equal(yoke_workers_run(work.crew, 3, answer, &call, NULL), YOKE_OK);
        yoke_workers_destroy(work.crew);
    }
}

static void a_worker_that_hangs_is_lost(void **state) {
    (void)state;
    static late_work work; /* the thread that hangs outlives the test */
    roll call = {0};
    int failed = 77;
    work = (late_work){.slow = 2, .hangs = true, .crew = start(3)};
    yoke_workers_limit(work.crew, 20000000);
    assert_int_equal(yoke_workers_run(work.crew, 3, be_late, &work, &failed), YOKE_ERROR_TIMEOUT);
    assert_int_equal(failed, 2);
    assert_true(yoke_workers_lost(work.crew));
    assert_int_equal(yoke_workers_run(work.crew, 3, answer, &call, NULL), YOKE_ERROR_TIMEOUT);
    assert_int_equal(yoke_workers_run(work.crew, 1, answer, &call, NULL), YOKE_OK);
    yoke_workers_destroy(work.crew); /* does nothing */
    atomic_store(&work.released, true);
}

static void *lose_caller(void *crew) {
    sleep_ms(20);
    yoke_workers_lose_caller(crew);
    return NULL;
}

static void nobody_waits_for_a_caller_that_is_lost(void **state) {
    (void)state;
    late_work work = {.slow = 0, .crew = start(3)};
    pthread_t other;
    int failed = 77;
    assert_int_equal(pthread_create(&other, NULL, lose_caller, work.crew), 0);
    assert_int_equal(yoke_workers_run(work.crew, 3, be_late, &work, &failed), YOKE_ERROR_CANCELLED);
    pthread_join(other, NULL);
    assert_true(yoke_workers_lost(work.crew));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_worker_is_called_once_each_on_its_own_thread),
        cmocka_unit_test(workers_beyond_the_count_are_left_asleep),
        cmocka_unit_test(thousands_of_jobs_lose_none),
        cmocka_unit_test(a_count_that_cannot_be_is_refused),
        cmocka_unit_test(each_workers_failure_comes_back_with_its_text),
        cmocka_unit_test(the_first_failure_in_time_is_the_cause),
        cmocka_unit_test(cancelled_is_the_cause_only_when_nothing_else_is),
        cmocka_unit_test(threads_enter_before_create_returns_and_leave_at_the_end),
        cmocka_unit_test(a_thread_that_cannot_enter_fails_the_creation),
        cmocka_unit_test(threads_that_cannot_start_fail_the_creation),
        cmocka_unit_test(signals_are_left_to_the_host_programs_threads),
        cmocka_unit_test(two_crews_do_not_meet),
        cmocka_unit_test(a_worker_that_is_late_is_the_cause),
        cmocka_unit_test(a_worker_that_hangs_is_lost),
        cmocka_unit_test(nobody_waits_for_a_caller_that_is_lost),
        cmocka_unit_test(waiting_workers_leave_the_cores_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
