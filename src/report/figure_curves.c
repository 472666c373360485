/* SPDX-License-Identifier: Apache-2.0 */
/* What a run learns: a figure for each kind of curve, with a line for each run. Of one run alone,
 * the batches and the test split share a figure. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "report/figures.h"

#define SERIES_MAX 32
#define POINTS_MAX 12000 /* on the page */

typedef struct curve_fact {
    const char *id, *chart, *title, *y_name, *meaning, *source;
    bool evaluated;          /* a point for each evaluation, otherwise for each step */
    yoke_report_curve other; /* the curve of the test split; itself: none */
} curve_fact;

static const curve_fact facts[YOKE_REPORT_CURVES] = {
    [YOKE_REPORT_LOSS] = {"loss", "loss-chart", "Loss", "loss of a batch",
                          "The mean loss of the rows of a batch, before the step's update.",
                          "src/parallel/stages/root_loss.c", false, YOKE_REPORT_TEST_LOSS},
    [YOKE_REPORT_TEST_LOSS] = {"test-loss", "test-loss-chart", "Loss of the test split",
                               "loss of the test split",
                               "The mean loss of all rows of the test split.",
                               "src/parallel/engine/data_parallel.c", true, YOKE_REPORT_TEST_LOSS},
    [YOKE_REPORT_TRAINING_ACCURACY] = {"batch-accuracy", "batch-accuracy-chart", "Accuracy",
                                       "% of a batch",
                                       "Rows of a batch that the model classifies correctly.",
                                       "src/parallel/stages/gather.c", false, YOKE_REPORT_ACCURACY},
    [YOKE_REPORT_ACCURACY] = {"accuracy", "accuracy-chart", "Accuracy", "% of the test split",
                              "Rows of the test split that the model classifies correctly.",
                              "src/parallel/stages/gather.c", true, YOKE_REPORT_ACCURACY},
    [YOKE_REPORT_LEARNING_RATE] = {"learning-rate", "learning-rate-chart", "Learning rate",
                                   "learning rate", "The rate of the step's update.",
                                   "src/optimizer/lr_schedule.c", false, YOKE_REPORT_LEARNING_RATE},
    [YOKE_REPORT_STEP_MS] = {"step-ms", "step-ms-chart", "Time of each step", "ms / step",
                             "How long the step took.", "src/train/epochs.c", false,
                             YOKE_REPORT_STEP_MS},
    [YOKE_REPORT_IMAGES] = {"images", "images-chart", "Images a second", "images / s",
                            "Rows of a batch by the time of its step, with the wait for data.",
                            "src/train/epochs.c", false, YOKE_REPORT_IMAGES},
};

static int count_curves(const yoke_report *report) {
    int count = 0;
    for (int m = 0; m < report->mode_count; m++)
        for (int kind = 0; kind < YOKE_REPORT_CURVES; kind++)
            count += report->modes[m].curves[kind].count > 1;
    return count;
}

/* At most `most` of the points, evenly spread, the last one among them. */
static int thin(const yoke_report_points *from, int most, yoke_svg_point *to) {
    int count = from->count < most ? from->count : most;
    for (int i = 0; i < count; i++) {
        int64_t at = count > 1 ? (int64_t)i * (from->count - 1) / (count - 1) : from->count - 1;
        to[i] = (yoke_svg_point){from->points[at].step, from->points[at].value, 0, 0};
    }
    return count;
}

/* The modes that end with the same weights as this one and come behind it. */
static void say_same_bits(yoke_markup *out, const yoke_report *report,
                          const yoke_report_mode *mode) {
    char label[YOKE_LABEL_BYTES], others[512] = "";
    size_t used = 0;
    if (mode->weights_hash[0] == '\0') return;
    for (const yoke_report_mode *other = report->modes; other < report->modes + report->mode_count;
         other++) {
        if (other == mode || strcmp(other->weights_hash, mode->weights_hash) != 0) continue;
        if (other < mode) return;
        int length = snprintf(others + used, sizeof others - used, ", %s",
                              yoke_mode_label(report, other, label));
        if (length < 0 || used + (size_t)length >= sizeof others) break;
        used += (size_t)length;
    }
    if (used > 0)
        yoke_figure_say(out, NULL, "Equal weights, bit for bit (hash %s): %s%s.",
                        mode->weights_hash, yoke_mode_label(report, mode, label), others);
}

/* The largest distance between the first curve and another one at the same place, relative. */
static double largest_difference(const yoke_svg_series *series, int count) {
    double largest = 0;
    for (int s = 1; s < count; s++)
        for (int i = 0; i < series[0].count && i < series[s].count; i++)
            largest = fmax(largest, fabs(series[s].points[i].y - series[0].points[i].y) /
                                        fmax(fabs(series[0].points[i].y), 1e-300));
    return largest;
}

static bool is_constant(const yoke_svg_series *series) {
    bool constant = true;
    for (int i = 1; i < series->count; i++)
        constant &= series->points[i].y == series->points[0].y;
    return constant;
}

