/* SPDX-License-Identifier: Apache-2.0 */
/* Asynchronous SGD. The training thread is the server: it gives idle workers the next batches, with
 * the weights of that moment, and applies the gradients in the order in which they are done. That
 * order is all that chance decides: in another run's order, the run repeats that one. */
#include <math.h>
#include <string.h>

#include "train/epochs.h"
#include "train/trainer_parts.h"

#define ANYBODY (-1)

/* On the worker's thread: the gradient of its rows, with the weights that it has pulled. */
static yoke_status compute_gradient(yoke_worker *own) {
    own->result.struct_size = sizeof own->result;
    TRY(yoke_data_parallel_forward_replicas(own->engine, true));
    TRY(yoke_data_parallel_loss_replicas(own->engine));
    TRY(yoke_data_parallel_backward_replicas(own->engine));
    return yoke_data_parallel_gather(own->engine, &own->result);
}

static yoke_status open(yoke_trainer *trainer) {
    yoke_apart *apart = &trainer->apart;
    const yoke_async_options *options = trainer->run.options.asynchronous;
    TRY(yoke_crew_create(&apart->crew, &trainer->run, compute_gradient));
    int least = apart->crew->count - 1;
    if (options->max_staleness != 0 && options->max_staleness < least)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "max_staleness is %d: %d devices that compute at once make pushes as stale as "
                    "%d",
                    options->max_staleness, apart->crew->count, least);
    return yoke_push_order_open(&apart->order, &trainer->run, apart->crew->count);
}

static void close_crew(yoke_trainer *trainer) {
    yoke_crew_destroy(trainer->apart.crew);
    yoke_push_order_close(&trainer->apart.order);
}

/* An order that is not on the disk replays nothing: the run says so, and does not end well. */
static yoke_status check_order(yoke_trainer *trainer) {
    return yoke_push_order_check(&trainer->apart.order);
}

/* Gradients of batches that a stopped run has given out, and does not count. Nobody computes behind
 * the end of yoke_trainer_run. */
static void drop_gradients(yoke_trainer *trainer) {
    yoke_apart *apart = &trainer->apart;
    while (yoke_crew_take(apart->crew, ANYBODY) != NULL)
        continue;
    apart->has_ended = false;
}

/* Giving out. */

/* Updates since the oldest pull of a worker that is busy. */
static uint64_t oldest_lag(const yoke_apart *apart) {
    uint64_t lag = 0;
    for (int i = 0; i < apart->crew->count; i++) {
        const yoke_worker *worker = &apart->crew->workers[i];
        if (worker->is_busy && apart->updates - worker->version > lag)
            lag = apart->updates - worker->version;
    }
    return lag;
}

/* Each of the others may push once more before the oldest one does. */
static bool may_pull(const yoke_apart *apart, const yoke_async_options *options) {
    uint64_t others = (uint64_t)apart->crew->count - 1;
    return options->max_staleness == 0 ||
           oldest_lag(apart) + others <= (uint64_t)options->max_staleness;
}

static yoke_worker *find_idle(yoke_crew *crew) {
    for (int i = 0; i < crew->count; i++)
        if (!crew->workers[i].is_busy) return &crew->workers[i];
    return NULL;
}

/* The next batch goes to the idle worker. */
static yoke_status give(yoke_trainer *trainer, yoke_worker *worker, uint64_t *waited_ns) {
    yoke_apart *apart = &trainer->apart;
    yoke_batch batch = {.struct_size = sizeof batch};
    TRY(yoke_loader_next(trainer->run.training.loader, &batch, waited_ns));
    apart->has_ended = batch.rows == 0;
    if (apart->has_ended) return YOKE_OK;
    worker->version = apart->updates;
    yoke_data_parallel_count_steps(worker->engine, apart->given++); /* dropout follows it */
    TRY(yoke_crew_pull(apart->crew, worker));
    return yoke_crew_give(apart->crew, worker, &batch);
}

