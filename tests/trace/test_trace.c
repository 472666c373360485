/* SPDX-License-Identifier: Apache-2.0 */
/* The spans a program records come out in the stage table and in a file that timeline viewers
 * read. */
#include <jansson.h>
#include <math.h>
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
#include "trace/spans.h"

static const char *const lanes[] = {"cpu:0", "cpu:1", "cpu:2"};
enum { LANES = 3 };
/* Events of the file before the first span: two of the process, two of each lane. */
enum { HEAD = 2 + 2 * LANES };

static yoke_trace *start(uint32_t capacity) {
    yoke_trace *trace = NULL;
    yoke_trace_options options = {.lanes = lanes, .lane_count = LANES, .capacity = capacity};
    if (yoke_trace_create(&trace, &options) != YOKE_OK) fail_msg("%s", yoke_last_error());
    return trace;
}

/* A span of known times: recorded as usual, its clock readings replaced. */
static void put(yoke_trace *trace, int lane, yoke_stage stage, uint64_t step, uint64_t begin_us,
                uint64_t end_us) {
    yoke_lane *own = &trace->lanes[lane];
    yoke_trace_span(trace, lane, stage, step, begin_us * 1000, 0);
    own->spans[(own->recorded - 1) % trace->capacity].end_ns = end_us * 1000;
}

static void put_bytes(yoke_trace *trace, int lane, yoke_stage stage, uint64_t step,
                      uint64_t length_us, uint64_t bytes) {
    yoke_lane *own = &trace->lanes[lane];
    yoke_trace_span(trace, lane, stage, step, 1000000, bytes);
    own->spans[(own->recorded - 1) % trace->capacity].end_ns = 1000000 + length_us * 1000;
}

static int summarize(const yoke_trace *trace, yoke_stage_summary rows[YOKE_STAGE_COUNT]) {
    memset(rows, 0, YOKE_STAGE_COUNT * sizeof *rows);
    rows[0].struct_size = sizeof *rows;
    return yoke_trace_summarize(trace, rows, YOKE_STAGE_COUNT);
}

static void assert_near(double value, double expected) {
    if (fabs(value - expected) > 1e-9 * fabs(expected)) fail_msg("%.17g != %.17g", value, expected);
}

static void stages_have_names(void **state) {
    (void)state;
    assert_string_equal(yoke_stage_name(YOKE_STAGE_LOAD), "load");
    assert_string_equal(yoke_stage_name(YOKE_STAGE_EVALUATE), "evaluate");
    assert_string_equal(yoke_stage_name(YOKE_STAGE_COUNT), "unknown stage");
}

static void a_span_lasts_from_begin_to_now(void **state) {
    (void)state;
    yoke_trace *trace = start(4);
    uint64_t begin = yoke_trace_now();
    usleep(2000);
    yoke_trace_span(trace, 1, YOKE_STAGE_FORWARD, 9, begin, 123);
    uint64_t after = yoke_trace_now();
    assert_int_equal(yoke_lane_count(trace, 0), 0);
    assert_int_equal(yoke_lane_count(trace, 1), 1);
    const yoke_span *span = yoke_lane_span(trace, 1, 0);
    assert_true(span->begin_ns == begin);
    assert_true(span->end_ns >= begin + 2000000 && span->end_ns <= after);
    assert_int_equal(span->step, 9);
    assert_int_equal(span->bytes, 123);
    assert_int_equal(span->stage, YOKE_STAGE_FORWARD);
    yoke_trace_destroy(trace);
}

static void no_trace_records_nothing_and_harms_nobody(void **state) {
    (void)state;
    yoke_trace_span(NULL, 0, YOKE_STAGE_LOAD, 0, 0, 0);
    yoke_trace_reset(NULL);
    yoke_trace_destroy(NULL);
    yoke_stage_summary row = {.struct_size = sizeof row};
    assert_int_equal(yoke_trace_summarize(NULL, &row, 1), 0);
    assert_int_equal(yoke_trace_save(NULL, "/tmp/absent"), YOKE_ERROR_ARGUMENT);
}

