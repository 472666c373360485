/* SPDX-License-Identifier: Apache-2.0 */
/* A model's loss: its options checked and kept, its operation, and what divides the sum of a
 * batch's losses. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "model/graph.h"

static const char *const loss_names[] = {[YOKE_LOSS_CROSS_ENTROPY] = "cross-entropy",
                                         [YOKE_LOSS_MSE] = "MSE",
                                         [YOKE_LOSS_BCE] = "BCE",
                                         [YOKE_LOSS_HUBER] = "Huber",
                                         [YOKE_LOSS_OUTPUT] = "output"};

const char *yoke_model_loss_name(const yoke_model *model) {
    return loss_names[model->loss.kind];
}

const char *yoke_model_loss_text(const yoke_model *model, char text[YOKE_LOSS_TEXT_BYTES]) {
    const yoke_loss_options *loss = &model->loss;
    size_t used = (size_t)snprintf(text, YOKE_LOSS_TEXT_BYTES, "%s", yoke_model_loss_name(model));
    char delta[32];
    if (loss->kind == YOKE_LOSS_HUBER)
        used += (size_t)snprintf(text + used, YOKE_LOSS_TEXT_BYTES - used, ", delta %s",
                                 yoke_text_of_real(loss->huber_delta, delta, sizeof delta));
    if (loss->set_ignore_index)
        used += (size_t)snprintf(text + used, YOKE_LOSS_TEXT_BYTES - used, ", ignore_index %d",
                                 loss->ignore_index);
    if (model->loss_weights != NULL)
        snprintf(text + used, YOKE_LOSS_TEXT_BYTES - used, ", weights %016llx",
                 (unsigned long long)XXH3_64bits(model->loss_weights,
                                                 (size_t)loss->weight_count * sizeof(float)));
    return text;
}

yoke_loss_kind yoke_model_loss_kind(const yoke_model *model) {
    return model->loss.kind;
}

const yoke_loss_options *yoke_model_loss(const yoke_model *model) {
    return &model->loss;
}

bool yoke_model_reads_labels(const yoke_model *model) {
    return model->loss.kind == YOKE_LOSS_CROSS_ENTROPY;
}

bool yoke_model_reads_targets(const yoke_model *model) {
    return !yoke_model_reads_labels(model) && model->loss.kind != YOKE_LOSS_OUTPUT;
}

static yoke_status check_weights(const yoke_loss_options *loss, int outputs, const float *weights,
                                 const char *name) {
    bool positive = false;
    if (loss->weight_count != outputs)
        return FAIL(YOKE_ERROR_ARGUMENT, "%d %s for an output of %d values: give one for each",
                    loss->weight_count, name, outputs);
    for (int j = 0; j < outputs; j++) {
        if (!(weights[j] >= 0) || isinf(weights[j]))
            return FAIL(YOKE_ERROR_ARGUMENT, "%s[%d] is %g: must be finite and at least 0", name, j,
                        (double)weights[j]);
        positive = positive || weights[j] > 0;
    }
    return positive ? YOKE_OK
                    : FAIL(YOKE_ERROR_ARGUMENT, "%s are all 0: one must be above 0", name);
}

static yoke_status check_loss(const yoke_model *model, int outputs) {
    const yoke_loss_options *loss = &model->loss;
    if (loss->kind < YOKE_LOSS_CROSS_ENTROPY || loss->kind > YOKE_LOSS_OUTPUT)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "loss kind %d: must be cross-entropy (0), MSE (1), BCE (2), Huber (3) or the "
                    "output (4)",
                    (int)loss->kind);
    bool entropy = loss->kind == YOKE_LOSS_CROSS_ENTROPY;
    const char *name = yoke_model_loss_name(model);
    if (!entropy && loss->label_smoothing > 0)
        return FAIL(YOKE_ERROR_ARGUMENT, "label smoothing of %g has no meaning for %s",
                    loss->label_smoothing, name);
    if (!entropy && loss->class_weights != NULL)
        return FAIL(YOKE_ERROR_ARGUMENT, "class_weights have no meaning for %s", name);
    if (!entropy && loss->set_ignore_index)
        return FAIL(YOKE_ERROR_ARGUMENT, "ignore_index has no meaning for %s", name);
    if (loss->kind != YOKE_LOSS_BCE && loss->positive_weights != NULL)
        return FAIL(YOKE_ERROR_ARGUMENT, "positive_weights have no meaning for %s", name);
    if (!(loss->label_smoothing >= 0 && loss->label_smoothing < 1))
        return FAIL(YOKE_ERROR_ARGUMENT, "label smoothing of %g: must be at least 0 and below 1",
                    loss->label_smoothing);
    if (loss->kind == YOKE_LOSS_HUBER && (!(loss->huber_delta > 0) || isinf(loss->huber_delta)))
        return FAIL(YOKE_ERROR_ARGUMENT, "huber_delta is %g: must be finite and above 0",
                    loss->huber_delta);
    if (loss->class_weights != NULL)
        return check_weights(loss, outputs, loss->class_weights, "class_weights");
    if (loss->positive_weights != NULL)
        return check_weights(loss, outputs, loss->positive_weights, "positive_weights");
    if (loss->weight_count != 0)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "weight_count is %d, but class_weights and positive_weights are NULL",
                    loss->weight_count);
    return YOKE_OK;
}

yoke_status yoke_model_set_loss(yoke_model *model, const yoke_loss_options *given) {
    static const yoke_loss_options defaults = YOKE_LOSS_OPTIONS_INIT;
    yoke_loss_options *loss = &model->loss;
    TRY(yoke_options_load(loss, sizeof *loss, given != NULL ? given : &defaults,
                          "yoke_loss_options"));
    if (loss->huber_delta == 0) loss->huber_delta = 1;
    size_t outputs = yoke_model_output_elements(model, 0);
    if (yoke_model_reads_labels(model))
        outputs = (size_t)yoke_value_shape(model, model->outputs[0].value).channels;
    TRY(check_loss(model, (int)outputs));
    const float **kept =
        loss->class_weights != NULL ? &loss->class_weights : &loss->positive_weights;
    if (*kept == NULL) return YOKE_OK;
    size_t bytes = (size_t)loss->weight_count * sizeof **kept;
    model->loss_weights = yoke_malloc(bytes);
    if (model->loss_weights == NULL) return FAIL_MEMORY(bytes, "the weights of a loss");
    memcpy(model->loss_weights, *kept, bytes);
    *kept = model->loss_weights;
    return YOKE_OK;
}

yoke_status yoke_model_loss_operation(const yoke_model *model, yoke_operation *operation) {
    static const yoke_operation_kind kinds[] = {[YOKE_LOSS_CROSS_ENTROPY] = YOKE_OP_CROSS_ENTROPY,
                                                [YOKE_LOSS_MSE] = YOKE_OP_MSE,
                                                [YOKE_LOSS_BCE] = YOKE_OP_BCE,
                                                [YOKE_LOSS_HUBER] = YOKE_OP_HUBER,
                                                [YOKE_LOSS_OUTPUT] = YOKE_OP_OUTPUT_LOSS};
    const yoke_loss_options *loss = &model->loss;
    if (!model->finished)
        return FAIL(YOKE_ERROR_ARGUMENT, "model '%s' is not finished", model->name);
    yoke_dims output = yoke_dims_of(yoke_model_output_shape(model));
    *operation = (yoke_operation){.kind = kinds[loss->kind],
                                  .name = "loss",
                                  .input = output,
                                  .output = output,
                                  .label_smoothing = loss->label_smoothing,
                                  .weights = model->loss_weights,
                                  .ignores = loss->set_ignore_index,
                                  .ignored = loss->ignore_index,
                                  .delta = loss->huber_delta};
    return YOKE_OK;
}

/* Labels. */

bool yoke_model_weighs_labels(const yoke_model *model) {
    return model->loss.class_weights != NULL || model->loss.set_ignore_index;
}

bool yoke_model_has_ignore_index(const yoke_model *model) {
    return model->loss.set_ignore_index;
}

bool yoke_model_ignores(const yoke_model *model, int32_t label) {
    return model->loss.set_ignore_index && label == model->loss.ignore_index;
}

yoke_label_count yoke_model_count_labels(const yoke_model *model, const int32_t *labels, int rows,
                                         bool mixed) {
    int count = rows * (int)yoke_model_positions(model);
    yoke_label_count sum = {0};
    if (mixed || !yoke_model_weighs_labels(model)) return (yoke_label_count){count, count};
    for (int i = 0; labels != NULL && i < count; i++) {
        if (yoke_model_ignores(model, labels[i])) continue;
        const float *weights = model->loss.class_weights;
        sum.weight += weights != NULL ? (double)weights[labels[i]] : 1;
        sum.labels++;
    }
    return sum;
}
