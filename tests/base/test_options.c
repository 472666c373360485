/* SPDX-License-Identifier: Apache-2.0 */
/* Options across versions: old callers with a new library, new callers with an old one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"

/* One struct at two ages. */
typedef struct age1 {
    size_t struct_size;
    int rows;
    int columns;
} age1;

typedef struct age2 {
    size_t struct_size;
    int rows;
    int columns;
    double scale;
} age2;

static void nothing_given_means_defaults(void **state) {
    (void)state;
    age2 own;
    memset(&own, 0xff, sizeof own);
    assert_int_equal(yoke_options_load(&own, sizeof own, NULL, "age2"), YOKE_OK);
    assert_int_equal(own.struct_size, sizeof own);
    assert_int_equal(own.rows, 0);
    assert_true(own.scale == 0);
}

static void an_older_caller_gets_defaults_for_what_it_does_not_know(void **state) {
    (void)state;
    age1 given = {.struct_size = sizeof given, .rows = 3, .columns = 4};
    age2 own;
    memset(&own, 0xff, sizeof own);
    assert_int_equal(yoke_options_load(&own, sizeof own, &given, "age2"), YOKE_OK);
    assert_int_equal(own.struct_size, sizeof own);
    assert_int_equal(own.rows, 3);
    assert_int_equal(own.columns, 4);
    assert_true(own.scale == 0);
}

static void a_newer_caller_works_while_its_new_fields_are_zero(void **state) {
    (void)state;
    age2 given = {.struct_size = sizeof given, .rows = 3, .columns = 4};
    age1 own = {0};
    assert_int_equal(yoke_options_load(&own, sizeof own, &given, "age1"), YOKE_OK);
    assert_int_equal(own.struct_size, sizeof own);
    assert_int_equal(own.columns, 4);
}

static void a_newer_callers_wish_is_refused_and_not_ignored(void **state) {
    (void)state;
    age2 given = {.struct_size = sizeof given, .rows = 3, .scale = 0.5};
    age1 own = {0};
    assert_int_equal(yoke_options_load(&own, sizeof own, &given, "age1"), YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "age1"));
    assert_non_null(strstr(yoke_last_error(), yoke_version()));
}

static void a_forgotten_or_wild_size_is_refused(void **state) {
    (void)state;
    const size_t sizes[] = {0, 1, sizeof(size_t) - 1, 1u << 20, SIZE_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        age1 given = {.struct_size = sizes[i], .rows = 3};
        age1 own = {0};
        assert_int_equal(yoke_options_load(&own, sizeof own, &given, "age1"), YOKE_ERROR_ARGUMENT);
        assert_non_null(strstr(yoke_last_error(), "age1.struct_size"));
        assert_int_equal(yoke_options_store(&given, &own, sizeof own, "age1"), YOKE_ERROR_ARGUMENT);
        assert_int_equal(given.rows, 3);
    }
}

static void results_fit_the_callers_version(void **state) {
    (void)state;
    age2 own = {.struct_size = sizeof own, .rows = 5, .columns = 6, .scale = 0.25};
    struct {
        age1 answer;
        uint64_t guard;
    } old = {.answer = {.struct_size = sizeof old.answer}, .guard = 0x1234};
    assert_int_equal(yoke_options_store(&old.answer, &own, sizeof own, "age2"), YOKE_OK);
    assert_int_equal(old.answer.struct_size, sizeof old.answer);
    assert_int_equal(old.answer.columns, 6);
    assert_int_equal(old.guard, 0x1234);

    age1 small = {.struct_size = sizeof small, .rows = 7};
    age2 young = {.struct_size = sizeof young, .scale = 9};
    assert_int_equal(yoke_options_store(&young, &small, sizeof small, "age1"), YOKE_OK);
    assert_int_equal(young.struct_size, sizeof young);
    assert_int_equal(young.rows, 7);
    assert_true(young.scale == 0);
}

static void a_result_with_a_size_by_chance_is_refused_and_not_written_to(void **state) {
    (void)state;
    age1 own = {.struct_size = sizeof own, .rows = 5};
    for (size_t size = sizeof own + 65; size <= 8192; size++) {
        struct {
            age1 answer;
            unsigned char rest[8192];
        } given = {.answer = {.struct_size = size}};
        memset(given.rest, 0xa5, sizeof given.rest);
        assert_int_equal(yoke_options_store(&given.answer, &own, sizeof own, "age1"),
                         YOKE_ERROR_ARGUMENT);
        assert_int_equal(given.answer.rows, 0);
        for (size_t i = 0; i < sizeof given.rest; i++)
            assert_int_equal(given.rest[i], 0xa5);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_given_means_defaults),
        cmocka_unit_test(an_older_caller_gets_defaults_for_what_it_does_not_know),
        cmocka_unit_test(a_newer_caller_works_while_its_new_fields_are_zero),
        cmocka_unit_test(a_newer_callers_wish_is_refused_and_not_ignored),
        cmocka_unit_test(a_forgotten_or_wild_size_is_refused),
        cmocka_unit_test(results_fit_the_callers_version),
        cmocka_unit_test(a_result_with_a_size_by_chance_is_refused_and_not_written_to),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
