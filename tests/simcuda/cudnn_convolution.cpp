/* SPDX-License-Identifier: Apache-2.0 */
/* cuDNN's legacy convolutions: algorithms, their workspaces, and the three passes. */
#include <cstring>

#include "simcuda/cudnn_objects.h"

using sim::cudnn_refuse;
using sim::conv::Shape;
using sim::conv::Tensor;

namespace {

/* The three descriptors and the convolution of a pass, whichever of them it writes. */
struct Pass {
    const cudnnTensorStruct *x;
    const cudnnFilterStruct *w;
    const cudnnConvolutionStruct *convolution;
    const cudnnTensorStruct *y;
};

cudnnStatus_t check_support(const Pass &pass) {
    const cudnnConvolutionStruct &convolution = *pass.convolution;
    if (convolution.mode != CUDNN_CROSS_CORRELATION || convolution.compute != CUDNN_DATA_FLOAT)
        return cudnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, "not a cross-correlation with float sums");
    sim::Type type = pass.w->tensor.type;
    if (pass.x->tensor.type != type || pass.y->tensor.type != type)
        return cudnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, "the operands differ in type");
    bool last = pass.w->channels_last;
    for (const cudnnTensorStruct *tensor : {pass.x, pass.y}) {
        const Tensor &t = tensor->tensor;
        if (t.dims[sim::conv::C] > 1 && (t.strides[sim::conv::C] == 1) != last &&
            t.dims[sim::conv::H] * t.dims[sim::conv::W] > 1)
            return cudnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, "filter and tensors differ in format");
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t read_shape(cudnnHandle_t handle, const Pass &pass, Shape *shape) {
    if (handle == nullptr) return cudnn_refuse(CUDNN_STATUS_NOT_INITIALIZED, "no handle");
    if (!pass.x || !pass.w || !pass.y || !pass.convolution)
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no descriptor");
    if (!pass.x->set || !pass.w->set || !pass.y->set || !pass.convolution->set)
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM, "a descriptor was not set");
    *shape = pass.convolution->shape;
    shape->x = pass.x->tensor;
    shape->w = pass.w->tensor;
    shape->y = pass.y->tensor;
    shape->channels_last = pass.w->channels_last;
    shape->tf32 = shape->w.type == sim::Type::float32 && pass.convolution->math != CUDNN_FMA_MATH;
    size_t dims[4];
    if (!sim::conv::output_dims(*shape, dims) || std::memcmp(dims, shape->y.dims, sizeof dims) != 0)
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM,
                            "the shapes of x, w and y do not belong together");
    return check_support(pass);
}

/* Algorithms. Numbers as cuDNN counts them; the first are offered first. */
enum { NCHW = 1, NHWC = 2, DILATED = 4, PLAIN_3X3 = 8 };
struct Algorithm {
    int number;
    bool deterministic;
    /* NCHW, NHWC: for filters of this format, 0: for none; DILATED: in NCHW also where taps lie
     * apart; PLAIN_3X3: for these alone. */
    unsigned serves;
    int workspaces; /* each as large as the filter in float */
};
/* Few serve filters in NHWC, those by matrix products: fewer than a real cuDNN, which since 7.3
 * also serves dilated ones there (release notes), so that Yoke's own way is needed. The list names
 * what serves nothing, too, as cuDNN's does. */
const Algorithm forward_algorithms[] = {
    {CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, true, NCHW | NHWC, 1},
    {CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED, true, NCHW | PLAIN_3X3, 2},
    {CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, true, NCHW | DILATED, 0},
    {CUDNN_CONVOLUTION_FWD_ALGO_DIRECT, true, 0, 0},
    {CUDNN_CONVOLUTION_FWD_ALGO_FFT, true, 0, 0},
};
const Algorithm data_algorithms[] = {
    {CUDNN_CONVOLUTION_BWD_DATA_ALGO_0, false, NCHW | DILATED, 0},
    {CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, true, NCHW | NHWC, 1},
    {CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED, true, NCHW | PLAIN_3X3, 2},
    {CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT, true, 0, 0},
};
const Algorithm filter_algorithms[] = {
    {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0, false, NCHW | NHWC | DILATED, 0},
    {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, true, NCHW | NHWC, 1},
    {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3, false, NCHW, 1},
    {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED, true, NCHW | PLAIN_3X3, 2},
    {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT, true, 0, 0},
};

