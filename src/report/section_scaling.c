/* SPDX-License-Identifier: Apache-2.0 */
/* How fast: a table of all runs, throughput and step time against the number of devices. */
#include <stdio.h>

#include "base/base.h"
#include "report/sections.h"

#define IDEAL_MAX 64 /* devices */

static yoke_report_interval figure_of(const yoke_report_mode *mode, bool throughput) {
    return throughput ? mode->images_per_second : mode->step_ms;
}

/* The smallest number of devices above `devices` that a measured mode has; 0: none. */
static int next_count(const yoke_report *report, int devices) {
    int next = 0;
    FOR_MODES (report, mode)
        if (mode->devices > devices && mode->step_ms.value > 0 &&
            (next == 0 || mode->devices < next))
            next = mode->devices;
    return next;
}

static int most_devices(const yoke_report *report) {
    int most = 0;
    FOR_MODES (report, mode)
        if (mode->devices > most && mode->step_ms.value > 0) most = mode->devices;
    return most;
}

bool yoke_find_ends(const yoke_report *report, bool first_only, const yoke_report_mode **fast,
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
    return yoke_are_apart(report, *fast, *slow);
}

void yoke_report_mark_ends(yoke_report *report) {
    const yoke_report_mode *fast, *slow;
    (void)yoke_find_ends(report, false, &fast, &slow);
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
    SAY(out, "On %d devices a step takes %s in %s and %s in %s: %s more.", fast->devices,
        MS(fast->step_ms.value), fast->name, MS(slow->step_ms.value), slow->name,
        PERCENT(slow->step_ms.value - fast->step_ms.value, fast->step_ms.value));
    if (yoke_are_apart(report, fast, slow)) return;
    SAY(out, report->no_verdict
                 ? "The race was disturbed or too short: it does not say which is faster."
                 : "Their intervals overlap: this run does not say which is faster.");
}

/* Ideally N devices train N times as fast as the first mode on one device. Their step is as long as
 * that of one where each keeps its rows, as in simulations, and 1 / N of it where they share a
 * batch. */
static void write_table(yoke_html *out, const yoke_report *report, bool throughput,
                        const yoke_report_mode *ideal) {
    yoke_table table = yoke_data_begin(out, throughput ? "throughput" : "step-time", "devices");
    FOR_MODES (report, mode) /* columns in the order of modes */
        if (mode->devices > 0) yoke_table_cell(&table, mode->name, "");
    for (int count = 0; (count = next_count(report, count)) > 0;) {
        yoke_table_row(&table, COUNT(count));
        FOR_MODES (report, mode)
            if (mode->devices == count)
                yoke_table_cell(&table, mode->name, INTERVAL(figure_of(mode, throughput)));
        if (ideal == NULL) continue;
        double one = figure_of(ideal, throughput).value;
        double more = throughput ? count : report->simulated ? 1 : 1.0 / count;
        yoke_table_cell(&table, "ideal", NUMBER(one * more));
    }
    yoke_table_end(&table);
}

/* The title is the result where there is one, otherwise the subject. */
void yoke_section_scaling(yoke_html *out, const yoke_report *report, bool throughput) {
    const yoke_report_mode *fast, *slow, *one = NULL;
    const char *id = throughput ? "throughput" : "step-time";
    char title[YOKE_TEXT_BYTES];
    int most = most_devices(report);
    if (most == 0) return;
    FOR_MODES (report, mode)
        if (one == NULL && mode->devices == 1 && mode->step_ms.value > 0) one = mode;
    const yoke_report_mode *ideal = most >= 2 && most <= IDEAL_MAX ? one : NULL;
    bool apart = yoke_find_ends(report, false, &fast, &slow);
    const char *plural = most == 1 ? "" : "s";
    yoke_words(id, "title", title);
    if (apart && throughput)
        snprintf(title, sizeof title, "%s is %s times as fast as %s on %d device%s", fast->name,
                 DECIMAL(slow->step_ms.value / fast->step_ms.value, 2), slow->name, most, plural);
    else if (apart)
        snprintf(title, sizeof title, "A step takes %s in %s and %s in %s on %d device%s",
                 MS(fast->step_ms.value), fast->name, MS(slow->step_ms.value), slow->name, most,
                 plural);
    yoke_section_begin(out, id, title, false);
    if (!throughput)
        say_step_time(out, report, fast, slow);
    else if (one != NULL && fast != NULL && most > 1)
        SAY(out,
            "On %d devices %s trains %s images a second, %s times as many as the %s of %s on "
            "one; the ideal is %d times.",
            most, fast->name, NUMBER(fast->images_per_second.value),
            NUMBER(fast->images_per_second.value / one->images_per_second.value),
            NUMBER(one->images_per_second.value), one->name, most);
    write_table(out, report, throughput, ideal);
    snprintf(title, sizeof title, "A point, or the end of a bar, is %s%s%s.%s%s%s",
             report->simulated ? "a simulated step" : "the median of the rounds",
             report->interval[0] != '\0' ? "; the thin line through it, the " : "",
             report->interval, ideal != NULL ? " Ideal: N devices are N times as fast as " : "",
             ideal != NULL ? ideal->name : "", ideal != NULL ? " on one." : "");
    yoke_section_end(out, report->simulated ? "simulated-runs" : "throughput", title);
}

/* Where a curve ends; "": there is none. */
#define END_OF(curve) ((curve).count > 0 ? NUMBER(yoke_last_point(&(curve))->value) : "")

void yoke_section_runs(yoke_html *out, const yoke_report *report) {
    const char *title = report->mode_count == 1 ? "The run" : "All runs";
    if (report->rates != NULL || report->mode_count == 0) return; /* a range test is no run */
    yoke_section_begin(out, "runs", title, true);
    yoke_table table = yoke_table_begin(out, NULL, NULL, title, "run");
    FOR_MODES (report, mode) {
        yoke_report_interval step_ms = mode->step_ms;
        if (!(step_ms.value > 0)) step_ms.value = mode->mean_step_ms;
        yoke_table_row(&table, LABEL(report, mode));
        yoke_table_cell(&table, "devices", mode->devices > 0 ? COUNT(mode->devices) : "");
        yoke_table_cell(&table, "step ms", INTERVAL(step_ms));
        yoke_table_cell(&table, "images / s", INTERVAL(mode->images_per_second));
        yoke_table_cell(&table, "speed-up", INTERVAL(mode->speedup));
        yoke_table_cell(&table, "last loss", END_OF(mode->curves[YOKE_REPORT_LOSS]));
        yoke_table_cell(&table, "test loss", END_OF(mode->curves[YOKE_REPORT_TEST_LOSS]));
        yoke_table_cell(&table, "accuracy %", END_OF(mode->curves[YOKE_REPORT_ACCURACY]));
        yoke_table_cell(&table, "weights hash", mode->weights_hash);
    }
    yoke_table_end(&table);
    yoke_html_write(out, "</section>");
}
