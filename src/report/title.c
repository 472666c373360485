/* SPDX-License-Identifier: Apache-2.0 */
/* What the page answers at its first glance. */
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "report/sections.h"

#define WORTH 1.1       /* times as many bytes, or as much time: a reason */
#define WORTH_SHARE 0.3 /* of what one mode is slower, in one stage: a reason */

/* Beside what carries more: Python, where it costs the root as much. Alone, where it costs more. */
static void say_python(const yoke_report_mode *fast, const yoke_report_mode *slow, char text[160]) {
    if (fast->lane_count == 0 || slow->lane_count == 0) return;
    const double *less = fast->lanes[0].stage_ms, *more = slow->lanes[0].stage_ms;
    double python = more[YOKE_STAGE_PYTHON] - less[YOKE_STAGE_PYTHON], links = 0;
    for (int of = YOKE_COMMUNICATES; of <= YOKE_WAITS; of++)
        links += yoke_account_activity_ms(more, of) - yoke_account_activity_ms(less, of);
    if (!(python > 0) || links > WORTH * python) return;
    size_t used = python > WORTH * links ? 0 : strlen(text);
    snprintf(text + used, 160 - used, "%s the root spends %s more on Python",
             used > 0 ? ", and" : ":", MS(python));
}

/* More bytes over the busiest link. */
static bool say_links(const yoke_report_mode *fast, const yoke_report_mode *slow, char text[160]) {
    yoke_extremes own = yoke_find_extremes(&slow->links), other = yoke_find_extremes(&fast->links);
    double most = own.most.bytes, others = other.most.bytes;
    if (!(others > 0) || most / others < WORTH) return false;
    bool root = own.most.where == slow->links.rows[0].where && own.next.where != NULL &&
                most > WORTH * own.next.bytes;
    const char *times = DECIMAL(most / others, 1);
    times = strcmp(times, "2") == 0 ? "twice" : TEXT("%s times", times);
    snprintf(text, 160, ": %s link carries %s as much", root ? "the root's" : "its busiest", times);
    say_python(fast, slow, text);
    return true;
}

static double more_of(const yoke_report_mode *fast, const yoke_report_mode *slow, int stage) {
    return yoke_mode_stage_ms(slow, stage) - yoke_mode_stage_ms(fast, stage);
}

/* The stage that costs most of the difference. */
static void say_stage(const yoke_report_mode *fast, const yoke_report_mode *slow, char text[160]) {
    int most = 0;
    for (int stage = 1; stage < YOKE_ACCOUNT_STAGES; stage++)
        if (more_of(fast, slow, stage) > more_of(fast, slow, most)) most = stage;
    double longest = more_of(fast, slow, most);
    if (!(longest > WORTH_SHARE * (yoke_mode_step_ms(slow) - yoke_mode_step_ms(fast)))) return;
    if (yoke_activity_of(most) < YOKE_WAITS)
        snprintf(text, 160, ": a device spends %s more on %s", MS(longest),
                 yoke_account_name(most));
    else
        snprintf(text, 160, ": its devices %s %s longer",
                 yoke_activity_of(most) == YOKE_IDLES ? "are idle" : "wait", MS(longest));
}

static bool say_modes(const yoke_report *report, char text[YOKE_TEXT_BYTES]) {
    const yoke_report_mode *fast, *slow;
    char reason[160] = "";
    (void)yoke_find_ends(report, true, &fast, &slow);
    /* Of several that are as fast, ddp: it is what one uses. */
    FOR_MODES (report, mode)
        if (fast != NULL && mode->first && strcmp(mode->name, "ddp") == 0 &&
            !yoke_are_apart(report, fast, mode))
            fast = mode;
    if (!yoke_are_apart(report, fast, slow)) return false;
    if (!say_links(fast, slow, reason)) say_stage(fast, slow, reason);
    snprintf(text, YOKE_TEXT_BYTES, "%s %s, %s %s%s", slow->name, MS(yoke_mode_step_ms(slow)),
             fast->name, MS(yoke_mode_step_ms(fast)), reason);
    return true;
}

/* Of one run: how well it ended, or what a device does in a step. */
static bool say_run(const yoke_report_mode *mode, char text[YOKE_TEXT_BYTES]) {
    static const struct {
        yoke_report_curve curve;
        const char *before, *behind;
    } ends[] = {{YOKE_REPORT_ACCURACY, "", " % of the test rows are right"},
                {YOKE_REPORT_TEST_LOSS, "The loss of the test split is ", ""},
                {YOKE_REPORT_LOSS, "The loss of a batch is ", ""}};
    if (mode->mean_step_ms > 0 && mode->lane_count > 0) {
        snprintf(text, YOKE_TEXT_BYTES, "A step takes %s: a device computes for %s of it",
                 MS(yoke_mode_step_ms(mode)), COMPUTED(mode));
        return true;
    }
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        const yoke_report_point *last = yoke_last_point(&mode->curves[ends[i].curve]);
        if (last == NULL) continue;
        snprintf(text, YOKE_TEXT_BYTES, "%s%s%s after step %s", ends[i].before, NUMBER(last->value),
                 ends[i].behind, COUNT(last->step));
        return true;
    }
    return false;
}

const char *yoke_page_title(const yoke_report *report, char text[YOKE_TEXT_BYTES]) {
    const yoke_lr_find_result *rates = report->rates;
    if (rates != NULL && rates->count > 1 && rates->suggested >= 0)
        snprintf(text, YOKE_TEXT_BYTES, "The smoothed loss falls fastest at a learning rate of %s",
                 SCIENTIFIC(rates->suggestion));
    else if (!say_modes(report, text) && !(report->mode_count == 1 && say_run(report->modes, text)))
        snprintf(text, YOKE_TEXT_BYTES, "%s",
                 report->subject[0] != '\0' ? report->subject : "Yoke");
    return text;
}
