/* SPDX-License-Identifier: Apache-2.0 */
/* Convolution as a graph of cuDNN's backend: of one node, or with the nodes that compute parts of
 * the batch norms beside it. Values are NHWC, filters KRSC. */
#include "device/cuda/weighted.h"

#ifndef YOKE_HAS_CUDNN

yoke_status cuda_graph_pass(cuda_pass **pass, const cuda_problem *problem, cuda_direction direction,
                            int variant) {
    (void)problem, (void)direction, (void)variant;
    *pass = NULL;
    return YOKE_OK;
}

#else

#include <stdio.h>
#include <stdlib.h>

/* Tensors: the operands; the input of the norm before; the norms' rows, from the numbers on; those
 * between two nodes, numbered from INNER on. */
enum { X = 1, W, Y, NORMED, BEFORE, BEHIND = BEFORE + CUDA_NORM_ROWS };
enum { INNER = BEHIND + CUDA_NORM_ROWS, OPERANDS_LIMIT = 16 };

/* What a run gives the plan. */
typedef struct operand_list {
    int64_t uids[OPERANDS_LIMIT];
    void *pointers[OPERANDS_LIMIT];
    int count;
} operand_list;

typedef struct graph_pass {
    cuda_pass base;
    cuda_graph_plan *plan;
    cuda_graph_plan *adding; /* to what the result holds; NULL: nobody asks for it */
    cuda_direction direction;
    cuda_norm_parts norms;
    int before, behind;     /* channels of the norms */
    size_t workspace_bytes; /* follow in scratch: the narrow gradient of the weights, or sums that
                               nobody asked for */
    size_t narrow_count;    /* elements of that gradient; 0: the plan writes the gradient itself */
    cuda_type type;         /* of that gradient */
} graph_pass;

static void graph_destroy(cuda_pass *pass) {
    graph_pass *self = (graph_pass *)pass;
    cuda_graph_plan_destroy(self->adding);
    cuda_graph_plan_destroy(self->plan);
    yoke_free(self);
}

/* Rows of the norm before that backward reads and writes. */
static bool reads_row(int row) {
    return row != CUDA_NORM_SUMS && row != CUDA_NORM_SQUARES && row != CUDA_NORM_SCALE &&
           row != CUDA_NORM_SHIFT;
}

/* Descriptions. */

typedef struct description {
    const cuda_problem *problem;
    cuda_direction direction;
    bool adds; /* to what the result holds */
} description;

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define ONE_OF(name, type, value)                                                                  \
    { name, type, 1, value }
#define TENSOR(name, value) ONE_OF(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, &(value))

/* Dims are [n, c, h, w], in memory channels last. */
static cuda_graph_object add_tensor(cuda_graph *graph, int64_t uid, cudnnDataType_t type, int64_t n,
                                    int64_t c, int64_t h, int64_t w) {
    const cuda_graph_values values = {.uid = uid,
                                      .type = type,
                                      .ndim = 4,
                                      .dims = {n, c, h, w},
                                      .strides = {c * h * w, 1, c * w, c},
                                      .is_virtual = uid >= INNER};
    return cuda_graph_tensor(graph, &values);
}

static cuda_graph_object add_value(cuda_graph *graph, int64_t uid, const cuda_problem *problem,
                                   yoke_dims dims) {
    return add_tensor(graph, uid, cuda_cudnn_type(problem->type), problem->rows, dims.channels,
                      dims.height, dims.width);
}

/* A number for each channel of `dims`. */
static cuda_graph_object add_row(cuda_graph *graph, int64_t uid, cudnnDataType_t type,
                                 yoke_dims dims) {
    return add_tensor(graph, uid, type, 1, dims.channels, 1, 1);
}

