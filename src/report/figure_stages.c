/* SPDX-License-Identifier: Apache-2.0 */
/* Where the time goes: a bar of stages for each mode, and what each device does. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "report/figures.h"

#define ROWS_MAX 96
#define SAID_MAX 6

static bool used_stage(const yoke_report *report, int stage) {
    for (int i = 0; i < report->mode_count; i++)
        for (int j = 0; j < report->modes[i].lane_count; j++)
            if (report->modes[i].lanes[j].stage_ms[stage] > 0) return true;
    return false;
}

/* The mean over the mode's devices. */
static double mean_ms(const yoke_report_mode *mode, int stage) {
    double sum = 0;
    int count = 0;
    for (int i = 0; i < mode->lane_count; i++) {
        if (mode->lanes[i].beside) continue;
        sum += mode->lanes[i].stage_ms[stage];
        count++;
    }
    return count > 0 ? sum / count : 0;
}

static bool has_stages(const yoke_report_mode *mode) {
    return mode->lane_count > 0 && mode->mean_step_ms > 0;
}

/* A mean over devices hides that the root's link may carry more than the others. */
static void say_root(yoke_markup *out, const yoke_report_mode *mode, const char *label,
                     const double means[YOKE_ACCOUNT_STAGES]) {
    const yoke_report_lane *root = &mode->lanes[0];
    double root_ms = yoke_account_activity_ms(root->stage_ms, YOKE_COMMUNICATES);
    double mean = yoke_account_activity_ms(means, YOKE_COMMUNICATES);
    if (root->beside || root_ms < 1.1 * mean || root_ms < 0.05 * mode->mean_step_ms) return;
    yoke_figure_say(out, NULL, "%s: the root, %s, communicates for %s of the step.", label,
                    root->name, yoke_text_ms(root_ms, (char[64]){0}));
}

/* "computes for 3 ms, communicates for 1 ms and waits for 2 ms"; what takes no time is left out. */
static const char *say_activities(const double means[YOKE_ACCOUNT_STAGES], char text[256]) {
    static const char *const verbs[] = {"computes", "communicates", "waits", "is idle"};
    double spent[YOKE_ACTIVITIES];
    int count = 0, said = 0;
    size_t length = 0;
    for (int i = 0; i < YOKE_ACTIVITIES; i++) {
        spent[i] = yoke_account_activity_ms(means, (yoke_activity)i);
        count += spent[i] > 0;
    }
    text[0] = '\0';
    for (int i = 0; i < YOKE_ACTIVITIES && length < 256; i++) {
        if (!(spent[i] > 0)) continue;
        const char *before = said == 0 ? "" : said + 1 < count ? ", " : " and ";
        length += (size_t)snprintf(text + length, 256 - length, "%s%s for %s", before, verbs[i],
                                   yoke_text_ms(spent[i], (char[64]){0}));
        said++;
    }
    return text;
}

static void say_mode(yoke_markup *out, const yoke_report *report, const yoke_report_mode *mode) {
    char label[YOKE_LABEL_BYTES], parts[256], text[2][64];
    double means[YOKE_ACCOUNT_STAGES];
    int longest = YOKE_STAGE_FORWARD;
    for (int stage = 0; stage < YOKE_ACCOUNT_STAGES; stage++)
        means[stage] = mean_ms(mode, stage);
    for (int stage = 0; stage < YOKE_ACCOUNT_STAGES; stage++)
        if (yoke_activity_of(stage) < YOKE_WAITS && means[stage] > means[longest]) longest = stage;
    yoke_mode_label(report, mode, label);
    yoke_figure_say(out, NULL, "%s: of the %s of a step a device %s. Its longest stage is %s, %s.",
                    label, yoke_text_ms(mode->mean_step_ms, text[0]), say_activities(means, parts),
                    yoke_stage_fact(longest).name, yoke_text_ms(means[longest], text[1]));
    say_root(out, mode, label, means);
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
    yoke_svg_part parts[YOKE_ACCOUNT_STAGES];
    int stages[YOKE_ACCOUNT_STAGES], count = 0, said = 0;
    size_t modes = (size_t)report->mode_count;
    for (int stage = 0; stage < YOKE_ACCOUNT_STAGES; stage++)
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
    yoke_free(labels);
    yoke_free(rows);
    yoke_free(values);
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
                    "and steps; the parts of a bar add up to the step. At every instant a device "
                    "is in one stage or idle: where spans overlap, computation counts before "
                    "communication, and communication before a wait; of two of a kind, the one "
                    "that began last. Wait: for another device, or for its link. Idle: no stage "
                    "runs, and the device is not known to wait.");
    yoke_html_figure_end(out);
}

