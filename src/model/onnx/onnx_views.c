/* SPDX-License-Identifier: Apache-2.0 */
/* Operators that move elements: shapes, parts, joins, padding, choices by constant indices. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "model/onnx/onnx_reader.h"
#include "yoke/convolution.h"

static yoke_status finish(yoke_onnx_call *call, int index, const yoke_onnx_value *value) {
    TRY(yoke_onnx_check(call));
    if (index < call->out_count && call->out[index] != NULL) *call->out[index] = *value;
    return YOKE_OK;
}

/* Shapes. */

yoke_status yoke_onnx_reshape_value(yoke_onnx_call *call, yoke_onnx_value *value,
                                    const yoke_onnx_sizes *sizes, yoke_onnx_value *result) {
    TRY(yoke_onnx_sizes_check(sizes));
    if (yoke_onnx_whole(sizes) != yoke_onnx_whole(&value->sizes))
        return FAIL(YOKE_ERROR_DATA, "it makes %zu elements of %zu", yoke_onnx_whole(sizes),
                    yoke_onnx_whole(&value->sizes));
    yoke_onnx_batch batch;
    TRY(yoke_onnx_reshaped_batch(call->reader, value, sizes, &batch));
    if (value->kind == YOKE_ONNX_CONSTANT) {
        *result = *value;
        result->sizes = *sizes;
        result->node.index = YOKE_NONE;
        return YOKE_OK;
    }
    yoke_value node;
    TRY(yoke_onnx_node(call, value, &node));
    *result = (yoke_onnx_value){.kind = YOKE_ONNX_COMPUTED,
                                .sizes = *sizes,
                                .batch = batch,
                                .whole = value->whole,
                                .raw_input = value->raw_input,
                                .node = node};
    return YOKE_OK;
}

static yoke_status reshaped(yoke_onnx_call *call, const yoke_onnx_sizes *sizes) {
    yoke_onnx_value made;
    if (yoke_onnx_same(sizes, &call->in[0]->sizes)) return finish(call, 0, call->in[0]);
    TRY(yoke_onnx_reshape_value(call, call->in[0], sizes, &made));
    return finish(call, 0, &made);
}

static yoke_status reshape(yoke_onnx_call *call) {
    yoke_onnx_sizes sizes;
    TRY(yoke_onnx_need(call, 2));
    TRY(yoke_onnx_numbers(call, 1, "sizes", &sizes));
    bool zero = yoke_onnx_int(call, "allowzero", 0) != 0;
    const yoke_onnx_sizes *from = &call->in[0]->sizes;
    int open = -1;
    size_t known = 1;
    for (int i = 0; i < sizes.rank; i++) {
        if (sizes.at[i] == 0 && !zero && i < from->rank) sizes.at[i] = from->at[i];
        if (sizes.at[i] == -1) {
            open = i;
            sizes.at[i] = 1;
        }
    }
    TRY(yoke_onnx_sizes_check(&sizes));
    known = yoke_onnx_whole(&sizes);
    if (open >= 0) sizes.at[open] = known > 0 ? (int64_t)(yoke_onnx_whole(from) / known) : 0;
    return reshaped(call, &sizes);
}

static yoke_status flatten(yoke_onnx_call *call) {
    TRY(yoke_onnx_need(call, 1));
    const yoke_onnx_sizes *from = &call->in[0]->sizes;
    int64_t axis = yoke_onnx_int(call, "axis", 1);
    if (axis < 0) axis += from->rank;
    if (axis < 0 || axis > from->rank)
        return FAIL(YOKE_ERROR_DATA, "axis %lld of a tensor of %d dimensions", (long long)axis,
                    from->rank);
    const yoke_onnx_sizes sizes = {2,
                                   {(int64_t)yoke_onnx_count(from, 0, (int)axis),
                                    (int64_t)yoke_onnx_count(from, (int)axis, from->rank)}};
    return reshaped(call, &sizes);
}

