/* SPDX-License-Identifier: Apache-2.0 */
/* Max and average pooling in the layout of the input. Max pooling saves the positions of the maxima
 * for backward; average pooling counts padding. With a kernel of 0 the windows divide the image. */

#include "device/cpu/cpu.h"

static yoke_status bind(yoke_plan *plan, const yoke_plan_binding *binding) {
    cpu_primitive_plan *pooling = (cpu_primitive_plan *)plan;
    int winners = plan->needs.saved_bytes > 0 ? DNNL_ARG_WORKSPACE : 0;
    const cpu_address addresses[] = {{DNNL_ARG_SRC, binding->inputs[0]},
                                     {DNNL_ARG_DST, binding->output},
                                     {winners, binding->saved},
                                     CPU_LAST_ADDRESS};
    cpu_device *device = cpu_of(plan->device);
    TRY(cpu_primitive_bind(&pooling->forward, device, addresses, binding->scratch));
    if (pooling->backward.description == NULL) return YOKE_OK;
    const cpu_address gradients[] = {{DNNL_ARG_DIFF_DST, binding->output_gradient},
                                     {DNNL_ARG_DIFF_SRC, binding->input_gradients[0]},
                                     {winners, binding->saved},
                                     CPU_LAST_ADDRESS};
    return cpu_primitive_bind(&pooling->backward, device, gradients, binding->scratch);
}

static yoke_status create_primitives(cpu_primitive_plan *pooling,
                                     const yoke_plan_request *request) {
    const yoke_operation *operation = request->operation;
    yoke_dims in = operation->input, out = operation->output;
    bool adaptive = operation->kernel == 0;
    int kernel = operation->kernel, stride = operation->stride, padding = operation->padding;
    cpu_device *device = cpu_of(pooling->base.device);
    const cpu_desc *input = cpu_layout_desc(&request->inputs[0]);
    cpu_operation pool = {.kind = CPU_POOLING,
                          .inference = !request->training,
                          .algorithm = operation->kind == YOKE_OP_MAX_POOL
                                           ? dnnl_pooling_max
                                           : dnnl_pooling_avg_include_padding,
                          .source = input,
                          .kernel = {adaptive ? in.height / out.height : kernel,
                                     adaptive ? in.width / out.width : kernel},
                          .strides = {adaptive ? in.height / out.height : stride,
                                      adaptive ? in.width / out.width : stride},
                          .padding = {padding, padding},
                          .padding_end = {padding, padding}};
    TRY(cpu_value_desc(&pool.destination, device, request->rows, operation->output, input->type,
                       dnnl_format_tag_any));
    TRY(cpu_primitive_create(&pooling->forward, device, &pool));
    if (!request->training || !request->input_gradient) return YOKE_OK;
    pool.direction = CPU_BACKWARD_DATA;
    pool.destination = cpu_primitive_desc(&pooling->forward, DNNL_ARG_DST);
    pool.hint = pooling->forward.description;
    return cpu_primitive_create(&pooling->backward, device, &pool);
}

static bool is_uneven(const yoke_operation *operation) {
    yoke_dims in = operation->input, out = operation->output;
    return operation->kernel == 0 && (in.height % out.height != 0 || in.width % out.width != 0);
}

yoke_status cpu_plan_pooling(yoke_plan **plan, cpu_device *device,
                             const yoke_plan_request *request) {
    if (is_uneven(request->operation)) return cpu_plan_adaptive_pool(plan, device, request);
    static const yoke_plan_calls calls = {bind, cpu_primitive_plan_forward,
                                          cpu_primitive_plan_backward, cpu_primitive_plan_destroy};
    TRY(yoke_plan_allocate(plan, sizeof(cpu_primitive_plan), &device->base, request, &calls));
    cpu_primitive_plan *pooling = (cpu_primitive_plan *)*plan;
    TRY(create_primitives(pooling, request));
    yoke_plan_needs *needs = &pooling->base.needs;
    cpu_layout_store(&needs->output, cpu_primitive_desc(&pooling->forward, DNNL_ARG_DST));
    needs->saved_bytes = cpu_primitive_bytes(&pooling->forward, DNNL_ARG_WORKSPACE);
    needs->scratch_bytes = cpu_primitive_plan_scratch(pooling);
    return YOKE_OK;
}
