/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts the values into tiles and the work into chunks and slices, and places the matrices. A chunk
 * of tiles goes through all three steps of winograd_run.c while it is in the second-level cache.
 * With many filters and few tiles, all tiles stay in the cache and slices of filters pass
 * instead. */
#include "device/cpu/winograd_plan.h"

#include <stdlib.h>

#include "device/cpu/block_product.h"
#include "device/cpu/processor.h"

enum {
    LINE_FLOATS = 16,          /* a cache line */
    CHUNK_BYTES = 1 << 20,     /* of tiles for each thread: a second-level cache */
    CHUNK_TILES_LEAST = 32,    /* fewer rows leave the product idle */
    CHUNK_DEPTH_LEAST = 64,    /* with shorter sums reading and writing the product dominates */
    RESIDENT_BYTES = 20 << 20, /* of tiles that stay in the third-level cache while filters pass */
    SLICE_BYTES = 4 << 20,     /* more filters pass in slices */
    SLICE_CHANNELS = 32
};

/* Layouts. */

static ptrdiff_t *offsets_along(const cpu_desc *desc, int dimension, int step) {
    int count = (int)desc->dims[dimension] / step;
    ptrdiff_t *offsets = yoke_malloc((size_t)count * sizeof *offsets);
    for (int i = 0; offsets != NULL && i < count; i++)
        offsets[i] = cpu_desc_offset(desc, dimension, i * step);
    return offsets;
}

/* Only the first two dimensions may be blocked. */
static bool desc_fits(const cpu_desc *desc) {
    if (desc == NULL || !desc->is_blocked || desc->ndims != 4) return false;
    for (int i = 0; i < desc->inner_count; i++)
        if (desc->inner_dims[i] > 1) return false;
    return desc->offset == 0;
}

static bool is_half(const cpu_desc *desc) {
    return desc->type == dnnl_bf16;
}

/* Whether groups of so many channels lie together. */
static bool value_fits(const cpu_desc *desc, int lanes) {
    if (!desc_fits(desc) || desc->dims[1] % lanes != 0) return false;
    for (int i = 0; i < desc->dims[1]; i++) {
        ptrdiff_t first = cpu_desc_offset(desc, 1, i - i % lanes);
        if (cpu_desc_offset(desc, 1, i) != first + i % lanes) return false;
    }
    return true;
}

static bool values_fit(const cpu_operation *convolution, const winograd_transforms *transforms) {
    return value_fits(convolution->source, transforms->lanes) &&
           value_fits(convolution->destination, transforms->lanes);
}

static const winograd_transforms *choose_transforms(const cpu_operation *convolution) {
    bool wide = cpu_has_avx512() && values_fit(convolution, &winograd_wide);
    return wide ? &winograd_wide : &winograd_narrow;
}

static bool convolution_fits(const cpu_operation *convolution) {
    const cpu_desc *input = convolution->source, *weights = convolution->weights;
    if (!values_fit(convolution, &winograd_narrow) || !desc_fits(weights)) return false;
    if (weights->type != dnnl_f32 || is_half(input) != is_half(convolution->destination))
        return false;
    for (int i = 0; i < 2; i++) {
        dnnl_dim_t padding = convolution->padding[i];
        if (weights->dims[2 + i] != WINOGRAD_TAPS || convolution->strides[i] != 1 ||
            convolution->dilation[i] != 0)
            return false;
        if (padding != convolution->padding[0] || padding < 0 || padding > 2) return false;
        if (input->dims[2 + i] + 2 * padding < WINOGRAD_TAPS) return false;
    }
    return true;
}

/* Planning. */

static void view(winograd_values *values, const cpu_desc *desc, int lanes) {
    *values = (winograd_values){.channels = (int)desc->dims[1],
                                .height = (int)desc->dims[2],
                                .width = (int)desc->dims[3],
                                .edge = WINOGRAD_OUTPUT,
                                .row = (ptrdiff_t)desc->strides[0],
                                .line = (ptrdiff_t)desc->strides[2],
                                .pixel = (ptrdiff_t)desc->strides[3],
                                .groups = offsets_along(desc, 1, lanes),
                                .half = is_half(desc)};
}

