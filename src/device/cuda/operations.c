/* SPDX-License-Identifier: Apache-2.0 */
/* The table of the operations that run Yoke's own kernels, and how each fills in its kernels'
 * jobs. */
#include <string.h>

#include "device/cuda/kernel_plan.h"

/* Activations: functions of one element, and their slopes. */

static cuda_activation_job activation_job(const cuda_kernel_plan *plan) {
    return (cuda_activation_job){.activation = plan->base.operation.activation,
                                 .type = plan->type,
                                 .elements = cuda_elements(&plan->inputs[0].own)};
}

static yoke_status activation_forward(const cuda_kernel_plan *plan, cudaStream_t stream) {
    cuda_activation_job job = activation_job(plan);
    job.to = plan->base.binding.output;
    job.from = plan->base.binding.inputs[0];
    TRY_CUDA(plan->device, cuda_run_activation(&job, stream));
    return YOKE_OK;
}

static yoke_status activation_backward(const cuda_kernel_plan *plan, cudaStream_t stream) {
    const yoke_plan_binding *at = &plan->base.binding;
    cuda_activation_job job = activation_job(plan);
    job.to = at->input_gradients[0];
    job.from = at->output_gradient;
    job.kept = plan->base.needs.backward_reads_output ? at->output : at->inputs[0];
    TRY_CUDA(plan->device, cuda_run_activation_backward(&job, stream));
    return YOKE_OK;
}

static yoke_status activation_prepare(cuda_kernel_plan *plan, const yoke_plan_request *request) {
    yoke_plan_needs *needs = &plan->base.needs;
    bool output = cuda_activation_reads_output(request->operation->activation);
    needs->backward_reads_output = needs->backward_reads[0] && output;
    needs->backward_reads[0] = needs->backward_reads[0] && !output;
    return YOKE_OK;
}

static const cuda_kernel_operation activation = {1, YOKE_IN_PLACE | YOKE_READS_INPUT,
                                                 activation_prepare, activation_forward,
                                                 activation_backward};

/* Softmax over the channels of each position. Backward reads the output instead of the input, so
 * that both passes may run in place. */

static cuda_softmax_job softmax_job(const cuda_kernel_plan *plan) {
    return (cuda_softmax_job){.positions =
                                  plan->base.rows * (size_t)plan->base.operation.input.height,
                              .features = plan->base.operation.input.channels,
                              .type = plan->type};
}

static yoke_status softmax_forward(const cuda_kernel_plan *plan, cudaStream_t stream) {
    cuda_softmax_job job = softmax_job(plan);
    job.from = plan->base.binding.inputs[0];
    job.to = plan->base.binding.output;
    TRY_CUDA(plan->device, cuda_run_softmax(&job, stream));
    return YOKE_OK;
}

static yoke_status softmax_backward(const cuda_kernel_plan *plan, cudaStream_t stream) {
    cuda_softmax_job job = softmax_job(plan);
    job.from = plan->base.binding.output_gradient;
    job.output = plan->base.binding.output;
    job.to = plan->base.binding.input_gradients[0];
    TRY_CUDA(plan->device, cuda_run_softmax_backward(&job, stream));
    return YOKE_OK;
}

static const cuda_kernel_operation softmax = {1, YOKE_IN_PLACE | YOKE_READS_OUTPUT, NULL,
                                              softmax_forward, softmax_backward};

/* The sum of two values, with an optional ReLU behind it. Both inputs have the same gradient:
 * backward writes it once, and copies it where an input has its own memory. */

static yoke_status add_forward(const cuda_kernel_plan *plan, cudaStream_t stream) {
    const yoke_plan_binding *at = &plan->base.binding;
    const cuda_elementwise_job job = {.to = at->output,
                                      .from = at->inputs[0],
                                      .second = at->inputs[1],
                                      .type = plan->type,
                                      .relu = plan->base.operation.relu,
                                      .elements = cuda_elements(&plan->inputs[0].own)};
    TRY_CUDA(plan->device, cuda_run_add(&job, stream));
    return YOKE_OK;
}

