/* SPDX-License-Identifier: Apache-2.0 */
/* Activations, softmax and pooling: one oneDNN primitive for each pass. */
#include "device/cpu/cpu.h"

/* Binds what the needs of the plan say that backward reads. Max pooling saves the positions of the
 * maxima. */
static yoke_status bind_primitives(yoke_plan *plan, const yoke_plan_binding *binding) {
    cpu_primitive_plan *self = (cpu_primitive_plan *)plan;
    cpu_device *device = cpu_of(plan->device);
    int winners = plan->needs.saved_bytes > 0 ? DNNL_ARG_WORKSPACE : 0;
    const cpu_address values[] = {{DNNL_ARG_SRC, binding->inputs[0]},
                                  {DNNL_ARG_DST, binding->output},
                                  {winners, binding->saved},
                                  CPU_LAST_ADDRESS};
    TRY(cpu_primitive_bind(&self->forward, device, values, binding->scratch));
    if (self->backward.description == NULL) return YOKE_OK;
    const cpu_address gradients[] = {
        {plan->needs.backward_reads[0] ? DNNL_ARG_SRC : 0, binding->inputs[0]},
        {plan->needs.backward_reads_output ? DNNL_ARG_DST : 0, binding->output},
        {DNNL_ARG_DIFF_DST, binding->output_gradient},
        {DNNL_ARG_DIFF_SRC, binding->input_gradients[0]},
        {winners, binding->saved},
        CPU_LAST_ADDRESS};
    return cpu_primitive_bind(&self->backward, device, gradients, binding->scratch);
}

static yoke_status plan_primitives(yoke_plan **plan, cpu_device *device,
                                   const yoke_plan_request *request, unsigned flags,
                                   cpu_operation *operation) {
    const yoke_plan_calls calls = {bind_primitives, cpu_primitive_plan_forward,
                                   cpu_primitive_plan_backward, cpu_primitive_plan_destroy, flags};
    TRY(yoke_plan_allocate(plan, sizeof(cpu_primitive_plan), &device->base, request, &calls));
    cpu_primitive_plan *self = (cpu_primitive_plan *)*plan;
    operation->inference = !request->training;
    operation->source = cpu_layout_desc(&request->inputs[0]);
    TRY(cpu_primitive_create(&self->forward, device, operation));
    const cpu_desc *output = cpu_primitive_desc(&self->forward, DNNL_ARG_DST);
    if (request->training && request->input_gradient) {
        operation->direction = CPU_BACKWARD_DATA;
        operation->hint = self->forward.description;
        if (operation->destination != NULL) operation->destination = output;
        TRY(cpu_primitive_create(&self->backward, device, operation));
    }
    yoke_plan_needs *needs = &self->base.needs;
    cpu_layout_store(&needs->output, output);
    needs->saved_bytes = cpu_primitive_bytes(&self->forward, DNNL_ARG_WORKSPACE);
    needs->scratch_bytes = cpu_primitive_plan_scratch(self);
    return YOKE_OK;
}

/* oneDNN's name of an activation. Its GELUs take 2 to 20 times as long as gelu.c's on AVX2. Where
 * backward can read the output instead of the input, it does, so that both passes may run in place.
 */
yoke_status cpu_plan_activation(yoke_plan **plan, cpu_device *device,
                                const yoke_plan_request *request) {
    static const struct {
        dnnl_alg_kind_t name;
        float alpha, beta;
        unsigned reads;
    } algorithms[YOKE_ACTIVATIONS] = {
        [YOKE_RELU] = {dnnl_eltwise_relu_use_dst_for_bwd, 0, 0, YOKE_READS_OUTPUT},
        [YOKE_RELU6] = {dnnl_eltwise_clip_v2_use_dst_for_bwd, 0, 6, YOKE_READS_OUTPUT},
        [YOKE_SILU] = {dnnl_eltwise_swish, 1, 0, YOKE_READS_INPUT},
        [YOKE_SIGMOID] = {dnnl_eltwise_logistic_use_dst_for_bwd, 0, 0, YOKE_READS_OUTPUT},
        [YOKE_TANH] = {dnnl_eltwise_tanh_use_dst_for_bwd, 0, 0, YOKE_READS_OUTPUT},
    };
    yoke_activation kind = request->operation->activation;
    if (kind == YOKE_GELU || kind == YOKE_GELU_TANH) return cpu_plan_gelu(plan, device, request);
    cpu_operation operation = {.kind = CPU_ELTWISE,
                               .algorithm = algorithms[kind].name,
                               .alpha = algorithms[kind].alpha,
                               .beta = algorithms[kind].beta};
    return plan_primitives(plan, device, request, YOKE_IN_PLACE | algorithms[kind].reads,
                           &operation);
}

/* Over the channels of each position. Backward reads the output instead of the input, so that both
 * passes may run in place. */
yoke_status cpu_plan_softmax(yoke_plan **plan, cpu_device *device,
                             const yoke_plan_request *request) {
    cpu_operation operation = {.kind = CPU_SOFTMAX,
                               .axis = request->operation->input.sequence ? 2 : 1};
    return plan_primitives(plan, device, request, YOKE_IN_PLACE | YOKE_READS_OUTPUT, &operation);
}

/* In the layout of the input. Average pooling counts padding. With a kernel of 0 the windows divide
 * the image; adaptive_pool.c serves sizes that do not divide. */
yoke_status cpu_plan_pooling(yoke_plan **plan, cpu_device *device,
                             const yoke_plan_request *request) {
    const yoke_operation *operation = request->operation;
    yoke_dims in = operation->input, out = operation->output;
    bool adaptive = operation->kernel == 0;
    if (adaptive && (in.height % out.height != 0 || in.width % out.width != 0))
        return cpu_plan_adaptive_pool(plan, device, request);
    yoke_taps down = yoke_taps_down(operation), across = yoke_taps_across(operation);
    if (adaptive) {
        down.kernel = down.stride = in.height / out.height;
        across.kernel = across.stride = in.width / out.width;
    }
    cpu_operation pool = {.kind = CPU_POOLING,
                          .algorithm = operation->kind == YOKE_OP_MAX_POOL
                                           ? dnnl_pooling_max
                                           : dnnl_pooling_avg_include_padding,
                          .kernel = {down.kernel, across.kernel},
                          .strides = {down.stride, across.stride},
                          .padding = {down.padding, across.padding},
                          .padding_end = {down.padding, across.padding}};
    TRY(cpu_value_desc(&pool.destination, device, request->rows, out,
                       cpu_layout_desc(&request->inputs[0])->type, dnnl_format_tag_any));
    return plan_primitives(plan, device, request, 0, &pool);
}