/* For the values that the filters slide over: tiles overlap. */
static void overlap(winograd_values *values, const winograd_transforms *transforms, int padding) {
    values->edge = WINOGRAD_EDGE;
    values->before = padding;
    values->transform = transforms->input;
}

static yoke_status view_tensors(cpu_winograd *self) {
    const cpu_operation *convolution = &self->convolution;
    const cpu_desc *weights = convolution->weights;
    self->swapped = convolution->direction == CPU_BACKWARD_DATA;
    /* The gradient of the weights is written in groups of columns: prefer contiguous ones. */
    if (cpu_winograd_for_weights(self)) self->swapped = cpu_desc_offset(weights, 1, 1) == 1;
    winograd_values *input = self->swapped ? &self->to : &self->from;
    winograd_values *output = self->swapped ? &self->from : &self->to;
    view(input, convolution->source, self->lanes);
    view(output, convolution->destination, self->lanes);
    output->transform = self->transforms->output_gradient;
    if (convolution->direction == CPU_BACKWARD_DATA) {
        overlap(output, self->transforms, 2 - self->padding);
    } else {
        overlap(input, self->transforms, self->padding);
    }
    self->filter_rows = offsets_along(weights, self->swapped ? 0 : 1, 1);
    self->filter_columns = offsets_along(weights, self->swapped ? 1 : 0, 1);
    const winograd_values *whole = input->edge == WINOGRAD_OUTPUT ? input : output;
    self->tiles_high = winograd_divided_up(whole->height, WINOGRAD_OUTPUT);
    self->tiles_wide = winograd_divided_up(whole->width, WINOGRAD_OUTPUT);
    self->tiles = self->rows * self->tiles_high * self->tiles_wide;
    bool complete = input->groups != NULL && output->groups != NULL && self->filter_rows != NULL &&
                    self->filter_columns != NULL;
    return complete ? YOKE_OK : FAIL_MEMORY(sizeof *self, "the offsets of a convolution");
}

/* Chunks have one size, so that one primitive serves all; the last may have empty tiles. */
static void cut_chunks(cpu_winograd *self, size_t tile_bytes) {
    int tiles = (int)(CHUNK_BYTES / tile_bytes), least = CHUNK_TILES_LEAST;
    /* The number of chunks decides the order of a sum, so it must not depend on the number of
     * threads. */
    if (cpu_winograd_for_weights(self)) {
        least = CHUNK_DEPTH_LEAST;
    } else {
        tiles *= self->device->base.threads;
    }
    if (tiles < least) tiles = least;
    self->chunk_tiles = winograd_divided_up(self->tiles, winograd_divided_up(self->tiles, tiles));
}

/* Filters pass in slices where all tiles fit the cache as one chunk; kept filters pass once. */
static void cut(cpu_winograd *self) {
    size_t from_bytes = WINOGRAD_PRODUCTS * sizeof(float) * (size_t)self->from.channels;
    size_t to_bytes = WINOGRAD_PRODUCTS * sizeof(float) * (size_t)self->to.channels;
    size_t staying = cpu_winograd_for_weights(self) ? from_bytes + to_bytes : from_bytes;
    bool sliced = from_bytes * (size_t)self->to.channels > SLICE_BYTES &&
                  self->to.channels % SLICE_CHANNELS == 0 &&
                  staying * (size_t)self->tiles <= RESIDENT_BYTES;
    self->slice_channels = sliced ? SLICE_CHANNELS : self->to.channels;
    self->chunk_tiles = self->tiles;
    bool whole = sliced;
    if (cpu_winograd_keeps_filters(self)) self->slice_channels = self->to.channels;
    if (!whole) cut_chunks(self, from_bytes + to_bytes);
    self->slices = self->to.channels / self->slice_channels;
    self->chunks = winograd_divided_up(self->tiles, self->chunk_tiles);
}

