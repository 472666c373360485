/* SPDX-License-Identifier: Apache-2.0 */
/* What a report makes of files: sums that make the step, waits with their causes, files cut short.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "report/report.h"
#include "report/sections.h"

/* Two lanes, one step of 10 ms: lane 0 works all the time, lane 1 for 2 ms at its begin. */
#define SPAN(name, tid, ts, dur, more)                                                             \
    "{\"ph\":\"X\",\"name\":\"" name "\",\"pid\":1,\"tid\":" #tid ",\"ts\":" #ts ",\"dur\":" #dur  \
    ",\"args\":{\"step\":4,\"bytes\":1024" more "}}"
#define HEAD                                                                                       \
    "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":" \
    "1,\"tid\":1,\"args\":{\"name\":\"cpu:1\"}},"
static const char trace[] =
    HEAD SPAN("step", 0, 1000, 10000, "") "," SPAN("forward", 0, 1000, 5000, "") "," SPAN(
        "reduce", 0, 2000, 1000,
        ",\"bucket\":3") "," SPAN("update", 0, 6000, 5000,
                                  "") "," SPAN("forward", 1, 1000, 2000,
                                               "") ","
                                                   "{\"ph\":\"s\",\"id\":1,\"pid\":1,\"tid\":0,"
                                                   "\"ts\":1}]}";

static yoke_report read_text(const char *text) {
    yoke_report report = {0};
    assert_int_equal(yoke_report_read(&report, "file.json", text, strlen(text)), YOKE_OK);
    return report;
}

static void stages_of_every_lane_add_up_to_the_step(void **state) {
    (void)state;
    yoke_report report = read_text(trace);
    const yoke_report_mode *mode = &report.modes[0];
    assert_int_equal(mode->lane_count, 2);
    assert_float_equal(mode->mean_step_ms, 10, 1e-9);
    for (int i = 0; i < mode->lane_count; i++) {
        double sum = 0;
        for (int stage = 0; stage < YOKE_ACCOUNT_STAGES; stage++)
            sum += mode->lanes[i].stage_ms[stage];
        assert_float_equal(sum, 10, 1e-9);
    }
    yoke_report_clear(&report);
}

static void an_inner_span_of_communication_behind_computation_does_not_count(void **state) {
    (void)state;
    yoke_report report = read_text(trace);
    const double *ms = report.modes[0].lanes[1].stage_ms;
    assert_string_equal(report.modes[0].lanes[0].name, "cpu:1"); /* in the file's order */
    assert_float_equal(ms[YOKE_STAGE_FORWARD], 5, 1e-9);
    assert_float_equal(ms[YOKE_STAGE_REDUCE], 0, 1e-9);
    const yoke_report_span *spans = report.modes[0].lanes[1].spans;
    assert_int_equal(report.modes[0].lanes[1].span_count, 2);
    assert_int_equal(spans[1].span.stage, YOKE_STAGE_UPDATE);
    assert_int_equal(spans[1].span.begin_ns, 5000000);
    yoke_report_clear(&report);
}

static void a_gap_is_idle_and_names_the_lane_that_works(void **state) {
    (void)state;
    yoke_report report = read_text(trace);
    const yoke_report_lane *lane = &report.modes[0].lanes[0];
    assert_int_equal(lane->span_count, 2);
    assert_int_equal(lane->spans[1].span.stage, YOKE_STAGE_IDLE);
    assert_int_equal(lane->spans[1].cause_lane, 1);
    assert_int_equal(lane->spans[1].cause_stage, YOKE_STAGE_UPDATE); /* 5 ms, forward 3 */
    yoke_report_clear(&report);
}

static void a_cause_that_the_file_names_counts(void **state) {
    (void)state;
    yoke_report report =
        read_text(HEAD SPAN("step", 0, 0, 10000, "") "," SPAN("backward", 0, 0, 10000, "") "," SPAN(
            "wait", 1, 0, 10000, ",\"cause\":\"lane 0\",\"cause_stage\":\"gather\"") "]}");
    const yoke_report_span *wait = &report.modes[0].lanes[0].spans[0];
    assert_int_equal(wait->span.stage, YOKE_STAGE_WAIT);
    assert_int_equal(wait->cause_lane, 1);
    assert_int_equal(wait->cause_stage, YOKE_STAGE_GATHER);
    yoke_report_clear(&report);
}

