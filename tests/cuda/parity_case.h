/* SPDX-License-Identifier: Apache-2.0 */
/* A case for comparing two devices: an operation, its shapes and random values. Unless the case
 * says otherwise bfloat16 holds the values exactly, so that only the arithmetic can differ. */
#ifndef PARITY_CASE_H
#define PARITY_CASE_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/device.h"

/* Any failing call of the library ends the test with its text. */
#define PARITY_OK(call)                                                                            \
    do {                                                                                           \
        yoke_status parity_status_ = (call);                                                       \
        if (parity_status_ != YOKE_OK)                                                             \
            fail_msg("%s: %s: %s", #call, yoke_status_name(parity_status_), yoke_last_error());    \
    } while (0)

typedef struct parity_case {
    yoke_operation operation;
    int rows;
    yoke_precision precision;
    yoke_algorithm algorithm;
    bool evaluation;
    bool plain;        /* the inputs are the model's own: plain float32 */
    bool first_layer;  /* no gradient of the input is wanted */
    bool in_place;     /* where the plan offers it */
    bool recorded;     /* both passes as one recording */
    bool full;         /* values with all 24 bits */
    bool mixed;        /* cross-entropy: rows have two labels */
    bool adds;         /* the gradient of input 0 to what is there: the values of a second input */
    float input_scale; /* of input 0; a power of two keeps it exact; 0: 1 */
    const char *preferred; /* a candidate that algorithms take unmeasured; NULL: none */
} parity_case;

static inline int parity_inputs(const parity_case *c) {
    yoke_operation_kind kind = c->operation.kind;
    bool joins = kind == YOKE_OP_ADD || kind == YOKE_OP_MULTIPLY || kind == YOKE_OP_CONCAT;
    return joins || c->operation.add || c->operation.others[0].height > 0 ? 2 : 1;
}

/* Of a concatenation, input 1 has the channels that input 0 leaves. */
static inline yoke_dims parity_input_dims(const parity_case *c, int index) {
    yoke_dims dims = c->operation.input;
    yoke_operation_kind kind = c->operation.kind;
    bool rest = kind == YOKE_OP_CONCAT && index == 1;
    if (rest) dims.channels = c->operation.output.channels - dims.channels;
    if (kind == YOKE_OP_RECURRENCE && index == 1) dims = c->operation.others[0];
    if (c->operation.by_channel && index == 1) dims.height = dims.width = 1;
    return dims;
}

static inline bool parity_is_loss(const parity_case *c) {
    yoke_operation_kind kind = c->operation.kind;
    return kind == YOKE_OP_CROSS_ENTROPY || kind == YOKE_OP_MSE || kind == YOKE_OP_BCE ||
           kind == YOKE_OP_HUBER;
}

/* What a failure says of its case. */
static inline void parity_describe(const parity_case *c, char *text, size_t bytes) {
    static const char *const kinds[] = {
        [YOKE_OP_CONV2D] = "conv2d",
        [YOKE_OP_CONV_TRANSPOSE2D] = "conv transpose2d",
        [YOKE_OP_LINEAR] = "linear",
        [YOKE_OP_BATCH_NORM] = "batch norm",
        [YOKE_OP_LAYER_NORM] = "layer norm",
        [YOKE_OP_ACTIVATION] = "activation",
        [YOKE_OP_ADD] = "add",
        [YOKE_OP_MULTIPLY] = "multiply",
        [YOKE_OP_CONCAT] = "concat",
        [YOKE_OP_SOFTMAX] = "softmax",
        [YOKE_OP_MAX_POOL] = "max pool",
        [YOKE_OP_AVERAGE_POOL] = "average pool",
        [YOKE_OP_FLATTEN] = "flatten",
        [YOKE_OP_SEQUENCE] = "sequence",
        [YOKE_OP_DROPOUT] = "dropout",
        [YOKE_OP_CLASS_TOKEN] = "class token",
        [YOKE_OP_SELECT] = "select",
        [YOKE_OP_RECURRENCE] = "recurrence",
        [YOKE_OP_ATTENTION] = "attention",
        [YOKE_OP_OUTPUT] = "output",
        [YOKE_OP_CROSS_ENTROPY] = "cross entropy",
        [YOKE_OP_MSE] = "mse",
        [YOKE_OP_BCE] = "bce",
        [YOKE_OP_HUBER] = "huber",
    };
    const yoke_operation *op = &c->operation;
    snprintf(text, bytes,
             "%s of %d x [%d, %d, %d] to %d, kernel %d x %d/%d+%d, %d groups, %s%s%s%s%s%s%s%s%s",
             op->kind == YOKE_OP_ACTIVATION ? yoke_activation_name(op->activation)
                                            : kinds[op->kind],
             c->rows, op->input.channels, op->input.height, op->input.width, op->output.channels,
             op->kernel, yoke_taps_across(op).kernel, op->stride, op->padding, op->groups,
             yoke_precision_name(c->precision), c->evaluation ? ", evaluation" : "",
             op->add ? ", add" : "", op->relu ? ", relu" : "", c->plain ? ", plain" : "",
             c->in_place ? ", in place" : "", c->recorded ? ", recorded" : "",
             c->mixed ? ", mixed" : "", c->adds ? ", adds" : "");
}

/* Shapes. */

typedef struct parity_shape {
    int64_t dims[5];
    int rank;
} parity_shape;

static inline size_t parity_count(const parity_shape *shape) {
    size_t count = shape->rank > 0;
    for (int i = 0; i < shape->rank; i++)
        count *= (size_t)shape->dims[i];
    return count;
}

static inline parity_shape parity_value_shape(int rows, yoke_dims dims) {
    parity_shape shape = {.rank = 4};
    yoke_dims_shape(dims, rows, shape.dims);
    return shape;
}

/* As the model asks for them: a grouped weight has its groups in front. Rank 0: there is none. */
static inline parity_shape parity_parameter_shape(const yoke_operation *op, int index) {
    int out = op->output.channels, in = op->input.channels, g = op->groups;
    int kh = yoke_taps_down(op).kernel, kw = yoke_taps_across(op).kernel;
    bool transposed = op->kind == YOKE_OP_CONV_TRANSPOSE2D;
    bool weighted = transposed || op->kind == YOKE_OP_CONV2D || op->kind == YOKE_OP_LINEAR;
    int first = transposed ? in : out, second = transposed ? out : in; /* of the weight */
    if (op->kind == YOKE_OP_BATCH_NORM || op->kind == YOKE_OP_LAYER_NORM)
        return (parity_shape){{in}, 1};
    if (op->kind == YOKE_OP_RECURRENCE && (index == 0 || op->bias))
        return index == 0 ? (parity_shape){{in, out}, 2} : (parity_shape){{in}, 1};
    if (op->kind == YOKE_OP_CLASS_TOKEN && index == 0) return (parity_shape){{1, 1, in}, 3};
    if (!weighted || (index == 1 && !op->bias)) return (parity_shape){{0}, 0};
    if (index == 1) return (parity_shape){{out}, 1};
    if (op->kind == YOKE_OP_LINEAR) return (parity_shape){{out, in}, 2};
    if (g > 1) return (parity_shape){{g, first / g, second / g, kh, kw}, 5};
    return (parity_shape){{first, second, kh, kw}, 4};
}

/* Values. */

static inline uint32_t parity_hash(uint32_t index, uint32_t stream) {
    uint32_t x = index * 2654435761u + stream * 40503u + 12345u;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    x *= 3266489917u;
    return x ^ x >> 16;
}

/* center + k / 128 with k in [-127, 127]: eight bits, as bfloat16 has; ties and zeros happen. */
static inline float *parity_random(size_t count, uint32_t stream, float center, bool full) {
    float *values = test_malloc((count > 0 ? count : 1) * sizeof *values);
    for (size_t i = 0; i < count; i++) {
        uint32_t hash = parity_hash((uint32_t)i, stream);
        float exact = (float)((int)(hash % 255) - 127) / 128;
        float fine = (float)hash * 0x1p-32f - 0.5f;
        values[i] = center > 0 ? center + exact / 4 : full ? fine : exact;
    }
    return values;
}

/* All plain, on the host. */
typedef struct parity_values {
    float *inputs[YOKE_PLAN_INPUTS], *parameters[YOKE_PLAN_PARAMETERS], *buffers[2];
    float *output_gradient, *targets;
    int32_t *labels;
    yoke_label_mix *mixes;
} parity_values;

static inline size_t parity_input_count(const parity_case *c, int index) {
    parity_shape shape = parity_value_shape(c->rows, parity_input_dims(c, index));
    return parity_count(&shape);
}

static inline size_t parity_output_count(const parity_case *c) {
    parity_shape shape = parity_value_shape(c->rows, c->operation.output);
    return parity_is_loss(c) ? 0 : parity_count(&shape);
}

static inline parity_values parity_values_new(const parity_case *c) {
    parity_values values = {0};
    bool norm = c->operation.kind == YOKE_OP_BATCH_NORM;
    for (uint32_t i = 0; i < YOKE_PLAN_INPUTS; i++)
        values.inputs[i] = parity_random(parity_input_count(c, (int)i), 1 + i, 0, c->full);
    for (size_t k = 0; c->input_scale > 0 && k < parity_input_count(c, 0); k++)
        values.inputs[0][k] *= c->input_scale;
    for (int i = 0; i < YOKE_PLAN_PARAMETERS; i++) {
        parity_shape shape = parity_parameter_shape(&c->operation, i);
        bool positive = norm && i == 0;
        values.parameters[i] =
            parity_random(parity_count(&shape), 3 + (uint32_t)i, positive ? 1 : 0, c->full);
    }
    size_t channels = (size_t)c->operation.input.channels;
    values.buffers[0] = parity_random(channels, 5, 0, false);
    values.buffers[1] = parity_random(channels, 6, 1, false);
    values.output_gradient = parity_random(parity_output_count(c), 7, 0, c->full);
    values.targets = parity_random(parity_input_count(c, 0), 8, 0, c->full);
    values.labels = test_malloc((size_t)c->rows * sizeof *values.labels);
    for (int i = 0; i < c->rows; i++)
        values.labels[i] = (int32_t)(parity_hash((uint32_t)i, 9) % (uint32_t)channels);
    values.mixes = test_malloc((size_t)c->rows * sizeof *values.mixes);
    for (int i = 0; i < c->rows; i++) {
        uint32_t hash = parity_hash((uint32_t)i, 10);
        values.mixes[i].label = (int32_t)(hash % (uint32_t)channels);
        values.mixes[i].share = (float)(hash % 9) / 8; /* none and all, too */
    }
    return values;
}

static inline void parity_values_free(parity_values *values) {
    for (int i = 0; i < YOKE_PLAN_INPUTS; i++)
        test_free(values->inputs[i]);
    for (int i = 0; i < 2; i++) {
        test_free(values->parameters[i]);
        test_free(values->buffers[i]);
    }
    test_free(values->output_gradient);
    test_free(values->targets);
    test_free(values->labels);
    test_free(values->mixes);
}

#endif
