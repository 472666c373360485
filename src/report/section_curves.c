/* SPDX-License-Identifier: Apache-2.0 */
/* What a run learns: a figure for each kind of curve, with a line for each run. Of one run alone,
 * the batches and the test split share a figure. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "report/sections.h"

#define LINES_MAX 32
#define POINTS_MAX 12000 /* on the page */
#define CELLS_MAX 3000   /* of a table */

const char *const yoke_curve_names[YOKE_REPORT_CURVES] = {
    "loss", "test-loss", "training-accuracy", "accuracy", "learning-rate", "step-ms", "images"};

/* The curve of the test split, which is the next one; itself: none. */
static int other_of(int kind) {
    return kind + (kind == YOKE_REPORT_LOSS || kind == YOKE_REPORT_TRAINING_ACCURACY);
}

int yoke_shown_points(const yoke_report *report, const yoke_report_points *points) {
    int curves = 0;
    FOR_MODES (report, mode)
        for (int kind = 0; kind < YOKE_REPORT_CURVES; kind++)
            curves += mode->curves[kind].count > 1;
    int most = POINTS_MAX / (curves > 0 ? curves : 1);
    most = most > 300 ? 300 : most < 20 ? 20 : most;
    return points->count < most ? points->count : most;
}

/* Evenly spread, the last one among them. */
const yoke_report_point *yoke_shown_point(const yoke_report_points *points, int shown, int i) {
    return &points->points[shown > 1 ? (int64_t)i * (points->count - 1) / (shown - 1)
                                     : points->count - 1];
}

const yoke_report_point *yoke_last_point(const yoke_report_points *points) {
    return points->count > 0 ? &points->points[points->count - 1] : NULL;
}

/* The lines of a figure. */
typedef struct curve_line {
    char label[YOKE_LABEL_BYTES];
    const yoke_report_points *curve;
    int shown, next;
} curve_line;
typedef struct curve_lines {
    curve_line all[LINES_MAX];
    int count;
} curve_lines;

static void add_line(curve_lines *lines, const yoke_report *report, const yoke_report_points *curve,
                     const char *label) {
    if (lines->count == LINES_MAX) return;
    curve_line *line = &lines->all[lines->count++];
    *line = (curve_line){.curve = curve, .shown = yoke_shown_points(report, curve)};
    snprintf(line->label, sizeof line->label, "%s", label);
}

/* A curve of one point is a number in the table of runs; beside a line, it is a point. A curve of
 * the only run that has nothing beside it bears the run's name. */
static void collect(curve_lines *lines, const yoke_report *report, int kind) {
    FOR_MODES (report, mode) {
        const yoke_report_points *steps = &mode->curves[kind];
        const yoke_report_points *tests = &mode->curves[other_of(kind)];
        bool alone = report->mode_count == 1, together = alone && tests != steps;
        bool beside = kind > 0 && other_of(kind - 1) == kind; /* the curve before, in its figure */
        if (steps->count < 2 || (alone && beside && steps[-1].count > 1)) continue;
        add_line(lines, report, steps, together ? "Training batches" : LABEL(report, mode));
        if (together && tests->count > 0) add_line(lines, report, tests, "Test split");
    }
}

/* Sentences. */

/* The modes that end with the same weights as this one and come behind it. */
static void say_same_bits(yoke_html *out, const yoke_report *report, const yoke_report_mode *of) {
    bool any = false;
    FOR_MODES (report, mode) {
        if (mode == of || strcmp(mode->weights_hash, of->weights_hash) != 0) continue;
        if (mode < of || of->weights_hash[0] == '\0') return;
        if (!any)
            yoke_html_write(out, "<p>Equal weights, bit for bit (hash %s): %s", of->weights_hash,
                            LABEL(report, of));
        yoke_html_write(out, ", %s", LABEL(report, mode));
        any = true;
    }
    if (any) yoke_html_write(out, ".</p>");
}

static void say_ends(yoke_html *out, const curve_lines *lines) {
    for (const curve_line *line = lines->all; line < lines->all + lines->count; line++) {
        const yoke_report_point *first = line->curve->points, *last = yoke_last_point(line->curve);
        if (line == lines->all + 4) return;
        const char *begin =
            TEXT("from %s at step %s to ", NUMBER(first->value), COUNT(first->step));
        SAY(out, "%s: %s%s at step %s.", line->label, first == last ? "" : begin,
            NUMBER(last->value), COUNT(last->step));
    }
}

/* Says where evaluations were better than at the end. */
static void say_best(yoke_html *out, const curve_line *tests, double sign) {
    const yoke_report_point *best = tests->curve->points, *last = yoke_last_point(tests->curve);
    for (const yoke_report_point *point = best; point <= last; point++)
        if (sign * point->value > sign * best->value) best = point;
    if (sign * best->value > sign * last->value)
        SAY(out, "%s is best at step %s, with %s, and worse at the end.", tests->label,
            COUNT(best->step), NUMBER(best->value));
}

/* A row for each step at which a line has a point: the smallest of those that come next. Returns
 * their number; the table gets one of `stride`. NULL: only counts. */
