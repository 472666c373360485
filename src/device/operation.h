/* SPDX-License-Identifier: Apache-2.0 */
/* What plans compute: the kinds of operations, and everything that describes one. */
#ifndef DEVICE_OPERATION_H
#define DEVICE_OPERATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "device/elementary.h"
#include "yoke/function.h"
#include "yoke/host_call.h"

typedef enum yoke_operation_kind {
    YOKE_OP_CONV2D,           /* parameters: weight [out, in / groups, kh, kw], bias [out] */
    YOKE_OP_CONV_TRANSPOSE2D, /* weight [in, out / groups, kh, kw], bias [out] */
    YOKE_OP_LINEAR,           /* weight [out, in], or [in, out] if `transposed`; bias [out] */
    YOKE_OP_BATCH_NORM, /* weight, bias [channels]; buffers: running mean, running variance; relu:
                           followed by a ReLU; add: input 1 is added before the ReLU */
    YOKE_OP_LAYER_NORM, /* of a flat value or a sequence; weight, bias [channels] */
    YOKE_OP_ACTIVATION,
    YOKE_OP_ADD,      /* two inputs; relu: followed by a ReLU */
    YOKE_OP_MULTIPLY, /* two inputs; by_channel: input 1 is [channels, 1, 1] */
    YOKE_OP_CONCAT,   /* two inputs: the channels of input 0, then those of input 1 */
    YOKE_OP_SOFTMAX,  /* over the channels of a flat value or a sequence */
    YOKE_OP_MAX_POOL,
    YOKE_OP_AVERAGE_POOL, /* count_include_pad; kernel 0: torch.nn.AdaptiveAvgPool2d(output) */
    YOKE_OP_FLATTEN,      /* [channels, height, width] -> [features], row-major order */
    YOKE_OP_SEQUENCE,     /* [channels, height, width] -> a sequence [height * width, channels] */
    YOKE_OP_EMBEDDING,    /* flat float32 token ids -> a sequence of their rows of weight [table,
                             features]; an id that is no integer from 0 to table - 1 gives NaN */
    YOKE_OP_POSITIONS, /* adds to each position of a sequence its row of weight [table, features] */
    YOKE_OP_DROPOUT,
    YOKE_OP_CLASS_TOKEN,   /* puts its weight [1, 1, channels] before the positions of a sequence */
    YOKE_OP_SELECT,        /* a sequence's position `index` -> [channels] */
    YOKE_OP_RECURRENCE,    /* LSTM or GRU: the input's share of the gates [positions, 4 or 3 *
                              channels]
                              -> the states [positions, channels]; weight [gates, channels], bias
                              [gates]. Input 1, if any, [positions, 1]: where it is 0 the state stays
                              and the output is 0 */
    YOKE_OP_ATTENTION,     /* sequences [positions, 3 * channels] packed q, k, v -> [positions,
                              channels] */
    YOKE_OP_OUTPUT,        /* the model's last operation: converts any layout and precision to plain
                              float32 */
    YOKE_OP_CROSS_ENTROPY, /* input plain float32 [rows, classes], or a sequence [rows, positions,
                              classes]; sums over rows and positions; no output value */
    YOKE_OP_MSE,
    YOKE_OP_BCE, /* of logits */
    YOKE_OP_HUBER,
    YOKE_OP_OUTPUT_LOSS, /* the mean over a row */
    YOKE_OP_EXPRESSION,  /* elementary functions of up to YOKE_PLAN_INPUTS inputs */
    YOKE_OP_REDUCE,      /* sum, mean or maximum over axes of a row */
    YOKE_OP_RESHAPE,     /* another shape, row-major order */
    YOKE_OP_MOVE,        /* exchanges axes of a row, takes a part of it, and pads it */
    YOKE_OP_MATMUL,      /* two inputs: matrices of each row */
    YOKE_OP_PARAMETER,   /* no input: its weight, in every row */
    YOKE_OP_CONSTANT,    /* no input: `weights`, in every row */
    YOKE_OP_INPUT, /* a further input of the model: a value, for which no device plans anything */
    YOKE_OP_HOST,  /* up to YOKE_HOST_INPUTS inputs: callbacks of the host program */
    /* A sequence in parts; input 1: where a row's begins. Outside of 0 .. capacity - 1: padding. */
    YOKE_OP_CONTINUED_POSITIONS,
    YOKE_OP_CONTINUED_ATTENTION /* causal, over this part and the keys and values it has kept */
} yoke_operation_kind;

