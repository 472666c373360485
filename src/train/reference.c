/* SPDX-License-Identifier: Apache-2.0 */
/* Trains the float64 model: what an engine does in a step, without devices. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/model.h"
#include "optimizer/optimizer.h"
#include "parallel/parallel.h"
#include "train/exact_update.h"
#include "yoke/verify.h"

struct yoke_reference {
    const yoke_model *model;
    yoke_optimizer_options optimizer;
    yoke_reference_options options;
    yoke_float64_model *net;
    double **states[YOKE_UPDATE_STATES]; /* [tensors] */
    bool *fixed_statistics;              /* [tensors] of running means; NULL: none */
    unsigned *outputs; /* [tensors] as bits, those that each changes; the loss reads output 0 */
    uint64_t steps;
};

/* Life. */

static yoke_status build(yoke_reference *reference) {
    int count = yoke_model_tensor_count(reference->model);
    TRY(yoke_float64_create(&reference->net, reference->model, reference->options.batch));
    TRY(yoke_statistics_mark(reference->model, reference->options.freeze_statistics,
                             &reference->fixed_statistics));
    reference->net->fixed_statistics = reference->fixed_statistics;
    for (int s = 0; s < YOKE_UPDATE_STATES; s++) {
        reference->states[s] = yoke_calloc((size_t)count + 1, sizeof *reference->states[s]);
        if (reference->states[s] == NULL)
            return FAIL_MEMORY((size_t)count * sizeof(double *), "a reference's optimizer");
        for (int i = 0; i < count; i++) {
            yoke_tensor_info info = {.struct_size = sizeof info};
            TRY(yoke_model_tensor(reference->model, i, &info));
            reference->states[s][i] = yoke_calloc(info.count, sizeof(double));
            if (reference->states[s][i] == NULL)
                return FAIL_MEMORY(info.count * sizeof(double), "a reference's optimizer");
        }
    }
    reference->outputs = yoke_calloc((size_t)count + 1, sizeof *reference->outputs);
    if (reference->outputs == NULL)
        return FAIL_MEMORY((size_t)count * sizeof *reference->outputs, "what a loss reaches");
    return yoke_model_reach(reference->model, reference->outputs);
}

static yoke_status load_options(yoke_reference *reference, const yoke_optimizer_options *optimizer,
                                const yoke_reference_options *options) {
    yoke_reference_options *own = &reference->options;
    TRY(yoke_pointer_check(options, "options"));
    TRY(yoke_options_load(own, sizeof *own, options, "yoke_reference_options"));
    TRY(yoke_optimizer_options_load(&reference->optimizer, optimizer));
    if (own->shards == 0) own->shards = 1;
    if (own->batch < 1)
        return FAIL(YOKE_ERROR_ARGUMENT, "batch is %d, must be at least 1", own->batch);
    if (own->shards < 1)
        return FAIL(YOKE_ERROR_ARGUMENT, "shards is %d, must be at least 1", own->shards);
    return YOKE_OK;
}

yoke_status yoke_reference_create(yoke_reference **reference, const yoke_model *model,
                                  const yoke_optimizer_options *optimizer,
                                  const yoke_reference_options *options) {
    TRY(yoke_pointer_check(reference, "reference"));
    *reference = NULL;
    TRY(yoke_pointer_check(model, "model"));
    yoke_reference *made = yoke_calloc(1, sizeof *made);
    if (made == NULL) return FAIL_MEMORY(sizeof *made, "a reference");
    made->model = model;
    yoke_status status = load_options(made, optimizer, options);
    if (status == YOKE_OK) status = build(made);
    if (status == YOKE_OK)
        *reference = made;
    else
        yoke_reference_destroy(made);
    return status;
}

void yoke_reference_destroy(yoke_reference *reference) {
    if (reference == NULL) return;
    for (int s = 0; s < YOKE_UPDATE_STATES && reference->states[s] != NULL; s++) {
        for (int i = 0; i < yoke_model_tensor_count(reference->model); i++)
            yoke_free(reference->states[s][i]);
        yoke_free(reference->states[s]);
    }
    yoke_free(reference->outputs);
    yoke_float64_destroy(reference->net);
    yoke_free(reference->fixed_statistics);
    yoke_free(reference);
}

double yoke_reference_work(const yoke_model *model, int rows) {
    return model != NULL ? yoke_float64_work(model, rows) : 0;
}