static cuda_graph_object add_filter(cuda_graph *graph, const cuda_problem *problem) {
    const yoke_operation *operation = problem->operation;
    return add_tensor(graph, W, cuda_cudnn_type(problem->type), operation->output.channels,
                      operation->input.channels / operation->groups,
                      yoke_taps_down(operation).kernel, yoke_taps_across(operation).kernel);
}

static cuda_graph_object add_convolution(cuda_graph *graph, const yoke_operation *operation) {
    yoke_taps down = yoke_taps_down(operation), across = yoke_taps_across(operation);
    const int64_t axes = 2, padding[] = {down.padding, across.padding},
                  stride[] = {down.stride, across.stride},
                  dilation[] = {down.dilation, across.dilation};
    const cudnnDataType_t sums = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const cuda_graph_attribute attributes[] = {
        {CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &axes},
        {CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &sums},
        {CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode},
        {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, padding},
        {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, padding},
        {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, stride},
        {CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilation}};
    return cuda_graph_part(graph, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, attributes,
                           sizeof attributes / sizeof attributes[0]);
}

/* The attributes of a node have one order in each direction: alpha, beta, the convolution, w, x, y.
 */
static void add_convolution_node(cuda_graph *graph, const description *of, cuda_graph_object x,
                                 cuda_graph_object w, cuda_graph_object y) {
    static const struct {
        cudnnBackendDescriptorType_t type;
        cudnnBackendAttributeName_t first;
    } nodes[CUDA_DIRECTIONS] = {{CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA},
                                {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA},
                                {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA}};
    const float alpha = 1, beta = of->adds ? 1 : 0;
    const cuda_graph_object convolution = add_convolution(graph, of->problem->operation);
    int first = (int)nodes[of->direction].first;
    const cuda_graph_attribute attributes[] = {
        ONE_OF((cudnnBackendAttributeName_t)first, CUDNN_TYPE_FLOAT, &alpha),
        ONE_OF((cudnnBackendAttributeName_t)(first + 1), CUDNN_TYPE_FLOAT, &beta),
        TENSOR((cudnnBackendAttributeName_t)(first + 2), convolution),
        TENSOR((cudnnBackendAttributeName_t)(first + 3), w),
        TENSOR((cudnnBackendAttributeName_t)(first + 4), x),
        TENSOR((cudnnBackendAttributeName_t)(first + 5), y)};
    cuda_graph_node(graph, nodes[of->direction].type, attributes, COUNT(attributes));
}

static cuda_graph_object add_inner(cuda_graph *graph, int64_t uid, cudnnDataType_t type,
                                   const cuda_problem *problem) {
    yoke_dims dims = problem->operation->input;
    return add_tensor(graph, uid, type, problem->rows, dims.channels, dims.height, dims.width);
}

/* What the convolution reads: the input, or the batch norm before applied to it: a factor and a
 * term for each channel, and the ReLU. */
static cuda_graph_object add_input(cuda_graph *graph, const cuda_problem *problem) {
    yoke_dims dims = problem->operation->input;
    cudnnDataType_t type = cuda_cudnn_type(problem->type);
    cuda_graph_object value = add_value(graph, X, problem, dims);
    if (!problem->norms.applies) return value;
    const cuda_graph_object scale = add_row(graph, BEFORE + CUDA_NORM_SCALE, type, dims);
    const cuda_graph_object shift = add_row(graph, BEFORE + CUDA_NORM_SHIFT, type, dims);
    value = cuda_graph_pointwise(graph, CUDNN_POINTWISE_MUL, (cuda_graph_operands){value, scale},
                                 add_inner(graph, INNER, CUDNN_DATA_FLOAT, problem));
    value = cuda_graph_pointwise(graph, CUDNN_POINTWISE_ADD, (cuda_graph_operands){value, shift},
                                 add_inner(graph, INNER + 1, CUDNN_DATA_FLOAT, problem));
    return cuda_graph_pointwise(graph, CUDNN_POINTWISE_RELU_FWD, (cuda_graph_operands){value},
                                add_inner(graph, INNER + 2, type, problem));
}

