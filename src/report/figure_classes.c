/* SPDX-License-Identifier: Apache-2.0 */
/* How well the model knows each class. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "report/figures.h"

#define ALL_BARS 20 /* with more classes, only these: */
#define LOWEST_BARS 10
#define HIGHEST_BARS 5

const char *yoke_class_name(const yoke_report_predictions *predictions, int index, char text[16]) {
    if (predictions->names != NULL) return predictions->names[index];
    snprintf(text, 16, "%d", index);
    return text;
}

int64_t yoke_class_count(const yoke_report_predictions *predictions, int label, int predicted) {
    return predictions->counts[(size_t)label * (size_t)predictions->classes + (size_t)predicted];
}

int64_t yoke_class_rows(const yoke_report_predictions *predictions, int label) {
    int64_t sum = 0;
    for (int predicted = 0; predicted < predictions->classes; predicted++)
        sum += yoke_class_count(predictions, label, predicted);
    return sum;
}

const char **yoke_class_names(yoke_markup *out, const yoke_report_predictions *predictions) {
    size_t count = (size_t)predictions->classes, room = 16;
    const char **names = yoke_figure_memory_for(out, count, sizeof *names + room);
    char *texts = (char *)(names + count);
    for (size_t i = 0; names != NULL && i < count; i++)
        names[i] = yoke_class_name(predictions, (int)i, texts + i * room);
    return names;
}

typedef struct class_result {
    int index;
    int64_t right, rows, taken; /* taken: rows of all classes that the model took for this one */
} class_result;

static double percent_of(const class_result *result) {
    return result->rows > 0 ? 100 * (double)result->right / (double)result->rows : 0;
}

/* Sorts by accuracy, the lowest first; classes without rows come at the end. */
static int by_accuracy(const void *left, const void *right) {
    const class_result *a = left, *b = right;
    double low = a->rows > 0 ? percent_of(a) : 101, high = b->rows > 0 ? percent_of(b) : 101;
    if (low < high || low > high) return low < high ? -1 : 1;
    return a->index - b->index;
}

static class_result *collect(yoke_markup *out, const yoke_report_predictions *predictions) {
    int count = predictions->classes;
    class_result *all = yoke_figure_memory_for(out, (size_t)count, sizeof *all);
    for (int i = 0; all != NULL && i < count; i++) {
        all[i] = (class_result){.index = i,
                                .right = yoke_class_count(predictions, i, i),
                                .rows = yoke_class_rows(predictions, i)};
        for (int label = 0; label < count; label++)
            all[i].taken += yoke_class_count(predictions, label, i);
    }
    return all;
}

/* The class that the model most often takes this one for; -1: all its rows are right. */
static int most_taken_for(const yoke_report_predictions *predictions, int label) {
    int most = -1;
    int64_t count = 0;
    for (int other = 0; other < predictions->classes; other++) {
        if (other == label || yoke_class_count(predictions, label, other) <= count) continue;
        count = yoke_class_count(predictions, label, other);
        most = other;
    }
    return most;
}

static void say_class(yoke_markup *out, const yoke_report_predictions *predictions,
                      const class_result *result, const char *which) {
    char name[2][16], number[YOKE_NUMBER_BYTES], mostly[256] = "";
    int other = most_taken_for(predictions, result->index);
    if (other >= 0)
        snprintf(mostly, sizeof mostly, "; of the others it takes %" PRId64 " for %.80s",
                 yoke_class_count(predictions, result->index, other),
                 yoke_class_name(predictions, other, name[0]));
    yoke_figure_say(out, NULL,
                    "The class that the model knows %s is %.80s: %s %%, %" PRId64 " of %" PRId64
                    " rows right%s.",
                    which, yoke_class_name(predictions, result->index, name[1]),
                    yoke_number(percent_of(result), number), result->right, result->rows, mostly);
}

static class_result sum_of(const class_result *all, int count) {
    class_result sum = {.index = -1};
    for (int i = 0; i < count; i++) {
        sum.right += all[i].right;
        sum.rows += all[i].rows;
    }
    return sum;
}

/* sorted: by accuracy. */
static void write_title(const yoke_report_predictions *predictions, const class_result *sorted,
                        char text[YOKE_TITLE_BYTES]) {
    class_result sum = sum_of(sorted, predictions->classes);
    char number[2][YOKE_NUMBER_BYTES], name[16];
    snprintf(text, YOKE_TITLE_BYTES,
             "%s %% of the test rows are right; least of class %.80s: %s %%",
             yoke_number(percent_of(&sum), number[0]),
             yoke_class_name(predictions, sorted[0].index, name),
             yoke_number(percent_of(&sorted[0]), number[1]));
}

static void say(yoke_markup *out, const yoke_report_predictions *predictions,
                const class_result *sorted) {
    int tested = 0;
    class_result sum = sum_of(sorted, predictions->classes);
    char number[YOKE_NUMBER_BYTES];
    for (int i = 0; i < predictions->classes; i++)
        tested += sorted[i].rows > 0;
    yoke_figure_say(out, NULL,
                    "After step %" PRIu64 " the model classifies %" PRId64 " of %" PRId64
                    " rows of the test split correctly: %s %%.",
                    predictions->step, sum.right, sum.rows, yoke_number(percent_of(&sum), number));
    say_class(out, predictions, &sorted[0], "least");
    if (tested > 1) say_class(out, predictions, &sorted[tested - 1], "best");
}