/* A step. */

static yoke_status check_batch(const yoke_reference *reference, const yoke_batch *batch) {
    bool labels = yoke_model_reads_labels(reference->model);
    TRY(yoke_pointer_check(batch, "batch"));
    if (batch->rows < 1 || batch->rows > reference->options.batch)
        return FAIL(YOKE_ERROR_ARGUMENT, "the batch has %d rows, must have 1 to %d", batch->rows,
                    reference->options.batch);
    if (batch->inputs == NULL)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "the batch has no inputs: a reference reads no pixels, so leave "
                    "yoke_loader_options.devices NULL");
    if (labels) return yoke_pointer_check(batch->labels, "batch->labels");
    if (!yoke_model_reads_targets(reference->model)) return YOKE_OK;
    return yoke_pointer_check(batch->targets, "batch->targets");
}

/* Forward, loss and backward of rows [first, first + rows) of the batch. */
static void run_shard(yoke_reference *reference, const yoke_batch *batch, double weight, int first,
                      int rows) {
    yoke_float64_model *net = reference->net;
    size_t outputs = yoke_model_output_elements(reference->model, 0);
    size_t labels = yoke_model_positions(reference->model);
    net->rows = rows;
    net->keeps_statistics = first > 0; /* those of the root count */
    net->step.seed = reference->options.seed;
    net->step.step = reference->steps;
    net->step.first_row = (uint64_t)first;
    net->loss_scale = weight > 0 ? 1 / weight : 0;
    net->labels = batch->labels != NULL ? batch->labels + (size_t)first * labels : NULL;
    net->mixes = batch->mixes != NULL ? batch->mixes + first : NULL;
    net->targets = batch->targets != NULL ? batch->targets + (size_t)first * outputs : NULL;
    const float *inputs[YOKE_INPUTS_LIMIT] = {batch->inputs +
                                              (size_t)first * yoke_float64_row(net, 0)};
    for (int k = 1; k < yoke_model_input_count(reference->model); k++)
        inputs[k] = batch->more_inputs[k - 1] +
                    (size_t)first * yoke_model_input_elements(reference->model, k);
    yoke_float64_forward(net, inputs);
    yoke_float64_loss(net);
    yoke_float64_backward(net);
}

static yoke_step_result run_batch(yoke_reference *reference, const yoke_batch *batch) {
    yoke_label_count own =
        yoke_model_count_labels(reference->model, batch->labels, batch->rows, batch->mixes != NULL);
    yoke_step_result result = {.struct_size = sizeof result,
                               .rows = batch->rows,
                               .weight = own.weight,
                               .labels = own.labels};
    for (int i = 0; i < yoke_model_tensor_count(reference->model); i++) {
        yoke_tensor_info info = {.struct_size = sizeof info};
        if (yoke_model_tensor(reference->model, i, &info) == YOKE_OK)
            memset(reference->net->tensor_gradients[i], 0, info.count * sizeof(double));
    }
    for (int shard = 0, first = 0; shard < reference->options.shards; shard++) {
        int rows = yoke_shard_rows(batch->rows, reference->options.shards, shard);
        if (rows == 0) continue;
        run_shard(reference, batch, own.weight, first, rows);
        if (own.weight > 0) result.loss += reference->net->loss_sum / own.weight;
        result.correct += reference->net->correct;
        first += rows;
    }
    if (!yoke_model_reads_labels(reference->model)) result.correct = -1;
    return result;
}

/* The update. */

static double gradient_norm(const yoke_reference *reference) {
    double sum = 0;
    for (int i = 0; i < yoke_model_tensor_count(reference->model); i++) {
        yoke_tensor_info info = {.struct_size = sizeof info};
        if (yoke_model_tensor(reference->model, i, &info) != YOKE_OK || !info.trainable) continue;
        for (size_t k = 0; k < info.count; k++)
            sum += reference->net->tensor_gradients[i][k] * reference->net->tensor_gradients[i][k];
    }
    return sqrt(sum);
}

