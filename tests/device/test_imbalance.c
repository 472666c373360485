/* SPDX-License-Identifier: Apache-2.0 */
/* Devices too unequal for equal shards are named, with what each has; equal ones are not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "device/imbalance.h"
#include "support/devices.h"

#define GIB ((size_t)1 << 30)

static const char *said_of(const yoke_device_info *infos, int count) {
    static char text[192];
    memset(text, 'x', sizeof text);
    yoke_imbalance_write(infos, count, text, sizeof text);
    return text;
}

static void a_device_with_less_memory_is_named(void **state) {
    (void)state;
    const yoke_device_info infos[] = {
        {.name = "cuda:0", .memory_bytes = 24 * GIB, .multiprocessors = 82},
        {.name = "cuda:1", .memory_bytes = 8 * GIB, .multiprocessors = 46},
        {.name = "cuda:2", .memory_bytes = 16 * GIB, .multiprocessors = 60}};
    assert_non_null(strstr(said_of(infos, 3), "cuda:1 has 8.0 GiB, cuda:0 has 24.0 GiB"));
    assert_non_null(strstr(said_of(infos, 3), "leave cuda:1 out"));
}

static void a_slower_device_of_equal_memory_is_named(void **state) {
    (void)state;
    const yoke_device_info infos[] = {
        {.name = "cuda:0", .memory_bytes = 24 * GIB, .multiprocessors = 58},
        {.name = "cuda:1", .memory_bytes = 24 * GIB, .multiprocessors = 128}};
    assert_non_null(strstr(said_of(infos, 2), "cuda:0 has 58 multiprocessors, cuda:1 has 128"));
    assert_non_null(strstr(said_of(infos, 2), "waits for cuda:0"));
}

/* PyTorch's limit: exactly three quarters is equal enough. */
static void three_quarters_are_enough(void **state) {
    (void)state;
    yoke_device_info infos[] = {
        {.name = "cuda:0", .memory_bytes = 24 * GIB, .multiprocessors = 132},
        {.name = "cuda:1", .memory_bytes = 18 * GIB, .multiprocessors = 99}};
    assert_string_equal(said_of(infos, 2), "");
    assert_string_equal(said_of(infos, 1), "");
    infos[1].multiprocessors = 98;
    assert_string_not_equal(said_of(infos, 2), "");
    infos[1].memory_bytes--;
    assert_non_null(strstr(said_of(infos, 2), "GiB"));
}

static void the_devices_here_are_equal(void **state) {
    (void)state;
    char text[192] = "x";
    yoke_devices *devices = NULL;
    yoke_devices_options open = {.struct_size = sizeof open, .list = devices_of(3)};
    assert_int_equal(yoke_devices_open(&devices, &open), YOKE_OK);
    assert_int_equal(yoke_devices_imbalance(devices, text, sizeof text), YOKE_OK);
    assert_string_equal(text, "");
    assert_int_equal(yoke_devices_imbalance(devices, NULL, 0), YOKE_ERROR_ARGUMENT);
    assert_int_equal(yoke_devices_imbalance(NULL, text, sizeof text), YOKE_ERROR_ARGUMENT);
    yoke_devices_close(devices);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_with_less_memory_is_named),
        cmocka_unit_test(a_slower_device_of_equal_memory_is_named),
        cmocka_unit_test(three_quarters_are_enough),
        cmocka_unit_test(the_devices_here_are_equal),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