/* Axes of an input or an attribute as bits; with none, 0. */
static yoke_status axes_of(yoke_onnx_call *call, int rank, unsigned *bits) {
    yoke_onnx_sizes axes;
    *bits = 0;
    TRY(yoke_onnx_numbers(call, 1, "axes", &axes));
    for (int i = 0; i < axes.rank; i++) {
        int axis;
        TRY(yoke_onnx_axis(axes.at[i], rank, &axis));
        *bits |= 1u << axis;
    }
    return YOKE_OK;
}

static yoke_status squeeze(yoke_onnx_call *call) {
    unsigned axes;
    TRY(yoke_onnx_need(call, 1));
    const yoke_onnx_sizes *from = &call->in[0]->sizes;
    TRY(axes_of(call, from->rank, &axes));
    yoke_onnx_sizes sizes = {0};
    for (int i = 0; i < from->rank; i++) {
        bool goes = axes != 0 ? (axes >> i & 1) != 0 : from->at[i] == 1;
        if (goes && from->at[i] != 1)
            return FAIL(YOKE_ERROR_DATA, "dimension %d has %lld elements, not one", i,
                        (long long)from->at[i]);
        if (!goes) sizes.at[sizes.rank++] = from->at[i];
    }
    return reshaped(call, &sizes);
}

static yoke_status unsqueeze(yoke_onnx_call *call) {
    yoke_onnx_sizes axes;
    unsigned bits;
    TRY(yoke_onnx_need(call, 1));
    TRY(yoke_onnx_numbers(call, 1, "axes", &axes));
    const yoke_onnx_sizes *from = &call->in[0]->sizes;
    int rank = from->rank + (axes.rank > 0 ? axes.rank : 0), next = 0;
    if (rank > YOKE_ONNX_RANK) return FAIL(YOKE_ERROR_ARGUMENT, "a tensor of %d dimensions", rank);
    TRY(axes_of(call, rank, &bits));
    yoke_onnx_sizes sizes = {.rank = rank};
    for (int i = 0; i < rank; i++)
        sizes.at[i] = bits >> i & 1 || next >= from->rank ? 1 : from->at[next++];
    return reshaped(call, &sizes);
}

/* Permutations. */

yoke_status yoke_onnx_permute_value(yoke_onnx_call *call, yoke_onnx_value *value, const int *order,
                                    yoke_onnx_value *result) {
    yoke_onnx_sizes row = yoke_onnx_row(&value->sizes, value->batch);
    yoke_onnx_value made = *value;
    int axes[YOKE_ONNX_RANK + 2], count = 0;
    for (int i = 0; i < value->sizes.rank; i++) {
        made.sizes.at[i] = value->sizes.at[order[i]];
        if (order[i] == value->batch.at) {
            made.batch.at = i;
            int inside = value->batch.at;
            if (value->batch.before > 1) axes[count++] = inside++;
            if (value->batch.after > 1) axes[count++] = inside;
            continue;
        }
        TRY(yoke_onnx_row_axis(value, order[i], &axes[count]));
        count++;
    }
    if (value->kind == YOKE_ONNX_PARAMETER && value->sizes.rank == 2 && order[0] == 1) {
        made.transposed = !value->transposed;
        made.node.index = YOKE_NONE;
        *result = made;
        return YOKE_OK;
    }
    yoke_value node;
    TRY(yoke_onnx_node(call, value, &node));
    made.kind = YOKE_ONNX_COMPUTED;
    made.elements = NULL;
    made.raw_input = false;
    made.node = yoke_onnx_permuted(call, node, &row, axes);
    *result = made;
    return yoke_onnx_check(call);
}

static yoke_status transpose(yoke_onnx_call *call) {
    yoke_onnx_sizes given;
    yoke_onnx_value made;
    int order[YOKE_ONNX_RANK + 2];
    TRY(yoke_onnx_need(call, 1));
    TRY(yoke_onnx_ints(call, "perm", &given));
    int rank = call->in[0]->sizes.rank;
    unsigned seen = 0;
    if (given.rank >= 0 && given.rank != rank)
        return FAIL(YOKE_ERROR_DATA, "an order of %d axes for %d dimensions", given.rank, rank);
    for (int i = 0; i < rank; i++) {
        order[i] = rank - 1 - i;
        if (given.rank >= 0) TRY(yoke_onnx_axis(given.at[i], rank, &order[i]));
        if (seen >> order[i] & 1) return FAIL(YOKE_ERROR_DATA, "an order that names an axis twice");
        seen |= 1u << order[i];
    }
    TRY(yoke_onnx_permute_value(call, call->in[0], order, &made));
    return finish(call, 0, &made);
}

