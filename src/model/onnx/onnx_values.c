/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of tensors as values of the model: views and broadcasting of any number of dimensions become
 * the three axes that a value has. */
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/onnx/onnx_reader.h"
#include "yoke/transformer.h"

static bool alike(yoke_shape a, yoke_shape b) {
    return a.channels == b.channels && a.height == b.height && a.width == b.width &&
           a.flat == b.flat && a.sequence == b.sequence;
}

yoke_value yoke_onnx_reshape(yoke_onnx_call *call, yoke_value node, yoke_shape shape) {
    if (alike(yoke_model_value_shape(call->model, node), shape)) return node;
    return yoke_reshape(call->model, node, shape);
}

yoke_value yoke_onnx_image(yoke_onnx_call *call, yoke_value node, size_t a, size_t b, size_t c) {
    if (a > INT_MAX || b > INT_MAX || c > INT_MAX) a = b = c = INT_MAX; /* the model refuses it */
    return yoke_onnx_reshape(call, node, yoke_shape_image((int)a, (int)b, (int)c));
}

/* A constant as a value. Infinity, in masks, is a large number: it would make gradients NaN. */
static yoke_status constant_node(yoke_onnx_call *call, yoke_onnx_value *value) {
    size_t count = yoke_onnx_whole(&value->sizes);
    if (count == 0) return FAIL(YOKE_ERROR_ARGUMENT, "a constant without elements");
    TRY(yoke_onnx_spend(call->reader, count));
    float *floats = yoke_malloc(count * sizeof *floats);
    if (floats == NULL) return FAIL_MEMORY(count * sizeof *floats, "a constant");
    for (size_t i = 0; i < count; i++)
        floats[i] = (float)fmin(fmax(value->elements[i], -YOKE_ONNX_INFINITY), YOKE_ONNX_INFINITY);
    value->node = yoke_constant(call->model, yoke_onnx_natural(&value->sizes), floats);
    yoke_free(floats);
    return yoke_onnx_check(call);
}

static yoke_status parameter_node(yoke_onnx_call *call, yoke_onnx_value *value) {
    if (call->reader->parameters[value->parameter].layer != NULL)
        TRY(yoke_onnx_apart(call, value, "parameter"));
    yoke_onnx_parameter *parameter = &call->reader->parameters[value->parameter];
    yoke_onnx_value plain = *value;
    if (value->transposed) {
        plain.sizes.at[0] = value->sizes.at[1];
        plain.sizes.at[1] = value->sizes.at[0];
        plain.transposed = false;
    }
    if (parameter->layer != NULL)
        return FAIL(YOKE_ERROR_ARGUMENT, "it computes with %s, which is a parameter of a layer",
                    parameter->name);
    if (parameter->node.index < 0) {
        yoke_parameter_options options = YOKE_PARAMETER_OPTIONS_INIT;
        char name[YOKE_ONNX_NAME_BYTES];
        TRY(yoke_onnx_layer_name(call, &plain, "", name));
        options.name = name;
        options.shape = yoke_onnx_natural(&plain.sizes);
        parameter->node = yoke_parameter_value(call->model, &options);
        TRY(yoke_onnx_check(call));
        TRY(yoke_onnx_own(call, call->model->tensor_count - 1, &plain, NULL));
    }
    value->node = parameter->node;
    if (value->transposed) {
        const int order[] = {1, 0};
        value->node = yoke_onnx_permuted(call, parameter->node, &plain.sizes, order);
    }
    return yoke_onnx_check(call);
}

yoke_status yoke_onnx_node(yoke_onnx_call *call, yoke_onnx_value *value, yoke_value *node) {
    if (value->node.index < 0) {
        if (value->kind == YOKE_ONNX_PARAMETER &&
            call->reader->parameters[value->parameter].generated) {
            yoke_onnx_value known = *value;
            TRY(yoke_onnx_elements_of(call, value, &known.elements));
            TRY(constant_node(call, &known));
            value->node = known.node;
        } else if (value->kind == YOKE_ONNX_PARAMETER) {
            TRY(parameter_node(call, value));
        } else if (value->kind == YOKE_ONNX_CONSTANT) {
            TRY(constant_node(call, value));
        }
    }
    *node = value->node;
    return YOKE_OK;
}