/* Which has the number of the next step. */
static void an_evaluation_before_the_step_moves_no_bytes_in_it(void **state) {
    (void)state;
    yoke_report report =
        read_text(HEAD SPAN("scatter", 0, 0, 400, "") "," SPAN("evaluate", 0, 0, 500, "") "," SPAN(
            "step", 0, 1000, 10000, "") "," SPAN("scatter", 0, 1000, 500, "") "]}");
    const yoke_report_mode *mode = &report.modes[0];
    assert_int_equal(mode->moved.count, 1);
    assert_float_equal(mode->moved.rows[0].bytes, 1024, 0);
    assert_float_equal(mode->lanes[1].stage_ms[YOKE_STAGE_SCATTER], 0.5, 1e-9);
    yoke_report_clear(&report);
}

static void bytes_over_links_are_those_that_the_file_names(void **state) {
    (void)state;
    yoke_report report = read_text(HEAD SPAN("step", 0, 0, 10000, "") "," SPAN(
        "reduce", 0, 0, 400, ",\"sent\":7,\"received\":90") "," SPAN("wait", 0, 500, 400,
                                                                     ",\"sent\":3") "]}");
    const yoke_report_mode *mode = &report.modes[0];
    assert_int_equal(mode->links.count, 2);
    assert_string_equal(mode->links.rows[0].what, "out");
    assert_float_equal(mode->links.rows[0].bytes, 10, 0);
    assert_float_equal(mode->links.rows[1].bytes, 90, 0);
    assert_int_equal(mode->moved.count, 0); /* the spans show transfers, not copies */
    yoke_report_clear(&report);
}

#define NAMED(tid, name)                                                                           \
    "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":1,\"tid\":" #tid ",\"args\":{\"name\":\"" name \
    "\"}}"
/* Its bytes are in the device's spans, too, and its time is no time of the device. */
static void a_link_is_a_lane_of_what_it_carries(void **state) {
    (void)state;
    yoke_report report = read_text("{\"traceEvents\":[" NAMED(1, "cpu:0") "," NAMED(
        2,
        "cpu:0 · "
        "link") "," SPAN("step", 1, 1000, 10000,
                         "") "," SPAN("backward", 1, 1000, 8000,
                                      "") "," SPAN("wait", 1, 9000, 2000,
                                                   ",\"sent\":5,\"received\":"
                                                   "6") "," SPAN("exchange", 2, 500, 1500,
                                                                 "") "," SPAN("exchange", 2, 3000,
                                                                              1000,
                                                                              ",\"bucket\":"
                                                                              "1") "," SPAN("exchan"
                                                                                            "ge",
                                                                                            2,
                                                                                            10000,
                                                                                            4000,
                                                                                            "") "]"
                                                                                                "}");
    const yoke_report_mode *mode = &report.modes[0];
    assert_int_equal(mode->lane_count, 2);
    assert_int_equal(mode->devices, 1);
    const yoke_report_lane *link = &mode->lanes[1];
    assert_string_equal(link->name, "link of cpu:0");
    assert_int_equal(link->kind, YOKE_LANE_LINK);
    static const uint64_t wanted_us[][2] = {{0, 1000}, {2000, 3000}, {9000, 10000}};
    assert_int_equal(link->span_count, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(link->spans[i].span.begin_ns, 1000 * wanted_us[i][0]);
        assert_int_equal(link->spans[i].span.end_ns, 1000 * wanted_us[i][1]);
        assert_int_equal(link->spans[i].cause_lane, -1);
    }
    assert_int_equal(link->spans[1].span.bucket, 1);
    for (int stage = 0; stage < YOKE_ACCOUNT_STAGES; stage++)
        assert_float_equal(link->stage_ms[stage], 0, 0);
    assert_float_equal(mode->lanes[0].stage_ms[YOKE_STAGE_BACKWARD], 8, 1e-9);
    assert_float_equal(mode->lanes[0].stage_ms[YOKE_STAGE_WAIT], 2, 1e-9);
    assert_int_equal(mode->links.count, 2);
    assert_float_equal(mode->links.rows[0].bytes, 5, 0);
    assert_float_equal(mode->links.rows[1].bytes, 6, 0);
    yoke_report_clear(&report);
}

