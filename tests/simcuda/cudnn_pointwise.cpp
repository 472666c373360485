/* SPDX-License-Identifier: Apache-2.0 */
/* cuDNN's backend: operations on each element as nodes of a graph. Dimensions of 1 are repeated. */
#include <algorithm>

#include "simcuda/cudnn_backend.h"

namespace sim::backend {
namespace {

struct Mode {
    cudnnPointwiseMode_t mode;
    bool two; /* operands */
    float (*compute)(float x, float b);
};
const Mode modes[] = {
    {CUDNN_POINTWISE_ADD, true, [](float x, float b) { return x + b; }},
    {CUDNN_POINTWISE_MUL, true, [](float x, float b) { return x * b; }},
    {CUDNN_POINTWISE_SUB, true, [](float x, float b) { return x - b; }},
    {CUDNN_POINTWISE_IDENTITY, false, [](float x, float) { return x; }},
    {CUDNN_POINTWISE_RELU_FWD, false, [](float x, float) { return x < 0 ? 0 : x; }},
    {CUDNN_POINTWISE_RELU_BWD, true, [](float dy, float x) { return x > 0 ? dy : 0; }}};

const Mode *find_mode(const Backend &pointwise) {
    auto mode = read(pointwise, CUDNN_ATTR_POINTWISE_MODE, CUDNN_POINTWISE_ADD);
    for (const Mode &known : modes)
        if (known.mode == mode) return &known;
    return nullptr;
}

cudnnStatus_t complete_pointwise(Backend &backend) {
    if (read(backend, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_HALF) != CUDNN_DATA_FLOAT)
        return cudnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, "not computed in float");
    if (find_mode(backend) != nullptr) return CUDNN_STATUS_SUCCESS;
    return cudnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, "the simulator has no such operation");
}

bool repeats(const Tensor &tensor, const Tensor &over) {
    if (tensor.dims.size() != over.dims.size()) return false;
    for (size_t i = 0; i < over.dims.size(); i++)
        if (tensor.dims[i] != 1 && tensor.dims[i] != over.dims[i]) return false;
    return true;
}

bool has_floats(const Tensor &tensor) {
    return tensor.type == CUDNN_DATA_FLOAT || tensor.type == CUDNN_DATA_BFLOAT16;
}

Type type_of(const Tensor &tensor) {
    return tensor.type == CUDNN_DATA_BFLOAT16 ? Type::bfloat16 : Type::float32;
}

/* Where element `index` of `over` lies in a tensor that is repeated over it. */
size_t place(const Tensor &tensor, const Tensor &over, int64_t index) {
    int64_t at = 0;
    for (size_t i = over.dims.size(); i-- > 0; index /= over.dims[i])
        if (tensor.dims[i] > 1) at += index % over.dims[i] * tensor.strides[i];
    return (size_t)at;
}

int64_t elements(const Tensor &tensor) {
    int64_t count = 1;
    for (int64_t dim : tensor.dims)
        count *= dim;
    return count;
}

void run(const Mode &mode, const Tensor &x, const Tensor &b, const Tensor &y,
         const Memory &memory) {
    const void *xs = memory.at(x.uid), *bs = memory.at(b.uid);
    for (int64_t i = 0, count = elements(y); i < count; i++)
        store(type_of(y), memory.at(y.uid), place(y, y, i),
              mode.compute(load(type_of(x), xs, place(x, y, i)),
                           load(type_of(b), bs, place(b, y, i))));
}

/* Backward of a mode names the gradient instead of y, and the one it reads instead of b. */
struct Names {
    int x, b, y;
};
Names names_of(const Mode &mode) {
    if (mode.mode == CUDNN_POINTWISE_RELU_BWD)
        return {CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
                CUDNN_ATTR_OPERATION_POINTWISE_DXDESC};
    return {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
            CUDNN_ATTR_OPERATION_POINTWISE_YDESC};
}

cudnnStatus_t complete_operation(Backend &backend) {
    const Backend *pointwise = follow(backend, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    if (pointwise->type != CUDNN_BACKEND_POINTWISE_DESCRIPTOR)
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "not a pointwise operation");
    const Mode mode = *find_mode(*pointwise);
    const Names names = names_of(mode);
    Tensor x, b, y;
    if (cudnnStatus_t status = read_tensor(backend, names.x, &x)) return status;
    if (cudnnStatus_t status = read_tensor(backend, names.y, &y)) return status;
    b = x;
    if (mode.two)
        if (cudnnStatus_t status = read_tensor(backend, names.b, &b)) return status;
    if (!repeats(x, y) || !repeats(b, y))
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "the operands' shapes differ");
    if (!has_floats(x) || !has_floats(b) || !has_floats(y))
        return cudnn_refuse(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, "not float or bfloat16");
    Node node;
    node.reads = {x};
    if (mode.two) node.reads.push_back(b);
    node.writes = {y};
    node.operations = (double)elements(y);
    node.mixed = node.dilated = node.reordered = false;
    node.compute = [=](const Memory &memory, const Arithmetic &) { run(mode, x, b, y, memory); };
    backend.node = std::make_shared<const Node>(node);
    return CUDNN_STATUS_SUCCESS;
}

} // namespace

std::vector<Kind> pointwise_kinds() {
    return {{CUDNN_BACKEND_POINTWISE_DESCRIPTOR,
             {{CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, 1},
              {CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, 1}},
             complete_pointwise},
            {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
             {{CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},
              {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},
              {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, 1},
              {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, 1},
              {CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, 1},
              {CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, 1}},
             complete_operation}};
}

} // namespace sim::backend
