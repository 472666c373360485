/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax over the channels of each position. Backward reads the output instead of the input, so
 * that both passes may run in place. */
#include "device/cpu/cpu.h"

static yoke_status bind(yoke_plan *plan, const yoke_plan_binding *binding) {
    cpu_primitive_plan *softmax = (cpu_primitive_plan *)plan;
    cpu_device *device = cpu_of(plan->device);
    const cpu_address addresses[] = {
        {DNNL_ARG_SRC, binding->inputs[0]}, {DNNL_ARG_DST, binding->output}, CPU_LAST_ADDRESS};
    TRY(cpu_primitive_bind(&softmax->forward, device, addresses, binding->scratch));
    if (softmax->backward.description == NULL) return YOKE_OK;
    const cpu_address gradients[] = {{DNNL_ARG_DST, binding->output},
                                     {DNNL_ARG_DIFF_DST, binding->output_gradient},
                                     {DNNL_ARG_DIFF_SRC, binding->input_gradients[0]},
                                     CPU_LAST_ADDRESS};
    return cpu_primitive_bind(&softmax->backward, device, gradients, binding->scratch);
}

yoke_status cpu_plan_softmax(yoke_plan **plan, cpu_device *device,
                             const yoke_plan_request *request) {
    static const yoke_plan_calls calls = {bind, cpu_primitive_plan_forward,
                                          cpu_primitive_plan_backward, cpu_primitive_plan_destroy};
    TRY(yoke_plan_allocate(plan, sizeof(cpu_primitive_plan), &device->base, request, &calls));
    cpu_primitive_plan *softmax = (cpu_primitive_plan *)*plan;
    cpu_operation operation = {.kind = CPU_SOFTMAX,
                               .axis = request->operation->input.sequence ? 2 : 1,
                               .inference = !request->training,
                               .source = cpu_layout_desc(&request->inputs[0])};
    TRY(cpu_primitive_create(&softmax->forward, device, &operation));
    yoke_plan_needs *needs = &softmax->base.needs;
    needs->output = request->inputs[0];
    needs->forward_in_place = true;
    if (request->training && request->input_gradient) {
        operation.direction = CPU_BACKWARD_DATA;
        operation.hint = softmax->forward.description;
        TRY(cpu_primitive_create(&softmax->backward, device, &operation));
        needs->backward_reads_output = true;
        needs->backward_in_place = true;
    }
    needs->scratch_bytes = cpu_primitive_plan_scratch(softmax);
    return YOKE_OK;
}
