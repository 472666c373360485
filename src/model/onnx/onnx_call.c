/* SPDX-License-Identifier: Apache-2.0 */
/* What operators ask of a node: attributes, numbers of inputs; and their results. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/onnx/onnx_reader.h"

/* Attributes. */

static const Yoke__Onnx__Attribute *attribute_of(const yoke_onnx_call *call, const char *name) {
    for (size_t i = 0; i < call->node->n_attribute; i++)
        if (call->node->attribute[i]->name != NULL &&
            strcmp(call->node->attribute[i]->name, name) == 0)
            return call->node->attribute[i];
    return NULL;
}

int64_t yoke_onnx_int(const yoke_onnx_call *call, const char *name, int64_t otherwise) {
    const Yoke__Onnx__Attribute *found = attribute_of(call, name);
    return found == NULL ? otherwise : found->i;
}

double yoke_onnx_real(const yoke_onnx_call *call, const char *name, double otherwise) {
    const Yoke__Onnx__Attribute *found = attribute_of(call, name);
    return found == NULL ? otherwise : (double)found->f;
}

const char *yoke_onnx_text(const yoke_onnx_call *call, const char *name, const char *otherwise,
                           char text[32]) {
    const Yoke__Onnx__Attribute *found = attribute_of(call, name);
    if (found == NULL) return otherwise;
    if (found->s.len >= 32) return "?";
    if (found->s.len > 0) memcpy(text, found->s.data, found->s.len);
    text[found->s.len] = '\0';
    for (char *c = text; *c != '\0'; c++)
        if (*c < 0x20 || *c > 0x7e) return "?";
    return text;
}

bool yoke_onnx_texts_are(const yoke_onnx_call *call, const char *name, const char *const *texts,
                         size_t count) {
    const Yoke__Onnx__Attribute *found = attribute_of(call, name);
    for (size_t i = 0; found != NULL && i < found->n_strings; i++) {
        const char *wanted = texts[i % count];
        const ProtobufCBinaryData *text = &found->strings[i];
        if (text->len != strlen(wanted) || memcmp(text->data, wanted, text->len) != 0) return false;
    }
    return true;
}

yoke_status yoke_onnx_ints(const yoke_onnx_call *call, const char *name, yoke_onnx_sizes *numbers) {
    const Yoke__Onnx__Attribute *found = attribute_of(call, name);
    *numbers = (yoke_onnx_sizes){.rank = -1};
    if (found == NULL) return YOKE_OK;
    if (found->n_ints > YOKE_ONNX_RANK + 2)
        return FAIL(YOKE_ERROR_DATA, "attribute %s has %zu numbers", name, found->n_ints);
    numbers->rank = (int)found->n_ints;
    for (size_t i = 0; i < found->n_ints; i++)
        numbers->at[i] = found->ints[i];
    return YOKE_OK;
}

/* Inputs. */

bool yoke_onnx_has(const yoke_onnx_call *call, int index) {
    return index < call->in_count && call->in[index] != NULL;
}

yoke_status yoke_onnx_need(const yoke_onnx_call *call, int count) {
    for (int i = 0; i < count; i++)
        if (!yoke_onnx_has(call, i))
            return FAIL(YOKE_ERROR_DATA, "it has no input %d, which the operator needs", i);
    return YOKE_OK;
}

bool yoke_onnx_known(const yoke_onnx_call *call, const yoke_onnx_value *value) {
    if (value->kind == YOKE_ONNX_CONSTANT) return true;
    return value->kind == YOKE_ONNX_PARAMETER &&
           call->reader->parameters[value->parameter].generated &&
           call->reader->parameters[value->parameter].layer == NULL;
}

yoke_status yoke_onnx_elements_of(yoke_onnx_call *call, yoke_onnx_value *value,
                                  const double **elements) {
    *elements = value->elements;
    if (value->kind == YOKE_ONNX_CONSTANT) return YOKE_OK;
    if (!yoke_onnx_known(call, value))
        return FAIL(YOKE_ERROR_ARGUMENT, "it needs a constant where the graph computes one");
    yoke_onnx_parameter *parameter = &call->reader->parameters[value->parameter];
    yoke_onnx_sizes sizes = value->sizes;
    double *made;
    yoke_onnx_value constant;
    TRY(yoke_onnx_constant(call->reader, &sizes, &constant, &made));
    TRY(yoke_onnx_tensor_doubles(call->reader->file, parameter->tensor, yoke_onnx_whole(&sizes),
                                 made));
    if (value->transposed) {
        double *turned;
        TRY(yoke_onnx_constant(call->reader, &sizes, &constant, &turned));
        size_t height = (size_t)sizes.at[0], width = (size_t)sizes.at[1];
        for (size_t i = 0; i < height * width; i++)
            turned[i] = made[i % width * height + i / width];
        made = turned;
    }
    *value = constant;
    value->elements = *elements = made;
    return YOKE_OK;
}

