/* SPDX-License-Identifier: Apache-2.0 */
/* The page of a comparison that holds more than the page shows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "cli/compare/compare.h"

/* The tool's names come with the engines and ranks of its contenders. */
const char *compare_kind_name(compare_kind kind) {
    static const char *const names[COMPARE_KINDS] = {[COMPARE_SINGLE] = "single",
                                                     [COMPARE_PYTHON] = "dp python",
                                                     [COMPARE_CLASSIC] = "dp classic",
                                                     [COMPARE_DDP] = "ddp",
                                                     [COMPARE_LOCAL] = "local"};
    return names[kind];
}

static void spans_that_are_left_out_get_a_note(void **state) {
    (void)state;
    char path[] = "/tmp/yoke-page-XXXXXX";
    unsigned char *text;
    size_t bytes;
    compare_device part = {.name = "cpu:0"};
    compare_mode mode = {.kind = COMPARE_PYTHON, .devices = 4, .parts = &part, .step.left_out = 77};
    compare_result result = {.setup = {.device_count = 8}, .modes = &mode, .mode_count = 1};
    close(mkstemp(path));
    for (int round = 0; round < 2; round++) {
        assert_int_equal(compare_write_page(path, &result), YOKE_OK);
        assert_int_equal(yoke_file_read(path, 1 << 20, &text, &bytes), YOKE_OK);
        const char *note = memmem(text, bytes, "dp python on 4: the timeline leaves out 77 spans",
                                  strlen("dp python on 4: the timeline leaves out 77 spans"));
        assert_int_equal(note != NULL, round == 0);
        mode.step.left_out = 0;
        free(text);
    }
    unlink(path);
}

/* Of modes on 4 devices, with the names of the kinds. */
static const char *order_of(race_ratio python, race_ratio classic, char text[1024]) {
    compare_mode modes[] = {{.kind = COMPARE_SINGLE, .devices = 1, .step_ms = {100, 100, 100}},
                            {.kind = COMPARE_PYTHON, .devices = 4, .step_ms = python},
                            {.kind = COMPARE_CLASSIC, .devices = 4, .step_ms = classic},
                            {.kind = COMPARE_DDP, .devices = 4, .step_ms = {13, 10.9, 15.6}}};
    compare_result result = {.modes = modes, .mode_count = 4};
    compare_order(&result, 4, text, 1024);
    return text;
}

static void disjoint_intervals_order_modes_on_a_busy_machine(void **state) {
    (void)state;
    char text[1024];
    assert_string_equal(
        order_of((race_ratio){14, 12, 41}, (race_ratio){39.7, 38.9, 45}, text),
        "dp classic is slower than ddp: 39.7 (38.9 .. 45.0) against 13.0 (10.9 .. 15.6) ms; the "
        "others cannot be told apart on this busy machine.");
    assert_string_equal(
        order_of((race_ratio){50, 46, 55}, (race_ratio){39.7, 38.9, 45}, text),
        "dp python is slower than dp classic and ddp: 50.0 (46.0 .. 55.0) against 39.7 (38.9 .. "
        "45.0) and 13.0 (10.9 .. 15.6) ms; dp classic is slower than ddp: 39.7 (38.9 .. 45.0) "
        "against 13.0 (10.9 .. 15.6) ms.");
    assert_string_equal(order_of((race_ratio){14, 12, 41}, (race_ratio){15, 15.6, 16}, text),
                        "The modes on 4 devices cannot be told apart on this busy machine.");
}

/* Two devices, by hand: the account is a mean, the shown step another one. */
static void each_number_of_a_mode_has_one_value_on_the_page(void **state) {
    (void)state;
    char path[] = "/tmp/yoke-page-XXXXXX";
    unsigned char *text;
    size_t bytes;
    yoke_span_info spans[] = {{.lane = 0,
                               .stage = YOKE_STAGE_REDUCE,
                               .bucket = -1,
                               .begin_ns = 1000000,
                               .end_ns = 9000000},
                              {.lane = 1,
                               .stage = YOKE_STAGE_WAIT,
                               .bucket = -1,
                               .begin_ns = 3000000,
                               .end_ns = 10000000}};
    compare_device parts[] = {
        {.name = "cpu:0",
         .account = {.step_ms = 8, .stage_ms = {[YOKE_STAGE_REDUCE] = 6, [YOKE_STAGE_IDLE] = 2}}},
        {.name = "cpu:1",
         .account = {.step_ms = 8, .stage_ms = {[YOKE_STAGE_WAIT] = 5, [YOKE_STAGE_IDLE] = 3}}}};
    compare_mode mode = {.kind = COMPARE_PYTHON,
                         .devices = 2,
                         .parts = parts,
                         .step_ms = {8, 7, 9},
                         .step = {.milliseconds = 9,
                                  .begin_ns = 1000000,
                                  .end_ns = 10000000,
                                  .count = 2,
                                  .spans = spans}};
    compare_result result = {
        .setup = {.device_count = 2}, .modes = &mode, .mode_count = 1, .interval = true};
    static const char *const wanted[] = {
        "dp python: this step takes 9.00 ms (median 8.00 ms). The longest wait is 7.00 ms, on "
        "cpu:1, "
        "while cpu:0 runs reduce.",
        "dp python: of the 8.00 ms of a step a device computes for 0 ms, communicates for "
        "3.00 ms, waits for 2.50 ms and is idle for 2.50 ms.",
        "dp python: the root, cpu:0, communicates for 6.00 ms of the step."};
    close(mkstemp(path));
    assert_int_equal(compare_write_page(path, &result), YOKE_OK);
    assert_int_equal(yoke_file_read(path, 1 << 20, &text, &bytes), YOKE_OK);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        if (memmem(text, bytes, wanted[i], strlen(wanted[i])) == NULL)
            fail_msg("the page lacks: %s", wanted[i]);
    free(text);
    unlink(path);
}

