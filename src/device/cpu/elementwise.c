/* SPDX-License-Identifier: Apache-2.0 */
/* Addition, with an optional ReLU behind the sum, and multiplication. */
#include <stdlib.h>
#include <string.h>

#include "device/cpu/cpu.h"

/* The sum of two values in the layout of the first. Both inputs have the same gradient: backward
 * writes it once. */

typedef struct add_plan {
    cpu_primitive_plan plan;   /* its backward is the ReLU's */
    cpu_primitive relu;        /* a pass of its own where channels are padded */
    cpu_call align, give_back; /* input 1 into input 0's layout; input 1's gradient back */
    bool same_layout;
    const cpu_desc *inputs[2];
    size_t aligned_offset; /* in scratch: input 1 in input 0's layout */
} add_plan;

static void add_destroy(yoke_plan *plan) {
    add_plan *add = (add_plan *)plan;
    cpu_call_destroy(&add->align);
    cpu_call_destroy(&add->give_back);
    cpu_primitive_destroy(&add->relu);
    cpu_primitive_plan_destroy(plan);
}

static yoke_status add_forward(yoke_plan *plan, const yoke_plan_step *step) {
    add_plan *add = (add_plan *)plan;
    TRY(cpu_call_run(&add->align, cpu_of(plan->device)));
    TRY(cpu_primitive_plan_forward(plan, step));
    return cpu_call_run(&add->relu.call, cpu_of(plan->device));
}

static yoke_status add_backward(yoke_plan *plan, const yoke_plan_step *step) {
    add_plan *add = (add_plan *)plan;
    const void *from = plan->binding.output_gradient;
    void *to = plan->binding.input_gradients[0];
    if (plan->operation.relu)
        TRY(cpu_primitive_plan_backward(plan, step));
    else if (plan->needs.backward_in_place && to != from)
        memcpy(to, from, plan->needs.output.bytes);
    return cpu_call_run(&add->give_back, cpu_of(plan->device));
}

static yoke_status add_bind(yoke_plan *plan, const yoke_plan_binding *binding) {
    add_plan *add = (add_plan *)plan;
    cpu_device *device = cpu_of(plan->device);
    void *right = binding->inputs[1];
    cpu_call_destroy(&add->align);
    cpu_call_destroy(&add->give_back);
    if (!add->same_layout) {
        right = (char *)binding->scratch + add->aligned_offset;
        TRY(cpu_reorder(&add->align, device, add->inputs[1], binding->inputs[1], add->inputs[0],
                        right));
    }
    const cpu_address addresses[] = {{DNNL_ARG_SRC_0, binding->inputs[0]},
                                     {DNNL_ARG_SRC_1, right},
                                     {DNNL_ARG_DST, binding->output},
                                     CPU_LAST_ADDRESS};
    TRY(cpu_primitive_bind(&add->plan.forward, device, addresses, binding->scratch));
    const cpu_address sum[] = {
        {DNNL_ARG_SRC, binding->output}, {DNNL_ARG_DST, binding->output}, CPU_LAST_ADDRESS};
    if (add->relu.description != NULL)
        TRY(cpu_primitive_bind(&add->relu, device, sum, binding->scratch));
    if (!plan->needs.backward_in_place) return YOKE_OK;
    if (!add->same_layout && binding->input_gradients[1] != NULL)
        TRY(cpu_reorder(&add->give_back, device, add->inputs[0], binding->input_gradients[0],
                        add->inputs[1], binding->input_gradients[1]));
    if (!plan->operation.relu) return YOKE_OK;
    const cpu_address gradients[] = {{DNNL_ARG_DST, binding->output},
                                     {DNNL_ARG_DIFF_DST, binding->output_gradient},
                                     {DNNL_ARG_DIFF_SRC, binding->input_gradients[0]},
                                     CPU_LAST_ADDRESS};
    return cpu_primitive_bind(&add->plan.backward, device, gradients, binding->scratch);
}

/* forward, backward: which are wanted. oneDNN creates a backward ReLU from the description of a
 * forward one. */
