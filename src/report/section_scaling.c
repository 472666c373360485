/* SPDX-License-Identifier: Apache-2.0 */
/* How fast: a table of all runs, throughput and step time against the number of devices. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "report/sections.h"

#define IDEAL_MAX 64 /* devices */

static yoke_report_interval figure_of(const yoke_report_mode *mode, bool throughput) {
    return throughput ? mode->images_per_second : mode->step_ms;
}

/* The smallest number of devices above `devices` that has such a figure; 0: none. */
static int next_count(const yoke_report *report, bool throughput, int devices) {
    int next = 0;
    FOR_MODES (report, mode)
        if (mode->devices > devices && figure_of(mode, throughput).value > 0 &&
            (next == 0 || mode->devices < next))
            next = mode->devices;
    return next;
}

static int most_devices(const yoke_report *report) {
    int most = 0;
    for (int next; (next = next_count(report, false, most)) > 0; most = next) {
    }
    return most;
}

/* The first mode on one device; NULL: none. */
static const yoke_report_mode *base_mode(const yoke_report *report, bool throughput) {
    FOR_MODES (report, mode)
        if (mode->devices == 1 && figure_of(mode, throughput).value > 0) return mode;
    return NULL;
}

void yoke_find_ends(const yoke_report *report, bool first_only, const yoke_report_mode **fast,
                    const yoke_report_mode **slow) {
    int most = most_devices(report);
    *fast = *slow = NULL;
    FOR_MODES (report, mode) {
        double ms = yoke_mode_step_ms(mode);
        if (first_only ? !mode->first : mode->devices != most) continue;
        if (!(ms > 0) || mode->unlike) continue;
        if (*fast == NULL || ms < yoke_mode_step_ms(*fast)) *fast = mode;
        if (*slow == NULL || ms > yoke_mode_step_ms(*slow)) *slow = mode;
    }
}

void yoke_report_mark_ends(yoke_report *report) {
    const yoke_report_mode *fast, *slow;
    yoke_find_ends(report, false, &fast, &slow);
    for (int i = 0; i < report->mode_count; i++)
        report->modes[i].first = &report->modes[i] == fast || &report->modes[i] == slow;
}

bool yoke_are_apart(const yoke_report *report, const yoke_report_mode *fast,
                    const yoke_report_mode *slow) {
    if (fast == NULL || fast == slow || report->no_verdict) return false;
    return yoke_mode_step_ms(fast) < yoke_mode_step_ms(slow) &&
           (fast->step_ms.high <= slow->step_ms.low || !(slow->step_ms.low > 0));
}

double yoke_mode_step_ms(const yoke_report_mode *mode) {
    return mode->step_ms.value > 0 ? mode->step_ms.value : mode->mean_step_ms;
}

static void say_step_time(yoke_html *out, const yoke_report *report, const yoke_report_mode *fast,
                          const yoke_report_mode *slow) {
    if (fast == NULL || fast == slow) return;
    yoke_say(out, "On %d devices a step takes %s in %s and %s in %s: %s more.", fast->devices,
             MS(fast->step_ms.value), fast->name, MS(slow->step_ms.value), slow->name,
             PERCENT(slow->step_ms.value - fast->step_ms.value, fast->step_ms.value));
    if (yoke_are_apart(report, fast, slow)) return;
    yoke_say(out, report->no_verdict
                      ? "The race was disturbed or too short: it does not say which is faster."
                      : "Their intervals overlap: this run does not say which is faster.");
}

/* N devices train N times as fast as the first mode on one device. Their step is as long as that of
 * one where each keeps its rows, as in simulations, and 1 / N of it where they share a batch. */
static double ideal_of(const yoke_report *report, double one, bool throughput, int devices) {
    if (throughput) return one * devices;
    return report->simulated ? one : one / devices;
}

static void write_table(yoke_html *out, const yoke_report *report, bool throughput, bool ideal) {
    yoke_table table = yoke_data_begin(out, throughput ? "throughput" : "step-time", "devices");
    FOR_MODES (report, mode) /* columns in the order of modes */
        if (mode->devices > 0) yoke_table_cell(&table, mode->name, "");
    for (int count = 0; (count = next_count(report, throughput, count)) > 0;) {
        yoke_table_row(&table, COUNT(count));
        FOR_MODES (report, mode)
            if (mode->devices == count)
                yoke_table_cell(&table, mode->name,
                                yoke_interval_text(figure_of(mode, throughput), (char[128]){0}));
        if (!ideal) continue;
        double one = figure_of(base_mode(report, throughput), throughput).value;
        yoke_table_cell(&table, "ideal", NUMBER(ideal_of(report, one, throughput, count)));
    }
    yoke_table_end(&table);
}