static void streams_of_a_gpu_are_no_devices(void **state) {
    (void)state;
    yoke_report report =
        read_text("{\"traceEvents\":[" NAMED(1, "cuda:0") "," NAMED(2, "cuda:1") "," NAMED(
            3, "cuda:0 · copy") "," NAMED(7, "cuda:0 · host") "," SPAN("step", 7, 0, 10000,
                                                                       "") "]}");
    assert_int_equal(report.modes[0].lane_count, 4);
    assert_int_equal(report.modes[0].devices, 2);
    yoke_report_clear(&report);
}

/* Its copies behind backward cost nothing, those after it do; they stay lanes of the timeline. */
static void what_runs_beside_a_gpu_is_time_of_the_gpu(void **state) {
    (void)state;
    yoke_report report =
        read_text("{\"traceEvents\":[" NAMED(1, "cuda:0") "," NAMED(3, "cuda:0 · copy") "," SPAN(
            "step", 1, 0, 10000, "") "," SPAN("backward", 1, 0, 6000,
                                              "") "," SPAN("exchange", 3, 4000, 5000, "") "]}");
    const yoke_report_lane *lanes = report.modes[0].lanes;
    assert_float_equal(lanes[0].stage_ms[YOKE_STAGE_BACKWARD], 6, 1e-9);
    assert_float_equal(lanes[0].stage_ms[YOKE_STAGE_EXCHANGE], 3, 1e-9);
    assert_float_equal(lanes[0].stage_ms[YOKE_STAGE_IDLE], 1, 1e-9);
    assert_int_equal(lanes[1].span_count, 3);
    assert_int_equal(lanes[1].spans[1].span.begin_ns, 4000000);
    assert_int_equal(lanes[1].spans[1].span.end_ns, 9000000);
    yoke_report_clear(&report);
}

static void an_all_reduce_behind_backward_does_not_count(void **state) {
    (void)state;
    yoke_report report = read_text(HEAD SPAN("step", 0, 0, 10000, "") "," SPAN(
        "backward", 0, 0, 8000, "") "," SPAN("all_reduce", 0, 4000, 5000, "") "]}");
    const double *ms = report.modes[0].lanes[1].stage_ms;
    assert_float_equal(ms[YOKE_STAGE_BACKWARD], 8, 1e-9);
    assert_float_equal(ms[YOKE_STAGE_ALL_REDUCE], 1, 1e-9);
    assert_float_equal(ms[YOKE_STAGE_IDLE], 1, 1e-9);
    yoke_report_clear(&report);
}

/* A run that goes on without cpu:0 does step 4 again, by another engine. */
#define OF_ENGINE(number, pid, tid, name)                                                          \
    "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":" #pid ",\"tid\":" #tid                        \
    ",\"args\":{\"name\":\"" name "\",\"engine\":" #number "}}"
#define SPAN_OF(name, pid, tid, step, ts, dur, more)                                               \
    "{\"ph\":\"X\",\"name\":\"" name "\",\"pid\":" #pid ",\"tid\":" #tid ",\"ts\":" #ts            \
    ",\"dur\":" #dur ",\"args\":{\"step\":" #step ",\"bytes\":1024" more "}}"
#define MARK(text)                                                                                 \
    "{\"ph\":\"i\",\"s\":\"g\",\"cat\":\"run\",\"name\":\"" text "\",\"pid\":2,\"tid\":1,\"ts\":"  \
    "9}"