yoke_status yoke_onnx_as(yoke_onnx_call *call, yoke_onnx_value *value, yoke_shape shape,
                         yoke_value *node) {
    TRY(yoke_onnx_node(call, value, node));
    *node = yoke_onnx_reshape(call, *node, shape);
    return yoke_onnx_check(call);
}

yoke_status yoke_onnx_around(yoke_onnx_call *call, yoke_onnx_value *value, int axis,
                             yoke_value *node) {
    yoke_onnx_sizes row = yoke_onnx_row(&value->sizes, value->batch);
    TRY(yoke_onnx_node(call, value, node));
    *node = yoke_onnx_image(call, *node, yoke_onnx_count(&row, 0, axis), (size_t)row.at[axis],
                            yoke_onnx_count(&row, axis + 1, row.rank));
    return yoke_onnx_check(call);
}

/* Permutations. */

/* [count, left, right] as [count, right, left]. */
static yoke_value exchange(yoke_onnx_call *call, yoke_value node, size_t count, size_t left,
                           size_t right) {
    yoke_shape shape = yoke_model_value_shape(call->model, node);
    if (count == 1 && !shape.flat && !shape.sequence && (size_t)shape.channels == left)
        return yoke_sequence(call->model, node); /* an image's pixels become positions */
    node = yoke_onnx_image(call, node, count, left, right);
    return yoke_transpose(call->model, node, YOKE_AXIS_HEIGHT, YOKE_AXIS_WIDTH);
}

/* Axes that stay neighbours move as one: lengths of the groups in the order of the input, and
 * places[i], which of them is i-th in the output. */
typedef struct groups {
    int count;
    size_t lengths[YOKE_ONNX_RANK + 2];
    int current[YOKE_ONNX_RANK + 2], wanted[YOKE_ONNX_RANK + 2];
} groups;

static bool all_ones(const yoke_onnx_sizes *row, int begin, int end) {
    for (int i = begin; i < end; i++)
        if (row->at[i] != 1) return false;
    return true;
}

static groups group_axes(const yoke_onnx_sizes *row, const int *order) {
    groups found = {0};
    int firsts[YOKE_ONNX_RANK + 2] = {0}, last = -1;
    for (int i = 0; i < row->rank; i++) {
        int axis = order[i];
        if (row->at[axis] == 1) continue;
        bool joins = found.count > 0 && axis > last && all_ones(row, last + 1, axis);
        if (!joins) {
            firsts[found.count] = axis;
            found.lengths[found.count++] = 1;
        }
        found.lengths[found.count - 1] *= (size_t)row->at[axis];
        last = axis;
    }
    /* Rename groups by their order in the input. */
    size_t lengths[YOKE_ONNX_RANK + 2] = {0};
    for (int i = 0; i < found.count; i++) {
        int rank = 0;
        for (int k = 0; k < found.count; k++)
            rank += firsts[k] < firsts[i];
        found.wanted[i] = rank;
        found.current[i] = i;
        lengths[rank] = found.lengths[i];
    }
    memcpy(found.lengths, lengths, sizeof lengths);
    return found;
}

static size_t length_between(const groups *g, int begin, int end) {
    size_t length = 1;
    for (int i = begin; i < end; i++)
        length *= g->lengths[g->current[i]];
    return length;
}

/* Moves the groups at .. end - 1 to `place`. */
static yoke_value bring(yoke_onnx_call *call, yoke_value node, groups *g, int place, int at,
                        int end) {
    size_t first = length_between(g, 0, place), left = length_between(g, place, at);
    size_t right = length_between(g, at, end), last = length_between(g, end, g->count);
    if (end == g->count) {
        node = exchange(call, node, first, left, right);
    } else if (place == 0) {
        node = yoke_onnx_image(call, node, left, right, last);
        node = yoke_transpose(call->model, node, YOKE_AXIS_CHANNELS, YOKE_AXIS_HEIGHT);
    } else {
        node = exchange(call, node, first, left, right * last);
        node = exchange(call, node, first * right, last, left);
    }
    int moved[YOKE_ONNX_RANK + 2], count = 0;
    for (int i = at; i < end; i++)
        moved[count++] = g->current[i];
    for (int i = place; i < at; i++)
        moved[count++] = g->current[i];
    memcpy(g->current + place, moved, (size_t)count * sizeof *moved);
    return node;
}

