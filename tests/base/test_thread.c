/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of the library's own: the host program's threads handle its signals. */
#include <dlfcn.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"

static bool refuses; /* a thread, as a system out of them does */

/* Of this program; pthread_create of the C library answers for the others. */
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *),
                   void *context) {
    static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    return refuses ? EAGAIN : real(thread, attributes, start, context);
}

static void *look_at_signals(void *blocked) {
    pthread_sigmask(SIG_SETMASK, NULL, blocked);
    return blocked;
}

static void a_thread_accepts_its_own_faults_and_leaves_other_signals_to_the_host(void **state) {
    (void)state;
    static const int left[] = {SIGINT,  SIGTERM, SIGHUP,  SIGCHLD, SIGUSR1,
                               SIGALRM, SIGPIPE, SIGPROF, SIGABRT};
    static const int taken[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
    pthread_t thread;
    sigset_t blocked;
    void *answer = NULL;
    assert_int_equal(yoke_thread_start(&thread, look_at_signals, &blocked), 0);
    assert_int_equal(pthread_join(thread, &answer), 0);
    assert_ptr_equal(answer, &blocked);
    for (size_t i = 0; i < sizeof left / sizeof left[0]; i++)
        assert_int_equal(sigismember(&blocked, left[i]), 1);
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++)
        assert_int_equal(sigismember(&blocked, taken[i]), 0);
}

static void expect_callers_mask(int expected) {
    pthread_t thread;
    sigset_t own, seen, blocked;
    sigemptyset(&own);
    sigaddset(&own, SIGUSR2);
    pthread_sigmask(SIG_SETMASK, &own, NULL);
    int cause = yoke_thread_start(&thread, look_at_signals, &blocked);
    pthread_sigmask(SIG_SETMASK, NULL, &seen);
    if (cause == 0) pthread_join(thread, NULL);
    assert_int_equal(cause, expected);
    assert_int_equal(sigismember(&seen, SIGUSR2), 1);
    assert_int_equal(sigismember(&seen, SIGINT), 0);
}

static void the_callers_mask_is_what_it_was_whether_the_thread_starts_or_not(void **state) {
    (void)state;
    expect_callers_mask(0);
    refuses = true;
    expect_callers_mask(EAGAIN);
    refuses = false;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_accepts_its_own_faults_and_leaves_other_signals_to_the_host),
        cmocka_unit_test(the_callers_mask_is_what_it_was_whether_the_thread_starts_or_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
