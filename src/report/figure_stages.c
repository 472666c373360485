/* SPDX-License-Identifier: Apache-2.0 */
/* Where the time goes: a bar of stages for each mode, and what each device does. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/figures.h"

#define ROWS_MAX 96
#define SAID_MAX 6

/* Times without a stage are one part here; the timeline tells waiting from idle. */
static double time_of(const yoke_report_lane *lane, int stage) {
    if (stage == YOKE_REPORT_WAITING) return 0;
    return lane->stage_ms[stage] +
           (stage == YOKE_REPORT_IDLE ? lane->stage_ms[YOKE_REPORT_WAITING] : 0);
}

static bool used_stage(const yoke_report *report, int stage) {
    for (int i = 0; i < report->mode_count; i++)
        for (int j = 0; j < report->modes[i].lane_count; j++)
            if (!report->modes[i].lanes[j].beside && time_of(&report->modes[i].lanes[j], stage) > 0)
                return true;
    return false;
}

/* The mean over the mode's devices. */
static double mean_ms(const yoke_report_mode *mode, int stage) {
    double sum = 0;
    int count = 0;
    for (int i = 0; i < mode->lane_count; i++) {
        if (mode->lanes[i].beside) continue;
        sum += time_of(&mode->lanes[i], stage);
        count++;
    }
    return count > 0 ? sum / count : 0;
}

static bool has_stages(const yoke_report_mode *mode) {
    return mode->lane_count > 0 && mode->mean_step_ms > 0;
}

static void say_mode(yoke_markup *out, const yoke_report *report, const yoke_report_mode *mode) {
    char label[YOKE_LABEL_BYTES], text[4][64];
    double waits = 0;
    int longest = -1;
    for (int stage = 0; stage < YOKE_REPORT_STAGES; stage++) {
        if (yoke_stage_waits(stage))
            waits += mean_ms(mode, stage);
        else if (longest < 0 || mean_ms(mode, stage) > mean_ms(mode, longest))
            longest = stage;
    }
    yoke_figure_say(
        out, NULL,
        "%s: a device works %s of the %s of a step and waits the other %s (%s). Its "
        "longest stage is %s, %s.",
        yoke_mode_label(report, mode, label), yoke_text_ms(mode->mean_step_ms - waits, text[0]),
        yoke_text_ms(mode->mean_step_ms, text[1]), yoke_text_ms(waits, text[2]),
        yoke_text_percent(waits, mode->mean_step_ms, text[3]), yoke_stage_fact(longest).name,
        yoke_text_ms(mean_ms(mode, longest), (char[64]){0}));
}

static void stage_table(yoke_markup *out, const int *stages, int count) {
    static const char *const headers[] = {"stage", "what happens", "source"};
    yoke_markup_open(out, "div");
    yoke_markup_attribute(out, "class", "words");
    yoke_html_table_begin(out, "Stages and their source files", "Stages", headers, 3);
    for (int i = 0; i < count; i++) {
        stage_fact fact = yoke_stage_fact(stages[i]);
        yoke_html_row_begin(out, fact.name);
        yoke_html_cell(out, fact.what);
        yoke_html_cell(out, fact.source != NULL ? fact.source : "");
        yoke_html_row_end(out);
    }
    yoke_html_table_end(out, "Stages and their source files");
    yoke_markup_close(out);
}

static void draw_stages(yoke_markup *out, const yoke_report *report, yoke_svg_bars *chart) {
    yoke_svg_part parts[YOKE_REPORT_STAGES];
    int stages[YOKE_REPORT_STAGES], count = 0, said = 0;
    size_t modes = (size_t)report->mode_count;
    for (int stage = 0; stage < YOKE_REPORT_STAGES; stage++)
        if (used_stage(report, stage)) stages[count++] = stage;
    char(*labels)[YOKE_LABEL_BYTES] = yoke_figure_memory_for(out, modes, sizeof *labels);
    const char **rows = yoke_figure_memory_for(out, modes, sizeof *rows);
    double *values = yoke_figure_memory_for(out, modes * (size_t)count, sizeof *values);
    if (labels != NULL && rows != NULL && values != NULL) {
        for (int i = 0; i < count; i++)
            parts[i] = yoke_stage_part(stages[i]);
        for (int m = 0; m < report->mode_count; m++) {
            const yoke_report_mode *mode = &report->modes[m];
            if (!has_stages(mode)) continue;
            if (said++ < SAID_MAX) say_mode(out, report, mode);
            for (int i = 0; i < count; i++)
                values[chart->row_count * count + i] = mean_ms(mode, stages[i]);
            rows[chart->row_count] = yoke_mode_label(report, mode, labels[chart->row_count]);
            chart->row_count++;
        }
        chart->rows = rows;
        chart->parts = parts;
        chart->values = values;
        chart->part_count = count;
        yoke_figure_bars(out, chart);
        stage_table(out, stages, count);
    }
    free(labels);
    free(rows);
    free(values);
}