/* A mode without spans has a recorded step of 0 ms, and no place in the timeline. */
static void a_mode_that_records_nothing_is_slower_than_no_step(void **state) {
    (void)state;
    char path[] = "/tmp/yoke-page-XXXXXX";
    unsigned char *text;
    size_t bytes;
    compare_device part = {.name = "cpu:0", .account = {.step_ms = 8}};
    compare_mode modes[] = {
        {.kind = COMPARE_SINGLE,
         .devices = 1,
         .parts = &part,
         .step_ms = {8, 7, 9},
         .step = {.milliseconds = 8, .end_ns = 8000000}},
        {.kind = COMPARE_LOCAL, .devices = 2, .step_ms = {12, 11, 13}, .verdict = COMPARE_ANOTHER}};
    compare_result result = {
        .setup = {.device_count = 2}, .modes = modes, .mode_count = 2, .interval = true};
    static const struct {
        const char *text;
        bool is_there;
    } wanted[] = {{"What local learned is compared with nothing", true},
                  {"a longer step", false},
                  {"Not all modes learned the same", false}};
    close(mkstemp(path));
    for (int round = 0; round < 2; round++) { /* and with a step to compare: the note comes */
        assert_int_equal(compare_write_page(path, &result), YOKE_OK);
        assert_int_equal(yoke_file_read(path, 1 << 20, &text, &bytes), YOKE_OK);
        for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
            bool found = memmem(text, bytes, wanted[i].text, strlen(wanted[i].text)) != NULL;
            bool is_there = wanted[i].is_there || (round == 1 && i == 1);
            if (found != is_there)
                fail_msg("round %d: '%s' is on the page: %d", round, wanted[i].text, found);
        }
        modes[1].parts = &part;
        modes[1].devices = 1;
        modes[1].step.milliseconds = 5;
        modes[1].step.end_ns = 5000000;
        free(text);
    }
    unlink(path);
}

static void expect_text(const char *page, const char *text) {
    if (strstr(page, text) == NULL) fail_msg("the page lacks: %s", text);
}

/* The lanes of links come behind those of devices, which move as they grow. */
static void each_of_four_devices_has_a_link_with_its_name(void **state) {
    (void)state;
    char path[] = "/tmp/yoke-page-XXXXXX";
    unsigned char *text;
    size_t bytes;
    yoke_span_info spans[4];
    compare_device parts[4];
    memset(parts, 0, sizeof parts);
    for (int i = 0; i < 4; i++) {
        spans[i] = (yoke_span_info){.lane = COMPARE_LINK_OF(i),
                                    .stage = YOKE_STAGE_REDUCE,
                                    .bucket = -1,
                                    .end_ns = 1000000,
                                    .bytes = 123};
        snprintf(parts[i].name, sizeof parts[i].name, "<cpu>:%d", i);
        parts[i].account.step_ms = parts[i].account.stage_ms[YOKE_STAGE_REDUCE] = 1;
    }
    compare_mode mode = {
        .kind = COMPARE_CLASSIC,
        .devices = 4,
        .parts = parts,
        .step_ms = {1, 1, 1},
        .step = {.milliseconds = 1, .end_ns = 1000000, .count = 4, .spans = spans}};
    compare_result result = {.setup = {.device_count = 4, .model = "mlp", .dataset = "</script>"},
                             .modes = &mode,
                             .mode_count = 1,
                             .interval = true};
    close(mkstemp(path));
    assert_int_equal(compare_write_page(path, &result), YOKE_OK);
    assert_int_equal(yoke_file_read(path, 1 << 20, &text, &bytes), YOKE_OK);
    const char *page = (const char *)text;
    for (int i = 0; i < 4; i++) {
        char wanted[256];
        snprintf(wanted, sizeof wanted,
                 "{\"name\":\"link of "
                 "\\u003ccpu\\u003e:%d\",\"kind\":\"link\",\"stage_ms\":{},\"spans\":[["
                 "0.0,1.0,\"reduce\",-1,123,null]]}",
                 i);
        expect_text(page, wanted);
    }
    expect_text(page, "\"label\":\"dp classic\",\"devices\":4,\"first\":true");
    expect_text(page, "mlp on 4 devices, \\u003c/script\\u003e: DataParallel and DDP");
    expect_text(page, "<dd>&lt;/script&gt;</dd>");
    free(text);
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spans_that_are_left_out_get_a_note),
        cmocka_unit_test(disjoint_intervals_order_modes_on_a_busy_machine),
        cmocka_unit_test(each_number_of_a_mode_has_one_value_on_the_page),
        cmocka_unit_test(a_mode_that_records_nothing_is_slower_than_no_step),
        cmocka_unit_test(each_of_four_devices_has_a_link_with_its_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