#define WENT_ON(last_engine)                                                                                 \
    "{\"traceEvents\":[" NAMED(1, "cpu:0") "," NAMED(2, "cpu:1") "," NAMED(3, "cpu:2") "," OF_ENGINE(        \
        1, 2, 1,                                                                                             \
        "cpu:1") "," OF_ENGINE(1, 2, 2,                                                                      \
                               "cpu:2") "," MARK("lost cpu:0 after step 4: it burns. 2 of 3 "                \
                                                 "devices go on from step "                                  \
                                                 "3") "," SPAN_OF("step", 1, 1, 3, 0, 1000,                  \
                                                                  "") "," SPAN_OF("step", 1, 1, 4,           \
                                                                                  1000, 1000,                \
                                                                                  "") "," SPAN_OF("forward", \
                                                                                                  1,         \
                                                                                                  2,         \
                                                                                                  4,         \
                                                                                                  1000,      \
                                                                                                  1000,      \
                                                                                                  "")        \
        last_engine "]}"
#define ITS_STEPS                                                                                  \
    "," SPAN_OF("step", 2, 1, 3, 3000, 2000, "") "," SPAN_OF(                                      \
        "step", 2, 1, 4, 5000, 2000,                                                               \
        "") "," SPAN_OF("forward", 2, 2, 4, 5000, 2000,                                            \
                        "") "," SPAN_OF("wait", 2, 1, 4, 5000, 2000,                               \
                                        ",\"cause\":\"cpu:2\",\"cause_stage\":\"gather\"")

static void a_run_that_lost_a_device_shows_the_engine_that_went_on(void **state) {
    (void)state;
    yoke_report report = read_text(WENT_ON(ITS_STEPS));
    const yoke_report_mode *mode = &report.modes[0];
    assert_int_equal(mode->lane_count, 2);
    assert_int_equal(mode->devices, 2);
    assert_string_equal(mode->lanes[0].name, "cpu:1");
    assert_string_equal(mode->lanes[1].name, "cpu:2");
    assert_int_equal(mode->steps, 1); /* its first step warms up */
    assert_float_equal(mode->mean_step_ms, 2, 1e-9);
    assert_float_equal(mode->lanes[0].stage_ms[YOKE_STAGE_WAIT], 2, 1e-9);
    assert_float_equal(mode->lanes[1].stage_ms[YOKE_STAGE_FORWARD], 2, 1e-9);
    assert_int_equal(mode->lanes[0].spans[0].cause_lane, 1); /* not the first engine's cpu:2 */
    assert_int_equal(mode->lanes[0].spans[0].cause_stage, YOKE_STAGE_GATHER);
    assert_int_equal(mode->moved.count, 2); /* wait and forward */
    for (int i = 0; i < 2; i++)
        assert_float_equal(mode->moved.rows[i].bytes, 1024, 0);
    assert_int_equal(report.note_count, 2);
    assert_string_equal(report.notes[0], "file.json: lost cpu:0 after step 4: it burns. 2 of 3 "
                                         "devices go on from step 3.");
    assert_string_equal(report.notes[1],
                        "file.json: figures show step 4, counted from 0, of 2 devices.");
    yoke_report_clear(&report);
}

/* The run ended before the second engine came to the end of a step. */
static void an_engine_without_a_whole_step_leaves_the_page_to_the_one_before(void **state) {
    (void)state;
    yoke_report report = read_text(WENT_ON("," SPAN_OF("forward", 2, 2, 5, 5000, 2000, "")));
    const yoke_report_mode *mode = &report.modes[0];
    assert_int_equal(mode->devices, 3);
    assert_float_equal(mode->mean_step_ms, 1, 1e-9);
    assert_float_equal(mode->lanes[1].stage_ms[YOKE_STAGE_FORWARD], 1, 1e-9);
    assert_string_equal(report.notes[1],
                        "file.json: figures show step 4, counted from 0, of 3 devices.");
    yoke_report_clear(&report);
}

