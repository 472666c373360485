/* SPDX-License-Identifier: Apache-2.0 */
/* cuDNN's backend: products of matrices, reductions and reshapes as nodes of a graph, and the
 * elements of a graph's tensors. */
#include <algorithm>
#include <cmath>

#include "simcuda/cudnn_backend.h"

namespace sim::backend {

bool has_values(const Tensor &tensor) {
    return tensor.type == CUDNN_DATA_FLOAT || tensor.type == CUDNN_DATA_BFLOAT16 ||
           tensor.type == CUDNN_DATA_HALF || tensor.type == CUDNN_DATA_INT32 ||
           tensor.type == CUDNN_DATA_BOOLEAN;
}

static Type floating(cudnnDataType_t type) {
    return type == CUDNN_DATA_BFLOAT16 ? Type::bfloat16
           : type == CUDNN_DATA_HALF   ? Type::float16
                                       : Type::float32;
}

float get_value(const Tensor &tensor, const void *values, size_t index) {
    switch (tensor.type) {
    case CUDNN_DATA_INT32:
        return (float)static_cast<const int32_t *>(values)[index];
    case CUDNN_DATA_BOOLEAN:
        return static_cast<const uint8_t *>(values)[index];
    default:
        return load(floating(tensor.type), values, index);
    }
}

void put_value(const Tensor &tensor, void *values, size_t index, float value) {
    switch (tensor.type) {
    case CUDNN_DATA_INT32:
        static_cast<int32_t *>(values)[index] = (int32_t)value;
        break;
    case CUDNN_DATA_BOOLEAN:
        static_cast<uint8_t *>(values)[index] = value != 0;
        break;
    default:
        store(floating(tensor.type), values, index, value);
    }
}

int64_t elements(const Tensor &tensor) {
    int64_t count = 1;
    for (int64_t dim : tensor.dims)
        count *= dim;
    return count;
}

size_t place(const Tensor &tensor, const Tensor &over, int64_t index) {
    int64_t at = 0;
    for (size_t i = over.dims.size(); i-- > 0; index /= over.dims[i])
        if (tensor.dims[i] > 1) at += index % over.dims[i] * tensor.strides[i];
    return (size_t)at;
}

namespace {

Node node_of(const std::vector<Tensor> &reads, const Tensor &written, double operations) {
    Node node = Node();
    node.reads = reads;
    node.writes = {written};
    node.operations = operations;
    return node;
}

cudnnStatus_t finish(Backend &backend, const Node &node) {
    for (const auto *tensors : {&node.reads, &node.writes})
        for (const Tensor &tensor : *tensors)
            if (tensor.dims.size() != 4 || !has_values(tensor))
                return cudnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, "not four dimensions of numbers");
    auto made = std::make_shared<Node>(node);
    made->type = backend.type;
    backend.node = made;
    return CUDNN_STATUS_SUCCESS;
}

/* c[.., m, n] = a[.., m, k] b[.., k, n]. */
void multiply(const Tensor &a, const Tensor &b, const Tensor &c, const Memory &memory) {
    const void *as = memory.at(a.uid), *bs = memory.at(b.uid);
    for (int64_t i = 0, count = elements(c); i < count; i++) {
        int64_t n = i % c.dims[3], m = i / c.dims[3] % c.dims[2], batch = i / c.dims[3] / c.dims[2];
        int64_t head = batch % c.dims[1], row = batch / c.dims[1];
        int64_t first = row * a.strides[0] + head * a.strides[1] + m * a.strides[2],
                second = row * b.strides[0] + head * b.strides[1] + n * b.strides[3];
        float sum = 0;
        for (int64_t k = 0; k < a.dims[3]; k++)
            sum += get_value(a, as, (size_t)(first + k * a.strides[3])) *
                   get_value(b, bs, (size_t)(second + k * b.strides[2]));
        put_value(c, memory.at(c.uid), place(c, c, i), sum);
    }
}

cudnnStatus_t complete_product(Backend &backend) {
    Tensor a, b, c;
    if (follow(backend, CUDNN_ATTR_OPERATION_MATMUL_DESC)->type != CUDNN_BACKEND_MATMUL_DESCRIPTOR)
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "not a product");
    if (cudnnStatus_t status = read_tensor(backend, CUDNN_ATTR_OPERATION_MATMUL_ADESC, &a))
        return status;
    if (cudnnStatus_t status = read_tensor(backend, CUDNN_ATTR_OPERATION_MATMUL_BDESC, &b))
        return status;
    if (cudnnStatus_t status = read_tensor(backend, CUDNN_ATTR_OPERATION_MATMUL_CDESC, &c))
        return status;
    Node node = node_of({a, b}, c, 0);
    if (cudnnStatus_t status = finish(backend, node)) return status;
    for (size_t i = 0; i < 2; i++)
        if (a.dims[i] != c.dims[i] || b.dims[i] != c.dims[i])
            return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "the batches differ");
    if (a.dims[2] != c.dims[2] || b.dims[3] != c.dims[3] || a.dims[3] != b.dims[2])
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "the matrices do not match");
    node.operations = 2.0 * (double)elements(c) * (double)a.dims[3];
    node.compute = [=](const Memory &memory, const Arithmetic &) { multiply(a, b, c, memory); };
    return finish(backend, node);
}