/* Parts. */

static const yoke_axis names[3][3] = {{YOKE_AXIS_CHANNELS},
                                      {YOKE_AXIS_HEIGHT, YOKE_AXIS_CHANNELS},
                                      {YOKE_AXIS_CHANNELS, YOKE_AXIS_HEIGHT, YOKE_AXIS_WIDTH}};

/* The node of a value where an axis of its row is one of the model's. */
static yoke_status along(yoke_onnx_call *call, yoke_onnx_value *value, int axis, yoke_value *node,
                         yoke_axis *name) {
    yoke_onnx_sizes row = yoke_onnx_row(&value->sizes, value->batch);
    *name = YOKE_AXIS_HEIGHT;
    if (row.rank < 1 || row.rank > 3) return yoke_onnx_around(call, value, axis, node);
    *name = names[row.rank - 1][axis];
    return yoke_onnx_as(call, value, yoke_onnx_natural(&row), node);
}

yoke_status yoke_onnx_part(yoke_onnx_call *call, yoke_onnx_value *value, int dim, int64_t begin,
                           int64_t end, double fill, yoke_onnx_value *result) {
    int axis;
    yoke_axis name;
    yoke_value node;
    if (begin == 0 && end == value->sizes.at[dim]) {
        *result = *value;
        return YOKE_OK;
    }
    if (end <= begin || end - begin > INT_MAX || begin < INT_MIN || end > INT_MAX)
        return FAIL(YOKE_ERROR_ARGUMENT, "places %lld to %lld of a dimension", (long long)begin,
                    (long long)end - 1);
    TRY(yoke_onnx_row_axis(value, dim, &axis));
    TRY(along(call, value, axis, &node, &name));
    node = yoke_slice(call->model, node, name, (int)begin, (int)end, fill);
    yoke_onnx_value made = {.kind = YOKE_ONNX_COMPUTED,
                            .sizes = value->sizes,
                            .batch = value->batch,
                            .whole = value->whole,
                            .node = node};
    made.sizes.at[dim] = end - begin;
    *result = made;
    return yoke_onnx_check(call);
}

/* Every step-th of places begin to end - 1. */
static yoke_status every(yoke_onnx_call *call, yoke_onnx_value *value, int dim, int64_t begin,
                         int64_t count, int64_t step, yoke_onnx_value *result) {
    yoke_onnx_value wide;
    int axis;
    yoke_value node;
    TRY(yoke_onnx_part(call, value, dim, begin, begin + count * step, 0, &wide));
    TRY(yoke_onnx_row_axis(&wide, dim, &axis));
    yoke_onnx_sizes row = yoke_onnx_row(&wide.sizes, wide.batch);
    size_t before = yoke_onnx_count(&row, 0, axis),
           behind = yoke_onnx_count(&row, axis + 1, row.rank);
    TRY(yoke_onnx_node(call, &wide, &node));
    node = yoke_onnx_image(call, node, before * (size_t)count, (size_t)step, behind);
    node = yoke_slice(call->model, node, YOKE_AXIS_HEIGHT, 0, 1, 0);
    *result = wide;
    result->kind = YOKE_ONNX_COMPUTED;
    result->sizes.at[dim] = count;
    result->node = node;
    return yoke_onnx_check(call);
}

/* Python's slice of a dimension: the first place and how many. */
static yoke_status range_of(int64_t length, int64_t begin, int64_t end, int64_t step,
                            int64_t *first, int64_t *count) {
    if (step < 1) return FAIL(YOKE_ERROR_ARGUMENT, "a step of %lld", (long long)step);
    if (begin < 0) begin += length;
    if (end < 0) end += length;
    begin = begin < 0 ? 0 : begin > length ? length : begin;
    end = end < 0 ? 0 : end > length ? length : end;
    *first = begin;
    *count = end > begin ? (end - begin - 1) / step + 1 : 0;
    if (*count == 0) return FAIL(YOKE_ERROR_ARGUMENT, "a part without elements");
    return YOKE_OK;
}

