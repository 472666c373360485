/* Batch normalisation, then the sum with a second value and its ReLU, as one operation: here one
 * plan behind the other. What lies between is not kept: forward leaves it where the output goes,
 * backward leaves the gradient before the ReLU where input 1 wants it. */
#include <stdlib.h>

#include "device/cpu/cpu.h"

typedef struct batch_norm_add_plan {
    yoke_plan base;
    yoke_plan *norm, *add;
    size_t between_offset; /* in scratch: for what lies between, where it has no other place */
} batch_norm_add_plan;

static void destroy(yoke_plan *plan) {
    batch_norm_add_plan *both = (batch_norm_add_plan *)plan;
    yoke_plan_destroy(both->norm);
    yoke_plan_destroy(both->add);
    free(both);
}

static yoke_status forward(yoke_plan *plan, const yoke_plan_step *step) {
    const batch_norm_add_plan *both = (const batch_norm_add_plan *)plan;
    TRY(yoke_plan_forward(both->norm, step));
    return yoke_plan_forward(both->add, step);
}

static yoke_status backward(yoke_plan *plan, const yoke_plan_step *step) {
    const batch_norm_add_plan *both = (const batch_norm_add_plan *)plan;
    TRY(yoke_plan_backward(both->add, step));
    return yoke_plan_backward(both->norm, step);
}

static yoke_status bind(yoke_plan *plan, const yoke_plan_binding *binding) {
    const batch_norm_add_plan *both = (const batch_norm_add_plan *)plan;
    void *between = (char *)binding->scratch + both->between_offset;
    void *gradient_of_1 = binding->input_gradients[1];
    bool shared = both->add->needs.shared_input_gradient && gradient_of_1 != NULL;
    yoke_plan_binding norm = *binding;
    norm.output = both->add->needs.forward_in_place ? binding->output : between;
    norm.output_gradient = shared ? gradient_of_1 : between;
    TRY(yoke_plan_bind(both->norm, &norm));
    const yoke_plan_binding add = {.inputs = {norm.output, binding->inputs[1]},
                                   .output = binding->output,
                                   .output_gradient = binding->output_gradient,
                                   .input_gradients = {norm.output_gradient, gradient_of_1},
                                   .scratch = binding->scratch};
    return yoke_plan_bind(both->add, &add);
}

static yoke_status create_plans(batch_norm_add_plan *both, const yoke_plan_request *request) {
    cpu_device *device = cpu_of(both->base.device);
    yoke_operation norm = *request->operation, add = norm;
    norm.add = norm.relu = false;
    add.kind = YOKE_OP_ADD;
    yoke_plan_request part = *request;
    part.operation = &norm;
    TRY(cpu_plan_batch_norm(&both->norm, device, &part));
    part.operation = &add;
    part.inputs[0] = both->norm->needs.output;
    part.input_gradient = true; /* the batch norm's parameters want it in any case */
    return cpu_plan_add(&both->add, device, &part);
}

static void describe_needs(batch_norm_add_plan *both, const yoke_plan_request *request) {
    const yoke_plan_needs *norm = &both->norm->needs, *add = &both->add->needs;
    yoke_plan_needs *needs = &both->base.needs;
    bool in_place = add->forward_in_place &&
                    (!request->training || (request->input_gradient && add->shared_input_gradient));
    *needs = *norm;
    needs->output = add->output;
    needs->backward_reads_output = add->backward_reads_output;
    needs->backward_in_place = false;
    needs->joined_in_place = add->shared_input_gradient;
    if (needs->scratch_bytes < add->scratch_bytes) needs->scratch_bytes = add->scratch_bytes;
    both->between_offset = (needs->scratch_bytes + 63) / 64 * 64;
    if (!in_place) needs->scratch_bytes = both->between_offset + norm->output.bytes;
}

static yoke_status build(batch_norm_add_plan *both, const yoke_plan_request *request) {
    TRY(create_plans(both, request));
    describe_needs(both, request);
    return YOKE_OK;
}

yoke_status cpu_plan_batch_norm_add(yoke_plan **plan, cpu_device *device,
                                    const yoke_plan_request *request) {
    batch_norm_add_plan *both = calloc(1, sizeof *both);
    if (both == NULL) return FAIL_MEMORY(sizeof *both, request->operation->name);
    both->base = (yoke_plan){.device = &device->base,
                             .bind = bind,
                             .forward = forward,
                             .backward = request->training ? backward : NULL,
                             .destroy = destroy};
    yoke_status status = build(both, request);
    if (status == YOKE_OK)
        *plan = &both->base;
    else
        destroy(&both->base);
    return status;
}