static yoke_status create_relu(add_plan *add, cpu_device *device, bool forward, bool backward) {
    cpu_operation slope = {.kind = CPU_ELTWISE,
                           .algorithm = dnnl_eltwise_relu_use_dst_for_bwd,
                           .source = add->inputs[0]};
    cpu_primitive relu = {0};
    yoke_status status = cpu_primitive_create(&relu, device, &slope);
    slope.direction = CPU_BACKWARD_DATA;
    slope.hint = relu.description;
    if (status == YOKE_OK && backward)
        status = cpu_primitive_create(&add->plan.backward, device, &slope);
    if (status == YOKE_OK && forward)
        add->relu = relu;
    else
        cpu_primitive_destroy(&relu);
    return status;
}

yoke_status cpu_plan_add(yoke_plan **plan, cpu_device *device, const yoke_plan_request *request) {
    static const yoke_plan_calls calls = {add_bind, add_forward, add_backward, add_destroy,
                                          YOKE_BACKWARD_IN_PLACE | YOKE_READS_OUTPUT};
    TRY(yoke_plan_allocate(plan, sizeof(add_plan), &device->base, request, &calls));
    add_plan *add = (add_plan *)*plan;
    for (int i = 0; i < 2; i++)
        add->inputs[i] = cpu_layout_desc(&request->inputs[i]);
    add->same_layout = add->inputs[0] == add->inputs[1];
    bool relu = request->operation->relu;
    /* oneDNN 2.6 forgets channels where a post-op meets padded ones, in blocks wider than a vector
     * and in place. */
    bool padded = add->inputs[0]->padded_dims[1] != add->inputs[0]->dims[1];
    const cpu_operation sum = {.kind = CPU_SUM, .source = add->inputs[0], .relu = relu && !padded};
    TRY(cpu_primitive_create(&add->plan.forward, device, &sum));
    bool gradient = request->training && request->input_gradient;
    if (relu && (padded || gradient)) TRY(create_relu(add, device, padded, gradient));
    yoke_plan_needs *needs = &add->plan.base.needs;
    needs->output = request->inputs[0];
    needs->forward_in_place = true;
    if (!relu) needs->backward_reads_output = false;
    needs->shared_input_gradient = gradient && add->same_layout;
    needs->scratch_bytes = cpu_primitive_plan_scratch(&add->plan);
    if (add->relu.description != NULL && cpu_primitive_scratch(&add->relu) > needs->scratch_bytes)
        needs->scratch_bytes = cpu_primitive_scratch(&add->relu);
    if (!add->same_layout) {
        add->aligned_offset = cpu_align(needs->scratch_bytes, CPU_LINE);
        needs->scratch_bytes = add->aligned_offset + needs->output.bytes;
    }
    return YOKE_OK;
}

/* The product of two values in the layout of the first. Each input's gradient is the output's times
 * the other input. */

typedef struct multiply_plan {
    yoke_plan base;
    cpu_primitive forward, gradients[2];
    cpu_call align, give_back; /* input 1 into input 0's layout; input 1's gradient back */
    bool same_layout;
    const cpu_desc *inputs[2];
    size_t aligned_offset, gradient_offset; /* in scratch: input 1 and its gradient */
} multiply_plan;

static void multiply_destroy(yoke_plan *plan) {
    multiply_plan *multiply = (multiply_plan *)plan;
    cpu_call_destroy(&multiply->align);
    cpu_call_destroy(&multiply->give_back);
    cpu_primitive_destroy(&multiply->forward);
    for (int i = 0; i < 2; i++)
        cpu_primitive_destroy(&multiply->gradients[i]);
    yoke_free(plan);
}

static yoke_status multiply_forward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const multiply_plan *multiply = (const multiply_plan *)plan;
    TRY(cpu_call_run(&multiply->align, cpu_of(plan->device)));
    return cpu_call_run(&multiply->forward.call, cpu_of(plan->device));
}