static void a_step_takes_as_long_as_its_slowest_lane(void **state) {
    (void)state;
    yoke_trace *trace = start(64);
    /* Step 0: lane 0 is slowest with two spans; step 1: lane 2; step 2: lane 1. */
    static const uint64_t forward_us[3][LANES] = {{300, 500, 400}, {100, 100, 900}, {10, 700, 20}};
    for (uint64_t step = 0; step < 3; step++) {
        for (int lane = 0; lane < LANES; lane++)
            put_bytes(trace, lane, YOKE_STAGE_FORWARD, step, forward_us[step][lane], 0);
        put_bytes(trace, 0, YOKE_STAGE_STEP, step, 1000 * (step + 1), 0);
    }
    put(trace, 0, YOKE_STAGE_FORWARD, 0, 2000, 2350); /* 650 in all */

    yoke_stage_summary rows[YOKE_STAGE_COUNT];
    assert_int_equal(summarize(trace, rows), 2);
    assert_int_equal(rows[0].stage, YOKE_STAGE_FORWARD);
    assert_int_equal(rows[0].count, 3);
    assert_near(rows[0].median_ms, 0.7); /* of 650, 900 and 700 us */
    assert_near(rows[0].share, (650 + 900 + 700) / 6000.0);
    assert_true(rows[0].bytes == 0 && rows[0].gigabytes_per_second == 0);
    assert_int_equal(rows[1].stage, YOKE_STAGE_STEP);
    assert_near(rows[1].median_ms, 2);
    assert_near(rows[1].share, 1);
    yoke_trace_destroy(trace);
}

static void bandwidth_is_all_lanes_bytes_over_the_slowest_lanes_time(void **state) {
    (void)state;
    yoke_trace *trace = start(64);
    for (uint64_t step = 0; step < 2; step++)
        for (int lane = 0; lane < LANES; lane++)
            put_bytes(trace, lane, YOKE_STAGE_EXCHANGE, step, 1000 + 1000 * (lane == 1),
                      step == 0 ? 2000000 : 4000000);
    yoke_stage_summary rows[YOKE_STAGE_COUNT];
    assert_int_equal(summarize(trace, rows), 1);
    assert_near(rows[0].median_ms, 2);
    assert_near(rows[0].bytes, 9e6);
    assert_near(rows[0].gigabytes_per_second, 4.5);
    assert_true(rows[0].share == 0); /* no step to be a share of */
    yoke_trace_destroy(trace);
}

/* Its time is that which backward leaves over; its rate that of the transfer. */
static void an_exchange_behind_backward_costs_nothing_and_has_the_rate_of_its_span(void **state) {
    (void)state;
    yoke_trace *trace = start(64);
    put(trace, 0, YOKE_STAGE_BACKWARD, 0, 1000, 4000);
    put_bytes(trace, 0, YOKE_STAGE_EXCHANGE, 0, 2000, 6000000);
    put(trace, 0, YOKE_STAGE_BACKWARD, 1, 1000, 4000);
    put_bytes(trace, 0, YOKE_STAGE_EXCHANGE, 1, 4000, 6000000);
    yoke_stage_summary rows[YOKE_STAGE_COUNT];
    assert_int_equal(summarize(trace, rows), 2);
    assert_near(rows[0].median_ms, 3);
    assert_int_equal(rows[1].stage, YOKE_STAGE_EXCHANGE);
    assert_int_equal(rows[1].count, 2);
    assert_near(rows[1].median_ms, 0.5); /* of 0 and 1 ms */
    assert_near(rows[1].gigabytes_per_second, 2);
    yoke_trace_destroy(trace);
}

/* Ranks on CPUs: the span posts the all-reduce, and the bytes move beside it, perhaps over a link
 * that is a thousand times slower. */
static void bytes_that_move_beside_their_spans_have_no_rate(void **state) {
    (void)state;
    yoke_trace *trace = start(64);
    put_bytes(trace, 0, YOKE_STAGE_ALL_REDUCE, 0, 10, 6000000);
    put_bytes(trace, 0, YOKE_STAGE_WAIT, 0, 20, 6000000);
    yoke_stage_summary rows[YOKE_STAGE_COUNT];
    assert_int_equal(summarize(trace, rows), 2);
    for (int i = 0; i < 2; i++) {
        assert_near(rows[i].bytes, 6e6);
        assert_true(rows[i].gigabytes_per_second == 0);
    }
    yoke_trace_destroy(trace);
}

