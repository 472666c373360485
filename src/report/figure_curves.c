/* What a run learns: a figure for each kind of curve, with a line for each run. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/figures.h"

#define SERIES_MAX 32
#define POINTS_MAX 12000 /* on the page */

typedef struct curve_fact {
    const char *id, *chart, *title, *y_name, *meaning, *source;
} curve_fact;

static const curve_fact facts[YOKE_REPORT_CURVES] = {
    [YOKE_REPORT_LOSS] = {"loss", "loss-chart", "Loss", "loss of a batch",
                          "The mean loss of the rows of a batch, before the step's update.",
                          "src/parallel/root_loss.c"},
    [YOKE_REPORT_TEST_LOSS] = {"test-loss", "test-loss-chart", "Loss of the test split",
                               "loss of the test split",
                               "The mean loss of all rows of the test split.",
                               "src/parallel/data_parallel.c"},
    [YOKE_REPORT_ACCURACY] = {"accuracy", "accuracy-chart", "Accuracy", "% of the test split",
                              "Rows of the test split that the model classifies correctly.",
                              "src/parallel/gather.c"},
    [YOKE_REPORT_LEARNING_RATE] = {"learning-rate", "learning-rate-chart", "Learning rate",
                                   "learning rate", "The rate of the step's update.",
                                   "src/optimizer/lr_schedule.c"},
    [YOKE_REPORT_STEP_MS] = {"step-ms", "step-ms-chart", "Time of each step", "ms / step",
                             "How long the step took.", "src/train/run.c"},
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

static void say_ends(yoke_markup *out, const yoke_svg_series *series, int count) {
    char number[4][YOKE_NUMBER_BYTES];
    for (int s = 0; s < count && s < 4; s++) {
        const yoke_svg_point *first = &series[s].points[0];
        const yoke_svg_point *last = &series[s].points[series[s].count - 1];
        yoke_figure_say(out, NULL, "%s: from %s at step %s to %s at step %s.", series[s].name,
                        yoke_number(first->y, number[0]), yoke_decimal(first->x, 0, number[1]),
                        yoke_number(last->y, number[2]), yoke_decimal(last->x, 0, number[3]));
    }
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

static void draw(yoke_markup *out, const yoke_report *report, yoke_report_curve kind, int most) {
    yoke_svg_series series[SERIES_MAX];
    char labels[SERIES_MAX][YOKE_LABEL_BYTES];
    int count = 0;
    for (int m = 0; m < report->mode_count && count < SERIES_MAX; m++) {
        const yoke_report_mode *mode = &report->modes[m];
        const yoke_report_points *curve = &mode->curves[kind];
        if (curve->count < 2) continue; /* the table of runs has it */
        yoke_svg_point *points = yoke_figure_memory_for(out, (size_t)most, sizeof *points);
        if (points == NULL) break;
        series[count] = (yoke_svg_series){.name = yoke_mode_label(report, mode, labels[count]),
                                          .points = points,
                                          .count = thin(curve, most, points),
                                          .markers = curve->count <= 12,
                                          .dashed = count % 2 == 1};
        snprintf(series[count].style, sizeof series[count].style, "m%d", count % 8);
        count++;
    }
    if (count > 0) {
        const curve_fact *fact = &facts[kind];
        yoke_svg_xy chart = {.head = {fact->chart, fact->title,
                                      "A line for each run against the number of the step. The "
                                      "data follow as a table."},
                             .x_name = "step",
                             .y_name = fact->y_name,
                             .from_zero = kind == YOKE_REPORT_STEP_MS,
                             .series = series,
                             .count = count};
        yoke_html_figure_begin(out, fact->id, fact->title, false);
        if (kind == YOKE_REPORT_LOSS)
            say_loss(out, report, series, count);
        else
            say_ends(out, series, count);
        yoke_figure_lines(out, &chart);
        yoke_figure_say(out, "meaning", "%s", fact->meaning);
        yoke_figure_sources(out, &fact->source, 1);
        yoke_html_figure_end(out);
    }
    for (int s = 0; s < count; s++)
        free(series[s].points);
}

void yoke_figure_curves(yoke_markup *out, const yoke_report *report) {
    int curves = count_curves(report);
    int most = curves > 0 ? POINTS_MAX / curves : 0;
    most = most > 300 ? 300 : most < 20 ? 20 : most;
    for (int kind = 0; kind < YOKE_REPORT_CURVES; kind++)
        draw(out, report, (yoke_report_curve)kind, most);
}
