/* SPDX-License-Identifier: Apache-2.0 */
/* Operators that move, choose or add up elements of constants, on the host. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/onnx/onnx_reader.h"

/* The elements of input `index`; all are known. */
static yoke_status elements_of(yoke_onnx_call *call, int index, const double **elements) {
    return yoke_onnx_elements_of(call, call->in[index], elements);
}

/* Moves: each element of the result is one of the input. */

/* The result with these sizes; steps[axis]: how far an element is from the next, first: the one at
 * the begin. */
static yoke_status moved(yoke_onnx_call *call, const yoke_onnx_sizes *sizes, const int64_t *steps,
                         int64_t first) {
    const double *x;
    double *y;
    TRY(elements_of(call, 0, &x));
    TRY(yoke_onnx_made(call, sizes, call->in[0]->whole, &y));
    size_t count = yoke_onnx_whole(sizes);
    for (size_t i = 0; i < count; i++) {
        int64_t from = first;
        size_t rest = i;
        for (int axis = sizes->rank - 1; axis >= 0; axis--) {
            from += (int64_t)(rest % (size_t)sizes->at[axis]) * steps[axis];
            rest /= (size_t)sizes->at[axis];
        }
        y[i] = x[from];
    }
    return YOKE_OK;
}

static void steps_of(const yoke_onnx_sizes *sizes, int64_t *steps) {
    for (int i = 0; i < sizes->rank; i++)
        steps[i] = (int64_t)yoke_onnx_count(sizes, i + 1, sizes->rank);
}

static yoke_status transpose(yoke_onnx_call *call) {
    yoke_onnx_sizes order, sizes = {0};
    int64_t own[YOKE_ONNX_RANK + 2], steps[YOKE_ONNX_RANK + 2];
    TRY(yoke_onnx_need(call, 1));
    const yoke_onnx_sizes *from = &call->in[0]->sizes;
    TRY(yoke_onnx_ints(call, "perm", &order));
    if (order.rank >= 0 && order.rank != from->rank) return FAIL(YOKE_ERROR_DATA, "its order");
    steps_of(from, own);
    sizes.rank = from->rank;
    unsigned seen = 0;
    for (int i = 0; i < from->rank; i++) {
        int axis = from->rank - 1 - i;
        if (order.rank >= 0) TRY(yoke_onnx_axis(order.at[i], from->rank, &axis));
        if (seen >> axis & 1) return FAIL(YOKE_ERROR_DATA, "an order that names an axis twice");
        seen |= 1u << axis;
        sizes.at[i] = from->at[axis];
        steps[i] = own[axis];
    }
    return moved(call, &sizes, steps, 0);
}

static yoke_status expand(yoke_onnx_call *call) {
    yoke_onnx_sizes given, sizes;
    int64_t own[YOKE_ONNX_RANK + 2], steps[YOKE_ONNX_RANK + 2] = {0};
    TRY(yoke_onnx_need(call, 2));
    const yoke_onnx_sizes *from = &call->in[0]->sizes;
    TRY(yoke_onnx_listed(call, 1, &given));
    TRY(yoke_onnx_broadcast_sizes(from, &given, &sizes));
    steps_of(from, own);
    for (int i = 0; i < from->rank; i++)
        steps[i + sizes.rank - from->rank] = from->at[i] > 1 ? own[i] : 0;
    return moved(call, &sizes, steps, 0);
}

/* A dimension from `begin` to `end` by `step`, as Python. */
static int64_t slice_dimension(int64_t length, int64_t *begin, int64_t end, int64_t step) {
    int64_t low = step > 0 ? 0 : -1, high = step > 0 ? length : length - 1;
    if (*begin < 0) *begin = *begin < -length ? low : *begin + length;
    if (end < 0) end = end < -length ? low : end + length;
    *begin = *begin > high ? high : *begin;
    end = end > high ? high : end;
    int64_t far = step > 0 ? end - *begin : *begin - end;
    int64_t stride = step > 0 ? step : step == INT64_MIN ? INT64_MAX : -step;
    return far > 0 ? (far - 1) / stride + 1 : 0;
}

