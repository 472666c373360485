/* SPDX-License-Identifier: Apache-2.0 */
/* The host's loss sees the rows of a micro-batch and answers with their mean; what divides the
 * gradient of the whole batch is the engine's to know. */
#include "parallel/stages/custom_loss.h"

#include <string.h>

#include "parallel/stages/stage_table.h"

yoke_status yoke_custom_loss_take(yoke_host_loss *host, const yoke_batch **given) {
    TRY(yoke_pointer_check(*given, "batch"));
    TRY(yoke_options_load(&host->given, sizeof host->given, *given, "yoke_batch"));
    host->unlabelled = host->given;
    host->unlabelled.labels = NULL;
    host->unlabelled.labels_count = 0;
    host->unlabelled.mixes = NULL;
    host->unlabelled.targets = NULL;
    host->unlabelled.targets_count = 0;
    *given = &host->unlabelled;
    return YOKE_OK;
}

void yoke_custom_loss_begin(yoke_step *step) {
    yoke_flight *flight = &step->flight;
    flight->own = (yoke_label_count){flight->rows, flight->rows};
    flight->whole_weight = flight->whole_rows;
    flight->result = yoke_flight_no_result(flight->own);
}

/* The rows of the micro-batch in an array of the whole batch. */
static void find_rows(const yoke_step *step, float *const *whole, float **part) {
    size_t first = (size_t)step->flight.micro_first;
    for (int k = 0; k < yoke_model_output_count(step->model); k++)
        part[k] = whole[k] + first * yoke_model_output_elements(step->model, k);
}

/* The micro-batch with its part of the labels and targets, as many for each row as the counts of
 * the loader say. */
static yoke_batch label_rows(const yoke_step *step, const yoke_batch *given) {
    yoke_batch rows = step->flight.batch;
    size_t first = (size_t)step->flight.micro_first, whole = (size_t)given->rows;
    rows.inputs_count = (size_t)rows.rows * (given->inputs_count / whole);
    if (given->labels != NULL) {
        size_t each = given->labels_count / whole;
        rows.labels = given->labels + first * each;
        rows.labels_count = (size_t)rows.rows * each;
    }
    if (given->mixes != NULL) rows.mixes = given->mixes + first;
    if (given->targets != NULL) {
        size_t each = given->targets_count / whole;
        rows.targets = given->targets + first * each;
        rows.targets_count = (size_t)rows.rows * each;
    }
    return rows;
}

/* From the mean over this micro-batch to that over the whole batch. */
static void scale_gradients(const yoke_step *step, float *const *gradients) {
    const yoke_flight *flight = &step->flight;
    int divisor =
        step->options.mean_of_ranks ? flight->rows * step->ranks.world : flight->whole_rows;
    float factor = (float)flight->batch.rows / (float)divisor;
    for (int k = 0; k < yoke_model_output_count(step->model) && divisor != flight->batch.rows;
         k++) {
        size_t elements = (size_t)flight->batch.rows * yoke_model_output_elements(step->model, k);
        for (size_t i = 0; i < elements; i++)
            gradients[k][i] *= factor;
    }
}

static yoke_status compute(yoke_step *step) {
    yoke_flight *flight = &step->flight;
    const yoke_host_loss *host = flight->host;
    const yoke_output_rows *rows = host->rows;
    float *outputs[YOKE_OUTPUTS_LIMIT], *gradients[YOKE_OUTPUTS_LIMIT];
    int count = yoke_model_output_count(step->model);
    double mean = 0;
    if (flight->batch.rows == 0) return YOKE_OK;
    find_rows(step, rows->outputs, outputs);
    TRY(yoke_gather_outputs(step, outputs));
    if (flight->training) find_rows(step, rows->gradients, gradients);
    for (int k = 0; k < count && flight->training; k++)
        memset(gradients[k], 0,
               (size_t)flight->batch.rows * yoke_model_output_elements(step->model, k) *
                   sizeof(float));
    yoke_batch batch = label_rows(step, &host->given);
    yoke_outputs given = {.struct_size = sizeof given,
                          .batch = &batch,
                          .count = count,
                          .outputs = (const float *const *)outputs,
                          .gradients = flight->training ? gradients : NULL};
    /* Also NUMERIC, which the engine takes for a status that all ranks have. */
    TRY(yoke_process_group_abort(step->ranks.process_group, host->call(step, &given, &mean)));
    flight->result.loss += mean * flight->batch.rows;
    flight->result.rows += flight->batch.rows;
    if (flight->training) scale_gradients(step, gradients);
    return YOKE_OK;
}

/* An output whose gradient is still zero is one that the loss does not use. */
static yoke_status scatter(yoke_step *step) {
    float *gradients[YOKE_OUTPUTS_LIMIT];
    size_t count = (size_t)step->flight.batch.rows;
    find_rows(step, step->flight.host->rows->gradients, gradients);
    for (int k = 0; k < yoke_model_output_count(step->model); k++)
        if (yoke_is_zero(gradients[k], count * yoke_model_output_elements(step->model, k)))
            gradients[k] = NULL;
    return yoke_scatter_output_gradients(step, (const float *const *)gradients);
}

const yoke_stage_def yoke_stage_custom_loss = {
    .stage = YOKE_STAGE_LOSS, .place = YOKE_ON_HOST, .work = compute};
const yoke_stage_def yoke_stage_scatter_custom = {
    .stage = YOKE_STAGE_SCATTER, .place = YOKE_ON_HOST, .work = scatter};
