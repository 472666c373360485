/* SPDX-License-Identifier: Apache-2.0 */
/* cuDNN's objects, for cudnn.cpp, which makes them, and cudnn_convolution.cpp, which uses them. */
#ifndef SIMCUDA_CUDNN_OBJECTS_H
#define SIMCUDA_CUDNN_OBJECTS_H

#include <cudnn.h>

#include "simcuda/convolution.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* the whole legacy API is */

struct cudnnContext {
    int device;
    cudaStream_t stream;
};
struct cudnnTensorStruct {
    bool set;
    sim::conv::Tensor tensor;
};
struct cudnnFilterStruct {
    bool set, channels_last;
    sim::conv::Tensor tensor;
};
struct cudnnConvolutionStruct {
    bool set;
    sim::conv::Shape shape; /* pad, stride, dilation, groups */
    cudnnConvolutionMode_t mode;
    cudnnDataType_t compute;
    cudnnMathType_t math;
};

namespace sim {

/* Keeps the reason for cudnnGetLastErrorString. */
cudnnStatus_t cudnn_refuse(cudnnStatus_t status, const char *why);

} // namespace sim

#define FAULT(name, natural)                                                                       \
    if (int code_ = sim::fault(name, natural))                                                     \
    return sim::cudnn_refuse((cudnnStatus_t)code_, name " was made to fail")

#endif
