/* SPDX-License-Identifier: Apache-2.0 */
/* Operators whose inputs are all constants, on the host: the arithmetic of shapes, masks. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/onnx/onnx_reader.h"

/* The elements of input `index`; all are known. */
static yoke_status elements_of(yoke_onnx_call *call, int index, const double **elements) {
    return yoke_onnx_elements_of(call, call->in[index], elements);
}

/* Elements of the result to fill; whole numbers, or not. */
static yoke_status made(yoke_onnx_call *call, const yoke_onnx_sizes *sizes, bool whole,
                        double **elements) {
    yoke_onnx_value value;
    TRY(yoke_onnx_constant(call->reader, sizes, &value, elements));
    value.whole = whole;
    if (call->out[0] != NULL) *call->out[0] = value;
    return YOKE_OK;
}

/* Elements. */

enum {
    NEG,
    ABS,
    EXP,
    LOG,
    SQRT,
    FLOOR,
    CEIL,
    ROUND,
    NOT,
    SIN,
    COS,
    ERF,
    RECIPROCAL,
    SIGN,
    TANH,
    SIGMOID,
    RELU
};

static double function_of(int word, double x) {
    switch (word) {
    case NEG:
        return -x;
    case ABS:
        return fabs(x);
    case EXP:
        return exp(x);
    case LOG:
        return log(x);
    case SQRT:
        return sqrt(x);
    case FLOOR:
        return floor(x);
    case CEIL:
        return ceil(x);
    case ROUND:
        return nearbyint(x);
    case NOT:
        return x == 0;
    case SIN:
        return sin(x);
    case COS:
        return cos(x);
    case ERF:
        return erf(x);
    case RECIPROCAL:
        return 1 / x;
    case SIGN:
        return x > 0 ? 1 : x < 0 ? -1 : 0;
    case TANH:
        return tanh(x);
    case SIGMOID:
        return 1 / (1 + exp(-x));
    default:
        return x > 0 ? x : 0;
    }
}

static yoke_status unary(yoke_onnx_call *call) {
    const double *x;
    double *y;
    TRY(yoke_onnx_need(call, 1));
    TRY(elements_of(call, 0, &x));
    TRY(made(call, &call->in[0]->sizes, call->in[0]->whole || call->word == NOT, &y));
    for (size_t i = 0; i < yoke_onnx_whole(&call->in[0]->sizes); i++)
        y[i] = function_of(call->word, x[i]);
    return YOKE_OK;
}

enum {
    ADD,
    SUB,
    MUL,
    DIV,
    POW,
    MAXIMUM,
    MINIMUM,
    MOD,
    EQUAL,
    GREATER,
    LESS,
    GREATER_EQUAL,
    LESS_EQUAL,
    AND,
    OR,
    XOR
};

static double combine(int word, double a, double b, bool whole) {
    switch (word) {
    case ADD:
        return a + b;
    case SUB:
        return a - b;
    case MUL:
        return a * b;
    case DIV:
        return whole ? trunc(a / b) : a / b;
    case POW:
        return pow(a, b);
    case MAXIMUM:
        return fmax(a, b);
    case MINIMUM:
        return fmin(a, b);
    case MOD:
        return a - floor(a / b) * b;
    case EQUAL:
        return a == b;
    case GREATER:
        return a > b;
    case LESS:
        return a < b;
    case GREATER_EQUAL:
        return a >= b;
    case LESS_EQUAL:
        return a <= b;
    case AND:
        return a != 0 && b != 0;
    case OR:
        return a != 0 || b != 0;
    default:
        return (a != 0) != (b != 0);
    }
}

/* Where element i of a tensor lies in one that repeats to it. */
static size_t place_of(const yoke_onnx_sizes *sizes, const yoke_onnx_sizes *own, size_t i) {
    size_t place = 0, step = 1;
    for (int axis = sizes->rank - 1; axis >= 0; axis--) {
        int k = axis - (sizes->rank - own->rank);
        size_t at = i % (size_t)sizes->at[axis];
        i /= (size_t)sizes->at[axis];
        if (k < 0) continue;
        if (own->at[k] > 1) place += at * step;
        step *= (size_t)own->at[k];
    }
    return place;
}

