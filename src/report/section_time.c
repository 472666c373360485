/* SPDX-License-Identifier: Apache-2.0 */
/* Where the time goes: one step of each mode, the stages of its mean step, and what each device
 * does. */
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"
#include "report/sections.h"

#define ROWS_MAX 600 /* of the table of spans */

const char *yoke_cause_text(const yoke_report_mode *mode, const yoke_report_span *span,
                            char text[YOKE_TEXT_BYTES]) {
    if (span->cause_lane < 0 || span->cause_lane >= mode->lane_count) return "";
    return yoke_text(text, YOKE_TEXT_BYTES, "while %s runs %s", mode->lanes[span->cause_lane].name,
                     yoke_account_name(span->cause_stage));
}

/* The timeline. */

static int by_length(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a < b) - (a > b);
}

double yoke_shortest_ms(yoke_html *out, const yoke_report *report) {
    int count = 0, filled = 0;
    FOR_MODES (report, mode)
        FOR_LANES (mode, lane)
            count += lane->span_count;
    if (count <= YOKE_SPANS_MAX) return 0;
    double *lengths = yoke_malloc((size_t)count * sizeof *lengths), shortest = 0;
    out->failed |= lengths == NULL;
    if (lengths == NULL) return 0;
    FOR_MODES (report, mode)
        FOR_LANES (mode, lane)
            FOR_SPANS (lane, span)
                lengths[filled++] = yoke_report_span_ms(span);
    qsort(lengths, (size_t)count, sizeof *lengths, by_length);
    shortest = lengths[YOKE_SPANS_MAX - 1];
    yoke_free(lengths);
    return shortest;
}

/* Sums over a step are those of the mean step, in another figure: here is one step. */
static void say_shown_step(yoke_html *out, const yoke_report *report,
                           const yoke_report_mode *mode) {
    const yoke_report_lane *waiter = NULL;
    const yoke_report_span *longest = NULL;
    FOR_DEVICES (mode, lane)
        FOR_SPANS (lane, span) {
            if (yoke_activity_of((int)span->span.stage) != YOKE_WAITS ||
                (longest != NULL && yoke_report_span_ms(span) <= yoke_report_span_ms(longest)))
                continue;
            longest = span;
            waiter = lane;
        }
    bool waits = longest != NULL && yoke_report_span_ms(longest) >= 0.01 * mode->shown_ms;
    SAY(out, "%s: this step takes %s%s. %s", LABEL(report, mode), MS(mode->shown_ms),
        mode->median_ms > 0 ? TEXT(" (median %s)", MS(mode->median_ms)) : "",
        !waits ? "No device waits for long."
               : TEXT("The longest wait is %s, on %s%s%s%s.", MS(yoke_report_span_ms(longest)),
                      waiter->name, longest->cause_lane >= 0 ? ", " : "", CAUSE(mode, longest),
                      longest->cause_lane < 0 && report->simulated ? ", for its link" : ""));
}

static void add_span(yoke_table *table, const yoke_report *report, const yoke_report_mode *mode,
                     const yoke_report_lane *lane, const yoke_report_span *of) {
    const yoke_span_info *span = &of->span;
    yoke_table_row(table, LABEL(report, mode));
    yoke_table_cell(table, "lane", lane->name);
    yoke_table_cell(table, "stage", yoke_account_name((int)span->stage));
    yoke_table_cell(table, "bucket", span->bucket >= 0 ? COUNT(span->bucket) : "");
    yoke_table_cell(table, "begin ms", NUMBER(1e-6 * (double)span->begin_ns));
    yoke_table_cell(table, "length ms", NUMBER(yoke_report_span_ms(of)));
    yoke_table_cell(table, "bytes", span->bytes > 0 ? BYTES((double)span->bytes) : "");
    yoke_table_cell(table, "meanwhile", CAUSE(mode, of));
}

