/* SPDX-License-Identifier: Apache-2.0 */
/* Runs lists of stages. parallel_apply is here: the same job on every lane's worker at once; each
 * returns its status. */
#include "parallel/step/runner.h"

#include <pthread.h>

#include "parallel/step/lanes.h"

#define STEP_AT_END UINT64_MAX /* of a span: the step that runs when it ends */
/* A shorter wait is the time to find out that there is nothing to wait for. */
#define WAIT_LEAST_NS 1000

bool yoke_steps_by_phases(const yoke_step *step) {
    return step->options.schedule == YOKE_SCHEDULE_CLASSIC ||
           step->options.schedule == YOKE_SCHEDULE_PYTHON;
}

/* Bars. */

static yoke_open_bar bar_of(const yoke_step *step, const yoke_bar *bar, int bucket) {
    return (yoke_open_bar){
        bar,
        {.begin_ns = yoke_trace_now(), .step = step->steps, .stage = bar->stage, .bucket = bucket}};
}

/* The host's clock times a bar, unless the device's streams do. Modelled links show their stage in
 * place of the copies in memory. */
static yoke_status close_bar(yoke_step *step, int lane, yoke_open_bar *open) {
    const yoke_watch *watch = &step->watch;
    bool by_device = open->bar->on_stream && step->queued;
    bool by_links = watch->modelled != NULL && watch->modelled->stage == open->span.stage;
    for (int i = watch->count - 1; i >= 0; i--)
        if (watch->observers[i]->after_bar != NULL)
            TRY(watch->observers[i]->after_bar(step, lane, open));
    if (!by_device && !by_links) yoke_trace_end_span(watch->trace, lane, &open->span);
    return YOKE_OK;
}

yoke_status yoke_run_bar(yoke_step *step, const yoke_bar *bar, int lane, int bucket) {
    yoke_open_bar open = bar_of(step, bar, bucket);
    const yoke_watch *watch = &step->watch;
    for (int i = 0; i < watch->count; i++)
        if (watch->observers[i]->before_bar != NULL)
            TRY(watch->observers[i]->before_bar(step, lane, &open));
    step->lanes[lane].open = &open;
    yoke_status status = bar->work(step, lane, &open.span);
    step->lanes[lane].open = NULL;
    TRY(status);
    return close_bar(step, lane, &open);
}

void yoke_cut_bar(yoke_step *step, int lane, void (*between)(void *), void *context) {
    yoke_open_bar *open = step->lanes[lane].open;
    (void)close_bar(step, lane, open); /* where lanes share memory: cannot fail */
    between(context);
    open->span.begin_ns = yoke_trace_now();
}

yoke_status yoke_gradient_is_ready(yoke_step *step, int lane, yoke_bucket bucket) {
    const yoke_watch *watch = &step->watch;
    for (int i = watch->count - 1; i >= 0; i--)
        if (watch->observers[i]->after_gradient != NULL)
            TRY(watch->observers[i]->after_gradient(step, lane, bucket));
    return YOKE_OK;
}

void yoke_replay_bar(yoke_step *step, const yoke_bar *bar, int lane, int bucket) {
    yoke_open_bar open = bar_of(step, bar, bucket);
    const yoke_watch *watch = &step->watch;
    for (int i = 0; i < watch->count; i++)
        if (watch->observers[i]->after_replay != NULL)
            watch->observers[i]->after_replay(step, lane, &open);
}

yoke_span yoke_span_begin(yoke_stage stage) {
    return (yoke_span){.begin_ns = yoke_trace_now(),
                       .step = STEP_AT_END,
                       .stage = stage,
                       .bucket = YOKE_NO_BUCKET};
}

void yoke_span_end(yoke_step *step, int lane, const yoke_span *span) {
    yoke_span ended = *span;
    if (ended.step == STEP_AT_END) ended.step = step->steps;
    yoke_trace_end_span(step->watch.trace, lane, &ended);
}

yoke_span yoke_wait_begin(yoke_stage awaits, int bucket) {
    yoke_span wait = yoke_span_begin(YOKE_STAGE_WAIT);
    wait.bucket = bucket;
    wait.awaits = awaits;
    return wait;
}

void yoke_wait_end(yoke_step *step, int lane, const yoke_span *wait) {
    if (step->queued || yoke_trace_now() - wait->begin_ns < WAIT_LEAST_NS) return;
    yoke_span_end(step, lane, wait);
}

/* Deadlines. */

static void begin_busy(yoke_step *step, int awaited) {
    if (step->options.deadline == 0) return;
    atomic_store(&step->awaited, awaited);
    atomic_store(&step->busy_ns, yoke_now_ns());
}

/* A trainer that went on without the thread has started another one in its place. */
static void end_busy(yoke_step *step) {
    if (step->options.deadline == 0) return;
    if (atomic_exchange(&step->busy_ns, 0) == YOKE_LEFT_BEHIND) pthread_exit(NULL);
}

/* Jobs. */

typedef struct watched_job {
    yoke_step *step;
    yoke_replica_job job;
    void *context;
} watched_job;