/* The 36 values of a row are adjacent. */
static winograd_matrices of_tiles(int tiles, int channels) {
    size_t stride = (size_t)channels, row = WINOGRAD_PRODUCTS * stride;
    return (winograd_matrices){.stride = stride, .row = row, .floats = (size_t)tiles * row};
}

/* One matrix after the other. The extra line avoids distances of a power of two, which would share
 * cache sets. */
static winograd_matrices of_filters(int rows, int columns) {
    size_t stride = (size_t)rows * (size_t)columns + LINE_FLOATS;
    return (winograd_matrices){
        .stride = stride, .row = (size_t)columns, .floats = WINOGRAD_PRODUCTS * stride};
}

/* As block products read them. Filters to multiply with lie in panels, the last of which may
 * be half empty. The extra line of a row is for the same reason. */
static void place_blocks(cpu_winograd *self) {
    self->panels = winograd_divided_up(self->slice_channels, CPU_PANEL);
    int columns = self->panels * CPU_PANEL;
    self->left = of_filters(self->chunk_tiles, self->from.channels + LINE_FLOATS);
    if (cpu_winograd_for_weights(self)) {
        self->right = of_filters(self->chunk_tiles, columns + LINE_FLOATS);
        self->product = of_filters(self->from.channels, columns + LINE_FLOATS);
    } else {
        self->right = of_filters(self->from.channels, columns);
        self->right.row = CPU_PANEL;
        self->product = of_filters(self->chunk_tiles, columns + LINE_FLOATS);
    }
}

/* As oneDNN's products read them. */
static void place_matrices(cpu_winograd *self) {
    self->left = of_tiles(self->chunk_tiles, self->from.channels);
    self->right = of_tiles(self->chunk_tiles, self->slice_channels);
    self->product = of_filters(self->from.channels, self->slice_channels);
    if (cpu_winograd_for_weights(self)) return;
    winograd_matrices filters = self->product;
    self->product = self->right;
    self->right = filters;
}

/* [36, rows, columns]; a transposed operand has its columns where the memory has rows. */
static yoke_status describe(const cpu_winograd *self, const cpu_desc **desc,
                            const winograd_matrices *operand, int rows, int columns,
                            bool transposed) {
    dnnl_dim_t row = (dnnl_dim_t)operand->row;
    const dnnl_dims_t dims = {WINOGRAD_PRODUCTS, rows, columns};
    const dnnl_dims_t strides = {(dnnl_dim_t)operand->stride, transposed ? 1 : row,
                                 transposed ? row : 1};
    TRY_DNNL(cpu_desc_by_strides(desc, &self->device->descs, 3, dims, dnnl_f32, strides));
    return YOKE_OK;
}

static yoke_status create_products(cpu_winograd *self) {
    bool weights = cpu_winograd_for_weights(self);
    int rows = weights ? self->from.channels : self->chunk_tiles;
    int depth = weights ? self->chunk_tiles : self->from.channels;
    cpu_operation product = {.kind = CPU_MATMUL};
    TRY(describe(self, &product.source, &self->left, rows, depth, weights));
    TRY(describe(self, &product.weights, &self->right, depth, self->slice_channels, false));
    TRY(describe(self, &product.destination, &self->product, rows, self->slice_channels, false));
    TRY(cpu_primitive_create(&self->multiply, self->device, &product));
    product.accumulate = true;
    if (!weights || self->chunks == 1) return YOKE_OK;
    return cpu_primitive_create(&self->multiply_add, self->device, &product);
}

static yoke_status winograd_build(cpu_winograd *self) {
    TRY(view_tensors(self));
    cut(self);
    self->multiply_block = cpu_find_block_multiply();
    if (self->multiply_block != NULL) {
        place_blocks(self);
    } else {
        place_matrices(self);
    }
    self->right.offset = self->left.floats;
    self->product.offset =
        self->left.floats + (cpu_winograd_keeps_filters(self) ? 0 : self->right.floats);
    return self->multiply_block != NULL ? YOKE_OK : create_products(self);
}

