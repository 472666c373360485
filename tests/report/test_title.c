/* SPDX-License-Identifier: Apache-2.0 */
/* The title of a page states a result only where the numbers say one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "report/report.h"
#include "report/sections.h"

/* Two modes on 4 devices: step times with intervals, reduce of each device, bytes over the links of
 * the root and of another device. */
typedef struct race {
    yoke_report_interval slow, fast;
    double slow_reduce, slow_wait;
    double slow_root, slow_other, fast_root;
    bool no_verdict;
} race;

static void add(yoke_report *report, const char *name, yoke_report_interval step_ms, double reduce,
                double wait, double root, double other) {
    yoke_report_mode *mode;
    yoke_report_lane *lane;
    assert_int_equal(yoke_report_add_mode(report, name, &mode), YOKE_OK);
    mode->devices = 4;
    mode->first = true;
    mode->step_ms = step_ms;
    mode->mean_step_ms = step_ms.value;
    assert_int_equal(yoke_report_add_lane(mode, "cpu:0", &lane), YOKE_OK);
    lane->stage_ms[YOKE_STAGE_FORWARD] = step_ms.value - reduce - wait;
    lane->stage_ms[YOKE_STAGE_REDUCE] = reduce;
    lane->stage_ms[YOKE_STAGE_WAIT] = wait;
    if (!(root > 0)) return;
    assert_int_equal(yoke_report_add_amount(&mode->links, "cpu:0", "out", root), YOKE_OK);
    assert_int_equal(yoke_report_add_amount(&mode->links, "cpu:1", "out", other), YOKE_OK);
}

static void expect(const race *of, const char *wanted) {
    yoke_report report = {.subject = "The subject", .no_verdict = of->no_verdict};
    char title[YOKE_TEXT_BYTES];
    add(&report, "dp classic", of->slow, of->slow_reduce, of->slow_wait, of->slow_root,
        of->slow_other);
    add(&report, "ddp", of->fast, 1, 1, of->fast_root, of->fast_root);
    assert_string_equal(yoke_page_title(&report, title), wanted);
    yoke_report_clear(&report);
}

#define APART .slow = {31.2, 30, 33}, .fast = {13, 12, 14}

static void disjoint_intervals_are_a_result_with_its_reason(void **state) {
    (void)state;
    expect(&(race){APART, .slow_root = 4e6, .slow_other = 2e6, .fast_root = 2e6},
           "dp classic 31.2 ms, ddp 13.0 ms: the root's link carries twice as much");
    expect(&(race){APART, .slow_root = 3e6, .slow_other = 3e6, .fast_root = 2e6},
           "dp classic 31.2 ms, ddp 13.0 ms: its busiest link carries 1.5 times as much");
    expect(&(race){APART, .slow_reduce = 11, .slow_root = 2e6, .slow_other = 2e6, .fast_root = 2e6},
           "dp classic 31.2 ms, ddp 13.0 ms: a device spends 10.0 ms more on reduce");
    expect(&(race){APART, .slow_wait = 13}, "dp classic 31.2 ms, ddp 13.0 ms: its devices wait "
                                            "12.0 ms longer");
}

/* The root of the slow mode spends `python` ms on Python, and 12 ms on its link. */
static void expect_cause(double python, const char *wanted) {
    yoke_report report = {.subject = "The subject"};
    char title[YOKE_TEXT_BYTES];
    add(&report, "dp python", (yoke_report_interval){45, 44, 46}, 8, 6, 4e6, 2e6);
    add(&report, "ddp", (yoke_report_interval){13, 12, 14}, 1, 1, 2e6, 2e6);
    report.modes[0].lanes[0].stage_ms[YOKE_STAGE_PYTHON] = python;
    assert_string_equal(yoke_page_title(&report, title), wanted);
    yoke_report_clear(&report);
}

