/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/live/live_measure.h"

#include <stdlib.h>

#include "base/base.h"
#include "cli/compare/compare_account.h"

static double waiting_ms(const compare_account *account) {
    return account->stage_ms[YOKE_STAGE_WAIT] + account->stage_ms[YOKE_STAGE_LOAD];
}

static void fill_device(const compare_account *account, live_device *device) {
    double step_ms = account->step_ms > 0 ? account->step_ms : 1;
    device->wait = waiting_ms(account) / step_ms;
    device->idle = account->idle_ms / step_ms;
    device->work = 1 - device->wait - device->idle;
}

static void add_stage(live_numbers *numbers, const char *name, double ms) {
    if (ms <= 0) return;
    numbers->stages[numbers->stage_count++] = (live_stage){name, ms};
    numbers->step_ms += ms;
}

static void fill_stages(const compare_account *mean, live_numbers *numbers) {
    numbers->stage_count = 0;
    numbers->step_ms = 0;
    for (int stage = 0; stage < YOKE_STAGE_COUNT; stage++)
        add_stage(numbers, yoke_stage_name((yoke_stage)stage), mean->stage_ms[stage]);
    add_stage(numbers, "idle", mean->idle_ms);
}

/* The steps behind the last evaluation. A step begins where the step before it ended: the time in
 * which the root waits for the loader lies between. */
static compare_window find_window(compare_spans *spans) {
    compare_window window = {0};
    uint64_t before = 0;
    for (size_t i = 0; i < spans->count; i++) {
        yoke_span_info *span = &spans->all[i];
        if (span->lane != 0) break; /* lane 0 comes first, and records whole steps */
        if (span->stage == YOKE_STAGE_EVALUATE) {
            window = (compare_window){0};
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

/* A step more, whose end is the begin of the first. */
static yoke_status read_spans(const yoke_trace *trace, int most, compare_spans *spans) {
    uint64_t steps = (uint64_t)most + 1;
    *spans = (compare_spans){.count = yoke_trace_read_last(trace, steps, NULL, 0)};
    spans->all = calloc(spans->count + 1, sizeof *spans->all);
    if (spans->all == NULL) return YOKE_ERROR_MEMORY;
    spans->all[0].struct_size = sizeof *spans->all;
    spans->count = yoke_trace_read_last(trace, steps, spans->all, spans->count);
    return YOKE_OK;
}

size_t live_measure(const yoke_trace *trace, int most, live_numbers *numbers) {
    compare_account accounts[LIVE_DEVICES_MAX], mean = {0};
    compare_spans spans;
    size_t each = 0;
    if (read_spans(trace, most, &spans) != YOKE_OK) return 0;
    compare_window window = find_window(&spans);
    int count = numbers->device_count;
    if (window.steps > 0 && compare_account_read(&spans, &window, accounts, count) == YOKE_OK) {
        for (int i = 0; i < count; i++) {
            fill_device(&accounts[i], &numbers->devices[i]);
            compare_account_add(&mean, &accounts[i], 1.0 / count);
        }
        fill_stages(&mean, numbers);
        numbers->measured_steps = window.steps;
        each = spans.count / (size_t)(window.steps + 1) + 1;
    }
    compare_spans_free(&spans);
    return each;
}
