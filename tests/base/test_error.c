/* SPDX-License-Identifier: Apache-2.0 */
/* The last error's line: who writes it, which thread reads it, what it may contain. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"

static yoke_status knows(void) {
    return FAIL(YOKE_ERROR_DATA, "labels.bin: %d bytes at offset %d, a record has %d", 17, 3073,
                3074);
}

static yoke_status passes_on(void) {
    TRY(knows());
    return FAIL(YOKE_ERROR_INTERNAL, "not reached");
}

static void the_failing_function_writes_the_error_and_callers_pass_it_on(void **state) {
    (void)state;
    assert_int_equal(passes_on(), YOKE_ERROR_DATA);
    assert_string_equal(yoke_last_error(),
                        "labels.bin: 17 bytes at offset 3073, a record has 3074");
}

static void a_success_leaves_the_line_alone(void **state) {
    (void)state;
    knows();
    yoke_error nothing = yoke_error_take(YOKE_OK);
    assert_int_equal(nothing.status, YOKE_OK);
    assert_string_equal(yoke_last_error(),
                        "labels.bin: 17 bytes at offset 3073, a record has 3074");
}

static void a_prefix_says_where(void **state) {
    (void)state;
    (void)FAIL(YOKE_ERROR_NUMERIC, "the loss is not finite");
    yoke_error_prefix("replica %d on %s", 3, "cpu:3");
    assert_string_equal(yoke_last_error(), "replica 3 on cpu:3: the loss is not finite");
}

static void the_line_may_quote_itself(void **state) {
    (void)state;
    (void)FAIL(YOKE_ERROR_IO, "disk full");
    (void)FAIL(YOKE_ERROR_IO, "saving: %s", yoke_last_error());
    assert_string_equal(yoke_last_error(), "saving: disk full");
    yoke_error_prefix("%s, again", yoke_last_error());
    assert_string_equal(yoke_last_error(), "saving: disk full, again: saving: disk full");
}

static void a_long_text_is_cut_and_stays_a_string(void **state) {
    (void)state;
    char name[2 * YOKE_ERROR_TEXT_BYTES];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    (void)FAIL(YOKE_ERROR_MISSING, "%s", name);
    assert_int_equal(strlen(yoke_last_error()), YOKE_ERROR_TEXT_BYTES - 1);
    yoke_error_prefix("%s", name);
    assert_int_equal(strlen(yoke_last_error()), YOKE_ERROR_TEXT_BYTES - 1);
    yoke_error_prefix("loading");
    assert_memory_equal(yoke_last_error(), "loading: nnn", 12);
}

static void a_name_cannot_steer_the_terminal_or_break_the_line(void **state) {
    (void)state;
    (void)FAIL(YOKE_ERROR_MISSING, "%s: no such model", "\033[2J\nre\x7fsnet\xc3\xa9\xe2\x80\xae");
    assert_string_equal(yoke_last_error(), "?[2J?re?snet\xc3\xa9?: no such model");
}

static void an_error_survives_a_clean_up_that_fails(void **state) {
    (void)state;
    yoke_error error = yoke_error_take(knows());
    (void)FAIL(YOKE_ERROR_IO, "closing failed too");
    assert_int_equal(yoke_error_restore(&error), YOKE_ERROR_DATA);
    assert_string_equal(yoke_last_error(),
                        "labels.bin: 17 bytes at offset 3073, a record has 3074");
}

static void *fail_elsewhere(void *seen) {
    *(char *)seen = yoke_last_error()[0];
    (void)FAIL(YOKE_ERROR_SYSTEM, "the other thread's");
    return NULL;
}

static void every_thread_has_its_own_line(void **state) {
    (void)state;
    (void)FAIL(YOKE_ERROR_IO, "mine");
    char seen = 'x';
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, &seen), 0);
    pthread_join(thread, NULL);
    assert_int_equal(seen, '\0');
    assert_string_equal(yoke_last_error(), "mine");
}

static void every_status_has_a_name_and_an_exit_code(void **state) {
    (void)state;
    assert_string_equal(yoke_status_name(YOKE_OK), "YOKE_OK");
    assert_string_equal(yoke_status_name(YOKE_ERROR_CANCELLED), "YOKE_ERROR_CANCELLED");
    assert_string_equal(yoke_status_name((yoke_status)999), "unknown status");
    assert_int_equal(yoke_status_exit_code(YOKE_OK), 0);
    assert_int_equal(yoke_status_exit_code(YOKE_ERROR_DATA), 65);
    assert_int_equal(yoke_status_exit_code(YOKE_ERROR_CANCELLED), 130);
    assert_int_equal(yoke_status_exit_code((yoke_status)999), 70);
    for (int status = YOKE_ERROR_ARGUMENT; status <= YOKE_ERROR_CANCELLED; status++)
        assert_int_not_equal(yoke_status_exit_code((yoke_status)status), 0);
}

static void the_version_is_the_headers_and_the_builds(void **state) {
    (void)state;
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", YOKE_VERSION_MAJOR, YOKE_VERSION_MINOR,
             YOKE_VERSION_PATCH);
    assert_string_equal(yoke_version(), version);
    assert_string_equal(yoke_version(), YOKE_PROJECT_VERSION);
}

static void versions_compare_as_integers(void **state) {
    (void)state;
#if YOKE_VERSION < YOKE_VERSION_CODE(0, 1, 0) || YOKE_VERSION >= YOKE_VERSION_CODE(100, 0, 0)
    fail_msg("YOKE_VERSION is %d", YOKE_VERSION);
#endif
    assert_true(YOKE_VERSION_CODE(0, 2, 0) > YOKE_VERSION_CODE(0, 1, 99));
    assert_true(YOKE_VERSION_CODE(1, 0, 0) > YOKE_VERSION_CODE(0, 99, 99));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_failing_function_writes_the_error_and_callers_pass_it_on),
        cmocka_unit_test(a_success_leaves_the_line_alone),
        cmocka_unit_test(a_prefix_says_where),
        cmocka_unit_test(the_line_may_quote_itself),
        cmocka_unit_test(a_long_text_is_cut_and_stays_a_string),
        cmocka_unit_test(a_name_cannot_steer_the_terminal_or_break_the_line),
        cmocka_unit_test(an_error_survives_a_clean_up_that_fails),
        cmocka_unit_test(every_thread_has_its_own_line),
        cmocka_unit_test(every_status_has_a_name_and_an_exit_code),
        cmocka_unit_test(the_version_is_the_headers_and_the_builds),
        cmocka_unit_test(versions_compare_as_integers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
