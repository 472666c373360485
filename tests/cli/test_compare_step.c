/* SPDX-License-Identifier: Apache-2.0 */
/* The recorded step of a comparison: which one it is, and its parts on every rank. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cli/compare/compare_step.h"
#include "trace/trace.h"

enum { LANES = 2, US = 1000 };
static const char *const names[] = {"cpu:0", "cpu:1"};

static yoke_trace *start(uint32_t capacity) {
    yoke_trace *trace = NULL;
    yoke_trace_options options = {.lanes = names, .lane_count = LANES, .capacity = capacity};
    assert_int_equal(yoke_trace_create(&trace, &options), YOKE_OK);
    return trace;
}

static void put(yoke_trace *trace, int lane, yoke_stage stage, uint64_t step, uint64_t begin_us,
                uint64_t end_us, uint64_t bytes) {
    yoke_span span = {.begin_ns = begin_us * US,
                      .end_ns = end_us * US,
                      .step = step,
                      .bytes = bytes,
                      .stage = stage};
    yoke_trace_past_span(trace, lane, &span);
}

static void expect(double found, double wanted) {
    if (fabs(found - wanted) > 1e-9) fail_msg("%.12g, expected %.12g", found, wanted);
}

static compare_step read_step(const yoke_trace *trace, uint64_t number, yoke_span_info *spans,
                              int capacity) {
    yoke_spans all;
    compare_step step = {.number = number, .spans = spans};
    assert_int_equal(yoke_spans_read(trace, 0, &all), YOKE_OK);
    compare_step_read(&all, &step, capacity);
    yoke_spans_free(&all);
    return step;
}

static void spans_beyond_the_room_are_counted(void **state) {
    (void)state;
    yoke_span_info spans[4];
    yoke_trace *trace = start(64);
    put(trace, 0, YOKE_STAGE_STEP, 0, 0, 4000, 0);
    put(trace, 0, YOKE_STAGE_STEP, 1, 5000, 12000, 0);
    for (uint64_t i = 0; i < 5; i++)
        put(trace, 1, YOKE_STAGE_FORWARD, 1, 5000 + i * 100, 5050 + i * 100, 0);
    compare_step step = read_step(trace, 1, spans, 4);
    assert_int_equal(step.count, 4);
    assert_int_equal(step.left_out, 1);
    expect(step.milliseconds, 7);
    assert_int_equal(read_step(trace, 2, spans, 4).count, 0); /* no such step */
    yoke_trace_destroy(trace);
}

/* Rank 1 begins 2 ms before rank 0 and ends 3 ms after it. */
static void a_step_lasts_until_the_last_rank_ends(void **state) {
    (void)state;
    yoke_span_info spans[8], parts[2][4];
    compare_step both = {.spans = spans};
    for (uint64_t rank = 0; rank < 2; rank++) {
        yoke_trace *trace = start(64);
        uint64_t begin = 10000 - 2000 * rank, end = 20000 + 3000 * rank;
        put(trace, 0, YOKE_STAGE_STEP, 7, begin, end, 0);
        put(trace, 0, YOKE_STAGE_FORWARD, 7, begin, begin + 1000, 0);
        put(trace, 0, YOKE_STAGE_BACKWARD, 7, end - 1000, end, 0);
        compare_step part = read_step(trace, 7, parts[rank], 1 + 2 * (int)rank);
        if (rank == 0) both.begin_ns = part.begin_ns;
        compare_step_join(&both, &part, (int)rank);
        yoke_trace_destroy(trace);
    }
    assert_int_equal(both.count, 3);
    assert_int_equal(both.left_out, 1); /* rank 0 had room for one */
    assert_int_equal(both.begin_ns, 8000 * US);
    expect(both.milliseconds, 15);
    assert_int_equal(spans[2].lane, 1);
    assert_int_equal(spans[2].end_ns, both.end_ns);
}

/* Steps of 4, 9, 6 and 5 ms. */
static int list_steps(yoke_span_info *steps, int capacity) {
    yoke_trace *trace = start(64);
    yoke_spans all;
    put(trace, 0, YOKE_STAGE_STEP, 0, 0, 4000, 0);
    put(trace, 0, YOKE_STAGE_STEP, 1, 10000, 19000, 0);
    put(trace, 0, YOKE_STAGE_FORWARD, 1, 10000, 12000, 0);
    put(trace, 0, YOKE_STAGE_STEP, 2, 20000, 26000, 0);
    put(trace, 0, YOKE_STAGE_STEP, 3, 30000, 35000, 0);
    assert_int_equal(yoke_spans_read(trace, 0, &all), YOKE_OK);
    int count = compare_steps_list(&all, steps, capacity);
    yoke_spans_free(&all);
    yoke_trace_destroy(trace);
    return count;
}

static void the_step_closest_to_the_median_of_all_rounds_is_shown(void **state) {
    (void)state;
    yoke_span_info steps[8];
    int count = list_steps(steps, 8);
    assert_int_equal(count, 4);
    assert_int_equal(compare_steps_choose(steps, count, 5.9, 0), 2);
    assert_int_equal(compare_steps_choose(steps, count, 4.4, 0), 0);
    assert_int_equal(compare_steps_choose(steps, count, 5.9, 6.5),
                     1);                                              /* not below the faster one */
    assert_int_equal(compare_steps_choose(steps, count, 5.9, 20), 2); /* none takes so long */
    assert_true(compare_steps_choose(steps, 0, 5.9, 0) == COMPARE_NO_STEP);
    assert_int_equal(list_steps(steps, 3), 3); /* the last ones */
    assert_int_equal(compare_steps_choose(steps, 3, 4, 0), 3);
}

/* Of the second rank steps 1, 2 and 7: it begins step 2 late and ends it later. */
static void a_step_of_ranks_is_as_long_as_all_of_them(void **state) {
    (void)state;
    yoke_span_info steps[8];
    const yoke_span_info others[] = {
        {.stage = YOKE_STAGE_STEP, .step = 1, .begin_ns = 11000 * US, .end_ns = 18000 * US},
        {.stage = YOKE_STAGE_STEP, .step = 2, .begin_ns = 21000 * US, .end_ns = 28000 * US},
        {.stage = YOKE_STAGE_STEP, .step = 7, .begin_ns = 70000 * US, .end_ns = 71000 * US}};
    int count = compare_steps_join(steps, list_steps(steps, 8), others, 3);
    assert_int_equal(count, 2);
    assert_int_equal(steps[0].end_ns, 19000 * US);
    assert_int_equal(steps[1].begin_ns, 20000 * US);
    assert_int_equal(steps[1].end_ns, 28000 * US);
}

/* The ring of a rank may have lost the step that rank 0 shows. */
static void a_rank_without_the_step_changes_nothing(void **state) {
    (void)state;
    compare_step step = {.begin_ns = 5000, .end_ns = 9000, .milliseconds = 4e-3}, none = {0};
    compare_step_join(&step, &none, 1);
    assert_int_equal(step.begin_ns, 5000);
    expect(step.milliseconds, 4e-3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spans_beyond_the_room_are_counted),
        cmocka_unit_test(a_step_lasts_until_the_last_rank_ends),
        cmocka_unit_test(the_step_closest_to_the_median_of_all_rounds_is_shown),
        cmocka_unit_test(a_step_of_ranks_is_as_long_as_all_of_them),
        cmocka_unit_test(a_rank_without_the_step_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
