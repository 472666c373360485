/* SPDX-License-Identifier: Apache-2.0 */
/* For the tests of the simulated cuDNN's backend: descriptors, graphs, plans and packs. */
#ifndef SIMCUDA_CUDNN_RIG_H
#define SIMCUDA_CUDNN_RIG_H

#include <cudnn.h>

#include "simcuda/rig.h"

namespace rig {

using Descriptor = cudnnBackendDescriptor_t;

inline std::string why() {
    char text[256];
    cudnnGetLastErrorString(text, sizeof text);
    return text;
}

inline void check(cudnnStatus_t status) {
    if (status != CUDNN_STATUS_SUCCESS)
        fail_msg("%s: %s", cudnnGetErrorString(status), why().c_str());
}

inline void refused(cudnnStatus_t status, cudnnStatus_t wanted, const char *reason) {
    assert_int_equal(status, wanted);
    std::string text = why();
    if (text.find(reason) == std::string::npos) fail_msg("%s", text.c_str());
}

/* Descriptors that are destroyed together. */
class Objects {
  public:
    ~Objects() {
        for (Descriptor made : all_)
            cudnnBackendDestroyDescriptor(made);
    }
    Descriptor create(cudnnBackendDescriptorType_t type) {
        Descriptor made = nullptr;
        check(cudnnBackendCreateDescriptor(type, &made));
        all_.push_back(made);
        return made;
    }

  private:
    std::vector<Descriptor> all_;
};

template <typename T>
void set(Descriptor to, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
         std::vector<T> values) {
    check(cudnnBackendSetAttribute(to, name, type, (int64_t)values.size(), values.data()));
}

inline void refer(Descriptor to, cudnnBackendAttributeName_t name, std::vector<Descriptor> others) {
    set(to, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, others);
}

using Dims = std::vector<int64_t>;

inline void describe(Descriptor tensor, int64_t uid, cudnnDataType_t type, const Dims &dims,
                     const Dims &strides) {
    set(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE,
        std::vector<cudnnDataType_t>{type});
    set(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, dims);
    set(tensor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, strides);
    set(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, Dims{uid});
    set(tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, Dims{16});
}

/* Packed float32. */
inline void describe(Descriptor tensor, int64_t uid, const Dims &dims) {
    Dims strides(dims.size(), 1);
    for (size_t i = dims.size() - 1; i-- > 0;)
        strides[i] = strides[i + 1] * dims[i + 1];
    describe(tensor, uid, CUDNN_DATA_FLOAT, dims, strides);
}

inline void flag(Descriptor tensor, cudnnBackendAttributeName_t name) {
    const bool yes = true;
    check(cudnnBackendSetAttribute(tensor, name, CUDNN_TYPE_BOOLEAN, 1, &yes));
}

enum class Is { plain, between, value };
inline Descriptor tensor(Objects &objects, int64_t uid, const Dims &dims, Is is = Is::plain) {
    Descriptor made = objects.create(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    describe(made, uid, dims);
    if (is == Is::between) flag(made, CUDNN_ATTR_TENSOR_IS_VIRTUAL);
    if (is == Is::value) flag(made, CUDNN_ATTR_TENSOR_IS_BY_VALUE);
    check(cudnnBackendFinalize(made));
    return made;
}

inline Descriptor pointwise(Objects &objects, cudnnPointwiseMode_t mode, Descriptor x, Descriptor b,
                            Descriptor y) {
    Descriptor of = objects.create(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(of, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE,
        std::vector<cudnnPointwiseMode_t>{mode});
    set(of, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE,
        std::vector<cudnnDataType_t>{CUDNN_DATA_FLOAT});
    check(cudnnBackendFinalize(of));
    Descriptor node = objects.create(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    refer(node, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, {of});
    const bool backward = mode == CUDNN_POINTWISE_RELU_BWD; /* b: the gradient of y, y: of x */
    refer(node, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, {x});
    if (b != nullptr)
        refer(node,
              backward ? CUDNN_ATTR_OPERATION_POINTWISE_DYDESC
                       : CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
              {b});
    refer(node,
          backward ? CUDNN_ATTR_OPERATION_POINTWISE_DXDESC : CUDNN_ATTR_OPERATION_POINTWISE_YDESC,
          {y});
    check(cudnnBackendFinalize(node));
    return node;
}

struct Handle {
    cudnnHandle_t handle = nullptr;
    Handle() { check(cudnnCreate(&handle)); }
    ~Handle() { cudnnDestroy(handle); }
};

inline Descriptor open_graph(Objects &objects, const Handle &handle,
                             std::vector<Descriptor> nodes) {
    Descriptor graph = objects.create(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE,
        std::vector<cudnnHandle_t>{handle.handle});
    refer(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, nodes);
    return graph;
}

inline Descriptor engine_of(Objects &objects, Descriptor graph, int64_t number) {
    Descriptor engine = objects.create(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    refer(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, {graph});
    set(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, Dims{number});
    return engine;
}

inline Descriptor plan(Objects &objects, const Handle &handle, Descriptor graph, int64_t number) {
    Descriptor engine = engine_of(objects, graph, number);
    check(cudnnBackendFinalize(engine));
    Descriptor configuration = objects.create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    refer(configuration, CUDNN_ATTR_ENGINECFG_ENGINE, {engine});
    check(cudnnBackendFinalize(configuration));
    Descriptor made = objects.create(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    set(made, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE,
        std::vector<cudnnHandle_t>{handle.handle});
    refer(made, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, {configuration});
    check(cudnnBackendFinalize(made));
    return made;
}

inline Descriptor pack(Objects &objects, Dims uids, std::vector<void *> pointers, void *workspace) {
    Descriptor made = objects.create(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    set(made, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, uids);
    set(made, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, pointers);
    set(made, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR,
        std::vector<void *>{workspace});
    check(cudnnBackendFinalize(made));
    return made;
}

} // namespace rig

#endif
