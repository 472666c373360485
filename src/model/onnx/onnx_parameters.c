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

/* The module in PyTorch's list of scopes, "['', 'blocks.0', 'blocks.0.ln_1', 'layer_norm']": the
 * last but one. */
static bool module_of_scopes(const char *scopes, char name[YOKE_ONNX_NAME_BYTES]) {
    const char *begin = NULL, *end = NULL, *open = NULL;
    for (const char *c = scopes; *c != '\0'; c++) {
        if (*c != '\'') continue;
        if (open == NULL) {
            open = c + 1;
            continue;
        }
        if (strchr(c + 1, '\'') == NULL) break; /* the last one is the operator */
        begin = open;
        end = c;
        open = NULL;
    }
    if (begin == NULL || end == begin || end - begin >= YOKE_ONNX_NAME_BYTES - 40) return false;
    snprintf(name, YOKE_ONNX_NAME_BYTES, "%.*s", (int)(end - begin), begin);
    for (char *c = name; *c != '\0'; c++)
        if ((unsigned char)*c < 0x21 || *c == 0x7f || yoke_text_utf8_bytes(c) == 0) return false;
    return true;
}

/* That of "/blocks/0/ln_1/LayerNormalization". */
static bool module_of_path(const char *path, char name[YOKE_ONNX_NAME_BYTES]) {
    const char *slash = strrchr(path, '/');
    if (path[0] != '/' || slash == path || slash - path > YOKE_ONNX_NAME_BYTES - 40) return false;
    snprintf(name, YOKE_ONNX_NAME_BYTES, "%.*s", (int)(slash - path - 1), path + 1);
    for (char *c = name; *c != '\0'; c++)
        if (*c == '/') *c = '.';
    return true;
}

bool yoke_onnx_module_name(const yoke_onnx_call *call, char name[YOKE_ONNX_NAME_BYTES]) {
    const Yoke__Onnx__Node *node = call->node;
    for (size_t i = 0; i < node->n_metadata_props; i++) {
        const Yoke__Onnx__Entry *entry = node->metadata_props[i];
        if (entry->key != NULL && entry->value != NULL &&
            strcmp(entry->key, "pkg.torch.onnx.name_scopes") == 0)
            return module_of_scopes(entry->value, name);
    }
    return node->name != NULL && module_of_path(node->name, name);
}

/* Whether all elements are the same number, as those of new biases and norms. */
static yoke_status are_alike(const yoke_onnx_call *call, const yoke_onnx_value *value,
                             bool *alike) {
    float *values;
    TRY(yoke_onnx_floats(call, value, &values));
    size_t count = yoke_onnx_whole(&value->sizes);
    *alike = true;
    for (size_t i = 1; i < count && *alike; i++)
        *alike = memcmp(&values[i], &values[0], sizeof *values) == 0;
    yoke_free(values);
    return YOKE_OK;
}

/* One more parameter that begins as this one. */
static yoke_status copy_parameter(yoke_onnx_reader *reader, const char *name, bool generated,
                                  yoke_onnx_value *value) {
    yoke_onnx_parameter *grown =
        yoke_grow(reader->parameters, &reader->parameter_capacity, reader->parameter_count,
                  sizeof *grown, "a table of parameters");
    if (grown == NULL) return YOKE_ERROR_MEMORY;
    reader->parameters = grown;
    grown[reader->parameter_count] = (yoke_onnx_parameter){.tensor = grown[value->parameter].tensor,
                                                           .name = name,
                                                           .generated = generated,
                                                           .node = {YOKE_NONE}};
    value->parameter = reader->parameter_count++;
    value->node.index = YOKE_NONE;
    return YOKE_OK;
}

yoke_status yoke_onnx_named_apart(yoke_onnx_call *call, yoke_onnx_value *value, const char *name) {
    bool alike = false;
    if (value->kind != YOKE_ONNX_PARAMETER) return YOKE_OK;
    TRY(are_alike(call, value, &alike));
    return alike ? copy_parameter(call->reader, name, false, value) : YOKE_OK;
}

yoke_status yoke_onnx_apart(yoke_onnx_call *call, yoke_onnx_value *value, const char *word) {
    char module[YOKE_ONNX_NAME_BYTES];
    bool alike = false;
    if (value->kind != YOKE_ONNX_PARAMETER) return YOKE_OK;
    const yoke_onnx_parameter *parameter = &call->reader->parameters[value->parameter];
    if (parameter->layer == NULL && parameter->node.index < 0 && !parameter->generated)
        return YOKE_OK;
    if (!parameter->generated) {
        TRY(are_alike(call, value, &alike));
        if (!alike) return YOKE_OK;
    }
    bool known = yoke_onnx_module_name(call, module);
    if (!known && parameter->generated && parameter->layer == NULL) return YOKE_OK;
    if (!known) snprintf(module, sizeof module, "%.40s.%d", call->node->op_type, call->index);
    void *memory;
    TRY(yoke_onnx_take(call->reader, YOKE_ONNX_NAME_BYTES + 40, "a name", &memory));
    snprintf(memory, YOKE_ONNX_NAME_BYTES + 40, "%s.%s", module, word);
    if (parameter->generated && parameter->layer == NULL && parameter->node.index < 0) {
        call->reader->parameters[value->parameter].name = memory;
        return YOKE_OK;
    }
    return copy_parameter(call->reader, memory, false, value);
}

