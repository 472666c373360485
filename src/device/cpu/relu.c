/* ReLU. Backward reads the output instead of the input, so that both passes may run in place. */
#include <stdlib.h>

#include "device/cpu/primitive.h"

static yoke_status bind(yoke_plan *plan, const yoke_plan_binding *binding) {
    cpu_primitive_plan *relu = (cpu_primitive_plan *)plan;
    cpu_device *device = cpu_of(plan->device);
    const cpu_address addresses[] = {
        {DNNL_ARG_SRC, binding->inputs[0]}, {DNNL_ARG_DST, binding->output}, CPU_LAST_ADDRESS};
    TRY(cpu_primitive_bind(&relu->forward, device, addresses, binding->scratch));
    if (relu->backward.description == NULL) return YOKE_OK;
    const cpu_address gradients[] = {{DNNL_ARG_DST, binding->output},
                                     {DNNL_ARG_DIFF_DST, binding->output_gradient},
                                     {DNNL_ARG_DIFF_SRC, binding->input_gradients[0]},
                                     CPU_LAST_ADDRESS};
    return cpu_primitive_bind(&relu->backward, device, gradients, binding->scratch);
}

static yoke_status build(cpu_primitive_plan *relu, const yoke_plan_request *request) {
    cpu_device *device = cpu_of(relu->base.device);
    cpu_operation operation = {.kind = CPU_ELTWISE,
                               .algorithm = dnnl_eltwise_relu_use_dst_for_bwd,
                               .inference = !request->training,
                               .source = cpu_layout_desc(&request->inputs[0])};
    TRY(cpu_primitive_create(&relu->forward, device, &operation));
    yoke_plan_needs *needs = &relu->base.needs;
    needs->output = request->inputs[0];
    needs->forward_in_place = true;
    if (request->training && request->input_gradient) {
        operation.direction = CPU_BACKWARD_DATA;
        operation.hint = relu->forward.description;
        TRY(cpu_primitive_create(&relu->backward, device, &operation));
        needs->backward_reads_output = true;
        needs->backward_in_place = true;
    }
    needs->scratch_bytes = cpu_primitive_plan_scratch(relu);
    return YOKE_OK;
}

yoke_status cpu_plan_relu(yoke_plan **plan, cpu_device *device, const yoke_plan_request *request) {
    cpu_primitive_plan *relu = calloc(1, sizeof *relu);
    if (relu == NULL) return FAIL_MEMORY(sizeof *relu, request->operation->name);
    relu->base = (yoke_plan){.device = &device->base,
                             .bind = bind,
                             .forward = cpu_primitive_plan_forward,
                             .backward = request->training ? cpu_primitive_plan_backward : NULL,
                             .destroy = cpu_primitive_plan_destroy};
    yoke_status status = build(relu, request);
    if (status == YOKE_OK)
        *plan = &relu->base;
    else
        cpu_primitive_plan_destroy(&relu->base);
    return status;
}
