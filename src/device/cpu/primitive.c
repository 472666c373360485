/* A oneDNN primitive from its description to a call with addresses. */
#include <stdlib.h>
#include <string.h>

#include "device/cpu/primitive.h"

static const int known_arguments[CPU_PRIMITIVE_ARGUMENTS] = {
    DNNL_ARG_SRC,       DNNL_ARG_SRC_1,      DNNL_ARG_WEIGHTS,      DNNL_ARG_BIAS,
    DNNL_ARG_DST,       DNNL_ARG_MEAN,       DNNL_ARG_VARIANCE,     DNNL_ARG_SCALE,
    DNNL_ARG_SHIFT,     DNNL_ARG_DIFF_SRC,   DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_BIAS,
    DNNL_ARG_DIFF_DST,  DNNL_ARG_DIFF_SCALE, DNNL_ARG_DIFF_SHIFT,   DNNL_ARG_WORKSPACE,
    DNNL_ARG_SCRATCHPAD};

static yoke_status read_arguments(cpu_primitive *primitive, cpu_device *device) {
    for (int i = 0; i < CPU_PRIMITIVE_ARGUMENTS; i++)
        TRY_DNNL(cpu_desc_of_argument(&primitive->descs[i], &device->descs, primitive->description,
                                      known_arguments[i]));
    return YOKE_OK;
}

yoke_status cpu_primitive_create(cpu_primitive *primitive, cpu_device *device,
                                 const cpu_operation *operation) {
    TRY_DNNL(cpu_operation_describe(&primitive->description, device->engine, operation));
    TRY_DNNL(dnnl_primitive_create(&primitive->call.primitive, primitive->description));
    return read_arguments(primitive, device);
}

void cpu_primitive_destroy(cpu_primitive *primitive) {
    cpu_call_destroy(&primitive->call);
    if (primitive->description != NULL) dnnl_primitive_desc_destroy(primitive->description);
    memset(primitive, 0, sizeof *primitive);
}

const cpu_desc *cpu_primitive_desc(const cpu_primitive *primitive, int argument) {
    for (int i = 0; i < CPU_PRIMITIVE_ARGUMENTS; i++)
        if (known_arguments[i] == argument) return primitive->descs[i];
    return NULL;
}

size_t cpu_primitive_bytes(const cpu_primitive *primitive, int argument) {
    const cpu_desc *desc = cpu_primitive_desc(primitive, argument);
    return desc != NULL ? desc->bytes : 0;
}

size_t cpu_primitive_scratch(const cpu_primitive *primitive) {
    return cpu_primitive_bytes(primitive, DNNL_ARG_SCRATCHPAD);
}

static yoke_status bind_argument(cpu_primitive *primitive, cpu_device *device, int argument,
                                 void *address) {
    const cpu_desc *desc = cpu_primitive_desc(primitive, argument);
    if (desc == NULL)
        return FAIL(YOKE_ERROR_INTERNAL, "oneDNN: a primitive has no argument %d", argument);
    return cpu_call_argument(&primitive->call, device, argument, desc, address);
}

yoke_status cpu_primitive_bind(cpu_primitive *primitive, cpu_device *device,
                               const cpu_address *addresses, void *scratch) {
    cpu_call_unbind(&primitive->call);
    for (; addresses->argument >= 0; addresses++) {
        if (addresses->argument == 0) continue;
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