/* Whether the transpose of one matrix is the other. */
static yoke_status is_transpose(const yoke_onnx_call *call, const yoke_onnx_value *one,
                                const yoke_onnx_value *other, bool *equal) {
    float *a = NULL, *b = NULL;
    size_t height = (size_t)one->sizes.at[0], width = (size_t)one->sizes.at[1];
    TRY(yoke_onnx_floats(call, one, &a));
    yoke_status status = yoke_onnx_floats(call, other, &b);
    *equal = status == YOKE_OK;
    for (size_t i = 0; i < height * width && *equal; i++)
        *equal = memcmp(&a[i], &b[i % width * height + i / width], sizeof *a) == 0;
    yoke_free(a);
    yoke_free(b);
    return status;
}

yoke_status yoke_onnx_original(yoke_onnx_call *call, yoke_onnx_value *matrix) {
    bool alike = true, equal = false;
    const yoke_onnx_reader *reader = call->reader;
    if (!reader->parameters[matrix->parameter].generated || matrix->transposed) return YOKE_OK;
    for (int i = 0; i < reader->parameter_count; i++) {
        const yoke_onnx_parameter *other = &reader->parameters[i];
        if (other->layer == NULL || other->tensor->n_dims != 2 ||
            other->tensor->dims[0] != matrix->sizes.at[1] ||
            other->tensor->dims[1] != matrix->sizes.at[0])
            continue;
        yoke_onnx_value found = {.kind = YOKE_ONNX_PARAMETER,
                                 .sizes = {2, {matrix->sizes.at[1], matrix->sizes.at[0]}},
                                 .parameter = i};
        TRY(is_transpose(call, matrix, &found, &equal));
        if (equal) TRY(are_alike(call, matrix, &alike));
        if (!equal || alike) continue;
        matrix->parameter = i;
        matrix->transposed = true;
        return YOKE_OK;
    }
    return YOKE_OK;
}

yoke_status yoke_onnx_floats(const yoke_onnx_call *call, const yoke_onnx_value *value,
                             float **values) {
    size_t count = yoke_onnx_whole(&value->sizes);
    *values = yoke_malloc((count + 1) * sizeof(float));
    if (*values == NULL) return FAIL_MEMORY(count * sizeof(float), "first values");
    yoke_status status = YOKE_OK;
    if (value->kind == YOKE_ONNX_CONSTANT)
        for (size_t i = 0; i < count; i++)
            (*values)[i] = (float)value->elements[i];
    else
        status = yoke_onnx_tensor_floats(
            call->reader->file, call->reader->parameters[value->parameter].tensor, count, *values);
    if (status == YOKE_OK) return YOKE_OK;
    yoke_free(*values);
    *values = NULL;
    return status;
}

void yoke_onnx_give(yoke_model *model, int tensor, float *values) {
    yoke_free(model->tensors[tensor].given);
    model->tensors[tensor].given = values;
}

/* Which tensor of the model has a name; -1: none. */
static int named(const yoke_model *model, const char *name) {
    return yoke_model_find_tensor(model, name, NULL);
}

/* The transpose of a matrix of the file, for a tensor of these sizes. */
static yoke_status turn(const yoke_onnx_value *value, float **values) {
    size_t height = (size_t)value->sizes.at[0], width = (size_t)value->sizes.at[1];
    float *turned = yoke_malloc((height * width + 1) * sizeof *turned);
    for (size_t i = 0; turned != NULL && i < height * width; i++)
        turned[i] = (*values)[i % width * height + i / width];
    yoke_free(*values);
    *values = turned;
    return turned != NULL ? YOKE_OK : FAIL_MEMORY(height * width * sizeof *turned, "first values");
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
    if (value->sizes.rank >= 1 && value->sizes.rank <= 4 && !value->transposed &&
        (tensor->ndim == value->sizes.rank || layer == NULL)) {
        tensor->ndim = value->sizes.rank;
        for (int i = 0; i < tensor->ndim; i++)
            tensor->shape[i] = value->sizes.at[i];
    }
    TRY(yoke_onnx_floats(call, value, &values));
    if (parameter->turned) TRY(turn(value, &values));
    yoke_onnx_give(model, index, values);
    if (layer != NULL && parameter->layer == NULL &&
        (parameter->layer = yoke_strdup(layer)) == NULL)
        return FAIL_MEMORY(strlen(layer) + 1, "a layer's name");
    return yoke_onnx_check(call);
}
