/* SPDX-License-Identifier: Apache-2.0 */
/* How fast: a table of all runs, throughput and step time against the number of devices. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "report/figures.h"

#define SERIES_MAX 16

typedef struct scaling {
    const yoke_report *report;
    bool throughput; /* otherwise step time */
    yoke_svg_series series[SERIES_MAX + 1];
    int count;
    bool has_ideal; /* the last of them */
    yoke_svg_point ideal[64];
} scaling;

static yoke_report_interval figure_of(const scaling *all, const yoke_report_mode *mode) {
    return all->throughput ? mode->images_per_second : mode->step_ms;
}

static yoke_svg_series *series_of(yoke_markup *out, scaling *all, const yoke_report_mode *mode) {
    for (int i = 0; i < all->count; i++)
        if (strcmp(all->series[i].name, mode->name) == 0) return &all->series[i];
    if (all->count == SERIES_MAX) return NULL;
    yoke_svg_series *series = &all->series[all->count];
    *series = (yoke_svg_series){.name = mode->name, .markers = true};
    yoke_svg_part part = yoke_mode_part(all->report, mode);
    memcpy(series->style, part.style, sizeof series->style);
    series->points =
        yoke_figure_memory_for(out, (size_t)all->report->mode_count, sizeof *series->points);
    if (series->points == NULL) return NULL;
    all->count++;
    return series;
}

/* The first mode on one device; NULL: none. */
static const yoke_report_mode *base_mode(const scaling *all) {
    for (int i = 0; i < all->report->mode_count; i++)
        if (all->report->modes[i].devices == 1 && figure_of(all, &all->report->modes[i]).value > 0)
            return &all->report->modes[i];
    return NULL;
}

static int most_devices(const scaling *all) {
    int most = 0;
    for (int i = 0; i < all->report->mode_count; i++) {
        const yoke_report_mode *mode = &all->report->modes[i];
        if (mode->devices > most && figure_of(all, mode).value > 0) most = mode->devices;
    }
    return most;
}

/* N devices train N times as fast as the first mode on one device. Their step is as long as that of
 * one where each keeps its rows, as in simulations, and 1 / N of it where they share a batch. */
static double ideal_of(const scaling *all, double one, int devices) {
    if (all->throughput) return one * devices;
    return all->report->simulated ? one : one / devices;
}

static void add_ideal(scaling *all) {
    const yoke_report_mode *base = base_mode(all);
    int most = most_devices(all), count = 0;
    if (base == NULL || most < 2 || most > 64) return;
    double one = figure_of(all, base).value;
    for (int devices = 1; devices <= most; devices++)
        all->ideal[count++] = (yoke_svg_point){devices, ideal_of(all, one, devices), 0, 0};
    all->has_ideal = true;
    all->series[all->count++] = (yoke_svg_series){.name = "ideal",
                                                  .style = "quiet",
                                                  .points = all->ideal,
                                                  .count = count,
                                                  .dashed = true,
                                                  .guide = true};
}

static void collect(yoke_markup *out, scaling *all) {
    for (int i = 0; i < all->report->mode_count; i++) {
        const yoke_report_mode *mode = &all->report->modes[i];
        yoke_report_interval figure = figure_of(all, mode);
        if (mode->devices < 1 || !(figure.value > 0)) continue;
        yoke_svg_series *series = series_of(out, all, mode);
        if (series == NULL) continue;
        series->points[series->count++] =
            (yoke_svg_point){mode->devices, figure.value, figure.low, figure.high};
    }
    add_ideal(all);
}

/* Finds the shortest and the longest step on the largest number of devices. */
static void find_ends(const scaling *all, const yoke_report_mode **fast,
                      const yoke_report_mode **slow) {
    int most = most_devices(all);
    *fast = *slow = NULL;
    for (int i = 0; i < all->report->mode_count; i++) {
        const yoke_report_mode *mode = &all->report->modes[i];
        if (mode->devices != most || !(mode->step_ms.value > 0)) continue;
        if (*fast == NULL || mode->step_ms.value < (*fast)->step_ms.value) *fast = mode;
        if (*slow == NULL || mode->step_ms.value > (*slow)->step_ms.value) *slow = mode;
    }
}

