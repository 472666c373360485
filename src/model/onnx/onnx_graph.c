/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes, attributes and initializers of a graph that is written. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/onnx/onnx_file.h"
#include "model/onnx/onnx_writer.h"

void *yoke_onnx_keep(yoke_onnx_writer *writer, size_t bytes) {
    if (writer->status != YOKE_OK) return NULL;
    void **grown = yoke_grow(writer->memory, &writer->memory_capacity, writer->memory_count,
                             sizeof *grown, "a graph of ONNX");
    void *made = grown != NULL ? yoke_calloc(1, bytes > 0 ? bytes : 1) : NULL;
    if (grown != NULL) writer->memory = grown;
    if (made == NULL) {
        writer->status = FAIL_MEMORY(bytes, "a graph of ONNX");
        return NULL;
    }
    return writer->memory[writer->memory_count++] = made;
}

const char *yoke_onnx_name_of(yoke_onnx_writer *writer, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    char *name = length < 0 ? NULL : yoke_onnx_keep(writer, (size_t)length + 1);
    if (name == NULL) return "";
    va_start(arguments, format);
    vsnprintf(name, (size_t)length + 1, format, arguments);
    va_end(arguments);
    return name;
}

/* Space for one more of a list. */
static bool grow(yoke_onnx_writer *writer, void *list, size_t count, int *capacity) {
    void **old = *(void ***)list;
    if (writer->status == YOKE_OK && (int)count == *capacity) {
        int more = *capacity > 0 ? 2 * *capacity : 64;
        void **made = yoke_realloc(old, (size_t)more * sizeof *made);
        if (made == NULL)
            writer->status = FAIL_MEMORY((size_t)more * sizeof *made, "a graph of ONNX");
        else {
            *(void ***)list = made;
            *capacity = more;
        }
    }
    return writer->status == YOKE_OK;
}

static void set_attribute(yoke_onnx_writer *writer, Yoke__Onnx__Attribute *attribute,
                          const yoke_onnx_given *given) {
    enum { REAL = 1, WHOLE = 2, TEXT = 3, WHOLES = 7 };
    attribute->name = (char *)yoke_onnx_name_of(writer, "%s", given->name);
    attribute->has_type = true;
    if (given->text != NULL) {
        attribute->type = TEXT;
        attribute->has_s = true;
        attribute->s.len = strlen(given->text);
        attribute->s.data = (uint8_t *)yoke_onnx_name_of(writer, "%s", given->text);
    } else if (given->is_real) {
        attribute->type = REAL;
        attribute->has_f = true;
        attribute->f = (float)given->f;
    } else if (given->count == 0) {
        attribute->type = WHOLE;
        attribute->has_i = true;
        attribute->i = given->i;
    } else {
        size_t bytes = (size_t)given->count * sizeof *given->ints;
        attribute->type = WHOLES;
        attribute->ints = yoke_onnx_keep(writer, bytes);
        if (attribute->ints == NULL) return;
        memcpy(attribute->ints, given->ints, bytes);
        attribute->n_ints = (size_t)given->count;
    }
}

static void set_attributes(yoke_onnx_writer *writer, Yoke__Onnx__Node *node,
                           const yoke_onnx_given *given) {
    size_t count = 0;
    while (given != NULL && given[count].name != NULL)
        count++;
    node->attribute = yoke_onnx_keep(writer, count * sizeof(void *));
    for (size_t i = 0; i < count && writer->status == YOKE_OK; i++) {
        Yoke__Onnx__Attribute *attribute = yoke_onnx_keep(writer, sizeof *attribute);
        if (attribute == NULL) return;
        yoke__onnx__attribute__init(attribute);
        node->attribute[i] = attribute;
        node->n_attribute = i + 1;
        set_attribute(writer, attribute, &given[i]);
    }
}

const char *yoke_onnx_emit(yoke_onnx_writer *writer, const char *kind, const char *const *inputs,
                           const yoke_onnx_given *attributes) {
    Yoke__Onnx__Graph *graph = writer->graph;
    size_t count = 0;
    while (inputs[count] != NULL)
        count++;
    Yoke__Onnx__Node *node = yoke_onnx_keep(writer, sizeof *node);
    char **names = yoke_onnx_keep(writer, (count + 1) * sizeof *names);
    if (names == NULL || !grow(writer, &graph->node, graph->n_node, &writer->node_capacity))
        return "";
    yoke__onnx__node__init(node);
    for (size_t i = 0; i < count; i++)
        names[i] = (char *)inputs[i];
    names[count] = (char *)yoke_onnx_name_of(writer, "/%s.%d", kind, ++writer->counted);
    node->op_type = (char *)yoke_onnx_name_of(writer, "%s", kind);
    node->name = names[count];
    node->input = names;
    node->n_input = count;
    node->output = names + count;
    node->n_output = 1;
    set_attributes(writer, node, attributes);
    graph->node[graph->n_node++] = node;
    return names[count];
}