static yoke_status binary(yoke_onnx_call *call) {
    yoke_onnx_sizes sizes, left, right;
    const double *a, *b;
    double *y;
    TRY(yoke_onnx_need(call, 2));
    yoke_onnx_value first = *call->in[0];
    for (int k = 1; k < call->in_count; k++) {
        yoke_onnx_value *other = call->in[k];
        TRY(yoke_onnx_elements_of(call, &first, &a));
        TRY(yoke_onnx_elements_of(call, other, &b));
        left = first.sizes;
        right = other->sizes;
        TRY(yoke_onnx_broadcast_sizes(&left, &right, &sizes));
        bool whole = first.whole && other->whole;
        yoke_onnx_value result;
        TRY(yoke_onnx_constant(call->reader, &sizes, &result, &y));
        for (size_t i = 0; i < yoke_onnx_whole(&sizes); i++)
            y[i] = combine(call->word, a[place_of(&sizes, &left, i)],
                           b[place_of(&sizes, &right, i)], whole);
        result.whole = whole || call->word >= EQUAL;
        first = result;
    }
    if (call->out[0] != NULL) *call->out[0] = first;
    return YOKE_OK;
}

static yoke_status where(yoke_onnx_call *call) {
    yoke_onnx_sizes sizes;
    const double *x[3];
    double *y;
    TRY(yoke_onnx_need(call, 3));
    for (int k = 0; k < 3; k++)
        TRY(elements_of(call, k, &x[k]));
    TRY(yoke_onnx_broadcast_sizes(&call->in[0]->sizes, &call->in[1]->sizes, &sizes));
    TRY(yoke_onnx_broadcast_sizes(&sizes, &call->in[2]->sizes, &sizes));
    TRY(made(call, &sizes, call->in[1]->whole && call->in[2]->whole, &y));
    for (size_t i = 0; i < yoke_onnx_whole(&sizes); i++) {
        int side = x[0][place_of(&sizes, &call->in[0]->sizes, i)] != 0 ? 1 : 2;
        y[i] = x[side][place_of(&sizes, &call->in[side]->sizes, i)];
    }
    return YOKE_OK;
}

static yoke_status clip(yoke_onnx_call *call) {
    const double *x;
    double *y, low = -(double)INFINITY, high = (double)INFINITY;
    TRY(yoke_onnx_need(call, 1));
    TRY(elements_of(call, 0, &x));
    if (yoke_onnx_has(call, 1)) TRY(yoke_onnx_number(call, call->in[1], &low));
    if (yoke_onnx_has(call, 2)) TRY(yoke_onnx_number(call, call->in[2], &high));
    TRY(made(call, &call->in[0]->sizes, call->in[0]->whole, &y));
    for (size_t i = 0; i < yoke_onnx_whole(&call->in[0]->sizes); i++)
        y[i] = fmin(fmax(x[i], low), high);
    return YOKE_OK;
}

/* To whole numbers it cuts, to bool it compares with 0. */
static yoke_status cast(yoke_onnx_call *call) {
    const double *x;
    double *y;
    int to = (int)yoke_onnx_int(call, "to", YOKE_ONNX_FLOAT);
    bool whole = yoke_onnx_type_whole(to);
    TRY(yoke_onnx_need(call, 1));
    TRY(elements_of(call, 0, &x));
    TRY(made(call, &call->in[0]->sizes, whole, &y));
    for (size_t i = 0; i < yoke_onnx_whole(&call->in[0]->sizes); i++)
        y[i] = to == YOKE_ONNX_BOOL ? x[i] != 0 : whole ? trunc(x[i]) : x[i];
    return YOKE_OK;
}

/* Sources. */

static yoke_status shape(yoke_onnx_call *call) {
    double *y;
    TRY(yoke_onnx_need(call, 1));
    const yoke_onnx_sizes from = call->in[0]->sizes;
    int64_t begin = yoke_onnx_int(call, "start", 0), end = yoke_onnx_int(call, "end", from.rank);
    begin = begin < 0 ? begin + from.rank : begin;
    end = end < 0 ? end + from.rank : end;
    begin = begin < 0 ? 0 : begin > from.rank ? from.rank : begin;
    end = end < begin ? begin : end > from.rank ? from.rank : end;
    const yoke_onnx_sizes sizes = {1, {end - begin}};
    TRY(made(call, &sizes, true, &y));
    for (int64_t i = begin; i < end; i++)
        y[i - begin] = (double)from.at[i];
    return YOKE_OK;
}

static yoke_status size(yoke_onnx_call *call) {
    const yoke_onnx_sizes sizes = {0};
    double *y;
    TRY(yoke_onnx_need(call, 1));
    TRY(made(call, &sizes, true, &y));
    y[0] = (double)yoke_onnx_whole(&call->in[0]->sizes);
    return YOKE_OK;
}