/* Devices. */

/* Which has a bar. */
static bool is_device(const yoke_report_mode *mode, const yoke_report_lane *lane) {
    return has_stages(mode) && !lane->beside;
}

static double busy_ms(const yoke_report_lane *lane) {
    return yoke_account_activity_ms(lane->stage_ms, YOKE_COMPUTES);
}

static void say_devices(yoke_markup *out, const yoke_report *report, const yoke_report_mode *mode) {
    char label[YOKE_LABEL_BYTES], text[2][64];
    const yoke_report_lane *most = NULL, *least = NULL;
    for (int i = 0; i < mode->lane_count; i++) {
        const yoke_report_lane *lane = &mode->lanes[i];
        if (!is_device(mode, lane)) continue;
        if (most == NULL || busy_ms(lane) > busy_ms(most)) most = lane;
        if (least == NULL || busy_ms(lane) <= busy_ms(least)) least = lane;
    }
    if (most == least) return;
    yoke_mode_label(report, mode, label);
    yoke_text_percent(busy_ms(most), mode->mean_step_ms, text[0]);
    if (busy_ms(most) - busy_ms(least) < 0.02 * mode->mean_step_ms)
        yoke_figure_say(out, NULL, "%s: every device computes for about %s of the step.", label,
                        text[0]);
    else
        yoke_figure_say(out, NULL, "%s: %s computes most, for %s of the step; %s least, for %s.",
                        label, most->name, text[0], least->name,
                        yoke_text_percent(busy_ms(least), mode->mean_step_ms, text[1]));
}

static int count_devices(const yoke_report *report) {
    int count = 0;
    for (int m = 0; m < report->mode_count; m++)
        for (int i = 0; i < report->modes[m].lane_count; i++)
            count += is_device(&report->modes[m], &report->modes[m].lanes[i]);
    return count;
}

void yoke_figure_devices(yoke_markup *out, const yoke_report *report) {
    static const yoke_svg_part parts[YOKE_ACTIVITIES] = {{"compute", "s-compute"},
                                                         {"communicate", "s-communicate"},
                                                         {"wait", "s-wait"},
                                                         {"idle", "s-idle"}};
    char labels[ROWS_MAX][YOKE_LABEL_BYTES];
    const char *rows[ROWS_MAX], *groups[ROWS_MAX] = {NULL};
    double values[YOKE_ACTIVITIES * ROWS_MAX];
    int all = count_devices(report), count = all < ROWS_MAX ? all : ROWS_MAX, row = 0, said = 0;
    const yoke_report_mode *last = NULL;
    if (count == 0) return;
    yoke_html_figure_begin(out, "devices", "What each device does", false);
    for (int m = 0; m < report->mode_count; m++) {
        const yoke_report_mode *mode = &report->modes[m];
        if (mode->lane_count > 0 && said++ < SAID_MAX) say_devices(out, report, mode);
        for (int i = 0; i < mode->lane_count && row < count; i++) {
            if (!is_device(mode, &mode->lanes[i])) continue;
            if (row == 0 || mode != last) groups[row] = yoke_mode_label(report, mode, labels[row]);
            last = mode;
            rows[row] = mode->lanes[i].name;
            for (int k = 0; k < YOKE_ACTIVITIES; k++)
                values[YOKE_ACTIVITIES * row + k] =
                    yoke_account_activity_ms(mode->lanes[i].stage_ms, (yoke_activity)k);
            row++;
        }
    }
    yoke_svg_bars chart = {.head = {"devices-chart", "What each device does",
                                    "A bar for each device of each mode: milliseconds of a step "
                                    "in which it computes, communicates, waits or is idle. The "
                                    "data follow as a table."},
                           .x_name = "ms in a step",
                           .rows = rows,
                           .groups = groups,
                           .parts = parts,
                           .values = values,
                           .row_count = count,
                           .part_count = YOKE_ACTIVITIES};
    yoke_figure_bars(out, &chart);
    yoke_figure_say_left_out(out, count, all, "devices");
    yoke_figure_say(out, "meaning",
                    "A mean over the same steps as in the figure of stages, by the same rule. "
                    "Compute: python, forward, loss, backward, update. Communicate: scatter, "
                    "replicate, reduce, exchange, all_reduce, gather. Wait: load, wait.");
    const char *source = "src/parallel/step/runner.c";
    yoke_figure_sources(out, &source, 1);
    yoke_html_figure_end(out);
}
