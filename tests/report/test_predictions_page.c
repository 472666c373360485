/* SPDX-License-Identifier: Apache-2.0 */
/* The figures of predictions where no run of the tool leads: no classes, many, none tested. */
#include <math.h>
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

static char *page_of_report(const yoke_report *report) {
    char *page;
    size_t bytes;
    assert_int_equal(yoke_report_page(report, &page, &bytes), YOKE_OK);
    assert_int_equal(strlen(page), bytes);
    assert_true(bytes < 1000000);
    return page;
}

static char *page_of(const yoke_predictions *predictions) {
    return page_of_report(&(yoke_report){.subject = "A run", .predictions = predictions});
}

static int count_of(const char *page, const char *text) {
    int count = 0;
    for (const char *at = page; (at = strstr(at, text)) != NULL; at++)
        count++;
    return count;
}

static void expect_text(const char *page, const char *text) {
    if (strstr(page, text) == NULL) fail_msg("the page lacks: %s", text);
}

static void a_model_without_classes_gets_a_sentence_instead(void **state) {
    (void)state;
    yoke_predictions none = YOKE_PREDICTIONS_INIT;
    char *page = page_of_report(&(yoke_report){.subject = "A run",
                                               .predictions = &none,
                                               .no_counts = "The model does not classify: <b>."});
    expect_text(page, "The model does not classify: &lt;b&gt;.");
    assert_null(strstr(page, "id=\"confusion\""));
    assert_null(strstr(page, "id=\"classes\""));
    assert_null(strstr(page, "id=\"misclassified\""));
    free(page);
}

static void a_report_without_a_run_has_neither_figures_nor_sentence(void **state) {
    (void)state;
    char *page = page_of(NULL);
    assert_null(strstr(page, "id=\"predictions\""));
    free(page);
}

/* Class k is taken for class k + 1 as often as it is right, and never for another. */
static int64_t *counts_of(int classes, int64_t rows) {
    size_t count = (size_t)classes;
    int64_t *counts = calloc(count * count, sizeof *counts);
    assert_non_null(counts);
    for (size_t k = 0; k < count; k++) {
        counts[k * count + k] = rows;
        counts[k * count + (k + 1) % count] += rows + (int64_t)k;
    }
    return counts;
}

static char *page_of_classes(int classes) {
    yoke_predictions many = {.step = 3, .classes = classes, .counts = counts_of(classes, 9)};
    char *page = page_of(&many);
    free((void *)many.counts);
    return page;
}

#define EMPTY_6 "<td></td><td></td><td></td><td></td><td></td><td></td>"
#define EMPTY_18 EMPTY_6 EMPTY_6 EMPTY_6
static void a_few_classes_have_their_counts(void **state) {
    (void)state;
    char *page = page_of_classes(20);
    expect_text(page, "<th scope=\"row\">18</th>" EMPTY_18 "<td>9</td><td>27</td></tr>");
    expect_text(page, ",[28,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,9]],\"rows\":[18,19,");
    assert_null(strstr(page, "The most frequent confusions"));
    expect_text(page, "Most often the model takes 19 for 0: 28 of the 370 wrong rows (8 %).");
    expect_text(page, "Most often the model takes 19 for 0</h2>");
    free(page);
}

static void a_hundred_classes_have_a_heat_map_and_a_table_of_confusions(void **state) {
    (void)state;
    char *page = page_of_classes(100);
    expect_text(page, "The most frequent confusions");
    expect_text(page, "<th scope=\"row\">99</th><td>0</td><td>108</td><td>92.3</td>");
    expect_text(page, "\"counts\":[[9,9,0,");
    free(page);
}

static void more_classes_are_counted_but_not_drawn(void **state) {
    (void)state;
    char *page = page_of_classes(1000);
    expect_text(page, "The matrix shows at most 100 classes.");
    expect_text(page, "<td>1008</td>");
    assert_null(strstr(page, "data-figure=\"confusion\""));
    expect_text(page, "\"counts\":null,\"rows\":[18,19,");
    free(page);
}

static void a_class_without_rows_is_neither_best_nor_worst(void **state) {
    (void)state;
    static const int64_t counts[] = {0, 0, 0, 1, 3, 0, 0, 0, 5};
    yoke_predictions some = {.step = 3, .classes = 3, .counts = counts};
    char *page = page_of(&some);
    expect_text(page, "knows least is 1: 75.0 %, 3 of 4 rows right.");
    expect_text(page, "knows best is 2: 100 %, 5 of 5 rows right.");
    expect_text(page, "<th scope=\"row\">0</th><td>0</td><td>0</td><td></td><td>1</td><td>0</td>");
    free(page);
}

static void a_model_that_is_always_right_has_no_misclassified_rows(void **state) {
    (void)state;
    static const int64_t counts[] = {4, 0, 0, 4};
    yoke_predictions right = {.step = 3, .classes = 2, .counts = counts};
    char *page = page_of(&right);
    expect_text(page, "The model confuses no two classes.");
    assert_null(strstr(page, "id=\"misclassified\""));
    free(page);
}

static void names_are_texts_and_values_may_be_missing(void **state) {
    (void)state;
    static const int64_t counts[] = {1, 1, 0, 1};
    static const char *const names[] = {"<script>", "a very long name of a class & \x01 more"};
    yoke_misclassified misclassified = {
        .label = 0, .predicted = 1, .probability = (double)NAN, .loss = (double)INFINITY};
    yoke_predictions hostile = {.classes = 2,
                                .counts = counts,
                                .class_names = names,
                                .shape = {.channels = 5, .height = 2, .width = 2},
                                .misclassified = 1};
    char *page = page_of_report(&(yoke_report){
        .subject = "A run", .predictions = &hostile, .misclassified = &misclassified});
    assert_int_equal(count_of(page, "<script"), 2); /* the model and the script that draws it */
    expect_text(page, "\"names\":[\"\\u003cscript\\u003e\",");
    expect_text(page, "\"probability\":null,\"loss\":null,\"picture\":null");
    assert_null(strstr(page, "<img"));
    expect_text(page, "&lt;script&gt;");
    expect_text(page, "They show the first channel");
    free(page);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_without_classes_gets_a_sentence_instead),
        cmocka_unit_test(a_report_without_a_run_has_neither_figures_nor_sentence),
        cmocka_unit_test(a_few_classes_have_their_counts),
        cmocka_unit_test(a_hundred_classes_have_a_heat_map_and_a_table_of_confusions),
        cmocka_unit_test(more_classes_are_counted_but_not_drawn),
        cmocka_unit_test(a_class_without_rows_is_neither_best_nor_worst),
        cmocka_unit_test(a_model_that_is_always_right_has_no_misclassified_rows),
        cmocka_unit_test(names_are_texts_and_values_may_be_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
