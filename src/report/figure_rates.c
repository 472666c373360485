/* SPDX-License-Identifier: Apache-2.0 */
/* A learning rate range test: the losses of its steps against their rates. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "report/figures.h"

#define SERIES 3

typedef struct rate_lines {
    yoke_svg_series series[SERIES];
    int count;
    double top; /* of the drawing: a loss that diverges leaves it */
} rate_lines;

static void add(yoke_markup *out, rate_lines *lines, const yoke_svg_series *series,
                const yoke_svg_point *points) {
    yoke_svg_series *added = &lines->series[lines->count];
    size_t bytes = (size_t)series->count * sizeof *points;
    *added = *series;
    added->points = yoke_figure_memory_for(out, (size_t)series->count, sizeof *points);
    if (added->points == NULL) return;
    memcpy(added->points, points, bytes);
    lines->count++;
}

static void add_curve(yoke_markup *out, rate_lines *lines, const yoke_report_rates *test,
                      const double *values, const yoke_svg_series *series) {
    yoke_svg_series all = *series;
    yoke_svg_point *points = yoke_figure_memory_for(out, (size_t)test->count, sizeof *points);
    all.count = test->count;
    for (int i = 0; points != NULL && i < test->count; i++)
        points[i] = (yoke_svg_point){.x = test->rates[i], .y = values[i]};
    if (points != NULL) add(out, lines, &all, points);
    yoke_free(points);
}

static void collect(yoke_markup *out, rate_lines *lines, const yoke_report_rates *test) {
    add_curve(out, lines, test, test->losses,
              &(yoke_svg_series){
                  .name = "Loss of a batch", .style = "m1", .markers = true, .apart = true});
    add_curve(out, lines, test, test->smoothed,
              &(yoke_svg_series){.name = "Smoothed loss", .style = "m0"});
    /* The top lies as far above the highest smoothed loss before the lowest one as the losses
     * go below it. */
    int lowest = 0;
    double high = -INFINITY, low = INFINITY;
    for (int i = 0; i < test->count; i++) {
        if (test->smoothed[i] < test->smoothed[lowest]) lowest = i;
        low = fmin(low, test->losses[i]);
    }
    for (int i = 0; i <= lowest; i++)
        high = fmax(high, test->smoothed[i]);
    lines->top = high + (high - low);
    if (test->suggested < 0) return;
    yoke_svg_point mark = {.x = test->rates[test->suggested], .y = test->smoothed[test->suggested]};
    add(out, lines,
        &(yoke_svg_series){
            .name = "Suggested rate", .style = "m2", .count = 1, .markers = true, .upright = true},
        &mark);
}

static void say(yoke_markup *out, const yoke_report_rates *test, double top) {
    char number[2][YOKE_NUMBER_BYTES];
    int above = 0;
    for (int i = 0; i < test->count; i++)
        above += test->losses[i] > top;
    if (test->suggested >= 0)
        yoke_figure_say(out, NULL, "The smoothed loss falls fastest at a rate of %s.",
                        yoke_scientific(test->rates[test->suggested], number[0]));
    else
        yoke_figure_say(out, NULL, "There is %s.", test->text);
    if (test->suggested >= 0 && test->cautious < test->rates[test->suggested])
        yoke_figure_say(out, NULL,
                        "Where a run at this rate diverges, try %s, a tenth of the rate of the "
                        "lowest smoothed loss.",
                        yoke_scientific(test->cautious, number[0]));
    if (above > 0)
        yoke_figure_say(out, NULL, "%d of %d losses are above %s, outside the drawing.", above,
                        test->count, yoke_number(top, number[0]));
}

void yoke_figure_rates(yoke_markup *out, const yoke_report *report) {
    static const char *const sources[] = {"src/train/lr_find.c", "src/train/lr_curve.c"};
    const yoke_report_rates *test = report->rates;
    rate_lines lines = {.count = 0};
    if (test == NULL) return;
    if (test->count < 2) {
        yoke_figure_say(out, NULL, "There is %s.", test->text);
        return;
    }
    collect(out, &lines, test);
    yoke_svg_xy chart = {
        .head = {"rates-chart", "Loss by learning rate",
                 "The loss of each step and the smoothed loss against the learning rate on a "
                 "logarithmic axis, with the suggested rate. The data follow as a table."},
        .x_name = "learning rate",
        .y_name = "loss",
        .log_x = true,
        .y_most = lines.top,
        .series = lines.series,
        .count = lines.count};
    char title[96] = "Loss by learning rate", number[YOKE_NUMBER_BYTES];
    if (test->suggested >= 0)
        snprintf(title, sizeof title, "The smoothed loss falls fastest at a rate of %s",
                 yoke_scientific(test->rates[test->suggested], number));
    yoke_html_figure_begin(out, "rates", title, false);
    say(out, test, lines.top);
    yoke_figure_lines(out, &chart);
    yoke_figure_say(out, "meaning",
                    "The rate of each step is that of the step before, times the same factor. A "
                    "smoothed loss is the mean of the losses so far, in which older ones weigh "
                    "less, as in fastai's lr_find.");
    yoke_figure_sources(out, sources, 2);
    yoke_html_figure_end(out);
    for (int i = 0; i < lines.count; i++)
        yoke_free(lines.series[i].points);
}
