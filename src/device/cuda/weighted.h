/* SPDX-License-Identifier: Apache-2.0 */
/* Operations with weights, convolution and linear: output = input * weights + bias. One kind of
 * plan for both: a forward pass, a pass for the gradient of the data and one for the gradient of
 * the weights, each with the algorithm that was fastest when measured. */
#ifndef DEVICE_CUDA_WEIGHTED_H
#define DEVICE_CUDA_WEIGHTED_H

#include "device/cuda/operation_graph.h"

typedef enum cuda_direction {
    CUDA_FORWARD = YOKE_FORWARD,
    CUDA_BACKWARD_DATA = YOKE_BACKWARD_DATA,
    CUDA_BACKWARD_WEIGHTS = YOKE_BACKWARD_WEIGHTS,
    CUDA_DIRECTIONS = YOKE_DIRECTIONS
} cuda_direction;

/* The operands of a pass: values or their gradients, channels last in the compute type; weights in
 * the compute type; gradients of weights in float32. */
typedef struct cuda_operands {
    void *input, *weights, *output, *scratch;
    cuda_beside beside; /* of an epilogue; without one a bias is float32 */
    bool add;           /* backward data: to what `input` holds */
    /* Passes that compute parts of batch norms read and write what those norms save (CUDA_NORM);
     * backward data also reads the input of the norm before. */
    void *norm_behind, *norm_before;
    const void *norm_input;
} cuda_operands;

/* One algorithm for one direction, ready to run; first member of each kind. */
typedef struct cuda_pass cuda_pass;
#define CUDA_NAME_BYTES (CUDA_GRAPH_TEXT_BYTES + 48)
struct cuda_pass {
    cuda_device *device;
    const char *algorithm;                     /* the algorithm's name; static */
    char name[CUDA_NAME_BYTES];                /* as the record holds it */
    char configuration[CUDA_GRAPH_TEXT_BYTES]; /* of a product or a plan of a graph; "": neither */
    size_t scratch_bytes;
    bool adds_bias; /* otherwise the plan does */
    yoke_status (*run)(const cuda_pass *pass, const cuda_operands *operands);
    void (*destroy)(cuda_pass *pass); /* accepts half-built passes */
};

/* The parts of batch norms that a convolution's passes compute: forward sums up the output for the
 * one behind; all three apply the one before, and backward data sums up its gradients. */
typedef struct cuda_norm_parts {
    bool sums, applies;
} cuda_norm_parts;

typedef struct cuda_problem {
    cuda_device *device;
    const yoke_operation *operation; /* borrowed while planning */
    int rows;
    cuda_type type;
    bool tf32;
    bool atomics;                             /* the bits may differ from run to run */
    const char *configuration;                /* of the product or plan; NULL: by its rank */
    cuda_epilogue epilogues[CUDA_DIRECTIONS]; /* of linear */
    bool adds;                                /* backward data may, to what `input` holds */
    cuda_norm_parts norms;
} cuda_problem;
static inline bool cuda_joins_norms(const cuda_problem *problem, cuda_direction direction) {
    return problem->norms.applies || (problem->norms.sums && direction == CUDA_FORWARD);
}

/* Without measuring, the plan uses the first algorithm that exists for the problem. The record of
 * algorithms holds an algorithm's name, and with it the configuration of a product or plan: "matrix
 * product 21:20:35:1:0:0:0:0:0", "cuDNN plan eng34_k2=9". */
typedef struct cuda_algorithm {
    const char *name;
    /* *pass is NULL, without an error, where this algorithm does not exist for the problem. */
    yoke_status (*create)(cuda_pass **pass, const cuda_problem *problem, cuda_direction direction,
                          int variant);
    int variant;
} cuda_algorithm;
#define CUDA_ALGORITHMS_LIMIT 25

typedef struct cuda_weighted_request {
    const yoke_plan_request *plan;
    const char *key;                  /* names the shape in the record of algorithms */
    cuda_layout input;                /* the layout that the passes read */
    cuda_layout weights;              /* float32 */
    int padded;                       /* channels that the passes read; 0: the operation's */
    const cuda_algorithm *algorithms; /* at most CUDA_ALGORITHMS_LIMIT */
    int algorithm_count;
    /* The same algorithms where linear has an epilogue, with names of their own. */
    const cuda_algorithm *joined[CUDA_EPILOGUES];
} cuda_weighted_request;
yoke_status cuda_weighted_create(yoke_plan **plan, cuda_device *device,
                                 const cuda_weighted_request *request);

/* The operation as one product, with cuBLASLt's algorithm of rank `variant`, or of the problem's
 * configuration: linear, convolution with 1x1 kernels, convolution to one pixel. */
yoke_status cuda_product_pass(cuda_pass **pass, const cuda_problem *problem,
                              cuda_direction direction, int variant);
/* Any convolution, by im2col. A plan's algorithm says ", no other" where no library has an
 * algorithm. */
#define CUDA_IM2COL "im2col"
yoke_status cuda_im2col_pass(cuda_pass **pass, const cuda_problem *problem,
                             cuda_direction direction, int variant);
/* A convolution by cuDNN's algorithm number `variant`, where cuDNN has it for the problem. */
yoke_status cuda_cudnn_pass(cuda_pass **pass, const cuda_problem *problem, cuda_direction direction,
                            int variant);
/* A convolution as a graph of cuDNN's backend, by the plan of rank `variant` in its heuristics'
 * list, or by the problem's configuration. */
yoke_status cuda_graph_pass(cuda_pass **pass, const cuda_problem *problem, cuda_direction direction,
                            int variant);

/* A transposed convolution by a convolution's algorithm. */
yoke_status cuda_transposed_pass(cuda_pass **pass, const cuda_problem *problem,
                                 cuda_direction direction, const cuda_algorithm *algorithm);

/* The first rows of a table of algorithms: the product with each algorithm of cuBLASLt's list, best
 * guess first, and `what` follows it. */
#define CUDA_PRODUCT_ROW(what, rank)                                                               \
    { "matrix product" what, cuda_product_pass, rank }
#define CUDA_PRODUCT_ROWS(what)                                                                    \
    CUDA_PRODUCT_ROW(what, 0), CUDA_PRODUCT_ROW(what, 1), CUDA_PRODUCT_ROW(what, 2),               \
        CUDA_PRODUCT_ROW(what, 3), CUDA_PRODUCT_ROW(what, 4), CUDA_PRODUCT_ROW(what, 5),           \
        CUDA_PRODUCT_ROW(what, 6), CUDA_PRODUCT_ROW(what, 7)

static inline size_t cuda_dims_count(yoke_dims dims) {
    return (size_t)dims.channels * (size_t)dims.height * (size_t)dims.width;
}

/* The limit for the workspace of an algorithm of cuDNN's: twice the size of its operands, at least
 * CUDA_WORKSPACE_BYTES. */
static inline size_t cuda_workspace_limit(const cuda_problem *problem) {
    const yoke_operation *operation = problem->operation;
    size_t values = cuda_dims_count(operation->input) + cuda_dims_count(operation->output);
    size_t bytes = 2 * (size_t)problem->rows * values * cuda_type_bytes(problem->type);
    return bytes > CUDA_WORKSPACE_BYTES ? bytes : CUDA_WORKSPACE_BYTES;
}

/* The largest power of two, at most 16, that divides a distance in bytes: the alignment of an
 * address at that distance from an aligned one. */
static inline int cuda_alignment(size_t bytes) {
    int alignment = 16;
    while (bytes % (size_t)alignment != 0)
        alignment /= 2;
    return alignment;
}

#endif
