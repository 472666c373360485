/* SPDX-License-Identifier: Apache-2.0 */
/* Room in the address space. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"

static size_t address_space(void) {
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lu", &pages), 1);
    fclose(file);
    return (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
}

static yoke_status check_within(size_t bytes) {
    struct rlimit before, limit;
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    limit = before;
    limit.rlim_cur = address_space() + bytes;
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
    struct rlimit now;
    if (getrlimit(RLIMIT_AS, &now) != 0 || now.rlim_cur != limit.rlim_cur)
        skip(); /* an emulator of processors has no such limit */
    yoke_status status = yoke_room_check();
    setrlimit(RLIMIT_AS, &before);
    return status;
}

static void too_little_room_is_an_error_that_names_the_limit(void **state) {
    (void)state;
    assert_int_equal(check_within(YOKE_ROOM_BYTES / 2), YOKE_ERROR_MEMORY);
    assert_non_null(strstr(yoke_last_error(), "less than 32.0 MiB of address space are left"));
    assert_non_null(strstr(yoke_last_error(), "(ulimit -v)"));
}

static void enough_room_is_not_taken(void **state) {
    (void)state;
    size_t before = address_space();
    assert_int_equal(check_within(2 * YOKE_ROOM_BYTES), YOKE_OK);
    assert_int_equal(address_space(), before);
}

static void without_a_limit_nothing_advises_to_raise_it(void **state) {
    (void)state;
    struct rlimit limit;
    char text[128];
    assert_int_equal(getrlimit(RLIMIT_AS, &limit), 0);
    if (limit.rlim_cur != RLIM_INFINITY) skip();
    assert_string_equal(yoke_room_advice(text, sizeof text), "");
    assert_int_equal(yoke_room_check(), YOKE_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(too_little_room_is_an_error_that_names_the_limit),
        cmocka_unit_test(enough_room_is_not_taken),
        cmocka_unit_test(without_a_limit_nothing_advises_to_raise_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
