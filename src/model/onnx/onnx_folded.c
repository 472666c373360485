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
yoke_status yoke_onnx_made(yoke_onnx_call *call, const yoke_onnx_sizes *sizes, bool whole,
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
    TRY(yoke_onnx_made(call, &call->in[0]->sizes, call->in[0]->whole || call->word == NOT, &y));
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
    FMOD, /* MOD with the attribute fmod */
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
    case FMOD:
        return fmod(a, b);
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
size_t yoke_onnx_place_of(const yoke_onnx_sizes *sizes, const yoke_onnx_sizes *own, size_t i) {
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
    int word = call->word == MOD && yoke_onnx_int(call, "fmod", 0) != 0 ? FMOD : call->word;
    TRY(yoke_onnx_need(call, call->in_count < 2 ? 2 : call->in_count));
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
            y[i] = combine(word, a[yoke_onnx_place_of(&sizes, &left, i)],
                           b[yoke_onnx_place_of(&sizes, &right, i)], whole);
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
    TRY(yoke_onnx_made(call, &sizes, call->in[1]->whole && call->in[2]->whole, &y));
    for (size_t i = 0; i < yoke_onnx_whole(&sizes); i++) {
        int side = x[0][yoke_onnx_place_of(&sizes, &call->in[0]->sizes, i)] != 0 ? 1 : 2;
        y[i] = x[side][yoke_onnx_place_of(&sizes, &call->in[side]->sizes, i)];
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
    TRY(yoke_onnx_made(call, &call->in[0]->sizes, call->in[0]->whole, &y));
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
    TRY(yoke_onnx_made(call, &call->in[0]->sizes, whole, &y));
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
    TRY(yoke_onnx_made(call, &sizes, true, &y));
    for (int64_t i = begin; i < end; i++)
        y[i - begin] = (double)from.at[i];
    return YOKE_OK;
}

static yoke_status size(yoke_onnx_call *call) {
    const yoke_onnx_sizes sizes = {0};
    double *y;
    TRY(yoke_onnx_need(call, 1));
    TRY(yoke_onnx_made(call, &sizes, true, &y));
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
    TRY(yoke_onnx_made(call, &sizes, yoke_onnx_type_whole(tensor->data_type), &y));
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
        TRY(yoke_onnx_made(call, &sizes, whole, &y));
        for (size_t k = 0; k < count; k++)
            y[k] = line ? (whole ? (double)a->ints[k] : (double)a->floats[k])
                        : (whole ? (double)a->i : (double)a->f);
        return YOKE_OK;
    }
    return FAIL(YOKE_ERROR_ARGUMENT, "it is no tensor and no number");
}

/* The sizes that input 0 lists. */
yoke_status yoke_onnx_listed(yoke_onnx_call *call, int index, yoke_onnx_sizes *sizes) {
    TRY(yoke_onnx_numbers(call, index, "sizes", sizes));
    if (sizes->rank < 0) return FAIL(YOKE_ERROR_DATA, "it has no sizes");
    return yoke_onnx_sizes_check(sizes);
}

static yoke_status constant_of_shape(yoke_onnx_call *call) {
    yoke_onnx_sizes sizes;
    double *y, value = 0;
    bool whole = false;
    TRY(yoke_onnx_need(call, 1));
    TRY(yoke_onnx_listed(call, 0, &sizes));
    for (size_t i = 0; i < call->node->n_attribute; i++) {
        const Yoke__Onnx__Tensor *t = call->node->attribute[i]->t;
        if (t == NULL) continue;
        TRY(yoke_onnx_tensor_doubles(call->reader->file, t, 1, &value));
        whole = yoke_onnx_type_whole(t->data_type);
    }
    TRY(yoke_onnx_made(call, &sizes, whole, &y));
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
    TRY(yoke_onnx_made(call, &sizes, call->in[0]->whole, &y));
    for (int64_t i = 0; i < sizes.at[0]; i++)
        y[i] = number[0] + (double)i * number[2];
    return YOKE_OK;
}

const yoke_onnx_operator yoke_onnx_folded[] = {
    {"Abs", unary, ABS},
    {"Add", binary, ADD},
    {"And", binary, AND},
    {"Cast", cast, 0},
    {"Ceil", unary, CEIL},
    {"Clip", clip, 0},
    {"Constant", constant, 0},
    {"ConstantOfShape", constant_of_shape, 0},
    {"Cos", unary, COS},
    {"Div", binary, DIV},
    {"Equal", binary, EQUAL},
    {"Erf", unary, ERF},
    {"Exp", unary, EXP},
    {"Floor", unary, FLOOR},
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
    {"Relu", unary, RELU},
    {"Round", unary, ROUND},
    {"Shape", shape, 1},
    {"Sigmoid", unary, SIGMOID},
    {"Sign", unary, SIGN},
    {"Sin", unary, SIN},
    {"Size", size, 1},
    {"Sqrt", unary, SQRT},
    {"Sub", binary, SUB},
    {"Sum", binary, ADD},
    {"Tanh", unary, TANH},
    {"Where", where, 0},
    {"Xor", binary, XOR},
    {NULL, NULL, 0},
};