static yoke_status slice(yoke_onnx_call *call) {
    yoke_onnx_sizes begins, ends, axes = {.rank = -1}, steps = {.rank = -1};
    TRY(yoke_onnx_need(call, 3));
    TRY(yoke_onnx_numbers(call, 1, "begins", &begins));
    TRY(yoke_onnx_numbers(call, 2, "ends", &ends));
    TRY(yoke_onnx_numbers(call, 3, "axes", &axes));
    TRY(yoke_onnx_numbers(call, 4, "steps", &steps));
    yoke_onnx_value value = *call->in[0];
    for (int i = 0; i < begins.rank && i < ends.rank; i++) {
        int dim;
        int64_t first = 0, count = 0, step = i < steps.rank ? steps.at[i] : 1;
        TRY(yoke_onnx_axis(i < axes.rank ? axes.at[i] : i, value.sizes.rank, &dim));
        int64_t length = value.sizes.at[dim];
        if (step > length) step = length; /* the first place alone */
        TRY(range_of(length, begins.at[i], ends.at[i], step, &first, &count));
        if (first == 0 && count == length && step == 1) continue;
        if (step == 1)
            TRY(yoke_onnx_part(call, &value, dim, first, first + count, 0, &value));
        else
            TRY(every(call, &value, dim, first, count, step, &value));
    }
    return finish(call, 0, &value);
}

static yoke_status split(yoke_onnx_call *call) {
    yoke_onnx_sizes sizes;
    int dim;
    TRY(yoke_onnx_need(call, 1));
    TRY(yoke_onnx_axis(yoke_onnx_int(call, "axis", 0), call->in[0]->sizes.rank, &dim));
    TRY(yoke_onnx_numbers(call, 1, "split", &sizes));
    int64_t length = call->in[0]->sizes.at[dim], begin = 0;
    int parts = call->out_count;
    int64_t each = parts > 0 ? (length + parts - 1) / parts : 0;
    for (int k = 0; k < parts; k++) {
        int64_t size = k < sizes.rank ? sizes.at[k] : each < length - begin ? each : length - begin;
        if (sizes.rank >= 0 && k >= sizes.rank)
            return FAIL(YOKE_ERROR_DATA, "it has %d outputs and %d sizes", parts, sizes.rank);
        if (size < 1 || size > length - begin)
            return FAIL(YOKE_ERROR_DATA, "part %d has %lld of %lld elements", k, (long long)size,
                        (long long)length);
        yoke_onnx_value made;
        if (call->out[k] != NULL) {
            TRY(yoke_onnx_part(call, call->in[0], dim, begin, begin + size, 0, &made));
            TRY(finish(call, k, &made));
        }
        begin += size;
    }
    return YOKE_OK;
}

/* Joins. */

static yoke_status join(yoke_onnx_call *call, yoke_onnx_value *const *values, int count, int dim,
                        yoke_onnx_value *result) {
    yoke_onnx_value made = *values[0];
    for (int i = 0; i < count; i++)
        if (values[i]->batch.at >= 0) made.batch = values[i]->batch;
    made.sizes.at[dim] = 0;
    yoke_value joined = {YOKE_NONE};
    for (int i = 0; i < count; i++) {
        yoke_onnx_value one = *values[i];
        int axis;
        yoke_axis name;
        yoke_value node;
        if (one.sizes.rank != made.sizes.rank)
            return FAIL(YOKE_ERROR_DATA, "input %d has %d dimensions, input 0 %d", i,
                        one.sizes.rank, made.sizes.rank);
        if (one.batch.at < 0 && made.batch.at >= 0) {
            TRY(yoke_onnx_expanded(call, values[i], &one.sizes, made.batch, &one.node));
            one.kind = YOKE_ONNX_COMPUTED;
            one.batch = made.batch;
        }
        TRY(yoke_onnx_row_axis(&one, dim, &axis));
        TRY(along(call, &one, axis, &node, &name));
        made.sizes.at[dim] += one.sizes.at[dim];
        joined = i == 0 ? node : yoke_concat_along(call->model, joined, node, name);
        TRY(yoke_onnx_check(call));
    }
    made.kind = YOKE_ONNX_COMPUTED;
    made.elements = NULL;
    made.raw_input = false;
    made.node = joined;
    *result = made;
    return YOKE_OK;
}