static yoke_status slice(yoke_onnx_call *call) {
    yoke_onnx_sizes begins, ends, axes, by;
    int64_t steps[YOKE_ONNX_RANK + 2], first = 0;
    TRY(yoke_onnx_need(call, 3));
    TRY(yoke_onnx_numbers(call, 1, "begins", &begins));
    TRY(yoke_onnx_numbers(call, 2, "ends", &ends));
    TRY(yoke_onnx_numbers(call, 3, "axes", &axes));
    TRY(yoke_onnx_numbers(call, 4, "steps", &by));
    yoke_onnx_sizes sizes = call->in[0]->sizes;
    unsigned seen = 0;
    steps_of(&call->in[0]->sizes, steps);
    for (int i = 0; i < begins.rank && i < ends.rank; i++) {
        int axis;
        int64_t begin = begins.at[i], step = i < by.rank ? by.at[i] : 1;
        TRY(yoke_onnx_axis(i < axes.rank ? axes.at[i] : i, sizes.rank, &axis));
        if (step == 0 || seen >> axis & 1) return FAIL(YOKE_ERROR_DATA, "its steps or axes");
        seen |= 1u << axis;
        sizes.at[axis] = slice_dimension(sizes.at[axis], &begin, ends.at[i], step);
        if (sizes.at[axis] == 0) continue;
        first += begin * steps[axis];
        steps[axis] *= sizes.at[axis] > 1 ? step : 1;
    }
    return moved(call, &sizes, steps, first);
}

/* Reshapes are those of any value, and a reduction of a constant is rare; joins and choices: */

static yoke_status concat(yoke_onnx_call *call) {
    int dim;
    double *y;
    TRY(yoke_onnx_need(call, call->in_count > 0 ? call->in_count : 1));
    TRY(yoke_onnx_axis(yoke_onnx_int(call, "axis", 0), call->in[0]->sizes.rank, &dim));
    yoke_onnx_sizes sizes = call->in[0]->sizes;
    sizes.at[dim] = 0;
    for (int k = 0; k < call->in_count; k++) {
        const yoke_onnx_sizes *own = &call->in[k]->sizes;
        if (own->rank != sizes.rank) return FAIL(YOKE_ERROR_DATA, "its inputs' dimensions differ");
        for (int i = 0; i < own->rank; i++)
            if (i != dim && own->at[i] != sizes.at[i])
                return FAIL(YOKE_ERROR_DATA, "its inputs' sizes differ");
        sizes.at[dim] += own->at[dim];
        TRY(yoke_onnx_sizes_check(&sizes));
    }
    TRY(yoke_onnx_made(call, &sizes, call->in[0]->whole, &y));
    size_t before = yoke_onnx_count(&sizes, 0, dim),
           step = yoke_onnx_count(&sizes, dim, sizes.rank);
    size_t offset = 0;
    for (int k = 0; k < call->in_count; k++) {
        const double *x;
        TRY(elements_of(call, k, &x));
        size_t own = yoke_onnx_count(&call->in[k]->sizes, dim, sizes.rank);
        for (size_t i = 0; own > 0 && i < before; i++)
            memcpy(y + i * step + offset, x + i * own, own * sizeof *y);
        offset += own;
    }
    return YOKE_OK;
}