/* The sums of the output's channels, and of their squares. */
static void add_statistics(cuda_graph *graph, const cuda_problem *problem, cuda_graph_object y) {
    const cudnnGenStatsMode_t mode = CUDNN_GENSTATS_SUM_SQSUM;
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    yoke_dims dims = problem->operation->output;
    const cuda_graph_object sums = add_row(graph, BEHIND + CUDA_NORM_SUMS, type, dims);
    const cuda_graph_object squares = add_row(graph, BEHIND + CUDA_NORM_SQUARES, type, dims);
    const cuda_graph_attribute attributes[] = {
        ONE_OF(CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE, &mode),
        ONE_OF(CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_TYPE_DATA_TYPE, &type),
        TENSOR(CUDNN_ATTR_OPERATION_GENSTATS_XDESC, y),
        TENSOR(CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, sums),
        TENSOR(CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, squares)};
    cuda_graph_node(graph, CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR, attributes,
                    COUNT(attributes));
}

/* Backward of the norm before: `gradient`, of its output, becomes that of the value before its
 * ReLU, and its sums become the gradients of the norm's weight and bias. */
static void add_norm_backward(cuda_graph *graph, const cuda_problem *problem,
                              cuda_graph_object gradient) {
    yoke_dims dims = problem->operation->input;
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    cuda_graph_object rows[CUDA_NORM_ROWS];
    for (int i = 0; i < CUDA_NORM_ROWS; i++)
        rows[i] = reads_row(i) ? add_row(graph, BEFORE + i, type, dims) : NULL;
    const cuda_graph_object x = add_value(graph, NORMED, problem, dims);
    cuda_graph_object value = x;
    static const struct {
        cudnnPointwiseMode_t mode;
        int row;
    } steps[] = {{CUDNN_POINTWISE_SUB, CUDA_NORM_MEAN},
                 {CUDNN_POINTWISE_MUL, CUDA_NORM_RECIPROCAL},
                 {CUDNN_POINTWISE_MUL, CUDA_NORM_WEIGHT},
                 {CUDNN_POINTWISE_ADD, CUDA_NORM_BIAS}};
    for (int i = 0; i < (int)COUNT(steps); i++)
        value = cuda_graph_pointwise(graph, steps[i].mode,
                                     (cuda_graph_operands){value, rows[steps[i].row]},
                                     add_inner(graph, INNER + 1 + i, type, problem));
    const cuda_graph_object masked = cuda_graph_pointwise(graph, CUDNN_POINTWISE_RELU_BWD,
                                                          (cuda_graph_operands){value, gradient},
                                                          add_value(graph, X, problem, dims));
    const cuda_graph_attribute attributes[] = {
        ONE_OF(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MATH_PREC, CUDNN_TYPE_DATA_TYPE, &type),
        TENSOR(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MEAN_DESC, rows[CUDA_NORM_MEAN]),
        TENSOR(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_INVSTD_DESC, rows[CUDA_NORM_RECIPROCAL]),
        TENSOR(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_BN_SCALE_DESC, rows[CUDA_NORM_WEIGHT]),
        TENSOR(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_X_DESC, x),
        TENSOR(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DY_DESC, masked),
        TENSOR(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_SCALE_DESC, rows[CUDA_NORM_WEIGHT_GRADIENT]),
        TENSOR(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_BIAS_DESC, rows[CUDA_NORM_BIAS_GRADIENT]),
        TENSOR(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_DY_SCALE_DESC, rows[CUDA_NORM_UNREAD]),
        TENSOR(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_X_SCALE_DESC, rows[CUDA_NORM_UNREAD + 1]),
        TENSOR(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_BIAS, rows[CUDA_NORM_UNREAD + 2])};
    cuda_graph_node(graph, CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR, attributes,
                    COUNT(attributes));
}