static void beside_modelled_links_only_their_bytes_have_a_rate(void **state) {
    (void)state;
    yoke_trace *trace = start(64);
    put_bytes(trace, 0, YOKE_STAGE_UPDATE, 0, 1, 60000);
    yoke_trace_past_span(trace, 1,
                         &(yoke_span){.begin_ns = 3000000,
                                      .end_ns = 5000000,
                                      .bytes = 600000,
                                      .received = 600000,
                                      .stage = YOKE_STAGE_REDUCE});
    yoke_stage_summary rows[YOKE_STAGE_COUNT];
    assert_int_equal(summarize(trace, rows), 2);
    assert_near(rows[0].gigabytes_per_second, 0.3);
    assert_true(rows[1].bytes == 60000 && rows[1].gigabytes_per_second == 0);
    yoke_trace_destroy(trace);
}

static void stages_of_an_evaluation_are_no_part_of_a_step(void **state) {
    (void)state;
    yoke_trace *trace = start(64);
    put(trace, 1, YOKE_STAGE_FORWARD, 0, 1000, 1100);
    put(trace, 0, YOKE_STAGE_STEP, 0, 1000, 2000);
    for (uint64_t begin = 3000; begin < 5000; begin += 1000) { /* two batches evaluated */
        put(trace, 1, YOKE_STAGE_FORWARD, 1, begin + 1, begin + 900);
        put(trace, 0, YOKE_STAGE_EVALUATE, 1, begin, begin + 1000);
    }
    put(trace, 1, YOKE_STAGE_FORWARD, 1, 5000, 5300);
    put(trace, 0, YOKE_STAGE_STEP, 1, 5000, 6000);

    yoke_stage_summary rows[YOKE_STAGE_COUNT];
    assert_int_equal(summarize(trace, rows), 3);
    assert_int_equal(rows[0].stage, YOKE_STAGE_FORWARD);
    assert_near(rows[0].median_ms, 0.2);
    assert_near(rows[0].share, 0.2);
    assert_int_equal(rows[2].stage, YOKE_STAGE_EVALUATE);
    assert_near(rows[2].median_ms, 2);
    yoke_trace_destroy(trace);
}

static void an_even_count_has_its_median_in_the_middle(void **state) {
    (void)state;
    yoke_trace *trace = start(64);
    static const uint64_t lengths_us[] = {400, 100, 200, 9000};
    for (uint64_t step = 0; step < 4; step++)
        put_bytes(trace, 0, YOKE_STAGE_REDUCE, step, lengths_us[step], 0);
    yoke_stage_summary rows[YOKE_STAGE_COUNT];
    assert_int_equal(summarize(trace, rows), 1);
    assert_near(rows[0].median_ms, 0.3);
    yoke_trace_destroy(trace);
}

static void a_full_ring_forgets_whole_steps_oldest_first(void **state) {
    (void)state;
    yoke_trace *trace = start(10);
    /* Lane 0 has three spans a step and keeps the last ten: of step 6 only one. */
    for (uint64_t step = 0; step < 10; step++) {
        for (uint64_t i = 0; i < 3; i++)
            put(trace, 0, YOKE_STAGE_BACKWARD, step, 1000 + 200 * i, 1100 + 200 * i);
        put_bytes(trace, 1, YOKE_STAGE_BACKWARD, step, 50, 0);
    }
    assert_int_equal(yoke_lane_count(trace, 0), 10);
    assert_int_equal(yoke_lane_span(trace, 0, 0)->step, 6);
    assert_int_equal(yoke_lane_span(trace, 0, 9)->step, 9);
    yoke_stage_summary rows[YOKE_STAGE_COUNT];
    assert_int_equal(summarize(trace, rows), 1);
    assert_int_equal(rows[0].count, 3);
    assert_near(rows[0].median_ms, 0.3);
    yoke_trace_destroy(trace);
}

static void reset_forgets_everything(void **state) {
    (void)state;
    yoke_trace *trace = start(2);
    for (uint64_t step = 0; step < 5; step++)
        put_bytes(trace, 0, YOKE_STAGE_LOSS, step, 10, 0);
    yoke_trace_reset(trace);
    yoke_stage_summary rows[YOKE_STAGE_COUNT];
    assert_int_equal(summarize(trace, rows), 0);
    put_bytes(trace, 0, YOKE_STAGE_LOSS, 6, 10, 0);
    assert_int_equal(summarize(trace, rows), 1);
    assert_int_equal(rows[0].count, 1);
    yoke_trace_destroy(trace);
}

