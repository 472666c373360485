/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/live/live_measure.h"

#include <stdlib.h>

#include "base/base.h"
#include "trace/trace.h"

static void fill_stages(const yoke_account *mean, live_numbers *numbers) {
    numbers->stage_count = 0;
    numbers->step_ms = 0;
    for (int stage = 0; stage < YOKE_ACCOUNT_STAGES; stage++) {
        double ms = mean->stage_ms[stage];
        if (ms <= 0) continue;
        numbers->stages[numbers->stage_count++] = (live_stage){yoke_account_name(stage), ms};
        numbers->step_ms += ms;
    }
}

/* The steps behind the last evaluation. A step begins where the step before it ended: the time in
 * which the root waits for the loader lies between. */
static yoke_account_window find_window(yoke_spans *spans) {
    yoke_account_window window = {0};
    uint64_t before = 0;
    for (size_t i = 0; i < spans->count; i++) {
        yoke_span_info *span = &spans->all[i];
        if (span->lane != 0) break; /* lane 0 comes first, and records whole steps */
        if (span->stage == YOKE_STAGE_EVALUATE) {
            window = (yoke_account_window){0};
            before = 0;
        }
        if (span->stage != YOKE_STAGE_STEP) continue;
        if (before > 0) {
            span->begin_ns = before;
            if (window.steps++ == 0) window.begin_ns = before;
            window.end_ns = span->end_ns;
        }
        before = span->end_ns;
    }
    return window;
}

size_t live_measure(const yoke_trace *trace, int most, live_numbers *numbers) {
    yoke_account accounts[LIVE_DEVICES_MAX], mean = {0};
    yoke_spans spans;
    size_t each = 0;
    /* A step more, whose end is the begin of the first. */
    if (yoke_spans_read(trace, (uint64_t)most + 1, &spans) != YOKE_OK) return 0;
    yoke_account_window window = find_window(&spans);
    int count = numbers->device_count;
    if (window.steps > 0 && yoke_account_read(&spans, &window, accounts, count) == YOKE_OK) {
        for (int i = 0; i < count; i++) {
            live_device *device = &numbers->devices[i];
            double step_ms = accounts[i].step_ms > 0 ? accounts[i].step_ms : 1;
            device->wait = yoke_account_activity_ms(accounts[i].stage_ms, YOKE_WAITS) / step_ms;
            device->idle = accounts[i].stage_ms[YOKE_STAGE_IDLE] / step_ms;
            device->work = 1 - device->wait - device->idle;
            yoke_account_add(&mean, &accounts[i], 1.0 / count);
        }
        fill_stages(&mean, numbers);
        numbers->measured_steps = window.steps;
        each = spans.count / (size_t)(window.steps + 1) + 1;
    }
    yoke_spans_free(&spans);
    return each;
}