static yoke_status add_backward(const cuda_kernel_plan *plan, cudaStream_t stream) {
    const yoke_plan_binding *at = &plan->base.binding;
    const cuda_layout *layout = &plan->inputs[0].own;
    const void *gradient = at->output_gradient;
    if (plan->base.operation.relu && at->input_gradients[0] != NULL) {
        const cuda_activation_job relu = {.to = at->input_gradients[0],
                                          .from = gradient,
                                          .kept = at->output,
                                          .activation = YOKE_RELU,
                                          .type = plan->type,
                                          .elements = cuda_elements(layout)};
        TRY_CUDA(plan->device, cuda_run_activation_backward(&relu, stream));
        gradient = relu.to;
    }
    for (int i = 0; i < plan->calls->inputs; i++)
        if (at->input_gradients[i] != NULL)
            TRY(cuda_reorder(plan->device, layout, at->input_gradients[i], layout, gradient));
    return YOKE_OK;
}

static yoke_status add_prepare(cuda_kernel_plan *plan, const yoke_plan_request *request) {
    yoke_plan_needs *needs = &plan->base.needs;
    needs->backward_reads_output = needs->backward_reads_output && request->operation->relu;
    needs->shared_input_gradient = needs->backward_in_place && !plan->inputs[1].reordered;
    return YOKE_OK;
}

static const cuda_kernel_operation add = {2, YOKE_IN_PLACE | YOKE_READS_OUTPUT, add_prepare,
                                          add_forward, add_backward};

/* The product of two values. Each input's gradient is the output's times the other input. */

static yoke_status run_product(const cuda_kernel_plan *plan, void *to, const void *from,
                               const void *second, cudaStream_t stream) {
    const cuda_elementwise_job job = {.to = to,
                                      .from = from,
                                      .second = second,
                                      .type = plan->type,
                                      .elements = cuda_elements(&plan->inputs[0].own)};
    TRY_CUDA(plan->device, cuda_run_multiply(&job, stream));
    return YOKE_OK;
}

static yoke_status multiply_forward(const cuda_kernel_plan *plan, cudaStream_t stream) {
    const yoke_plan_binding *at = &plan->base.binding;
    return run_product(plan, at->output, at->inputs[0], at->inputs[1], stream);
}

static yoke_status multiply_backward(const cuda_kernel_plan *plan, cudaStream_t stream) {
    const yoke_plan_binding *at = &plan->base.binding;
    for (int i = 0; i < plan->calls->inputs; i++)
        if (at->input_gradients[i] != NULL)
            TRY(run_product(plan, at->input_gradients[i], at->output_gradient, at->inputs[1 - i],
                            stream));
    return YOKE_OK;
}

static const cuda_kernel_operation multiply = {
    2, YOKE_FORWARD_IN_PLACE | YOKE_READS_INPUT | YOKE_READS_SECOND, NULL, multiply_forward,
    multiply_backward};

/* An image times a factor for each channel of a row. */

static cuda_channel_scale_job channel_scale_job(const cuda_kernel_plan *plan) {
    yoke_dims image = plan->base.operation.input;
    return (cuda_channel_scale_job){.rows = plan->base.rows,
                                    .pixels = (size_t)image.height * (size_t)image.width,
                                    .channels = (size_t)image.channels,
                                    .type = plan->type,
                                    .factors = plan->base.binding.inputs[1]};
}

static yoke_status channel_scale_forward(const cuda_kernel_plan *plan, cudaStream_t stream) {
    cuda_channel_scale_job job = channel_scale_job(plan);
    job.to = plan->base.binding.output;
    job.from = plan->base.binding.inputs[0];
    TRY_CUDA(plan->device, cuda_run_channel_scale(&job, stream));
    return YOKE_OK;
}

