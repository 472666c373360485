/* SPDX-License-Identifier: Apache-2.0 */
/* A learned token before a sequence, and one position of a sequence as a flat value. */
#include "device/cuda/kernel_plan.h"

typedef struct token_plan {
    yoke_plan base;
    cuda_kernel_input input;
    size_t rows, features;
    size_t longer, place; /* positions of the longer value; class token: 0; select: the index */
    bool half, frozen;
    const float *token;
    float *token_gradient, *partial;
    void *output, *output_gradient;
} token_plan;

static yoke_status bind(yoke_plan *plan, const yoke_plan_binding *binding) {
    token_plan *self = (token_plan *)plan;
    cuda_kernel_input_bind(&self->input, binding, 0, binding->scratch);
    self->partial = (float *)((char *)binding->scratch + 2 * self->input.bytes);
    self->token = binding->parameters[0];
    self->token_gradient = binding->parameter_gradients[0];
    self->output = binding->output;
    self->output_gradient = binding->output_gradient;
    return YOKE_OK;
}

static yoke_status create(yoke_plan **plan, cuda_device *device, const yoke_plan_request *request,
                          const yoke_plan_calls *calls) {
    TRY(yoke_plan_allocate(plan, sizeof(token_plan), &device->base, request, calls));
    token_plan *self = (token_plan *)*plan;
    self->input = cuda_kernel_input_of(request, 0);
    self->rows = (size_t)request->rows;
    self->features = (size_t)request->operation->output.channels;
    self->half = cuda_is_half(request);
    self->frozen = request->frozen;
    cuda_kernel_output(&self->base.needs.output, request);
    self->base.needs.scratch_bytes = 2 * self->input.bytes;
    return YOKE_OK;
}

static void *at_position(const token_plan *self, const void *values, size_t position) {
    size_t bytes = self->half ? 2 : 4;
    return (char *)(uintptr_t)values + position * self->features * bytes;
}

/* `positions` positions of each row, between a sequence of `longer` and one of `positions`. */
static cuda_rows_job job_of(const token_plan *self, size_t positions) {
    return (cuda_rows_job){.rows = self->rows,
                           .count = positions * self->features,
                           .to_stride = self->longer * self->features,
                           .from_stride = positions * self->features,
                           .to_half = self->half,
                           .from_half = self->half};
}

static cuda_rows_job reversed(cuda_rows_job job) {
    size_t stride = job.to_stride;
    job.to_stride = job.from_stride;
    job.from_stride = stride;
    return job;
}

/* Class token. */

static yoke_status prepend(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const token_plan *self = (const token_plan *)plan;
    cuda_device *device = cuda_of(plan->device);
    cuda_rows_job first = job_of(self, 1), others = job_of(self, self->longer - 1);
    first.to = self->output;
    first.from = self->token;
    first.from_half = false;
    first.from_stride = 0;
    others.to = at_position(self, self->output, 1);
    others.from = self->input.value;
    TRY(cuda_kernel_input_read(&self->input, device));
    TRY_CUDA(device, cuda_run_copy_rows(&first, cuda_compute(plan)));
    TRY_CUDA(device, cuda_run_copy_rows(&others, cuda_compute(plan)));
    return YOKE_OK;
}

static yoke_status prepend_backward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const token_plan *self = (const token_plan *)plan;
    cuda_device *device = cuda_of(plan->device);
    const cuda_column_sums sums = {
        .values = self->output_gradient,
        .half = self->half,
        .shape = {self->rows, self->features, self->longer * self->features},
        .sums = self->token_gradient,
        .partial = self->partial};
    if (!self->frozen) TRY_CUDA(device, cuda_run_column_sums(&sums, cuda_compute(plan)));
    if (self->input.gradient == NULL) return YOKE_OK;
    cuda_rows_job others = reversed(job_of(self, self->longer - 1));
    others.to = self->input.gradient;
    others.from = at_position(self, self->output_gradient, 1);
    TRY_CUDA(device, cuda_run_copy_rows(&others, cuda_compute(plan)));
    return cuda_kernel_input_return(&self->input, device);
}

yoke_status cuda_plan_class_token(yoke_plan **plan, cuda_device *device,
                                  const yoke_plan_request *request) {
    static const yoke_plan_calls calls = {bind, prepend, prepend_backward, NULL};
    TRY(create(plan, device, request, &calls));
    token_plan *self = (token_plan *)*plan;
    self->longer = (size_t)request->operation->output.height;
    self->base.needs.scratch_bytes += CUDA_COLUMN_PARTS * self->features * sizeof(float);
    const int64_t shape[] = {1, 1, request->operation->output.channels};
    return yoke_layout_plain(&device->base, shape, 3, &self->base.needs.parameters[0]);
}

/* Select. */

static yoke_status choose(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const token_plan *self = (const token_plan *)plan;
    cuda_device *device = cuda_of(plan->device);
    cuda_rows_job job = reversed(job_of(self, 1));
    job.to = self->output;
    job.from = at_position(self, self->input.value, self->place);
    TRY(cuda_kernel_input_read(&self->input, device));
    TRY_CUDA(device, cuda_run_copy_rows(&job, cuda_compute(plan)));
    return YOKE_OK;
}

static yoke_status choose_backward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const token_plan *self = (const token_plan *)plan;
    cuda_device *device = cuda_of(plan->device);
    if (self->input.gradient == NULL) return YOKE_OK;
    cuda_rows_job job = job_of(self, 1);
    job.to = at_position(self, self->input.gradient, self->place);
    job.from = self->output_gradient;
    size_t bytes = self->rows * self->longer * self->features * (self->half ? 2 : 4);
    TRY_CUDA(device, cudaMemsetAsync(self->input.gradient, 0, bytes, cuda_compute(plan)));
    TRY_CUDA(device, cuda_run_copy_rows(&job, cuda_compute(plan)));
    return cuda_kernel_input_return(&self->input, device);
}

yoke_status cuda_plan_select(yoke_plan **plan, cuda_device *device,
                             const yoke_plan_request *request) {
    static const yoke_plan_calls calls = {bind, choose, choose_backward, NULL};
    TRY(create(plan, device, request, &calls));
    token_plan *self = (token_plan *)*plan;
    self->longer = (size_t)request->operation->input.height;
    self->place = (size_t)request->operation->index;
    return YOKE_OK;
}