static yoke_status load(yoke_trainer *trainer, yoke_loop_step *step) {
    yoke_run *run = &trainer->run;
    yoke_apart *apart = &trainer->apart;
    yoke_worker *idle;
    *step = (yoke_loop_step){.batch.struct_size = sizeof step->batch};
    if (run->at.batches == 0 && yoke_crew_busy(apart->crew) == 0) apart->has_ended = false;
    while (!apart->has_ended && (idle = find_idle(apart->crew)) != NULL &&
           may_pull(apart, run->options.asynchronous)) {
        uint64_t waited = 0, under_way = (uint64_t)yoke_crew_busy(apart->crew);
        if (run->at.step + under_way >= run->at.steps) break;
        TRY(give(trainer, idle, &waited));
        step->waited_ns += waited;
    }
    step->is_end = yoke_crew_busy(apart->crew) == 0;
    if (step->is_end && run->at.batches == 0)
        return FAIL(YOKE_ERROR_DATA, "epoch %llu has no rows",
                    (unsigned long long)run->at.epoch + 1);
    return YOKE_OK;
}

/* Taking in. */

/* DC-ASGD: the first terms of what the gradient would be with the server's weights (Zheng et al.
 * 2017, algorithm 2). */
static void compensate(const yoke_apart *apart, const yoke_worker *worker, double lambda) {
    const yoke_flat_view *server = &apart->crew->server, *own = &worker->flat;
    float factor = (float)lambda;
    for (size_t i = 0; i < server->trainable; i++) {
        float g = own->gradients[i], moved = server->parameters[i] - worker->pulled[i];
        server->gradients[i] = g + factor * g * g * moved;
    }
}

static yoke_status apply(yoke_trainer *trainer, const yoke_worker *worker, double rate) {
    yoke_run *run = &trainer->run;
    yoke_apart *apart = &trainer->apart;
    const yoke_async_options *options = run->options.asynchronous;
    const yoke_flat_view *server = &apart->crew->server, *own = &worker->flat;
    uint64_t staleness = apart->updates - worker->version;
    apart->staleness[staleness < YOKE_STALENESS_LIMIT ? staleness : YOKE_STALENESS_LIMIT - 1]++;
    if (!isfinite(worker->result.loss))
        return FAIL(YOKE_ERROR_NUMERIC, "the loss is not finite; the weights are those before the "
                                        "update");
    compensate(apart, worker, options->compensation);
    if (server->buffer_elements > 0)
        memcpy(server->buffers, own->buffers, server->buffer_elements * sizeof *server->buffers);
    yoke_data_parallel_wrote_gradient(run->parallel);
    bool divides = options->divide_rate && staleness > 1;
    TRY(yoke_data_parallel_update(run->parallel, divides ? rate / (double)staleness : rate));
    apart->updates++;
    return yoke_data_parallel_wrote_weights(run->parallel); /* the running statistics */
}

static yoke_status update(yoke_trainer *trainer, yoke_loop_step *step) {
    yoke_run *run = &trainer->run;
    yoke_apart *apart = &trainer->apart;
    uint64_t begin = yoke_now_ns();
    int wanted = ANYBODY;
    TRY(yoke_push_order_next(&apart->order, apart->crew->count, &wanted));
    yoke_worker *worker = yoke_crew_take(apart->crew, wanted);
    if (worker == NULL)
        return FAIL(YOKE_ERROR_DATA, "%s: device %d has no batch here: the file is damaged",
                    apart->order.replay_path, wanted);
    TRY(yoke_error_restore(&worker->error));
    TRY(apply(trainer, worker, step->rate));
    yoke_push_order_add(&apart->order, worker->index);
    step->result = worker->result;
    step->computed_ns = yoke_now_ns() - begin;
    run->at.step++;
    run->at.batches++;
    return YOKE_OK;
}

const yoke_step_kind yoke_steps_apart_async = {.open = open,
                                               .close = close_crew,
                                               .load = load,
                                               .update = update,
                                               .settle = check_order,
                                               .rest = drop_gradients,
                                               .name = "async",
                                               .is_apart = true};

yoke_status yoke_trainer_staleness(const yoke_trainer *trainer, uint64_t *counts) {
    TRY(yoke_pointer_check(trainer, "trainer"));
    TRY(yoke_pointer_check(counts, "counts"));
    memcpy(counts, trainer->apart.staleness, sizeof trainer->apart.staleness);
    return YOKE_OK;
}