static void the_title_names_what_costs_most_and_both_where_they_cost_alike(void **state) {
    (void)state;
    expect_cause(10.8, "dp python 45.0 ms, ddp 13.0 ms: the root's link carries twice as much");
    expect_cause(11, "dp python 45.0 ms, ddp 13.0 ms: the root's link carries twice as much, and "
                     "the root spends 11.0 ms more on Python");
    expect_cause(13.1, "dp python 45.0 ms, ddp 13.0 ms: the root's link carries twice as much, and "
                       "the root spends 13.1 ms more on Python");
    expect_cause(13.3, "dp python 45.0 ms, ddp 13.0 ms: the root spends 13.3 ms more on Python");
}

static void what_is_not_apart_is_no_result(void **state) {
    (void)state;
    expect(&(race){.slow = {31.2, 13, 50}, .fast = {13, 12, 14}}, "The subject");
    expect(&(race){APART, .no_verdict = true}, "The subject");
    expect(&(race){.slow = {13, 12, 14}, .fast = {13, 12, 14}}, "The subject");
}

/* ddp cannot be told from dp overlap, which is faster by its median. */
static void of_modes_as_fast_as_each_other_the_title_names_ddp(void **state) {
    (void)state;
    yoke_report report = {.subject = "The subject"};
    char title[YOKE_TEXT_BYTES];
    add(&report, "dp classic", (yoke_report_interval){31, 30, 33}, 1, 20, 0, 0);
    add(&report, "dp overlap", (yoke_report_interval){12.5, 12, 14}, 1, 1, 0, 0);
    add(&report, "ddp", (yoke_report_interval){13, 12, 14}, 1, 1, 0, 0);
    assert_string_equal(yoke_page_title(&report, title),
                        "dp classic 31.0 ms, ddp 13.0 ms: its devices wait 19.0 ms longer");
    report.modes[2].step_ms = (yoke_report_interval){15, 14.5, 16};
    assert_string_equal(yoke_page_title(&report, title),
                        "dp classic 31.0 ms, dp overlap 12.5 ms: its devices wait 19.0 ms longer");
    yoke_report_clear(&report);
}

static void one_run_is_named_by_its_step_or_by_its_end(void **state) {
    (void)state;
    yoke_report report = {.subject = "The subject"};
    char title[YOKE_TEXT_BYTES];
    yoke_report_mode *mode;
    assert_string_equal(yoke_page_title(&report, title), "The subject");
    assert_int_equal(yoke_report_add_mode(&report, "run", &mode), YOKE_OK);
    assert_string_equal(yoke_page_title(&report, title), "The subject");
    assert_int_equal(yoke_report_add_point(&mode->curves[YOKE_REPORT_LOSS], 7, 0.5), YOKE_OK);
    assert_string_equal(yoke_page_title(&report, title),
                        "The loss of a batch is 0.500 after step 7");
    assert_int_equal(yoke_report_add_point(&mode->curves[YOKE_REPORT_ACCURACY], 6, 71), YOKE_OK);
    assert_string_equal(yoke_page_title(&report, title),
                        "71.0 % of the test rows are right after step 6");
    yoke_report_clear(&report);
    add(&report, "trace.json", (yoke_report_interval){0}, 0, 0, 0, 0);
    report.modes[0].mean_step_ms = 10;
    report.modes[0].lanes[0].stage_ms[YOKE_STAGE_FORWARD] = 6.5;
    assert_string_equal(yoke_page_title(&report, title),
                        "A step takes 10.0 ms: a device computes for 65 % of it");
    yoke_report_clear(&report);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(disjoint_intervals_are_a_result_with_its_reason),
        cmocka_unit_test(the_title_names_what_costs_most_and_both_where_they_cost_alike),
        cmocka_unit_test(what_is_not_apart_is_no_result),
        cmocka_unit_test(of_modes_as_fast_as_each_other_the_title_names_ddp),
        cmocka_unit_test(one_run_is_named_by_its_step_or_by_its_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