/* Other tools' instants are no marks. */
static void a_page_names_so_many_changes_of_a_run_and_counts_the_others(void **state) {
    (void)state;
    yoke_report report = read_text(
        "{\"traceEvents\":[" MARK("1") "," MARK("2") "," MARK("3") "," MARK("4") "," MARK("5") "," MARK("6") "," MARK("7") "," MARK("8") "," MARK("9") "," MARK("10") "," MARK("11") "," MARK(
            "12") "," MARK("13") "," MARK("14") "," MARK("15") "," MARK("16") "," MARK("17") "," MARK("18") ",{"
                                                                                                            "\"ph"
                                                                                                            "\":"
                                                                                                            "\"i\""
                                                                                                            ",\"na"
                                                                                                            "me\":"
                                                                                                            "\"oth"
                                                                                                            "er\"}"
                                                                                                            "," SPAN(
                                                                                                                "step",
                                                                                                                0,
                                                                                                                0,
                                                                                                                10000,
                                                                                                                "") "]}");
    assert_int_equal(report.note_count, 16 + 2);
    assert_string_equal(report.notes[15], "file.json: 16.");
    assert_string_equal(report.notes[16], "file.json: 2 more such changes.");
    yoke_report_clear(&report);
}

static void a_trace_cut_anywhere_is_read_as_far_as_it_goes(void **state) {
    (void)state;
    size_t whole = strlen(trace) - 1, read = 0; /* the last brace says nothing */
    for (size_t bytes = 0; bytes < whole; bytes++) {
        yoke_report report = {0};
        yoke_status status = yoke_report_read(&report, "file.json", trace, bytes);
        if (status == YOKE_OK) {
            read++;
            assert_int_equal(report.note_count, 1);
            assert_non_null(strstr(report.notes[0], "cut short"));
            assert_float_equal(report.modes[0].mean_step_ms, 10, 1e-9);
        } else {
            assert_int_equal(status, YOKE_ERROR_DATA);
            assert_non_null(strstr(yoke_last_error(), "file.json"));
        }
        yoke_report_clear(&report);
    }
    assert_true(read > whole / 2); /* from the end of the step's span on */
}

static const char metrics[] =
    "{\"step\":1,\"epoch\":0,\"loss\":2.5,\"lr\":0.05,\"rows\":64,\"step_ms\":56.0}\n"
    "{\"step\":2,\"epoch\":0,\"loss\":2.25,\"lr\":0.05,\"rows\":64,\"step_ms\":64.0}\n"
    "{\"step\":2,\"epoch\":0,\"accuracy\":0.125,\"loss\":2.0,\"rows\":1000}\n";

static void metrics_become_curves(void **state) {
    (void)state;
    yoke_report report = read_text(metrics);
    const yoke_report_points *curves = report.modes[0].curves;
    assert_int_equal(report.note_count, 0);
    assert_int_equal(curves[YOKE_REPORT_LOSS].count, 2);
    assert_float_equal(curves[YOKE_REPORT_LOSS].points[1].value, 2.25, 0);
    assert_int_equal(curves[YOKE_REPORT_TEST_LOSS].count, 1);
    assert_float_equal(curves[YOKE_REPORT_ACCURACY].points[0].value, 12.5, 0);
    assert_float_equal(curves[YOKE_REPORT_ACCURACY].points[0].step, 2, 0);
    yoke_report_clear(&report);
}

static void metrics_that_end_in_a_line_are_read_up_to_it(void **state) {
    (void)state;
    yoke_report report = {0};
    size_t bytes = strlen(metrics) - 20;
    assert_int_equal(yoke_report_read(&report, "m.jsonl", metrics, bytes), YOKE_OK);
    assert_int_equal(report.modes[0].curves[YOKE_REPORT_LOSS].count, 2);
    assert_int_equal(report.modes[0].curves[YOKE_REPORT_TEST_LOSS].count, 0);
    assert_int_equal(report.note_count, 1);
    yoke_report_clear(&report);
}

static void curves_that_no_axis_can_resolve_make_a_page(void **state) {
    (void)state;
    yoke_report report = read_text("{\"step\":9223372036854774784,\"lr\":1,\"loss\":1e17}\n"
                                   "{\"step\":9223372036854775807,\"lr\":1e-308,\"loss\":"
                                   "100000000000000016.0}\n");
    char *page;
    size_t bytes;
    assert_int_equal(yoke_report_page(&report, &page, &bytes), YOKE_OK);
    assert_true(bytes < 100000);
    free(page);
    yoke_report_clear(&report);
}