static cpu_winograd *winograd_of(cpu_own_kernel *kernel) {
    return (cpu_winograd *)kernel;
}

static void winograd_destroy(cpu_own_kernel *kernel) {
    cpu_winograd *self = winograd_of(kernel);
    cpu_primitive_destroy(&self->multiply);
    cpu_primitive_destroy(&self->multiply_add);
    yoke_free(self->from.groups);
    yoke_free(self->to.groups);
    yoke_free(self->filter_rows);
    yoke_free(self->filter_columns);
    yoke_free(self);
}

static size_t matrices_floats(const cpu_winograd *self) {
    return self->product.offset + self->product.floats;
}

/* One scratchpad serves both products. */
static size_t winograd_scratch_bytes(const cpu_own_kernel *kernel) {
    const cpu_winograd *self = (const cpu_winograd *)kernel;
    size_t first = cpu_primitive_scratch(&self->multiply);
    size_t second = cpu_primitive_scratch(&self->multiply_add);
    return matrices_floats(self) * sizeof(float) + (first > second ? first : second);
}

static size_t winograd_kept_bytes(const cpu_own_kernel *kernel) {
    const cpu_winograd *self = (const cpu_winograd *)kernel;
    return cpu_winograd_keeps_filters(self) ? self->right.floats * sizeof(float) : 0;
}

static yoke_status winograd_bind(cpu_own_kernel *kernel, const cpu_own_addresses *addresses) {
    cpu_winograd *self = winograd_of(kernel);
    self->weights = addresses->weights;
    if (self->convolution.direction != CPU_BACKWARD_DATA) self->bias = addresses->bias;
    self->scratch = addresses->scratch;
    self->filters =
        cpu_winograd_keeps_filters(self) ? addresses->kept : self->scratch + self->right.offset;
    *(self->swapped ? &self->to.memory : &self->from.memory) = addresses->input;
    *(self->swapped ? &self->from.memory : &self->to.memory) = addresses->output;
    if (self->multiply_block != NULL) return YOKE_OK;
    const cpu_address operands[] = {{DNNL_ARG_SRC, self->scratch + self->left.offset},
                                    {DNNL_ARG_WEIGHTS, self->filters},
                                    {DNNL_ARG_DST, self->scratch + self->product.offset},
                                    CPU_LAST_ADDRESS};
    void *scratchpad = self->scratch + matrices_floats(self);
    TRY(cpu_primitive_bind(&self->multiply, self->device, operands, scratchpad));
    if (self->multiply_add.description == NULL) return YOKE_OK;
    return cpu_primitive_bind(&self->multiply_add, self->device, operands, scratchpad);
}

yoke_status cpu_winograd_create(cpu_own_kernel **kernel, cpu_device *device,
                                const cpu_operation *convolution) {
    static const cpu_own_calls calls = {
        "winograd", winograd_scratch_bytes, winograd_kept_bytes, cpu_winograd_prepare,
        NULL,       winograd_bind,          cpu_winograd_run,    winograd_destroy};
    *kernel = NULL;
    if (!convolution_fits(convolution))
        return FAIL(YOKE_ERROR_DEVICE, "this convolution does not fit Winograd's F(4x4, 3x3)");
    cpu_winograd *self = yoke_calloc(1, sizeof *self);
    if (self == NULL) return FAIL_MEMORY(sizeof *self, "a convolution");
    self->base.calls = &calls;
    self->device = device;
    self->convolution = *convolution;
    self->transforms = choose_transforms(convolution);
    self->lanes = self->transforms->lanes;
    if (!cpu_epilogue_bounds(&convolution->epilogue, &self->low, &self->high)) {
        yoke_free(self);
        return FAIL(YOKE_ERROR_DEVICE, "Winograd computes no such activation");
    }
    self->rows = (int)convolution->source->dims[0];
    self->padding = (int)convolution->padding[0];
    yoke_status status = winograd_build(self);
    if (status == YOKE_OK) {
        *kernel = &self->base;
    } else {
        winograd_destroy(&self->base);
    }
    return status;
}