yoke_value yoke_onnx_permuted(yoke_onnx_call *call, yoke_value node, const yoke_onnx_sizes *row,
                              const int *order) {
    groups g = group_axes(row, order);
    for (int place = 0; place < g.count; place++) {
        int at = place;
        while (g.current[at] != g.wanted[place])
            at++;
        if (at == place) continue;
        int end = at + 1;
        while (end < g.count && g.current[end] == g.wanted[place + end - at])
            end++;
        node = bring(call, node, &g, place, at, end);
    }
    return node;
}

/* Broadcasting. */

yoke_status yoke_onnx_one_row(yoke_onnx_call *call, yoke_onnx_value *value,
                              const yoke_onnx_sizes *sizes, yoke_onnx_batch batch,
                              yoke_onnx_value *row) {
    *row = *value;
    int at = batch.at - (sizes->rank - value->sizes.rank);
    if (batch.at < 0 || value->batch.at >= 0 || at < 0 || value->sizes.at[at] == 1) return YOKE_OK;
    if (!yoke_onnx_known(call, value))
        return FAIL(YOKE_ERROR_ARGUMENT, "a parameter has %lld elements along the batch",
                    (long long)value->sizes.at[at]);
    const double *all;
    double *one;
    TRY(yoke_onnx_elements_of(call, value, &all));
    yoke_onnx_sizes left = value->sizes;
    left.at[at] = batch.before * batch.after;
    TRY(yoke_onnx_constant(call->reader, &left, row, &one));
    row->whole = value->whole;
    size_t ahead = yoke_onnx_count(&left, 0, at),
           behind = yoke_onnx_count(&left, at + 1, left.rank);
    size_t before = (size_t)batch.before, after = (size_t)batch.after * behind;
    size_t rows = (size_t)call->reader->rows;
    for (size_t i = 0; i < ahead * before * rows * after; i++) {
        size_t to = i / after / rows * after + i % after;
        if (i / after % rows == 0)
            one[to] = all[i];
        else if (one[to] != all[i])
            return FAIL(YOKE_ERROR_ARGUMENT, "a constant differs from row to row of the batch");
    }
    row->batch = yoke_onnx_no_batch();
    row->sizes = left;
    return YOKE_OK;
}

/* The sizes along each axis of the row of the result; 1 where the value repeats. */
static yoke_onnx_sizes own_sizes(const yoke_onnx_value *value, const yoke_onnx_sizes *sizes,
                                 yoke_onnx_batch batch) {
    yoke_onnx_sizes own = {0};
    for (int i = 0; i < sizes->rank; i++) {
        int k = i - (sizes->rank - value->sizes.rank);
        int64_t size = k < 0 ? 1 : value->sizes.at[k];
        if (i != batch.at) {
            own.at[own.rank++] = size;
            continue;
        }
        bool repeats = size == 1 && value->batch.at < 0;
        if (batch.before > 1) own.at[own.rank++] = repeats ? 1 : batch.before;
        if (batch.after > 1) own.at[own.rank++] = repeats ? 1 : batch.after;
    }
    return own;
}

/* The node with every repeated element written out. */
static yoke_value expand(yoke_onnx_call *call, yoke_value node, yoke_onnx_sizes own,
                         const yoke_onnx_sizes *row) {
    for (int axis = 0; axis < row->rank; axis++) {
        if (own.at[axis] == row->at[axis]) continue;
        size_t length = (size_t)row->at[axis];
        if (yoke_onnx_spend(call->reader, length) != YOKE_OK)
            return yoke_builder_result(call->model, YOKE_ERROR_ARGUMENT);
        float *zeros = yoke_calloc(length, sizeof *zeros);
        if (zeros == NULL || length > INT_MAX) {
            yoke_free(zeros);
            return yoke_builder_result(call->model, FAIL_MEMORY(length * sizeof *zeros, "zeros"));
        }
        yoke_value line = yoke_constant(call->model, yoke_shape_image(1, (int)length, 1), zeros);
        yoke_free(zeros);
        node = yoke_onnx_image(call, node, yoke_onnx_count(&own, 0, axis), 1,
                               yoke_onnx_count(&own, axis + 1, own.rank));
        node = yoke_add(call->model, node, line);
        own.at[axis] = row->at[axis];
    }
    return node;
}

