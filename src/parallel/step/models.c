/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/step/models.h"

#include <stdlib.h>
#include <string.h>

/* Both have as many tensors. */
static yoke_status check_tensors(const yoke_model *first, const yoke_model *other) {
    for (int i = 0; i < yoke_model_tensor_count(first); i++) {
        yoke_tensor_info one = {.struct_size = sizeof one}, two = {.struct_size = sizeof two};
        TRY(yoke_model_tensor(first, i, &one));
        TRY(yoke_model_tensor(other, i, &two));
        bool alike = strcmp(one.name, two.name) == 0 && one.ndim == two.ndim &&
                     one.trainable == two.trainable &&
                     memcmp(one.shape, two.shape, (size_t)one.ndim * sizeof *one.shape) == 0;
        if (!alike)
            return FAIL(YOKE_ERROR_ARGUMENT,
                        "tensor %d of model '%s' is %s of %zu values, of the shorter model '%s' %s "
                        "of %zu: models of one engine share their parameters",
                        i, yoke_model_name(first), one.name, one.count, yoke_model_name(other),
                        two.name, two.count);
    }
    return YOKE_OK;
}

/* What a value of one row is, in a model and in a shorter one: its name, and no more elements. */
static yoke_status check_value(const yoke_model *first, const yoke_model *other,
                               yoke_status (*describe)(const yoke_model *model, int index,
                                                       yoke_value_info *info),
                               int index) {
    yoke_value_info one = {.struct_size = sizeof one}, two = {.struct_size = sizeof two};
    TRY(describe(first, index, &one));
    TRY(describe(other, index, &two));
    if (strcmp(one.name, two.name) == 0 && two.row_count <= one.row_count &&
        one.shape.flat == two.shape.flat && one.shape.sequence == two.shape.sequence)
        return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT,
                "'%s' of model '%s' is %dx%dx%d, '%s' of the shorter model '%s' %dx%dx%d: it must "
                "have the same name and kind, and no more values",
                one.name, yoke_model_name(first), one.shape.channels, one.shape.height,
                one.shape.width, two.name, yoke_model_name(other), two.shape.channels,
                two.shape.height, two.shape.width);
}

static yoke_status check_alike(const yoke_model *first, const yoke_model *other) {
    TRY(yoke_pointer_check(other, "shorter_models"));
    int inputs = yoke_model_input_count(first), outputs = yoke_model_output_count(first);
    if (yoke_model_tensor_count(first) != yoke_model_tensor_count(other) ||
        inputs != yoke_model_input_count(other) || outputs != yoke_model_output_count(other) ||
        yoke_model_loss_kind(first) != yoke_model_loss_kind(other))
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "model '%s' has %d tensors, %d inputs, %d outputs and the loss %s; the shorter "
                    "model '%s' %d, %d, %d and %s: they must be alike",
                    yoke_model_name(first), yoke_model_tensor_count(first), inputs, outputs,
                    yoke_model_loss_name(first), yoke_model_name(other),
                    yoke_model_tensor_count(other), yoke_model_input_count(other),
                    yoke_model_output_count(other), yoke_model_loss_name(other));
    for (int k = 0; k < inputs; k++)
        TRY(check_value(first, other, yoke_model_describe_input, k));
    for (int k = 0; k < outputs; k++)
        TRY(check_value(first, other, yoke_model_describe_output, k));
    return check_tensors(first, other);
}

yoke_status yoke_models_open(yoke_step *step) {
    const yoke_data_parallel_options *options = &step->options;
    int more = options->shorter_model_count;
    if (more < 0 || (more > 0) != (options->shorter_models != NULL))
        return FAIL(YOKE_ERROR_ARGUMENT, "shorter_model_count is %d and shorter_models is %s", more,
                    options->shorter_models != NULL ? "set" : "NULL");
    if (more > 0 && step->options.pixels)
        return FAIL(YOKE_ERROR_ARGUMENT, "shorter_models with pixels: images have one size");
    step->models = calloc((size_t)more + 1, sizeof *step->models);
    if (step->models == NULL) return FAIL_MEMORY(sizeof *step->models, "models");
    step->model_count = more + 1;
    step->models[0] = step->model;
    for (int i = 0; i < more; i++) {
        TRY(check_alike(step->model, options->shorter_models[i]));
        step->models[i + 1] = options->shorter_models[i];
    }
    step->options.shorter_models = NULL; /* may be gone after create */
    return YOKE_OK;
}

void yoke_models_close(yoke_step *step) {
    free(step->models);
}

void yoke_models_set_limits(yoke_step *step) {
    yoke_batch_limits *limits = &step->limits;
    limits->row_elements = yoke_model_input_elements(step->model, 0);
    limits->channels = yoke_model_output_shape(step->model).channels;
    limits->outputs = yoke_model_output_elements(step->model, 0);
    limits->positions = yoke_model_positions(step->model);
    limits->labels = yoke_model_reads_labels(step->model);
}

yoke_status yoke_models_select(yoke_step *step, int index) {
    if (index < 0 || index >= step->model_count)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "the batch is for model %d: this engine has 0 to %d, the first and its "
                    "shorter_models",
                    index, step->model_count - 1);
    if (step->model == step->models[index]) return YOKE_OK;
    step->model = step->models[index];
    for (int k = 0; k < step->count; k++)
        yoke_replica_select(step->lanes[k].replica, step->model);
    yoke_models_set_limits(step);
    return YOKE_OK;
}
