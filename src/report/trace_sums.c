/* SPDX-License-Identifier: Apache-2.0 */
/* Sums up a trace: what each lane does at every instant of a step. A step lasts from the first
 * process's begin to the last one's end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "report/trace_reader.h"

#define STEPS_MAX 64 /* the last ones of the file */

typedef struct window {
    int64_t step;
    double begin_ms, end_ms;
    size_t first, last; /* its events */
} window;

static int compare_events(const void *left, const void *right) {
    const trace_event *a = left, *b = right;
    if (a->step != b->step) return a->step < b->step ? -1 : 1;
    if (a->lane != b->lane) return a->lane < b->lane ? -1 : 1;
    if (a->begin_ms != b->begin_ms) return a->begin_ms < b->begin_ms ? -1 : 1;
    return (a->end_ms < b->end_ms) - (a->end_ms > b->end_ms);
}

static bool counts(const trace_event *event) {
    return event->stage != YOKE_STAGE_STEP && event->stage != YOKE_STAGE_EVALUATE;
}

static yoke_status cut_lane(yoke_report_lane *lane, const window *step, const trace_event *events,
                            size_t count) {
    size_t bytes = count * sizeof(yoke_report_span);
    yoke_report_span *spans = malloc(bytes > 0 ? bytes : 1);
    if (spans == NULL) return FAIL_MEMORY(bytes, "a step of a trace");
    int used = 0;
    for (size_t i = 0; i < count; i++)
        if (counts(&events[i]))
            spans[used++] = (yoke_report_span){.stage = events[i].stage,
                                               .bucket = events[i].bucket,
                                               .begin_ms = events[i].begin_ms - step->begin_ms,
                                               .end_ms = events[i].end_ms - step->begin_ms,
                                               .bytes = events[i].bytes,
                                               .cause_lane = events[i].cause_lane,
                                               .cause_stage = events[i].cause_stage};
    yoke_status status = yoke_report_cut(lane, spans, used, step->end_ms - step->begin_ms);
    free(spans);
    return status;
}

/* An evaluation has the number of the step behind it. */
static bool is_before(const trace_event *event, int lane, const window *step) {
    return event->lane == lane && event->end_ms <= step->begin_ms;
}

/* One step: `one` gets a lane for each of the file's. */
static yoke_status look_at_step(trace_file *file, const window *step, yoke_report_mode *one) {
    size_t at = step->first;
    for (int i = 0; i < file->lane_count; i++) {
        yoke_report_lane *lane;
        TRY(yoke_report_add_lane(one, file->lanes[i].name, &lane));
        while (at < step->last && is_before(&file->events[at], i, step))
            at++;
        size_t begin = at;
        while (at < step->last && file->events[at].lane == i)
            at++;
        size_t count = at - begin;
        if (count > YOKE_TRACE_STEP_SPANS) {
            file->crowded += count - YOKE_TRACE_STEP_SPANS;
            count = YOKE_TRACE_STEP_SPANS;
        }
        TRY(cut_lane(lane, step, &file->events[begin], count));
    }
    yoke_report_find_waits(one);
    return YOKE_OK;
}

/* All steps. */

static bool seen_before(const trace_file *file, size_t first, size_t event) {
    for (size_t i = first; i < event; i++)
        if (file->events[i].stage == YOKE_STAGE_STEP &&
            file->lanes[file->events[i].lane].process ==
                file->lanes[file->events[event].lane].process)
            return true;
    return false;
}

/* Fills in the window; false when a process lacks the step. */
static bool measure_window(const trace_file *file, int processes, window *step) {
    int found = 0;
    for (size_t i = step->first; i < step->last; i++) {
        const trace_event *event = &file->events[i];
        if (event->stage != YOKE_STAGE_STEP || seen_before(file, step->first, i)) continue;
        if (found == 0 || event->begin_ms < step->begin_ms) step->begin_ms = event->begin_ms;
        if (found == 0 || event->end_ms > step->end_ms) step->end_ms = event->end_ms;
        found++;
    }
    return found > 0 && found == processes && step->end_ms > step->begin_ms;
}

static int count_processes(const trace_file *file) {
    int count = 0;
    for (int i = 0; i < file->lane_count; i++) {
        bool known = false;
        for (int j = 0; j < i; j++)
            known |= file->lanes[i].process == file->lanes[j].process;
        count += !known;
    }
    return count;
}

/* The last complete steps, in order; a file's first step warms up and counts only when it is the
 * only one. */
static int find_windows(const trace_file *file, window windows[STEPS_MAX]) {
    int processes = count_processes(file), count = 0;
    for (size_t last = file->event_count; last > 0 && count < STEPS_MAX;) {
        size_t first = last - 1;
        while (first > 0 && file->events[first - 1].step == file->events[first].step)
            first--;
        window step = {.step = file->events[first].step, .first = first, .last = last};
        if (measure_window(file, processes, &step)) windows[count++] = step;
        last = first;
    }
    bool warm_up = count > 1 && windows[count - 1].first == 0;
    return warm_up ? count - 1 : count;
}