static yoke_status run_watched(int lane, void *context) {
    const watched_job *watched = context;
    yoke_step *step = watched->step;
    const yoke_watch *watch = &step->watch;
    for (int i = 0; i < watch->count; i++)
        if (watch->observers[i]->before_job != NULL) watch->observers[i]->before_job(step, lane);
    yoke_status status = watched->job(lane, watched->context);
    for (int i = watch->count - 1; i >= 0; i--)
        if (watch->observers[i]->after_job != NULL) watch->observers[i]->after_job(step, lane);
    return status;
}

/* The caller is the root's worker: it computes with the root's threads while the job runs. */
yoke_status yoke_apply(yoke_step *step, int lanes, const char *what, yoke_replica_job job,
                       void *context) {
    const yoke_watch *watch = &step->watch;
    watched_job watched = {step, job, context};
    int failed = -1;
    if (watch->crew != NULL) lanes = watch->crew_lanes;
    begin_busy(step, 0);
    yoke_status status =
        watch->crew != NULL
            ? watch->crew->run(step, lanes, run_watched, &watched, &failed)
            : yoke_workers_run(step->workers, lanes, run_watched, &watched, &failed);
    end_busy(step);
    if (status != YOKE_OK) step->failed_lane = failed;
    if (status != YOKE_OK && failed >= 0)
        yoke_error_prefix("%s, replica %d on %s", what, failed,
                          yoke_device_name(step->lanes[failed].device));
    TRY(status);
    for (int i = watch->count - 1; i >= 0; i--)
        if (watch->observers[i]->after_jobs != NULL) watch->observers[i]->after_jobs(step, lanes);
    return yoke_steps_by_phases(step) ? yoke_lanes_synchronize(step) : YOKE_OK;
}

/* Stages. */

static yoke_status run_bar_on_host(yoke_step *step, const yoke_bar *bar) {
    begin_busy(step, 0);
    yoke_status status = yoke_run_bar(step, bar, 0, YOKE_NO_BUCKET);
    end_busy(step);
    if (status != YOKE_OK) step->failed_lane = 0;
    return status;
}

yoke_status yoke_run_stage(yoke_step *step, const yoke_stage_def *stage) {
    yoke_watch *watch = &step->watch;
    const char *what = stage->what != NULL ? stage->what : yoke_stage_name(stage->stage);
    yoke_status status = YOKE_OK;
    if (stage->begin != NULL) TRY(stage->begin(step));
    for (int i = 0; i < watch->count; i++)
        if (watch->observers[i]->before_stage != NULL)
            watch->observers[i]->before_stage(step, stage);
    if (stage->lane != NULL)
        status = yoke_apply(step, stage->place == YOKE_ON_ROOT ? 1 : step->count, what, stage->lane,
                            step);
    else if (stage->bar != NULL)
        status = run_bar_on_host(step, stage->bar);
    else
        status = stage->work(step);
    watch->crew = NULL;
    if (status != YOKE_OK) watch->modelled = NULL;
    TRY(status);
    for (int i = watch->count - 1; i >= 0; i--)
        if (watch->observers[i]->after_stage != NULL)
            TRY(watch->observers[i]->after_stage(step, stage));
    if (stage->progress != YOKE_STAGE_LOAD) step->flight.progress = stage->progress;
    return stage->end != NULL ? stage->end(step) : YOKE_OK;
}

yoke_status yoke_run_schedule(yoke_step *step, const yoke_schedule_def *schedule) {
    yoke_flight *flight = &step->flight;
    const yoke_stage_def *const *stage;
    for (stage = schedule->begin; *stage != NULL; stage++)
        TRY(yoke_run_stage(step, *stage));
    for (; flight->micro < flight->micros; flight->micro++)
        for (stage = schedule->micro_batch; *stage != NULL; stage++)
            TRY(yoke_run_stage(step, *stage));
    for (stage = schedule->end; *stage != NULL; stage++)
        TRY(yoke_run_stage(step, *stage));
    return YOKE_OK;
}

/* Steps. */

void yoke_step_begins(yoke_step *step) {
    for (int i = 0; i < step->watch.count; i++)
        if (step->watch.observers[i]->before_step != NULL)
            step->watch.observers[i]->before_step(step);
}

void yoke_step_ended(yoke_step *step, uint64_t number) {
    for (int i = step->watch.count - 1; i >= 0; i--)
        if (step->watch.observers[i]->after_step != NULL)
            step->watch.observers[i]->after_step(step, number);
}

/* Streams. */

yoke_status yoke_lanes_synchronize(yoke_step *step) {
    for (int k = 0; k < step->count; k++) {
        begin_busy(step, k);
        yoke_status status = yoke_device_synchronize(step->lanes[k].device);
        end_busy(step);
        if (status != YOKE_OK) step->failed_lane = k;
        TRY(status);
    }
    return YOKE_OK;
}

yoke_status yoke_lanes_order(yoke_step *step, yoke_stream from, yoke_stream to) {
    for (int k = 0; from != to && k < step->count; k++) {
        const yoke_lane *lane = &step->lanes[k];
        yoke_device_event *passed =
            from == YOKE_STREAM_COMPUTE ? lane->events.computed : lane->events.published;
        TRY(yoke_device_event_record(passed, from));
        TRY(yoke_device_event_wait(passed, lane->device, to));
    }
    return YOKE_OK;
}