/* Whether the intervals say that one of them is faster. */
static bool are_apart(const scaling *all, const yoke_report_mode *fast,
                      const yoke_report_mode *slow) {
    if (fast == NULL || fast == slow || all->report->no_verdict) return false;
    return fast->step_ms.value < slow->step_ms.value &&
           (fast->step_ms.high <= slow->step_ms.low || !(slow->step_ms.low > 0));
}

/* The result where there is one, otherwise the subject. */
static const char *title_of(const scaling *all, char text[YOKE_TITLE_BYTES]) {
    const yoke_report_mode *fast, *slow;
    char number[2][64];
    find_ends(all, &fast, &slow);
    if (!are_apart(all, fast, slow))
        snprintf(text, YOKE_TITLE_BYTES, "%s", all->throughput ? "Throughput" : "Step time");
    else if (all->throughput)
        snprintf(text, YOKE_TITLE_BYTES, "%s is %s times as fast as %s on %d device%s", fast->name,
                 yoke_decimal(slow->step_ms.value / fast->step_ms.value, 2, number[0]), slow->name,
                 fast->devices, fast->devices == 1 ? "" : "s");
    else
        snprintf(text, YOKE_TITLE_BYTES, "A step takes %s in %s and %s in %s on %d device%s",
                 yoke_text_ms(fast->step_ms.value, number[0]), fast->name,
                 yoke_text_ms(slow->step_ms.value, number[1]), slow->name, fast->devices,
                 fast->devices == 1 ? "" : "s");
    return text;
}

/* Compares every mode on the largest number of devices with the first mode on one. */
static void say_throughput(yoke_markup *out, const scaling *all) {
    const yoke_report_mode *base = base_mode(all);
    int most = most_devices(all);
    if (base == NULL || most < 2) return;
    yoke_markup_open(out, "p");
    yoke_markup_format(out, "Images a second on %d devices, beside the %s of %s on one", most,
                       yoke_number(base->images_per_second.value, (char[YOKE_NUMBER_BYTES]){0}),
                       base->name);
    const char *before = ": ";
    for (int i = 0; i < all->report->mode_count; i++) {
        const yoke_report_mode *mode = &all->report->modes[i];
        char number[YOKE_NUMBER_BYTES];
        if (mode->devices != most || !(mode->images_per_second.value > 0)) continue;
        yoke_number(mode->images_per_second.value / base->images_per_second.value, number);
        yoke_markup_format(out, "%s%s %s times as many", before, mode->name, number);
        before = ", ";
    }
    yoke_markup_format(out, ". The ideal is %d times.", most);
    yoke_markup_close(out);
}

static void say_step_time(yoke_markup *out, const scaling *all) {
    const yoke_report_mode *fast, *slow;
    char number[3][64];
    find_ends(all, &fast, &slow);
    if (fast == NULL || fast == slow) return;
    yoke_figure_say(out, NULL, "On %d devices a step takes %s in %s and %s in %s: %s more.",
                    fast->devices, yoke_text_ms(fast->step_ms.value, number[0]), fast->name,
                    yoke_text_ms(slow->step_ms.value, number[1]), slow->name,
                    yoke_text_percent(slow->step_ms.value - fast->step_ms.value,
                                      fast->step_ms.value, number[2]));
    if (are_apart(all, fast, slow)) return;
    yoke_figure_say(out, NULL,
                    all->report->no_verdict
                        ? "The race was disturbed or too short: it does not say which is faster."
                        : "Their intervals overlap: this run does not say which is faster.");
}

static void draw(yoke_markup *out, const yoke_report *report, bool throughput) {
    scaling all = {.report = report, .throughput = throughput};
    collect(out, &all);
    if (all.count > 0) {
        char title[YOKE_TITLE_BYTES];
        const char *source =
            report->simulated ? "src/simulate/simulate.c" : "src/parallel/engine/data_parallel.c";
        yoke_svg_xy chart = {
            .head = {throughput ? "throughput-chart" : "step-time-chart", title_of(&all, title),
                     throughput ? "A line for each mode: images a second against the number of "
                                  "devices, with intervals, beside the ideal line. The data "
                                  "follow as a table."
                                : "A line for each mode: milliseconds of a step against the "
                                  "number of devices, with intervals, beside the ideal line. The "
                                  "data follow as a table."},
            .x_name = "devices",
            .y_name = throughput ? "images / s" : "ms / step",
            .counts = true,
            .from_zero = true,
            .series = all.series,
            .count = all.count};
        yoke_html_figure_begin(out, throughput ? "throughput" : "step-time", title, false);
        if (throughput)
            say_throughput(out, &all);
        else
            say_step_time(out, &all);
        yoke_figure_lines(out, &chart);
        yoke_figure_say(
            out, "meaning", "A point is %s%s%s.%s%s%s",
            report->simulated ? "a simulated step" : "the median of the rounds",
            report->interval[0] != '\0' ? "; a bar through it, the " : "", report->interval,
            all.has_ideal ? " Ideal: N devices are N times as fast as " : "",
            all.has_ideal ? base_mode(&all)->name : "", all.has_ideal ? " on one." : "");
        yoke_figure_sources(out, &source, 1);
        yoke_html_figure_end(out);
    }
    for (int i = 0; i < all.count; i++)
        if (all.series[i].points != all.ideal) yoke_free(all.series[i].points);
}

