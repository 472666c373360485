/* SPDX-License-Identifier: Apache-2.0 */
/* One step of each mode on one axis of time. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "report/figures.h"

#define LANES_MAX 128
#define DRAWN_MAX 2000 /* spans; the shortest are left out */
#define ROWS_MAX 600   /* of the table */
#define TITLE_BYTES 512
#define CAUSE_BYTES 160
#define SAID_MAX 6

/* A span with its place, as a figure shows it. */
typedef struct shown {
    const yoke_report_mode *mode;
    const yoke_report_lane *lane;
    const yoke_report_span *span;
    double ms;
    char title[TITLE_BYTES];
} shown;

static double in_ms(uint64_t ns) {
    return 1e-6 * (double)ns;
}

static const char *cause_text(const yoke_report_mode *mode, const yoke_report_span *span,
                              char text[CAUSE_BYTES]) {
    if (span->cause_lane >= 0 && span->cause_lane < mode->lane_count)
        snprintf(text, CAUSE_BYTES, "while %s runs %s", mode->lanes[span->cause_lane].name,
                 yoke_stage_fact(span->cause_stage).name);
    else
        text[0] = '\0';
    return text;
}

static void describe(shown *of) {
    char number[2][YOKE_NUMBER_BYTES], bucket[32] = "", bytes[64] = "", cause[CAUSE_BYTES];
    const yoke_span_info *span = &of->span->span;
    if (span->bucket >= 0) snprintf(bucket, sizeof bucket, ", bucket %d", span->bucket);
    if (span->bytes > 0) {
        char amount[48];
        snprintf(bytes, sizeof bytes, ", %s",
                 yoke_text_bytes((double)span->bytes, amount, sizeof amount));
    }
    cause_text(of->mode, of->span, cause);
    snprintf(of->title, sizeof of->title, "%s: %s%s, %s to %s ms%s%s%s", of->lane->name,
             yoke_stage_fact((int)span->stage).name, bucket,
             yoke_number(in_ms(span->begin_ns), number[0]),
             yoke_number(in_ms(span->end_ns), number[1]), bytes, cause[0] != '\0' ? ", " : "",
             cause);
}

/* All spans. */

typedef struct timeline {
    shown *all; /* in the order of modes, lanes and time */
    int count;
    double length_ms;
    double shortest_ms; /* of those that are drawn */
    bool used[YOKE_ACCOUNT_STAGES];
} timeline;

static int by_length(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a < b) - (a > b);
}

static void find_shortest(yoke_markup *out, timeline *all) {
    double *lengths = yoke_figure_memory_for(out, (size_t)all->count, sizeof *lengths);
    if (lengths == NULL) return;
    for (int i = 0; i < all->count; i++)
        lengths[i] = all->all[i].ms;
    qsort(lengths, (size_t)all->count, sizeof *lengths, by_length);
    if (all->count > DRAWN_MAX) all->shortest_ms = lengths[DRAWN_MAX - 1];
    yoke_free(lengths);
}

static int count_spans(const yoke_report *report) {
    int count = 0;
    for (int m = 0; m < report->mode_count; m++)
        for (int i = 0; i < report->modes[m].lane_count; i++)
            count += report->modes[m].lanes[i].span_count;
    return count;
}

static int count_lanes(const yoke_report *report) {
    int count = 0;
    for (int m = 0; m < report->mode_count; m++)
        for (int i = 0; i < report->modes[m].lane_count; i++)
            count += report->modes[m].lanes[i].span_count > 0;
    return count;
}

static void collect(yoke_markup *out, const yoke_report *report, timeline *all) {
    all->all = yoke_figure_memory_for(out, (size_t)count_spans(report), sizeof *all->all);
    if (all->all == NULL) return;
    for (int m = 0; m < report->mode_count; m++) {
        const yoke_report_mode *mode = &report->modes[m];
        all->length_ms = fmax(all->length_ms, mode->shown_ms);
        for (int i = 0; i < mode->lane_count; i++) {
            for (int j = 0; j < mode->lanes[i].span_count; j++) {
                const yoke_report_span *span = &mode->lanes[i].spans[j];
                shown *next = &all->all[all->count++];
                *next = (shown){mode, &mode->lanes[i], span, yoke_report_span_ms(span), ""};
                describe(next);
                all->used[span->span.stage] = true;
            }
        }
    }
    find_shortest(out, all);
}