static void say_ends(yoke_markup *out, const yoke_svg_series *series, int count) {
    char number[4][YOKE_NUMBER_BYTES];
    for (int s = 0; s < count && s < 4; s++) {
        const yoke_svg_point *first = &series[s].points[0];
        const yoke_svg_point *last = &series[s].points[series[s].count - 1];
        yoke_number(first->y, number[0]);
        yoke_decimal(first->x, 0, number[1]);
        yoke_decimal(last->x, 0, number[3]);
        if (first == last)
            yoke_figure_say(out, NULL, "%s: %s at step %s.", series[s].name, number[0], number[1]);
        else if (is_constant(&series[s]))
            yoke_figure_say(out, NULL, "%s: %s from step %s to step %s.", series[s].name, number[0],
                            number[1], number[3]);
        else
            yoke_figure_say(out, NULL, "%s: from %s at step %s to %s at step %s.", series[s].name,
                            number[0], number[1], yoke_number(last->y, number[2]), number[3]);
    }
}

/* Says where evaluations were better than at the end. */
static void say_best(yoke_markup *out, const yoke_svg_series *tests, bool low_is_good) {
    const yoke_svg_point *best = &tests->points[0];
    const yoke_svg_point *last = &tests->points[tests->count - 1];
    char number[2][YOKE_NUMBER_BYTES];
    for (const yoke_svg_point *point = tests->points; point <= last; point++)
        if (low_is_good ? point->y < best->y : point->y > best->y) best = point;
    if (low_is_good ? best->y < last->y : best->y > last->y)
        yoke_figure_say(out, NULL, "%s is best at step %s, with %s, and worse at the end.",
                        tests->name, yoke_decimal(best->x, 0, number[0]),
                        yoke_number(best->y, number[1]));
}

/* Thinned curves have as many points, whatever the number of steps. */
static bool are_alike(const yoke_svg_series *one, const yoke_svg_series *other) {
    int last = one->count - 1;
    return one->count == other->count && one->points[0].x == other->points[0].x &&
           one->points[last].x == other->points[last].x;
}

/* One sentence where all lines lie on each other. */
static void say_loss(yoke_markup *out, const yoke_report *report, const yoke_svg_series *series,
                     int count) {
    char number[2][YOKE_NUMBER_BYTES], text[32] = "by nothing";
    bool comparable = count > 1;
    for (int s = 1; s < count; s++)
        comparable &= are_alike(&series[0], &series[s]);
    double difference = comparable ? largest_difference(series, count) : 0;
    if (difference > 0)
        snprintf(text, sizeof text, "by less than 1e%d", (int)floor(log10(difference)) + 1);
    if (comparable && difference < 1e-3)
        yoke_figure_say(out, NULL,
                        "The lines of all %d runs lie on each other, from %s to %s: their losses "
                        "differ %s, relative.",
                        count, yoke_number(series[0].points[0].y, number[0]),
                        yoke_number(series[0].points[series[0].count - 1].y, number[1]), text);
    else
        say_ends(out, series, count);
    for (int m = 0; m < report->mode_count; m++)
        say_same_bits(out, report, &report->modes[m]);
}

/* The lines of a figure. */
typedef struct curve_lines {
    yoke_svg_series series[SERIES_MAX];
    char labels[SERIES_MAX][YOKE_LABEL_BYTES];
    int count, most; /* most: points of a line */
} curve_lines;

/* label: of at most YOKE_LABEL_BYTES. */
static void add_line(yoke_markup *out, curve_lines *lines, const yoke_report_points *curve,
                     const char *label) {
    int i = lines->count;
    if (i == SERIES_MAX) return;
    yoke_svg_point *points = yoke_figure_memory_for(out, (size_t)lines->most, sizeof *points);
    if (points == NULL) return;
    snprintf(lines->labels[i], sizeof lines->labels[i], "%s", label);
    lines->series[i] = (yoke_svg_series){.name = lines->labels[i],
                                         .points = points,
                                         .count = thin(curve, lines->most, points),
                                         .markers = curve->count <= 12,
                                         .dashed = i % 2 == 1};
    snprintf(lines->series[i].style, sizeof lines->series[i].style, "m%d", i % 8);
    lines->count++;
}

/* A curve of one point is a number in the table of runs. */
static void add_runs(yoke_markup *out, curve_lines *lines, const yoke_report *report,
                     yoke_report_curve kind) {
    for (int m = 0; m < report->mode_count; m++) {
        const yoke_report_mode *mode = &report->modes[m];
        char label[YOKE_LABEL_BYTES];
        if (mode->curves[kind].count > 1)
            add_line(out, lines, &mode->curves[kind], yoke_mode_label(report, mode, label));
    }
}

/* Beside a line, one evaluation is a point. A curve that has nothing beside it bears the run's
 * name. */
