/* The loop: epochs of batches, each batch one step; then evaluation, checkpoint and trace. */
#include "train/run.h"

#include "trace/trace.h"

#define ROOT_LANE 0

void yoke_trainer_tell(yoke_trainer *trainer, yoke_event *event) {
    if (trainer->options.on_event == NULL) return;
    event->struct_size = sizeof *event;
    event->step = trainer->step;
    event->steps = trainer->steps;
    event->epoch = trainer->epoch;
    event->seconds_elapsed = (double)(yoke_now_ns() - trainer->begin_ns) * 1e-9;
    trainer->options.on_event(event, trainer->options.payload);
}

void yoke_trainer_stop(yoke_trainer *trainer) {
    atomic_store(&trainer->stopping, true);
}

/* Passes the last error on as a warning: the run goes on, or ends for another reason. */
static void warn(yoke_trainer *trainer) {
    yoke_event event = {.kind = YOKE_EVENT_WARNING, .accuracy = -1, .text = yoke_last_error()};
    yoke_trainer_tell(trainer, &event);
}

/* Training goes on without metrics: one warning, and every later line is tried. */
static void record(yoke_trainer *trainer, yoke_event *event) {
    event->step = trainer->step;
    event->epoch = trainer->epoch;
    if (yoke_metrics_write(&trainer->metrics, event) == YOKE_OK || trainer->metrics_failed) return;
    trainer->metrics_failed = true;
    warn(trainer);
}

/* Before. */

static yoke_status prepare(yoke_trainer *trainer, size_t rows, bool training) {
    return rows == 0 ? YOKE_OK : yoke_data_parallel_prepare(trainer->parallel, (int)rows, training);
}

/* Every shape to come gets its plans now, so that no step makes one. */
static yoke_status prepare_all(yoke_trainer *trainer) {
    size_t batch = (size_t)trainer->options.batch, rows = trainer->dataset.rows;
    TRY(prepare(trainer, batch, true));
    if (trainer->steps >= yoke_loader_batches(trainer->loader))
        TRY(prepare(trainer, rows % batch, true));
    if (trainer->test_loader == NULL) return YOKE_OK;
    size_t test_rows = trainer->test_dataset.rows;
    if (test_rows >= batch) TRY(prepare(trainer, batch, false));
    return prepare(trainer, test_rows % batch, false);
}

/* A step. */

static yoke_status next_batch(yoke_trainer *trainer, yoke_batch *batch, uint64_t *waited_ns) {
    yoke_trace *trace = yoke_data_parallel_trace(trainer->parallel);
    uint64_t begin = yoke_trace_now();
    *waited_ns = 0;
    TRY(yoke_loader_next(trainer->loader, batch, waited_ns));
    if (!yoke_trainer_epoch_is_over(batch))
        yoke_trace_span(trace, ROOT_LANE, YOKE_STAGE_LOAD,
                        yoke_data_parallel_steps(trainer->parallel), begin, 0);
    return YOKE_OK;
}

static yoke_status take_step(yoke_trainer *trainer, const yoke_batch *batch, uint64_t waited_ns) {
    double rate = yoke_learning_rate(&trainer->schedule, trainer->step);
    yoke_step_result result = {.struct_size = sizeof result};
    uint64_t begin = yoke_now_ns();
    trainer->in_step = true;
    yoke_status status = yoke_data_parallel_step(trainer->parallel, batch, rate, &result);
    trainer->in_step = status != YOKE_OK && status != YOKE_ERROR_NUMERIC;
    if (status != YOKE_OK) return status;
    uint64_t computed_ns = yoke_now_ns() - begin;
    double step_ms = (double)(computed_ns + waited_ns) * 1e-6;
    trainer->step++;
    trainer->last_step = result;
    trainer->computed_ns += computed_ns;
    trainer->waited_ns += waited_ns;
    if (result.rows == trainer->options.batch) yoke_step_times_add(&trainer->times, step_ms);
    yoke_event event = {.kind = YOKE_EVENT_STEP,
                        .loss = result.loss,
                        .accuracy = yoke_trainer_accuracy(&result),
                        .learning_rate = rate,
                        .rows = result.rows,
                        .step_ms = step_ms};
    record(trainer, &event);
    yoke_trainer_tell(trainer, &event);
    return YOKE_OK;
}

/* The loop. */

static yoke_status check_stop(yoke_trainer *trainer) {
    bool stop;
    TRY(yoke_trainer_heard_stop(trainer, &stop));
    if (!stop) return YOKE_OK;
    return FAIL(YOKE_ERROR_CANCELLED, "stopped after step %llu of %llu",
                (unsigned long long)trainer->step, (unsigned long long)trainer->steps);
}

/* A run that was stopped goes on behind the batches of this epoch it has learnt from. */
static yoke_status skip_learnt(yoke_trainer *trainer) {
    uint64_t learnt = trainer->step - trainer->epoch * yoke_loader_batches(trainer->loader);
    yoke_batch batch = {.struct_size = sizeof batch};
    for (uint64_t i = 0; i < learnt; i++)
        TRY(yoke_loader_next(trainer->loader, &batch, NULL));
    return YOKE_OK;
}

