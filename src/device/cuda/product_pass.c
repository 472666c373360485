/* SPDX-License-Identifier: Apache-2.0 */
/* Linear, convolution with 1x1 kernels and convolution to one output pixel are matrix products
 * without reordering: output[m, n] = input[m, k] * weights[n, k] transposed. With one output pixel
 * only the taps over input pixels take part (one of nine at 1x1); the gradient of the others is
 * zero. */
#include <stdlib.h>

#include "device/cuda/weighted.h"

/* Sizes, strides and steps in elements. */
typedef struct product_view {
    int64_t m, n, k;
    int64_t input_stride, weight_stride, output_stride; /* from row to row */
    int batch;
    int64_t input_step, weight_step, output_step; /* from one of the batch to the next */
    bool transposed;                              /* weights are [k, n] */
    bool parts; /* the batch consists of parts of k: the sum of their products is the output */
    int64_t weight_offset;       /* of the first tap over an input pixel */
    bool all_input, all_weights; /* take part */
} product_view;

typedef struct product_pass {
    cuda_pass base;
    cuda_product *product, *rest; /* rest: adds the parts after the first */
    product_view view;
    cuda_type type;
    cuda_epilogue epilogue;
    size_t clear_bytes; /* of the gradient, where a pass writes only a part */
} product_pass;

/* Views. */

static product_view view_linear(const cuda_problem *problem) {
    int64_t in = problem->operation->input.channels, out = problem->operation->output.channels;
    return (product_view){.m = (int64_t)problem->rows * problem->operation->input.height,
                          .n = out,
                          .k = in,
                          .input_stride = in,
                          .weight_stride = problem->operation->transposed ? out : in,
                          .output_stride = out,
                          .batch = 1,
                          .transposed = problem->operation->transposed,
                          .all_input = true,
                          .all_weights = true};
}

static product_view view_one_tap(const cuda_problem *problem) {
    const yoke_operation *operation = problem->operation;
    int64_t in = operation->input.channels, out = operation->output.channels;
    int64_t groups = operation->groups;
    return (product_view){.m = (int64_t)problem->rows * operation->input.height *
                               operation->input.width,
                          .n = out / groups,
                          .k = in / groups,
                          .input_stride = in,
                          .weight_stride = in / groups,
                          .output_stride = out,
                          .batch = operation->groups,
                          .input_step = in / groups,
                          .weight_step = out / groups * (in / groups),
                          .output_step = out / groups,
                          .all_input = true,
                          .all_weights = true};
}

static int least(int a, int b) {
    return a < b ? a : b;
}

/* The window starts at the corner: taps padding .. padding + height - 1 meet pixels 0 .. height -
 * 1, and likewise for the width. A row of taps is contiguous, and so is its row of pixels. */
static product_view view_one_pixel(const cuda_problem *problem) {
    const yoke_operation *operation = problem->operation;
    yoke_dims input = operation->input;
    int kernel = operation->kernel, taps = kernel - operation->padding;
    int height = least(taps, input.height), width = least(taps, input.width);
    int64_t in = input.channels;
    product_view view = {.m = problem->rows,
                         .n = operation->output.channels,
                         .k = width * in,
                         .input_stride = (int64_t)cuda_dims_count(input),
                         .weight_stride = kernel * kernel * in,
                         .output_stride = operation->output.channels,
                         .batch = height,
                         .input_step = input.width * in,
                         .weight_step = kernel * in,
                         .parts = height > 1,
                         .weight_offset = operation->padding * (kernel + 1) * in,
                         .all_input = height == input.height && width == input.width,
                         .all_weights = height == kernel && width == kernel};
    if (width == input.width && width == kernel) {
        view.k *= height;
        view.batch = 1;
        view.parts = false;
    }
    return view;
}

static bool view_problem(const cuda_problem *problem, product_view *view) {
    const yoke_operation *operation = problem->operation;
    int kernel = operation->kernel;
    bool square = operation->across.kernel == 0;
    if (operation->kind == YOKE_OP_LINEAR)
        *view = view_linear(problem);
    else if (square && kernel == 1 && operation->stride == 1 && operation->padding == 0)
        *view = view_one_tap(problem);
    else if (square && operation->output.height == 1 && operation->output.width == 1 &&
             operation->groups == 1 && operation->dilation == 1 && operation->padding < kernel)
        *view = view_one_pixel(problem);
    else
        return false;
    return true;
}