static void add_only_run(yoke_markup *out, curve_lines *lines, const yoke_report_mode *mode,
                         yoke_report_curve kind) {
    const yoke_report_points *steps = &mode->curves[kind];
    const yoke_report_points *tests = &mode->curves[facts[kind].other];
    if (steps->count < 2) return;
    add_line(out, lines, steps, tests != steps ? "Training batches" : mode->name);
    if (tests != steps && tests->count > 0) add_line(out, lines, tests, "Test split");
}

/* Whether another curve of the only run has this one beside it. */
static bool is_beside(const yoke_report *report, yoke_report_curve kind) {
    for (int other = 0; other < YOKE_REPORT_CURVES; other++)
        if (other != (int)kind && facts[other].other == kind &&
            report->modes[0].curves[other].count > 1)
            return true;
    return false;
}

static void say_meaning(yoke_markup *out, const yoke_report *report, const curve_fact *fact,
                        bool together) {
    uint64_t steps = report->mode_count == 1 && !fact->evaluated ? report->modes[0].point_steps : 0;
    char mean[96] = "";
    if (steps > 1)
        snprintf(mean, sizeof mean, " A point%s is the mean of %llu steps.",
                 together ? " of the training batches" : "", (unsigned long long)steps);
    yoke_figure_say(out, "meaning", "%s%s%s%s", fact->meaning, together ? " " : "",
                    together ? facts[fact->other].meaning : "", mean);
}

/* Where the loss or the accuracy of one run ends; otherwise the subject. */
static void write_title(const yoke_report *report, const curve_lines *lines, yoke_report_curve kind,
                        char text[YOKE_TITLE_BYTES]) {
    const yoke_svg_series *last = &lines->series[lines->count - 1];
    bool loss = kind == YOKE_REPORT_LOSS || kind == YOKE_REPORT_TEST_LOSS;
    bool accuracy = kind == YOKE_REPORT_TRAINING_ACCURACY || kind == YOKE_REPORT_ACCURACY;
    bool tested = lines->count > 1 || facts[kind].evaluated;
    char number[YOKE_NUMBER_BYTES];
    snprintf(text, YOKE_TITLE_BYTES, "%s", facts[kind].title);
    if (report->mode_count == 1 && (loss || accuracy))
        snprintf(text, YOKE_TITLE_BYTES, "At the end the %s is %s%s on %s",
                 loss ? "loss" : "accuracy", yoke_number(last->points[last->count - 1].y, number),
                 loss ? "" : " %", tested ? "the test split" : "a batch");
}

static void draw(yoke_markup *out, const yoke_report *report, const curve_lines *lines,
                 yoke_report_curve kind) {
    char title[YOKE_TITLE_BYTES];
    const curve_fact *fact = &facts[kind];
    bool alone = report->mode_count == 1, together = alone && lines->count > 1;
    yoke_svg_xy chart = {
        .head = {fact->chart, fact->title,
                 together ? "Lines for the training batches and the test split against the number "
                            "of the step. The data follow as a table."
                          : "A line for each run against the number of the step. The data follow "
                            "as a table."},
        .x_name = "step",
        .y_name = together && kind == YOKE_REPORT_LOSS ? "loss"
                  : together                           ? "% of the rows"
                                                       : fact->y_name,
        .from_zero = kind >= YOKE_REPORT_LEARNING_RATE,
        .series = lines->series,
        .count = lines->count};
    write_title(report, lines, kind, title);
    yoke_html_figure_begin(out, fact->id, title, false);
    if (kind == YOKE_REPORT_LOSS && !alone)
        say_loss(out, report, lines->series, lines->count);
    else
        say_ends(out, lines->series, lines->count);
    double median =
        alone && kind == YOKE_REPORT_IMAGES ? report->modes[0].images_per_second.value : 0;
    char number[YOKE_NUMBER_BYTES];
    if (median > 0)
        yoke_figure_say(out, NULL, "A step of median length trains %s images a second.",
                        yoke_number(median, number));
    if (together) say_best(out, &lines->series[1], kind == YOKE_REPORT_LOSS);
    yoke_figure_lines(out, &chart);
    say_meaning(out, report, fact, together);
    yoke_figure_sources(out, &fact->source, 1);
    yoke_html_figure_end(out);
}

void yoke_figure_curves(yoke_markup *out, const yoke_report *report) {
    int curves = count_curves(report);
    int most = curves > 0 ? POINTS_MAX / curves : 0;
    most = most > 300 ? 300 : most < 20 ? 20 : most;
    for (int kind = 0; kind < YOKE_REPORT_CURVES; kind++) {
        curve_lines lines = {.most = most};
        bool alone = report->mode_count == 1;
        if (alone && is_beside(report, (yoke_report_curve)kind)) continue;
        if (alone)
            add_only_run(out, &lines, &report->modes[0], (yoke_report_curve)kind);
        else
            add_runs(out, &lines, report, (yoke_report_curve)kind);
        if (lines.count > 0) draw(out, report, &lines, (yoke_report_curve)kind);
        for (int i = 0; i < lines.count; i++)
            yoke_free(lines.series[i].points);
    }
}