/* The sums come first: the image's gradient may overwrite the output's. */
static yoke_status channel_scale_backward(const cuda_kernel_plan *plan, cudaStream_t stream) {
    const yoke_plan_binding *at = &plan->base.binding;
    cuda_channel_scale_job job = channel_scale_job(plan);
    job.to = at->input_gradients[0];
    job.from = at->output_gradient;
    job.image = at->inputs[0];
    job.factors_gradient = at->input_gradients[1];
    if (job.factors_gradient != NULL)
        TRY_CUDA(plan->device, cuda_run_channel_scale_sums(&job, stream));
    if (job.to != NULL) TRY_CUDA(plan->device, cuda_run_channel_scale(&job, stream));
    return YOKE_OK;
}

static const cuda_kernel_operation channel_scale = {
    2, YOKE_IN_PLACE | YOKE_READS_INPUT | YOKE_READS_SECOND, NULL, channel_scale_forward,
    channel_scale_backward};

/* Concatenation of the channels of two values. Channels lie side by side at each pixel or position:
 * each input is a range of columns of the output. */

static yoke_status copy_channels(const cuda_kernel_plan *plan, bool backward, cudaStream_t stream) {
    const yoke_plan_binding *at = &plan->base.binding;
    yoke_dims output = plan->base.operation.output;
    char *whole = backward ? at->output_gradient : at->output;
    for (int i = 0; i < plan->calls->inputs; i++) {
        const cuda_layout *layout = &plan->inputs[i].own;
        yoke_dims input = plan->base.operation.input;
        size_t all = (size_t)output.channels;
        size_t columns = i == 0 ? (size_t)input.channels : all - (size_t)input.channels;
        cuda_columns_job job = {.to = whole,
                                .from = at->inputs[i],
                                .to_stride = all,
                                .from_stride = columns,
                                .rows =
                                    plan->base.rows * (size_t)output.height * (size_t)output.width,
                                .columns = columns,
                                .type = plan->type};
        if (backward) {
            job.to = at->input_gradients[i];
            job.from = whole;
            job.to_stride = columns;
            job.from_stride = all;
        }
        if (job.to != NULL) TRY_CUDA(plan->device, cuda_run_copy_columns(&job, stream));
        whole += columns * cuda_type_bytes(layout->type);
    }
    return YOKE_OK;
}

static yoke_status concat_forward(const cuda_kernel_plan *plan, cudaStream_t stream) {
    return copy_channels(plan, false, stream);
}

static yoke_status concat_backward(const cuda_kernel_plan *plan, cudaStream_t stream) {
    return copy_channels(plan, true, stream);
}

static const cuda_kernel_operation concat = {2, 0, NULL, concat_forward, concat_backward};

/* Max and average pooling. Max pooling saves the positions of the maxima for backward; average
 * pooling counts padding, and with a kernel of 0 its windows are adaptive. */

static cuda_pooling_job pooling_job(const cuda_kernel_plan *plan) {
    const yoke_operation *operation = &plan->base.operation;
    const yoke_plan_binding *at = &plan->base.binding;
    yoke_dims in = operation->input, out = operation->output;
    bool whole = operation->kernel == 0;
    yoke_taps down = yoke_taps_down(operation), across = yoke_taps_across(operation);
    if (whole) {
        down = (yoke_taps){.kernel = in.height, .stride = 1};
        across = (yoke_taps){.kernel = in.width, .stride = 1};
    }
    return (cuda_pooling_job){
        .rows = (int)plan->base.rows,
        .channels = in.channels,
        .height = in.height,
        .width = in.width,
        .out_height = out.height,
        .out_width = out.width,
        .down = down,
        .across = across,
        .type = plan->type,
        .maximum = operation->kind == YOKE_OP_MAX_POOL,
        .adaptive = whole && (out.height > 1 || out.width > 1),
        .input = at->inputs[0],
        .output = at->output,
        .winners = plan->base.needs.saved_bytes > 0 ? at->saved : NULL,
        .output_gradient = at->output_gradient,
        .input_gradient = at->input_gradients[0],
    };
}