/* Shapes. Weights have one row for each output channel, so forward uses their transpose; of
 * transposed weights, backward does. */

static cuda_product_shape common_shape(const cuda_problem *problem, const product_view *view) {
    /* The lowest bit set in any of the distances decides the alignment. */
    int64_t distances = view->weight_offset;
    if (view->batch > 1) distances |= view->input_step | view->weight_step | view->output_step;
    size_t distance_bytes = (size_t)distances * cuda_type_bytes(problem->type);
    return (cuda_product_shape){.batch = view->batch,
                                .tf32 = problem->tf32,
                                .atomics = problem->atomics,
                                .configuration = problem->configuration,
                                .alignment = cuda_alignment(distance_bytes)};
}

static cuda_product_shape forward_shape(const cuda_problem *problem, const product_view *view) {
    cuda_product_shape shape = common_shape(problem, view);
    shape.m = view->m, shape.n = view->n, shape.k = view->k;
    shape.a = (cuda_matrix){problem->type, false, view->input_stride};
    shape.b = (cuda_matrix){problem->type, !view->transposed, view->weight_stride};
    shape.output = (cuda_matrix){problem->type, false, view->output_stride};
    shape.a_step = view->input_step;
    shape.b_step = view->weight_step;
    shape.output_step = view->output_step;
    shape.bias = problem->operation->bias && (view->batch == 1 || view->parts);
    shape.epilogue = problem->epilogues[CUDA_FORWARD];
    if (view->parts) shape.batch = 1;
    return shape;
}

/* Running. */

static void *advance(void *address, int64_t elements, cuda_type type) {
    return (char *)address + (size_t)elements * cuda_type_bytes(type);
}

static yoke_status run_forward(const cuda_pass *pass, const cuda_operands *operands) {
    const product_pass *self = (const product_pass *)pass;
    const product_view *view = &self->view;
    void *weights = advance(operands->weights, view->weight_offset, self->type);
    if (self->epilogue != CUDA_NO_EPILOGUE)
        return cuda_product_run_beside(self->product, operands->input, weights, &operands->beside,
                                       operands->output);
    TRY(cuda_product_run(self->product, operands->input, weights, operands->beside.bias,
                         operands->output));
    for (int i = 1; view->parts && i < view->batch; i++)
        TRY(cuda_product_run(self->rest, advance(operands->input, i * view->input_step, self->type),
                             advance(weights, i * view->weight_step, self->type), NULL,
                             operands->output));
    return YOKE_OK;
}

static yoke_status clear(const product_pass *self, void *gradient) {
    if (self->clear_bytes == 0) return YOKE_OK;
    cuda_device *device = self->base.device;
    TRY_CUDA(device,
             cudaMemsetAsync(gradient, 0, self->clear_bytes, device->streams[YOKE_STREAM_COMPUTE]));
    return YOKE_OK;
}

static yoke_status run_data(const cuda_pass *pass, const cuda_operands *operands) {
    const product_pass *self = (const product_pass *)pass;
    const void *weights = advance(operands->weights, self->view.weight_offset, self->type);
    if (self->epilogue != CUDA_NO_EPILOGUE)
        return cuda_product_run_beside(self->product, operands->output, weights, &operands->beside,
                                       operands->input);
    if (operands->add)
        return cuda_product_add(self->product, operands->output, weights, operands->input);
    TRY(clear(self, operands->input));
    return cuda_product_run(self->product, operands->output, weights, NULL, operands->input);
}

static yoke_status run_weights(const cuda_pass *pass, const cuda_operands *operands) {
    const product_pass *self = (const product_pass *)pass;
    const void *a = self->view.transposed ? operands->input : operands->output;
    const void *b = self->view.transposed ? operands->output : operands->input;
    TRY(clear(self, operands->weights));
    return cuda_product_run(self->product, a, b, NULL,
                            advance(operands->weights, self->view.weight_offset, CUDA_FLOAT32));
}

