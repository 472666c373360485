/* Convolution by cuDNN: NHWC values, KRSC filters, both in the compute type. Its gradient of
 * bfloat16 weights is bfloat16 and widened afterwards. */
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
    size_t workspace_bytes; /* in front of the narrow gradient of the weights */
    size_t narrow_count;    /* elements of that gradient; 0: cuDNN writes it where it belongs */
} cudnn_pass;

/* What cuDNN says of one algorithm; its three kinds of answer tell the same. */
typedef struct cudnn_offer {
    int algorithm;
    cudnnStatus_t status;
    size_t memory;
    cudnnDeterminism_t determinism;
    cudnnMathType_t math;
} cudnn_offer;

typedef struct cudnn_offers {
    int count;
    cudnn_offer list[RESULTS_LIMIT];
} cudnn_offers;

static void destroy(cuda_pass *pass) {
    cudnn_pass *self = (cudnn_pass *)pass;
    const cuda_cudnn_calls *cudnn = cuda_cudnn();
    if (self->convolution != NULL) cudnn->cudnnDestroyConvolutionDescriptor(self->convolution);
    if (self->weights != NULL) cudnn->cudnnDestroyFilterDescriptor(self->weights);
    if (self->output != NULL) cudnn->cudnnDestroyTensorDescriptor(self->output);
    if (self->input != NULL) cudnn->cudnnDestroyTensorDescriptor(self->input);
    free(self);
}

/* Descriptions. */

static cudnnDataType_t data_type(const cuda_problem *problem) {
    return problem->type == CUDA_BFLOAT16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
}

static yoke_status describe_value(const cuda_problem *problem, yoke_dims dims,
                                  cudnnTensorDescriptor_t *value) {
    TRY_CUDNN(problem->device, cuda_cudnn()->cudnnCreateTensorDescriptor(value));
    TRY_CUDNN(problem->device, cuda_cudnn()->cudnnSetTensor4dDescriptor(
                                   *value, CUDNN_TENSOR_NHWC, data_type(problem), problem->rows,
                                   dims.channels, dims.height, dims.width));
    return YOKE_OK;
}

static yoke_status describe_weights(const cuda_problem *problem, cudnnFilterDescriptor_t *weights) {
    const yoke_operation *operation = problem->operation;
    TRY_CUDNN(problem->device, cuda_cudnn()->cudnnCreateFilterDescriptor(weights));
    TRY_CUDNN(problem->device,
              cuda_cudnn()->cudnnSetFilter4dDescriptor(
                  *weights, data_type(problem), CUDNN_TENSOR_NHWC, operation->output.channels,
                  operation->input.channels / operation->groups, operation->kernel,
                  operation->kernel));
    return YOKE_OK;
}

/* Strict float32 is fused multiply-add: no rounding to TF32. */
static cudnnMathType_t math_of(const cuda_problem *problem) {
    bool strict = problem->type == CUDA_FLOAT32 && !problem->tf32;
    return strict ? CUDNN_FMA_MATH : CUDNN_TENSOR_OP_MATH;
}