/* A tensor of the file, as a constant. */
static yoke_status of_tensor(yoke_onnx_call *call, const Yoke__Onnx__Tensor *tensor) {
    yoke_onnx_sizes sizes = {(int)tensor->n_dims, {0}};
    size_t count;
    double *y;
    if (tensor->n_dims > YOKE_ONNX_RANK)
        return FAIL(YOKE_ERROR_ARGUMENT, "a constant of %zu dimensions", tensor->n_dims);
    for (int i = 0; i < sizes.rank; i++)
        sizes.at[i] = tensor->dims[i];
    TRY(yoke_onnx_tensor_count(tensor, &count));
    TRY(yoke_onnx_tensor_check(call->reader->file, tensor, count));
    TRY(made(call, &sizes, yoke_onnx_type_whole(tensor->data_type), &y));
    return yoke_onnx_tensor_doubles(call->reader->file, tensor, count, y);
}

static yoke_status constant(yoke_onnx_call *call) {
    for (size_t i = 0; i < call->node->n_attribute; i++) {
        const Yoke__Onnx__Attribute *a = call->node->attribute[i];
        const char *name = a->name != NULL ? a->name : "";
        bool line = strcmp(name, "value_ints") == 0 || strcmp(name, "value_floats") == 0;
        bool whole = strncmp(name, "value_int", 9) == 0;
        double *y;
        if (strcmp(name, "value") == 0 && a->t != NULL) return of_tensor(call, a->t);
        if (!whole && strncmp(name, "value_float", 11) != 0) continue;
        size_t count = line ? (whole ? a->n_ints : a->n_floats) : 1;
        const yoke_onnx_sizes sizes = {line, {(int64_t)count}};
        TRY(made(call, &sizes, whole, &y));
        for (size_t k = 0; k < count; k++)
            y[k] = line ? (whole ? (double)a->ints[k] : (double)a->floats[k])
                        : (whole ? (double)a->i : (double)a->f);
        return YOKE_OK;
    }
    return FAIL(YOKE_ERROR_ARGUMENT, "it is no tensor and no number");
}

/* The sizes that input 0 lists. */
static yoke_status listed(yoke_onnx_call *call, int index, yoke_onnx_sizes *sizes) {
    TRY(yoke_onnx_numbers(call, index, "sizes", sizes));
    if (sizes->rank < 0) return FAIL(YOKE_ERROR_DATA, "it has no sizes");
    return yoke_onnx_sizes_check(sizes);
}

static yoke_status constant_of_shape(yoke_onnx_call *call) {
    yoke_onnx_sizes sizes;
    double *y, value = 0;
    bool whole = false;
    TRY(yoke_onnx_need(call, 1));
    TRY(listed(call, 0, &sizes));
    for (size_t i = 0; i < call->node->n_attribute; i++) {
        const Yoke__Onnx__Tensor *t = call->node->attribute[i]->t;
        if (t == NULL) continue;
        TRY(yoke_onnx_tensor_doubles(call->reader->file, t, 1, &value));
        whole = yoke_onnx_type_whole(t->data_type);
    }
    TRY(made(call, &sizes, whole, &y));
    for (size_t i = 0; i < yoke_onnx_whole(&sizes); i++)
        y[i] = value;
    return YOKE_OK;
}

static yoke_status range(yoke_onnx_call *call) {
    double number[3], *y;
    TRY(yoke_onnx_need(call, 3));
    for (int i = 0; i < 3; i++)
        TRY(yoke_onnx_number(call, call->in[i], &number[i]));
    double count = ceil((number[1] - number[0]) / number[2]);
    if (!(count < (double)YOKE_ONNX_ELEMENTS)) return FAIL(YOKE_ERROR_DATA, "%g numbers", count);
    const yoke_onnx_sizes sizes = {1, {count > 0 ? (int64_t)count : 0}};
    TRY(made(call, &sizes, call->in[0]->whole, &y));
    for (int64_t i = 0; i < sizes.at[0]; i++)
        y[i] = number[0] + (double)i * number[2];
    return YOKE_OK;
}

/* Moves: each element of the result is one of the input. */

/* The result with these sizes; steps[axis]: how far an element is from the next, first: the one at
 * the begin. */
static yoke_status moved(yoke_onnx_call *call, const yoke_onnx_sizes *sizes, const int64_t *steps,
                         int64_t first) {
    const double *x;
    double *y;
    TRY(elements_of(call, 0, &x));
    TRY(made(call, sizes, call->in[0]->whole, &y));
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
    for (int i = 0; i < from->rank; i++) {
        int axis = from->rank - 1 - i;
        if (order.rank >= 0) TRY(yoke_onnx_axis(order.at[i], from->rank, &axis));
        sizes.at[i] = from->at[axis];
        steps[i] = own[axis];
    }
    if (yoke_onnx_whole(&sizes) != yoke_onnx_whole(from))
        return FAIL(YOKE_ERROR_DATA, "an order that names an axis twice");
    return moved(call, &sizes, steps, 0);
}

