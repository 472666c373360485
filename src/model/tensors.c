/* SPDX-License-Identifier: Apache-2.0 */
/* The table of tensors in state_dict order: the order in which layers were added. */
#include <stdlib.h>
#include <string.h>

#include "model/graph.h"

#define LINE_FLOATS 16 /* running statistics begin on a cache line */

static char *join_name(const char *layer, const char *suffix) {
    if (suffix == NULL) return yoke_strdup(layer);
    size_t length = strlen(layer), bytes = length + strlen(suffix) + 2;
    char *name = yoke_malloc(bytes);
    if (name == NULL) return NULL;
    memcpy(name, layer, length);
    name[length] = '.';
    memcpy(name + length + 1, suffix, bytes - length - 1);
    return name;
}

yoke_status yoke_tensor_add(yoke_model *model, const char *layer, const char *suffix,
                            const yoke_tensor *description, int *index) {
    yoke_tensor tensor = *description;
    yoke_tensor *tensors = yoke_grow(model->tensors, &model->tensor_capacity, model->tensor_count,
                                     sizeof tensor, "a tensor table");
    if (tensors == NULL) return YOKE_ERROR_MEMORY;
    model->tensors = tensors;
    tensor.name = join_name(layer, suffix);
    if (tensor.name == NULL) return FAIL_MEMORY(strlen(layer) + 1, "a tensor name");
    tensor.count = 1;
    for (int i = 0; i < tensor.ndim; i++)
        tensor.count *= (size_t)tensor.shape[i];
    if (!tensor.trainable && !tensor.integer) {
        tensor.buffer_offset = model->buffer_elements;
        model->buffer_elements += (tensor.count + LINE_FLOATS - 1) / LINE_FLOATS * LINE_FLOATS;
    }
    *index = model->tensor_count;
    model->tensors[model->tensor_count++] = tensor;
    return YOKE_OK;
}

void yoke_tensor_rename(yoke_model *model, yoke_tensor *tensor, const char *name) {
    if (yoke_builder_stopped(model)) return;
    char *copy = yoke_strdup(name);
    if (copy == NULL) {
        yoke_builder_result(model, FAIL_MEMORY(strlen(name) + 1, "a tensor name"));
        return;
    }
    yoke_free(tensor->name);
    tensor->name = copy;
}

void yoke_tensor_release(yoke_tensor *tensor) {
    yoke_free(tensor->given);
    yoke_free(tensor->name);
}

size_t yoke_model_parameter_count(const yoke_model *model) {
    size_t count = 0;
    for (int i = 0; model != NULL && i < model->tensor_count; i++)
        if (model->tensors[i].trainable) count += model->tensors[i].count;
    return count;
}

int yoke_model_tensor_count(const yoke_model *model) {
    return model != NULL ? model->tensor_count : 0;
}

yoke_status yoke_model_tensor(const yoke_model *model, int index, yoke_tensor_info *info) {
    TRY(yoke_pointer_check(model, "model"));
    if (index < 0 || index >= model->tensor_count)
        return FAIL(YOKE_ERROR_ARGUMENT, "tensor %d: model '%s' has 0 to %d", index, model->name,
                    model->tensor_count - 1);
    const yoke_tensor *tensor = &model->tensors[index];
    yoke_tensor_info own = {
        .struct_size = sizeof own,
        .name = tensor->name,
        .ndim = tensor->ndim,
        .count = tensor->count,
        .trainable = tensor->trainable,
        .integer = tensor->integer,
    };
    memcpy(own.shape, tensor->shape, sizeof own.shape);
    return yoke_options_store(info, &own, sizeof own, "yoke_tensor_info");
}

static const char *nearest_tensor(const yoke_model *model, const char *name) {
    const char **names = yoke_malloc((size_t)model->tensor_count * sizeof *names);
    if (names == NULL) return NULL;
    for (int i = 0; i < model->tensor_count; i++)
        names[i] = model->tensors[i].name;
    const char *nearest = yoke_text_nearest(name, names, (size_t)model->tensor_count);
    yoke_free(names);
    return nearest;
}

int yoke_model_find_tensor(const yoke_model *model, const char *name, const char **near) {
    if (near != NULL) *near = NULL;
    for (int i = 0; i < model->tensor_count; i++)
        if (strcmp(model->tensors[i].name, name) == 0) return i;
    if (near != NULL && model->tensor_count > 0) *near = nearest_tensor(model, name);
    return YOKE_NONE;
}
