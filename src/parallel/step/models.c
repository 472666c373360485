/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/step/models.h"

#include <stdlib.h>
#include <string.h>

#include "parallel/step/groups.h"

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
                        "tensor %d of model '%s' is %s of %zu values, of the other model '%s' %s "
                        "of %zu: models of one engine share their parameters",
                        i, yoke_model_name(first), one.name, one.count, yoke_model_name(other),
                        two.name, two.count);
    }
    return YOKE_OK;
}

/* What a value of one row is, in a model and in another one: its name, and no more elements. */
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
                "'%s' of model '%s' is %dx%dx%d, '%s' of the other model '%s' %dx%dx%d: it must "
                "have the same name and kind, and no more values",
                one.name, yoke_model_name(first), one.shape.channels, one.shape.height,
                one.shape.width, two.name, yoke_model_name(other), two.shape.channels,
                two.shape.height, two.shape.width);
}

static yoke_status check_alike(const yoke_model *first, const yoke_model *other) {
    TRY(yoke_pointer_check(other, "other_models"));
    int inputs = yoke_model_input_count(first), outputs = yoke_model_output_count(first);
    if (yoke_model_tensor_count(first) != yoke_model_tensor_count(other) ||
        inputs < yoke_model_input_count(other) || outputs != yoke_model_output_count(other) ||
        yoke_model_loss_kind(first) != yoke_model_loss_kind(other))
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "model '%s' has %d tensors, %d inputs, %d outputs and the loss %s; the shorter "
                    "model '%s' %d, %d, %d and %s: they must be alike, but for inputs, of "
                    "which another model may read the first ones",
                    yoke_model_name(first), yoke_model_tensor_count(first), inputs, outputs,
                    yoke_model_loss_name(first), yoke_model_name(other),
                    yoke_model_tensor_count(other), yoke_model_input_count(other),
                    yoke_model_output_count(other), yoke_model_loss_name(other));
    for (int k = 0; k < yoke_model_input_count(other); k++)
        TRY(check_value(first, other, yoke_model_describe_input, k));
    for (int k = 0; k < outputs; k++)
        TRY(check_value(first, other, yoke_model_describe_output, k));
    return check_tensors(first, other);
}

/* Which parameters. */

/* [tensors] of step->models[index]: true unless a pattern of the list names the parameter. */
static yoke_status find_untrained(yoke_step *step, int index, const char *list) {
    const yoke_model *model = step->models[0].model;
    size_t tensors = (size_t)yoke_model_tensor_count(model);
    const char *unmatched = NULL;
    yoke_names names = {0};
    bool *untrained = step->models[index].untrained = yoke_calloc(tensors + 1, sizeof *untrained);
    int *marks = yoke_calloc(tensors + 1, sizeof *marks);
    yoke_status status = yoke_names_create(&names, (int)tensors);
    if (untrained == NULL || marks == NULL) status = FAIL_MEMORY(tensors, "trained parameters");
    for (int i = 0; i < (int)tensors && status == YOKE_OK; i++) {
        yoke_tensor_info info = {.struct_size = sizeof info};
        status = yoke_model_tensor(model, i, &info);
        marks[i] = -1;
        if (info.trainable) yoke_names_add(&names, info.name, i);
    }
    yoke_names_sort(&names);
    if (status == YOKE_OK) status = yoke_patterns_mark(&names, list, 1, marks, &unmatched);
    if (status == YOKE_OK && unmatched != NULL)
        status = yoke_patterns_fail(model, "parameters to train", unmatched);
    for (size_t i = 0; i < tensors && status == YOKE_OK; i++)
        untrained[i] = marks[i] < 0 || yoke_groups_freeze(&step->groups, (int)i);
    yoke_names_destroy(&names);
    yoke_free(marks);
    return status;
}

static yoke_status find_parts(yoke_step *step) {
    const char *const *lists = step->options.trained;
    step->options.trained = NULL; /* may be gone after create */
    for (int i = 0; lists != NULL && i < step->model_count; i++) {
        if (lists[i] == NULL) continue;
        step->trains_parts = true;
        TRY(find_untrained(step, i, lists[i]));
    }
    if (step->trains_parts && step->optimizer_options.clip_norm > 0)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "clip_norm with models that train a part of the parameters: the norm would be "
                    "that of all; leave clip_norm out");
    return YOKE_OK;
}

const bool *yoke_models_untrained(const yoke_step *step) {
    return step->models[0].untrained != NULL ? step->models[0].untrained : step->groups.frozen;
}

unsigned yoke_models_training(const yoke_step *step, int tensor) {
    unsigned training = 0;
    for (int i = 0; step->trains_parts && i < step->model_count; i++)
        if (step->models[i].untrained == NULL || !step->models[i].untrained[tensor])
            training |= 1u << i;
    return training;
}

void yoke_models_count(yoke_step *step) {
    step->models[step->model_index].steps++;
    step->last_models[step->steps % YOKE_GUARDS] = step->model_index;
}

void yoke_models_uncount(yoke_step *step, uint64_t number) {
    for (uint64_t i = number; i < step->steps; i++)
        step->models[step->last_models[i % YOKE_GUARDS]].steps--;
}

/* Life. */

yoke_status yoke_models_open(yoke_step *step) {
    const yoke_data_parallel_options *options = &step->options;
    int more = options->other_model_count;
    if (more < 0 || more >= YOKE_MODELS_LIMIT || (more > 0) != (options->other_models != NULL))
        return FAIL(
            YOKE_ERROR_ARGUMENT,
            "other_model_count is %d and other_models is %s: 0 to %d, and a list of as many", more,
            options->other_models != NULL ? "set" : "NULL", YOKE_MODELS_LIMIT - 1);
    if (more > 0 && step->options.pixels)
        return FAIL(YOKE_ERROR_ARGUMENT, "other_models with pixels: images have one size");
    step->models = yoke_calloc((size_t)more + 1, sizeof *step->models);
    if (step->models == NULL) return FAIL_MEMORY(sizeof *step->models, "models");
    step->model_count = more + 1;
    step->models[0].model = step->model;
    for (int i = 0; i < more; i++) {
        TRY(check_alike(step->model, options->other_models[i]));
        step->models[i + 1].model = options->other_models[i];
    }
    step->options.other_models = NULL; /* may be gone after create */
    return find_parts(step);
}

void yoke_models_close(yoke_step *step) {
    for (int i = 0; step->models != NULL && i < step->model_count; i++)
        yoke_free(step->models[i].untrained);
    yoke_free(step->models);
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
                    "other_models",
                    index, step->model_count - 1);
    if (index == step->model_index) return YOKE_OK;
    const yoke_trained_model *selected = &step->models[index];
    step->model = selected->model;
    step->model_index = index;
    for (int k = 0; k < step->count; k++)
        yoke_replica_select(step->lanes[k].replica, step->model,
                            selected->untrained != NULL ? selected->untrained
                                                        : step->groups.frozen);
    yoke_models_set_limits(step);
    return YOKE_OK;
}