static yoke_status expand(yoke_onnx_call *call) {
    yoke_onnx_sizes given, sizes;
    int64_t own[YOKE_ONNX_RANK + 2], steps[YOKE_ONNX_RANK + 2] = {0};
    TRY(yoke_onnx_need(call, 2));
    const yoke_onnx_sizes *from = &call->in[0]->sizes;
    TRY(listed(call, 1, &given));
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
    TRY(made(call, &sizes, call->in[0]->whole, &y));
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
    TRY(made(call, &sizes, call->in[0]->whole, &y));
    size_t before = yoke_onnx_count(data, 0, dim),
           behind = yoke_onnx_count(data, dim + 1, data->rank);
    size_t count = yoke_onnx_whole(places);
    double length = (double)data->at[dim];
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
    TRY(made(call, &sizes, call->in[0]->whole, &y));
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
    TRY(made(call, &sizes, call->in[0]->whole, &y));
    static const double begins[] = {1, 0, -(double)INFINITY, (double)INFINITY};
    for (size_t i = 0; i < yoke_onnx_whole(&sizes); i++)
        y[i] = begins[call->word];
    for (size_t i = 0; i < yoke_onnx_whole(&from); i++) {
        double *to = &y[place_of(&from, &kept, i)];
        *to = call->word == PRODUCT   ? *to * x[i]
              : call->word == TOTAL   ? *to + x[i]
              : call->word == LARGEST ? fmax(*to, x[i])
                                      : fmin(*to, x[i]);
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
    TRY(made(call, &sizes, call->in[0]->whole, &y));
    size_t step = yoke_onnx_count(&sizes, axis + 1, sizes.rank), length = (size_t)sizes.at[axis];
    for (size_t i = 0; i < yoke_onnx_whole(&sizes); i++)
        y[i] = x[i] + (i / step % length > 0 ? y[i - step] : 0);
    return YOKE_OK;
}

const yoke_onnx_operator yoke_onnx_folded[] = {
    {"Abs", unary, ABS},
    {"Add", binary, ADD},
    {"And", binary, AND},
    {"Cast", cast, 0},
    {"Ceil", unary, CEIL},
    {"Clip", clip, 0},
    {"Concat", concat, 0},
    {"Constant", constant, 0},
    {"ConstantOfShape", constant_of_shape, 0},
    {"Cos", unary, COS},
    {"CumSum", cumulate, 0},
    {"Div", binary, DIV},
    {"Equal", binary, EQUAL},
    {"Erf", unary, ERF},
    {"Exp", unary, EXP},
    {"Expand", expand, 0},
    {"Floor", unary, FLOOR},
    {"Gather", gather, 0},
    {"Greater", binary, GREATER},
    {"GreaterOrEqual", binary, GREATER_EQUAL},
    {"Less", binary, LESS},
    {"LessOrEqual", binary, LESS_EQUAL},
    {"Log", unary, LOG},
    {"Max", binary, MAXIMUM},
    {"Min", binary, MINIMUM},
    {"Mod", binary, MOD},
    {"Mul", binary, MUL},
    {"Neg", unary, NEG},
    {"Not", unary, NOT},
    {"Or", binary, OR},
    {"Pow", binary, POW},
    {"Range", range, 0},
    {"Reciprocal", unary, RECIPROCAL},
    {"ReduceMax", reduce, LARGEST},
    {"ReduceMin", reduce, SMALLEST},
    {"ReduceProd", reduce, PRODUCT},
    {"ReduceSum", reduce, TOTAL},
    {"Relu", unary, RELU},
    {"Round", unary, ROUND},
    {"Shape", shape, 1},
    {"Sigmoid", unary, SIGMOID},
    {"Sign", unary, SIGN},
    {"Sin", unary, SIN},
    {"Size", size, 1},
    {"Slice", slice, 0},
    {"Sqrt", unary, SQRT},
    {"Sub", binary, SUB},
    {"Sum", binary, ADD},
    {"Tanh", unary, TANH},
    {"Transpose", transpose, 0},
    {"Trilu", triangle, 0},
    {"Where", where, 0},
    {"Xor", binary, XOR},
    {NULL, NULL, 0},
};