static yoke_status gather(yoke_onnx_call *call) {
    int dim;
    const double *x, *ids;
    double *y;
    TRY(yoke_onnx_need(call, 2));
    const yoke_onnx_sizes *data = &call->in[0]->sizes, *places = &call->in[1]->sizes;
    TRY(yoke_onnx_axis(yoke_onnx_int(call, "axis", 0), data->rank, &dim));
    if (data->rank + places->rank - 1 > YOKE_ONNX_RANK)
        return FAIL(YOKE_ERROR_ARGUMENT, "its result has too many dimensions");
    TRY(elements_of(call, 0, &x));
    TRY(elements_of(call, 1, &ids));
    yoke_onnx_sizes sizes = {0};
    for (int i = 0; i < data->rank; i++) {
        for (int k = 0; i == dim && k < places->rank; k++)
            sizes.at[sizes.rank++] = places->at[k];
        if (i != dim) sizes.at[sizes.rank++] = data->at[i];
    }
    TRY(yoke_onnx_made(call, &sizes, call->in[0]->whole, &y));
    size_t before = yoke_onnx_count(data, 0, dim),
           behind = yoke_onnx_count(data, dim + 1, data->rank);
    size_t count = yoke_onnx_whole(places);
    double length = (double)data->at[dim];
    if (yoke_onnx_whole(&sizes) == 0) return YOKE_OK;
    for (size_t i = 0; i < before * count; i++) {
        double id = ids[i % count] < 0 ? ids[i % count] + length : ids[i % count];
        if (!(id >= 0 && id < length))
            return FAIL(YOKE_ERROR_DATA, "index %g of %g places", ids[i % count], length);
        const double *from = x + (i / count * (size_t)length + (size_t)id) * behind;
        memcpy(y + i * behind, from, behind * sizeof *y);
    }
    return YOKE_OK;
}

/* Trilu. */
static yoke_status triangle(yoke_onnx_call *call) {
    const double *x;
    double *y, k = 0;
    TRY(yoke_onnx_need(call, 1));
    if (yoke_onnx_has(call, 1)) TRY(yoke_onnx_number(call, call->in[1], &k));
    const yoke_onnx_sizes sizes = call->in[0]->sizes;
    bool upper = yoke_onnx_int(call, "upper", 1) != 0;
    if (sizes.rank < 2) return FAIL(YOKE_ERROR_DATA, "it reads no matrix");
    TRY(elements_of(call, 0, &x));
    TRY(yoke_onnx_made(call, &sizes, call->in[0]->whole, &y));
    size_t height = (size_t)sizes.at[sizes.rank - 2], width = (size_t)sizes.at[sizes.rank - 1];
    for (size_t i = 0; i < yoke_onnx_whole(&sizes); i++) {
        double behind = (double)(i % width) - (double)(i / width % height) - k;
        y[i] = (upper ? behind >= 0 : behind <= 0) ? x[i] : 0;
    }
    return YOKE_OK;
}

/* ReduceProd, ReduceSum, ReduceMax, ReduceMin of all elements along one axis or all. */
enum { PRODUCT, TOTAL, LARGEST, SMALLEST };

static yoke_status reduce(yoke_onnx_call *call) {
    yoke_onnx_sizes axes, sizes;
    const double *x;
    double *y;
    TRY(yoke_onnx_need(call, 1));
    TRY(yoke_onnx_numbers(call, 1, "axes", &axes));
    yoke_onnx_sizes from = call->in[0]->sizes, kept = from, left = {0};
    unsigned dims = 0;
    for (int i = 0; i < axes.rank; i++) {
        int axis;
        TRY(yoke_onnx_axis(axes.at[i], from.rank, &axis));
        dims |= 1u << axis;
    }
    if (axes.rank <= 0) dims = ~0u;
    for (int i = 0; i < from.rank; i++) {
        if (dims >> i & 1)
            kept.at[i] = 1;
        else
            left.at[left.rank++] = from.at[i];
    }
    sizes = yoke_onnx_int(call, "keepdims", 1) != 0 ? kept : left;
    TRY(elements_of(call, 0, &x));
    TRY(yoke_onnx_made(call, &sizes, call->in[0]->whole, &y));
    static const double begins[] = {1, 0, -(double)INFINITY, (double)INFINITY};
    for (size_t i = 0; i < yoke_onnx_whole(&sizes); i++)
        y[i] = begins[call->word];
    for (size_t i = 0; i < yoke_onnx_whole(&from); i++) {
        double *to = &y[yoke_onnx_place_of(&from, &kept, i)];
        *to = call->word == PRODUCT   ? *to * x[i]
              : call->word == TOTAL   ? *to + x[i]
              : call->word == LARGEST ? fmax(*to, x[i])
                                      : fmin(*to, x[i]);
    }
    return YOKE_OK;
}

