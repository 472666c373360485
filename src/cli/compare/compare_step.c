/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/compare/compare_step.h"

#include <math.h>
#include <stdbool.h>

static double step_ms(const yoke_span_info *span) {
    return 1e-6 * (double)(span->end_ns - span->begin_ns);
}

int compare_steps_list(const yoke_spans *spans, yoke_span_info *steps, int capacity) {
    int count = 0;
    for (size_t i = 0; i < spans->count; i++)
        if (spans->all[i].stage == YOKE_STAGE_STEP) steps[count++ % capacity] = spans->all[i];
    return count < capacity ? count : capacity;
}

int compare_steps_join(yoke_span_info *steps, int count, const yoke_span_info *others,
                       int other_count) {
    int kept = 0;
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < other_count; k++) {
            if (others[k].step != steps[i].step) continue;
            yoke_span_info both = steps[i];
            if (others[k].begin_ns < both.begin_ns) both.begin_ns = others[k].begin_ns;
            if (others[k].end_ns > both.end_ns) both.end_ns = others[k].end_ns;
            steps[kept++] = both;
            break;
        }
    }
    return kept;
}

uint64_t compare_steps_choose(const yoke_span_info *steps, int count, double milliseconds,
                              double least_ms) {
    const yoke_span_info *best = NULL;
    for (int i = 0; i < count; i++) {
        double ms = step_ms(&steps[i]), best_ms = best != NULL ? step_ms(best) : 0;
        bool closer = best == NULL || fabs(ms - milliseconds) < fabs(best_ms - milliseconds);
        if (best != NULL && (ms >= least_ms) != (best_ms >= least_ms)) closer = ms >= least_ms;
        if (closer) best = &steps[i];
    }
    return best != NULL ? best->step : COMPARE_NO_STEP;
}

static void add_span(compare_step *step, int capacity, const yoke_span_info *span, int lane) {
    if (step->count == capacity) {
        step->left_out++;
        return;
    }
    step->spans[step->count] = *span;
    step->spans[step->count++].lane = lane;
}

/* NULL: the trace has no such step. */
static const yoke_span_info *find_step(const yoke_spans *spans, uint64_t number) {
    for (size_t i = 0; i < spans->count; i++)
        if (spans->all[i].stage == YOKE_STAGE_STEP && spans->all[i].step == number)
            return &spans->all[i];
    return NULL;
}

void compare_step_read(const yoke_spans *spans, compare_step *step, int capacity) {
    const yoke_span_info *whole = find_step(spans, step->number);
    step->count = step->left_out = 0;
    step->begin_ns = step->end_ns = 0;
    if (whole == NULL) return;
    step->begin_ns = whole->begin_ns;
    step->end_ns = whole->end_ns;
    step->milliseconds = step_ms(whole);
    for (size_t i = 0; i < spans->count; i++) {
        const yoke_span_info *span = &spans->all[i];
        if (span->step != whole->step || span->stage == YOKE_STAGE_STEP) continue;
        add_span(step, capacity, span, span->lane);
    }
    for (size_t i = 0; i < spans->link_count; i++) {
        const yoke_span_info *span = &spans->links[i];
        if (span->step == whole->step) add_span(step, capacity, span, COMPARE_LINK_OF(span->lane));
    }
}

void compare_step_join(compare_step *step, const compare_step *part, int rank) {
    if (part->end_ns == 0) return;
    if (part->begin_ns < step->begin_ns) step->begin_ns = part->begin_ns;
    if (part->end_ns > step->end_ns) step->end_ns = part->end_ns;
    step->milliseconds = 1e-6 * (double)(step->end_ns - step->begin_ns);
    step->left_out += part->left_out;
    for (int i = 0; i < part->count; i++) {
        yoke_span_info *span = &step->spans[step->count++];
        *span = part->spans[i];
        span->lane = span->lane < 0 ? COMPARE_LINK_OF(rank) : rank;
    }
}
