/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts backward into one part for each bucket: the work that PyTorch starts before it starts the
 * bucket's all-reduce. */
#include "doctor/buckets.h"

#include <stdio.h>

#include "base/base.h"

#define FIRST_BUCKET 1048576.0 /* of DDP; those of nobody are cut alike */
#define LATER_BUCKET 26214400.0
#define STATED_MOST 1e12
#define BUCKETS_MOST 50000

typedef struct backward_times {
    timed_list marks;     /* all-reduces: bytes */
    timed_list gradients; /* bytes */
    timed_list work;      /* of backward: ms */
} backward_times;

static bool is_mark(const analysis *found, size_t i, doctor_kind kind) {
    const kineto_span *span = &found->trace->spans[i];
    if (span->name->kind != kind || span->name->stage != YOKE_STAGE_ALL_REDUCE) return false;
    if (kind != DOCTOR_WORK) return true;
    return (span->name->marks & DOCTOR_NCCL) != 0 &&
           (int)found->trace->lanes[span->lane].process == found->devices[0];
}

/* All-reduces of the kind with bytes; those outside of backward are not of gradients. */
static yoke_status add_marks(const analysis *found, doctor_kind kind, timed_list *marks) {
    for (size_t i = 0; i < found->trace->count; i++) {
        const kineto_span *span = &found->trace->spans[i];
        if (!is_mark(found, i, kind) || !(span->bytes > 0)) continue;
        int64_t at_ns = kind == DOCTOR_WORK ? found->launch_ns[i] : span->begin_ns;
        const step_window *window = analysis_window_at(found, at_ns);
        if (window == NULL || at_ns < window->backward_begin_ns || at_ns > window->backward_end_ns)
            continue;
        TRY(timed_add(marks, at_ns, span->bytes));
    }
    return YOKE_OK;
}

static yoke_status add_work(const analysis *found, timed_list *work) {
    for (size_t p = 0; p < found->piece_count; p++) {
        const lane_piece *piece = &found->pieces[p];
        bool gpu = found->trace->spans[piece->span].name->kind == DOCTOR_WORK;
        if (found->stages[piece->span] != YOKE_STAGE_BACKWARD || gpu != found->gpu) continue;
        int lane = found->trace->spans[piece->span].lane;
        if (gpu && (int)found->trace->lanes[lane].process != found->devices[0]) continue;
        int64_t at_ns = gpu ? found->launch_ns[piece->span] : piece->begin_ns;
        TRY(timed_add(work, at_ns, 1e-6 * (double)(piece->end_ns - piece->begin_ns)));
    }
    return YOKE_OK;
}

static yoke_status find_times(const analysis *found, backward_times *times) {
    static const doctor_kind kinds[] = {DOCTOR_WORK, DOCTOR_CALL, DOCTOR_COLLECTIVE};
    for (size_t k = 0; k < 3 && times->marks.count == 0; k++)
        TRY(add_marks(found, kinds[k], &times->marks));
    for (size_t i = 0; i < found->trace->count; i++) {
        const kineto_span *span = &found->trace->spans[i];
        if (span->name->kind == DOCTOR_GRADIENT && span->bytes > 0)
            TRY(timed_add(&times->gradients, span->end_ns, span->bytes));
    }
    TRY(add_work(found, &times->work));
    timed_sort(&times->marks);
    timed_sort(&times->gradients);
    timed_sort(&times->work);
    return YOKE_OK;
}

/* The values of a list within a step. */
typedef struct timed_range {
    const struct timed_value *values;
    size_t count;
} timed_range;

static timed_range in_window(const timed_list *list, const step_window *window, size_t *next) {
    if (list->count == 0) return (timed_range){NULL, 0};
    while (*next < list->count && list->values[*next].at_ns < window->begin_ns)
        ++*next;
    size_t begin = *next;
    while (*next < list->count && list->values[*next].at_ns < window->end_ns)
        ++*next;
    return (timed_range){list->values + begin, *next - begin};
}

static yoke_status add_bucket(bucket_list *buckets, double bytes) {
    size_t count = (size_t)buckets->count;
    if (bytes < 1 || count == BUCKETS_MOST) return YOKE_OK;
    if ((count & (count - 1)) == 0) { /* a power of two is full */
        size_t size = (count > 0 ? 2 * count : 1) * sizeof *buckets->list;
        void *larger = yoke_realloc(buckets->list, size);
        if (larger == NULL) return FAIL_MEMORY(size, "the buckets of a trace");
        buckets->list = larger;
    }
    buckets->list[buckets->count++] = (struct bucket){.bytes = bytes};
    buckets->bytes += bytes;
    return YOKE_OK;
}

/* Gradients in their order, cut as DDP cuts buckets. `marks` gets the time of each bucket's last.
 */
static yoke_status cut_buckets(const timed_range *gradients, bucket_list *buckets,
                               timed_list *marks) {
    double bytes = 0;
    for (size_t i = 0; i < gradients->count; i++) {
        double most = buckets->count == 0 ? FIRST_BUCKET : LATER_BUCKET;
        bytes += gradients->values[i].value;
        if (bytes < most && i + 1 < gradients->count) continue;
        TRY(add_bucket(buckets, bytes));
        TRY(timed_add(marks, gradients->values[i].at_ns, bytes));
        bytes = 0;
    }
    return YOKE_OK;
}