static yoke_status concat(yoke_onnx_call *call) {
    int dim;
    yoke_onnx_value made;
    TRY(yoke_onnx_need(call, call->in_count > 0 ? call->in_count : 1));
    TRY(yoke_onnx_axis(yoke_onnx_int(call, "axis", 0), call->in[0]->sizes.rank, &dim));
    TRY(join(call, call->in, call->in_count, dim, &made));
    return finish(call, 0, &made);
}

static yoke_status expand(yoke_onnx_call *call) {
    yoke_onnx_sizes sizes;
    TRY(yoke_onnx_need(call, 2));
    TRY(yoke_onnx_numbers(call, 1, "sizes", &sizes));
    yoke_onnx_value made = *call->in[0];
    TRY(yoke_onnx_broadcast_sizes(&call->in[0]->sizes, &sizes, &made.sizes));
    if (yoke_onnx_same(&made.sizes, &call->in[0]->sizes)) return finish(call, 0, call->in[0]);
    int lead = made.sizes.rank - call->in[0]->sizes.rank;
    if (made.batch.at >= 0) made.batch.at += lead;
    for (int i = 0; i < made.sizes.rank && made.batch.at < 0; i++) {
        int64_t own = i < lead ? 1 : call->in[0]->sizes.at[i - lead];
        if (made.sizes.at[i] == call->reader->rows && own == 1 && call->reader->rows > 1)
            made.batch = (yoke_onnx_batch){i, 1, 1}; /* the same row for every row of the batch */
    }
    TRY(yoke_onnx_expanded(call, call->in[0], &made.sizes, made.batch, &made.node));
    made.kind = YOKE_ONNX_COMPUTED;
    made.elements = NULL;
    return finish(call, 0, &made);
}

static yoke_status tile(yoke_onnx_call *call) {
    yoke_onnx_sizes times;
    TRY(yoke_onnx_need(call, 2));
    TRY(yoke_onnx_numbers(call, 1, "repeats", &times));
    yoke_onnx_value value = *call->in[0];
    if (times.rank != value.sizes.rank)
        return FAIL(YOKE_ERROR_DATA, "%d repeats for %d dimensions", times.rank, value.sizes.rank);
    for (int dim = 0; dim < times.rank; dim++) {
        if (times.at[dim] == 1) continue;
        if (times.at[dim] < 1 || times.at[dim] > 64)
            return FAIL(YOKE_ERROR_ARGUMENT, "%lld repeats, Yoke takes 1 to 64",
                        (long long)times.at[dim]);
        yoke_onnx_value *same[64];
        for (int k = 0; k < times.at[dim]; k++)
            same[k] = &value;
        yoke_onnx_value made;
        TRY(join(call, same, (int)times.at[dim], dim, &made));
        value = made;
    }
    return finish(call, 0, &value);
}

static yoke_status pad(yoke_onnx_call *call) {
    yoke_onnx_sizes axes = {.rank = -1};
    char text[32];
    double fill = 0;
    TRY(yoke_onnx_need(call, 2));
    if (strcmp(yoke_onnx_text(call, "mode", "constant", text), "constant") != 0)
        return FAIL(YOKE_ERROR_ARGUMENT, "its mode is %s, Yoke has constant only",
                    yoke_onnx_text(call, "mode", "constant", text));
    if (yoke_onnx_has(call, 2)) TRY(yoke_onnx_number(call, call->in[2], &fill));
    yoke_onnx_value value = *call->in[0];
    const double *numbers;
    if (!yoke_onnx_known(call, call->in[1]))
        return FAIL(YOKE_ERROR_ARGUMENT, "its widths are computed");
    TRY(yoke_onnx_elements_of(call, call->in[1], &numbers));
    TRY(yoke_onnx_numbers(call, 3, "axes", &axes));
    int count = axes.rank >= 0 ? axes.rank : value.sizes.rank;
    if (yoke_onnx_whole(&call->in[1]->sizes) != (size_t)count * 2)
        return FAIL(YOKE_ERROR_DATA, "%zu widths for %d dimensions",
                    yoke_onnx_whole(&call->in[1]->sizes), count);
    for (int i = 0; i < count; i++) {
        int dim = i;
        if (axes.rank >= 0) TRY(yoke_onnx_axis(axes.at[i], value.sizes.rank, &dim));
        double before = numbers[i], after = numbers[count + i];
        if (!(before >= -1e9 && before <= 1e9 && after >= -1e9 && after <= 1e9))
            return FAIL(YOKE_ERROR_DATA, "widths of %g and %g", before, after);
        if (before != 0 || after != 0)
            TRY(yoke_onnx_part(call, &value, dim, -(int64_t)before,
                               value.sizes.at[dim] + (int64_t)after, fill, &value));
    }
    return finish(call, 0, &value);
}

