/* A oneDNN primitive from its operation descriptor to a call with addresses. */
#include <stdlib.h>

#include "device/cpu/primitive.h"

static dnnl_status_t create(cpu_primitive *primitive, cpu_device *device,
                            const_dnnl_op_desc_t operation, const_dnnl_primitive_desc_t hint,
                            const_dnnl_primitive_attr_t attributes) {
    dnnl_status_t status = dnnl_primitive_desc_create(&primitive->description, operation,
                                                      attributes, device->engine, hint);
    if (status != dnnl_success) return status;
    return dnnl_primitive_create(&primitive->call.primitive, primitive->description);
}

yoke_status cpu_primitive_create(cpu_primitive *primitive, cpu_device *device,
                                 const_dnnl_op_desc_t operation, const_dnnl_primitive_desc_t hint,
                                 const_dnnl_post_ops_t post_ops) {
    dnnl_primitive_attr_t attributes = NULL;
    TRY(cpu_attributes(&attributes));
    dnnl_status_t status = dnnl_success;
    if (post_ops != NULL) status = dnnl_primitive_attr_set_post_ops(attributes, post_ops);
    if (status == dnnl_success) status = create(primitive, device, operation, hint, attributes);
    dnnl_primitive_attr_destroy(attributes);
    if (status != dnnl_success) return cpu_dnnl_failed(status, "dnnl_primitive_create");
    return YOKE_OK;
}

void cpu_primitive_destroy(cpu_primitive *primitive) {
    cpu_call_destroy(&primitive->call);
    if (primitive->description != NULL) dnnl_primitive_desc_destroy(primitive->description);
    primitive->description = NULL;
}

const dnnl_memory_desc_t *cpu_primitive_desc(const cpu_primitive *primitive, int argument) {
    return dnnl_primitive_desc_query_md(primitive->description, dnnl_query_exec_arg_md, argument);
}

size_t cpu_primitive_scratch(const cpu_primitive *primitive) {
    return primitive->description != NULL ? cpu_scratchpad_bytes(primitive->description) : 0;
}

static yoke_status bind_argument(cpu_primitive *primitive, cpu_device *device, int argument,
                                 void *address) {
    const dnnl_memory_desc_t *desc = cpu_primitive_desc(primitive, argument);
    if (desc->ndims == 0)
        return FAIL(YOKE_ERROR_INTERNAL, "oneDNN: a primitive has no argument %d", argument);
    return cpu_call_argument(&primitive->call, device, argument, desc, address);
}

yoke_status cpu_primitive_bind(cpu_primitive *primitive, cpu_device *device,
                               const cpu_address *addresses, void *scratch) {
    cpu_call_unbind(&primitive->call);
    for (; addresses->argument != 0; addresses++) {
        TRY(bind_argument(primitive, device, addresses->argument, addresses->address));
    }
    if (cpu_primitive_scratch(primitive) == 0) return YOKE_OK;
    return bind_argument(primitive, device, DNNL_ARG_SCRATCHPAD, scratch);
}

yoke_status cpu_primitive_plan_forward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    return cpu_call_run(&((cpu_primitive_plan *)plan)->forward.call, cpu_of(plan->device));
}

yoke_status cpu_primitive_plan_backward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    return cpu_call_run(&((cpu_primitive_plan *)plan)->backward.call, cpu_of(plan->device));
}

void cpu_primitive_plan_destroy(yoke_plan *plan) {
    cpu_primitive_destroy(&((cpu_primitive_plan *)plan)->forward);
    cpu_primitive_destroy(&((cpu_primitive_plan *)plan)->backward);
    free(plan);
}

size_t cpu_primitive_plan_scratch(const cpu_primitive_plan *plan) {
    size_t forward = cpu_primitive_scratch(&plan->forward);
    size_t backward = cpu_primitive_scratch(&plan->backward);
    return forward > backward ? forward : backward;
}
