/* SPDX-License-Identifier: Apache-2.0 */
/* Convolution as a graph of cuDNN's backend, of one node. Values are NHWC, filters KRSC. */
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

enum { X = 1, W, Y, OPERANDS = 3 };

typedef struct graph_pass {
    cuda_pass base;
    cuda_graph_plan *plan;
    cuda_graph_plan *adding; /* to what the result holds; NULL: nobody asks for it */
    cuda_direction direction;
    size_t workspace_bytes; /* the narrow gradient of the weights follows it in scratch */
    size_t narrow_count;    /* elements of that gradient; 0: the plan writes the gradient itself */
    cuda_type type;         /* of that gradient */
} graph_pass;

static void graph_destroy(cuda_pass *pass) {
    graph_pass *self = (graph_pass *)pass;
    cuda_graph_plan_destroy(self->adding);
    cuda_graph_plan_destroy(self->plan);
    free(self);
}

/* Descriptions. */

typedef struct description {
    const cuda_problem *problem;
    cuda_direction direction;
    bool adds; /* to what the result holds */
} description;

/* Dims are [n, c, h, w], in memory channels last. */
static cuda_graph_object add_tensor(cuda_graph *graph, int64_t uid, cudnnDataType_t type, int64_t n,
                                    int64_t c, int64_t h, int64_t w) {
    const cuda_graph_values values = {.uid = uid,
                                      .type = type,
                                      .ndim = 4,
                                      .dims = {n, c, h, w},
                                      .strides = {c * h * w, 1, c * w, c}};
    return cuda_graph_tensor(graph, &values);
}

static cuda_graph_object add_value(cuda_graph *graph, int64_t uid, const cuda_problem *problem,
                                   yoke_dims dims) {
    return add_tensor(graph, uid, cuda_cudnn_type(problem->type), problem->rows, dims.channels,
                      dims.height, dims.width);
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
static void describe(cuda_graph *graph, const description *of) {
    static const struct {
        cudnnBackendDescriptorType_t type;
        cudnnBackendAttributeName_t first;
    } nodes[CUDA_DIRECTIONS] = {{CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA},
                                {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA},
                                {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA}};
    const yoke_operation *operation = of->problem->operation;
    const float alpha = 1, beta = of->adds ? 1 : 0;
    const cuda_graph_object x = add_value(graph, X, of->problem, operation->input);
    const cuda_graph_object w = add_filter(graph, of->problem);
    const cuda_graph_object y = add_value(graph, Y, of->problem, operation->output);
    const cuda_graph_object convolution = add_convolution(graph, operation);
    int first = (int)nodes[of->direction].first;
    const cuda_graph_attribute attributes[] = {
        {(cudnnBackendAttributeName_t)first, CUDNN_TYPE_FLOAT, 1, &alpha},
        {(cudnnBackendAttributeName_t)(first + 1), CUDNN_TYPE_FLOAT, 1, &beta},
        {(cudnnBackendAttributeName_t)(first + 2), CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &convolution},
        {(cudnnBackendAttributeName_t)(first + 3), CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &w},
        {(cudnnBackendAttributeName_t)(first + 4), CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x},
        {(cudnnBackendAttributeName_t)(first + 5), CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y}};
    cuda_graph_node(graph, nodes[of->direction].type, attributes,
                    sizeof attributes / sizeof attributes[0]);
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

static yoke_status graph_run(const cuda_pass *pass, const cuda_operands *operands) {
    static const int64_t uids[OPERANDS] = {X, W, Y};
    const graph_pass *self = (const graph_pass *)pass;
    void *narrow = (char *)operands->scratch + cuda_aligned(self->workspace_bytes);
    void *const pointers[OPERANDS] = {
        operands->input, self->narrow_count > 0 ? narrow : operands->weights, operands->output};
    bool adds = self->direction == CUDA_BACKWARD_DATA && operands->add;
    TRY(cuda_graph_plan_run(adds ? self->adding : self->plan, uids, pointers, OPERANDS,
                            operands->scratch));
    if (self->narrow_count == 0) return YOKE_OK;
    TRY_CUDA(pass->device, cuda_run_widen(operands->weights, narrow, self->type, self->narrow_count,
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
    graph_pass *self = calloc(1, sizeof *self);
    if (self == NULL) return FAIL_MEMORY(sizeof *self, "a pass");
    self->base.device = problem->device;
    self->base.run = graph_run;
    self->base.destroy = graph_destroy;
    self->direction = direction;
    bool available;
    yoke_status status = graph_build(self, &of, variant, &available);
    if (status == YOKE_OK && available)
        *pass = &self->base;
    else
        graph_destroy(&self->base);
    return status;
}

#endif