/* The title is the result where there is one, otherwise the subject. */
void yoke_section_scaling(yoke_html *out, const yoke_report *report, bool throughput) {
    const yoke_report_mode *fast, *slow, *base = base_mode(report, throughput);
    char title[YOKE_TEXT_BYTES];
    int most = most_devices(report);
    bool ideal = base != NULL && most >= 2 && most <= IDEAL_MAX;
    if (next_count(report, throughput, 0) == 0) return;
    yoke_find_ends(report, false, &fast, &slow);
    const char *plural = most == 1 ? "" : "s";
    if (!yoke_are_apart(report, fast, slow))
        snprintf(title, sizeof title, "%s", throughput ? "Throughput" : "Step time");
    else if (throughput)
        snprintf(title, sizeof title, "%s is %s times as fast as %s on %d device%s", fast->name,
                 DECIMAL(slow->step_ms.value / fast->step_ms.value, 2), slow->name, most, plural);
    else
        snprintf(title, sizeof title, "A step takes %s in %s and %s in %s on %d device%s",
                 MS(fast->step_ms.value), fast->name, MS(slow->step_ms.value), slow->name, most,
                 plural);
    yoke_section_begin(out, throughput ? "throughput" : "step-time", title, false);
    if (!throughput)
        say_step_time(out, report, fast, slow);
    else if (base != NULL && fast != NULL && most > 1)
        yoke_say(out,
                 "On %d devices %s trains %s images a second, %s times as many as the %s of %s on "
                 "one; the ideal is %d times.",
                 most, fast->name, NUMBER(fast->images_per_second.value),
                 NUMBER(fast->images_per_second.value / base->images_per_second.value),
                 NUMBER(base->images_per_second.value), base->name, most);
    yoke_chart(out, throughput ? "throughput" : "step-time");
    write_table(out, report, throughput, ideal);
    snprintf(title, sizeof title, "A point, or the end of a bar, is %s%s%s.%s%s%s",
             report->simulated ? "a simulated step" : "the median of the rounds",
             report->interval[0] != '\0' ? "; the thin line through it, the " : "",
             report->interval, ideal ? " Ideal: N devices are N times as fast as " : "",
             ideal ? base->name : "", ideal ? " on one." : "");
    yoke_section_end(out, report->simulated ? "simulated-runs" : "throughput", title);
}

static const char *last_text(const yoke_report_points *curve, char text[YOKE_NUMBER_BYTES]) {
    if (curve->count > 0) yoke_number(curve->points[curve->count - 1].value, text);
    return text;
}

void yoke_section_runs(yoke_html *out, const yoke_report *report) {
    static const struct {
        const char *name;
        yoke_report_curve curve;
    } last[] = {{"last loss", YOKE_REPORT_LOSS},
                {"test loss", YOKE_REPORT_TEST_LOSS},
                {"accuracy %", YOKE_REPORT_ACCURACY}};
    const char *title = report->mode_count == 1 ? "The run" : "All runs";
    if (report->rates != NULL || report->mode_count == 0) return; /* a range test is no run */
    yoke_section_begin(out, "runs", title, true);
    yoke_table table = yoke_table_begin(out, NULL, title, "run");
    FOR_MODES (report, mode) {
        char text[128];
        yoke_report_interval step_ms = mode->step_ms;
        if (!(step_ms.value > 0)) step_ms.value = mode->mean_step_ms;
        yoke_table_row(&table, LABEL(report, mode));
        yoke_table_cell(&table, "devices", mode->devices > 0 ? COUNT(mode->devices) : "");
        yoke_table_cell(&table, "step ms", yoke_interval_text(step_ms, text));
        yoke_table_cell(&table, "images / s", yoke_interval_text(mode->images_per_second, text));
        yoke_table_cell(&table, "speed-up", yoke_interval_text(mode->speedup, text));
        for (size_t i = 0; i < sizeof last / sizeof last[0]; i++)
            yoke_table_cell(&table, last[i].name,
                            last_text(&mode->curves[last[i].curve], (char[YOKE_NUMBER_BYTES]){0}));
        yoke_table_cell(&table, "weights hash", mode->weights_hash);
    }
    yoke_table_end(&table);
    yoke_html_write(out, "</section>");
}
