/* SPDX-License-Identifier: Apache-2.0 */
/* A model from its creation over its finish to its end. */
#include <stdlib.h>
#include <string.h>

#include "model/graph.h"

yoke_status yoke_model_create(yoke_model **model, const char *name, yoke_shape input) {
    if (model == NULL) return FAIL(YOKE_ERROR_ARGUMENT, "yoke_model_create: `model` is NULL");
    *model = NULL;
    yoke_model *made = yoke_calloc(1, sizeof *made);
    if (made == NULL) return FAIL_MEMORY(sizeof *made, "a model");
    if (name == NULL) name = "model";
    yoke_status status = yoke_inputs_outputs_begin(made, input);
    if (status == YOKE_OK && (made->name = yoke_strdup(name)) == NULL)
        status = FAIL_MEMORY(strlen(name) + 1, "a model's name");
    if (status != YOKE_OK) {
        yoke_model_destroy(made);
        return status;
    }
    *model = made;
    return YOKE_OK;
}

void yoke_model_destroy(yoke_model *model) {
    if (model == NULL) return;
    yoke_free(model->nodes);
    for (int i = 0; i < model->tensor_count; i++)
        yoke_tensor_release(&model->tensors[i]);
    yoke_free(model->tensors);
    for (int i = 0; i < model->layer_count; i++) {
        yoke_free((char *)model->layers[i].operation.name);
        yoke_free((float *)model->layers[i].operation.weights); /* a constant's */
    }
    yoke_free(model->layers);
    yoke_inputs_outputs_release(model);
    yoke_free(model->loss_weights);
    yoke_free(model->name);
    yoke_free(model);
}

static yoke_status finish_model(yoke_model *model, yoke_value output,
                                const yoke_loss_options *loss) {
    if (model->finished)
        return FAIL(YOKE_ERROR_ARGUMENT, "model '%s' is finished already", model->name);
    if (output.index < 0 || output.index > model->layer_count)
        return FAIL(YOKE_ERROR_ARGUMENT, "model '%s': output is value %d, the model has 0 to %d",
                    model->name, output.index, model->layer_count);
    yoke_shape shape = yoke_value_shape(model, output.index);
    if (!shape.flat && !shape.sequence)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "model '%s': its output is an image of %d x %d x %d; end with yoke_flatten or "
                    "yoke_linear",
                    model->name, shape.channels, shape.height, shape.width);
    model->outputs[0].value = output.index;
    /* Every value but the outputs needs a reader: an unread value is a mistake in the list. */
    for (int value = 0; value <= model->layer_count; value++) {
        bool read = yoke_is_output(model, value);
        for (int i = value; i < model->layer_count && !read; i++)
            for (int k = 0; k < model->layers[i].input_count; k++)
                read = read || model->layers[i].inputs[k] == value;
        const char *input = yoke_input_name(model, value);
        if (!read && input != NULL)
            return FAIL(YOKE_ERROR_ARGUMENT, "input '%s': no layer reads it", input);
        if (!read)
            return FAIL(YOKE_ERROR_ARGUMENT, "layer '%s': no layer reads its output",
                        model->layers[value - 1].operation.name);
    }
    if (yoke_model_parameter_count(model) == 0)
        return FAIL(YOKE_ERROR_ARGUMENT, "model '%s' has no parameter to train", model->name);
    TRY(yoke_model_set_loss(model, loss));
    TRY(yoke_fuse(model));
    model->finished = true;
    return YOKE_OK;
}

yoke_status yoke_model_finish(yoke_model *model, yoke_value output, const yoke_loss_options *loss) {
    if (model == NULL) return FAIL(YOKE_ERROR_ARGUMENT, "yoke_model_finish needs a model");
    if (model->error.status == YOKE_OK)
        yoke_builder_result(model, finish_model(model, output, loss));
    return model->error.status == YOKE_OK ? YOKE_OK : yoke_error_restore(&model->error);
}

const char *yoke_model_name(const yoke_model *model) {
    return model != NULL ? model->name : "";
}

int yoke_model_norm_channels(const yoke_model *model) {
    int widest = 0;
    for (int i = 0; i < model->layer_count; i++) {
        const yoke_operation *operation = &model->layers[i].operation;
        if (operation->kind == YOKE_OP_BATCH_NORM && operation->input.channels > widest)
            widest = operation->input.channels;
    }
    return widest;
}