/* Functions of one element, by the names and definitions of torch.nn. */
typedef enum yoke_activation {
    YOKE_RELU,
    YOKE_RELU6,     /* min(max(x, 0), 6) */
    YOKE_GELU,      /* x / 2 * (1 + erf(x / sqrt 2)) */
    YOKE_GELU_TANH, /* x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) */
    YOKE_SILU,      /* x * sigmoid(x) */
    YOKE_SIGMOID,
    YOKE_TANH
} yoke_activation;
#define YOKE_ACTIVATIONS 7
/* "gelu", for names of layers and messages. */
const char *yoke_activation_name(yoke_activation activation);

/* The shape of a row. A flat value has height = width = 1. A sequence has `height` positions of
 * `channels` features and width = 1; every backend keeps it plain: [rows, height, channels, 1]. */
typedef struct yoke_dims {
    int channels, height, width;
    bool sequence;
} yoke_dims;
/* [rows, channels, height, width], or a sequence's [rows, positions, features, 1]. */
void yoke_dims_shape(yoke_dims dims, int rows, int64_t shape[4]);

/* A window along one direction of an image. */
typedef struct yoke_taps {
    int kernel, stride, padding;
    int dilation; /* pixels from tap to tap, at least 1 */
} yoke_taps;

#define YOKE_PLAN_INPUTS YOKE_EXPRESSION_INPUTS
#define YOKE_PLAN_PARAMETERS 2
#define YOKE_PLAN_NEXT 3

/* What a MOVE does, by the axes of rows in row-major order (device/view.h): axis i of the output is
 * axis order[i] of the input, and place j along it comes from place j + begin[i]; `fill` where
 * there is none. */
typedef struct yoke_move {
    int order[3], begin[3];
    float fill;
} yoke_move;

/* What the host program computes: each gets `payload`. */
typedef yoke_status (*yoke_host_function)(void *payload, const yoke_host_call *call);
#define YOKE_HOST_INPUTS 3
typedef struct yoke_host_operation {
    yoke_host_function forward, backward;
    void *payload;
    int inputs, parameters;
    size_t parameter_elements[YOKE_PLAN_PARAMETERS];
} yoke_host_operation;

typedef struct yoke_operation {
    yoke_operation_kind kind;
    const char *name; /* for messages; borrowed while planning, of HOST for the plan's life */
    yoke_dims input, output;
    yoke_dims others[YOKE_PLAN_INPUTS - 1]; /* inputs 1, 2, ... of elementary operations */
    yoke_activation activation;
    int kernel, stride, padding, groups; /* convolution, pooling */
    int dilation;                        /* convolution: pixels from tap to tap, at least 1 */
    yoke_taps across;                    /* convolution: along the width; kernel 0: as above */
    bool relu;                           /* batch norm, add: fused */
    bool add;                            /* batch norm: fused, always with relu */
    bool bias;                           /* convolution, linear, recurrence */
    bool transposed, plain_weight; /* linear; plain: [out, in] in memory, for plans of few rows */
    bool reverse;                  /* recurrence: from the last position to the first */
    int table;                     /* embeddings: rows of the weight */
    double epsilon, momentum;      /* batch norm; epsilon: layer norm */
    double probability;            /* dropout */
    int index;                     /* select */
    int heads;                     /* attention */
    bool causal;                   /* attention */
    int capacity;                  /* continued: positions of a whole sequence */
    double label_smoothing;        /* cross-entropy */
    const float *weights; /* [channels of the input], borrowed while planning; NULL: 1 each.
                             Cross-entropy: of the classes; BCE: of the positive targets; constant:
                             its elements */
    bool ignores;         /* cross-entropy: rows with the label `ignored` count for nothing */
    int32_t ignored;
    double delta;    /* Huber: where the square ends */
    uint32_t layer;  /* part of the key of dropout's random numbers */
    bool by_channel; /* multiply: by a factor for each channel of a row */
    yoke_expression expression;
    yoke_reduce_kind reduction; /* over the axes in which input and output differ */
    yoke_move move;
    bool transpose_left, transpose_right; /* matmul */
    yoke_host_operation host;
} yoke_operation;

static inline yoke_dims yoke_operation_input(const yoke_operation *operation, int index) {
    return index == 0 ? operation->input : operation->others[index - 1];
}

/* The window along the height, and along the width. */
yoke_taps yoke_taps_down(const yoke_operation *operation);
yoke_taps yoke_taps_across(const yoke_operation *operation);
int yoke_taps_side(yoke_taps taps); /* the pixels from its first tap to its last */
/* The bias-free convolution of which a transposed one is backward: it reads the output's shape and
 * writes the input's. Both have the same weight. */
yoke_operation yoke_transposed_convolution(const yoke_operation *transposed);
/* What names a convolution in keys of algorithms, in at most YOKE_CONVOLUTION_KEY_BYTES. */
#define YOKE_CONVOLUTION_KEY_BYTES 160
void yoke_convolution_key(const yoke_operation *operation, char key[YOKE_CONVOLUTION_KEY_BYTES]);

#endif