static yoke_status update_tensor(const yoke_reference *reference, int tensor, size_t count,
                                 const yoke_update_scalars *scalars, double scale) {
    yoke_exact_tensor exact = {.weights = reference->net->tensors[tensor],
                               .gradients = reference->net->tensor_gradients[tensor],
                               .count = count};
    for (int i = 0; i < YOKE_UPDATE_STATES; i++)
        exact.states[i] = reference->states[i][tensor];
    bool filters = yoke_optimizer_rule_of(reference->optimizer.kind)->sees == YOKE_SEES_FILTERS;
    yoke_model_matrix(reference->model, tensor, filters, &exact.rows, &exact.columns);
    return yoke_exact_update(&reference->optimizer, &exact, scalars, scale);
}

static yoke_status update(yoke_reference *reference, double learning_rate, double gradient_scale) {
    for (int i = 0; i < yoke_model_tensor_count(reference->model); i++) {
        yoke_tensor_info info = {.struct_size = sizeof info};
        if (yoke_model_tensor(reference->model, i, &info) != YOKE_OK || !info.trainable) continue;
        bool reached = (reference->outputs[i] & 1) != 0;
        yoke_update_scalars scalars =
            yoke_optimizer_scalars(&reference->optimizer, reference->steps, learning_rate,
                                   reached ? reference->optimizer.weight_decay : 0);
        TRY(update_tensor(reference, i, info.count, &scalars, gradient_scale));
    }
    return YOKE_OK;
}

yoke_status yoke_reference_step(yoke_reference *reference, const yoke_batch *batch,
                                double learning_rate, yoke_step_result *result) {
    TRY(yoke_pointer_check(reference, "reference"));
    TRY(check_batch(reference, batch));
    const yoke_optimizer_options *optimizer = &reference->optimizer;
    yoke_step_result own = run_batch(reference, batch);
    if (!isfinite(own.loss))
        return FAIL(YOKE_ERROR_NUMERIC, "the loss of the float64 reference is %g in step %llu",
                    own.loss, (unsigned long long)reference->steps + 1);
    double scale = 1;
    own.gradient_norm = optimizer->clip_norm > 0 ? gradient_norm(reference) : -1;
    if (optimizer->clip_norm > 0)
        scale = fmin(1, optimizer->clip_norm / (own.gradient_norm + 1e-6));
    TRY(update(reference, learning_rate < 0 ? optimizer->learning_rate : learning_rate, scale));
    reference->steps++;
    return result == NULL ? YOKE_OK
                          : yoke_options_store(result, &own, sizeof own, "yoke_step_result");
}

/* Tensors by name. */

static yoke_status find(const yoke_reference *reference, const char *name, size_t count,
                        yoke_tensor_info *info, int *tensor) {
    const char *near = NULL;
    TRY(yoke_pointer_check(reference, "reference"));
    TRY(yoke_pointer_check(name, "name"));
    *tensor = yoke_model_find_tensor(reference->model, name, &near);
    if (*tensor < 0)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s has no tensor \"%s\"%s%s%s",
                    yoke_model_name(reference->model), name, near ? "; did you mean \"" : "",
                    near ? near : "", near ? "\"?" : "");
    info->struct_size = sizeof *info;
    TRY(yoke_model_tensor(reference->model, *tensor, info));
    if (info->count != count)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s has %zu elements, not %zu", name, info->count, count);
    return YOKE_OK;
}

yoke_status yoke_reference_write(yoke_reference *reference, const char *name, const double *values,
                                 size_t count) {
    yoke_tensor_info info;
    int tensor;
    TRY(find(reference, name, count, &info, &tensor));
    TRY(yoke_pointer_check(values, "values"));
    memcpy(reference->net->tensors[tensor], values, count * sizeof *values);
    return YOKE_OK;
}

yoke_status yoke_reference_read(yoke_reference *reference, const char *name, double *values,
                                size_t count) {
    yoke_tensor_info info;
    int tensor;
    TRY(find(reference, name, count, &info, &tensor));
    TRY(yoke_pointer_check(values, "values"));
    memcpy(values, reference->net->tensors[tensor], count * sizeof *values);
    return YOKE_OK;
}

yoke_status yoke_reference_read_gradient(yoke_reference *reference, const char *name,
                                         double *values, size_t count) {
    yoke_tensor_info info;
    int tensor;
    TRY(find(reference, name, count, &info, &tensor));
    TRY(yoke_pointer_check(values, "values"));
    if (!info.trainable)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s is a running statistic: it has no gradient", name);
    memcpy(values, reference->net->tensor_gradients[tensor], count * sizeof *values);
    return YOKE_OK;
}
