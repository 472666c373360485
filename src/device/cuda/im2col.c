/* SPDX-License-Identifier: Apache-2.0 */
/* Convolution by im2col: copies the window of each output pixel to a row of a matrix, then computes
 * a matrix product. Works for every shape, with or without cuDNN. Images are processed in pieces,
 * which limits the size of the columns. */
#include <stdlib.h>

#include "device/cuda/weighted.h"

#define COLUMNS_BYTES ((size_t)64 << 20) /* at most, unless one image needs more */

/* A number of images and the product that serves them. */
typedef struct im2col_piece {
    cuda_window window;
    cuda_product *product;
} im2col_piece;

typedef struct im2col_pass {
    cuda_pass base;
    im2col_piece whole, rest;         /* rest: the remaining images; 0 rows: none */
    int pieces;                       /* whole ones */
    size_t input_bytes, output_bytes; /* of one image */
    size_t weight_gradient_bytes;
    cuda_type type;
} im2col_pass;

/* Running. */

typedef yoke_status run_piece(const im2col_pass *self, const im2col_piece *piece,
                              const cuda_operands *operands);

static yoke_status fill_columns(const im2col_pass *self, const im2col_piece *piece,
                                const cuda_operands *operands) {
    cuda_device *device = self->base.device;
    TRY_CUDA(device, cuda_run_im2col(operands->scratch, operands->input, self->type, &piece->window,
                                     device->streams[YOKE_STREAM_COMPUTE]));
    return YOKE_OK;
}

static yoke_status forward_piece(const im2col_pass *self, const im2col_piece *piece,
                                 const cuda_operands *operands) {
    TRY(fill_columns(self, piece, operands));
    return cuda_product_run(piece->product, operands->scratch, operands->weights,
                            operands->beside.bias, operands->output);
}

static yoke_status data_piece(const im2col_pass *self, const im2col_piece *piece,
                              const cuda_operands *operands) {
    cuda_device *device = self->base.device;
    TRY(cuda_product_run(piece->product, operands->output, operands->weights, NULL,
                         operands->scratch));
    const cuda_images images = {operands->input, self->type, operands->add};
    TRY_CUDA(device, cuda_run_col2im(&images, operands->scratch, &piece->window,
                                     device->streams[YOKE_STREAM_COMPUTE]));
    return YOKE_OK;
}

static yoke_status weights_piece(const im2col_pass *self, const im2col_piece *piece,
                                 const cuda_operands *operands) {
    TRY(fill_columns(self, piece, operands));
    return cuda_product_run(piece->product, operands->output, operands->scratch, NULL,
                            operands->weights);
}

static yoke_status run_pieces(const im2col_pass *self, const cuda_operands *operands,
                              run_piece *run) {
    cuda_operands at = *operands;
    for (int i = 0; i < self->pieces; i++) {
        TRY(run(self, &self->whole, &at));
        at.input = (char *)at.input + (size_t)self->whole.window.rows * self->input_bytes;
        at.output = (char *)at.output + (size_t)self->whole.window.rows * self->output_bytes;
    }
    return self->rest.window.rows > 0 ? run(self, &self->rest, &at) : YOKE_OK;
}

static yoke_status run_forward(const cuda_pass *pass, const cuda_operands *operands) {
    return run_pieces((const im2col_pass *)pass, operands, forward_piece);
}

static yoke_status run_data(const cuda_pass *pass, const cuda_operands *operands) {
    return run_pieces((const im2col_pass *)pass, operands, data_piece);
}

static bool adds_up(const im2col_pass *self) {
    return self->pieces > 1 || self->rest.window.rows > 0;
}

static yoke_status run_weights(const cuda_pass *pass, const cuda_operands *operands) {
    const im2col_pass *self = (const im2col_pass *)pass;
    cuda_device *device = self->base.device;
    if (adds_up(self))
        TRY_CUDA(device, cudaMemsetAsync(operands->weights, 0, self->weight_gradient_bytes,
                                         device->streams[YOKE_STREAM_COMPUTE]));
    return run_pieces(self, operands, weights_piece);
}

static void im2col_destroy(cuda_pass *pass) {
    im2col_pass *self = (im2col_pass *)pass;
    cuda_product_destroy(self->rest.product);
    cuda_product_destroy(self->whole.product);
    yoke_free(self);
}

/* Planning. The groups are the batch of a product. Columns are stored group by group, values and
 * weights are not. */

static cuda_product_shape forward_shape(const cuda_problem *problem, const cuda_window *window) {
    int64_t pixels = (int64_t)window->rows * window->out_height * window->out_width;
    int64_t seen = (int64_t)window->down.kernel * window->across.kernel * window->channels;
    int64_t channels = problem->operation->output.channels, out = channels / window->groups;
    return (cuda_product_shape){.m = pixels,
                                .n = out,
                                .k = seen,
                                .batch = window->groups,
                                .a_step = pixels * seen,
                                .b_step = out * seen,
                                .output_step = out,
                                .a = {problem->type, false, seen},
                                .b = {problem->type, true, seen},
                                .output = {problem->type, false, channels},
                                .tf32 = problem->tf32,
                                .atomics = problem->atomics};
}

