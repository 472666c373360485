/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that make, lengthen and shorten sequences: embeddings of tokens and of positions, a
 * learned token before a sequence, and one position of a sequence as a flat value. */
#include "device/cuda/kernel_plan.h"

/* Embeddings. */

static cuda_embedding_job embedding_job(const cuda_kernel_plan *plan) {
    const yoke_operation *operation = &plan->base.operation;
    const yoke_plan_binding *at = &plan->base.binding;
    return (cuda_embedding_job){.rows = plan->base.rows,
                                .positions = (size_t)operation->output.height,
                                .features = (size_t)operation->output.channels,
                                .table = (size_t)operation->table,
                                .type = plan->type,
                                .input = at->inputs[0],
                                .output = at->output,
                                .weight = at->parameters[0],
                                .output_gradient = at->output_gradient,
                                .weight_gradient = at->parameter_gradients[0],
                                .order = at->scratch};
}

static yoke_status embedding_prepare(cuda_kernel_plan *plan, const yoke_plan_request *request) {
    const yoke_operation *operation = request->operation;
    yoke_plan_needs *needs = &plan->base.needs;
    cuda_layout weight = {CUDA_FLOAT32, false, 2, {operation->table, operation->output.channels}};
    cuda_layout_store(&needs->parameters[0], &weight);
    if (request->frozen) needs->backward_reads[0] = false;
    bool sorts = operation->kind == YOKE_OP_EMBEDDING && request->training && !request->frozen;
    size_t positions = plan->base.rows * (size_t)operation->output.height;
    if (sorts) needs->scratch_bytes += cuda_token_order_bytes(positions, (size_t)operation->table);
    return YOKE_OK;
}

static yoke_status embedding_forward(const cuda_kernel_plan *plan, cudaStream_t stream) {
    const cuda_embedding_job job = embedding_job(plan);
    TRY_CUDA(plan->device, cuda_run_embedding(&job, stream));
    return YOKE_OK;
}

/* Token ids have no gradient: a program that reads one gets 0. */
static yoke_status embedding_backward(const cuda_kernel_plan *plan, cudaStream_t stream) {
    const cuda_embedding_job job = embedding_job(plan);
    void *ids = plan->base.binding.input_gradients[0];
    size_t bytes = job.rows * job.positions * sizeof(float);
    if (ids != NULL) TRY_CUDA(plan->device, cudaMemsetAsync(ids, 0, bytes, stream));
    if (!plan->base.frozen) TRY_CUDA(plan->device, cuda_run_embedding_backward(&job, stream));
    return YOKE_OK;
}

const cuda_kernel_operation cuda_embedding = {0, YOKE_READS_INPUT | YOKE_HAS_PARAMETERS,
                                              embedding_prepare, embedding_forward,
                                              embedding_backward};

static yoke_status positions_forward(const cuda_kernel_plan *plan, cudaStream_t stream) {
    const cuda_embedding_job job = embedding_job(plan);
    TRY_CUDA(plan->device, cuda_run_positions(&job, stream));
    return YOKE_OK;
}

/* The input's gradient is the output's. */
static yoke_status positions_backward(const cuda_kernel_plan *plan, cudaStream_t stream) {
    const cuda_embedding_job job = embedding_job(plan);
    const cuda_layout *layout = &plan->inputs[0].own;
    void *gradient = plan->base.binding.input_gradients[0];
    if (!plan->base.frozen) TRY_CUDA(plan->device, cuda_run_positions_backward(&job, stream));
    if (gradient == NULL) return YOKE_OK;
    return cuda_reorder(plan->device, layout, gradient, layout, job.output_gradient);
}

const cuda_kernel_operation cuda_positions = {1, YOKE_IN_PLACE | YOKE_HAS_PARAMETERS,
                                              embedding_prepare, positions_forward,
                                              positions_backward};

/* Positions of a sequence. */

/* Copies `positions` positions of each row, from rows of `from` positions to rows of `to`. */
static cuda_rows_job rows_job(const cuda_kernel_plan *plan, int positions, int to, int from) {
    size_t features = (size_t)plan->base.operation.output.channels;
    return (cuda_rows_job){.rows = plan->base.rows,
                           .count = (size_t)positions * features,
                           .to_stride = (size_t)to * features,
                           .from_stride = (size_t)from * features,
                           .to_type = plan->type,
                           .from_type = plan->type};
}