bool serves(const Algorithm &algorithm, const Shape &s) {
    bool three = s.w.dims[sim::conv::H] == 3 && s.w.dims[sim::conv::W] == 3;
    bool dilated = s.dilation[0] * s.dilation[1] > 1;
    bool plain = three && s.groups == 1 && s.stride[0] * s.stride[1] == 1;
    if (!(algorithm.serves & (s.channels_last ? NHWC : NCHW))) return false;
    if (dilated && (s.channels_last || !(algorithm.serves & DILATED))) return false;
    return plain || !(algorithm.serves & PLAIN_3X3);
}

size_t workspace_bytes(const Algorithm &algorithm, const Shape &s) {
    size_t filter = s.w.dims[0] * s.w.dims[1] * s.w.dims[2] * s.w.dims[3];
    return (size_t)algorithm.workspaces * filter * sizeof(float);
}

template <size_t COUNT>
cudnnStatus_t find(const Algorithm (&algorithms)[COUNT], int number, const Shape &shape,
                   const Algorithm **found) {
    for (const Algorithm &algorithm : algorithms)
        if (algorithm.number == number && serves(algorithm, shape)) {
            *found = &algorithm;
            return CUDNN_STATUS_SUCCESS;
        }
    return cudnn_refuse(CUDNN_STATUS_NOT_SUPPORTED,
                        "the algorithm does not serve this convolution");
}

struct Room {
    int most, *count;
};
/* What serves first; the rest is listed with its refusal, as cuDNN does. */
template <typename Number, size_t COUNT, typename Perf>
cudnnStatus_t list(const Algorithm (&algorithms)[COUNT], const Shape &shape, cudnnMathType_t math,
                   Room room, Perf *results) {
    if (room.most < 1 || room.count == nullptr || results == nullptr)
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM, "no room for results");
    int *count = room.count;
    *count = 0;
    for (bool wanted : {true, false})
        for (const Algorithm &algorithm : algorithms) {
            if (serves(algorithm, shape) != wanted || *count == room.most) continue;
            Perf &result = results[(*count)++];
            result = Perf();
            result.algo = (Number)algorithm.number;
            result.status = wanted ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
            result.time = -1;
            result.memory = wanted ? workspace_bytes(algorithm, shape) : 0;
            result.determinism =
                algorithm.deterministic ? CUDNN_DETERMINISTIC : CUDNN_NON_DETERMINISTIC;
            result.mathType = math;
        }
    return CUDNN_STATUS_SUCCESS;
}

unsigned order_of(const Algorithm &algorithm) {
    return algorithm.deterministic ? 0 : sim::any_order();
}

struct Call {
    const char *name;
    cudnnHandle_t handle;
    const Shape &shape;
    const Algorithm &algorithm;
    const void *alpha, *beta;
    void *workspace;
    size_t bytes;
    std::vector<sim::Operand> operands; /* the last is the result */
};

/* Scaling is read now; the workspace is left dirty, as a GPU leaves it. */
template <typename Run> cudnnStatus_t queue(Call call, Run run) {
    const cudnnContext &handle = *call.handle;
    size_t needed = workspace_bytes(call.algorithm, call.shape);
    if (call.alpha == nullptr || call.beta == nullptr || call.bytes < needed)
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM, "no alpha or beta, or too small a workspace");
    for (const sim::Operand &operand : call.operands)
        if (operand.pointer == nullptr)
            return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, operand.what);
    if (needed > 0 && call.workspace == nullptr)
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no workspace");
    if (sim::current_device() != handle.device)
        sim::violation("%s with the handle of device %d while device %d is current", call.name,
                       handle.device, sim::current_device());
    sim::conv::Scale scale{*(const float *)call.alpha, *(const float *)call.beta};
    if (scale.beta != 0)
        call.operands.push_back({call.operands.back().pointer, call.operands.back().bytes, false,
                                 call.operands.back().what});
    void *workspace = call.workspace;
    if (needed > 0) call.operands.push_back({workspace, needed, true, "cuDNN workspace"});
    const size_t *w = call.shape.w.dims, *y = call.shape.y.dims;
    double operations = 2.0 * (double)(y[0] * y[2] * y[3] * w[0] * w[1] * w[2] * w[3]);
    double cost_ns = (double)sim::library_cost_ns(operations, 0);
    if (!call.algorithm.deterministic) cost_ns *= sim::ATOMICS_COST;
    cudaError_t error = sim::enqueue_on(handle.stream, call.name, (uint64_t)cost_ns, call.operands,
                                        {operations, sim::conv::arithmetic(call.shape)},
                                        [workspace, needed, run, scale] {
                                            if (needed > 0) std::memset(workspace, 0xff, needed);
                                            run(scale);
                                        });
    if (error == cudaSuccess) return CUDNN_STATUS_SUCCESS;
    return cudnn_refuse(CUDNN_STATUS_EXECUTION_FAILED, cudaGetErrorName(error));
}

