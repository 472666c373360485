/* SPDX-License-Identifier: Apache-2.0 */
/* Convolution by cuDNN: NHWC values, KRSC filters, both in the compute type. cuDNN writes the
 * gradient of weights of 2 bytes in their type; it is widened to float32 afterwards. */
#include "device/cuda/operation_graph.h"
#include "device/cuda/weighted.h"

#ifndef YOKE_HAS_CUDNN

yoke_status cuda_cudnn_pass(cuda_pass **pass, const cuda_problem *problem, cuda_direction direction,
                            int variant) {
    (void)problem, (void)direction, (void)variant;
    *pass = NULL;
    return YOKE_OK;
}

#else

#include <stdlib.h>

#define RESULTS_LIMIT 16 /* algorithms times kinds of arithmetic */

typedef struct cudnn_pass {
    cuda_pass base;
    cudnnTensorDescriptor_t input, output;
    cudnnFilterDescriptor_t weights;
    cudnnConvolutionDescriptor_t convolution;
    int algorithm;
    cuda_type type;
    size_t workspace_bytes; /* the gradient of the weights of 2 bytes follows it in scratch */
    size_t narrow_count;    /* elements of that gradient; 0: cuDNN writes the gradient itself */
} cudnn_pass;

/* What cuDNN reports of one algorithm: the common fields of its three result types. */
typedef struct cudnn_result {
    int algorithm;
    cudnnStatus_t status;
    size_t memory;
    cudnnDeterminism_t determinism;
    cudnnMathType_t math;
} cudnn_result;

typedef struct cudnn_results {
    int count;
    cudnn_result list[RESULTS_LIMIT];
} cudnn_results;

static void cudnn_destroy(cuda_pass *pass) {
    cudnn_pass *self = (cudnn_pass *)pass;
    const cuda_cudnn_calls *cudnn = cuda_cudnn();
    if (self->convolution != NULL) cudnn->cudnnDestroyConvolutionDescriptor(self->convolution);
    if (self->weights != NULL) cudnn->cudnnDestroyFilterDescriptor(self->weights);
    if (self->output != NULL) cudnn->cudnnDestroyTensorDescriptor(self->output);
    if (self->input != NULL) cudnn->cudnnDestroyTensorDescriptor(self->input);
    yoke_free(self);
}

/* Descriptions. */

static yoke_status describe_value(const cuda_problem *problem, yoke_dims dims,
                                  cudnnTensorDescriptor_t *value) {
    TRY_CUDNN(problem->device, cuda_cudnn()->cudnnCreateTensorDescriptor(value));
    TRY_CUDNN(problem->device, cuda_cudnn()->cudnnSetTensor4dDescriptor(
                                   *value, CUDNN_TENSOR_NHWC, cuda_cudnn_type(problem->type),
                                   problem->rows, dims.channels, dims.height, dims.width));
    return YOKE_OK;
}

/* Strict float32 uses fused multiply-add and never rounds to TF32. */
static cudnnMathType_t math_of(const cuda_problem *problem) {
    bool strict = problem->type == CUDA_FLOAT32 && !problem->tf32;
    return strict ? CUDNN_FMA_MATH : CUDNN_TENSOR_OP_MATH;
}

/* Algorithms. */

#define COPY_RESULTS(found, results)                                                               \
    for (int i = 0; i < (found)->count; i++)                                                       \
        (found)->list[i] = (cudnn_result) {                                                        \
            (int)(results)[i].algo, (results)[i].status, (results)[i].memory,                      \
                (results)[i].determinism, (results)[i].mathType                                    \
        }

static cudnnStatus_t query_forward(const cudnn_pass *self, cudnnHandle_t handle,
                                   cudnn_results *found) {
    cudnnConvolutionFwdAlgoPerf_t results[RESULTS_LIMIT];
    cudnnStatus_t status = cuda_cudnn()->cudnnGetConvolutionForwardAlgorithm_v7(
        handle, self->input, self->weights, self->convolution, self->output, RESULTS_LIMIT,
        &found->count, results);
    if (status != CUDNN_STATUS_SUCCESS) return status;
    COPY_RESULTS(found, results);
    return status;
}

