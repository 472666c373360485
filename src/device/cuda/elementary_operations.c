/* SPDX-License-Identifier: Apache-2.0 */
/* Elementary operations: how each fills in its kernels' jobs. */
#include <stdlib.h>

#include "device/cuda/elementary_kernels.h"
#include "device/cuda/kernel_plan.h"

/* Expressions. Repeated inputs have places of their own in scratch for what every element
 * contributes to their gradient. */

static cuda_expression_job expression_job(const cuda_kernel_plan *plan) {
    const yoke_operation *operation = &plan->base.operation;
    const yoke_plan_binding *at = &plan->base.binding;
    cuda_expression_job job = {.rows = plan->base.rows,
                               .type = plan->type,
                               .expression = operation->expression,
                               .output = at->output,
                               .output_gradient = at->output_gradient};
    yoke_dims inputs[YOKE_PLAN_INPUTS];
    float *shares = at->scratch;
    size_t whole = yoke_row_elements(operation->output);
    for (int k = 0; k < plan->input_count; k++) {
        inputs[k] = yoke_operation_input(operation, k);
        job.elements[k] = yoke_row_elements(inputs[k]);
        job.inputs[k] = at->inputs[k];
        job.input_gradients[k] = at->input_gradients[k];
        if (job.elements[k] == whole) continue;
        job.shares[k] = shares;
        shares += plan->base.rows * whole;
    }
    job.view = yoke_view_of(operation->output, inputs, plan->input_count, true);
    return job;
}

static yoke_status expression_forward(const cuda_kernel_plan *plan, cudaStream_t stream) {
    const cuda_expression_job job = expression_job(plan);
    TRY_CUDA(plan->device, cuda_run_expression(&job, stream));
    return YOKE_OK;
}

static yoke_status expression_backward(const cuda_kernel_plan *plan, cudaStream_t stream) {
    const yoke_operation *operation = &plan->base.operation;
    const cuda_expression_job job = expression_job(plan);
    TRY_CUDA(plan->device, cuda_run_expression_backward(&job, stream));
    for (int k = 0; k < plan->input_count; k++) {
        if (job.shares[k] == NULL || job.input_gradients[k] == NULL) continue;
        const yoke_dims operands[] = {operation->output, yoke_operation_input(operation, k)};
        const cuda_reduction_job sum = {.rows = job.rows,
                                        .results = job.elements[k],
                                        .view = yoke_view_of(operation->output, operands, 2, true),
                                        .kind = YOKE_REDUCE_SUM,
                                        .to_type = plan->type,
                                        .from = job.shares[k],
                                        .to = job.input_gradients[k]};
        TRY_CUDA(plan->device, cuda_run_reduction(&sum, stream));
    }
    return YOKE_OK;
}

static yoke_status expression_prepare(cuda_kernel_plan *plan, const yoke_plan_request *request) {
    const yoke_operation *operation = request->operation;
    yoke_plan_needs *needs = &plan->base.needs;
    size_t whole = yoke_row_elements(operation->output);
    for (int k = 0; k < plan->input_count; k++) {
        bool repeats = yoke_row_elements(yoke_operation_input(operation, k)) != whole;
        if (repeats && k == 0) needs->forward_in_place = needs->backward_in_place = false;
        if (repeats && request->training)
            needs->scratch_bytes += plan->base.rows * whole * sizeof(float);
    }
    return YOKE_OK;
}

const cuda_kernel_operation cuda_expression = {YOKE_PLAN_INPUTS, YOKE_IN_PLACE | YOKE_READS_INPUTS,
                                               expression_prepare, expression_forward,
                                               expression_backward};

/* Reductions. */

static cuda_reduction_job reduction_job(const cuda_kernel_plan *plan) {
    const yoke_operation *operation = &plan->base.operation;
    const yoke_plan_binding *at = &plan->base.binding;
    const yoke_dims operands[] = {operation->input, operation->output};
    return (cuda_reduction_job){.rows = plan->base.rows,
                                .results = yoke_row_elements(operation->output),
                                .view = yoke_view_of(operation->input, operands, 2, true),
                                .kind = operation->reduction,
                                .from_type = plan->type,
                                .to_type = plan->type,
                                .from = at->inputs[0],
                                .to = at->output,
                                .gradient = at->output_gradient,
                                .from_gradient = at->input_gradients[0]};
}

static yoke_status reduction_forward(const cuda_kernel_plan *plan, cudaStream_t stream) {
    const cuda_reduction_job job = reduction_job(plan);
    TRY_CUDA(plan->device, cuda_run_reduction(&job, stream));
    return YOKE_OK;
}

static yoke_status reduction_backward(const cuda_kernel_plan *plan, cudaStream_t stream) {
    const cuda_reduction_job job = reduction_job(plan);
    TRY_CUDA(plan->device, cuda_run_reduction_backward(&job, stream));
    return YOKE_OK;
}