static void describe(cuda_graph *graph, const description *of) {
    const cuda_problem *problem = of->problem;
    yoke_dims output = problem->operation->output;
    const cuda_graph_object w = add_filter(graph, problem);
    bool norm_backward = of->direction == CUDA_BACKWARD_DATA && problem->norms.applies;
    const cuda_graph_object x = norm_backward ? add_inner(graph, INNER, CUDNN_DATA_FLOAT, problem)
                                : of->direction == CUDA_BACKWARD_DATA
                                    ? add_value(graph, X, problem, problem->operation->input)
                                    : add_input(graph, problem);
    const cuda_graph_object y = add_value(graph, Y, problem, output);
    add_convolution_node(graph, of, x, w, y);
    if (norm_backward) add_norm_backward(graph, problem, x);
    /* cuDNN offers no plan that applies a norm and sums nothing up. */
    if (of->direction == CUDA_FORWARD && cuda_joins_norms(problem, CUDA_FORWARD))
        add_statistics(graph, problem, y);
}

/* Plans. */

/* By the text, or by the rank in the list where that is NULL. */
static yoke_status plan_graph(cuda_graph_plan **plan, const cuda_graph *graph,
                              const cuda_problem *problem, const char *text, int rank) {
    const cuda_graph_rules rules = {.workspace_limit = cuda_workspace_limit(problem),
                                    .atomics = problem->atomics,
                                    .float32 = problem->type == CUDA_FLOAT32,
                                    .tf32 = problem->tf32};
    cuda_graph_list list;
    if (text != NULL) return cuda_graph_plan_create(plan, graph, &rules, text);
    TRY(cuda_graph_offers(graph, &rules, rank + 1, &list));
    if (rank >= list.count) return YOKE_OK;
    return cuda_graph_plan_create(plan, graph, &rules, list.texts[rank]);
}

static yoke_status create_plan(cuda_graph_plan **plan, const description *of, const char *text,
                               int rank) {
    cuda_graph *graph;
    bool serves = false;
    *plan = NULL;
    TRY(cuda_graph_create(&graph, of->problem->device));
    if (graph == NULL) return YOKE_OK;
    describe(graph, of);
    yoke_status status = cuda_graph_finish(graph, &serves);
    if (status == YOKE_OK && serves) status = plan_graph(plan, graph, of->problem, text, rank);
    cuda_graph_destroy(graph);
    return status;
}

/* Running. */

static void give(operand_list *list, int64_t uid, void *pointer) {
    list->uids[list->count] = uid;
    list->pointers[list->count++] = pointer;
}

static void give_row(operand_list *list, int first, int row, void *saved, int channels) {
    give(list, first + row, CUDA_NORM_ROW(saved, row, channels));
}

/* The norms' rows, in memory of the norms' plans. `spare`: where sums go that nobody asked for. */
static void give_norms(const graph_pass *self, const cuda_operands *operands, void *spare,
                       operand_list *list) {
    if (self->direction == CUDA_FORWARD && self->norms.sums) {
        give_row(list, BEHIND, CUDA_NORM_SUMS, operands->norm_behind, self->behind);
        give_row(list, BEHIND, CUDA_NORM_SQUARES, operands->norm_behind, self->behind);
    } else if (self->direction == CUDA_FORWARD && self->norms.applies) {
        give(list, BEHIND + CUDA_NORM_SUMS, spare);
        give(list, BEHIND + CUDA_NORM_SQUARES, (float *)spare + self->behind);
    }
    if (!self->norms.applies) return;
    if (self->direction != CUDA_BACKWARD_DATA) {
        give_row(list, BEFORE, CUDA_NORM_SCALE, operands->norm_before, self->before);
        give_row(list, BEFORE, CUDA_NORM_SHIFT, operands->norm_before, self->before);
        return;
    }
    give(list, NORMED, (void *)operands->norm_input);
    for (int row = 0; row < CUDA_NORM_ROWS; row++)
        if (reads_row(row)) give_row(list, BEFORE, row, operands->norm_before, self->before);
}

