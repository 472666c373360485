/* SPDX-License-Identifier: Apache-2.0 */
/* cuDNN's backend: descriptors, and the attributes that each kind takes. */
#include "simcuda/cudnn_backend.h"

using sim::cudnn_refuse;
using namespace sim::backend;

namespace {

const std::vector<Kind> &kinds() {
    static const std::vector<Kind> all = [] {
        std::vector<Kind> made;
        for (const auto &kinds_of : {graph_kinds, engine_kinds, convolution_kinds, pointwise_kinds,
                                     product_kinds, statistics_kinds})
            for (const Kind &kind : kinds_of())
                made.push_back(kind);
        return made;
    }();
    return all;
}

const Kind *find_kind(cudnnBackendDescriptorType_t type) {
    for (const Kind &kind : kinds())
        if (kind.type == type) return &kind;
    return nullptr;
}

const Rule *find_rule(const Kind &kind, cudnnBackendAttributeName_t name) {
    for (const Rule &rule : kind.rules)
        if (rule.name == name) return &rule;
    return nullptr;
}

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

cudnnStatus_t check_attribute(const Backend &backend, cudnnBackendAttributeName_t name,
                              cudnnBackendAttributeType_t type, int64_t count) {
    const Rule *rule = find_rule(*find_kind(backend.type), name);
    if (rule == nullptr)
        return cudnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, "the descriptor takes no such attribute");
    if (rule->type != type)
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "the attribute's type is another");
    if (count < 1 || count < rule->least || count > rule->most)
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM, "the attribute has another number of values");
    return CUDNN_STATUS_SUCCESS;
}

/* Only finished descriptors may be referred to. */
cudnnStatus_t check_references(int64_t count, const void *values) {
    Backend *const *references = static_cast<Backend *const *>(values);
    for (int64_t i = 0; i < count; i++) {
        if (references[i] == nullptr)
            return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "a descriptor is missing");
        if (!references[i]->final)
            return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED,
                                "a descriptor that is referred to was not finalized");
    }
    return CUDNN_STATUS_SUCCESS;
}

} // namespace

namespace sim::backend {

const Backend *follow(const Backend &from, int name) {
    return read<const Backend *>(from, name, nullptr);
}

cudnnStatus_t read_tensor(const Backend &from, int name, Tensor *tensor) {
    const Backend *to = follow(from, name);
    if (to == nullptr || to->tensor == nullptr)
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM, "an operation lacks a tensor");
    *tensor = *to->tensor;
    return CUDNN_STATUS_SUCCESS;
}

} // namespace sim::backend

extern "C" {

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t *to) {
    FAULT("cudnnBackendCreateDescriptor", CUDNN_STATUS_NOT_SUPPORTED);
    if (to == nullptr) return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no descriptor");
    if (find_kind(type) == nullptr)
        return cudnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, "the simulator has no such descriptor");
    Backend *made = new Backend();
    made->type = type;
    *to = made;
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
    if (backend == nullptr || values == nullptr)
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no descriptor or no values");
    if (backend->final)
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM, "a finalized descriptor was changed");
    if (cudnnStatus_t status = check_attribute(*backend, name, type, count)) return status;
    if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
        if (cudnnStatus_t status = check_references(count, values)) return status;
    const char *bytes = static_cast<const char *>(values);
    backend->attributes[name] = {type, count,
                                 std::vector<char>(bytes, bytes + (size_t)count * bytes_of(type))};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
    FAULT("cudnnBackendFinalize", CUDNN_STATUS_NOT_SUPPORTED);
    Backend *backend = static_cast<Backend *>(descriptor);
    if (backend == nullptr)
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no descriptor");
    const Kind *kind = find_kind(backend->type);
    for (const Rule &rule : kind->rules)
        if (rule.least > 0 && backend->attributes.count(rule.name) == 0)
            return cudnn_refuse(CUDNN_STATUS_BAD_PARAM, "an attribute is missing");
    if (kind->complete != nullptr)
        if (cudnnStatus_t status = kind->complete(*backend)) return status;
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
    if (backend == nullptr || count == nullptr || most < 0 || (values == nullptr && most > 0))
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no descriptor or no room");
    if (!backend->final)
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "a descriptor is not finalized");
    return get(*backend, name, most, count, values);
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack) {
    FAULT("cudnnBackendExecute", CUDNN_STATUS_EXECUTION_FAILED);
    const Backend *running = static_cast<const Backend *>(plan);
    const Backend *with = static_cast<const Backend *>(pack);
    if (handle == nullptr || running == nullptr || with == nullptr)
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no handle, plan or pack");
    if (running->type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR ||
        with->type != CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "not a plan and a pack");
    if (!running->final || !with->final)
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "the plan or the pack");
    if (sim::current_device() != handle->device)
        sim::violation(
            "cudnnBackendExecute with the handle of device %d while device %d is current",
            handle->device, sim::current_device());
    return execute(*handle, *running, *with);
}
}
