/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of every operation that runs Yoke's own kernels. */
#include "device/cuda/kernel_plan.h"

static size_t copy_bytes(const cuda_kernel_value *value) {
    if (!value->reordered) return 0;
    return cuda_aligned(cuda_elements(&value->own) * cuda_type_bytes(value->own.type));
}

/* A reordered value takes two copies of scratch: its value's and its gradient's. */
static yoke_status bind_kernels(yoke_plan *plan, const yoke_plan_binding *given) {
    cuda_kernel_plan *self = (cuda_kernel_plan *)plan;
    yoke_plan_binding *binding = &plan->binding;
    char *scratch = given->scratch;
    for (int i = 0; i < self->input_count; i++) {
        cuda_kernel_value *input = &self->inputs[i];
        size_t bytes = copy_bytes(input);
        input->given_value = given->inputs[i];
        input->given_gradient = given->input_gradients[i];
        if (!input->reordered) continue;
        binding->inputs[i] = scratch;
        if (input->given_gradient != NULL) binding->input_gradients[i] = scratch + bytes;
        scratch += 2 * bytes;
    }
    cuda_kernel_value *output = &self->output;
    output->given_value = given->output;
    output->given_gradient = given->output_gradient;
    if (output->reordered) {
        binding->output = scratch;
        binding->output_gradient = scratch + copy_bytes(output);
        scratch += 2 * copy_bytes(output);
    }
    binding->scratch = scratch;
    return YOKE_OK;
}

static yoke_status read_input(const cuda_kernel_plan *self, int index) {
    const cuda_kernel_value *input = &self->inputs[index];
    if (!input->reordered) return YOKE_OK;
    return cuda_reorder(self->device, &input->own, self->base.binding.inputs[index], &input->given,
                        input->given_value);
}

static yoke_status run_forward(yoke_plan *plan, const yoke_plan_step *step) {
    cuda_kernel_plan *self = (cuda_kernel_plan *)plan;
    self->again = step->again;
    for (int i = 0; i < self->input_count; i++)
        TRY(read_input(self, i));
    TRY(self->calls->forward(self, cuda_compute(plan)));
    const cuda_kernel_value *output = &self->output;
    if (!output->reordered) return YOKE_OK;
    return cuda_reorder(self->device, &output->given, output->given_value, &output->own,
                        plan->binding.output);
}

/* With its gradient, for backward. */
static yoke_status read_output(const cuda_kernel_plan *self) {
    const cuda_kernel_value *output = &self->output;
    const yoke_plan_binding *at = &self->base.binding;
    if (!output->reordered) return YOKE_OK;
    TRY(cuda_reorder(self->device, &output->own, at->output, &output->given, output->given_value));
    return cuda_reorder(self->device, &output->own, at->output_gradient, &output->given,
                        output->given_gradient);
}

static yoke_status run_backward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const cuda_kernel_plan *self = (const cuda_kernel_plan *)plan;
    void *const *gradients = plan->binding.input_gradients;
    bool wanted = (self->calls->flags & YOKE_HAS_PARAMETERS) != 0;
    for (int i = 0; i < YOKE_PLAN_INPUTS; i++)
        wanted = wanted || gradients[i] != NULL;
    if (!wanted) return YOKE_OK;
    for (int i = 0; i < self->input_count; i++)
        if (plan->needs.backward_reads[i]) TRY(read_input(self, i));
    TRY(read_output(self));
    TRY(self->calls->backward(self, cuda_compute(plan)));
    for (int i = 0; i < self->input_count; i++) {
        const cuda_kernel_value *input = &self->inputs[i];
        if (input->reordered && gradients[i] != NULL)
            TRY(cuda_reorder(self->device, &input->given, input->given_gradient, &input->own,
                             gradients[i]));
    }
    return YOKE_OK;
}

static yoke_dims input_dims(const yoke_operation *operation, int index) {
    yoke_dims dims = operation->input;
    if (index > 0 && operation->others[index - 1].channels > 0) return operation->others[index - 1];
    if (index == 1 && operation->kind == YOKE_OP_CONCAT)
        dims.channels = operation->output.channels - dims.channels;
    if (index == 1 && operation->by_channel) dims.height = dims.width = 1;
    return dims;
}

static int input_count(const yoke_operation *operation, const cuda_kernel_operation *calls) {
    if (operation->kind == YOKE_OP_EXPRESSION) return operation->expression.inputs;
    if (operation->kind == YOKE_OP_RECURRENCE) return operation->others[0].height > 0 ? 2 : 1;
    return operation->kind == YOKE_OP_HOST ? operation->host.inputs : calls->inputs;
}

yoke_status cuda_kernel_plan_create(yoke_plan **plan, size_t bytes, cuda_device *device,
                                    const yoke_plan_request *request,
                                    const cuda_kernel_operation *calls) {
    const yoke_plan_calls functions = {bind_kernels, run_forward, run_backward, NULL, calls->flags};
    TRY(yoke_plan_allocate(plan, bytes, &device->base, request, &functions));
    cuda_kernel_plan *self = (cuda_kernel_plan *)*plan;
    self->calls = calls;
    self->input_count = input_count(request->operation, calls);
    self->device = device;
    self->type = cuda_compute_type(request->precision);
    for (int i = 0; i < self->input_count; i++) {
        cuda_kernel_value *input = &self->inputs[i];
        input->given = *cuda_layout_of(&request->inputs[i]);
        input->own =
            cuda_value_layout(request->rows, input_dims(request->operation, i), request->precision);
        if (calls->plain) input->own.channels_last = false;
        if (calls->float32) input->own.type = CUDA_FLOAT32;
        input->reordered = input->given.type != input->own.type ||
                           input->given.channels_last != input->own.channels_last;
        self->base.needs.scratch_bytes += 2 * copy_bytes(input);
    }
    yoke_plan_needs *needs = &self->base.needs;
    cuda_layout output =
        cuda_value_layout(request->rows, request->operation->output, request->precision);
    if (calls->plain) output.channels_last = false;
    cuda_layout_store(&needs->output, &output);
    self->output.given = self->output.own = output;
    if (calls->float32) self->output.own.type = CUDA_FLOAT32;
    self->output.reordered = self->output.own.type != output.type;
    needs->scratch_bytes += 2 * copy_bytes(&self->output);
    if (self->inputs[0].reordered) needs->forward_in_place = needs->backward_in_place = false;
    return calls->prepare != NULL ? calls->prepare(self, request) : YOKE_OK;
}