void yoke_figure_throughput(yoke_markup *out, const yoke_report *report) {
    draw(out, report, true);
}

void yoke_figure_step_time(yoke_markup *out, const yoke_report *report) {
    draw(out, report, false);
}

/* The table of runs. */

static void interval_text(yoke_report_interval figure, char text[128]) {
    char number[3][YOKE_NUMBER_BYTES];
    if (!(figure.value > 0))
        text[0] = '\0';
    else if (figure.low < figure.high)
        snprintf(text, 128, "%s (%s to %s)", yoke_number(figure.value, number[0]),
                 yoke_number(figure.low, number[1]), yoke_number(figure.high, number[2]));
    else
        snprintf(text, 128, "%s", yoke_number(figure.value, number[0]));
}

static void last_value_text(const yoke_report_points *curve, char text[128]) {
    text[0] = '\0';
    if (curve->count > 0) yoke_number(curve->points[curve->count - 1].value, text);
}

enum { DEVICES, STEP_MS, IMAGES, SPEEDUP, LOSS, TEST_LOSS, ACCURACY, HASH, COLUMNS };

/* "": the mode has no such number. */
static const char *run_text(const yoke_report_mode *mode, int column, char text[128]) {
    yoke_report_interval step_ms = mode->step_ms;
    if (!(step_ms.value > 0)) step_ms.value = mode->mean_step_ms;
    text[0] = '\0';
    if (column == DEVICES && mode->devices > 0) snprintf(text, 128, "%d", mode->devices);
    if (column == STEP_MS) interval_text(step_ms, text);
    if (column == IMAGES) interval_text(mode->images_per_second, text);
    if (column == SPEEDUP) interval_text(mode->speedup, text);
    if (column == LOSS) last_value_text(&mode->curves[YOKE_REPORT_LOSS], text);
    if (column == TEST_LOSS) last_value_text(&mode->curves[YOKE_REPORT_TEST_LOSS], text);
    if (column == ACCURACY) last_value_text(&mode->curves[YOKE_REPORT_ACCURACY], text);
    if (column == HASH) snprintf(text, 128, "%s", mode->weights_hash);
    return text;
}

static bool has_column(const yoke_report *report, int column) {
    char text[128];
    for (int i = 0; i < report->mode_count; i++)
        if (run_text(&report->modes[i], column, text)[0] != '\0') return true;
    return false;
}

void yoke_figure_runs(yoke_markup *out, const yoke_report *report) {
    static const char *const names[COLUMNS] = {"devices",    "step ms",     "images / s",
                                               "speed-up",   "last loss",   "test loss",
                                               "accuracy %", "weights hash"};
    const char *headers[COLUMNS + 1] = {"run"};
    int columns[COLUMNS], count = 0;
    if (report->rates != NULL) return; /* a range test is no run */
    for (int column = 0; column < COLUMNS; column++) {
        if (!has_column(report, column)) continue;
        columns[count++] = column;
        headers[count] = names[column];
    }
    yoke_html_table_begin(out, NULL, report->mode_count == 1 ? "The run" : "All runs", headers,
                          count + 1);
    for (int i = 0; i < report->mode_count; i++) {
        char text[128];
        yoke_html_row_begin(out, yoke_mode_label(report, &report->modes[i], text));
        for (int c = 0; c < count; c++)
            yoke_html_cell(out, run_text(&report->modes[i], columns[c], text));
        yoke_html_row_end(out);
    }
    yoke_html_table_end(out, NULL);
}
