/* Max and average pooling in the layout of the input. Max keeps the winners' places for backward;
 * average counts padding. A kernel of 0 is the whole image. */
#include <stdlib.h>

#include "device/cpu/primitive.h"

static yoke_status bind(yoke_plan *plan, const yoke_plan_binding *binding) {
    cpu_primitive_plan *pooling = (cpu_primitive_plan *)plan;
    int winners = plan->needs.saved_bytes > 0 ? DNNL_ARG_WORKSPACE : 0;
    const cpu_address addresses[] = {{DNNL_ARG_SRC, binding->inputs[0]},
                                     {DNNL_ARG_DST, binding->output},
                                     {winners, binding->saved},
                                     {0, NULL}};
    cpu_device *device = cpu_of(plan->device);
    TRY(cpu_primitive_bind(&pooling->forward, device, addresses, binding->scratch));
    if (pooling->backward.description == NULL) return YOKE_OK;
    const cpu_address gradients[] = {{DNNL_ARG_DIFF_DST, binding->output_gradient},
                                     {DNNL_ARG_DIFF_SRC, binding->input_gradients[0]},
                                     {winners, binding->saved},
                                     {0, NULL}};
    return cpu_primitive_bind(&pooling->backward, device, gradients, binding->scratch);
}

static yoke_status create_primitives(cpu_primitive_plan *pooling,
                                     const yoke_plan_request *request) {
    const yoke_operation *operation = request->operation;
    const dnnl_memory_desc_t *input = cpu_layout_desc(&request->inputs[0]);
    dnnl_dims_t kernel = {operation->kernel, operation->kernel};
    if (operation->kernel == 0) {
        kernel[0] = operation->input.height;
        kernel[1] = operation->input.width;
    }
    int stride = operation->stride > 0 ? operation->stride : 1;
    dnnl_dims_t strides = {stride, stride}, padding = {operation->padding, operation->padding};
    dnnl_alg_kind_t algorithm =
        operation->kind == YOKE_OP_MAX_POOL ? dnnl_pooling_max : dnnl_pooling_avg_include_padding;
    dnnl_prop_kind_t pass = request->training ? dnnl_forward_training : dnnl_forward_inference;
    cpu_device *device = cpu_of(pooling->base.device);
    dnnl_memory_desc_t output;
    TRY(cpu_value_desc(&output, request->rows, operation->output, input->data_type,
                       dnnl_format_tag_any));
    dnnl_pooling_desc_t pool;
    TRY_DNNL(dnnl_pooling_forward_desc_init(&pool, pass, algorithm, input, &output, strides, kernel,
                                            padding, padding));
    TRY(cpu_primitive_create(&pooling->forward, device, &pool, NULL, NULL));
    if (!request->training || !request->input_gradient) return YOKE_OK;
    const dnnl_memory_desc_t *chosen = cpu_primitive_desc(&pooling->forward, DNNL_ARG_DST);
    TRY_DNNL(dnnl_pooling_backward_desc_init(&pool, algorithm, input, chosen, strides, kernel,
                                             padding, padding));
    return cpu_primitive_create(&pooling->backward, device, &pool, pooling->forward.description,
                                NULL);
}

static yoke_status build(cpu_primitive_plan *pooling, const yoke_plan_request *request) {
    TRY(create_primitives(pooling, request));
    yoke_plan_needs *needs = &pooling->base.needs;
    cpu_layout_store(&needs->output, cpu_primitive_desc(&pooling->forward, DNNL_ARG_DST));
    const dnnl_memory_desc_t *winners = cpu_primitive_desc(&pooling->forward, DNNL_ARG_WORKSPACE);
    needs->saved_bytes = dnnl_memory_desc_get_size(winners);
    needs->scratch_bytes = cpu_primitive_plan_scratch(pooling);
    return YOKE_OK;
}

yoke_status cpu_plan_pooling(yoke_plan **plan, cpu_device *device,
                             const yoke_plan_request *request) {
    cpu_primitive_plan *pooling = calloc(1, sizeof *pooling);
    if (pooling == NULL) return FAIL_MEMORY(sizeof *pooling, request->operation->name);
    pooling->base = (yoke_plan){.device = &device->base,
                                .bind = bind,
                                .forward = cpu_primitive_plan_forward,
                                .backward = request->training ? cpu_primitive_plan_backward : NULL,
                                .destroy = cpu_primitive_plan_destroy};
    yoke_status status = build(pooling, request);
    if (status == YOKE_OK)
        *plan = &pooling->base;
    else
        cpu_primitive_plan_destroy(&pooling->base);
    return status;
}