static cudnnStatus_t query_data(const cudnn_pass *self, cudnnHandle_t handle,
                                cudnn_results *found) {
    cudnnConvolutionBwdDataAlgoPerf_t results[RESULTS_LIMIT];
    cudnnStatus_t status = cuda_cudnn()->cudnnGetConvolutionBackwardDataAlgorithm_v7(
        handle, self->weights, self->output, self->convolution, self->input, RESULTS_LIMIT,
        &found->count, results);
    if (status != CUDNN_STATUS_SUCCESS) return status;
    COPY_RESULTS(found, results);
    return status;
}

static cudnnStatus_t query_weights(const cudnn_pass *self, cudnnHandle_t handle,
                                   cudnn_results *found) {
    cudnnConvolutionBwdFilterAlgoPerf_t results[RESULTS_LIMIT];
    cudnnStatus_t status = cuda_cudnn()->cudnnGetConvolutionBackwardFilterAlgorithm_v7(
        handle, self->input, self->output, self->convolution, self->weights, RESULTS_LIMIT,
        &found->count, results);
    if (status != CUDNN_STATUS_SUCCESS) return status;
    COPY_RESULTS(found, results);
    return status;
}

/* cuDNN lists an algorithm once for each kind of arithmetic, the fastest first. */
static const cudnn_result *find_result(const cudnn_results *found, const cuda_problem *problem,
                                       int algorithm) {
    for (int i = 0; i < found->count; i++) {
        const cudnn_result *result = &found->list[i];
        if (result->algorithm != algorithm || result->status != CUDNN_STATUS_SUCCESS) continue;
        if (result->memory > cuda_workspace_limit(problem)) continue;
        if (!problem->atomics && result->determinism != CUDNN_DETERMINISTIC) continue;
        return result;
    }
    return NULL;
}

static yoke_status use_result(cudnn_pass *self, const cuda_problem *problem,
                              const cudnn_result *result) {
    self->algorithm = result->algorithm;
    self->workspace_bytes = result->memory;
    self->base.scratch_bytes = cuda_aligned(result->memory);
    if (math_of(problem) == CUDNN_FMA_MATH) return YOKE_OK;
    TRY_CUDNN(self->base.device,
              cuda_cudnn()->cudnnSetConvolutionMathType(self->convolution, result->math));
    return YOKE_OK;
}

/* Running. */

static const float one = 1, zero = 0;

static yoke_status run_forward(const cuda_pass *pass, const cuda_operands *operands) {
    const cudnn_pass *self = (const cudnn_pass *)pass;
    TRY_CUDNN(pass->device,
              cuda_cudnn()->cudnnConvolutionForward(
                  pass->device->cudnn, &one, self->input, operands->input, self->weights,
                  operands->weights, self->convolution, (cudnnConvolutionFwdAlgo_t)self->algorithm,
                  operands->scratch, self->workspace_bytes, &zero, self->output, operands->output));
    return YOKE_OK;
}

static yoke_status run_data(const cuda_pass *pass, const cuda_operands *operands) {
    const cudnn_pass *self = (const cudnn_pass *)pass;
    TRY_CUDNN(pass->device, cuda_cudnn()->cudnnConvolutionBackwardData(
                                pass->device->cudnn, &one, self->weights, operands->weights,
                                self->output, operands->output, self->convolution,
                                (cudnnConvolutionBwdDataAlgo_t)self->algorithm, operands->scratch,
                                self->workspace_bytes, operands->add ? &one : &zero, self->input,
                                operands->input));
    return YOKE_OK;
}

static yoke_status run_weights(const cuda_pass *pass, const cuda_operands *operands) {
    const cudnn_pass *self = (const cudnn_pass *)pass;
    void *narrow = (char *)operands->scratch + cuda_aligned(self->workspace_bytes);
    void *gradient = self->narrow_count > 0 ? narrow : operands->weights;
    TRY_CUDNN(pass->device, cuda_cudnn()->cudnnConvolutionBackwardFilter(
                                pass->device->cudnn, &one, self->input, operands->input,
                                self->output, operands->output, self->convolution,
                                (cudnnConvolutionBwdFilterAlgo_t)self->algorithm, operands->scratch,
                                self->workspace_bytes, &zero, self->weights, gradient));
    if (self->narrow_count == 0) return YOKE_OK;
    TRY_CUDA(pass->device, cuda_run_widen(operands->weights, narrow, self->type, self->narrow_count,
                                          pass->device->streams[YOKE_STREAM_COMPUTE]));
    return YOKE_OK;
}

