/* SPDX-License-Identifier: Apache-2.0 */
/* Activations: functions of one element, and their slopes. */
#include "device/cpu/cpu.h"

/* oneDNN's name of an activation. Where backward can read the output instead of the input, it does,
 * so that both passes may run in place. */
typedef struct algorithm {
    dnnl_alg_kind_t name;
    float alpha, beta;
    bool reads_output;
} algorithm;

static const algorithm algorithms[YOKE_ACTIVATIONS] = {
    [YOKE_RELU] = {dnnl_eltwise_relu_use_dst_for_bwd, 0, 0, true},
    [YOKE_RELU6] = {dnnl_eltwise_clip_v2_use_dst_for_bwd, 0, 6, true},
    [YOKE_GELU] = {dnnl_eltwise_gelu_erf, 0, 0, false},
    [YOKE_GELU_TANH] = {dnnl_eltwise_gelu_tanh, 0, 0, false},
    [YOKE_SILU] = {dnnl_eltwise_swish, 1, 0, false},
    [YOKE_SIGMOID] = {dnnl_eltwise_logistic_use_dst_for_bwd, 0, 0, true},
    [YOKE_TANH] = {dnnl_eltwise_tanh_use_dst_for_bwd, 0, 0, true},
};

static yoke_status bind(yoke_plan *plan, const yoke_plan_binding *binding) {
    cpu_primitive_plan *activation = (cpu_primitive_plan *)plan;
    cpu_device *device = cpu_of(plan->device);
    const cpu_address addresses[] = {
        {DNNL_ARG_SRC, binding->inputs[0]}, {DNNL_ARG_DST, binding->output}, CPU_LAST_ADDRESS};
    TRY(cpu_primitive_bind(&activation->forward, device, addresses, binding->scratch));
    if (activation->backward.description == NULL) return YOKE_OK;
    bool output = plan->needs.backward_reads_output;
    const cpu_address gradients[] = {
        {output ? DNNL_ARG_DST : DNNL_ARG_SRC, output ? binding->output : binding->inputs[0]},
        {DNNL_ARG_DIFF_DST, binding->output_gradient},
        {DNNL_ARG_DIFF_SRC, binding->input_gradients[0]},
        CPU_LAST_ADDRESS};
    return cpu_primitive_bind(&activation->backward, device, gradients, binding->scratch);
}

yoke_status cpu_plan_activation(yoke_plan **plan, cpu_device *device,
                                const yoke_plan_request *request) {
    static const yoke_plan_calls calls = {bind, cpu_primitive_plan_forward,
                                          cpu_primitive_plan_backward, cpu_primitive_plan_destroy};
    TRY(yoke_plan_allocate(plan, sizeof(cpu_primitive_plan), &device->base, request, &calls));
    cpu_primitive_plan *activation = (cpu_primitive_plan *)*plan;
    const algorithm *chosen = &algorithms[request->operation->activation];
    cpu_operation operation = {.kind = CPU_ELTWISE,
                               .algorithm = chosen->name,
                               .alpha = chosen->alpha,
                               .beta = chosen->beta,
                               .inference = !request->training,
                               .source = cpu_layout_desc(&request->inputs[0])};
    TRY(cpu_primitive_create(&activation->forward, device, &operation));
    yoke_plan_needs *needs = &activation->base.needs;
    needs->output = request->inputs[0];
    needs->forward_in_place = true;
    if (request->training && request->input_gradient) {
        operation.direction = CPU_BACKWARD_DATA;
        operation.hint = activation->forward.description;
        TRY(cpu_primitive_create(&activation->backward, device, &operation));
        needs->backward_reads_output = chosen->reads_output;
        needs->backward_reads_input = !chosen->reads_output;
        needs->backward_in_place = true;
    }
    needs->scratch_bytes = cpu_primitive_plan_scratch(activation);
    return YOKE_OK;
}
