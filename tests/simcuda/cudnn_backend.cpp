/* SPDX-License-Identifier: Apache-2.0 */
/* cuDNN's backend: descriptors with attributes, and graphs of one convolution. Mode A offers two
 * engines, mode B the second of them and one more; they differ in their workspaces. */
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "simcuda/cudnn_objects.h"

using sim::cudnn_refuse;
using sim::conv::Shape;
using sim::conv::Tensor;

namespace {

struct Attribute {
    cudnnBackendAttributeType_t type;
    std::vector<char> bytes;
};

/* A graph once it is finalized: what it computes, and the identities of x, w and y. Heuristics,
 * configurations and plans keep it when the graph is destroyed. */
struct Computation {
    int direction; /* 0 forward, 1 data, 2 filter */
    Shape shape;
    int64_t uids[3];
};

struct Backend {
    cudnnBackendDescriptorType_t type;
    bool final;
    std::map<int, Attribute> attributes;
    int64_t engine; /* of an engine, a configuration or a plan */
    std::shared_ptr<const Computation> computation;
};

constexpr int64_t ENGINE_WORKSPACE = 4096; /* times the engine's index */

size_t bytes_of(cudnnBackendAttributeType_t type) {
    switch (type) {
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
        return 8;
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR:
        return 1;
    default:
        return 4;
    }
}

template <typename T>
bool read(const Backend &from, cudnnBackendAttributeName_t name, T *values, size_t count = 1) {
    auto found = from.attributes.find(name);
    if (found == from.attributes.end() || found->second.bytes.size() != count * sizeof(T))
        return false;
    std::memcpy(values, found->second.bytes.data(), count * sizeof(T));
    return true;
}

/* A descriptor that another one names. */
const Backend *follow(const Backend &from, cudnnBackendAttributeName_t name) {
    Backend *to = nullptr;
    return read(from, name, &to) ? to : nullptr;
}

/* The node of a graph, with its attributes in one order. */
struct Node {
    int direction; /* 0 forward, 1 data, 2 filter */
    const Backend *convolution, *w, *x, *y;
};

bool find_node(const Backend &graph, Node *node) {
    const Backend *operation = follow(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);
    if (operation == nullptr) return false;
    int first = 0;
    switch (operation->type) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
        *node = {0, nullptr, nullptr, nullptr, nullptr};
        first = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC;
        break;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
        *node = {1, nullptr, nullptr, nullptr, nullptr};
        first = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC;
        break;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
        *node = {2, nullptr, nullptr, nullptr, nullptr};
        first = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC;
        break;
    default:
        return false;
    }
    const Backend **const members[] = {&node->convolution, &node->w, &node->x, &node->y};
    for (int i = 0; i < 4; i++) /* the header numbers them one after the other */
        *members[i] = follow(*operation, (cudnnBackendAttributeName_t)(first + i));
    return node->convolution && node->w && node->x && node->y;
}

bool read_tensor(const Backend &from, Tensor *tensor) {
    cudnnDataType_t type;
    int64_t dims[4], strides[4];
    if (!read(from, CUDNN_ATTR_TENSOR_DATA_TYPE, &type) ||
        !read(from, CUDNN_ATTR_TENSOR_DIMENSIONS, dims, 4) ||
        !read(from, CUDNN_ATTR_TENSOR_STRIDES, strides, 4))
        return false;
    tensor->type = type == CUDNN_DATA_BFLOAT16 ? sim::Type::bfloat16
                   : type == CUDNN_DATA_HALF   ? sim::Type::float16
                                               : sim::Type::float32;
    for (int i = 0; i < 4; i++) {
        tensor->dims[i] = (size_t)dims[i];
        tensor->strides[i] = (size_t)strides[i];
    }
    return true;
}

bool read_pair(const Backend &from, cudnnBackendAttributeName_t name, int to[2]) {
    int64_t pair[2];
    if (!read(from, name, pair, 2)) return false;
    to[0] = (int)pair[0], to[1] = (int)pair[1];
    return true;
}