void yoke_section_timeline(yoke_html *out, const yoke_report *report) {
    int spans = 0, lanes = 0, said = 0;
    double longest = 0, shortest = yoke_shortest_ms(out, report);
    FOR_MODES (report, mode) {
        longest = mode->shown_ms > longest ? mode->shown_ms : longest;
        FOR_LANES (mode, lane) {
            lanes += lane->span_count > 0;
            spans += lane->span_count;
        }
    }
    if (spans == 0) return;
    yoke_section_begin(out, "timeline", "Timeline of one step", true);
    FOR_MODES (report, mode)
        if (mode->lane_count > 0 && said++ < YOKE_SAID_MAX) say_shown_step(out, report, mode);
    yoke_table table = yoke_data_begin(out, "timeline", "run");
    FOR_MODES (report, mode)
        FOR_LANES (mode, lane)
            FOR_SPANS (lane, span)
                if (table.row_count < ROWS_MAX &&
                    (spans <= ROWS_MAX || yoke_report_span_ms(span) >= longest / 500))
                    add_span(&table, report, mode, lane, span);
    int rows = table.row_count;
    yoke_table_end(&table);
    yoke_say_left_out(out, YOKE_LANES_MAX, lanes, "lanes");
    if (shortest > 0) SAY(out, "Spans shorter than %s are not drawn.", MS(shortest));
    if (spans > rows) SAY(out, "The table has %d of the %d spans.", rows, spans);
    yoke_section_end(out, report->simulated ? "simulated" : "timeline", "");
}

/* Stages. */

static bool has_stages(const yoke_report_mode *mode) {
    return mode->lane_count > 0 && mode->mean_step_ms > 0;
}

/* Of all modes; -1: of none. */
static int next_stage(const yoke_report *report, int stage) {
    while (++stage < YOKE_ACCOUNT_STAGES)
        FOR_MODES (report, mode)
            FOR_LANES (mode, lane)
                if (lane->stage_ms[stage] > 0) return stage;
    return -1;
}

double yoke_mode_stage_ms(const yoke_report_mode *mode, int stage) {
    double sum = 0;
    int count = 0;
    FOR_DEVICES (mode, lane) {
        sum += lane->stage_ms[stage];
        count++;
    }
    return count > 0 ? sum / count : 0;
}

double yoke_mode_activity_ms(const yoke_report_mode *mode, yoke_activity activity) {
    double means[YOKE_ACCOUNT_STAGES];
    for (int stage = 0; stage < YOKE_ACCOUNT_STAGES; stage++)
        means[stage] = yoke_mode_stage_ms(mode, stage);
    return yoke_account_activity_ms(means, activity);
}

/* A mean over devices hides that the root's link may carry more than the others. */
static void say_stages(yoke_html *out, const yoke_report *report, const yoke_report_mode *mode) {
    const yoke_report_lane *root = &mode->lanes[0];
    double root_ms = yoke_account_activity_ms(root->stage_ms, YOKE_COMMUNICATES);
    double mean_ms = yoke_mode_activity_ms(mode, YOKE_COMMUNICATES);
    SAY(out,
        "%s: of the %s of a step a device computes for %s, communicates for %s, waits for %s "
        "and is idle for %s.",
        LABEL(report, mode), MS(mode->mean_step_ms), MS(yoke_mode_activity_ms(mode, YOKE_COMPUTES)),
        MS(mean_ms), MS(yoke_mode_activity_ms(mode, YOKE_WAITS)),
        MS(yoke_mode_activity_ms(mode, YOKE_IDLES)));
    if (root->kind == YOKE_LANE_DEVICE && root_ms >= 0.05 * mode->mean_step_ms &&
        root_ms >= 1.1 * mean_ms)
        SAY(out, "%s: the root, %s, communicates for %s of the step.", LABEL(report, mode),
            root->name, MS(root_ms));
}