static int compare_windows(const void *left, const void *right) {
    const window *a = left, *b = right;
    double a_ms = a->end_ms - a->begin_ms, b_ms = b->end_ms - b->begin_ms;
    return (a_ms > b_ms) - (a_ms < b_ms);
}

/* A GPU has threads of its own for copies, communication and its host: "cuda:0 · copy". Returns the
 * length of the device's name. */
static size_t device_length(const char *name) {
    static const char *const threads[] = {" · copy", " · communication", " · host"};
    size_t length = strlen(name);
    for (size_t i = 0; i < sizeof threads / sizeof threads[0]; i++) {
        size_t tail = strlen(threads[i]);
        if (length > tail && strcmp(name + length - tail, threads[i]) == 0) return length - tail;
    }
    return length;
}

static yoke_status add_lanes(const trace_file *file, yoke_report_mode *mode) {
    for (int i = 0; i < file->lane_count; i++) {
        yoke_report_lane *lane;
        const char *name = file->lanes[i].name;
        TRY(yoke_report_add_lane(mode, name, &lane));
        lane->beside = name[device_length(name)] != '\0';
    }
    return YOKE_OK;
}

/* Adds a step to the sums. keep: its spans become the mode's. */
static void add_step(yoke_report_mode *mode, yoke_report_mode *one, bool keep) {
    for (int i = 0; i < mode->lane_count; i++) {
        yoke_report_lane *from = &one->lanes[i], *to = &mode->lanes[i];
        for (int j = 0; j < from->span_count; j++)
            to->stage_ms[from->spans[j].stage] += from->spans[j].end_ms - from->spans[j].begin_ms;
        if (!keep) continue;
        to->spans = from->spans;
        to->span_count = from->span_count;
        from->spans = NULL;
        from->span_count = 0;
    }
}

static yoke_status add_bytes_of(yoke_report_mode *mode, const char *lane_name,
                                const trace_event *event) {
    char lane[YOKE_REPORT_NAME_BYTES];
    snprintf(lane, sizeof lane, "%.*s", (int)device_length(lane_name), lane_name);
    if (event->sent > 0)
        TRY(yoke_report_add_amount(&mode->links, lane, YOKE_REPORT_OUT, event->sent));
    if (event->received > 0)
        TRY(yoke_report_add_amount(&mode->links, lane, YOKE_REPORT_IN, event->received));
    if (!(event->bytes > 0)) return YOKE_OK;
    return yoke_report_add_amount(&mode->moved, lane, yoke_stage_name((yoke_stage)event->stage),
                                  event->bytes);
}

/* The bytes of the step's spans; whole ones, where spans lie in each other too. With links the
 * spans show transfers in place of copies in memory. */
static yoke_status add_bytes(const trace_file *file, const window *step, yoke_report_mode *mode) {
    for (size_t i = step->first; i < step->last; i++) {
        const trace_event *event = &file->events[i];
        if (counts(event) && event->end_ms > step->begin_ms)
            TRY(add_bytes_of(mode, file->lanes[event->lane].name, event));
    }
    if (mode->links.count > 0) yoke_report_clear_amounts(&mode->moved);
    return YOKE_OK;
}

static void divide(yoke_report_mode *mode) {
    mode->mean_step_ms /= mode->steps;
    for (int i = 0; i < mode->lane_count; i++)
        for (int stage = 0; stage < YOKE_REPORT_STAGES; stage++)
            mode->lanes[i].stage_ms[stage] /= mode->steps;
}

yoke_status yoke_trace_file_sum(trace_file *file, yoke_report_mode *mode) {
    window windows[STEPS_MAX];
    if (file->event_count > 0)
        qsort(file->events, file->event_count, sizeof *file->events, compare_events);
    int count = find_windows(file, windows);
    if (count == 0) return FAIL(YOKE_ERROR_DATA, "the trace holds no complete step");
    qsort(windows, (size_t)count, sizeof windows[0], compare_windows);
    TRY(add_lanes(file, mode));
    for (int i = 0; i < count; i++) {
        yoke_report one = {0};
        yoke_report_mode *step;
        yoke_status status = yoke_report_add_mode(&one, "", &step);
        if (status == YOKE_OK) status = look_at_step(file, &windows[i], step);
        if (status == YOKE_OK) add_step(mode, step, i == count / 2);
        yoke_report_clear(&one);
        TRY(status);
        mode->mean_step_ms += windows[i].end_ms - windows[i].begin_ms;
    }
    mode->steps = count;
    for (int i = 0; i < mode->lane_count; i++)
        mode->devices += !mode->lanes[i].beside;
    mode->shown_ms = windows[count / 2].end_ms - windows[count / 2].begin_ms;
    divide(mode);
    return add_bytes(file, &windows[count / 2], mode);
}
