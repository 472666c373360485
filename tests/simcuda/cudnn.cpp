/* SPDX-License-Identifier: Apache-2.0 */
/* cuDNN 9: handles and the descriptors of its legacy convolutions. */
#include <cstdio>

#include "simcuda/cudnn_objects.h"

static thread_local char last_error[256];

cudnnStatus_t sim::cudnn_refuse(cudnnStatus_t status, const char *why) {
    std::snprintf(last_error, sizeof last_error, "%s", why);
    return status;
}

using sim::cudnn_refuse;
using sim::conv::Shape;
using sim::conv::Tensor;

namespace {

template <typename Object> cudnnStatus_t create(Object **to, const char *kind) {
    if (to == nullptr) return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no descriptor");
    *to = new Object();
    sim::adopt(*to, kind);
    return CUDNN_STATUS_SUCCESS;
}

/* A destroy that fails has destroyed all the same: what else could its caller do. */
template <typename Object> cudnnStatus_t destroy(const char *call, Object *object) {
    int code = sim::fault(call, CUDNN_STATUS_INTERNAL_ERROR);
    if (object != nullptr) sim::disown(object);
    delete object;
    return (cudnnStatus_t)code;
}

cudnnStatus_t read_type(cudnnDataType_t type, sim::Type *to) {
    if (type != CUDNN_DATA_FLOAT && type != CUDNN_DATA_BFLOAT16 && type != CUDNN_DATA_HALF)
        return cudnn_refuse(CUDNN_STATUS_NOT_SUPPORTED,
                            "the simulation has float, bfloat16 and half");
    *to = type == CUDNN_DATA_FLOAT  ? sim::Type::float32
          : type == CUDNN_DATA_HALF ? sim::Type::float16
                                    : sim::Type::bfloat16;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t check_numbers(const int *numbers, int count, int least, const char *why) {
    for (int i = 0; i < count; i++)
        if (numbers[i] < least) return cudnn_refuse(CUDNN_STATUS_BAD_PARAM, why);
    return CUDNN_STATUS_SUCCESS;
}

/* A packed tensor of a format. */
cudnnStatus_t read_packed(cudnnTensorFormat_t format, cudnnDataType_t data_type, const int dims[4],
                          Tensor *to) {
    sim::Type type;
    if (cudnnStatus_t status = read_type(data_type, &type)) return status;
    if (format != CUDNN_TENSOR_NCHW && format != CUDNN_TENSOR_NHWC)
        return cudnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, "the format is neither NCHW nor NHWC");
    if (cudnnStatus_t status = check_numbers(dims, 4, 1, "a dimension is below 1")) return status;
    *to = sim::conv::packed(type, dims, format == CUDNN_TENSOR_NHWC);
    return CUDNN_STATUS_SUCCESS;
}

} // namespace

extern "C" {

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle) {
    FAULT("cudnnCreate", CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED);
    if (cudnnStatus_t status = create(handle, "cuDNN handle")) return status;
    (*handle)->device = sim::current_device();
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
    return destroy("cudnnDestroy", handle);
}

size_t cudnnGetVersion(void) {
    return CUDNN_VERSION;
}

size_t cudnnGetCudartVersion(void) {
    return CUDART_VERSION;
}

const char *cudnnGetErrorString(cudnnStatus_t status) {
    switch (status) {
    case CUDNN_STATUS_SUCCESS:
        return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_NOT_INITIALIZED:
        return "CUDNN_STATUS_NOT_INITIALIZED";
    case CUDNN_STATUS_BAD_PARAM:
        return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_BAD_PARAM_NULL_POINTER:
        return "CUDNN_STATUS_BAD_PARAM_NULL_POINTER";
    case CUDNN_STATUS_NOT_SUPPORTED:
        return "CUDNN_STATUS_NOT_SUPPORTED";
    case CUDNN_STATUS_INTERNAL_ERROR:
        return "CUDNN_STATUS_INTERNAL_ERROR";
    case CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED:
        return "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED";
    case CUDNN_STATUS_EXECUTION_FAILED:
        return "CUDNN_STATUS_EXECUTION_FAILED";
    default:
        return "CUDNN_STATUS_OTHER";
    }
}

void cudnnGetLastErrorString(char *message, size_t bytes) {
    if (message != nullptr && bytes > 0) std::snprintf(message, bytes, "%s", last_error);
    last_error[0] = '\0';
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
    FAULT("cudnnSetStream", CUDNN_STATUS_BAD_PARAM);
    if (handle == nullptr) return cudnn_refuse(CUDNN_STATUS_NOT_INITIALIZED, "no handle");
    if (stream != nullptr && sim::stream_device(stream) != handle->device)
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH, "a stream of another device");
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t *stream) {
    FAULT("cudnnGetStream", CUDNN_STATUS_BAD_PARAM);
    if (handle == nullptr) return cudnn_refuse(CUDNN_STATUS_NOT_INITIALIZED, "no handle");
    *stream = handle->stream;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t *tensor) {
    FAULT("cudnnCreateTensorDescriptor", CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED);
    return create(tensor, "cuDNN tensor descriptor");
}

cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t tensor) {
    return destroy("cudnnDestroyTensorDescriptor", tensor);
}

cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t *filter) {
    FAULT("cudnnCreateFilterDescriptor", CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED);
    return create(filter, "cuDNN filter descriptor");
}

cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t filter) {
    return destroy("cudnnDestroyFilterDescriptor", filter);
}

cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t *convolution) {
    FAULT("cudnnCreateConvolutionDescriptor", CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED);
    return create(convolution, "cuDNN convolution descriptor");
}

cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t convolution) {
    return destroy("cudnnDestroyConvolutionDescriptor", convolution);
}

cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t tensor, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w) {
    FAULT("cudnnSetTensor4dDescriptor", CUDNN_STATUS_BAD_PARAM);
    if (tensor == nullptr)
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no descriptor");
    const int dims[] = {n, c, h, w};
    cudnnStatus_t status = read_packed(format, type, dims, &tensor->tensor);
    tensor->set = status == CUDNN_STATUS_SUCCESS;
    return status;
}

cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t tensor, cudnnDataType_t type,
                                         int count, const int dims[], const int strides[]) {
    FAULT("cudnnSetTensorNdDescriptor", CUDNN_STATUS_BAD_PARAM);
    if (tensor == nullptr || dims == nullptr || strides == nullptr)
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no descriptor");
    if (count != 4) return cudnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, "tensors have four dimensions");
    if (cudnnStatus_t status = read_packed(CUDNN_TENSOR_NCHW, type, dims, &tensor->tensor))
        return status;
    if (cudnnStatus_t status = check_numbers(strides, 4, 1, "a stride is below 1")) return status;
    for (int axis = 0; axis < 4; axis++)
        tensor->tensor.strides[axis] = (size_t)strides[axis];
    tensor->set = true;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetTensor4dDescriptorEx(cudnnTensorDescriptor_t tensor, cudnnDataType_t type,
                                           int n, int c, int h, int w, int n_stride, int c_stride,
                                           int h_stride, int w_stride) {
    const int dims[] = {n, c, h, w}, strides[] = {n_stride, c_stride, h_stride, w_stride};
    return cudnnSetTensorNdDescriptor(tensor, type, 4, dims, strides);
}

cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t filter, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w) {
    FAULT("cudnnSetFilter4dDescriptor", CUDNN_STATUS_BAD_PARAM);
    if (filter == nullptr)
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no descriptor");
    const int dims[] = {k, c, h, w};
    cudnnStatus_t status = read_packed(format, type, dims, &filter->tensor);
    filter->channels_last = format == CUDNN_TENSOR_NHWC;
    filter->set = status == CUDNN_STATUS_SUCCESS;
    return status;
}

cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t convolution, int pad_h,
                                              int pad_w, int stride_h, int stride_w, int dilation_h,
                                              int dilation_w, cudnnConvolutionMode_t mode,
                                              cudnnDataType_t compute) {
    FAULT("cudnnSetConvolution2dDescriptor", CUDNN_STATUS_BAD_PARAM);
    if (convolution == nullptr)
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no descriptor");
    const int pads[] = {pad_h, pad_w}, steps[] = {stride_h, stride_w, dilation_h, dilation_w};
    if (cudnnStatus_t status = check_numbers(pads, 2, 0, "a pad is below 0")) return status;
    if (cudnnStatus_t status = check_numbers(steps, 4, 1, "a stride is below 1")) return status;
    *convolution = cudnnConvolutionStruct();
    convolution->shape.pad[0] = pad_h;
    convolution->shape.pad[1] = pad_w;
    convolution->shape.stride[0] = stride_h;
    convolution->shape.stride[1] = stride_w;
    convolution->shape.dilation[0] = dilation_h;
    convolution->shape.dilation[1] = dilation_w;
    convolution->shape.groups = 1;
    convolution->mode = mode;
    convolution->compute = compute;
    convolution->set = true;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t convolution, int groups) {
    FAULT("cudnnSetConvolutionGroupCount", CUDNN_STATUS_BAD_PARAM);
    if (convolution == nullptr || groups < 1)
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM, "no descriptor, or groups below 1");
    convolution->shape.groups = (size_t)groups;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t convolution,
                                          cudnnMathType_t math) {
    FAULT("cudnnSetConvolutionMathType", CUDNN_STATUS_BAD_PARAM);
    if (convolution == nullptr)
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no descriptor");
    convolution->math = math;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolution2dForwardOutputDim(cudnnConvolutionDescriptor_t convolution,
                                                    cudnnTensorDescriptor_t x,
                                                    cudnnFilterDescriptor_t w, int *n, int *c,
                                                    int *h, int *width) {
    FAULT("cudnnGetConvolution2dForwardOutputDim", CUDNN_STATUS_BAD_PARAM);
    if (!convolution || !x || !w || !convolution->set || !x->set || !w->set)
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM, "a descriptor was not set");
    Shape shape = convolution->shape;
    shape.x = x->tensor;
    shape.w = w->tensor;
    size_t dims[4];
    if (!sim::conv::output_dims(shape, dims))
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM, "the shapes of x and w do not belong together");
    *n = (int)dims[0], *c = (int)dims[1], *h = (int)dims[2], *width = (int)dims[3];
    return CUDNN_STATUS_SUCCESS;
}
}
