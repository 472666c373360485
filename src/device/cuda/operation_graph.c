/* SPDX-License-Identifier: Apache-2.0 */
/* Describes a graph to cuDNN's backend. Descriptors are made in the order of their use and
 * destroyed in the opposite one. */
#include "device/cuda/operation_graph.h"

#ifdef YOKE_HAS_CUDNN

#include <stdlib.h>

#define OBJECTS_LIMIT 96
#define NODES_LIMIT 32

struct cuda_graph {
    cuda_device *device;
    cuda_graph_object objects[OBJECTS_LIMIT], nodes[NODES_LIMIT];
    int object_count, node_count;
    cuda_graph_object operations; /* one of the objects; NULL until the graph is finished */
    cudnnStatus_t refusal;        /* the first */
    const char *refused;          /* the call that it is of */
    bool too_large;
};

/* Objects. */

cudnnStatus_t cuda_graph_make(cudnnBackendDescriptorType_t type,
                              const cuda_graph_attribute *attributes, size_t count,
                              cuda_graph_object *made, const char **call) {
    const cuda_cudnn_graph_calls *cudnn = cuda_cudnn_graph();
    *made = NULL;
    *call = "cudnnBackendCreateDescriptor";
    cudnnStatus_t status = cudnn->cudnnBackendCreateDescriptor(type, made);
    if (status != CUDNN_STATUS_SUCCESS) {
        *made = NULL;
        return status;
    }
    *call = "cudnnBackendSetAttribute";
    for (size_t i = 0; i < count && status == CUDNN_STATUS_SUCCESS; i++)
        status = cudnn->cudnnBackendSetAttribute(*made, attributes[i].name, attributes[i].type,
                                                 attributes[i].count, attributes[i].values);
    if (status == CUDNN_STATUS_SUCCESS) {
        *call = "cudnnBackendFinalize";
        status = cudnn->cudnnBackendFinalize(*made);
    }
    if (status == CUDNN_STATUS_SUCCESS) return status;
    cudnn->cudnnBackendDestroyDescriptor(*made);
    *made = NULL;
    return status;
}

cuda_graph_object cuda_graph_part(cuda_graph *graph, cudnnBackendDescriptorType_t type,
                                  const cuda_graph_attribute *attributes, size_t count) {
    cuda_graph_object *made = &graph->objects[graph->object_count];
    if (graph->object_count == OBJECTS_LIMIT) graph->too_large = true;
    if (graph->too_large || graph->refusal != CUDNN_STATUS_SUCCESS) return NULL;
    graph->refusal = cuda_graph_make(type, attributes, count, made, &graph->refused);
    if (graph->refusal != CUDNN_STATUS_SUCCESS) return NULL;
    graph->object_count++;
    return *made;
}

cuda_graph_object cuda_graph_tensor(cuda_graph *graph, const cuda_graph_values *values) {
    const int64_t alignment = values->alignment > 0 ? values->alignment : 16;
    const cuda_graph_attribute attributes[] = {
        {CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &values->type},
        {CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, values->ndim, values->dims},
        {CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, values->ndim, values->strides},
        {CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &values->uid},
        {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment},
        {CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &values->is_virtual},
        {CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &values->by_value}};
    return cuda_graph_part(graph, CUDNN_BACKEND_TENSOR_DESCRIPTOR, attributes,
                           sizeof attributes / sizeof attributes[0]);
}

void cuda_graph_node(cuda_graph *graph, cudnnBackendDescriptorType_t type,
                     const cuda_graph_attribute *attributes, size_t count) {
    if (graph->node_count == NODES_LIMIT) graph->too_large = true;
    cuda_graph_object node = cuda_graph_part(graph, type, attributes, count);
    if (node != NULL) graph->nodes[graph->node_count++] = node;
}

/* Graphs. */

yoke_status cuda_graph_create(cuda_graph **graph, cuda_device *device) {
    *graph = NULL;
    if (device->cudnn == NULL || cuda_cudnn_graph() == NULL) return YOKE_OK;
    *graph = yoke_calloc(1, sizeof **graph);
    if (*graph == NULL) return FAIL_MEMORY(sizeof **graph, "a graph of operations");
    (*graph)->device = device;
    return YOKE_OK;
}

void cuda_graph_destroy(cuda_graph *graph) {
    if (graph == NULL) return;
    for (int i = graph->object_count - 1; i >= 0; i--)
        cuda_cudnn_graph()->cudnnBackendDestroyDescriptor(graph->objects[i]);
    yoke_free(graph);
}

#define TENSOR(name, value)                                                                        \
    { name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &(value) }

cuda_graph_object cuda_graph_pointwise(cuda_graph *graph, cudnnPointwiseMode_t mode,
                                       cuda_graph_operands from, cuda_graph_object y) {
    const cudnnDataType_t type =
        mode == CUDNN_POINTWISE_CMP_GE ? CUDNN_DATA_BOOLEAN : CUDNN_DATA_FLOAT;
    const cuda_graph_attribute of[] = {
        {CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode},
        {CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type},
        {CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &from.axis}};
    const cuda_graph_object pointwise = cuda_graph_part(
        graph, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, of, mode == CUDNN_POINTWISE_GEN_INDEX ? 3 : 2);
    bool backward = mode == CUDNN_POINTWISE_RELU_BWD;
    const cuda_graph_attribute attributes[] = {
        TENSOR(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pointwise),
        TENSOR(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, from.x),
        TENSOR(backward ? CUDNN_ATTR_OPERATION_POINTWISE_DXDESC
                        : CUDNN_ATTR_OPERATION_POINTWISE_YDESC,
               y),
        TENSOR(backward ? CUDNN_ATTR_OPERATION_POINTWISE_DYDESC
                        : CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
               from.b),
        TENSOR(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, from.t)};
    cuda_graph_node(graph, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, attributes,
                    from.t != NULL   ? 5
                    : from.b != NULL ? 4
                                     : 3);
    return y;
}

yoke_status cuda_graph_finish(cuda_graph *graph, bool *serves) {
    const cuda_graph_attribute attributes[] = {
        {CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &graph->device->cudnn},
        {CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, graph->node_count,
         graph->nodes}};
    graph->operations = cuda_graph_part(graph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, attributes,
                                        sizeof attributes / sizeof attributes[0]);
    *serves = graph->operations != NULL;
    if (graph->too_large)
        return FAIL(YOKE_ERROR_INTERNAL, "%s: a graph has too many operations",
                    graph->device->base.name);
    if (*serves || cuda_graph_refuses(graph->refusal)) return YOKE_OK;
    return cuda_cudnn_failed(graph->device, graph->refusal, graph->refused);
}

cuda_device *cuda_graph_device(const cuda_graph *graph) {
    return graph->device;
}

cuda_graph_object cuda_graph_operations(const cuda_graph *graph) {
    return graph->operations;
}

#endif
