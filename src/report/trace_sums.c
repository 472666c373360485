/* SPDX-License-Identifier: Apache-2.0 */
/* Sums up a trace: what each lane does at every instant of a step. A step lasts from the first
 * process's begin to the last one's end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "report/trace_sums.h"

#define STEPS_MAX 64 /* the last ones of the file */

typedef struct window {
    uint64_t step;
    uint64_t begin_ns, end_ns;
    size_t first, last; /* its events */
} window;

static double window_ms(const window *step) {
    return 1e-6 * (double)(step->end_ns - step->begin_ns);
}

static int compare_events(const void *left, const void *right) {
    const yoke_span_info *a = &((const yoke_report_span *)left)->span;
    const yoke_span_info *b = &((const yoke_report_span *)right)->span;
    if (a->step != b->step) return a->step < b->step ? -1 : 1;
    if (a->lane != b->lane) return a->lane < b->lane ? -1 : 1;
    if (a->begin_ns != b->begin_ns) return a->begin_ns < b->begin_ns ? -1 : 1;
    return (a->end_ns < b->end_ns) - (a->end_ns > b->end_ns);
}

/* All steps. */

/* Counts processes: how many of them are new in a list. */
static bool is_new(int64_t *list, int *count, int64_t process) {
    for (int i = 0; i < *count; i++)
        if (list[i] == process) return false;
    list[(*count)++] = process;
    return true;
}

/* Fills in the window; false when a process lacks the step. The first of a process counts. */
static bool measure_window(const trace_file *file, int processes, window *step) {
    int64_t list[YOKE_TRACE_LANES];
    int found = 0;
    for (size_t i = step->first; i < step->last; i++) {
        const yoke_span_info *span = &file->events[i].span;
        if (span->stage != YOKE_STAGE_STEP ||
            !is_new(list, &found, file->lanes[span->lane].process))
            continue;
        if (found == 1 || span->begin_ns < step->begin_ns) step->begin_ns = span->begin_ns;
        if (found == 1 || span->end_ns > step->end_ns) step->end_ns = span->end_ns;
    }
    return found > 0 && found == processes && step->end_ns > step->begin_ns;
}

static int count_processes(const trace_file *file) {
    int64_t list[YOKE_TRACE_LANES];
    int count = 0;
    for (int i = 0; i < file->lane_count; i++)
        (void)is_new(list, &count, file->lanes[i].process);
    return count;
}

/* The last complete steps, in order; a file's first step warms up and counts only when it is the
 * only one. */
static int find_windows(const trace_file *file, window windows[STEPS_MAX]) {
    int processes = count_processes(file), count = 0;
    for (size_t last = file->event_count; last > 0 && count < STEPS_MAX;) {
        size_t first = last - 1;
        while (first > 0 && file->events[first - 1].span.step == file->events[first].span.step)
            first--;
        window step = {.step = file->events[first].span.step, .first = first, .last = last};
        if (measure_window(file, processes, &step)) windows[count++] = step;
        last = first;
    }
    bool warm_up = count > 1 && windows[count - 1].first == 0;
    return warm_up ? count - 1 : count;
}

static int compare_windows(const void *left, const void *right) {
    double a = window_ms(left), b = window_ms(right);
    return (a > b) - (a < b);
}

#define LINK_THREAD " · link"

/* A GPU has threads of its own for copies, communication and its host, "cuda:0 · copy", and a
 * modelled link has one. Returns the length of the device's name. */
static size_t device_length(const char *name) {
    static const char *const threads[] = {" · copy", " · communication", " · host", LINK_THREAD};
    size_t length = strlen(name);
    for (size_t i = 0; i < sizeof threads / sizeof threads[0]; i++) {
        size_t tail = strlen(threads[i]);
        if (length > tail && strcmp(name + length - tail, threads[i]) == 0) return length - tail;
    }
    return length;
}