void reduce(bool largest, const Tensor &x, const Tensor &y, const Memory &memory) {
    const void *xs = memory.at(x.uid);
    std::vector<float> sums((size_t)elements(y), largest ? -INFINITY : 0);
    Tensor dense = y;
    for (size_t i = 4, stride = 1; i-- > 0; stride *= (size_t)y.dims[i])
        dense.strides[i] = (int64_t)stride;
    for (int64_t i = 0, count = elements(x); i < count; i++) {
        float value = get_value(x, xs, place(x, x, i)), &sum = sums[place(dense, x, i)];
        sum = largest ? std::fmax(sum, value) : sum + value;
    }
    for (int64_t i = 0, count = elements(y); i < count; i++)
        put_value(y, memory.at(y.uid), place(y, y, i), sums[(size_t)i]);
}

cudnnStatus_t complete_reduction(Backend &backend) {
    Tensor x, y;
    const Backend *reduction = follow(backend, CUDNN_ATTR_OPERATION_REDUCTION_DESC);
    if (reduction->type != CUDNN_BACKEND_REDUCTION_DESCRIPTOR)
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "not a reduction");
    if (cudnnStatus_t status = read_tensor(backend, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, &x))
        return status;
    if (cudnnStatus_t status = read_tensor(backend, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, &y))
        return status;
    auto how = read(*reduction, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_REDUCE_TENSOR_MIN);
    if (how != CUDNN_REDUCE_TENSOR_ADD && how != CUDNN_REDUCE_TENSOR_MAX)
        return cudnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, "the simulator has no such reduction");
    Node node = node_of({x}, y, 0);
    if (cudnnStatus_t status = finish(backend, node)) return status;
    for (size_t i = 0; i < 4; i++)
        if (y.dims[i] != 1 && y.dims[i] != x.dims[i])
            return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "the shapes differ");
    node.operations = (double)elements(x);
    node.compute = [=](const Memory &memory, const Arithmetic &) {
        reduce(how == CUDNN_REDUCE_TENSOR_MAX, x, y, memory);
    };
    return finish(backend, node);
}

/* An element stays where it lies in memory. */
void reshape(const Tensor &x, const Tensor &y, const Memory &memory) {
    for (int64_t i = 0, count = elements(y); i < count; i++) {
        size_t at = place(y, y, i);
        put_value(y, memory.at(y.uid), at, get_value(x, memory.at(x.uid), at));
    }
}

cudnnStatus_t complete_reshape(Backend &backend) {
    Tensor x, y;
    if (cudnnStatus_t status = read_tensor(backend, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, &x))
        return status;
    if (cudnnStatus_t status = read_tensor(backend, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, &y))
        return status;
    Node node = node_of({x}, y, 0);
    if (cudnnStatus_t status = finish(backend, node)) return status;
    if (elements(x) != elements(y) ||
        bytes(x) / type_bytes(x.type) != bytes(y) / type_bytes(y.type))
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "the elements' places differ");
    node.compute = [=](const Memory &memory, const Arithmetic &) { reshape(x, y, memory); };
    return finish(backend, node);
}

cudnnStatus_t complete_sums(Backend &backend) {
    bool product = backend.type == CUDNN_BACKEND_MATMUL_DESCRIPTOR;
    if (read(backend, product ? CUDNN_ATTR_MATMUL_COMP_TYPE : CUDNN_ATTR_REDUCTION_COMP_TYPE,
             CUDNN_DATA_HALF) == CUDNN_DATA_FLOAT)
        return CUDNN_STATUS_SUCCESS;
    return cudnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, "sums are not float");
}

} // namespace

std::vector<Kind> product_kinds() {
    auto tensor = [](cudnnBackendAttributeName_t name) {
        return Rule{name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1};
    };
    return {{CUDNN_BACKEND_MATMUL_DESCRIPTOR,
             {{CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, 1}},
             complete_sums},
            {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
             {tensor(CUDNN_ATTR_OPERATION_MATMUL_ADESC), tensor(CUDNN_ATTR_OPERATION_MATMUL_BDESC),
              tensor(CUDNN_ATTR_OPERATION_MATMUL_CDESC), tensor(CUDNN_ATTR_OPERATION_MATMUL_DESC)},
             complete_product},
            {CUDNN_BACKEND_REDUCTION_DESCRIPTOR,
             {{CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, 1},
              {CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, 1}},
             complete_sums},
            {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR,
             {tensor(CUDNN_ATTR_OPERATION_REDUCTION_XDESC),
              tensor(CUDNN_ATTR_OPERATION_REDUCTION_YDESC),
              tensor(CUDNN_ATTR_OPERATION_REDUCTION_DESC)},
             complete_reduction},
            {CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR,
             {tensor(CUDNN_ATTR_OPERATION_RESHAPE_XDESC),
              tensor(CUDNN_ATTR_OPERATION_RESHAPE_YDESC)},
             complete_reshape}};
}

} // namespace sim::backend