static void rows_fit_the_callers_capacity_and_age(void **state) {
    (void)state;
    yoke_trace *trace = start(16);
    put_bytes(trace, 0, YOKE_STAGE_LOAD, 0, 10, 0);
    put_bytes(trace, 0, YOKE_STAGE_GATHER, 0, 20, 0);
    put_bytes(trace, 0, YOKE_STAGE_STEP, 0, 100, 0);
    yoke_stage_summary rows[3] = {{.struct_size = sizeof rows[0]}};
    assert_int_equal(yoke_trace_summarize(trace, rows, 2), 2);
    assert_int_equal(rows[1].stage, YOKE_STAGE_GATHER);
    assert_int_equal(rows[2].struct_size, 0);

    /* A caller that knows rows up to median_ms only. */
    struct {
        size_t struct_size;
        yoke_stage stage;
        size_t count;
        double median_ms;
    } old[3] = {{.struct_size = sizeof old[0]}};
    assert_int_equal(yoke_trace_summarize(trace, (yoke_stage_summary *)old, 3), 3);
    assert_int_equal(old[2].stage, YOKE_STAGE_STEP);
    assert_near(old[2].median_ms, 0.1);
    yoke_trace_destroy(trace);
}

static char path[64];

static json_t *write_and_read(const yoke_trace *trace) {
    strcpy(path, "/tmp/yoke-trace-XXXXXX");
    int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    close(descriptor);
    if (yoke_trace_save(trace, path) != YOKE_OK) fail_msg("%s", yoke_last_error());
    json_error_t error;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    unlink(path);
    if (root == NULL) fail_msg("%s at byte %d", error.text, error.position);
    return root;
}

static const char *text_of(const json_t *object, const char *key) {
    return json_string_value(json_object_get(object, key));
}

static double number_of(const json_t *object, const char *key) {
    return json_number_value(json_object_get(object, key));
}

static void the_file_has_one_named_thread_a_lane(void **state) {
    (void)state;
    yoke_trace *trace = start(16);
    json_t *root = write_and_read(trace);
    const json_t *events = json_object_get(root, "traceEvents");
    assert_int_equal(json_array_size(events), HEAD);
    for (size_t lane = 0; lane < LANES; lane++) {
        const json_t *event = json_array_get(events, 2 + 2 * lane);
        assert_string_equal(text_of(event, "ph"), "M");
        assert_string_equal(text_of(event, "name"), "thread_name");
        assert_true(number_of(event, "pid") == 1);
        assert_true(number_of(event, "tid") == (double)lane + 1); /* 0 is a viewer's idle thread */
        assert_string_equal(text_of(json_object_get(event, "args"), "name"), lanes[lane]);
        assert_string_equal(text_of(json_array_get(events, 3 + 2 * lane), "name"),
                            "thread_sort_index");
    }
    json_decref(root);
    yoke_trace_destroy(trace);
}

static void a_span_is_a_complete_event_in_microseconds(void **state) {
    (void)state;
    yoke_trace *trace = start(16);
    put(trace, 0, YOKE_STAGE_SCATTER, 4, 5000, 5010);
    yoke_trace_span(trace, 2, YOKE_STAGE_REDUCE, 4, 5003500, 64);
    trace->lanes[2].spans[0].end_ns = 5004750;
    json_t *root = write_and_read(trace);
    const json_t *events = json_object_get(root, "traceEvents");
    assert_int_equal(json_array_size(events), HEAD + 2);
    const json_t *scatter = json_array_get(events, HEAD);
    assert_string_equal(text_of(scatter, "ph"), "X");
    assert_string_equal(text_of(scatter, "name"), "scatter");
    assert_true(number_of(scatter, "ts") == 0); /* the first span is the origin */
    assert_true(number_of(scatter, "dur") == 10);
    const json_t *reduce = json_array_get(events, HEAD + 1);
    assert_string_equal(text_of(reduce, "name"), "reduce");
    assert_true(number_of(reduce, "tid") == 3);
    assert_true(number_of(reduce, "ts") == 3.5);
    assert_true(number_of(reduce, "dur") == 1.25);
    assert_true(number_of(json_object_get(reduce, "args"), "step") == 4);
    assert_true(number_of(json_object_get(reduce, "args"), "bytes") == 64);
    json_decref(root);
    yoke_trace_destroy(trace);
}