static yoke_status describe_convolution(const cuda_problem *problem,
                                        cudnnConvolutionDescriptor_t *convolution) {
    const yoke_operation *operation = problem->operation;
    int padding = operation->padding, stride = operation->stride;
    TRY_CUDNN(problem->device, cuda_cudnn()->cudnnCreateConvolutionDescriptor(convolution));
    TRY_CUDNN(problem->device, cuda_cudnn()->cudnnSetConvolution2dDescriptor(
                                   *convolution, padding, padding, stride, stride, 1, 1,
                                   CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
    TRY_CUDNN(problem->device,
              cuda_cudnn()->cudnnSetConvolutionGroupCount(*convolution, operation->groups));
    TRY_CUDNN(problem->device,
              cuda_cudnn()->cudnnSetConvolutionMathType(*convolution, math_of(problem)));
    return YOKE_OK;
}

static yoke_status describe(cudnn_pass *self, const cuda_problem *problem) {
    TRY(describe_value(problem, problem->operation->input, &self->input));
    TRY(describe_value(problem, problem->operation->output, &self->output));
    TRY(describe_weights(problem, &self->weights));
    return describe_convolution(problem, &self->convolution);
}

/* Algorithms. */

#define COPY_OFFERS(offers, results)                                                               \
    for (int i = 0; i < (offers)->count; i++)                                                      \
        (offers)->list[i] = (cudnn_offer) {                                                        \
            (int)(results)[i].algo, (results)[i].status, (results)[i].memory,                      \
                (results)[i].determinism, (results)[i].mathType                                    \
        }

static cudnnStatus_t ask_forward(const cudnn_pass *self, cudnnHandle_t handle,
                                 cudnn_offers *offers) {
    cudnnConvolutionFwdAlgoPerf_t results[RESULTS_LIMIT];
    cudnnStatus_t status = cuda_cudnn()->cudnnGetConvolutionForwardAlgorithm_v7(
        handle, self->input, self->weights, self->convolution, self->output, RESULTS_LIMIT,
        &offers->count, results);
    if (status != CUDNN_STATUS_SUCCESS) return status;
    COPY_OFFERS(offers, results);
    return status;
}

static cudnnStatus_t ask_data(const cudnn_pass *self, cudnnHandle_t handle, cudnn_offers *offers) {
    cudnnConvolutionBwdDataAlgoPerf_t results[RESULTS_LIMIT];
    cudnnStatus_t status = cuda_cudnn()->cudnnGetConvolutionBackwardDataAlgorithm_v7(
        handle, self->weights, self->output, self->convolution, self->input, RESULTS_LIMIT,
        &offers->count, results);
    if (status != CUDNN_STATUS_SUCCESS) return status;
    COPY_OFFERS(offers, results);
    return status;
}

static cudnnStatus_t ask_weights(const cudnn_pass *self, cudnnHandle_t handle,
                                 cudnn_offers *offers) {
    cudnnConvolutionBwdFilterAlgoPerf_t results[RESULTS_LIMIT];
    cudnnStatus_t status = cuda_cudnn()->cudnnGetConvolutionBackwardFilterAlgorithm_v7(
        handle, self->input, self->output, self->convolution, self->weights, RESULTS_LIMIT,
        &offers->count, results);
    if (status != CUDNN_STATUS_SUCCESS) return status;
    COPY_OFFERS(offers, results);
    return status;
}

static yoke_status ask(const cudnn_pass *self, cuda_direction direction, cudnn_offers *offers) {
    static const struct {
        cudnnStatus_t (*ask)(const cudnn_pass *, cudnnHandle_t, cudnn_offers *);
        const char *call;
    } questions[CUDA_DIRECTIONS] = {{ask_forward, "cudnnGetConvolutionForwardAlgorithm_v7"},
                                    {ask_data, "cudnnGetConvolutionBackwardDataAlgorithm_v7"},
                                    {ask_weights, "cudnnGetConvolutionBackwardFilterAlgorithm_v7"}};
    cuda_device *device = self->base.device;
    *offers = (cudnn_offers){0};
    cudnnStatus_t status = questions[direction].ask(self, device->cudnn, offers);
    if (CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED)
        offers->count = 0;
    else if (status != CUDNN_STATUS_SUCCESS)
        return cuda_cudnn_failed(device, status, questions[direction].call);
    return YOKE_OK;
}

/* An algorithm may work in as much memory as twice its operands take, and in a workspace's worth in
 * any case. */
static size_t workspace_limit(const cuda_problem *problem) {
    const yoke_operation *operation = problem->operation;
    size_t values = cuda_dims_count(operation->input) + cuda_dims_count(operation->output);
    size_t bytes = 2 * (size_t)problem->rows * values * cuda_type_bytes(problem->type);
    return bytes > CUDA_WORKSPACE_BYTES ? bytes : CUDA_WORKSPACE_BYTES;
}

/* cuDNN lists the same algorithm once for each kind of arithmetic, the fastest first. */
static const cudnn_offer *find_offer(const cudnn_offers *offers, const cuda_problem *problem,
                                     int algorithm) {
    for (int i = 0; i < offers->count; i++) {
        const cudnn_offer *offer = &offers->list[i];
        if (offer->algorithm != algorithm || offer->status != CUDNN_STATUS_SUCCESS) continue;
        if (offer->memory > workspace_limit(problem)) continue;
        if (problem->deterministic && offer->determinism != CUDNN_DETERMINISTIC) continue;
        return offer;
    }
    return NULL;
}

static yoke_status take_offer(cudnn_pass *self, const cuda_problem *problem,
                              const cudnn_offer *offer) {
    self->algorithm = offer->algorithm;
    self->workspace_bytes = offer->memory;
    self->base.scratch_bytes = cuda_aligned(offer->memory);
    if (math_of(problem) == CUDNN_FMA_MATH) return YOKE_OK;
    TRY_CUDNN(self->base.device,
              cuda_cudnn()->cudnnSetConvolutionMathType(self->convolution, offer->math));
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
                                self->workspace_bytes, &zero, self->input, operands->input));
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
    TRY_CUDA(pass->device, cuda_run_widen(operands->weights, narrow, self->narrow_count,
                                          pass->device->streams[YOKE_STREAM_COMPUTE]));
    return YOKE_OK;
}

/* Planning. */

static void reserve_narrow(cudnn_pass *self, const cuda_problem *problem) {
    const yoke_operation *operation = problem->operation;
    self->narrow_count = (size_t)operation->output.channels *
                         (size_t)(operation->input.channels / operation->groups) *
                         (size_t)(operation->kernel * operation->kernel);
    self->base.scratch_bytes += cuda_aligned(self->narrow_count * sizeof(uint16_t));
}

static yoke_status build(cudnn_pass *self, const cuda_problem *problem, cuda_direction direction,
                         int variant, bool *offered) {
    cudnn_offers offers;
    TRY(describe(self, problem));
    TRY(ask(self, direction, &offers));
    const cudnn_offer *offer = find_offer(&offers, problem, variant);
    *offered = offer != NULL;
    if (offer == NULL) return YOKE_OK;
    TRY(take_offer(self, problem, offer));
    if (direction == CUDA_BACKWARD_WEIGHTS && problem->type == CUDA_BFLOAT16)
        reserve_narrow(self, problem);
    return YOKE_OK;
}

yoke_status cuda_cudnn_pass(cuda_pass **pass, const cuda_problem *problem, cuda_direction direction,
                            int variant) {
    static yoke_status (*const runs[CUDA_DIRECTIONS])(const cuda_pass *, const cuda_operands *) = {
        run_forward, run_data, run_weights};
    *pass = NULL;
    if (problem->device->cudnn == NULL) return YOKE_OK;
    cudnn_pass *self = calloc(1, sizeof *self);
    if (self == NULL) return FAIL_MEMORY(sizeof *self, "a pass");
    self->base.device = problem->device;
    self->base.run = runs[direction];
    self->base.destroy = destroy;
    bool offered = false;
    yoke_status status = build(self, problem, direction, variant, &offered);
    if (status == YOKE_OK && offered)
        *pass = &self->base;
    else
        destroy(&self->base);
    return status;
}

#endif