bool read_shape(const Node &node, Shape *shape) {
    size_t dims[4];
    *shape = Shape();
    shape->groups = 1;
    return read_tensor(*node.x, &shape->x) && read_tensor(*node.w, &shape->w) &&
           read_tensor(*node.y, &shape->y) &&
           read_pair(*node.convolution, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, shape->pad) &&
           read_pair(*node.convolution, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, shape->stride) &&
           read_pair(*node.convolution, CUDNN_ATTR_CONVOLUTION_DILATIONS, shape->dilation) &&
           sim::conv::output_dims(*shape, dims) &&
           std::memcmp(dims, shape->y.dims, sizeof dims) == 0;
}

bool compute(Backend &graph) {
    Node node;
    Computation computation;
    if (!find_node(graph, &node) || !read_shape(node, &computation.shape)) return false;
    computation.direction = node.direction;
    const Backend *const tensors[] = {node.x, node.w, node.y};
    for (int i = 0; i < 3; i++)
        if (!read(*tensors[i], CUDNN_ATTR_TENSOR_UNIQUE_ID, &computation.uids[i])) return false;
    graph.computation = std::make_shared<const Computation>(computation);
    return true;
}

bool inherit(Backend &backend, cudnnBackendAttributeName_t name) {
    const Backend *from = follow(backend, name);
    if (from == nullptr || from->computation == nullptr) return false;
    backend.computation = from->computation;
    backend.engine = from->engine;
    return true;
}