/* The same matrices in other roles. */
static cuda_product_shape shape_of(const cuda_problem *problem, const cuda_window *window,
                                   cuda_direction direction) {
    cuda_product_shape shape = forward_shape(problem, window), to = shape;
    if (direction == CUDA_FORWARD) return shape;
    to.a = shape.output;
    to.a_step = shape.output_step;
    if (direction == CUDA_BACKWARD_DATA) { /* columns = output * weights */
        to.n = shape.k, to.k = shape.n;
        to.b.transposed = false;
        to.output = shape.a;
        to.output_step = shape.a_step;
        return to;
    }
    to.m = shape.n, to.n = shape.k, to.k = shape.m; /* weights = output transposed * columns */
    to.a.transposed = true;
    to.b = shape.a;
    to.b_step = shape.a_step;
    to.output = (cuda_matrix){CUDA_FLOAT32, false, shape.k};
    to.output_step = shape.b_step;
    return to;
}

static cuda_window window_of(const cuda_problem *problem) {
    const yoke_operation *operation = problem->operation;
    return (cuda_window){.rows = problem->rows,
                         .height = operation->input.height,
                         .width = operation->input.width,
                         .channels = operation->input.channels / operation->groups,
                         .groups = operation->groups,
                         .down = yoke_taps_down(operation),
                         .across = yoke_taps_across(operation),
                         .out_height = operation->output.height,
                         .out_width = operation->output.width};
}

static yoke_status plan_piece(const im2col_pass *self, im2col_piece *piece,
                              const cuda_problem *problem, cuda_direction direction) {
    if (piece->window.rows == 0) return YOKE_OK;
    cuda_product_shape shape = shape_of(problem, &piece->window, direction);
    shape.add = direction == CUDA_BACKWARD_WEIGHTS && adds_up(self);
    shape.bias = self->base.adds_bias;
    /* The alignment that the addresses of all pieces and groups share. */
    size_t distances = (size_t)self->whole.window.rows * self->output_bytes;
    if (shape.batch > 1)
        distances |= (size_t)(shape.a_step | shape.b_step | shape.output_step) *
                     cuda_type_bytes(problem->type);
    shape.alignment = cuda_alignment(distances);
    return cuda_product_create(&piece->product, problem->device, &shape);
}

static yoke_status im2col_build(im2col_pass *self, const cuda_problem *problem,
                                cuda_direction direction) {
    const yoke_operation *operation = problem->operation;
    size_t value_bytes = cuda_type_bytes(problem->type);
    cuda_window window = window_of(problem);
    size_t pixels = (size_t)window.out_height * (size_t)window.out_width;
    size_t image_bytes = pixels * (size_t)(window.down.kernel * window.across.kernel) *
                         (size_t)operation->input.channels * value_bytes;
    size_t images = COLUMNS_BYTES / image_bytes;
    if (images < 1) images = 1;
    if (images > (size_t)problem->rows) images = (size_t)problem->rows;
    self->whole.window = self->rest.window = window;
    self->whole.window.rows = (int)images;
    self->pieces = problem->rows / (int)images;
    self->rest.window.rows = problem->rows % (int)images;
    self->base.scratch_bytes = images * image_bytes;
    self->type = problem->type;
    self->input_bytes = cuda_dims_count(operation->input) * value_bytes;
    self->output_bytes = cuda_dims_count(operation->output) * value_bytes;
    self->weight_gradient_bytes =
        (size_t)(window.down.kernel * window.across.kernel * window.channels) *
        (size_t)operation->output.channels * sizeof(float);
    self->base.adds_bias = direction == CUDA_FORWARD && operation->bias && operation->groups == 1;
    TRY(plan_piece(self, &self->whole, problem, direction));
    return plan_piece(self, &self->rest, problem, direction);
}

yoke_status cuda_im2col_pass(cuda_pass **pass, const cuda_problem *problem,
                             cuda_direction direction, int variant) {
    static yoke_status (*const runs[CUDA_DIRECTIONS])(const cuda_pass *, const cuda_operands *) = {
        run_forward, run_data, run_weights};
    (void)variant;
    *pass = NULL;
    im2col_pass *self = yoke_calloc(1, sizeof *self);
    if (self == NULL) return FAIL_MEMORY(sizeof *self, "a pass");
    self->base.device = problem->device;
    self->base.run = runs[direction];
    self->base.destroy = im2col_destroy;
    yoke_status status = im2col_build(self, problem, direction);
    if (status == YOKE_OK)
        *pass = &self->base;
    else
        im2col_destroy(&self->base);
    return status;
}