/* ScatterND: the input, where parts that indices name are replaced. */
static yoke_status scatter(yoke_onnx_call *call) {
    const double *x, *ids, *parts;
    double *y;
    char text[32];
    TRY(yoke_onnx_need(call, 3));
    const yoke_onnx_sizes sizes = call->in[0]->sizes, places = call->in[1]->sizes;
    for (int i = 0; i < 3; i++)
        TRY(elements_of(call, i, i == 0 ? &x : i == 1 ? &ids : &parts));
    int depth = places.rank > 0 ? (int)places.at[places.rank - 1] : 0;
    if (depth < 1 || depth > sizes.rank ||
        strcmp(yoke_onnx_text(call, "reduction", "none", text), "none") != 0)
        return FAIL(YOKE_ERROR_ARGUMENT, "its indices, or its reduction");
    size_t block = yoke_onnx_count(&sizes, depth, sizes.rank);
    size_t count = yoke_onnx_count(&places, 0, places.rank - 1);
    if (yoke_onnx_whole(&call->in[2]->sizes) != count * block)
        return FAIL(YOKE_ERROR_DATA, "its updates have other sizes than its indices ask for");
    TRY(yoke_onnx_made(call, &sizes, call->in[0]->whole, &y));
    memcpy(y, x, yoke_onnx_whole(&sizes) * sizeof *y);
    for (size_t i = 0; i < count; i++) {
        size_t at = 0;
        for (int k = 0; k < depth; k++) {
            double length = (double)sizes.at[k], id = ids[i * (size_t)depth + (size_t)k];
            id = id < 0 ? id + length : id;
            if (!(id >= 0 && id < length)) return FAIL(YOKE_ERROR_DATA, "index %g", id);
            at = at * (size_t)sizes.at[k] + (size_t)id;
        }
        memcpy(y + at * block, parts + i * block, block * sizeof *y);
    }
    return YOKE_OK;
}

/* CumSum along an axis: positions by a mask. */
static yoke_status cumulate(yoke_onnx_call *call) {
    const double *x;
    double *y, along;
    int axis;
    TRY(yoke_onnx_need(call, 2));
    TRY(yoke_onnx_number(call, call->in[1], &along));
    const yoke_onnx_sizes sizes = call->in[0]->sizes;
    if (isnan(along) || yoke_onnx_int(call, "exclusive", 0) || yoke_onnx_int(call, "reverse", 0))
        return FAIL(YOKE_ERROR_ARGUMENT, "it sums in another way");
    TRY(yoke_onnx_axis((int64_t)along, sizes.rank, &axis));
    TRY(elements_of(call, 0, &x));
    TRY(yoke_onnx_made(call, &sizes, call->in[0]->whole, &y));
    size_t step = yoke_onnx_count(&sizes, axis + 1, sizes.rank), length = (size_t)sizes.at[axis];
    for (size_t i = 0; i < yoke_onnx_whole(&sizes); i++)
        y[i] = x[i] + (i / step % length > 0 ? y[i - step] : 0);
    return YOKE_OK;
}

const yoke_onnx_operator yoke_onnx_folded_moves[] = {
    {"Concat", concat, 0},
    {"CumSum", cumulate, 0},
    {"Expand", expand, 0},
    {"Gather", gather, 0},
    {"ReduceMax", reduce, LARGEST},
    {"ReduceMin", reduce, SMALLEST},
    {"ReduceProd", reduce, PRODUCT},
    {"ReduceSum", reduce, TOTAL},
    {"ScatterND", scatter, 0},
    {"Slice", slice, 0},
    {"Transpose", transpose, 0},
    {"Trilu", triangle, 0},
    {NULL, NULL, 0},
};