static int write_rows(curve_lines lines, yoke_table *table, int stride) {
    for (int row = 0;; row++) {
        double step = INFINITY;
        const yoke_report_point *points[LINES_MAX] = {NULL};
        yoke_table *to = row % stride == 0 ? table : NULL;
        for (int i = 0; i < lines.count; i++) {
            const curve_line *line = &lines.all[i];
            if (line->next == line->shown) continue;
            points[i] = yoke_shown_point(line->curve, line->shown, line->next);
            step = fmin(step, points[i]->step);
        }
        if (!isfinite(step)) return row;
        if (to != NULL) yoke_table_row(to, DECIMAL(step, 2));
        for (int i = 0; i < lines.count; i++) {
            bool here = points[i] != NULL && points[i]->step <= step;
            lines.all[i].next += here;
            if (to != NULL) yoke_table_put(to, i + 1, here ? NUMBER(points[i]->value) : "");
        }
    }
}

static void write_table(yoke_html *out, const curve_lines *lines, const char *id,
                        const char *y_name) {
    int stride = 1 + write_rows(*lines, NULL, 1) * lines->count / CELLS_MAX;
    const char *summary = stride > 1 ? TEXT("Data, one row of %d", stride) : "Data";
    yoke_table table = yoke_table_begin(out, id, summary, y_name, "step");
    for (int i = 0; i < lines->count; i++)
        yoke_table_column(&table, lines->all[i].label);
    (void)write_rows(*lines, &table, stride);
    yoke_table_end(&table);
}

/* The title says where the loss or the accuracy of one run ends; otherwise it is the subject. */
static void write_section(yoke_html *out, const yoke_report *report, const curve_lines *lines,
                          int kind) {
    const char *name = yoke_curve_names[kind];
    const char *id = kind == YOKE_REPORT_TRAINING_ACCURACY ? "accuracy" : name;
    const yoke_report_mode *mode = &report->modes[0];
    bool alone = report->mode_count == 1, together = alone && lines->count > 1;
    bool loss = kind <= YOKE_REPORT_TEST_LOSS, tests = other_of(kind) == kind;
    char title[YOKE_TEXT_BYTES], mean[96] = "";
    yoke_words(name, "title", title);
    if (alone && kind <= YOKE_REPORT_ACCURACY)
        snprintf(title, sizeof title, "At the end the %s is %s%s on %s", loss ? "loss" : "accuracy",
                 NUMBER(yoke_last_point(lines->all[lines->count - 1].curve)->value),
                 loss ? "" : " %", together || tests ? "the test split" : "a batch");
    yoke_section_begin(out, id, title, false);
    say_ends(out, lines);
    if (kind == YOKE_REPORT_LOSS)
        FOR_MODES (report, other)
            say_same_bits(out, report, other);
    if (alone && kind == YOKE_REPORT_IMAGES && mode->images_per_second.value > 0)
        SAY(out, "A step of median length trains %s images a second.",
            NUMBER(mode->images_per_second.value));
    if (together) say_best(out, &lines->all[1], loss ? -1 : 1);
    write_table(out, lines, id, together && loss ? "loss" : WORDS(name, "caption"));
    if (alone && mode->point_steps > 1 && !(tests && kind <= YOKE_REPORT_ACCURACY))
        snprintf(mean, sizeof mean, "A point%s is the mean of %llu steps.",
                 together ? " of the training batches" : "", (unsigned long long)mode->point_steps);
    snprintf(title, sizeof title, "%s%s%s",
             together ? WORDS(yoke_curve_names[other_of(kind)], "meaning") : "",
             together && mean[0] != '\0' ? " " : "", mean);
    yoke_section_end(out, name, title);
}

void yoke_section_curves(yoke_html *out, const yoke_report *report) {
    for (int kind = 0; kind < YOKE_REPORT_CURVES; kind++) {
        curve_lines lines = {.count = 0};
        collect(&lines, report, kind);
        if (lines.count > 0) write_section(out, report, &lines, kind);
    }
}

/* A learning rate range test: the losses of its steps against their rates. */
void yoke_section_rates(yoke_html *out, const yoke_report *report) {
    const yoke_lr_find_result *test = report->rates;
    bool found = test != NULL && test->suggested >= 0;
    if (test != NULL && test->count < 2) SAY(out, "There is %s.", test->text);
    if (test == NULL || test->count < 2) return;
    const char *title = found ? TEXT("The smoothed loss falls fastest at a rate of %s",
                                     SCIENTIFIC(test->suggestion))
                              : "Loss by learning rate";
    yoke_section_begin(out, "rates", title, false);
    SAY(out, found ? "%s." : "There is %s.", found ? title : test->text);
    if (found && test->cautious < test->suggestion)
        SAY(out,
            "Where a run at this rate diverges, try %s, a tenth of the rate of the lowest "
            "smoothed loss.",
            SCIENTIFIC(test->cautious));
    yoke_table table =
        yoke_table_begin(out, "rates", "Data", WORDS("loss", "title"), "learning rate");
    for (int i = 0; i < test->count; i++) {
        yoke_table_row(&table, SCIENTIFIC(test->learning_rates[i]));
        yoke_table_cell(&table, "Loss of a batch", NUMBER(test->losses[i]));
        yoke_table_cell(&table, "Smoothed loss", NUMBER(test->smoothed[i]));
        if (i == test->suggested) yoke_table_cell(&table, "Suggested rate", "here");
    }
    yoke_table_end(&table);
    yoke_section_end(out, "rates", "");
}