void yoke_figure_stages(yoke_markup *out, const yoke_report *report) {
    yoke_svg_bars chart = {.head = {"stages-chart", "Stages of a step",
                                    "A bar for each mode: its length is the step, its parts are "
                                    "the stages. The data follow as a table."},
                           .x_name = "ms in a step, mean over devices"};
    bool any = false;
    for (int i = 0; i < report->mode_count; i++)
        any |= has_stages(&report->modes[i]);
    if (!any) return;
    yoke_html_figure_begin(out, "stages", "Stages of a step", false);
    draw_stages(out, report, &chart);
    yoke_figure_say(out, "meaning",
                    "A part is the time that a device spends in the stage, as a mean over devices "
                    "and steps; the parts of a bar add up to the step. Idle: no stage runs on the "
                    "device; it waits for another one, or for the host.");
    yoke_html_figure_end(out);
}

/* Devices. */

/* Which has a bar. */
static bool is_device(const yoke_report_lane *lane) {
    return !lane->beside && lane->span_count > 0;
}

typedef struct lane_load {
    double busy, waiting, idle;
} lane_load;

static lane_load load_of(const yoke_report_lane *lane) {
    lane_load sum = {0};
    for (int i = 0; i < lane->span_count; i++) {
        const yoke_report_span *span = &lane->spans[i];
        double ms = span->end_ms - span->begin_ms;
        if (span->stage == YOKE_REPORT_IDLE)
            sum.idle += ms;
        else if (yoke_stage_waits(span->stage))
            sum.waiting += ms;
        else
            sum.busy += ms;
    }
    return sum;
}

static void say_devices(yoke_markup *out, const yoke_report *report, const yoke_report_mode *mode) {
    char label[YOKE_LABEL_BYTES], text[2][64];
    int most = -1, least = -1;
    for (int i = 0; i < mode->lane_count; i++) {
        if (!is_device(&mode->lanes[i])) continue;
        double busy = load_of(&mode->lanes[i]).busy;
        if (most < 0 || busy > load_of(&mode->lanes[most]).busy) most = i;
        if (least < 0 || busy <= load_of(&mode->lanes[least]).busy) least = i;
    }
    if (most == least) return;
    double busiest = load_of(&mode->lanes[most]).busy, laziest = load_of(&mode->lanes[least]).busy;
    yoke_mode_label(report, mode, label);
    yoke_text_percent(busiest, mode->shown_ms, text[0]);
    if (busiest - laziest < 0.02 * mode->shown_ms)
        yoke_figure_say(out, NULL, "%s: every device works about %s of the step.", label, text[0]);
    else
        yoke_figure_say(out, NULL, "%s: %s works most, %s of the step; %s least, %s.", label,
                        mode->lanes[most].name, text[0], mode->lanes[least].name,
                        yoke_text_percent(laziest, mode->shown_ms, text[1]));
}

static int count_devices(const yoke_report *report) {
    int count = 0;
    for (int m = 0; m < report->mode_count; m++)
        for (int i = 0; i < report->modes[m].lane_count; i++)
            count += is_device(&report->modes[m].lanes[i]);
    return count;
}

void yoke_figure_devices(yoke_markup *out, const yoke_report *report) {
    static const yoke_svg_part parts[] = {
        {"works", "s-compute"}, {"waits", "s-wait"}, {"idle", "s-idle"}};
    char labels[ROWS_MAX][YOKE_LABEL_BYTES];
    const char *rows[ROWS_MAX], *groups[ROWS_MAX] = {NULL};
    double values[3 * ROWS_MAX];
    int all = count_devices(report), count = all < ROWS_MAX ? all : ROWS_MAX, row = 0, said = 0;
    const yoke_report_mode *last = NULL;
    if (count == 0) return;
    yoke_html_figure_begin(out, "devices", "What each device does", false);
    for (int m = 0; m < report->mode_count; m++) {
        const yoke_report_mode *mode = &report->modes[m];
        if (mode->lane_count > 0 && said++ < SAID_MAX) say_devices(out, report, mode);
        for (int i = 0; i < mode->lane_count && row < count; i++) {
            if (!is_device(&mode->lanes[i])) continue;
            lane_load parts_of = load_of(&mode->lanes[i]);
            if (row == 0 || mode != last) groups[row] = yoke_mode_label(report, mode, labels[row]);
            last = mode;
            rows[row] = mode->lanes[i].name;
            memcpy(&values[3 * row], (double[]){parts_of.busy, parts_of.waiting, parts_of.idle},
                   3 * sizeof values[0]);
            row++;
        }
    }
    yoke_svg_bars chart = {.head = {"devices-chart", "What each device does",
                                    "A bar for each device of each mode: working, waiting and "
                                    "idle milliseconds of one step. The data follow as a table."},
                           .x_name = "ms of the step in the timeline",
                           .rows = rows,
                           .groups = groups,
                           .parts = parts,
                           .values = values,
                           .row_count = count,
                           .part_count = 3};
    yoke_figure_bars(out, &chart);
    yoke_figure_say_left_out(out, count, all, "devices");
    yoke_figure_say(out, "meaning",
                    "Works: a stage runs. Waits: in stage load or wait, or without a stage while "
                    "another device works for half of that time at least. Idle: the rest.");
    const char *source = "src/parallel/parallel_apply.c";
    yoke_figure_sources(out, &source, 1);
    yoke_html_figure_end(out);
}