static yoke_status pooling_forward(const cuda_kernel_plan *plan, cudaStream_t stream) {
    const cuda_pooling_job job = pooling_job(plan);
    cudaError_t (*run)(const cuda_pooling_job *, cudaStream_t) =
        job.adaptive ? cuda_run_adaptive_pool : cuda_run_pooling;
    TRY_CUDA(plan->device, run(&job, stream));
    return YOKE_OK;
}

static yoke_status pooling_backward(const cuda_kernel_plan *plan, cudaStream_t stream) {
    const cuda_pooling_job job = pooling_job(plan);
    cudaError_t (*run)(const cuda_pooling_job *, cudaStream_t) =
        job.adaptive ? cuda_run_adaptive_pool_backward : cuda_run_pooling_backward;
    TRY_CUDA(plan->device, run(&job, stream));
    return YOKE_OK;
}

static yoke_status pooling_prepare(cuda_kernel_plan *plan, const yoke_plan_request *request) {
    const cuda_pooling_job job = pooling_job(plan);
    yoke_plan_needs *needs = &plan->base.needs;
    if (job.maximum && request->training && request->input_gradient)
        needs->saved_bytes =
            cuda_elements(cuda_layout_of(&needs->output)) * cuda_pooling_winner_bytes(&job);
    return YOKE_OK;
}

static const cuda_kernel_operation pooling = {1, 0, pooling_prepare, pooling_forward,
                                              pooling_backward};

/* Windows of one pixel. */
static bool is_identity(const yoke_operation *operation) {
    yoke_dims in = operation->input, out = operation->output;
    bool whole = operation->kernel == 0;
    bool one = whole ? in.height == 1 && in.width == 1 && out.height == 1 && out.width == 1
                     : operation->kernel == 1 && operation->across.kernel == 0;
    return one && operation->stride <= 1 && operation->padding == 0;
}

/* Layer norm: torch.nn.LayerNorm over the features of each position of a sequence, or of each row
 * of a flat value. Forward saves each position's mean and reciprocal standard deviation. */

static cuda_layer_norm_job layer_norm_job(const cuda_kernel_plan *plan) {
    const yoke_plan_binding *at = &plan->base.binding;
    cuda_layer_norm_job job = {.positions =
                                   plan->base.rows * (size_t)plan->base.operation.input.height,
                               .features = plan->base.operation.input.channels,
                               .processors = plan->device->processors,
                               .type = plan->type,
                               .epsilon = (float)plan->base.operation.epsilon,
                               .input = at->inputs[0],
                               .output = at->output,
                               .weight = at->parameters[0],
                               .bias = at->parameters[1]};
    if (plan->base.needs.computes_sum) {
        job.sum = at->inputs[0];
        memcpy(job.summands, at->summands, sizeof job.summands);
    }
    if (plan->base.backward == NULL) return job;
    job.saved = at->saved;
    job.partial = at->scratch;
    job.output_gradient = at->output_gradient;
    job.input_gradient = at->input_gradients[0];
    job.adds = at->adds_input_gradient;
    job.weight_gradient = at->parameter_gradients[0];
    job.bias_gradient = at->parameter_gradients[1];
    return job;
}

static yoke_status layer_norm_forward(const cuda_kernel_plan *plan, cudaStream_t stream) {
    const cuda_layer_norm_job job = layer_norm_job(plan);
    TRY_CUDA(plan->device, cuda_run_layer_norm(&job, stream));
    return YOKE_OK;
}

static yoke_status layer_norm_backward(const cuda_kernel_plan *plan, cudaStream_t stream) {
    const cuda_layer_norm_job job = layer_norm_job(plan);
    TRY_CUDA(plan->device, cuda_run_layer_norm_backward(&job, stream));
    return YOKE_OK;
}