static yoke_status multiply_backward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const multiply_plan *multiply = (const multiply_plan *)plan;
    cpu_device *device = cpu_of(plan->device);
    TRY(cpu_call_run(&multiply->align, device));
    for (int i = 0; i < 2; i++)
        TRY(cpu_call_run(&multiply->gradients[i].call, device));
    return cpu_call_run(&multiply->give_back, device);
}

/* to = left * right, all in the layout of input 0. */
static yoke_status bind_product(multiply_plan *multiply, cpu_primitive *product, void *to,
                                void *left, void *right, void *scratch) {
    const cpu_address addresses[] = {
        {DNNL_ARG_SRC_0, left}, {DNNL_ARG_SRC_1, right}, {DNNL_ARG_DST, to}, CPU_LAST_ADDRESS};
    return cpu_primitive_bind(product, cpu_of(multiply->base.device), addresses, scratch);
}

static yoke_status multiply_bind(yoke_plan *plan, const yoke_plan_binding *binding) {
    multiply_plan *multiply = (multiply_plan *)plan;
    cpu_device *device = cpu_of(plan->device);
    char *scratch = binding->scratch;
    void *left = binding->inputs[0], *right = binding->inputs[1];
    void *gradient = binding->input_gradients[1];
    cpu_call_destroy(&multiply->align);
    cpu_call_destroy(&multiply->give_back);
    if (!multiply->same_layout) {
        right = scratch + multiply->aligned_offset;
        gradient = scratch + multiply->gradient_offset;
        TRY(cpu_reorder(&multiply->align, device, multiply->inputs[1], binding->inputs[1],
                        multiply->inputs[0], right));
    }
    TRY(bind_product(multiply, &multiply->forward, binding->output, left, right, scratch));
    if (multiply->gradients[0].description == NULL) return YOKE_OK;
    TRY(bind_product(multiply, &multiply->gradients[0], binding->input_gradients[0],
                     binding->output_gradient, right, scratch));
    TRY(bind_product(multiply, &multiply->gradients[1], gradient, binding->output_gradient, left,
                     scratch));
    if (multiply->same_layout) return YOKE_OK;
    return cpu_reorder(&multiply->give_back, device, multiply->inputs[0], gradient,
                       multiply->inputs[1], binding->input_gradients[1]);
}

yoke_status cpu_plan_multiply(yoke_plan **plan, cpu_device *device,
                              const yoke_plan_request *request) {
    enum { FLAGS = YOKE_FORWARD_IN_PLACE | YOKE_READS_INPUT | YOKE_READS_SECOND };
    static const yoke_plan_calls calls = {multiply_bind, multiply_forward, multiply_backward,
                                          multiply_destroy, FLAGS};
    TRY(yoke_plan_allocate(plan, sizeof(multiply_plan), &device->base, request, &calls));
    multiply_plan *multiply = (multiply_plan *)*plan;
    for (int i = 0; i < 2; i++)
        multiply->inputs[i] = cpu_layout_desc(&request->inputs[i]);
    multiply->same_layout = multiply->inputs[0] == multiply->inputs[1];
    const cpu_operation product = {.kind = CPU_MULTIPLY, .source = multiply->inputs[0]};
    TRY(cpu_primitive_create(&multiply->forward, device, &product));
    bool gradient = request->training && request->input_gradient;
    for (int i = 0; i < 2 && gradient; i++)
        TRY(cpu_primitive_create(&multiply->gradients[i], device, &product));
    yoke_plan_needs *needs = &multiply->base.needs;
    needs->output = request->inputs[0];
    needs->scratch_bytes = cpu_primitive_scratch(&multiply->forward);
    if (multiply->same_layout) return YOKE_OK;
    multiply->aligned_offset = cpu_align(needs->scratch_bytes, CPU_LINE);
    multiply->gradient_offset = multiply->aligned_offset + cpu_align(needs->output.bytes, CPU_LINE);
    needs->scratch_bytes = multiply->gradient_offset + (gradient ? needs->output.bytes : 0);
    return YOKE_OK;
}