static void product_pass_destroy(cuda_pass *pass) {
    product_pass *self = (product_pass *)pass;
    cuda_product_destroy(self->rest);
    cuda_product_destroy(self->product);
    yoke_free(self);
}

/* Planning. */

static yoke_status build_forward(product_pass *self, const cuda_problem *problem, int algorithm) {
    cuda_product_shape shape = forward_shape(problem, &self->view);
    shape.algorithm = algorithm;
    self->base.run = run_forward;
    self->epilogue = shape.epilogue;
    self->base.adds_bias = shape.bias;
    TRY(cuda_product_create(&self->product, problem->device, &shape));
    if (!self->view.parts || self->product == NULL) return YOKE_OK;
    shape.algorithm = 0;
    shape.configuration = NULL;
    shape.bias = false;
    shape.add = true;
    return cuda_product_create(&self->rest, problem->device, &shape);
}

static yoke_status build_data(product_pass *self, const cuda_problem *problem, int algorithm) {
    const product_view *view = &self->view;
    cuda_product_shape shape = common_shape(problem, view);
    shape.m = view->m, shape.n = view->k, shape.k = view->n;
    shape.a = (cuda_matrix){problem->type, false, view->output_stride};
    shape.b = (cuda_matrix){problem->type, view->transposed, view->weight_stride};
    shape.output = (cuda_matrix){problem->type, false, view->input_stride};
    shape.a_step = view->output_step;
    shape.b_step = view->weight_step;
    shape.output_step = view->input_step;
    shape.epilogue = problem->epilogues[CUDA_BACKWARD_DATA];
    shape.algorithm = algorithm;
    self->base.run = run_data;
    self->epilogue = shape.epilogue;
    if (!view->all_input)
        self->clear_bytes = (size_t)problem->rows * cuda_dims_count(problem->operation->input) *
                            cuda_type_bytes(problem->type);
    return cuda_product_create(&self->product, problem->device, &shape);
}

static yoke_status build_weights(product_pass *self, const cuda_problem *problem, int algorithm) {
    const product_view *view = &self->view;
    cuda_product_shape shape = common_shape(problem, view);
    cuda_matrix inputs = {problem->type, view->transposed, view->input_stride};
    cuda_matrix outputs = {problem->type, !view->transposed, view->output_stride};
    shape.m = view->transposed ? view->k : view->n;
    shape.n = view->transposed ? view->n : view->k;
    shape.k = view->m;
    shape.a = view->transposed ? inputs : outputs;
    shape.b = view->transposed ? outputs : inputs;
    shape.output = (cuda_matrix){CUDA_FLOAT32, false, view->weight_stride};
    shape.a_step = view->output_step;
    shape.b_step = view->input_step;
    shape.output_step = view->weight_step;
    shape.algorithm = algorithm;
    self->base.run = run_weights;
    if (!view->all_weights)
        self->clear_bytes = (size_t)(view->n * view->weight_stride) * sizeof(float);
    return cuda_product_create(&self->product, problem->device, &shape);
}

static yoke_status (*const builders[CUDA_DIRECTIONS])(product_pass *, const cuda_problem *, int) = {
    build_forward, build_data, build_weights};

yoke_status cuda_product_pass(cuda_pass **pass, const cuda_problem *problem,
                              cuda_direction direction, int variant) {
    product_view view;
    *pass = NULL;
    if (!view_problem(problem, &view)) return YOKE_OK;
    /* The output accumulates the parts; in 2 bytes each addition would round. */
    if (view.parts && direction == CUDA_FORWARD && problem->type != CUDA_FLOAT32) return YOKE_OK;
    product_pass *self = yoke_calloc(1, sizeof *self);
    if (self == NULL) return FAIL_MEMORY(sizeof *self, "a pass");
    self->base.device = problem->device;
    self->base.destroy = product_pass_destroy;
    self->view = view;
    self->type = problem->type;
    yoke_status status = builders[direction](self, problem, variant);
    if (status == YOKE_OK && self->product != NULL)
        status = cuda_product_configuration(self->product, self->base.configuration);
    if (status == YOKE_OK && self->product != NULL)
        *pass = &self->base;
    else
        product_pass_destroy(&self->base);
    return status;
}