const char *yoke_onnx_one(yoke_onnx_writer *writer, const char *kind, const char *a,
                          const char *b) {
    const char *const inputs[] = {a, b, NULL};
    return yoke_onnx_emit(writer, kind, inputs, NULL);
}

void yoke_onnx_call_it(yoke_onnx_writer *writer, const char *name) {
    if (writer->status != YOKE_OK || writer->graph->n_node == 0) return;
    Yoke__Onnx__Node *node = writer->graph->node[writer->graph->n_node - 1];
    node->output[0] = (char *)name;
    node->name = (char *)yoke_onnx_name_of(writer, "%s", name);
}

/* Initializers. */

static const char *add_tensor(yoke_onnx_writer *writer, const char *name, int type,
                              const int64_t *sizes, int rank, const void *data, size_t bytes) {
    Yoke__Onnx__Graph *graph = writer->graph;
    Yoke__Onnx__Tensor *tensor = yoke_onnx_keep(writer, sizeof *tensor);
    int64_t *dims = yoke_onnx_keep(writer, (size_t)rank * sizeof *dims);
    void *copy = yoke_onnx_keep(writer, bytes);
    if (copy == NULL ||
        !grow(writer, &graph->initializer, graph->n_initializer, &writer->initializer_capacity))
        return "";
    yoke__onnx__tensor__init(tensor);
    if (rank > 0) memcpy(dims, sizes, (size_t)rank * sizeof *dims);
    if (bytes > 0) memcpy(copy, data, bytes);
    tensor->dims = dims;
    tensor->n_dims = (size_t)rank;
    tensor->has_data_type = true;
    tensor->data_type = type;
    tensor->name = (char *)name;
    tensor->has_raw_data = true;
    tensor->raw_data = (ProtobufCBinaryData){bytes, copy};
    writer->bytes += bytes;
    graph->initializer[graph->n_initializer++] = tensor;
    return name;
}

const char *yoke_onnx_wholes(yoke_onnx_writer *writer, const int64_t *numbers, int count) {
    const int64_t sizes[] = {count};
    const char *name = yoke_onnx_name_of(writer, "/number.%d", ++writer->counted);
    return add_tensor(writer, name, YOKE_ONNX_INT64, sizes, 1, numbers,
                      (size_t)count * sizeof *numbers);
}

const char *yoke_onnx_reals(yoke_onnx_writer *writer, const char *name, const int64_t *sizes,
                            int rank, const float *numbers) {
    size_t count = 1;
    for (int i = 0; i < rank; i++)
        count *= (size_t)sizes[i];
    if (name == NULL) name = yoke_onnx_name_of(writer, "/number.%d", ++writer->counted);
    return add_tensor(writer, name, YOKE_ONNX_FLOAT, sizes, rank, numbers, count * sizeof *numbers);
}

const char *yoke_onnx_scalar(yoke_onnx_writer *writer, double number) {
    const float one = (float)number;
    return yoke_onnx_reals(writer, NULL, NULL, 0, &one);
}

const char *yoke_onnx_to_shape(yoke_onnx_writer *writer, const char *from, const int64_t *sizes,
                               int rank) {
    return yoke_onnx_one(writer, "Reshape", from, yoke_onnx_wholes(writer, sizes, rank));
}

const char *yoke_onnx_turn(yoke_onnx_writer *writer, const char *from, const int64_t *order,
                           int rank) {
    const char *const inputs[] = {from, NULL};
    const yoke_onnx_given attributes[] = {{.name = "perm", .ints = order, .count = rank}, {0}};
    return yoke_onnx_emit(writer, "Transpose", inputs, attributes);
}

const char *yoke_onnx_cut(yoke_onnx_writer *writer, const char *from, int axis, int64_t begin,
                          int64_t end) {
    const int64_t place = axis;
    const char *const inputs[] = {from, yoke_onnx_wholes(writer, &begin, 1),
                                  yoke_onnx_wholes(writer, &end, 1),
                                  yoke_onnx_wholes(writer, &place, 1), NULL};
    return yoke_onnx_emit(writer, "Slice", inputs, NULL);
}