/* Choices by constant indices. */

/* Rows [ids] of a matrix [length, width], by a product with ones. */
static yoke_status choose(yoke_onnx_call *call, yoke_value table, int64_t length, const double *ids,
                          size_t count, yoke_value *node) {
    if (count == 0 || (size_t)length > YOKE_ONNX_ELEMENTS / count)
        return FAIL(YOKE_ERROR_ARGUMENT, "%zu indices of %lld places", count, (long long)length);
    TRY(yoke_onnx_spend(call->reader, count * (size_t)length));
    float *ones = yoke_calloc(count * (size_t)length, sizeof *ones);
    if (ones == NULL) return FAIL_MEMORY(count * (size_t)length * sizeof *ones, "indices");
    for (size_t i = 0; i < count; i++)
        ones[i * (size_t)length + (size_t)(ids[i] < 0 ? ids[i] + (double)length : ids[i])] = 1;
    yoke_value chosen =
        yoke_constant(call->model, yoke_shape_image(1, (int)count, (int)length), ones);
    yoke_free(ones);
    *node = yoke_matmul(call->model, chosen, table, false, false);
    return yoke_onnx_check(call);
}

static yoke_status chosen_part(yoke_onnx_call *call, yoke_onnx_value *data, int dim,
                               const double *ids, size_t count, yoke_onnx_value *result) {
    int64_t length = data->sizes.at[dim];
    int64_t first = (int64_t)(ids[0] < 0 ? ids[0] + (double)length : ids[0]);
    bool counts_up = true;
    for (size_t i = 1; i < count && counts_up; i++)
        counts_up = ids[i] == ids[0] + (double)i;
    if (counts_up) return yoke_onnx_part(call, data, dim, first, first + (int64_t)count, 0, result);
    int axis;
    yoke_value node;
    TRY(yoke_onnx_row_axis(data, dim, &axis));
    yoke_onnx_sizes row = yoke_onnx_row(&data->sizes, data->batch);
    size_t before = yoke_onnx_count(&row, 0, axis),
           behind = yoke_onnx_count(&row, axis + 1, row.rank);
    TRY(yoke_onnx_around(call, data, axis, &node));
    if (before > 1) { /* the places come first, so that one product takes them all */
        node = yoke_transpose(call->model, node, YOKE_AXIS_CHANNELS, YOKE_AXIS_HEIGHT);
        node = yoke_onnx_image(call, node, 1, (size_t)length, before * behind);
    }
    TRY(choose(call, node, length, ids, count, &node));
    if (before > 1) {
        node = yoke_onnx_image(call, node, count, before, behind);
        node = yoke_transpose(call->model, node, YOKE_AXIS_CHANNELS, YOKE_AXIS_HEIGHT);
    }
    *result = (yoke_onnx_value){
        .kind = YOKE_ONNX_COMPUTED, .sizes = data->sizes, .batch = data->batch, .node = node};
    result->sizes.at[dim] = (int64_t)count;
    return yoke_onnx_check(call);
}