static void *at_position(const cuda_kernel_plan *plan, void *values, int position) {
    size_t features = (size_t)plan->base.operation.output.channels;
    return (char *)values + (size_t)position * features * cuda_type_bytes(plan->type);
}

static yoke_status class_token_prepare(cuda_kernel_plan *plan, const yoke_plan_request *request) {
    const int64_t shape[] = {1, 1, request->operation->output.channels};
    plan->base.needs.scratch_bytes += CUDA_COLUMN_PARTS * (size_t)shape[2] * sizeof(float);
    return yoke_layout_plain(plan->base.device, shape, 3, &plan->base.needs.parameters[0]);
}

static yoke_status class_token_forward(const cuda_kernel_plan *plan, cudaStream_t stream) {
    const yoke_plan_binding *at = &plan->base.binding;
    int longer = plan->base.operation.output.height;
    cuda_rows_job first = rows_job(plan, 1, longer, 0);
    cuda_rows_job others = rows_job(plan, longer - 1, longer, longer - 1);
    first.to = at->output;
    first.from = at->parameters[0];
    first.from_type = CUDA_FLOAT32;
    others.to = at_position(plan, at->output, 1);
    others.from = at->inputs[0];
    TRY_CUDA(plan->device, cuda_run_copy_rows(&first, stream));
    TRY_CUDA(plan->device, cuda_run_copy_rows(&others, stream));
    return YOKE_OK;
}

static yoke_status class_token_backward(const cuda_kernel_plan *plan, cudaStream_t stream) {
    const yoke_plan_binding *at = &plan->base.binding;
    int longer = plan->base.operation.output.height;
    size_t features = (size_t)plan->base.operation.output.channels;
    const cuda_column_sums sums = {.values = at->output_gradient,
                                   .type = plan->type,
                                   .shape = {plan->base.rows, features, (size_t)longer * features},
                                   .sums = at->parameter_gradients[0],
                                   .partial = at->scratch};
    if (!plan->base.frozen) TRY_CUDA(plan->device, cuda_run_column_sums(&sums, stream));
    if (at->input_gradients[0] == NULL) return YOKE_OK;
    cuda_rows_job others = rows_job(plan, longer - 1, longer - 1, longer);
    others.to = at->input_gradients[0];
    others.from = at_position(plan, at->output_gradient, 1);
    TRY_CUDA(plan->device, cuda_run_copy_rows(&others, stream));
    return YOKE_OK;
}

const cuda_kernel_operation cuda_class_token = {1, YOKE_HAS_PARAMETERS, class_token_prepare,
                                                class_token_forward, class_token_backward};

static yoke_status select_forward(const cuda_kernel_plan *plan, cudaStream_t stream) {
    const yoke_plan_binding *at = &plan->base.binding;
    cuda_rows_job job = rows_job(plan, 1, 1, plan->base.operation.input.height);
    job.to = at->output;
    job.from = at_position(plan, at->inputs[0], plan->base.operation.index);
    TRY_CUDA(plan->device, cuda_run_copy_rows(&job, stream));
    return YOKE_OK;
}

static yoke_status select_backward(const cuda_kernel_plan *plan, cudaStream_t stream) {
    const yoke_plan_binding *at = &plan->base.binding;
    void *gradient = at->input_gradients[0];
    cuda_rows_job job = rows_job(plan, 1, plan->base.operation.input.height, 1);
    job.to = at_position(plan, gradient, plan->base.operation.index);
    job.from = at->output_gradient;
    size_t bytes = job.rows * job.to_stride * cuda_type_bytes(plan->type);
    TRY_CUDA(plan->device, cudaMemsetAsync(gradient, 0, bytes, stream));
    TRY_CUDA(plan->device, cuda_run_copy_rows(&job, stream));
    return YOKE_OK;
}

const cuda_kernel_operation cuda_select = {1, 0, NULL, select_forward, select_backward};