static void files_of_another_kind_are_refused_by_name(void **state) {
    (void)state;
    static const char *const texts[] = {
        "", "{}", "PNG", "[1,2]", "{\"traceEvents\":[]}", "null", "{\"loss\":1}\n", "[[[[[["};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        yoke_report report = {0};
        assert_int_equal(yoke_report_read(&report, "some.txt", texts[i], strlen(texts[i])),
                         YOKE_ERROR_DATA);
        assert_non_null(strstr(yoke_last_error(), "some.txt"));
        yoke_report_clear(&report);
    }
}

static void every_stage_has_a_source_file_that_exists(void **state) {
    (void)state;
    for (int stage = 0; stage < YOKE_STAGE_COUNT; stage++) {
        char path[512];
        char source[YOKE_TEXT_BYTES];
        yoke_words("stage", yoke_stage_name((yoke_stage)stage), source);
        assert_true(source[0] != '\0');
        snprintf(path, sizeof path, "%s/%s", YOKE_SOURCE_DIR, source);
        assert_true(yoke_file_exists(path));
    }
}

static void a_fact_that_found_no_room_leaves_no_page(void **state) {
    (void)state;
    yoke_report report = {.failed = true};
    char *page;
    size_t bytes;
    assert_int_equal(yoke_report_page(&report, &page, &bytes), YOKE_ERROR_MEMORY);
    assert_null(page);
}

static void a_fact_without_a_value_is_left_out(void **state) {
    (void)state;
    yoke_report report = {0};
    yoke_report_add_fact(&report, "spread", "%s", "");
    yoke_report_add_fact(&report, "model", "%s", "mlp");
    assert_int_equal(report.fact_count, 1);
    assert_string_equal(report.facts[0].key, "model");
    yoke_report_clear(&report);
}

static void a_page_that_cannot_be_written_is_an_io_error(void **state) {
    (void)state;
    yoke_report report = read_text(trace);
    assert_int_equal(yoke_report_write(&report, "/nowhere/page.html"), YOKE_ERROR_IO);
    assert_non_null(strstr(yoke_last_error(), "/nowhere/page.html"));
    yoke_report_clear(&report);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_of_every_lane_add_up_to_the_step),
        cmocka_unit_test(an_inner_span_of_communication_behind_computation_does_not_count),
        cmocka_unit_test(a_gap_is_idle_and_names_the_lane_that_works),
        cmocka_unit_test(a_cause_that_the_file_names_counts),
        cmocka_unit_test(an_evaluation_before_the_step_moves_no_bytes_in_it),
        cmocka_unit_test(bytes_over_links_are_those_that_the_file_names),
        cmocka_unit_test(a_link_is_a_lane_of_what_it_carries),
        cmocka_unit_test(streams_of_a_gpu_are_no_devices),
        cmocka_unit_test(what_runs_beside_a_gpu_is_time_of_the_gpu),
        cmocka_unit_test(an_all_reduce_behind_backward_does_not_count),
        cmocka_unit_test(a_run_that_lost_a_device_shows_the_engine_that_went_on),
        cmocka_unit_test(an_engine_without_a_whole_step_leaves_the_page_to_the_one_before),
        cmocka_unit_test(a_page_names_so_many_changes_of_a_run_and_counts_the_others),
        cmocka_unit_test(a_trace_cut_anywhere_is_read_as_far_as_it_goes),
        cmocka_unit_test(metrics_become_curves),
        cmocka_unit_test(metrics_that_end_in_a_line_are_read_up_to_it),
        cmocka_unit_test(curves_that_no_axis_can_resolve_make_a_page),
        cmocka_unit_test(files_of_another_kind_are_refused_by_name),
        cmocka_unit_test(every_stage_has_a_source_file_that_exists),
        cmocka_unit_test(a_fact_that_found_no_room_leaves_no_page),
        cmocka_unit_test(a_fact_without_a_value_is_left_out),
        cmocka_unit_test(a_page_that_cannot_be_written_is_an_io_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