static bool is_link(const trace_file *file, int lane) {
    const char *name = file->lanes[lane].name;
    return strcmp(name + device_length(name), LINK_THREAD) == 0;
}

/* Whether the lane is the device, or a thread beside it that says what the device does. */
static bool belongs_to(const trace_file *file, int lane, int device) {
    const trace_lane *own = &file->lanes[lane], *of = &file->lanes[device];
    size_t length = device_length(own->name);
    return lane == device ||
           (!is_link(file, lane) && own->process == of->process && strlen(of->name) == length &&
            memcmp(own->name, of->name, length) == 0);
}

/* The events of a lane in a step. */
typedef struct lane_events {
    size_t first, last;
} lane_events;

/* An evaluation has the number of the step that follows it. */
static void find_events(trace_file *file, const window *step, lane_events *lanes) {
    size_t at = step->first;
    for (int i = 0; i < file->lane_count; i++) {
        while (at < step->last && file->events[at].span.lane == i &&
               file->events[at].span.end_ns <= step->begin_ns)
            at++;
        lanes[i].first = at;
        while (at < step->last && file->events[at].span.lane == i)
            at++;
        lanes[i].last = at;
        size_t count = at - lanes[i].first;
        if (count <= YOKE_TRACE_STEP_SPANS) continue;
        file->crowded += count - YOKE_TRACE_STEP_SPANS;
        lanes[i].last = lanes[i].first + YOKE_TRACE_STEP_SPANS;
    }
}

/* What the steps of a file need to be summed up. */
typedef struct summing {
    trace_file *file;
    yoke_report_mode *mode;
    lane_events lanes[YOKE_TRACE_LANES];
    const yoke_span_info **list; /* room for the events of any step */
    yoke_piece *pieces;          /* room for them, too, and for the pieces that they make */
} summing;

/* A device's events, with those of the threads beside it, or a lane's alone. Returns the number of
 * pieces. */
static size_t cut(summing *all, const window *step, int lane, bool device) {
    size_t count = 0;
    for (int i = 0; i < all->file->lane_count; i++) {
        if (i != lane && !(device && belongs_to(all->file, i, lane))) continue;
        for (size_t at = all->lanes[i].first; at < all->lanes[i].last; at++)
            all->list[count++] = &all->file->events[at].span;
    }
    return yoke_account_cut(all->list, count, step->begin_ns, step->end_ns, all->pieces);
}

static void add_step(summing *all, const window *step, int steps) {
    find_events(all->file, step, all->lanes);
    for (int i = 0; i < all->mode->lane_count; i++) {
        yoke_account account = {0};
        if (all->mode->lanes[i].kind != YOKE_LANE_DEVICE) continue;
        size_t count = cut(all, step, i, true);
        yoke_account_add_pieces(&account, all->pieces, count, 1.0 / steps);
        for (int stage = 0; stage < YOKE_ACCOUNT_STAGES; stage++)
            all->mode->lanes[i].stage_ms[stage] += account.stage_ms[stage];
    }
    all->mode->mean_step_ms += window_ms(step) / steps;
}

/* The step of the timeline. */
static yoke_status show_step(summing *all, const window *step) {
    size_t crowded = all->file->crowded; /* is counted once */
    find_events(all->file, step, all->lanes);
    all->file->crowded = crowded;
    for (int i = 0; i < all->mode->lane_count; i++) {
        yoke_report_lane *lane = &all->mode->lanes[i];
        if (lane->kind == YOKE_LANE_LINK) {
            for (size_t at = all->lanes[i].first; at < all->lanes[i].last; at++)
                TRY(yoke_report_add_carried(lane, &all->file->events[at].span, step->begin_ns,
                                            step->end_ns));
            continue;
        }
        size_t count = cut(all, step, i, false);
        TRY(yoke_report_add_pieces(lane, all->pieces, count, step->begin_ns));
        for (size_t k = 0; k < count; k++) {
            const yoke_report_span *event =
                (const yoke_report_span *)(const void *)all->pieces[k].span;
            if (event == NULL) continue;
            lane->spans[k].cause_lane = event->cause_lane;
            lane->spans[k].cause_stage = event->cause_stage;
        }
    }
    yoke_report_find_causes(all->mode);
    all->mode->shown_ms = window_ms(step);
    return YOKE_OK;
}

