/* SPDX-License-Identifier: Apache-2.0 */
/* cuDNN's backend: tensors, and the graphs that nodes make of them. */
#include <algorithm>

#include "simcuda/cudnn_backend.h"

namespace sim::backend {
namespace {

cudnnStatus_t complete_tensor(Backend &backend) {
    Tensor tensor{read<int64_t>(backend, CUDNN_ATTR_TENSOR_UNIQUE_ID, 0),
                  read(backend, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_DATA_FLOAT),
                  read_all<int64_t>(backend, CUDNN_ATTR_TENSOR_DIMENSIONS),
                  read_all<int64_t>(backend, CUDNN_ATTR_TENSOR_STRIDES),
                  read<int64_t>(backend, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1),
                  read(backend, CUDNN_ATTR_TENSOR_IS_VIRTUAL, false),
                  read(backend, CUDNN_ATTR_TENSOR_IS_BY_VALUE, false)};
    if (tensor.dims.size() != tensor.strides.size())
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "a stride for each dimension");
    for (size_t i = 0; i < tensor.dims.size(); i++)
        if (tensor.dims[i] < 1 || tensor.strides[i] < 1)
            return cudnn_refuse(CUDNN_STATUS_BAD_PARAM, "a dimension or a stride is below 1");
    if (tensor.alignment < 1 || (tensor.alignment & (tensor.alignment - 1)) != 0)
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM, "an alignment is not a power of two");
    if (type_bytes(tensor.type) == 0)
        return cudnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, "the simulator has no such type of data");
    if (tensor.by_value && (tensor.is_virtual || bytes(tensor) != type_bytes(tensor.type)))
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM, "a value is one element, and not virtual");
    backend.tensor = std::make_shared<const Tensor>(tensor);
    return CUDNN_STATUS_SUCCESS;
}

bool same(const Tensor &a, const Tensor &b) {
    return a.type == b.type && a.dims == b.dims && a.strides == b.strides &&
           a.is_virtual == b.is_virtual && a.by_value == b.by_value;
}

/* Every uid has one meaning. */
bool collect(const std::vector<Tensor> &tensors, Graph *graph) {
    for (const Tensor &tensor : tensors)
        if (!same(graph->tensors.emplace(tensor.uid, tensor).first->second, tensor)) return false;
    return true;
}

bool has(const std::vector<Tensor> &tensors, int64_t uid) {
    return std::any_of(tensors.begin(), tensors.end(),
                       [uid](const Tensor &tensor) { return tensor.uid == uid; });
}

/* One node writes a tensor; what is virtual has such a node and one that reads it. */
cudnnStatus_t check_flow(const Graph &graph) {
    for (const auto &[uid, tensor] : graph.tensors) {
        int64_t name = uid;
        auto reads = [name](const Node &node) { return has(node.reads, name); };
        auto writes = [name](const Node &node) { return has(node.writes, name); };
        auto writers = std::count_if(graph.nodes.begin(), graph.nodes.end(), writes);
        bool read = std::any_of(graph.nodes.begin(), graph.nodes.end(), reads);
        if (writers > 1 || (writers > 0 && tensor.by_value))
            return cudnn_refuse(CUDNN_STATUS_BAD_PARAM, "two nodes write a tensor, or one a value");
        if (tensor.is_virtual && (writers == 0 || !read))
            return cudnn_refuse(CUDNN_STATUS_BAD_PARAM, "a virtual tensor joins no two nodes");
    }
    return CUDNN_STATUS_SUCCESS;
}

/* Whether another node has yet to write what this one reads. */
bool waits(const std::vector<Node> &rest, size_t which) {
    for (size_t i = 0; i < rest.size(); i++)
        for (const Tensor &written : rest[i].writes)
            if (i != which && has(rest[which].reads, written.uid)) return true;
    return false;
}

bool sort(std::vector<Node> rest, std::vector<Node> *sorted) {
    while (!rest.empty()) {
        size_t next = 0;
        while (next < rest.size() && waits(rest, next))
            next++;
        if (next == rest.size()) return false;
        sorted->push_back(rest[next]);
        rest.erase(rest.begin() + (std::ptrdiff_t)next);
    }
    return true;
}

cudnnStatus_t complete_graph(Backend &backend) {
    auto graph = std::make_shared<Graph>();
    std::vector<Node> nodes;
    for (const Backend *operation :
         read_all<const Backend *>(backend, CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
        if (operation->node == nullptr)
            return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "not an operation");
        nodes.push_back(*operation->node);
        if (!collect(operation->node->reads, graph.get()) ||
            !collect(operation->node->writes, graph.get()))
            return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES,
                                "two tensors have one identity");
    }
    if (!sort(nodes, &graph->nodes))
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM, "nodes wait for each other");
    if (cudnnStatus_t status = check_flow(*graph)) return status;
    graph->pattern = pattern_of(*graph);
    graph->partial_bytes = partial_bytes(*graph);
    backend.graph = graph;
    return CUDNN_STATUS_SUCCESS;
}

} // namespace

size_t type_bytes(cudnnDataType_t type) {
    switch (type) {
    case CUDNN_DATA_INT64:
        return 8;
    case CUDNN_DATA_FLOAT:
    case CUDNN_DATA_INT32:
        return 4;
    case CUDNN_DATA_BFLOAT16:
    case CUDNN_DATA_HALF:
        return 2;
    case CUDNN_DATA_BOOLEAN:
        return 1;
    default:
        return 0;
    }
}

size_t bytes(const Tensor &tensor) {
    int64_t last = 0;
    for (size_t i = 0; i < tensor.dims.size(); i++)
        last += (tensor.dims[i] - 1) * tensor.strides[i];
    return (size_t)(last + 1) * type_bytes(tensor.type);
}

std::vector<Kind> graph_kinds() {
    return {{CUDNN_BACKEND_TENSOR_DESCRIPTOR,
             {{CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, 1},
              {CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 1, CUDNN_DIM_MAX},
              {CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 1, CUDNN_DIM_MAX},
              {CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, 1},
              {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, 1},
              {CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 0, 1},
              {CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 0, 1}},
             complete_tensor},
            {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR,
             {{CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, 1},
              {CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 64}},
             complete_graph}};
}

} // namespace sim::backend