/* The title says how much of the step a device computes, in the slowest and in the fastest mode. */
void yoke_section_stages(yoke_html *out, const yoke_report *report) {
    const yoke_report_mode *fast, *slow;
    bool apart = yoke_find_ends(report, true, &fast, &slow);
    int said = 0;
    if (next_stage(report, -1) < 0) return;
    yoke_section_begin(out, "stages",
                       apart ? TEXT("A device computes for %s of a step in %s, for %s in %s",
                                    COMPUTED(slow), slow->name, COMPUTED(fast), fast->name)
                             : "Stages of a step",
                       false);
    FOR_MODES (report, mode)
        if (has_stages(mode) && said++ < YOKE_SAID_MAX) say_stages(out, report, mode);
    yoke_table table = yoke_data_begin(out, "stages", "run");
    FOR_MODES (report, mode) {
        double sum = 0;
        if (!has_stages(mode)) continue;
        yoke_table_row(&table, LABEL(report, mode));
        for (int s = -1; (s = next_stage(report, s)) >= 0;) {
            yoke_table_cell(&table, yoke_account_name(s), NUMBER(yoke_mode_stage_ms(mode, s)));
            sum += yoke_mode_stage_ms(mode, s);
        }
        yoke_table_cell(&table, "sum", NUMBER(sum));
    }
    yoke_table_end(&table);
    table = yoke_table_begin(out, NULL, "Stages and their source files", "Stages", "stage");
    for (int s = -1; (s = next_stage(report, s)) >= 0;) {
        yoke_table_row(&table, yoke_account_name(s));
        yoke_table_cell(&table, "what happens", yoke_account_meaning(s));
        yoke_table_cell(&table, "source", WORDS("stage", yoke_account_name(s)));
    }
    yoke_html_write(out, "<div class=\"words\">");
    yoke_table_end(&table);
    yoke_html_write(out, "</div>");
    yoke_section_end(out, "stages", "");
}

/* Devices. */

static double busy_ms(const yoke_report_lane *lane) {
    return yoke_account_activity_ms(lane->stage_ms, YOKE_COMPUTES);
}

static void say_devices(yoke_html *out, const yoke_report *report, const yoke_report_mode *mode) {
    const yoke_report_lane *most = NULL, *least = NULL;
    FOR_DEVICES (mode, lane) {
        if (most == NULL || busy_ms(lane) > busy_ms(most)) most = lane;
        if (least == NULL || busy_ms(lane) <= busy_ms(least)) least = lane;
    }
    if (most == least) return;
    if (busy_ms(most) - busy_ms(least) < 0.02 * mode->mean_step_ms)
        SAY(out, "%s: every device computes equally long.", LABEL(report, mode));
    else
        SAY(out, "%s: %s computes most, for %s of the step; %s least, for %s.", LABEL(report, mode),
            most->name, PERCENT(busy_ms(most), mode->mean_step_ms), least->name,
            PERCENT(busy_ms(least), mode->mean_step_ms));
}

void yoke_section_devices(yoke_html *out, const yoke_report *report) {
    static const char *const names[] = {"compute", "communicate", "wait", "idle"};
    int said = 0, devices = 0;
    if (next_stage(report, -1) < 0) return;
    yoke_section_begin(out, "devices", "What each device does", false);
    FOR_MODES (report, mode)
        if (has_stages(mode) && said++ < YOKE_SAID_MAX) say_devices(out, report, mode);
    yoke_table table = yoke_data_begin(out, "devices", "");
    FOR_MODES (report, mode) {
        if (!has_stages(mode)) continue;
        FOR_DEVICES (mode, lane) {
            if (devices++ >= YOKE_DEVICES_MAX) continue;
            yoke_table_row(&table, TEXT("%s, %s", LABEL(report, mode), lane->name));
            double sum = 0;
            for (int i = 0; i < YOKE_ACTIVITIES; i++) {
                double ms = yoke_account_activity_ms(lane->stage_ms, (yoke_activity)i);
                yoke_table_cell(&table, names[i], NUMBER(ms));
                sum += ms;
            }
            yoke_table_cell(&table, "sum", NUMBER(sum));
        }
    }
    yoke_table_end(&table);
    yoke_say_left_out(out, YOKE_DEVICES_MAX, devices, "devices");
    yoke_section_end(out, "devices", "");
}