static yoke_status reduction_prepare(cuda_kernel_plan *plan, const yoke_plan_request *request) {
    yoke_plan_needs *needs = &plan->base.needs;
    bool maximum = request->operation->reduction == YOKE_REDUCE_MAX;
    needs->backward_reads[0] = needs->backward_reads[0] && maximum;
    needs->backward_reads_output = needs->backward_reads_output && maximum;
    return YOKE_OK;
}

const cuda_kernel_operation cuda_reduction = {1, YOKE_READS_INPUT | YOKE_READS_OUTPUT,
                                              reduction_prepare, reduction_forward,
                                              reduction_backward};

/* Moves and rows of another shape: of plain values. */

static yoke_status copy_value(const cuda_kernel_plan *plan, void *to, const void *from,
                              cudaStream_t stream) {
    size_t bytes = plan->base.needs.output.bytes;
    if (to != NULL && to != from)
        TRY_CUDA(plan->device, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream));
    return YOKE_OK;
}

static yoke_status row_shape_forward(const cuda_kernel_plan *plan, cudaStream_t stream) {
    const yoke_plan_binding *at = &plan->base.binding;
    return copy_value(plan, at->output, at->inputs[0], stream);
}

static yoke_status row_shape_backward(const cuda_kernel_plan *plan, cudaStream_t stream) {
    const yoke_plan_binding *at = &plan->base.binding;
    return copy_value(plan, at->input_gradients[0], at->output_gradient, stream);
}

const cuda_kernel_operation cuda_row_shape = {
    1, YOKE_IN_PLACE, NULL, row_shape_forward, row_shape_backward, .plain = true};

static cuda_move_job move_job(const cuda_kernel_plan *plan) {
    const yoke_operation *operation = &plan->base.operation;
    return (cuda_move_job){.rows = plan->base.rows,
                           .from_elements = yoke_row_elements(operation->input),
                           .to_elements = yoke_row_elements(operation->output),
                           .box = yoke_move_box(operation),
                           .fill = operation->move.fill,
                           .type = plan->type,
                           .from = plan->base.binding.inputs[0],
                           .to = plan->base.binding.output};
}

static yoke_status move_forward(const cuda_kernel_plan *plan, cudaStream_t stream) {
    const cuda_move_job job = move_job(plan);
    TRY_CUDA(plan->device, cuda_run_move(&job, stream));
    return YOKE_OK;
}

static yoke_status move_backward(const cuda_kernel_plan *plan, cudaStream_t stream) {
    cuda_move_job job = move_job(plan);
    job.backward = true;
    job.from = plan->base.binding.output_gradient;
    job.to = plan->base.binding.input_gradients[0];
    TRY_CUDA(plan->device, cuda_run_move(&job, stream));
    return YOKE_OK;
}

const cuda_kernel_operation cuda_move = {1, 0, NULL, move_forward, move_backward, .plain = true};

/* Products of matrices. */

static yoke_status run_matrices(const cuda_kernel_plan *plan, const cuda_matrices_job *job,
                                cudaStream_t stream) {
    if (job->to != NULL) TRY_CUDA(plan->device, cuda_run_matrices(job, stream));
    return YOKE_OK;
}

static yoke_status matmul_forward(const cuda_kernel_plan *plan, cudaStream_t stream) {
    const yoke_operation *operation = &plan->base.operation;
    const yoke_plan_binding *at = &plan->base.binding;
    yoke_matrices size = yoke_matmul_matrices(operation);
    const cuda_matrices_job job = {.count = plan->base.rows * size.count,
                                   .rows = size.m,
                                   .inner = size.k,
                                   .columns = size.n,
                                   .type = plan->type,
                                   .transpose_a = operation->transpose_left,
                                   .transpose_b = operation->transpose_right,
                                   .a = at->inputs[0],
                                   .b = at->inputs[1],
                                   .to = at->output};
    return run_matrices(plan, &job, stream);
}

/* left: dy right^T, or, of a transposed left, right dy^T. right: left^T dy, or, of a transposed
 * right, dy^T left. */