/* Planning. */

static yoke_status cudnn_build(cudnn_pass *self, const cuda_problem *problem,
                               cuda_direction direction, int variant, bool *available) {
    cudnn_results found;
    TRY(describe_value(problem, problem->operation->input, &self->input));
    TRY(describe_value(problem, problem->operation->output, &self->output));
    const yoke_operation *operation = problem->operation;
    yoke_taps down = yoke_taps_down(operation), across = yoke_taps_across(operation);
    TRY_CUDNN(problem->device, cuda_cudnn()->cudnnCreateFilterDescriptor(&self->weights));
    TRY_CUDNN(problem->device,
              cuda_cudnn()->cudnnSetFilter4dDescriptor(
                  self->weights, cuda_cudnn_type(problem->type), CUDNN_TENSOR_NHWC,
                  operation->output.channels, operation->input.channels / operation->groups,
                  down.kernel, across.kernel));
    TRY_CUDNN(problem->device, cuda_cudnn()->cudnnCreateConvolutionDescriptor(&self->convolution));
    TRY_CUDNN(problem->device,
              cuda_cudnn()->cudnnSetConvolution2dDescriptor(
                  self->convolution, down.padding, across.padding, down.stride, across.stride,
                  down.dilation, across.dilation, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
    TRY_CUDNN(problem->device,
              cuda_cudnn()->cudnnSetConvolutionGroupCount(self->convolution, operation->groups));
    TRY_CUDNN(problem->device,
              cuda_cudnn()->cudnnSetConvolutionMathType(self->convolution, math_of(problem)));
    static const struct {
        cudnnStatus_t (*query)(const cudnn_pass *, cudnnHandle_t, cudnn_results *);
        const char *call;
    } queries[CUDA_DIRECTIONS] = {{query_forward, "cudnnGetConvolutionForwardAlgorithm_v7"},
                                  {query_data, "cudnnGetConvolutionBackwardDataAlgorithm_v7"},
                                  {query_weights, "cudnnGetConvolutionBackwardFilterAlgorithm_v7"}};
    cuda_device *device = self->base.device;
    found = (cudnn_results){0};
    cudnnStatus_t status = queries[direction].query(self, device->cudnn, &found);
    if (CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED)
        found.count = 0;
    else if (status != CUDNN_STATUS_SUCCESS)
        return cuda_cudnn_failed(device, status, queries[direction].call);
    const cudnn_result *result = find_result(&found, problem, variant);
    *available = result != NULL;
    if (result == NULL) return YOKE_OK;
    TRY(use_result(self, problem, result));
    if (direction == CUDA_BACKWARD_WEIGHTS && problem->type != CUDA_FLOAT32) {
        self->narrow_count = (size_t)operation->output.channels *
                             (size_t)(operation->input.channels / operation->groups) *
                             (size_t)(down.kernel * across.kernel);
        self->base.scratch_bytes += cuda_aligned(self->narrow_count * sizeof(uint16_t));
    }
    return YOKE_OK;
}

yoke_status cuda_cudnn_pass(cuda_pass **pass, const cuda_problem *problem, cuda_direction direction,
                            int variant) {
    static yoke_status (*const runs[CUDA_DIRECTIONS])(const cuda_pass *, const cuda_operands *) = {
        run_forward, run_data, run_weights};
    *pass = NULL;
    if (problem->device->cudnn == NULL) return YOKE_OK;
    cudnn_pass *self = yoke_calloc(1, sizeof *self);
    if (self == NULL) return FAIL_MEMORY(sizeof *self, "a pass");
    self->base.device = problem->device;
    self->type = problem->type;
    self->base.run = runs[direction];
    self->base.destroy = cudnn_destroy;
    bool available = false;
    yoke_status status = cudnn_build(self, problem, direction, variant, &available);
    if (status == YOKE_OK && available)
        *pass = &self->base;
    else
        cudnn_destroy(&self->base);
    return status;
}

#endif
