/* SPDX-License-Identifier: Apache-2.0 */
/* Local SGD. Each device takes steps alone, with an optimizer of its own, on its rows of each
 * batch; every so many steps all get the mean of their weights, or a step of an outer optimizer
 * towards it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "train/epochs.h"
#include "train/trainer_parts.h"

/* On the worker's thread. */
static yoke_status take_step(yoke_worker *own) {
    own->result.struct_size = sizeof own->result;
    TRY(yoke_data_parallel_forward_replicas(own->engine, true));
    TRY(yoke_data_parallel_loss_replicas(own->engine));
    TRY(yoke_data_parallel_backward_replicas(own->engine));
    TRY(yoke_data_parallel_reduce(own->engine));
    TRY(yoke_data_parallel_gather(own->engine, &own->result));
    return yoke_data_parallel_update(own->engine, own->rate);
}

static yoke_status open(yoke_trainer *trainer) {
    yoke_apart *apart = &trainer->apart;
    TRY(yoke_crew_create(&apart->crew, &trainer->run, take_step));
    size_t elements = apart->crew->server.elements;
    apart->outer = yoke_calloc(elements, sizeof *apart->outer);
    return apart->outer != NULL
               ? YOKE_OK
               : FAIL_MEMORY(elements * sizeof *apart->outer, "the outer optimizer's momentum");
}

static void close_crew(yoke_trainer *trainer) {
    yoke_crew_destroy(trainer->apart.crew);
    yoke_free(trainer->apart.outer);
}

/* A step. */

static yoke_batch part_of(const yoke_batch *batch, yoke_chunk part) {
    size_t rows = (size_t)batch->rows, first = (size_t)part.first;
    yoke_batch own = {.struct_size = sizeof own, .rows = part.rows};
    own.inputs = batch->inputs + first * (batch->inputs_count / rows);
    if (batch->labels != NULL) own.labels = batch->labels + first * (batch->labels_count / rows);
    if (batch->targets != NULL)
        own.targets = batch->targets + first * (batch->targets_count / rows);
    return own;
}

static yoke_status give_parts(yoke_trainer *trainer, const yoke_batch *batch, double rate) {
    yoke_crew *crew = trainer->apart.crew;
    if (batch->more_input_count > 0)
        return FAIL(YOKE_ERROR_ARGUMENT, "local SGD is for models with one input");
    for (int i = 0; i < crew->count; i++) {
        yoke_chunk part = yoke_chunk_of(batch->rows, crew->count, i);
        if (part.rows == 0) continue;
        yoke_batch own = part_of(batch, part);
        crew->workers[i].rate = rate;
        TRY(yoke_crew_give(crew, &crew->workers[i], &own));
    }
    return YOKE_OK;
}

/* In the order of the devices, whoever ends first. */
static yoke_status take_parts(yoke_trainer *trainer, yoke_step_result *sum) {
    yoke_crew *crew = trainer->apart.crew;
    yoke_error first = {.status = YOKE_OK};
    *sum = (yoke_step_result){.struct_size = sizeof *sum, .gradient_norm = -1};
    for (int i = 0; i < crew->count; i++) {
        yoke_worker *worker = yoke_crew_take(crew, i);
        if (worker == NULL) continue; /* it had no rows */
        const yoke_step_result *own = &worker->result;
        if (first.status == YOKE_OK) first = worker->error;
        sum->loss += own->loss * own->weight;
        sum->weight += own->weight;
        sum->rows += own->rows;
        sum->labels += own->labels;
        sum->correct = own->correct < 0 ? -1 : sum->correct + own->correct;
    }
    sum->loss /= sum->weight > 0 ? sum->weight : 1;
    TRY(yoke_error_restore(&first));
    if (isfinite(sum->loss)) return YOKE_OK;
    return FAIL(YOKE_ERROR_NUMERIC, "the loss of a device is not finite");
}

/* The mean of the devices' weights; by the outer optimizer, Nesterov's momentum as in
 * torch.optim.SGD with the gradient server - mean. */
static void step_outside(yoke_apart *apart, const yoke_local_options *options) {
    const yoke_crew *crew = apart->crew;
    float rate = (float)options->outer_rate, momentum = (float)options->outer_momentum;
    for (size_t i = 0; i < crew->server.elements; i++) {
        double sum = 0;
        for (int k = 0; k < crew->count; k++)
            sum += (double)crew->workers[k].flat.parameters[i];
        float mean = (float)(sum / crew->count), *server = &crew->server.parameters[i];
        float gradient = *server - mean;
        apart->outer[i] = momentum * apart->outer[i] + gradient;
        bool plain = momentum == 0 && rate == 1;
        *server = plain ? mean : *server - rate * (gradient + momentum * apart->outer[i]);
    }
}

static void average_buffers(const yoke_crew *crew) {
    for (size_t i = 0; i < crew->server.buffer_elements; i++) {
        double sum = 0;
        for (int k = 0; k < crew->count; k++)
            sum += (double)crew->workers[k].flat.buffers[i];
        crew->server.buffers[i] = (float)(sum / crew->count);
    }
}

static yoke_status settle(yoke_trainer *trainer) {
    yoke_apart *apart = &trainer->apart;
    yoke_data_parallel *server = trainer->run.parallel;
    if (apart->updates == apart->met) return YOKE_OK;
    apart->met = apart->updates;
    step_outside(apart, trainer->run.options.local);
    average_buffers(apart->crew);
    yoke_data_parallel_count_steps(server, trainer->run.at.step);
    return yoke_data_parallel_wrote_weights(server);
}

/* After a mean, and after a host program wrote weights. */
static yoke_status pull_means(const yoke_apart *apart) {
    for (int i = 0; i < apart->crew->count; i++)
        TRY(yoke_crew_pull(apart->crew, &apart->crew->workers[i]));
    return YOKE_OK;
}

static yoke_status update(yoke_trainer *trainer, yoke_loop_step *step) {
    yoke_run *run = &trainer->run;
    yoke_apart *apart = &trainer->apart;
    const yoke_local_options *options = run->options.local;
    uint64_t begin = yoke_now_ns();
    if (apart->updates == apart->met) TRY(pull_means(apart));
    TRY(give_parts(trainer, &step->batch, step->rate));
    TRY(take_parts(trainer, &step->result));
    run->at.step++;
    run->at.batches++;
    apart->updates++;
    uint64_t every = run->at.step <= options->from ? 1 : (uint64_t)options->every;
    if (apart->updates - apart->met >= every) TRY(settle(trainer));
    step->computed_ns = yoke_now_ns() - begin;
    return YOKE_OK;
}

const yoke_step_kind yoke_steps_apart_local = {.open = open,
                                               .close = close_crew,
                                               .load = yoke_trainer_load,
                                               .update = update,
                                               .settle = settle,
                                               .name = "local",
                                               .is_apart = true};