/* Sentences. */

/* NULL: no device waits. */
static const yoke_report_span *find_longest_wait(const yoke_report_mode *mode,
                                                 const yoke_report_lane **waiter) {
    const yoke_report_span *longest = NULL;
    for (int i = 0; i < mode->lane_count; i++) {
        for (int j = 0; j < mode->lanes[i].span_count && !mode->lanes[i].beside; j++) {
            const yoke_report_span *span = &mode->lanes[i].spans[j];
            if (yoke_activity_of((int)span->span.stage) != YOKE_WAITS) continue;
            if (longest != NULL && yoke_report_span_ms(span) <= yoke_report_span_ms(longest))
                continue;
            longest = span;
            *waiter = &mode->lanes[i];
        }
    }
    return longest;
}

/* Sums over a step are those of the mean step, in another figure: here is one step. */
static void say_mode(yoke_markup *out, const yoke_report *report, const yoke_report_mode *mode) {
    const yoke_report_lane *waiter = NULL;
    const yoke_report_span *longest = find_longest_wait(mode, &waiter);
    char label[YOKE_LABEL_BYTES], cause[CAUSE_BYTES], ms[3][64], median[80] = "";
    char wait[256] = "No device waits for long.";
    if (mode->median_ms > 0)
        snprintf(median, sizeof median, " (median %s)", yoke_text_ms(mode->median_ms, ms[0]));
    if (longest != NULL && yoke_report_span_ms(longest) >= 0.01 * mode->shown_ms)
        snprintf(wait, sizeof wait, "The longest wait is %s, on %s%s%s%s.",
                 yoke_text_ms(yoke_report_span_ms(longest), ms[1]), waiter->name,
                 longest->cause_lane >= 0 ? ", " : "", cause_text(mode, longest, cause),
                 longest->cause_lane < 0 && report->simulated ? ", for its link" : "");
    yoke_figure_say(out, NULL, "%s: one step: %s%s. %s", yoke_mode_label(report, mode, label),
                    yoke_text_ms(mode->shown_ms, ms[2]), median, wait);
}

/* Drawing and table. */

static int make_lanes(const yoke_report *report, const timeline *all, yoke_svg_span *spans,
                      yoke_svg_lane lanes[LANES_MAX], char labels[LANES_MAX][YOKE_LABEL_BYTES]) {
    int count = 0, drawn = 0;
    const yoke_report_lane *lane = NULL;
    const yoke_report_mode *mode = NULL;
    for (int i = 0; i < all->count; i++) {
        const shown *from = &all->all[i];
        if (from->lane != lane) {
            if (count == LANES_MAX) break;
            lanes[count] = (yoke_svg_lane){.name = from->lane->name, .spans = &spans[drawn]};
            if (from->mode != mode)
                lanes[count].group = yoke_mode_label(report, from->mode, labels[count]);
            lane = from->lane;
            mode = from->mode;
            count++;
        }
        if (from->ms < all->shortest_ms) continue;
        const yoke_span_info *span = &from->span->span;
        yoke_svg_part part = yoke_stage_part((int)span->stage);
        yoke_svg_span *to = &spans[drawn++];
        *to = (yoke_svg_span){.begin = in_ms(span->begin_ns),
                              .end = in_ms(span->end_ns),
                              .label = span->bucket,
                              .title = from->title};
        memcpy(to->style, part.style, sizeof to->style);
        lanes[count - 1].count++;
    }
    return count;
}