static yoke_status matmul_backward(const cuda_kernel_plan *plan, cudaStream_t stream) {
    const yoke_operation *operation = &plan->base.operation;
    const yoke_plan_binding *at = &plan->base.binding;
    yoke_matrices size = yoke_matmul_matrices(operation);
    bool left_swapped = operation->transpose_left, right_swapped = operation->transpose_right;
    const void *dy = at->output_gradient;
    const cuda_matrices_job left = {.count = plan->base.rows * size.count,
                                    .rows = left_swapped ? size.k : size.m,
                                    .inner = size.n,
                                    .columns = left_swapped ? size.m : size.k,
                                    .type = plan->type,
                                    .transpose_a = left_swapped && right_swapped,
                                    .transpose_b = left_swapped || !right_swapped,
                                    .a = left_swapped ? at->inputs[1] : dy,
                                    .b = left_swapped ? dy : at->inputs[1],
                                    .to = at->input_gradients[0]};
    const cuda_matrices_job right = {.count = left.count,
                                     .rows = right_swapped ? size.n : size.k,
                                     .inner = size.m,
                                     .columns = right_swapped ? size.k : size.n,
                                     .type = plan->type,
                                     .transpose_a = right_swapped || !left_swapped,
                                     .transpose_b = right_swapped && left_swapped,
                                     .a = right_swapped ? dy : at->inputs[0],
                                     .b = right_swapped ? at->inputs[0] : dy,
                                     .to = at->input_gradients[1]};
    TRY(run_matrices(plan, &left, stream));
    return run_matrices(plan, &right, stream);
}

const cuda_kernel_operation cuda_matmul = {
    2, YOKE_READS_INPUTS, NULL, matmul_forward, matmul_backward, .plain = true};

/* A parameter, or a constant, in every row. */

static size_t parameter_elements(const cuda_kernel_plan *plan) {
    return yoke_row_elements(plan->base.operation.output);
}

static yoke_status parameter_prepare(cuda_kernel_plan *plan, const yoke_plan_request *request) {
    (void)request;
    const int64_t shape[] = {(int64_t)parameter_elements(plan)};
    plan->base.needs.scratch_bytes += CUDA_COLUMN_PARTS * (size_t)shape[0] * sizeof(float);
    return yoke_layout_plain(plan->base.device, shape, 1, &plan->base.needs.parameters[0]);
}

static yoke_status repeat(const cuda_kernel_plan *plan, const float *values, cudaStream_t stream) {
    const cuda_rows_job job = {.to = plan->base.binding.output,
                               .from = values,
                               .rows = plan->base.rows,
                               .count = parameter_elements(plan),
                               .to_stride = parameter_elements(plan),
                               .to_type = plan->type};
    TRY_CUDA(plan->device, cuda_run_copy_rows(&job, stream));
    return YOKE_OK;
}

static yoke_status parameter_forward(const cuda_kernel_plan *plan, cudaStream_t stream) {
    return repeat(plan, plan->base.binding.parameters[0], stream);
}

static yoke_status parameter_backward(const cuda_kernel_plan *plan, cudaStream_t stream) {
    const yoke_plan_binding *at = &plan->base.binding;
    size_t elements = parameter_elements(plan);
    const cuda_column_sums sums = {.values = at->output_gradient,
                                   .type = plan->type,
                                   .shape = {plan->base.rows, elements, elements},
                                   .sums = at->parameter_gradients[0],
                                   .partial = at->scratch};
    if (!plan->base.frozen) TRY_CUDA(plan->device, cuda_run_column_sums(&sums, stream));
    return YOKE_OK;
}

const cuda_kernel_operation cuda_parameter = {0,
                                              YOKE_HAS_PARAMETERS,
                                              parameter_prepare,
                                              parameter_forward,
                                              parameter_backward,
                                              .plain = true};

typedef struct constant_plan {
    cuda_kernel_plan kernel;
    float *values; /* device memory */
} constant_plan;

static void constant_destroy(yoke_plan *plan) {
    constant_plan *constant = (constant_plan *)plan;
    if (constant->values != NULL) yoke_device_free(plan->device, constant->values);
    yoke_free(constant);
}

static yoke_status constant_prepare(cuda_kernel_plan *plan, const yoke_plan_request *request) {
    constant_plan *constant = (constant_plan *)plan;
    yoke_device *device = plan->base.device;
    size_t bytes = parameter_elements(plan) * sizeof(float);
    plan->base.destroy = constant_destroy;
    TRY(yoke_device_allocate(device, bytes, "a constant", (void **)&constant->values));
    TRY(yoke_device_upload(device, YOKE_STREAM_COMPUTE, constant->values,
                           request->operation->weights, bytes));
    return yoke_device_synchronize(device); /* `weights` is the caller's */
}

static yoke_status constant_forward(const cuda_kernel_plan *plan, cudaStream_t stream) {
    return repeat(plan, ((const constant_plan *)plan)->values, stream);
}

static yoke_status constant_backward(const cuda_kernel_plan *plan, cudaStream_t stream) {
    (void)plan, (void)stream; /* nobody wants its gradient */
    return YOKE_OK;
}

yoke_status cuda_plan_constant(yoke_plan **plan, cuda_device *device,
                               const yoke_plan_request *request) {
    static const cuda_kernel_operation calls = {
        0, 0, constant_prepare, constant_forward, constant_backward, .plain = true};
    return cuda_kernel_plan_create(plan, sizeof(constant_plan), device, request, &calls);
}