/* The bytes of the step's spans; whole ones, where spans overlap, too. With links the spans show
 * transfers in place of copies in memory. A link's bytes are in the device's spans. */
static yoke_status add_bytes(yoke_report_mode *mode, const trace_file *file, const window *step) {
    for (size_t i = step->first; i < step->last; i++) {
        const yoke_span_info *span = &file->events[i].span;
        const char *name = file->lanes[span->lane].name;
        char lane[YOKE_REPORT_NAME_BYTES];
        if (is_link(file, span->lane) || yoke_activity_of((int)span->stage) == YOKE_IDLES ||
            span->end_ns <= step->begin_ns)
            continue;
        snprintf(lane, sizeof lane, "%.*s", (int)device_length(name), name);
        TRY(yoke_report_add_link(mode, lane, (double)span->sent_bytes,
                                 (double)span->received_bytes));
        if (span->bytes > 0)
            TRY(yoke_report_add_amount(&mode->moved, lane, yoke_stage_name(span->stage),
                                       (double)span->bytes));
    }
    if (mode->links.count > 0) yoke_report_clear_amounts(&mode->moved);
    return YOKE_OK;
}

/* The windows come by length; the one in the middle is the closest to the median, or one of two. */
static yoke_status sum_steps(summing *all, const window *windows, int count) {
    const window *middle = &windows[count / 2];
    for (int i = 0; i < all->file->lane_count; i++) {
        yoke_report_lane *lane;
        const char *name = all->file->lanes[i].name;
        int length = (int)device_length(name);
        TRY(yoke_report_add_lane(all->mode, name, &lane));
        if (name[length] != '\0') lane->kind = YOKE_LANE_BESIDE;
        if (is_link(all->file, i)) lane->kind = YOKE_LANE_LINK;
        if (lane->kind == YOKE_LANE_LINK)
            snprintf(lane->name, sizeof lane->name, "link of %.*s", length > 80 ? 80 : length,
                     name);
        all->mode->devices += lane->kind == YOKE_LANE_DEVICE;
    }
    for (int i = 0; i < count; i++)
        add_step(all, &windows[i], count);
    all->mode->steps = count;
    all->mode->median_ms = (window_ms(&windows[(count - 1) / 2]) + window_ms(middle)) / 2;
    TRY(show_step(all, middle));
    return add_bytes(all->mode, all->file, middle);
}

yoke_status yoke_trace_file_sum(trace_file *file, yoke_report_mode *mode) {
    window windows[STEPS_MAX];
    size_t most = 0;
    yoke_trace_file_keep_engine(file);
    if (file->event_count > 0)
        qsort(file->events, file->event_count, sizeof *file->events, compare_events);
    int count = find_windows(file, windows);
    if (count == 0) return FAIL(YOKE_ERROR_DATA, "the trace holds no complete step");
    file->last_step = windows[0].step;
    file->first_step = windows[count - 1].step;
    qsort(windows, (size_t)count, sizeof windows[0], compare_windows);
    for (int i = 0; i < count; i++)
        if (windows[i].last - windows[i].first > most) most = windows[i].last - windows[i].first;
    summing all = {.file = file,
                   .mode = mode,
                   .list = yoke_malloc(most * sizeof(yoke_span_info *)),
                   .pieces = yoke_malloc((2 * most + 1) * sizeof(yoke_piece))};
    yoke_status status = all.list != NULL && all.pieces != NULL
                             ? sum_steps(&all, windows, count)
                             : FAIL_MEMORY(most * sizeof(yoke_piece), "a step of a trace");
    yoke_free(all.pieces);
    yoke_free(all.list);
    return status;
}
