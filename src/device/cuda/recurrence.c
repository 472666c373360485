/* SPDX-License-Identifier: Apache-2.0 */
/* The recurrent part of an LSTM's or a GRU's layer in one direction: for each position a product
 * with the weight and a kernel; in backward one product more for the weight's gradient. */
#include "device/cuda/recurrence.h"

#include <stdlib.h>

#include "device/cuda/kernel_plan.h"

typedef struct recurrence_plan {
    cuda_kernel_plan kernel;
    size_t positions, hidden, gates;
    cuda_product *forward, *data, *weights;
} recurrence_plan;

static size_t sites(const recurrence_plan *self) {
    return self->kernel.base.rows * self->positions;
}

static bool is_gru(const recurrence_plan *self) {
    return self->gates == 3 * self->hidden;
}

static void recurrence_destroy(yoke_plan *plan) {
    recurrence_plan *self = (recurrence_plan *)plan;
    cuda_product_destroy(self->forward);
    cuda_product_destroy(self->data);
    cuda_product_destroy(self->weights);
    yoke_free(self);
}

/* Pieces of memory begin where products want them. */
static size_t whole(size_t floats) {
    return cuda_aligned(floats * sizeof(float)) / sizeof(float);
}

/* Dense and in float32; turned: the operand that is stored transposed. */
static yoke_status create_product(cuda_product **product, const recurrence_plan *self,
                                  const yoke_plan_request *request, const size_t mnk[3],
                                  char turned, bool add) {
    const cuda_product_shape shape = {.m = (int64_t)mnk[0],
                                      .n = (int64_t)mnk[1],
                                      .k = (int64_t)mnk[2],
                                      .a = {CUDA_FLOAT32, turned == 'a', 0},
                                      .b = {CUDA_FLOAT32, turned == 'b', 0},
                                      .output = {CUDA_FLOAT32, false, 0},
                                      .add = add,
                                      .tf32 = request->precision == YOKE_TF32};
    return cuda_product_create(product, self->kernel.device, &shape);
}

static yoke_status create_products(recurrence_plan *self, const yoke_plan_request *request) {
    size_t rows = self->kernel.base.rows, h = self->hidden, g = self->gates;
    const size_t forward[] = {rows, g, h}, data[] = {rows, h, g}, weights[] = {g, h, sites(self)};
    TRY(create_product(&self->forward, self, request, forward, 'b', false));
    if (!request->training) return YOKE_OK;
    TRY(create_product(&self->data, self, request, data, 0, true));
    return create_product(&self->weights, self, request, weights, 'a', false);
}

static yoke_status recurrence_prepare(cuda_kernel_plan *plan, const yoke_plan_request *request) {
    recurrence_plan *self = (recurrence_plan *)plan;
    const yoke_operation *operation = request->operation;
    yoke_plan_needs *needs = &plan->base.needs;
    const int64_t weight[] = {operation->input.channels, operation->output.channels};
    plan->base.destroy = recurrence_destroy;
    self->positions = (size_t)operation->output.height;
    self->hidden = (size_t)operation->output.channels;
    self->gates = (size_t)operation->input.channels;
    TRY(yoke_layout_plain(plan->base.device, weight, 2, &needs->parameters[0]));
    if (operation->bias)
        TRY(yoke_layout_plain(plan->base.device, weight, 1, &needs->parameters[1]));
    size_t state = whole(sites(self) * self->hidden), rows = plan->base.rows;
    size_t scratch = whole(rows * self->gates) + 2 * whole(rows * self->hidden);
    if (request->training) {
        needs->saved_bytes = (is_gru(self) ? 5u : 6u) * state * sizeof(float);
        scratch += whole(sites(self) * self->gates) + CUDA_COLUMN_PARTS * self->gates;
    }
    needs->scratch_bytes += scratch * sizeof(float);
    return create_products(self, request);
}

