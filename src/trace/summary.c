/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of the stage table. A step waits for its slowest device, so a stage's time in a step is
 * that of the lane that spends longest in it, by the rule of account.h. */
#include <stdlib.h>

#include "base/base.h"
#include "trace/account.h"
#include "trace/spans.h"

/* A stage over all steps. */
typedef struct stage_sum {
    uint64_t *times; /* [count]: of each step, of the longest lane */
    size_t count;
    uint64_t moving_ns; /* spans of the lane whose spans take longest, other stages or not */
    double bytes;
    bool linked; /* a modelled link carried bytes in it */
} stage_sum;

_Static_assert(2 * sizeof(yoke_piece) <= sizeof(yoke_span_info), "room for pieces");

static int by_step_and_lane(const void *left, const void *right) {
    const yoke_span_info *a = left, *b = right;
    if (a->step != b->step) return a->step < b->step ? -1 : 1;
    return (a->lane > b->lane) - (a->lane < b->lane);
}

static int compare_times(const void *left, const void *right) {
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

/* The evaluations, in order of time; lane 0 records them. `list` has room for all. */
static size_t find_evaluations(const yoke_spans *spans, yoke_span_info *list) {
    size_t count = 0;
    for (size_t i = 0; i < spans->count; i++)
        if (spans->all[i].stage == YOKE_STAGE_EVALUATE && spans->all[i].lane == 0)
            list[count++] = spans->all[i];
    return count;
}

/* Whether the span lies inside an evaluation: an evaluation is one row of the table, and its stages
 * belong to no step. */
static bool is_within(const yoke_span_info *span, const yoke_span_info *evaluations, size_t count) {
    size_t low = 0, left = count;
    while (left > 0) { /* find the first evaluation that ends after the span begins */
        size_t half = left / 2;
        bool before = evaluations[low + half].end_ns <= span->begin_ns;
        low += before ? half + 1 : 0;
        left = before ? left - half - 1 : half;
    }
    return low < count && evaluations[low].begin_ns <= span->begin_ns &&
           span->stage != YOKE_STAGE_EVALUATE;
}

/* A lane's spans of one step. */
typedef struct lane_step {
    uint64_t ns[YOKE_ACCOUNT_STAGES]; /* by the rule */
    uint64_t moving_ns[YOKE_STAGE_COUNT];
    bool ran[YOKE_STAGE_COUNT];
} lane_step;

static void measure(const yoke_span_info *spans, size_t count, const yoke_span_info **list,
                    yoke_piece *pieces, lane_step *lane) {
    uint64_t begin_ns = UINT64_MAX, end_ns = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t ns = spans[i].end_ns - spans[i].begin_ns;
        list[i] = &spans[i];
        if (spans[i].begin_ns < begin_ns) begin_ns = spans[i].begin_ns;
        if (spans[i].end_ns > end_ns) end_ns = spans[i].end_ns;
        lane->ran[spans[i].stage] = true;
        lane->moving_ns[spans[i].stage] += ns;
        if (yoke_activity_of((int)spans[i].stage) == YOKE_IDLES) lane->ns[spans[i].stage] += ns;
    }
    count = yoke_account_cut(list, count, begin_ns, end_ns, pieces);
    for (size_t i = 0; i < count; i++)
        if (pieces[i].span != NULL)
            lane->ns[pieces[i].span->stage] += pieces[i].end_ns - pieces[i].begin_ns;
}

/* The spans are those of steps in order, lane by lane. */
static void add_up(const yoke_spans *spans, const yoke_span_info **list, yoke_piece *pieces,
                   stage_sum *sums) {
    lane_step longest = {0};
    for (size_t first = 0, i = 0; i < spans->count; i++) {
        const yoke_span_info *span = &spans->all[i], *next = span + 1;
        bool last = i + 1 == spans->count;
        sums[span->stage].bytes += (double)span->bytes;
        sums[span->stage].linked |= span->sent_bytes + span->received_bytes > 0;
        if (!last && by_step_and_lane(span, next) == 0) continue;
        lane_step lane = {0};
        measure(&spans->all[first], i + 1 - first, list, pieces, &lane);
        for (int stage = 0; stage < YOKE_STAGE_COUNT; stage++) {
            longest.ran[stage] |= lane.ran[stage];
            if (lane.ns[stage] > longest.ns[stage]) longest.ns[stage] = lane.ns[stage];
            if (lane.moving_ns[stage] > longest.moving_ns[stage])
                longest.moving_ns[stage] = lane.moving_ns[stage];
        }
        first = i + 1;
        if (!last && next->step == span->step) continue;
        for (int stage = 0; stage < YOKE_STAGE_COUNT; stage++) {
            if (!longest.ran[stage]) continue;
            sums[stage].times[sums[stage].count++] = longest.ns[stage];
            sums[stage].moving_ns += longest.moving_ns[stage];
        }
        longest = (lane_step){0};
    }
}