static yoke_status layer_norm_prepare(cuda_kernel_plan *plan, const yoke_plan_request *request) {
    yoke_plan_needs *needs = &plan->base.needs;
    const cuda_layer_norm_job job = layer_norm_job(plan);
    const int64_t features = job.features;
    for (int i = 0; i < YOKE_PLAN_PARAMETERS; i++)
        TRY(yoke_layout_plain(plan->base.device, &features, 1, &needs->parameters[i]));
    needs->computes_sum = request->input_summed && !plan->inputs[0].reordered;
    if (!request->training) return YOKE_OK;
    needs->adds_input_gradient = request->input_shared && !plan->inputs[0].reordered;
    needs->scratch_bytes += cuda_layer_norm_partial_bytes(&job);
    needs->saved_bytes = job.positions * sizeof(cuda_layer_norm_moments);
    return YOKE_OK;
}

static const cuda_kernel_operation layer_norm = {
    1, YOKE_IN_PLACE | YOKE_HAS_PARAMETERS | YOKE_READS_INPUT, layer_norm_prepare,
    layer_norm_forward, layer_norm_backward};

/* Dropout. The mask of an element depends only on seed, step, layer, global row and the element's
 * index in its row. Each pass draws the mask on the device, from the step's values in device
 * memory: a recorded step draws a new mask at every replay, and nothing is saved. */

static yoke_status run_dropout(const cuda_kernel_plan *plan, void *to, const void *from,
                               cudaStream_t stream) {
    const yoke_operation *operation = &plan->base.operation;
    cuda_dropout_job job = {.rows = plan->base.rows,
                            .channels = (uint32_t)operation->input.channels,
                            .pixels = (uint32_t)operation->input.height *
                                      (uint32_t)operation->input.width,
                            .type = plan->type,
                            .layer = operation->layer,
                            .threshold = (uint32_t)(operation->probability * 0x1p32),
                            .scale = (float)(1 / (1 - operation->probability)),
                            .step = plan->device->step,
                            .from = from,
                            .to = to};
    if (operation->input.sequence) { /* its memory has plain order */
        job.channels *= job.pixels;
        job.pixels = 1;
    }
    TRY_CUDA(plan->device, cuda_run_dropout(&job, stream));
    return YOKE_OK;
}

static yoke_status dropout_forward(const cuda_kernel_plan *plan, cudaStream_t stream) {
    const yoke_plan_binding *at = &plan->base.binding;
    return run_dropout(plan, at->output, at->inputs[0], stream);
}

static yoke_status dropout_backward(const cuda_kernel_plan *plan, cudaStream_t stream) {
    const yoke_plan_binding *at = &plan->base.binding;
    return run_dropout(plan, at->input_gradients[0], at->output_gradient, stream);
}

static const cuda_kernel_operation dropout = {1, YOKE_IN_PLACE, NULL, dropout_forward,
                                              dropout_backward};

/* Operations that only copy a value. Flatten and output convert it to plain, in the compute type or
 * in float32; sequence, and an operation that is the identity (dropout in evaluation), convert it
 * to channels last. One reorder for each pass; none where the layouts are equal. */

static yoke_status reshape_forward(const cuda_kernel_plan *plan, cudaStream_t stream) {
    (void)stream;
    const cuda_kernel_value *input = &plan->inputs[0];
    return cuda_reorder(plan->device, &input->own, plan->base.binding.output, &input->given,
                        plan->base.binding.inputs[0]);
}

static yoke_status reshape_backward(const cuda_kernel_plan *plan, cudaStream_t stream) {
    (void)stream;
    const cuda_kernel_value *input = &plan->inputs[0];
    return cuda_reorder(plan->device, &input->given, plan->base.binding.input_gradients[0],
                        &input->own, plan->base.binding.output_gradient);
}