static int64_t whole_of(double number) {
    if (!(number > -9e18)) return -INT64_MAX;
    return number < 9e18 ? (int64_t)number : INT64_MAX;
}

yoke_status yoke_onnx_numbers(yoke_onnx_call *call, int index, const char *name,
                              yoke_onnx_sizes *numbers) {
    if (!yoke_onnx_has(call, index)) return yoke_onnx_ints(call, name, numbers);
    yoke_onnx_value *value = call->in[index];
    const double *elements;
    if (!yoke_onnx_known(call, value))
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "its %s are computed from the input: shapes must be known before", name);
    TRY(yoke_onnx_elements_of(call, value, &elements));
    size_t count = yoke_onnx_whole(&value->sizes);
    if (count > YOKE_ONNX_RANK + 2)
        return FAIL(YOKE_ERROR_DATA, "its %s are %zu numbers", name, count);
    numbers->rank = (int)count;
    for (size_t i = 0; i < count; i++)
        numbers->at[i] = whole_of(elements[i]);
    return YOKE_OK;
}

yoke_status yoke_onnx_axis(int64_t given, int rank, int *axis) {
    if (given < -rank || given >= rank)
        return FAIL(YOKE_ERROR_DATA, "axis %lld of a tensor of %d dimensions", (long long)given,
                    rank);
    *axis = (int)(given < 0 ? given + rank : given);
    return YOKE_OK;
}

yoke_status yoke_onnx_number(yoke_onnx_call *call, yoke_onnx_value *value, double *number) {
    const double *elements;
    *number = (double)NAN;
    if (value == NULL || !yoke_onnx_known(call, value) || yoke_onnx_whole(&value->sizes) != 1)
        return YOKE_OK;
    TRY(yoke_onnx_elements_of(call, value, &elements));
    *number = elements[0];
    return YOKE_OK;
}

/* Results. */

yoke_status yoke_onnx_check(const yoke_onnx_call *call) {
    if (call->model->error.status == YOKE_OK) return YOKE_OK;
    return yoke_error_restore(&call->model->error);
}

yoke_status yoke_onnx_result(yoke_onnx_call *call, int index, const yoke_onnx_sizes *sizes,
                             yoke_onnx_batch batch, yoke_value node) {
    TRY(yoke_onnx_check(call));
    if (index >= call->out_count || call->out[index] == NULL) return YOKE_OK;
    *call->out[index] = (yoke_onnx_value){
        .kind = YOKE_ONNX_COMPUTED, .sizes = *sizes, .batch = batch, .node = node};
    return YOKE_OK;
}

yoke_status yoke_onnx_spend(yoke_onnx_reader *reader, size_t count) {
    if (count > YOKE_ONNX_ELEMENTS - reader->elements)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "a constant of %zu elements: all that the graph computes may have %zu", count,
                    YOKE_ONNX_ELEMENTS);
    reader->elements += count;
    return YOKE_OK;
}

yoke_status yoke_onnx_constant(yoke_onnx_reader *reader, const yoke_onnx_sizes *sizes,
                               yoke_onnx_value *value, double **elements) {
    TRY(yoke_onnx_sizes_check(sizes));
    size_t count = yoke_onnx_whole(sizes);
    TRY(yoke_onnx_spend(reader, count));
    void *memory;
    TRY(yoke_onnx_take(reader, (count + 1) * sizeof(double), "a constant", &memory));
    *elements = memory;
    *value = (yoke_onnx_value){.kind = YOKE_ONNX_CONSTANT,
                               .sizes = *sizes,
                               .batch = yoke_onnx_no_batch(),
                               .elements = memory,
                               .node = {YOKE_NONE}};
    return YOKE_OK;
}