static yoke_status cut_stated(double bytes, bucket_list *buckets) {
    for (double left = bytes; left >= 1;) {
        double part = buckets->count == 0 ? FIRST_BUCKET : LATER_BUCKET;
        if (part > left) part = left;
        TRY(add_bucket(buckets, part));
        left -= part;
    }
    return YOKE_OK;
}

/* Adds the work of a step to its buckets: the last one gets what follows it, too. */
static void add_segments(const timed_range *work, const timed_range *marks, bucket_list *buckets) {
    size_t bucket = 0;
    for (size_t i = 0; i < work->count; i++) {
        while (bucket + 1 < marks->count && work->values[i].at_ns >= marks->values[bucket].at_ns)
            bucket++;
        buckets->list[bucket].ms += work->values[i].value;
    }
}

/* The last step with all-reduces tells their bytes; all steps with as many, backward's parts. */
static yoke_status from_marks(const analysis *found, const backward_times *times,
                              bucket_list *buckets) {
    size_t next = 0, next_work = 0;
    timed_range last = {NULL, 0};
    for (int w = 0; w < found->window_count; w++) {
        timed_range marks = in_window(&times->marks, &found->windows[w], &next);
        if (marks.count > 0) last = marks;
    }
    for (size_t i = 0; i < last.count; i++)
        TRY(add_bucket(buckets, last.values[i].value));
    buckets->measured = buckets->count > 0;
    next = 0;
    for (int w = 0; w < found->window_count; w++) {
        timed_range marks = in_window(&times->marks, &found->windows[w], &next);
        timed_range work = in_window(&times->work, &found->windows[w], &next_work);
        if (marks.count > 0 && marks.count == (size_t)buckets->count)
            add_segments(&work, &marks, buckets);
    }
    return YOKE_OK;
}

/* Takes the gradients of the last step that has some. nn.DataParallel sums all gradients of its
 * replicas at the end, so their order says nothing about backward. */
static yoke_status from_gradients(const analysis *found, const backward_times *times, bool timed,
                                  bucket_list *buckets) {
    size_t next = 0, next_work = 0;
    timed_range last = {NULL, 0}, work = {NULL, 0};
    timed_list marks = {0};
    for (int w = 0; w < found->window_count; w++) {
        timed_range own = in_window(&times->gradients, &found->windows[w], &next);
        timed_range own_work = in_window(&times->work, &found->windows[w], &next_work);
        if (own.count == 0) continue;
        last = own;
        work = own_work;
    }
    yoke_status status = cut_buckets(&last, buckets, &marks);
    timed_range ends = {marks.values, marks.count};
    if (status == YOKE_OK && timed && marks.count == (size_t)buckets->count && marks.count > 0)
        add_segments(&work, &ends, buckets);
    yoke_free(marks.values);
    return status;
}

static void scale_bytes(bucket_list *buckets, double bytes) {
    double factor = bytes / buckets->bytes;
    for (int i = 0; i < buckets->count; i++) {
        buckets->list[i].bytes *= factor;
        if (buckets->list[i].bytes < 1) buckets->list[i].bytes = 1;
    }
    buckets->bytes = bytes;
}

static void tell(const bucket_list *buckets, double stated, bool gradients,
                 yoke_doctor_figure *figure) {
    const char *from = buckets->measured ? "the all-reduces'"
                       : gradients       ? "cut as DDP cuts them"
                                         : "cut as DDP cuts them, backward by bytes";
    figure->origin = stated > 0            ? YOKE_DOCTOR_STATED
                     : buckets->count == 0 ? YOKE_DOCTOR_ASSUMED
                                           : YOKE_DOCTOR_MEASURED;
    if (buckets->count == 0)
        snprintf(figure->text, sizeof figure->text, "unknown");
    else
        snprintf(figure->text, sizeof figure->text, "%.0f of gradients in %d bucket%s, %s",
                 buckets->bytes, buckets->count, buckets->count == 1 ? "" : "s", from);
}

static yoke_status find_buckets(const analysis *found, yoke_doctor_run run, double stated,
                                const backward_times *times, bucket_list *buckets) {
    TRY(from_marks(found, times, buckets));
    if (buckets->count == 0) TRY(from_gradients(found, times, run != YOKE_DOCTOR_DP, buckets));
    if (stated > 0 && buckets->count == 0) TRY(cut_stated(stated, buckets));
    if (stated > 0 && buckets->count > 0) scale_bytes(buckets, stated);
    return YOKE_OK;
}

yoke_status buckets_find(const analysis *found, yoke_doctor_run run, double stated,
                         bucket_list *buckets, yoke_doctor_figure *figure) {
    backward_times times = {0};
    if (stated != 0 && !(stated >= 1 && stated <= STATED_MOST))
        return FAIL(YOKE_ERROR_ARGUMENT, "%g bytes of gradients; 1 to %g", stated, STATED_MOST);
    yoke_status status = find_times(found, &times);
    if (status == YOKE_OK) status = find_buckets(found, run, stated, &times, buckets);
    if (status == YOKE_OK)
        tell(buckets, stated, times.gradients.count > 0 && run != YOKE_DOCTOR_DP, figure);
    yoke_free(times.marks.values);
    yoke_free(times.gradients.values);
    yoke_free(times.work.values);
    return status;
}