sim::Operand reads(const Tensor &tensor, const void *pointer, const char *what) {
    return {pointer, sim::conv::bytes(tensor), false, what};
}

sim::Operand writes(const Tensor &tensor, const void *pointer, const char *what) {
    return {pointer, sim::conv::bytes(tensor), true, what};
}

} // namespace

extern "C" {

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(
    cudnnHandle_t handle, cudnnTensorDescriptor_t x_as, cudnnFilterDescriptor_t w_as,
    cudnnConvolutionDescriptor_t convolution, cudnnTensorDescriptor_t y_as, int most, int *count,
    cudnnConvolutionFwdAlgoPerf_t *results) {
    FAULT("cudnnGetConvolutionForwardAlgorithm_v7", CUDNN_STATUS_NOT_SUPPORTED);
    Shape shape;
    if (cudnnStatus_t status = read_shape(handle, {x_as, w_as, convolution, y_as}, &shape))
        return status;
    return list<cudnnConvolutionFwdAlgo_t>(forward_algorithms, shape, convolution->math,
                                           {most, count}, results);
}

cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(
    cudnnHandle_t handle, cudnnTensorDescriptor_t x_as, cudnnFilterDescriptor_t w_as,
    cudnnConvolutionDescriptor_t convolution, cudnnTensorDescriptor_t y_as,
    cudnnConvolutionFwdAlgo_t number, size_t *bytes) {
    FAULT("cudnnGetConvolutionForwardWorkspaceSize", CUDNN_STATUS_NOT_SUPPORTED);
    Shape shape;
    const Algorithm *algorithm = nullptr;
    if (cudnnStatus_t status = read_shape(handle, {x_as, w_as, convolution, y_as}, &shape))
        return status;
    if (cudnnStatus_t status = find(forward_algorithms, number, shape, &algorithm)) return status;
    *bytes = workspace_bytes(*algorithm, shape);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void *alpha,
                                      cudnnTensorDescriptor_t x_as, const void *x,
                                      cudnnFilterDescriptor_t w_as, const void *w,
                                      cudnnConvolutionDescriptor_t convolution,
                                      cudnnConvolutionFwdAlgo_t number, void *workspace,
                                      size_t bytes, const void *beta, cudnnTensorDescriptor_t y_as,
                                      void *y) {
    FAULT("cudnnConvolutionForward", CUDNN_STATUS_EXECUTION_FAILED);
    Shape shape;
    const Algorithm *algorithm = nullptr;
    if (cudnnStatus_t status = read_shape(handle, {x_as, w_as, convolution, y_as}, &shape))
        return status;
    if (cudnnStatus_t status = find(forward_algorithms, number, shape, &algorithm)) return status;
    return queue({"cudnnConvolutionForward",
                  handle,
                  shape,
                  *algorithm,
                  alpha,
                  beta,
                  workspace,
                  bytes,
                  {reads(shape.x, x, "cudnnConvolutionForward x"),
                   reads(shape.w, w, "cudnnConvolutionForward w"),
                   writes(shape.y, y, "cudnnConvolutionForward y")}},
                 [=](sim::conv::Scale scale) { sim::conv::forward(shape, scale, x, w, y); });
}

cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(
    cudnnHandle_t handle, cudnnFilterDescriptor_t w_as, cudnnTensorDescriptor_t dy_as,
    cudnnConvolutionDescriptor_t convolution, cudnnTensorDescriptor_t dx_as, int most, int *count,
    cudnnConvolutionBwdDataAlgoPerf_t *results) {
    FAULT("cudnnGetConvolutionBackwardDataAlgorithm_v7", CUDNN_STATUS_NOT_SUPPORTED);
    Shape shape;
    if (cudnnStatus_t status = read_shape(handle, {dx_as, w_as, convolution, dy_as}, &shape))
        return status;
    return list<cudnnConvolutionBwdDataAlgo_t>(data_algorithms, shape, convolution->math,
                                               {most, count}, results);
}

cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(
    cudnnHandle_t handle, cudnnFilterDescriptor_t w_as, cudnnTensorDescriptor_t dy_as,
    cudnnConvolutionDescriptor_t convolution, cudnnTensorDescriptor_t dx_as,
    cudnnConvolutionBwdDataAlgo_t number, size_t *bytes) {
    FAULT("cudnnGetConvolutionBackwardDataWorkspaceSize", CUDNN_STATUS_NOT_SUPPORTED);
    Shape shape;
    const Algorithm *algorithm = nullptr;
    if (cudnnStatus_t status = read_shape(handle, {dx_as, w_as, convolution, dy_as}, &shape))
        return status;
    if (cudnnStatus_t status = find(data_algorithms, number, shape, &algorithm)) return status;
    *bytes = workspace_bytes(*algorithm, shape);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void *alpha,
                                           cudnnFilterDescriptor_t w_as, const void *w,
                                           cudnnTensorDescriptor_t dy_as, const void *dy,
                                           cudnnConvolutionDescriptor_t convolution,
                                           cudnnConvolutionBwdDataAlgo_t number, void *workspace,
                                           size_t bytes, const void *beta,
                                           cudnnTensorDescriptor_t dx_as, void *dx) {
    FAULT("cudnnConvolutionBackwardData", CUDNN_STATUS_EXECUTION_FAILED);
    Shape shape;
    const Algorithm *algorithm = nullptr;
    if (cudnnStatus_t status = read_shape(handle, {dx_as, w_as, convolution, dy_as}, &shape))
        return status;
    if (cudnnStatus_t status = find(data_algorithms, number, shape, &algorithm)) return status;
    return queue(
        {"cudnnConvolutionBackwardData",
         handle,
         shape,
         *algorithm,
         alpha,
         beta,
         workspace,
         bytes,
         {reads(shape.w, w, "cudnnConvolutionBackwardData w"),
          reads(shape.y, dy, "cudnnConvolutionBackwardData dy"),
          writes(shape.x, dx, "cudnnConvolutionBackwardData dx")}},
        [=](sim::conv::Scale scale) { sim::conv::backward_data(shape, scale, w, dy, dx, order_of(*algorithm)); });
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(
    cudnnHandle_t handle, cudnnTensorDescriptor_t x_as, cudnnTensorDescriptor_t dy_as,
    cudnnConvolutionDescriptor_t convolution, cudnnFilterDescriptor_t dw_as, int most, int *count,
    cudnnConvolutionBwdFilterAlgoPerf_t *results) {
    FAULT("cudnnGetConvolutionBackwardFilterAlgorithm_v7", CUDNN_STATUS_NOT_SUPPORTED);
    Shape shape;
    if (cudnnStatus_t status = read_shape(handle, {x_as, dw_as, convolution, dy_as}, &shape))
        return status;
    return list<cudnnConvolutionBwdFilterAlgo_t>(filter_algorithms, shape, convolution->math,
                                                 {most, count}, results);
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(
    cudnnHandle_t handle, cudnnTensorDescriptor_t x_as, cudnnTensorDescriptor_t dy_as,
    cudnnConvolutionDescriptor_t convolution, cudnnFilterDescriptor_t dw_as,
    cudnnConvolutionBwdFilterAlgo_t number, size_t *bytes) {
    FAULT("cudnnGetConvolutionBackwardFilterWorkspaceSize", CUDNN_STATUS_NOT_SUPPORTED);
    Shape shape;
    const Algorithm *algorithm = nullptr;
    if (cudnnStatus_t status = read_shape(handle, {x_as, dw_as, convolution, dy_as}, &shape))
        return status;
    if (cudnnStatus_t status = find(filter_algorithms, number, shape, &algorithm)) return status;
    *bytes = workspace_bytes(*algorithm, shape);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void *alpha,
                                             cudnnTensorDescriptor_t x_as, const void *x,
                                             cudnnTensorDescriptor_t dy_as, const void *dy,
                                             cudnnConvolutionDescriptor_t convolution,
                                             cudnnConvolutionBwdFilterAlgo_t number,
                                             void *workspace, size_t bytes, const void *beta,
                                             cudnnFilterDescriptor_t dw_as, void *dw) {
    FAULT("cudnnConvolutionBackwardFilter", CUDNN_STATUS_EXECUTION_FAILED);
    Shape shape;
    const Algorithm *algorithm = nullptr;
    if (cudnnStatus_t status = read_shape(handle, {x_as, dw_as, convolution, dy_as}, &shape))
        return status;
    if (cudnnStatus_t status = find(filter_algorithms, number, shape, &algorithm)) return status;
    return queue({"cudnnConvolutionBackwardFilter",
                  handle,
                  shape,
                  *algorithm,
                  alpha,
                  beta,
                  workspace,
                  bytes,
                  {reads(shape.x, x, "cudnnConvolutionBackwardFilter x"),
                   reads(shape.y, dy, "cudnnConvolutionBackwardFilter dy"),
                   writes(shape.w, dw, "cudnnConvolutionBackwardFilter dw")}},
                 [=](sim::conv::Scale scale) {
                     sim::conv::backward_filter(shape, scale, x, dy, dw, order_of(*algorithm));
                 });
}
}