static yoke_status graph_run(const cuda_pass *pass, const cuda_operands *operands) {
    const graph_pass *self = (const graph_pass *)pass;
    void *behind = (char *)operands->scratch + cuda_aligned(self->workspace_bytes);
    operand_list list = {.count = 0};
    give(&list, X, operands->input);
    give(&list, W, self->narrow_count > 0 ? behind : operands->weights);
    give(&list, Y, operands->output);
    give_norms(self, operands, behind, &list);
    bool adds = self->direction == CUDA_BACKWARD_DATA && operands->add;
    TRY(cuda_graph_plan_run(adds ? self->adding : self->plan, list.uids, list.pointers, list.count,
                            operands->scratch));
    if (self->narrow_count == 0) return YOKE_OK;
    TRY_CUDA(pass->device, cuda_run_widen(operands->weights, behind, self->type, self->narrow_count,
                                          pass->device->streams[YOKE_STREAM_COMPUTE]));
    return YOKE_OK;
}

/* Planning. */

static void size_pass(graph_pass *self, const cuda_problem *problem) {
    const yoke_operation *operation = problem->operation;
    self->workspace_bytes = cuda_graph_plan_workspace(self->plan);
    if (self->adding != NULL && cuda_graph_plan_workspace(self->adding) > self->workspace_bytes)
        self->workspace_bytes = cuda_graph_plan_workspace(self->adding);
    self->base.scratch_bytes = cuda_aligned(self->workspace_bytes);
    bool spare = self->norms.applies && !self->norms.sums && self->direction == CUDA_FORWARD;
    if (spare) self->base.scratch_bytes += 2 * (size_t)self->behind * sizeof(float);
    if (self->direction != CUDA_BACKWARD_WEIGHTS || problem->type == CUDA_FLOAT32) return;
    self->type = problem->type;
    self->narrow_count =
        (size_t)operation->output.channels *
        (size_t)(operation->input.channels / operation->groups) *
        (size_t)(yoke_taps_down(operation).kernel * yoke_taps_across(operation).kernel);
    self->base.scratch_bytes += cuda_aligned(self->narrow_count * sizeof(uint16_t));
}

/* A pass that adds needs its plan for both: a gradient's first part is not added. */
static yoke_status graph_build(graph_pass *self, const description *of, int rank, bool *available) {
    *available = false;
    TRY(create_plan(&self->plan, of, of->problem->configuration, rank));
    if (self->plan == NULL) return YOKE_OK;
    const char *text = cuda_graph_plan_text(self->plan);
    if (of->direction == CUDA_BACKWARD_DATA && of->problem->adds) {
        description adding = *of;
        adding.adds = true;
        TRY(create_plan(&self->adding, &adding, text, rank));
        if (self->adding == NULL) return YOKE_OK;
    }
    snprintf(self->base.configuration, sizeof self->base.configuration, "%s", text);
    size_pass(self, of->problem);
    *available = true;
    return YOKE_OK;
}

yoke_status cuda_graph_pass(cuda_pass **pass, const cuda_problem *problem, cuda_direction direction,
                            int variant) {
    const description of = {.problem = problem, .direction = direction};
    *pass = NULL;
    graph_pass *self = yoke_calloc(1, sizeof *self);
    if (self == NULL) return FAIL_MEMORY(sizeof *self, "a pass");
    self->base.device = problem->device;
    self->base.run = graph_run;
    self->base.destroy = graph_destroy;
    self->direction = direction;
    self->norms = problem->norms;
    self->before = problem->operation->input.channels;
    self->behind = problem->operation->output.channels;
    bool available;
    yoke_status status = graph_build(self, &of, variant, &available);
    if (status == YOKE_OK && available)
        *pass = &self->base;
    else
        graph_destroy(&self->base);
    return status;
}

#endif
