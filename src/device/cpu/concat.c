/* SPDX-License-Identifier: Apache-2.0 */
/* Concatenation of the channels of two values: a reorder of each into its part of the output, and
 * back for the gradients. */
#include <stdlib.h>
#include <string.h>

#include "device/cpu/cpu.h"

typedef struct concat_plan {
    yoke_plan base;
    const cpu_desc *inputs[2], *parts[2]; /* parts: of the output, from its first byte on */
    cpu_call forward[2], backward[2];
} concat_plan;

static void clear_calls(concat_plan *concat) {
    for (int i = 0; i < 2; i++) {
        cpu_call_destroy(&concat->forward[i]);
        cpu_call_destroy(&concat->backward[i]);
    }
}

static void concat_destroy(yoke_plan *plan) {
    clear_calls((concat_plan *)plan);
    yoke_free(plan);
}

/* A reorder between equal descriptors is empty: of one row, input 0 is the beginning of the output.
 */
static yoke_status copy_part(const concat_plan *concat, int input, const cpu_call *reorder,
                             void *to, const void *from) {
    if (concat->inputs[input] == concat->parts[input])
        memcpy(to, from, cpu_desc_span(concat->inputs[input]));
    return cpu_call_run(reorder, cpu_of(concat->base.device));
}

static yoke_status concat_forward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const concat_plan *concat = (const concat_plan *)plan;
    const yoke_plan_binding *binding = &plan->binding;
    for (int i = 0; i < 2; i++)
        TRY(copy_part(concat, i, &concat->forward[i], binding->output, binding->inputs[i]));
    return YOKE_OK;
}

static yoke_status concat_backward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const concat_plan *concat = (const concat_plan *)plan;
    const yoke_plan_binding *binding = &plan->binding;
    for (int i = 0; i < 2; i++)
        if (binding->input_gradients[i] != NULL)
            TRY(copy_part(concat, i, &concat->backward[i], binding->input_gradients[i],
                          binding->output_gradient));
    return YOKE_OK;
}

static yoke_status concat_bind(yoke_plan *plan, const yoke_plan_binding *binding) {
    concat_plan *concat = (concat_plan *)plan;
    cpu_device *device = cpu_of(plan->device);
    clear_calls(concat);
    for (int i = 0; i < 2; i++) {
        TRY(cpu_reorder(&concat->forward[i], device, concat->inputs[i], binding->inputs[i],
                        concat->parts[i], binding->output));
        if (binding->input_gradients[i] != NULL)
            TRY(cpu_reorder(&concat->backward[i], device, concat->parts[i],
                            binding->output_gradient, concat->inputs[i],
                            binding->input_gradients[i]));
    }
    return YOKE_OK;
}

/* The layout of input 0 where its blocks of channels divide both inputs; otherwise plain. */
static dnnl_format_tag_t output_order(const concat_plan *concat, int first, int second) {
    const cpu_desc *input = concat->inputs[0];
    bool blocked = input->inner_count == 1 && input->inner_dims[0] == 1;
    dnnl_dim_t block = blocked ? input->inner_blocks[0] : 1;
    if (block == 1 || first % block != 0 || second % block != 0) return dnnl_nchw;
    return block == 16 ? dnnl_nChw16c : block == 8 ? dnnl_nChw8c : dnnl_nchw;
}

yoke_status cpu_plan_concat(yoke_plan **plan, cpu_device *device,
                            const yoke_plan_request *request) {
    static const yoke_plan_calls calls = {concat_bind, concat_forward, concat_backward,
                                          concat_destroy};
    TRY(yoke_plan_allocate(plan, sizeof(concat_plan), &device->base, request, &calls));
    concat_plan *concat = (concat_plan *)*plan;
    const yoke_operation *operation = request->operation;
    for (int i = 0; i < 2; i++)
        concat->inputs[i] = cpu_layout_desc(&request->inputs[i]);
    int first = operation->input.channels, second = operation->output.channels - first;
    const cpu_desc *output = NULL;
    TRY(cpu_value_desc(&output, device, request->rows, operation->output, concat->inputs[0]->type,
                       output_order(concat, first, second)));
    dnnl_dims_t offsets = {0};
    for (int i = 0; i < 2; i++) {
        TRY_DNNL(cpu_desc_part(&concat->parts[i], &device->descs, output, concat->inputs[i]->dims,
                               offsets));
        offsets[operation->input.sequence ? 2 : 1] = first;
    }
    cpu_layout_store(&concat->base.needs.output, output);
    return YOKE_OK;
}
