/* SPDX-License-Identifier: Apache-2.0 */
/* Embeddings of tokens and of positions. */
#include "device/cuda/kernel_plan.h"

typedef struct embedding_plan {
    yoke_plan base;
    bool frozen;
    cuda_kernel_input input; /* positions */
    cuda_embedding_job job;
    void *tokens_gradient;
} embedding_plan;

static yoke_status create(yoke_plan **plan, cuda_device *device, const yoke_plan_request *request,
                          const yoke_plan_calls *calls) {
    TRY(yoke_plan_allocate(plan, sizeof(embedding_plan), &device->base, request, calls));
    embedding_plan *self = (embedding_plan *)*plan;
    const yoke_operation *operation = request->operation;
    self->frozen = request->frozen;
    self->job = (cuda_embedding_job){.rows = (size_t)request->rows,
                                     .positions = (size_t)operation->output.height,
                                     .features = (size_t)operation->output.channels,
                                     .table = (size_t)operation->table,
                                     .half = cuda_is_half(request)};
    yoke_plan_needs *needs = &self->base.needs;
    cuda_layout weight = {CUDA_FLOAT32, false, 2, {operation->table, operation->output.channels}};
    cuda_layout_store(&needs->parameters[0], &weight);
    cuda_kernel_output(&needs->output, request);
    return YOKE_OK;
}

/* Tokens. */

static yoke_status tokens_bind(yoke_plan *plan, const yoke_plan_binding *binding) {
    embedding_plan *self = (embedding_plan *)plan;
    self->job.input = binding->inputs[0];
    self->job.output = binding->output;
    self->job.weight = binding->parameters[0];
    self->job.output_gradient = binding->output_gradient;
    self->job.weight_gradient = binding->parameter_gradients[0];
    self->tokens_gradient = binding->input_gradients[0];
    return YOKE_OK;
}

static yoke_status tokens_forward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const embedding_plan *self = (const embedding_plan *)plan;
    TRY_CUDA(cuda_of(plan->device), cuda_run_embedding(&self->job, cuda_compute(plan)));
    return YOKE_OK;
}

/* Token ids have no gradient: a program that reads one gets 0. */
static yoke_status tokens_backward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const embedding_plan *self = (const embedding_plan *)plan;
    cuda_device *device = cuda_of(plan->device);
    size_t bytes = self->job.rows * self->job.positions * sizeof(float);
    if (self->tokens_gradient != NULL)
        TRY_CUDA(device, cudaMemsetAsync(self->tokens_gradient, 0, bytes, cuda_compute(plan)));
    if (self->frozen) return YOKE_OK;
    TRY_CUDA(device, cuda_run_embedding_backward(&self->job, cuda_compute(plan)));
    return YOKE_OK;
}

yoke_status cuda_plan_embedding(yoke_plan **plan, cuda_device *device,
                                const yoke_plan_request *request) {
    static const yoke_plan_calls calls = {tokens_bind, tokens_forward, tokens_backward, NULL};
    TRY(create(plan, device, request, &calls));
    (*plan)->needs.backward_reads_input = request->training && !request->frozen;
    return YOKE_OK;
}

/* Positions. */

static yoke_status positions_bind(yoke_plan *plan, const yoke_plan_binding *binding) {
    embedding_plan *self = (embedding_plan *)plan;
    TRY(tokens_bind(plan, binding));
    cuda_kernel_input_bind(&self->input, binding, 0, binding->scratch);
    self->job.input = self->input.value;
    return YOKE_OK;
}

static yoke_status positions_forward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const embedding_plan *self = (const embedding_plan *)plan;
    cuda_device *device = cuda_of(plan->device);
    TRY(cuda_kernel_input_read(&self->input, device));
    TRY_CUDA(device, cuda_run_positions(&self->job, cuda_compute(plan)));
    return YOKE_OK;
}

/* The input's gradient is the output's. */
static yoke_status positions_backward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const embedding_plan *self = (const embedding_plan *)plan;
    cuda_device *device = cuda_of(plan->device);
    if (!self->frozen)
        TRY_CUDA(device, cuda_run_positions_backward(&self->job, cuda_compute(plan)));
    if (self->input.given_gradient == NULL) return YOKE_OK;
    return cuda_reorder(device, &self->input.given, self->input.given_gradient, &self->input.own,
                        self->job.output_gradient);
}

yoke_status cuda_plan_positions(yoke_plan **plan, cuda_device *device,
                                const yoke_plan_request *request) {
    static const yoke_plan_calls calls = {positions_bind, positions_forward, positions_backward,
                                          NULL};
    TRY(create(plan, device, request, &calls));
    embedding_plan *self = (embedding_plan *)*plan;
    self->input = cuda_kernel_input_of(request, 0);
    yoke_plan_needs *needs = &self->base.needs;
    needs->scratch_bytes = 2 * self->input.bytes;
    needs->forward_in_place = !self->input.reordered;
    needs->backward_in_place = request->training && !self->input.reordered;
    return YOKE_OK;
}
