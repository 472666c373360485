/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters of layers: their names and sizes are the file's, and their first values. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/onnx/onnx_reader.h"

yoke_status yoke_onnx_is_layer_parameter(const yoke_onnx_call *call, const yoke_onnx_value *value,
                                         const char *what) {
    if (value->kind != YOKE_ONNX_PARAMETER)
        return FAIL(YOKE_ERROR_ARGUMENT, "its %s is computed: it must be an initializer", what);
    if (call->reader->parameters[value->parameter].node.index >= 0)
        return FAIL(YOKE_ERROR_ARGUMENT, "its %s is %s, with which the graph also computes", what,
                    call->reader->parameters[value->parameter].name);
    return YOKE_OK;
}

static bool ends_with(const char *text, const char *end) {
    size_t length = strlen(text), tail = strlen(end);
    return length > tail && strcmp(text + length - tail, end) == 0;
}

/* The prefix, or with a number where a layer has it. */
static yoke_status free_name(yoke_onnx_call *call, const char *prefix,
                             char name[YOKE_ONNX_NAME_BYTES]) {
    if (strlen(prefix) + 12 > YOKE_ONNX_NAME_BYTES)
        return FAIL(YOKE_ERROR_ARGUMENT, "the name %.60s... is longer than %d bytes", prefix,
                    YOKE_ONNX_NAME_BYTES - 12);
    snprintf(name, YOKE_ONNX_NAME_BYTES, "%s", prefix);
    for (int i = 2; yoke_builder_find(call->model, name) != NULL; i++)
        snprintf(name, YOKE_ONNX_NAME_BYTES, "%s#%d", prefix, i);
    return YOKE_OK;
}

yoke_status yoke_onnx_layer_name(yoke_onnx_call *call, const yoke_onnx_value *weight,
                                 const char *suffix, char name[YOKE_ONNX_NAME_BYTES]) {
    char prefix[YOKE_ONNX_NAME_BYTES];
    const char *own = call->reader->parameters[weight->parameter].name;
    size_t length = strlen(own);
    if (suffix[0] != '\0' && ends_with(own, suffix)) length -= strlen(suffix);
    if (length >= sizeof prefix)
        return FAIL(YOKE_ERROR_ARGUMENT, "the name %.60s... is longer than %zu bytes", own,
                    sizeof prefix - 1);
    memcpy(prefix, own, length);
    prefix[length] = '\0';
    return free_name(call, prefix, name);
}

yoke_status yoke_onnx_module_name(yoke_onnx_call *call, char name[YOKE_ONNX_NAME_BYTES],
                                  int *number) {
    char prefix[YOKE_ONNX_NAME_BYTES] = "";
    const char *own = call->node->name != NULL ? call->node->name : "";
    const char *slash = strrchr(own, '/'), *from = own[0] == '/' ? own + 1 : own;
    int64_t counted = 0;
    const char *line = strrchr(own, '_');
    if (slash != NULL && line != NULL && line > slash && !yoke_text_integer(line + 1, 0, 9999, &counted))
        counted = 0;
    *number = (int)counted;
    if (slash != NULL && slash > from) {
        size_t length = (size_t)(slash - from);
        if (length >= sizeof prefix) length = sizeof prefix - 1;
        memcpy(prefix, from, length);
        prefix[length] = '\0';
        for (char *c = prefix; *c != '\0'; c++)
            if (*c == '/') *c = '.';
        snprintf(name, YOKE_ONNX_NAME_BYTES, "%s", prefix);
        return YOKE_OK;
    }
    *number = 0;
    char kind[32];
    snprintf(kind, sizeof kind, "%.20s", call->node->op_type);
    for (char *c = kind; *c != '\0'; c++)
        if (*c >= 'A' && *c <= 'Z') *c = (char)(*c - 'A' + 'a');
    snprintf(prefix, sizeof prefix, "%s.%d", kind, call->index);
    return free_name(call, prefix, name);
}

yoke_status yoke_onnx_floats(const yoke_onnx_call *call, const yoke_onnx_value *value,
                             float **values) {
    size_t count = yoke_onnx_whole(&value->sizes);
    *values = malloc((count + 1) * sizeof(float));
    if (*values == NULL) return FAIL_MEMORY(count * sizeof(float), "first values");
    yoke_status status = YOKE_OK;
    if (value->kind == YOKE_ONNX_CONSTANT)
        for (size_t i = 0; i < count; i++)
            (*values)[i] = (float)value->elements[i];
    else
        status = yoke_onnx_tensor_floats(
            call->reader->file, call->reader->parameters[value->parameter].tensor, count, *values);
    if (status == YOKE_OK) return YOKE_OK;
    free(*values);
    *values = NULL;
    return status;
}

void yoke_onnx_give(yoke_model *model, int tensor, float *values) {
    free(model->tensors[tensor].given);
    model->tensors[tensor].given = values;
}

/* Which tensor of the model has a name; -1: none. */
static int named(const yoke_model *model, const char *name) {
    return yoke_model_find_tensor(model, name, NULL);
}

yoke_status yoke_onnx_own(yoke_onnx_call *call, int index, const yoke_onnx_value *value,
                          const char *layer) {
    yoke_model *model = call->model;
    yoke_onnx_parameter *parameter = &call->reader->parameters[value->parameter];
    yoke_tensor *tensor = &model->tensors[index];
    float *values;
    if (yoke_onnx_whole(&value->sizes) != tensor->count)
        return FAIL(YOKE_ERROR_DATA, "%s has %zu elements, the operator needs %zu", parameter->name,
                    yoke_onnx_whole(&value->sizes), tensor->count);
    int other = named(model, parameter->name);
    if (other < 0) {
        yoke_tensor_rename(model, tensor, parameter->name);
        tensor = &model->tensors[index];
    }
    if (value->sizes.rank <= 4 && !value->transposed &&
        (tensor->ndim == value->sizes.rank || layer == NULL)) {
        tensor->ndim = value->sizes.rank;
        for (int i = 0; i < tensor->ndim; i++)
            tensor->shape[i] = value->sizes.at[i];
    }
    TRY(yoke_onnx_floats(call, value, &values));
    yoke_onnx_give(model, index, values);
    if (layer != NULL && parameter->layer == NULL && (parameter->layer = strdup(layer)) == NULL)
        return FAIL_MEMORY(strlen(layer) + 1, "a layer's name");
    return yoke_onnx_check(call);
}
