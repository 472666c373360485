/* SPDX-License-Identifier: Apache-2.0 */
/* Flatten and output: convert a value of any layout to plain rows, in the compute precision or in
 * float32. Sequence: converts an image to channels last, the order of a sequence. One reorder for
 * each pass; none where the layouts are equal. */
#include <stdlib.h>
#include <string.h>

#include "device/cpu/cpu.h"

typedef struct reshape_plan {
    yoke_plan base;
    const cpu_desc *input, *ordered; /* the input's four dimensions, both */
    cpu_call forward, backward;
    bool same; /* the two layouts are equal: copy, or in place do nothing */
} reshape_plan;

static void reshape_destroy(yoke_plan *plan) {
    reshape_plan *reshape = (reshape_plan *)plan;
    cpu_call_destroy(&reshape->forward);
    cpu_call_destroy(&reshape->backward);
    yoke_free(reshape);
}

static yoke_status copy_value(const reshape_plan *reshape, const cpu_call *reorder, void *to,
                              const void *from) {
    if (!reshape->same) return cpu_call_run(reorder, cpu_of(reshape->base.device));
    if (to != from) memcpy(to, from, reshape->base.needs.output.bytes);
    return YOKE_OK;
}

static yoke_status reshape_forward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    reshape_plan *reshape = (reshape_plan *)plan;
    return copy_value(reshape, &reshape->forward, plan->binding.output, plan->binding.inputs[0]);
}

static yoke_status reshape_backward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    reshape_plan *reshape = (reshape_plan *)plan;
    const yoke_plan_binding *binding = &plan->binding;
    if (binding->input_gradients[0] == NULL) return YOKE_OK;
    return copy_value(reshape, &reshape->backward, binding->input_gradients[0],
                      binding->output_gradient);
}

static yoke_status reshape_bind(yoke_plan *plan, const yoke_plan_binding *binding) {
    reshape_plan *reshape = (reshape_plan *)plan;
    cpu_device *device = cpu_of(plan->device);
    cpu_call_destroy(&reshape->forward);
    cpu_call_destroy(&reshape->backward);
    TRY(cpu_reorder(&reshape->forward, device, reshape->input, binding->inputs[0], reshape->ordered,
                    binding->output));
    if (plan->backward == NULL) return YOKE_OK;
    return cpu_reorder(&reshape->backward, device, reshape->ordered, binding->output_gradient,
                       reshape->input, binding->input_gradients[0]);
}

yoke_status cpu_plan_reshape(yoke_plan **plan, cpu_device *device,
                             const yoke_plan_request *request) {
    static const yoke_plan_calls calls = {reshape_bind, reshape_forward, reshape_backward,
                                          reshape_destroy};
    TRY(yoke_plan_allocate(plan, sizeof(reshape_plan), &device->base, request, &calls));
    reshape_plan *reshape = (reshape_plan *)*plan;
    const yoke_operation *operation = request->operation;
    dnnl_data_type_t type =
        operation->kind == YOKE_OP_OUTPUT ? dnnl_f32 : cpu_data_type(request->precision);
    reshape->input = cpu_layout_desc(&request->inputs[0]);
    dnnl_format_tag_t order = operation->kind == YOKE_OP_SEQUENCE ? dnnl_nhwc : dnnl_nchw;
    TRY(cpu_value_desc(&reshape->ordered, device, request->rows, operation->input, type, order));
    reshape->same = reshape->input == reshape->ordered;
    yoke_plan_needs *needs = &reshape->base.needs;
    needs->forward_in_place = reshape->same;
    needs->backward_in_place = reshape->same;
    return cpu_plan_plain_output(*plan, request, type);
}