/* Gather of a computed tensor; that of a table is an embedding, in onnx_products.c. */
yoke_status yoke_onnx_gather_part(yoke_onnx_call *call) {
    int dim;
    const double *ids;
    yoke_onnx_value made, *data = call->in[0];
    TRY(yoke_onnx_need(call, 2));
    TRY(yoke_onnx_axis(yoke_onnx_int(call, "axis", 0), data->sizes.rank, &dim));
    if (!yoke_onnx_known(call, call->in[1]))
        return FAIL(YOKE_ERROR_ARGUMENT, "its indices are computed, and its data is no table");
    yoke_onnx_value chosen = *call->in[1];
    if (data->batch.at < 0 && chosen.sizes.rank > 1 && chosen.sizes.at[0] == call->reader->rows)
        TRY(yoke_onnx_one_row(call, call->in[1], &call->in[1]->sizes, (yoke_onnx_batch){0, 1, 1},
                              &chosen)); /* ids of positions, for every row */
    TRY(yoke_onnx_elements_of(call, &chosen, &ids));
    const yoke_onnx_sizes places = chosen.sizes;
    size_t count = yoke_onnx_whole(&places);
    for (size_t i = 0; i < count; i++)
        if (!(ids[i] >= -(double)data->sizes.at[dim] && ids[i] < (double)data->sizes.at[dim]))
            return FAIL(YOKE_ERROR_DATA, "index %g of %lld places", ids[i],
                        (long long)data->sizes.at[dim]);
    if (count == 0) return FAIL(YOKE_ERROR_ARGUMENT, "it chooses nothing");
    yoke_onnx_sizes sizes = {0};
    if (places.rank + data->sizes.rank - 1 > YOKE_ONNX_RANK)
        return FAIL(YOKE_ERROR_ARGUMENT, "its result has too many dimensions");
    for (int i = 0; i < data->sizes.rank; i++) {
        for (int k = 0; i == dim && k < places.rank; k++)
            sizes.at[sizes.rank++] = places.at[k];
        if (i != dim) sizes.at[sizes.rank++] = data->sizes.at[i];
    }
    if (dim == data->batch.at) { /* as_strided of what is contiguous already */
        bool whole = count == (size_t)data->sizes.at[dim];
        for (size_t i = 0; i < count && whole; i++)
            whole = ids[i] == (double)i;
        int axis;
        if (!whole) TRY(yoke_onnx_row_axis(data, dim, &axis));
        TRY(yoke_onnx_reshape_value(call, data, &sizes, &made));
        return finish(call, 0, &made);
    }
    TRY(chosen_part(call, data, dim, ids, count, &made));
    made.sizes = sizes;
    if (made.batch.at > dim) made.batch.at += places.rank - 1;
    return finish(call, 0, &made);
}

/* In PyTorch's order. */
static yoke_status depth_to_space(yoke_onnx_call *call) {
    char text[32];
    yoke_value node;
    TRY(yoke_onnx_need(call, 1));
    yoke_onnx_sizes sizes = call->in[0]->sizes;
    int64_t factor = yoke_onnx_int(call, "blocksize", 0);
    if (sizes.rank != 4 || call->in[0]->batch.at != 0 || factor < 1 || factor > 1024)
        return FAIL(YOKE_ERROR_ARGUMENT, "it needs images and a block of 1 to 1024");
    if (strcmp(yoke_onnx_text(call, "mode", "DCR", text), "CRD") != 0)
        return FAIL(YOKE_ERROR_ARGUMENT, "its mode is DCR, Yoke has CRD only");
    TRY(yoke_onnx_node(call, call->in[0], &node));
    node = yoke_pixel_shuffle(call->model, node, (int)factor);
    sizes.at[1] /= factor * factor;
    sizes.at[2] *= factor;
    sizes.at[3] *= factor;
    return yoke_onnx_result(call, 0, &sizes, call->in[0]->batch, node);
}

const yoke_onnx_operator yoke_onnx_views[] = {
    {"Concat", concat, 0},
    {"DepthToSpace", depth_to_space, 0},
    {"Expand", expand, 0},
    {"Flatten", flatten, 0},
    {"Pad", pad, 0},
    {"Reshape", reshape, 0},
    {"Slice", slice, 0},
    {"Split", split, 0},
    {"Squeeze", squeeze, 0},
    {"Tile", tile, 0},
    {"Transpose", transpose, 0},
    {"Unsqueeze", unsqueeze, 0},
    {NULL, NULL, 0},
};