/* Viewers keep a stack per thread: in file order, a span must lie inside the one it begins in. */
static void assert_nested(const json_t *events, int lane) {
    double ends[8];
    size_t depth = 0;
    double last = 0;
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i);
        if (text_of(event, "ph")[0] != 'X' || number_of(event, "tid") != lane + 1) continue;
        double begin = number_of(event, "ts"), end = begin + number_of(event, "dur");
        assert_true(begin >= last);
        last = begin;
        while (depth > 0 && begin >= ends[depth - 1])
            depth--;
        assert_true(depth == 0 || end <= ends[depth - 1]);
        assert_true(depth < 8);
        ends[depth++] = end;
    }
}

static void spans_of_a_lane_nest_though_recorded_from_the_inside(void **state) {
    (void)state;
    yoke_trace *trace = start(6);
    for (uint64_t step = 0; step < 5; step++) {
        uint64_t begin = 1000 * step;
        /* The first stage begins in the very moment of its step. */
        put(trace, 0, YOKE_STAGE_FORWARD, step, begin, begin + 400);
        put(trace, 0, YOKE_STAGE_BACKWARD, step, begin + 400, begin + 900);
        put(trace, 0, YOKE_STAGE_STEP, step, begin, begin + 1000);
    }
    json_t *root = write_and_read(trace);
    const json_t *events = json_object_get(root, "traceEvents");
    assert_int_equal(json_array_size(events), HEAD + 6);
    assert_string_equal(text_of(json_array_get(events, HEAD), "name"), "step");
    assert_nested(events, 0);
    json_decref(root);
    yoke_trace_destroy(trace);
}

static void a_long_trace_is_written_whole(void **state) {
    (void)state;
    yoke_trace *trace = start(5000);
    for (uint64_t i = 0; i < 5000; i++)
        put(trace, 1, YOKE_STAGE_LOSS, i, 10 * i, 10 * i + 3);
    json_t *root = write_and_read(trace);
    const json_t *events = json_object_get(root, "traceEvents");
    assert_int_equal(json_array_size(events), HEAD + 5000);
    assert_nested(events, 1);
    const json_t *last = json_array_get(events, HEAD + 4999);
    assert_true(number_of(json_object_get(last, "args"), "step") == 4999);
    json_decref(root);
    yoke_trace_destroy(trace);
}

static void a_file_that_cannot_be_written_is_named(void **state) {
    (void)state;
    yoke_trace *trace = start(16);
    put(trace, 0, YOKE_STAGE_LOSS, 0, 0, 1);
    assert_int_equal(yoke_trace_save(trace, "/absent/trace.json"), YOKE_ERROR_IO);
    assert_non_null(strstr(yoke_last_error(), "/absent/trace.json"));
    char folder[] = "/tmp/yoke-trace-XXXXXX", full[64];
    assert_non_null(mkdtemp(folder));
    snprintf(full, sizeof full, "%s/trace.json", folder);
    assert_int_equal(symlink("/dev/full", full), 0);
    yoke_status status = yoke_trace_save(trace, full);
    unlink(full);
    rmdir(folder);
    assert_int_equal(status, YOKE_ERROR_IO);
    assert_non_null(strstr(yoke_last_error(), full));
    yoke_trace_destroy(trace);
}

static void a_trace_without_lanes_is_refused(void **state) {
    (void)state;
    yoke_trace *trace = NULL;
    yoke_trace_options options = {.lanes = lanes, .lane_count = 0};
    assert_int_equal(yoke_trace_create(&trace, &options), YOKE_ERROR_ARGUMENT);
    assert_null(trace);
}

static void programs_read_the_spans_of_whole_steps(void **state) {
    (void)state;
    yoke_span_info spans[8] = {{.struct_size = sizeof spans[0]}};
    yoke_trace *trace = start(3);
    assert_int_equal(yoke_trace_read(NULL, NULL, 0), 0);
    assert_int_equal(yoke_trace_read(trace, NULL, 0), 0);
    put(trace, 0, YOKE_STAGE_FORWARD, 1, 0, 5);
    put(trace, 0, YOKE_STAGE_STEP, 1, 0, 9);
    put(trace, 0, YOKE_STAGE_FORWARD, 2, 10, 15);
    put_bytes(trace, 0, YOKE_STAGE_STEP, 2, 9, 77); /* overwrites a span of step 1 */
    yoke_trace_past_span(
        trace, 2,
        &(yoke_span){
            .step = 2, .stage = YOKE_STAGE_WAIT, .bucket = 3, .awaits = YOKE_STAGE_BACKWARD});
    assert_int_equal(yoke_trace_read(trace, NULL, 0), 3);
    assert_int_equal(yoke_trace_read(trace, spans, 8), 3);
    assert_int_equal(spans[0].stage, YOKE_STAGE_FORWARD);
    assert_true(spans[0].begin_ns == 10000 && spans[0].end_ns == 15000 && spans[0].step == 2);
    assert_int_equal(spans[1].bytes, 77);
    assert_int_equal(spans[2].lane, 2);
    assert_int_equal(spans[2].bucket, 3);
    assert_int_equal(spans[2].awaits, YOKE_STAGE_BACKWARD);
    assert_int_equal(spans[1].bucket, -1);
    assert_int_equal(spans[1].awaits, YOKE_STAGE_COUNT);
    spans[1].lane = 9;
    assert_int_equal(yoke_trace_read(trace, spans, 1), 3);
    assert_int_equal(spans[1].lane, 9);
    yoke_trace_destroy(trace);
}

