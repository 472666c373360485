/* SPDX-License-Identifier: Apache-2.0 */
/* cuDNN's backend: operations on each element as nodes of a graph. Dimensions of 1 are repeated. */
#include <cmath>

#include "simcuda/cudnn_backend.h"

namespace sim::backend {
namespace {

struct Mode {
    cudnnPointwiseMode_t mode;
    int operands;
    float (*compute)(float x, float b, float t);
};
const Mode modes[] = {
    {CUDNN_POINTWISE_ADD, 2, [](float x, float b, float) { return x + b; }},
    {CUDNN_POINTWISE_MUL, 2, [](float x, float b, float) { return x * b; }},
    {CUDNN_POINTWISE_SUB, 2, [](float x, float b, float) { return x - b; }},
    {CUDNN_POINTWISE_DIV, 2, [](float x, float b, float) { return x / b; }},
    {CUDNN_POINTWISE_IDENTITY, 1, [](float x, float, float) { return x; }},
    {CUDNN_POINTWISE_EXP, 1, [](float x, float, float) { return std::exp(x); }},
    {CUDNN_POINTWISE_LOG, 1, [](float x, float, float) { return std::log(x); }},
    {CUDNN_POINTWISE_CMP_GE, 2, [](float x, float b, float) { return x >= b ? 1.0f : 0.0f; }},
    {CUDNN_POINTWISE_BINARY_SELECT, 3, [](float x, float b, float t) { return t != 0 ? x : b; }},
    {CUDNN_POINTWISE_GEN_INDEX, 1, nullptr}, /* of the element, along the axis */
    {CUDNN_POINTWISE_RELU_FWD, 1, [](float x, float, float) { return x < 0 ? 0 : x; }},
    {CUDNN_POINTWISE_RELU_BWD, 2, [](float dy, float x, float) { return x > 0 ? dy : 0; }}};

const Mode *find_mode(const Backend &pointwise) {
    auto mode = read(pointwise, CUDNN_ATTR_POINTWISE_MODE, CUDNN_POINTWISE_ADD);
    for (const Mode &known : modes)
        if (known.mode == mode) return &known;
    return nullptr;
}

cudnnStatus_t complete_pointwise(Backend &backend) {
    const Mode *mode = find_mode(backend);
    if (mode == nullptr)
        return cudnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, "the simulator has no such operation");
    bool compares = mode->mode == CUDNN_POINTWISE_CMP_GE;
    if (read(backend, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_HALF) !=
        (compares ? CUDNN_DATA_BOOLEAN : CUDNN_DATA_FLOAT))
        return cudnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, "not computed in float");
    int64_t axis = read<int64_t>(backend, CUDNN_ATTR_POINTWISE_AXIS, -1);
    if (mode->mode == CUDNN_POINTWISE_GEN_INDEX && axis < 0)
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM, "an index along no axis");
    return CUDNN_STATUS_SUCCESS;
}

bool repeats(const Tensor &tensor, const Tensor &over) {
    if (tensor.dims.size() != over.dims.size()) return false;
    for (size_t i = 0; i < over.dims.size(); i++)
        if (tensor.dims[i] != 1 && tensor.dims[i] != over.dims[i]) return false;
    return true;
}

struct Operands {
    Tensor x, b, t, y;
    size_t axis;
};

void run(const Mode &mode, const Operands &of, const Memory &memory) {
    const void *xs = memory.at(of.x.uid), *bs = memory.at(of.b.uid), *ts = memory.at(of.t.uid);
    int64_t behind = 1; /* elements of the dimensions behind the axis */
    for (size_t i = of.axis + 1; i < of.y.dims.size(); i++)
        behind *= of.y.dims[i];
    for (int64_t i = 0, count = elements(of.y); i < count; i++) {
        float value = mode.mode == CUDNN_POINTWISE_GEN_INDEX
                          ? (float)(i / behind % of.y.dims[of.axis])
                          : mode.compute(get_value(of.x, xs, place(of.x, of.y, i)),
                                         get_value(of.b, bs, place(of.b, of.y, i)),
                                         get_value(of.t, ts, place(of.t, of.y, i)));
        put_value(of.y, memory.at(of.y.uid), place(of.y, of.y, i), value);
    }
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
    Operands of;
    of.axis = mode.mode == CUDNN_POINTWISE_GEN_INDEX
                  ? (size_t)read<int64_t>(*pointwise, CUDNN_ATTR_POINTWISE_AXIS, 0)
                  : 0;
    if (cudnnStatus_t status = read_tensor(backend, names.x, &of.x)) return status;
    if (cudnnStatus_t status = read_tensor(backend, names.y, &of.y)) return status;
    of.b = of.t = of.x;
    if (mode.operands > 1)
        if (cudnnStatus_t status = read_tensor(backend, names.b, &of.b)) return status;
    if (mode.operands > 2)
        if (cudnnStatus_t status =
                read_tensor(backend, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, &of.t))
            return status;
    if (!repeats(of.x, of.y) || !repeats(of.b, of.y) || !repeats(of.t, of.y))
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "the operands' shapes differ");
    if (of.axis >= of.y.dims.size())
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM, "there is no such axis");
    for (const Tensor *tensor : {&of.x, &of.b, &of.t, &of.y})
        if (!has_values(*tensor))
            return cudnn_refuse(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, "not a type of numbers");
    Node node = Node();
    node.type = backend.type;
    node.mode = mode.mode;
    node.reads = {of.x};
    if (mode.operands > 1) node.reads.push_back(of.b);
    if (mode.operands > 2) node.reads.push_back(of.t);
    node.writes = {of.y};
    node.operations = (double)elements(of.y);
    node.compute = [=](const Memory &memory, const Arithmetic &) { run(mode, of, memory); };
    backend.node = std::make_shared<const Node>(node);
    return CUDNN_STATUS_SUCCESS;
}

} // namespace

std::vector<Kind> pointwise_kinds() {
    return {{CUDNN_BACKEND_POINTWISE_DESCRIPTOR,
             {{CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, 1},
              {CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, 1},
              {CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 0, 1}},
             complete_pointwise},
            {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
             {{CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},
              {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},
              {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, 1},
              {CUDNN_ATTR_OPERATION_POINTWISE_TDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, 1},
              {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, 1},
              {CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, 1},
              {CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, 1}},
             complete_operation}};
}

} // namespace sim::backend