/* Rows of the drawing. */
typedef struct class_bars {
    const char *names[ALL_BARS], *groups[ALL_BARS];
    char numbers[ALL_BARS][16];
    double percents[ALL_BARS];
    int count;
} class_bars;

static void add_bar(class_bars *bars, const yoke_report_predictions *predictions,
                    const class_result *result, const char *group) {
    int i = bars->count++;
    bars->names[i] = yoke_class_name(predictions, result->index, bars->numbers[i]);
    bars->groups[i] = group;
    bars->percents[i] = percent_of(result);
}

static void fill_bars(class_bars *bars, const yoke_report_predictions *predictions,
                      const class_result *all, const class_result *sorted) {
    int count = predictions->classes, tested = count;
    if (count <= ALL_BARS) {
        for (int i = 0; i < count; i++)
            add_bar(bars, predictions, &all[i], NULL);
        return;
    }
    while (tested > 0 && sorted[tested - 1].rows == 0)
        tested--;
    for (int i = 0; i < LOWEST_BARS && i < tested; i++)
        add_bar(bars, predictions, &sorted[i], i == 0 ? "lowest" : NULL);
    int high = tested - HIGHEST_BARS > LOWEST_BARS ? tested - HIGHEST_BARS : LOWEST_BARS;
    for (int i = high; i < tested; i++)
        add_bar(bars, predictions, &sorted[i], i == high ? "highest" : NULL);
}

static void draw(yoke_markup *out, const class_bars *bars, bool all) {
    const yoke_svg_part part = {.name = "rows classified correctly", .style = "right"};
    yoke_svg_bars chart = {.head = {"classes-chart", "Accuracy by class",
                                    all ? "A bar for each class: percent of its rows that the "
                                          "model classifies correctly. The data follow as a table."
                                        : "A bar for each of the classes with the lowest and the "
                                          "highest accuracy, in percent. The data of all classes "
                                          "follow as a table."},
                           .x_name = "% of the rows of the class",
                           .rows = bars->names,
                           .groups = bars->groups,
                           .parts = &part,
                           .values = bars->percents,
                           .row_count = bars->count,
                           .part_count = 1,
                           .unit = YOKE_SVG_PERCENT};
    yoke_html_chart_begin(out, chart.head.title, false);
    yoke_svg_draw_bars(out, &chart);
    yoke_html_chart_end(out);
}

/* "": the class has no rows, or no row was taken for it. */
static void percent_cell(yoke_markup *out, int64_t part, int64_t whole) {
    char number[YOKE_NUMBER_BYTES];
    yoke_html_cell(out, whole > 0 ? yoke_number(100 * (double)part / (double)whole, number) : "");
}

static void table(yoke_markup *out, const yoke_report_predictions *predictions,
                  const class_result *all) {
    static const char *const headers[] = {"class",      "rows",      "right",
                                          "accuracy %", "predicted", "precision %"};
    char name[16], number[YOKE_NUMBER_BYTES];
    yoke_html_table_begin(out, "Data", "Rows of the test split by class", headers, 6);
    for (int i = 0; i < predictions->classes; i++) {
        yoke_html_row_begin(out, yoke_class_name(predictions, i, name));
        yoke_html_cell(out, yoke_decimal((double)all[i].rows, 0, number));
        yoke_html_cell(out, yoke_decimal((double)all[i].right, 0, number));
        percent_cell(out, all[i].right, all[i].rows);
        yoke_html_cell(out, yoke_decimal((double)all[i].taken, 0, number));
        percent_cell(out, all[i].right, all[i].taken);
        yoke_html_row_end(out);
    }
    yoke_html_table_end(out, "Data");
}

void yoke_figure_classes(yoke_markup *out, const yoke_report_predictions *predictions) {
    const char *source = "src/train/predictions.c";
    size_t count = (size_t)predictions->classes;
    class_bars bars = {.count = 0};
    class_result *all = collect(out, predictions);
    class_result *sorted = yoke_figure_memory_for(out, count, sizeof *sorted);
    if (all != NULL && sorted != NULL) {
        memcpy(sorted, all, count * sizeof *sorted);
        qsort(sorted, count, sizeof *sorted, by_accuracy);
        fill_bars(&bars, predictions, all, sorted);
        char title[YOKE_TITLE_BYTES];
        write_title(predictions, sorted, title);
        yoke_html_figure_begin(out, "classes", title, false);
        say(out, predictions, sorted);
        draw(out, &bars, predictions->classes <= ALL_BARS);
        table(out, predictions, all);
        yoke_figure_say(out, "meaning",
                        "Accuracy: of the rows of a class, those that the model takes for it "
                        "(recall). Precision, in the table: of the rows that the model takes for "
                        "a class, those that are of it.");
        yoke_figure_sources(out, &source, 1);
        yoke_html_figure_end(out);
    }
    yoke_free(sorted);
    yoke_free(all);
}