static double median_ms(uint64_t *times, size_t count) {
    qsort(times, count, sizeof *times, compare_times);
    uint64_t middle = times[count / 2];
    uint64_t other = count % 2 ? middle : times[count / 2 - 1];
    return ((double)middle + (double)other) / 2e6;
}

static double total_ms(const stage_sum *sum) {
    double total = 0;
    for (size_t i = 0; i < sum->count; i++)
        total += 1e-6 * (double)sum->times[i];
    return total;
}

/* The ranks of a CPU move the bytes of an all-reduce beside its span, which only posts them; a
 * stage that waits moves none itself. Beside modelled links the speed of memory says nothing. */
static bool has_rate(const stage_sum *sums, int stage, bool queued) {
    bool links = false;
    for (int i = 0; i < YOKE_STAGE_COUNT; i++)
        links |= sums[i].linked;
    return sums[stage].moving_ns > 0 && sums[stage].linked == links &&
           yoke_activity_of(stage) != YOKE_WAITS && (stage != YOKE_STAGE_ALL_REDUCE || queued);
}

static int fill_rows(stage_sum *sums, bool queued, yoke_stage_summary rows[YOKE_STAGE_COUNT]) {
    int count = 0;
    double steps_ms = total_ms(&sums[YOKE_STAGE_STEP]);
    for (int stage = 0; stage < YOKE_STAGE_COUNT; stage++) {
        stage_sum *sum = &sums[stage];
        if (sum->count == 0) continue;
        rows[count] = (yoke_stage_summary){.struct_size = sizeof rows[count],
                                           .stage = (yoke_stage)stage,
                                           .count = sum->count,
                                           .median_ms = median_ms(sum->times, sum->count),
                                           .share = steps_ms > 0 ? total_ms(sum) / steps_ms : 0,
                                           .bytes = sum->bytes / (double)sum->count};
        if (has_rate(sums, stage, queued))
            rows[count].gigabytes_per_second = sum->bytes / (double)sum->moving_ns;
        count++;
    }
    return count;
}

/* Copies into the caller's rows, whose size may be that of another version. */
static int copy_rows(const yoke_stage_summary *own, int count, yoke_stage_summary *rows,
                     int capacity) {
    size_t row_bytes = rows->struct_size ? rows->struct_size : sizeof *rows;
    int given = count < capacity ? count : capacity;
    for (int i = 0; i < given; i++) {
        void *row = (char *)rows + (size_t)i * row_bytes;
        *(size_t *)row = row_bytes;
        if (yoke_options_store(row, &own[i], sizeof own[i], "yoke_stage_summary") != YOKE_OK)
            return 0;
    }
    return given;
}

static int summarize(const yoke_trace *trace, yoke_spans *spans, void *room,
                     yoke_stage_summary rows[YOKE_STAGE_COUNT]) {
    stage_sum sums[YOKE_STAGE_COUNT] = {{0}};
    size_t steps = 0;
    /* Leave out evaluations and what ran during them. `room` has space for all. */
    size_t evaluations = find_evaluations(spans, room), kept = 0;
    for (size_t i = 0; i < spans->count; i++)
        if (!is_within(&spans->all[i], room, evaluations)) spans->all[kept++] = spans->all[i];
    spans->count = kept;
    qsort(spans->all, spans->count, sizeof *spans->all, by_step_and_lane);
    for (size_t i = 0; i < spans->count; i++)
        steps += i == 0 || spans->all[i].step != spans->all[i - 1].step;
    const yoke_span_info **list = yoke_malloc(spans->count * sizeof *list);
    uint64_t *times = yoke_malloc(YOKE_STAGE_COUNT * steps * sizeof *times);
    int count = 0;
    if (list != NULL && times != NULL) {
        for (int stage = 0; stage < YOKE_STAGE_COUNT; stage++)
            sums[stage].times = times + (size_t)stage * steps;
        add_up(spans, list, room, sums);
        count = fill_rows(sums, trace->queued, rows);
    }
    yoke_free(times);
    yoke_free(list);
    return count;
}

int yoke_trace_summarize(const yoke_trace *trace, yoke_stage_summary *rows, int capacity) {
    yoke_spans spans;
    yoke_stage_summary own[YOKE_STAGE_COUNT];
    if (trace == NULL || rows == NULL || capacity < 1) return 0;
    if (yoke_spans_read(trace, 0, &spans) != YOKE_OK) return 0;
    /* It first holds the evaluations, then the pieces, which are smaller. */
    void *room = yoke_malloc((spans.count + 1) * sizeof(yoke_span_info));
    int count = room != NULL && spans.count > 0 ? summarize(trace, &spans, room, own) : 0;
    yoke_free(room);
    yoke_spans_free(&spans);
    return count > 0 ? copy_rows(own, count, rows, capacity) : 0;
}