/* What finalizing checks: that a graph is a convolution, and that the others have one. */
bool complete(Backend &backend) {
    switch (backend.type) {
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
        return compute(backend);
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
        return inherit(backend, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
        return inherit(backend, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    default:
        return true;
    }
}

cudnnStatus_t offer(const Backend &heuristics, int64_t most, int64_t *count, void *results) {
    cudnnBackendHeurMode_t mode;
    if (!read(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, &mode) || count == nullptr)
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM, "heuristics without a mode");
    Backend *const *configurations = static_cast<Backend *const *>(results);
    for (*count = 0; *count < 2 && *count < most; ++*count) {
        configurations[*count]->engine = (mode == CUDNN_HEUR_MODE_A ? 1 : 2) + *count;
        configurations[*count]->computation = heuristics.computation;
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t answer(int64_t value, int64_t *count, void *to) {
    if (count != nullptr) *count = 1;
    std::memcpy(to, &value, sizeof value);
    return CUDNN_STATUS_SUCCESS;
}

struct Pointers {
    void *tensors[3], *workspace; /* x, w, y */
};

/* Pointers come in the order of the pack's identities. */
bool read_pack(const Computation &computation, const Backend &pack, Pointers *pointers) {
    int64_t uids[3];
    void *given[3];
    if (!read(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, uids, 3) ||
        !read(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, given, 3) ||
        !read(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, &pointers->workspace))
        return false;
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 3; k++)
            if (computation.uids[i] == uids[k]) pointers->tensors[i] = given[k];
    return pointers->tensors[0] && pointers->tensors[1] && pointers->tensors[2];
}

cudnnStatus_t queue(const cudnnContext &handle, const Backend &plan, const Pointers &to) {
    const Computation &computation = *plan.computation;
    const Shape shape = computation.shape;
    const Tensor *const tensors[] = {&shape.x, &shape.w, &shape.y};
    const int written[] = {2, 0, 1};
    int direction = computation.direction;
    std::vector<sim::Operand> operands;
    for (int i = 0; i < 3; i++)
        operands.push_back({to.tensors[i], sim::conv::bytes(*tensors[i]), i == written[direction],
                            "cudnnBackendExecute"});
    size_t workspace = (size_t)(plan.engine * ENGINE_WORKSPACE);
    operands.push_back({to.workspace, workspace, true, "cuDNN workspace"});
    const size_t *w = shape.w.dims, *y = shape.y.dims;
    double operations = 2.0 * (double)(y[0] * y[2] * y[3] * w[0] * w[1] * w[2] * w[3]);
    cudaError_t error = sim::enqueue_on(
        handle.stream, "cudnnBackendExecute", sim::library_cost_ns(operations, 0), operands,
        {operations, sim::conv::arithmetic(shape)}, [=] {
            const sim::conv::Scale scale{1, 0};
            std::memset(to.workspace, 0xff, workspace);
            if (direction == 0)
                sim::conv::forward(shape, scale, to.tensors[0], to.tensors[1], to.tensors[2]);
            else if (direction == 1)
                sim::conv::backward_data(shape, scale, to.tensors[1], to.tensors[2], to.tensors[0],
                                         0);
            else
                sim::conv::backward_filter(shape, scale, to.tensors[0], to.tensors[2],
                                           to.tensors[1], 0);
        });
    if (error == cudaSuccess) return CUDNN_STATUS_SUCCESS;
    return cudnn_refuse(CUDNN_STATUS_EXECUTION_FAILED, cudaGetErrorName(error));
}

} // namespace

extern "C" {

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t *to) {
    FAULT("cudnnBackendCreateDescriptor", CUDNN_STATUS_NOT_SUPPORTED);
    if (to == nullptr) return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no descriptor");
    *to = new Backend{type, false, {}, 0, nullptr};
    sim::adopt(*to, "cuDNN backend descriptor");
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
    int code = sim::fault("cudnnBackendDestroyDescriptor", CUDNN_STATUS_INTERNAL_ERROR);
    if (descriptor != nullptr) sim::disown(descriptor);
    delete static_cast<Backend *>(descriptor);
    return (cudnnStatus_t)code;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void *values) {
    FAULT("cudnnBackendSetAttribute", CUDNN_STATUS_NOT_SUPPORTED);
    Backend *backend = static_cast<Backend *>(descriptor);
    if (backend == nullptr || values == nullptr || count < 1)
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no descriptor or no values");
    if (backend->final)
        return cudnn_refuse(CUDNN_STATUS_NOT_INITIALIZED, "a finalized descriptor was changed");
    const char *bytes = static_cast<const char *>(values);
    backend->attributes[name] = {type,
                                 std::vector<char>(bytes, bytes + (size_t)count * bytes_of(type))};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
    FAULT("cudnnBackendFinalize", CUDNN_STATUS_NOT_SUPPORTED);
    Backend *backend = static_cast<Backend *>(descriptor);
    if (backend == nullptr)
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no descriptor");
    if (!complete(*backend))
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM, "attributes are missing or contradict");
    backend->final = true;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t most,
                                       int64_t *count, void *values) {
    FAULT("cudnnBackendGetAttribute", CUDNN_STATUS_NOT_SUPPORTED);
    (void)type;
    Backend *backend = static_cast<Backend *>(descriptor);
    if (backend == nullptr || values == nullptr || most < 1)
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no descriptor or no room");
    switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
        return offer(*backend, most, count, values);
    case CUDNN_ATTR_ENGINECFG_ENGINE:
        (*static_cast<Backend **>(values))->engine = backend->engine;
        if (count != nullptr) *count = 1;
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_ENGINE_GLOBAL_INDEX:
        return answer(backend->engine, count, values);
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
        return answer(backend->engine * ENGINE_WORKSPACE, count, values);
    default:
        return cudnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, "the simulator answers no such attribute");
    }
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack) {
    FAULT("cudnnBackendExecute", CUDNN_STATUS_EXECUTION_FAILED);
    const Backend *running = static_cast<const Backend *>(plan);
    const Backend *with = static_cast<const Backend *>(pack);
    Pointers to{};
    if (handle == nullptr || running == nullptr || with == nullptr || !running->final)
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no handle, plan or pack");
    if (sim::current_device() != handle->device)
        sim::violation(
            "cudnnBackendExecute with the handle of device %d while device %d is current",
            handle->device, sim::current_device());
    if (running->computation == nullptr || !read_pack(*running->computation, *with, &to))
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM, "the plan or the pack is incomplete");
    return queue(*handle, *running, to);
}
}