static void draw(yoke_markup *out, const yoke_report *report, const timeline *all) {
    static yoke_svg_part none;
    yoke_svg_part legend[YOKE_ACCOUNT_STAGES] = {none};
    yoke_svg_lane lanes[LANES_MAX];
    char labels[LANES_MAX][YOKE_LABEL_BYTES];
    int used = 0;
    for (int stage = 0; stage < YOKE_ACCOUNT_STAGES; stage++)
        if (all->used[stage]) legend[used++] = yoke_stage_part(stage);
    yoke_svg_span *spans = yoke_figure_memory_for(out, (size_t)all->count, sizeof *spans);
    if (spans == NULL) return;
    int count = make_lanes(report, all, spans, lanes, labels);
    yoke_svg_lanes chart = {.head = {"timeline-chart", "Timeline of one step",
                                     "A lane for each device or rank of each mode; coloured spans "
                                     "are stages, with the numbers of buckets. The longest spans "
                                     "follow as a table."},
                            .x_name = "ms since the step began",
                            .length = all->length_ms,
                            .lanes = lanes,
                            .count = count,
                            .legend = legend,
                            .legend_count = used};
    yoke_html_chart_begin(out, "Timeline of one step, scrolls sideways", true);
    yoke_svg_draw_lanes(out, &chart);
    yoke_html_chart_end(out);
    yoke_figure_say_left_out(out, count, count_lanes(report), "lanes");
    if (all->shortest_ms > 0)
        yoke_figure_say(out, "meaning", "Spans shorter than %s are not drawn.",
                        yoke_text_ms(all->shortest_ms, (char[64]){0}));
    yoke_free(spans);
}

static void table(yoke_markup *out, const yoke_report *report, const timeline *all) {
    static const char *const headers[] = {"run",      "device",    "stage", "bucket",
                                          "begin ms", "length ms", "bytes", "meanwhile"};
    int rows = 0;
    yoke_html_table_begin(out, "Data", "Spans of the step", headers, 8);
    for (int i = 0; i < all->count && rows < ROWS_MAX; i++) {
        if (all->count > ROWS_MAX && all->all[i].ms < all->length_ms / 500) continue;
        const shown *row = &all->all[i];
        const yoke_span_info *span = &row->span->span;
        char label[YOKE_LABEL_BYTES], text[CAUSE_BYTES];
        yoke_html_row_begin(out, yoke_mode_label(report, row->mode, label));
        yoke_html_cell(out, row->lane->name);
        yoke_html_cell(out, yoke_stage_fact((int)span->stage).name);
        text[0] = '\0';
        if (span->bucket >= 0) snprintf(text, sizeof text, "%d", span->bucket);
        yoke_html_cell(out, text);
        yoke_html_cell(out, yoke_number(in_ms(span->begin_ns), text));
        yoke_html_cell(out, yoke_number(row->ms, text));
        yoke_html_cell(
            out, span->bytes > 0 ? yoke_text_bytes((double)span->bytes, text, sizeof text) : "");
        yoke_html_cell(out, cause_text(row->mode, row->span, text));
        yoke_html_row_end(out);
        rows++;
    }
    yoke_html_table_end(out, "Data");
    if (all->count > rows)
        yoke_figure_say(out, "meaning", "The table has %d of the %d spans.", rows, all->count);
}

void yoke_figure_timeline(yoke_markup *out, const yoke_report *report) {
    static const char *const sources[] = {"src/parallel/engine/data_parallel.c",
                                          "src/parallel/observers/timeline.c"};
    static const char *const model = "src/simulate/simulate.c";
    timeline all = {0};
    if (count_spans(report) == 0) return;
    collect(out, report, &all);
    yoke_html_figure_begin(out, "timeline", "Timeline of one step", true);
    if (all.all != NULL) {
        int said = 0;
        for (int m = 0; m < report->mode_count; m++)
            if (report->modes[m].lane_count > 0 && said++ < SAID_MAX)
                say_mode(out, report, &report->modes[m]);
        draw(out, report, &all);
        table(out, report, &all);
    }
    yoke_figure_say(out, "meaning",
                    "%s All runs share the axis. A number in a span is its bucket. Where spans "
                    "overlap, computation shows before communication, and communication before a "
                    "wait; of two of a kind, the one that began last.",
                    report->simulated ? "A simulated step, on its first devices."
                                      : "Of each run one recorded step, the one closest to the "
                                        "median of all; other figures show means.");
    yoke_figure_sources(out, report->simulated ? &model : sources, report->simulated ? 1 : 2);
    yoke_html_figure_end(out);
    yoke_free(all.all);
}