/* Neighbouring axes along which all values repeat alike become one, if that leaves three. */
static bool merge_axes(yoke_onnx_sizes *row, yoke_onnx_sizes *own, int count) {
    yoke_onnx_sizes merged = {0}, parts[YOKE_ONNX_SIDES] = {{0}};
    int last = -1;
    for (int axis = 0; axis < row->rank; axis++) {
        if (row->at[axis] == 1) continue;
        bool joins = last >= 0;
        for (int k = 0; k < count && joins; k++)
            joins = (own[k].at[axis] == row->at[axis]) == (own[k].at[last] == row->at[last]);
        if (!joins) {
            for (int k = 0; k < count; k++)
                parts[k].at[merged.rank] = 1;
            merged.at[merged.rank++] = 1;
        }
        merged.at[merged.rank - 1] *= row->at[axis];
        for (int k = 0; k < count; k++)
            parts[k].at[merged.rank - 1] *= own[k].at[axis];
        last = axis;
    }
    if (merged.rank > 3) return false;
    *row = merged;
    for (int k = 0; k < count; k++) {
        own[k] = parts[k];
        own[k].rank = merged.rank;
    }
    return true;
}

static yoke_status common_sizes(yoke_onnx_value *const *values, int count, yoke_onnx_sides *sides) {
    sides->sizes = values[0]->sizes;
    sides->batch = yoke_onnx_no_batch();
    for (int k = 1; k < count; k++)
        TRY(yoke_onnx_broadcast_sizes(&sides->sizes, &values[k]->sizes, &sides->sizes));
    for (int k = 0; k < count; k++) {
        yoke_onnx_batch batch = values[k]->batch;
        if (batch.at < 0) continue;
        int own = batch.at;
        batch.at += sides->sizes.rank - values[k]->sizes.rank;
        bool differs = sides->batch.at >= 0 &&
                       (batch.at != sides->batch.at || batch.before != sides->batch.before ||
                        batch.after != sides->batch.after);
        if (differs || sides->sizes.at[batch.at] != values[k]->sizes.at[own])
            return FAIL(YOKE_ERROR_ARGUMENT, "two tensors have their batches in different places");
        sides->batch = batch;
    }
    return YOKE_OK;
}

yoke_status yoke_onnx_broadcast(yoke_onnx_call *call, yoke_onnx_value *const *values, int count,
                                yoke_onnx_sides *sides) {
    yoke_onnx_sizes own[YOKE_ONNX_SIDES];
    TRY(common_sizes(values, count, sides));
    for (int k = 0; k < count; k++) {
        yoke_onnx_value one;
        TRY(yoke_onnx_one_row(call, values[k], &sides->sizes, sides->batch, &one));
        TRY(yoke_onnx_node(call, &one, &sides->nodes[k]));
        if (one.elements == values[k]->elements) values[k]->node = one.node;
        own[k] = own_sizes(values[k], &sides->sizes, sides->batch);
    }
    yoke_onnx_sizes row = yoke_onnx_row(&sides->sizes, sides->batch);
    if (row.rank > 3 && !merge_axes(&row, own, count)) {
        for (int k = 0; k < count; k++) {
            sides->nodes[k] = expand(call, sides->nodes[k], own[k], &row);
            own[k] = (yoke_onnx_sizes){1, {(int64_t)yoke_onnx_whole(&row)}};
        }
    }
    for (int k = 0; k < count; k++)
        sides->nodes[k] = yoke_onnx_reshape(call, sides->nodes[k], yoke_onnx_natural(&own[k]));
    return yoke_onnx_check(call);
}

yoke_status yoke_onnx_expanded(yoke_onnx_call *call, yoke_onnx_value *value,
                               const yoke_onnx_sizes *sizes, yoke_onnx_batch batch,
                               yoke_value *node) {
    yoke_onnx_value one;
    TRY(yoke_onnx_one_row(call, value, sizes, batch, &one));
    TRY(yoke_onnx_node(call, &one, node));
    yoke_onnx_sizes row = yoke_onnx_row(sizes, batch);
    *node = expand(call, *node, own_sizes(value, sizes, batch), &row);
    *node = yoke_onnx_reshape(call, *node, yoke_onnx_natural(&row));
    return yoke_onnx_check(call);
}