static cuda_recurrence_job job_of(const recurrence_plan *self) {
    const yoke_plan_binding *at = &self->kernel.base.binding;
    size_t rows = self->kernel.base.rows, h = self->hidden;
    float *gate = at->scratch, *state = gate + whole(rows * self->gates);
    float *cell = state + whole(rows * h), *slopes = cell + whole(rows * h);
    cuda_recurrence_job job = {.rows = rows,
                               .positions = self->positions,
                               .hidden = h,
                               .gates = self->gates,
                               .gru = is_gru(self),
                               .input = at->inputs[0],
                               .bias = self->kernel.base.operation.bias ? at->parameters[1] : NULL,
                               .valid = self->kernel.input_count > 1 ? at->inputs[1] : NULL,
                               .gate = gate,
                               .state = state,
                               .cell = cell,
                               .output = at->output,
                               .output_gradient = at->output_gradient,
                               .slopes = slopes,
                               .input_gradient = at->input_gradients[0]};
    if (self->kernel.base.backward == NULL) return job;
    size_t kept = whole(sites(self) * h);
    job.kept_gates = at->saved;
    job.kept_states = job.kept_gates + 4 * kept;
    job.kept_cells = job.gru ? NULL : job.kept_states + kept;
    return job;
}

/* The states and cells, or their gradients, begin with zeros. */
static yoke_status begin(const recurrence_plan *self, const cuda_recurrence_job *job,
                         cudaStream_t stream) {
    size_t bytes = 2 * whole(job->rows * job->hidden) * sizeof(float);
    TRY_CUDA(self->kernel.device, cudaMemsetAsync(job->state, 0, bytes, stream));
    return YOKE_OK;
}

static size_t position_at(const recurrence_plan *self, size_t turn) {
    return self->kernel.base.operation.reverse ? self->positions - 1 - turn : turn;
}

static yoke_status recurrence_forward(const cuda_kernel_plan *plan, cudaStream_t stream) {
    const recurrence_plan *self = (const recurrence_plan *)plan;
    const float *weight = plan->base.binding.parameters[0];
    cuda_recurrence_job job = job_of(self);
    TRY(begin(self, &job, stream));
    for (size_t turn = 0; turn < self->positions; turn++) {
        job.position = position_at(self, turn);
        TRY(cuda_product_run(self->forward, job.state, weight, NULL, job.gate));
        TRY_CUDA(plan->device, cuda_run_recurrence(&job, stream));
    }
    return YOKE_OK;
}

static yoke_status weight_gradients(const recurrence_plan *self, const cuda_recurrence_job *job,
                                    cudaStream_t stream) {
    const yoke_plan_binding *at = &self->kernel.base.binding;
    const cuda_column_sums sums = {.values = job->slopes,
                                   .shape = {sites(self), self->gates, self->gates},
                                   .sums = at->parameter_gradients[1],
                                   .partial = job->slopes + whole(sites(self) * self->gates)};
    TRY(cuda_product_run(self->weights, job->slopes, job->kept_states, NULL,
                         at->parameter_gradients[0]));
    if (job->bias != NULL) TRY_CUDA(self->kernel.device, cuda_run_column_sums(&sums, stream));
    return YOKE_OK;
}

static yoke_status recurrence_backward(const cuda_kernel_plan *plan, cudaStream_t stream) {
    const recurrence_plan *self = (const recurrence_plan *)plan;
    const yoke_plan_binding *at = &plan->base.binding;
    cuda_recurrence_job job = job_of(self);
    TRY(begin(self, &job, stream));
    for (size_t turn = self->positions; turn-- > 0;) {
        job.position = position_at(self, turn);
        TRY_CUDA(plan->device, cuda_run_recurrence_backward(&job, stream));
        if (turn > 0)
            TRY(cuda_product_run(self->data, job.gate, at->parameters[0], NULL, job.state));
    }
    if (at->input_gradients[1] != NULL)
        TRY_CUDA(plan->device,
                 cudaMemsetAsync(at->input_gradients[1], 0, sites(self) * sizeof(float), stream));
    return plan->base.frozen ? YOKE_OK : weight_gradients(self, &job, stream);
}

yoke_status cuda_plan_recurrence(yoke_plan **plan, cuda_device *device,
                                 const yoke_plan_request *request) {
    static const cuda_kernel_operation calls = {2,
                                                YOKE_READS_SECOND | YOKE_HAS_PARAMETERS,
                                                recurrence_prepare,
                                                recurrence_forward,
                                                recurrence_backward,
                                                .plain = true,
                                                .float32 = true};
    return cuda_kernel_plan_create(plan, sizeof(recurrence_plan), device, request, &calls);
}