static void programs_read_the_last_steps_alone(void **state) {
    (void)state;
    yoke_trace *trace = start(16);
    yoke_span_info spans[32] = {{.struct_size = sizeof spans[0]}};
    assert_int_equal(yoke_trace_read_last(NULL, 1, NULL, 0), 0);
    assert_int_equal(yoke_trace_read_last(trace, 1, NULL, 0), 0);
    for (uint64_t step = 0; step < 10; step++) {
        put(trace, 1, YOKE_STAGE_FORWARD, step, 10 * step, 10 * step + 5);
        put(trace, 0, YOKE_STAGE_FORWARD, step, 10 * step, 10 * step + 8);
        put(trace, 0, YOKE_STAGE_STEP, step, 10 * step, 10 * step + 9);
    }
    put(trace, 0, YOKE_STAGE_EVALUATE, 10, 100, 110); /* behind the last step */
    assert_int_equal(yoke_trace_read_last(trace, 2, NULL, 0), 7);
    assert_int_equal(yoke_trace_read_last(trace, 2, spans, 32), 7);
    assert_true(spans[0].step == 8 && spans[0].lane == 0);
    assert_true(spans[4].stage == YOKE_STAGE_EVALUATE);
    assert_true(spans[5].step == 8 && spans[5].lane == 1 && spans[6].step == 9);
    /* Lane 0 has lost the first steps, so they are not whole. */
    assert_int_equal(yoke_trace_read_last(trace, 99, NULL, 0), yoke_trace_read(trace, NULL, 0));
    put(trace, 0, YOKE_STAGE_LOAD, 10, 110, 120); /* a device's spans may come late */
    put(trace, 0, YOKE_STAGE_BACKWARD, 9, 96, 97);
    assert_int_equal(yoke_trace_read_last(trace, 1, NULL, 0), 6);
    yoke_trace_destroy(trace);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_have_names),
        cmocka_unit_test(a_span_lasts_from_begin_to_now),
        cmocka_unit_test(no_trace_records_nothing_and_harms_nobody),
        cmocka_unit_test(a_step_takes_as_long_as_its_slowest_lane),
        cmocka_unit_test(an_exchange_behind_backward_costs_nothing_and_has_the_rate_of_its_span),
        cmocka_unit_test(beside_modelled_links_only_their_bytes_have_a_rate),
        cmocka_unit_test(bytes_that_move_beside_their_spans_have_no_rate),
        cmocka_unit_test(bandwidth_is_all_lanes_bytes_over_the_slowest_lanes_time),
        cmocka_unit_test(stages_of_an_evaluation_are_no_part_of_a_step),
        cmocka_unit_test(an_even_count_has_its_median_in_the_middle),
        cmocka_unit_test(a_full_ring_forgets_whole_steps_oldest_first),
        cmocka_unit_test(reset_forgets_everything),
        cmocka_unit_test(rows_fit_the_callers_capacity_and_age),
        cmocka_unit_test(the_file_has_one_named_thread_a_lane),
        cmocka_unit_test(a_span_is_a_complete_event_in_microseconds),
        cmocka_unit_test(spans_of_a_lane_nest_though_recorded_from_the_inside),
        cmocka_unit_test(a_long_trace_is_written_whole),
        cmocka_unit_test(a_file_that_cannot_be_written_is_named),
        cmocka_unit_test(a_trace_without_lanes_is_refused),
        cmocka_unit_test(programs_read_the_spans_of_whole_steps),
        cmocka_unit_test(programs_read_the_last_steps_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
