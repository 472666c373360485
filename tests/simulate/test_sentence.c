/* SPDX-License-Identifier: Apache-2.0 */
/* Where a simulated step's time goes, in words; and a profile with other rows. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "simulate/simulate.h"

/* A step of 100 ms: 30 of forward, 1 of the loss, 60 of backward, 8 of the update, 1 of the host.
 */
static yoke_profile_segment segments[] = {{40, 6000000}, {20, 2000000}};
static const yoke_profile even = {.model = "m",
                                  .rows = 10,
                                  .layers = 10,
                                  .input_bytes = 100,
                                  .output_bytes = 10,
                                  .forward_ms = 30,
                                  .loss_ms = 1,
                                  .host_ms = 1,
                                  .update_ns_per_byte = 1,
                                  .segments = segments,
                                  .segment_count = 2};

static yoke_topology link_of(double bytes_per_ns) {
    return (yoke_topology){.link = {.bytes_per_ns = bytes_per_ns}};
}

static char text[YOKE_SIMULATION_TEXT_BYTES];

static const char *describe(yoke_topology topology, yoke_simulated_mode mode, int devices) {
    yoke_simulation found;
    assert_int_equal(yoke_simulate(&found, &even, &topology, mode, devices), YOKE_OK);
    yoke_simulation_describe(&found, &even, &topology, text);
    yoke_simulation_clear(&found);
    return text;
}

static void expect_in_text(const char *words) {
    if (strstr(text, words) == NULL) fail_msg("'%s' lacks '%s'", text, words);
}

static void one_device_computes(void **state) {
    (void)state;
    describe(link_of(1), YOKE_SIMULATED_OVERLAP, 1);
    assert_string_equal(text, "100 % of the step computes");
}

/* 2 * 3 * 8 MB over 0.24 GB/s are 200 ms, and the root computes the loss of 3 devices more. */
static void the_largest_part_comes_first(void **state) {
    (void)state;
    describe(link_of(0.24), YOKE_SIMULATED_CLASSIC, 4);
    assert_ptr_equal(strstr(text, "66 % of the step waits for the root's link: "), text);
    expect_in_text("all weights to 3 devices");
    expect_in_text("; 33 % computes; 1 % is the root's alone");
}

static void buckets_hide_or_not(void **state) {
    (void)state;
    describe(link_of(100), YOKE_SIMULATED_DDP_RING, 4);
    assert_string_equal(text, "100 % of the step computes; all transfers hide behind backward");
    describe(link_of(0.1), YOKE_SIMULATED_DDP_RING, 4);
    expect_in_text("waits for links: backward hides a part");
    assert_null(strstr(text, "all transfers hide"));
}

/* Forward and backward take 90 ms more: of 190. */
static void a_straggler_is_named(void **state) {
    (void)state;
    yoke_topology topology = link_of(1e6);
    topology.straggler = 1;
    topology.straggler_factor = 2;
    describe(topology, YOKE_SIMULATED_DDP_RING, 4);
    expect_in_text("47 % waits for device 1, which is slow");
    topology.straggler = 7; /* not among the devices */
    describe(topology, YOKE_SIMULATED_DDP_RING, 4);
    assert_null(strstr(text, "slow"));
}

/* The slowest of 8 is 1.42 deviations of 10 % behind: 12.8 ms of 112.8. */
static void a_spread_is_named(void **state) {
    (void)state;
    yoke_topology topology = link_of(1e6);
    topology.spread = 0.1;
    describe(topology, YOKE_SIMULATED_DDP_RING, 8);
    expect_in_text("; 11 % waits for the slowest device");
}

static void python_is_named(void **state) {
    (void)state;
    yoke_topology topology = link_of(1e6);
    topology.interpreter_us = 1000;
    describe(topology, YOKE_SIMULATED_PYTHON, 4);
    expect_in_text("is Python's");
}

/* Four equal devices with links that take no time: each computes all the time, but for the update
 * of each push. */
static void devices_that_do_not_wait_are_described(void **state) {
    (void)state;
    describe(link_of(1e6), YOKE_SIMULATED_ASYNC, 4);
    expect_in_text(" % of the devices' time computes; ");
    double computes = strtod(text, NULL);
    if (!(computes > 70 && computes < 95)) fail_msg("%s", text);
    describe(link_of(0.1), YOKE_SIMULATED_ASYNC, 4);
    if (!(strtod(text, NULL) < computes - 20)) fail_msg("%s", text);
}

static void the_parts_are_the_step(void **state) {
    (void)state;
    for (int mode = 0; mode < YOKE_SIMULATED_MODES; mode++) {
        if (mode == YOKE_SIMULATED_ASYNC) continue;
        double sum = 0;
        yoke_topology topology = link_of(0.5);
        topology.interpreter_us = 100;
        describe(topology, (yoke_simulated_mode)mode, 8);
        for (const char *part = text; part != NULL; part = strstr(part, "; ")) {
            part += part[0] == ';' ? 2 : 0;
            sum += strtod(part, NULL); /* 0: no part */
        }
        if (fabs(sum - 100) > 2.5) fail_msg("%g %%: %s", sum, text);
    }
}

static yoke_profile copy_of_even(void) {
    yoke_profile copy = even;
    copy.segments = yoke_malloc(sizeof segments);
    memcpy(copy.segments, segments, sizeof segments);
    return copy;
}

static void rows_take_time_in_proportion(void **state) {
    (void)state;
    yoke_profile profile = copy_of_even();
    assert_int_equal(yoke_profile_set_rows(&profile, 25), YOKE_OK);
    assert_int_equal(profile.rows, 25);
    assert_true(fabs(profile.forward_ms - 75) < 1e-9);
    assert_true(fabs(profile.segments[1].backward_ms - 50) < 1e-9);
    assert_true(fabs(yoke_profile_step_ms(&profile) - (9 + 2.5 * 91)) < 1e-9);
    yoke_profile_clear(&profile);
}

static void impossible_rows_are_refused(void **state) {
    (void)state;
    const struct {
        int rows;
        double forward_ms;
        size_t input_bytes;
        const char *why;
    } rows[] = {{0, 30, 100, "1 or more"},
                {1000000000, 30, 100, "ms in 6 parts"},
                {1000000, 30, (size_t)1 << 40, "rows of"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        yoke_profile profile = copy_of_even();
        profile.input_bytes = rows[i].input_bytes;
        assert_int_equal(yoke_profile_set_rows(&profile, rows[i].rows), YOKE_ERROR_ARGUMENT);
        if (strstr(yoke_last_error(), rows[i].why) == NULL) fail_msg("%s", yoke_last_error());
        yoke_profile_clear(&profile);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_device_computes),
        cmocka_unit_test(the_largest_part_comes_first),
        cmocka_unit_test(buckets_hide_or_not),
        cmocka_unit_test(a_straggler_is_named),
        cmocka_unit_test(a_spread_is_named),
        cmocka_unit_test(python_is_named),
        cmocka_unit_test(devices_that_do_not_wait_are_described),
        cmocka_unit_test(the_parts_are_the_step),
        cmocka_unit_test(rows_take_time_in_proportion),
        cmocka_unit_test(impossible_rows_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