static yoke_status run_epoch(yoke_trainer *trainer) {
    TRY(yoke_loader_begin(trainer->loader, trainer->epoch));
    TRY(skip_learnt(trainer));
    while (trainer->step < trainer->steps) {
        yoke_batch batch = {.struct_size = sizeof batch};
        uint64_t waited_ns;
        TRY(check_stop(trainer));
        TRY(next_batch(trainer, &batch, &waited_ns));
        if (yoke_trainer_epoch_is_over(&batch)) return YOKE_OK;
        TRY(take_step(trainer, &batch, waited_ns));
    }
    return YOKE_OK; /* a stop behind the last step stops nothing */
}

static yoke_status evaluate(yoke_trainer *trainer) {
    yoke_step_result result = {.struct_size = sizeof result};
    TRY(yoke_trainer_evaluate(trainer, &result));
    yoke_event event = {.kind = YOKE_EVENT_EVALUATION,
                        .loss = result.loss,
                        .accuracy = yoke_trainer_accuracy(&result),
                        .rows = result.rows};
    record(trainer, &event);
    yoke_trainer_tell(trainer, &event);
    return YOKE_OK;
}

static bool evaluation_is_due(const yoke_trainer *trainer) {
    int every = trainer->options.evaluate_every;
    if (every < 0) return false;
    if (trainer->step >= trainer->steps) return true;
    return every > 0 && (trainer->epoch + 1) % (uint64_t)every == 0;
}

static yoke_status train(yoke_trainer *trainer) {
    for (; trainer->step < trainer->steps; trainer->epoch++) {
        TRY(run_epoch(trainer));
        if (evaluation_is_due(trainer)) TRY(evaluate(trainer));
    }
    return YOKE_OK;
}

/* After. */

static void tell_saved(yoke_trainer *trainer, const char *path) {
    yoke_event event = {.kind = YOKE_EVENT_SAVED, .accuracy = -1, .text = path};
    yoke_trainer_tell(trainer, &event);
}

static yoke_status save(yoke_trainer *trainer) {
    const char *path = trainer->options.save;
    if (path == NULL || !yoke_trainer_writes(trainer)) return YOKE_OK;
    TRY(yoke_weights_save(trainer->parallel, trainer->model, path));
    tell_saved(trainer, path);
    return YOKE_OK;
}

static yoke_status write_trace(yoke_trainer *trainer) {
    const char *path = trainer->options.trace;
    if (path == NULL || !yoke_trainer_writes(trainer)) return YOKE_OK;
    TRY(yoke_trace_write(yoke_data_parallel_trace(trainer->parallel), path));
    tell_saved(trainer, path);
    return YOKE_OK;
}

/* The first failure is the run's, a later one a warning. To have been stopped is no failure. */
static void add_failure(yoke_trainer *trainer, yoke_error *first, yoke_status later) {
    if (later == YOKE_OK) return;
    if (first->status == YOKE_OK || first->status == YOKE_ERROR_CANCELLED)
        *first = yoke_error_take(later);
    else
        warn(trainer);
}

/* Nobody leaves before rank 0 has written what all have made. */
static yoke_status await_ranks(yoke_trainer *trainer) {
    return trainer->ranks != NULL ? yoke_process_group_barrier(trainer->ranks) : YOKE_OK;
}

/* Ends that all ranks come to after the same step; a launcher takes the first to leave with a
 * failure for a reason to end the others. */
static bool is_common(yoke_status status) {
    return status == YOKE_OK || status == YOKE_ERROR_CANCELLED || status == YOKE_ERROR_NUMERIC;
}

/* Saves what there is: after the last step, when stopped, when the data ends in an error and after
 * a loss that is not finite, which was not learnt from. */
static yoke_status finish(yoke_trainer *trainer, yoke_status status) {
    yoke_error first = yoke_error_take(status);
    if (!trainer->in_step) add_failure(trainer, &first, save(trainer));
    add_failure(trainer, &first, write_trace(trainer));
    if (is_common(first.status)) add_failure(trainer, &first, await_ranks(trainer));
    if (!is_common(first.status)) {
        (void)yoke_error_restore(&first);
        (void)yoke_process_group_abort(trainer->ranks, first.status);
    }
    return yoke_error_restore(&first);
}

static yoke_status run(yoke_trainer *trainer) {
    TRY(prepare_all(trainer));
    trainer->begin_ns = yoke_now_ns();
    yoke_event ready = {.kind = YOKE_EVENT_READY, .accuracy = -1};
    yoke_trainer_tell(trainer, &ready);
    return finish(trainer, train(trainer));
}

yoke_status yoke_trainer_run(yoke_trainer *trainer) {
    TRY(yoke_pointer_check(trainer, "trainer"));
    TRY(yoke_data_parallel_bind(trainer->parallel));
    yoke_status status = run(trainer);
    yoke_data_parallel_release(trainer->parallel);
    atomic_store(&trainer->stopping, false); /* heard, or too late */
    return status;
}
