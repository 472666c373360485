/* SPDX-License-Identifier: Apache-2.0 */
/* Two-dimensional convolution (cross-correlation, as cuDNN and PyTorch mean it) with float sums. */
#ifndef SIMCUDA_CONVOLUTION_H
#define SIMCUDA_CONVOLUTION_H

#include "simcuda/library.h"

namespace sim::conv {

/* Four dimensions, in the order of their names, and elements from one to the next in each. */
enum { N, C, H, W };
struct Tensor {
    Type type;
    size_t dims[4], strides[4];
};
Tensor packed(Type type, const int dims[4], bool channels_last);
size_t bytes(const Tensor &tensor); /* from the first element to behind the last */

struct Shape {
    Tensor x, w, y; /* w: [out channels, in channels / groups, height, width] */
    int pad[2], stride[2], dilation[2];
    size_t groups;
    bool channels_last; /* the filter's format */
    bool tf32;          /* float32 operands are rounded to TF32 */
};
/* For the count: how the products are computed. */
inline simcuda_arithmetic arithmetic(const Shape &shape) {
    if (shape.w.type == Type::bfloat16 || shape.w.type == Type::float16) return SIMCUDA_BFLOAT16;
    return shape.tf32 ? SIMCUDA_TF32 : SIMCUDA_FLOAT32;
}
/* Output dimensions as the rest of the shape makes them; false: it makes none. */
bool output_dims(const Shape &shape, size_t dims[4]);

struct Scale {
    float alpha, beta; /* result = alpha * value + beta * result */
};
/* `order` turns the order of the sums: algorithms that are not deterministic change it from call to
 * call. */
void forward(const Shape &shape, Scale scale, const void *x, const void *w, void *y);
void backward_data(const Shape &shape, Scale scale, const void *w, const void *dy, void *dx,
                   unsigned order);
void backward_filter(const Shape &shape, Scale scale, const void *x, const void *dy, void *dw,
                     unsigned order);

} // namespace sim::conv

#endif