/* given and own: both in the input's shape. */
static yoke_status reshape_prepare(cuda_kernel_plan *plan, const yoke_plan_request *request) {
    const yoke_operation *operation = request->operation;
    cuda_layout *from = &plan->inputs[0].given, *to = &plan->inputs[0].own;
    cuda_layout output = cuda_value_layout(request->rows, operation->output, request->precision);
    *from = *cuda_layout_of(&request->inputs[0]);
    *to = cuda_value_layout(request->rows, operation->input, request->precision);
    if (operation->kind == YOKE_OP_OUTPUT) to->type = output.type = CUDA_FLOAT32;
    if (operation->kind == YOKE_OP_OUTPUT || operation->kind == YOKE_OP_FLATTEN)
        to->channels_last = output.channels_last = false;
    yoke_plan_needs *needs = &plan->base.needs;
    cuda_layout_store(&needs->output, &output);
    needs->forward_in_place = from->type == to->type && from->channels_last == to->channels_last;
    needs->backward_in_place = needs->forward_in_place;
    return YOKE_OK;
}

static const cuda_kernel_operation reshape = {0, 0, reshape_prepare, reshape_forward,
                                              reshape_backward};

yoke_status cuda_plan_kernels(yoke_plan **plan, cuda_device *device,
                              const yoke_plan_request *request) {
    static const cuda_kernel_operation *const operations[] = {
        [YOKE_OP_ACTIVATION] = &activation,
        [YOKE_OP_ADD] = &add,
        [YOKE_OP_MULTIPLY] = &multiply,
        [YOKE_OP_CONCAT] = &concat,
        [YOKE_OP_SOFTMAX] = &softmax,
        [YOKE_OP_MAX_POOL] = &pooling,
        [YOKE_OP_AVERAGE_POOL] = &pooling,
        [YOKE_OP_LAYER_NORM] = &layer_norm,
        [YOKE_OP_DROPOUT] = &dropout,
        [YOKE_OP_FLATTEN] = &reshape,
        [YOKE_OP_SEQUENCE] = &reshape,
        [YOKE_OP_OUTPUT] = &reshape,
        [YOKE_OP_EMBEDDING] = &cuda_embedding,
        [YOKE_OP_POSITIONS] = &cuda_positions,
        [YOKE_OP_CLASS_TOKEN] = &cuda_class_token,
        [YOKE_OP_SELECT] = &cuda_select,
        [YOKE_OP_EXPRESSION] = &cuda_expression,
        [YOKE_OP_REDUCE] = &cuda_reduction,
        [YOKE_OP_RESHAPE] = &cuda_row_shape,
        [YOKE_OP_MOVE] = &cuda_move,
        [YOKE_OP_MATMUL] = &cuda_matmul,
        [YOKE_OP_PARAMETER] = &cuda_parameter,
        [YOKE_OP_HOST] = &cuda_host,
        [YOKE_OP_CONTINUED_POSITIONS] = NULL,
        [YOKE_OP_CONTINUED_ATTENTION] = NULL};
    const yoke_operation *operation = request->operation;
    const cuda_kernel_operation *calls = operations[operation->kind];
    if (calls == NULL && operation->capacity > 0)
        return FAIL(
            YOKE_ERROR_DEVICE,
            "%s: CUDA devices keep no keys and values of earlier positions; use CPU devices",
            operation->name);
    if (calls == NULL)
        return FAIL(YOKE_ERROR_INTERNAL, "operation %d has no plan", (int)operation->kind);
    if (calls == &multiply && operation->by_channel) calls = &channel_scale;
    if (calls == &pooling && is_identity(operation)) calls = &reshape;
    if (calls == &dropout && (!request->training || operation->probability == 0)) calls = &reshape;
    return cuda_kernel_plan_create(plan, sizeof(cuda_kernel_plan), device, request, calls);
}
