/* SPDX-License-Identifier: Apache-2.0 */
/* The host's loss sees the rows of a micro-batch and answers with their mean; what divides the
 * gradient of the whole batch is the engine's to know. */
#include "parallel/own_loss.h"

#include <string.h>

#include "parallel/engine.h"
#include "parallel/stages.h"

yoke_status yoke_own_loss_take(yoke_host_loss *host, const yoke_batch **given) {
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

void yoke_own_loss_begin(yoke_data_parallel *parallel) {
    yoke_flight *flight = &parallel->flight;
    flight->own = (yoke_label_count){flight->rows, flight->rows};
    flight->whole_weight = flight->whole_rows;
    flight->result = yoke_flight_no_result(flight->own);
}

/* The rows of the micro-batch in an array of the whole batch. */
static void find_rows(const yoke_data_parallel *parallel, float *const *whole, float **part) {
    size_t first = (size_t)parallel->flight.micro_first;
    for (int k = 0; k < yoke_model_output_count(parallel->model); k++)
        part[k] = whole[k] + first * yoke_model_output_elements(parallel->model, k);
}

/* The micro-batch with its part of the labels and targets, as many for each row as the counts of
 * the loader say. */
static yoke_batch label_rows(const yoke_data_parallel *parallel, const yoke_batch *given) {
    yoke_batch rows = parallel->flight.batch;
    size_t first = (size_t)parallel->flight.micro_first, whole = (size_t)given->rows;
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
static void scale_gradients(const yoke_data_parallel *parallel, float *const *gradients) {
    const yoke_flight *flight = &parallel->flight;
    int divisor =
        parallel->options.mean_of_ranks ? flight->rows * parallel->ranks.world : flight->whole_rows;
    float factor = (float)flight->batch.rows / (float)divisor;
    for (int k = 0; k < yoke_model_output_count(parallel->model) && divisor != flight->batch.rows;
         k++) {
        size_t elements =
            (size_t)flight->batch.rows * yoke_model_output_elements(parallel->model, k);
        for (size_t i = 0; i < elements; i++)
            gradients[k][i] *= factor;
    }
}

yoke_status yoke_own_loss_compute(yoke_data_parallel *parallel, const yoke_host_loss *host) {
    const yoke_output_rows *rows = host->rows;
    yoke_flight *flight = &parallel->flight;
    float *outputs[YOKE_OUTPUTS_LIMIT], *gradients[YOKE_OUTPUTS_LIMIT];
    int count = yoke_model_output_count(parallel->model);
    double mean = 0;
    if (flight->batch.rows == 0) return YOKE_OK;
    find_rows(parallel, rows->outputs, outputs);
    TRY(yoke_gather_outputs(parallel, outputs));
    if (flight->training) find_rows(parallel, rows->gradients, gradients);
    for (int k = 0; k < count && flight->training; k++)
        memset(gradients[k], 0,
               (size_t)flight->batch.rows * yoke_model_output_elements(parallel->model, k) *
                   sizeof(float));
    yoke_batch batch = label_rows(parallel, &host->given);
    yoke_outputs given = {.struct_size = sizeof given,
                          .batch = &batch,
                          .count = count,
                          .outputs = (const float *const *)outputs,
                          .gradients = flight->training ? gradients : NULL};
    yoke_outside outside = yoke_step_out(parallel);
    yoke_error_forget();
    yoke_status status =
        yoke_error_of_host(host->loss->compute(host->loss->payload, &given, &mean), "own_loss");
    status = yoke_step_in(parallel, &outside, status);
    /* Also NUMERIC, which the engine takes for a status that all ranks have. */
    TRY(yoke_process_group_abort(parallel->ranks.process_group, status));
    flight->result.loss += mean * flight->batch.rows;
    flight->result.rows += flight->batch.rows;
    if (flight->training) scale_gradients(parallel, gradients);
    return YOKE_OK;
}

/* An output whose gradient is still zero is one that the loss does not use. */
yoke_status yoke_own_loss_scatter(yoke_data_parallel *parallel, const yoke_output_rows *rows) {
    float *gradients[YOKE_OUTPUTS_LIMIT];
    size_t count = (size_t)parallel->flight.batch.rows;
    find_rows(parallel, rows->gradients, gradients);
    for (int k = 0; k < yoke_model_output_count(parallel->model); k++)
        if (yoke_is_zero(gradients[k], count * yoke_model_output_elements(parallel->model, k)))
            gradients[k] = NULL;
    return yoke_scatter_output_gradients(parallel, (const float *const *)gradients);
}
