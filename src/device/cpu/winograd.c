/* SPDX-License-Identifier: Apache-2.0 */
/* Transforms tiles of values and filters into 36 matrices each, multiplies them with oneDNN or,
 * where filters are kept, by packed_product.h, and transforms the products back. A chunk of tiles
 * goes through all three steps while it is in the second-level cache. With many filters and few
 * tiles, all tiles stay in the cache and slices of filters pass instead. */
#include "device/cpu/winograd.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/packed_product.h"
#include "device/cpu/processor.h"
#include "device/cpu/winograd_tile.h"

enum {
    LINE_FLOATS = 16,          /* a cache line */
    CHUNK_BYTES = 1 << 20,     /* of tiles for each thread: a second-level cache */
    CHUNK_TILES_LEAST = 32,    /* fewer rows leave the product idle */
    CHUNK_DEPTH_LEAST = 64,    /* with shorter sums reading and writing the product dominates */
    RESIDENT_BYTES = 20 << 20, /* of tiles that stay in the third-level cache while filters pass */
    SLICE_BYTES = 4 << 20,     /* more filters pass in slices */
    SLICE_CHANNELS = 32
};

/* A tensor of values cut into tiles of `edge` pixels, WINOGRAD_OUTPUT apart, the first of which
 * begins `before` pixels outside. */
typedef struct tiled {
    int channels, height, width, edge, before;
    ptrdiff_t row, line, pixel; /* strides, in elements */
    ptrdiff_t *groups;          /* where each group of lanes begins */
    void (*transform)(const winograd_window *from, float *tile, size_t stride);
    bool half; /* bfloat16 in memory */
    char *memory;
} tiled;

/* 36 matrices in scratch. */
typedef struct matrices {
    size_t stride, row; /* from one to the next, from row to row; in floats */
    size_t offset, floats;
} matrices;

/* left * right = product. For values, a row of left is a tile and an element of right belongs to a
 * filter; product becomes tiles of `to`. For the gradient of the weights, a row of left
 * (transposed) is a tile of `from` and a row of right a tile of `to`; product becomes filters. */
struct cpu_winograd {
    cpu_device *device;
    const winograd_transforms *transforms;
    int lanes; /* theirs: channels at a time */
    cpu_operation convolution;
    int rows, padding;
    tiled from, to;
    bool swapped;                            /* `to` is the input and `from` the output */
    ptrdiff_t *filter_rows, *filter_columns; /* offsets in the weights by channel of from, to */
    int tiles, tiles_high, tiles_wide;
    int chunk_tiles, chunks, slice_channels, slices;
    matrices left, right, product;
    cpu_primitive multiply, multiply_add; /* the second adds to the product */
    float *weights, *bias, *scratch;
    float *filters;  /* the right matrices: in scratch, or kept */
    float low, high; /* of the output */
};

/* A part of the work: the tiles of a chunk, the channels of a slice. */
typedef struct winograd_part {
    const cpu_winograd *winograd;
    int chunk, slice;
} winograd_part;

static bool for_weights(const cpu_winograd *self) {
    return self->convolution.direction == CPU_BACKWARD_WEIGHTS;
}

/* Whether filters stay transformed from run to run. */
static bool keeps_filters(const cpu_winograd *self) {
    return self->convolution.inference && self->convolution.direction == CPU_FORWARD;
}

/* Layouts. */

static ptrdiff_t *offsets_along(const cpu_desc *desc, int dimension, int step) {
    int count = (int)desc->dims[dimension] / step;
    ptrdiff_t *offsets = malloc((size_t)count * sizeof *offsets);
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

/* Whether kept filters lie in panels of CPU_PANEL columns, the last of which may be half empty. */
static bool is_packed(const cpu_winograd *self) {
    return keeps_filters(self) && cpu_packs_products();
}

/* Planning. */

static int divided_up(int a, int b) {
    return (a + b - 1) / b;
}

static void view(tiled *values, const cpu_desc *desc, int lanes) {
    *values = (tiled){.channels = (int)desc->dims[1],
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
static void overlap(tiled *values, const winograd_transforms *transforms, int padding) {
    values->edge = WINOGRAD_EDGE;
    values->before = padding;
    values->transform = transforms->input;
}

static yoke_status view_tensors(cpu_winograd *self) {
    const cpu_operation *convolution = &self->convolution;
    const cpu_desc *weights = convolution->weights;
    self->swapped = convolution->direction == CPU_BACKWARD_DATA;
    /* The gradient of the weights is written in groups of columns: prefer contiguous ones. */
    if (for_weights(self)) self->swapped = cpu_desc_offset(weights, 1, 1) == 1;
    tiled *input = self->swapped ? &self->to : &self->from;
    tiled *output = self->swapped ? &self->from : &self->to;
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
    const tiled *whole = input->edge == WINOGRAD_OUTPUT ? input : output;
    self->tiles_high = divided_up(whole->height, WINOGRAD_OUTPUT);
    self->tiles_wide = divided_up(whole->width, WINOGRAD_OUTPUT);
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
    if (for_weights(self)) {
        least = CHUNK_DEPTH_LEAST;
    } else {
        tiles *= self->device->base.threads;
    }
    if (tiles < least) tiles = least;
    self->chunk_tiles = divided_up(self->tiles, divided_up(self->tiles, tiles));
}

/* Filters pass in slices where all tiles fit the cache as one chunk; kept filters pass once. */
static void cut(cpu_winograd *self) {
    size_t from_bytes = WINOGRAD_PRODUCTS * sizeof(float) * (size_t)self->from.channels;
    size_t to_bytes = WINOGRAD_PRODUCTS * sizeof(float) * (size_t)self->to.channels;
    size_t staying = for_weights(self) ? from_bytes + to_bytes : from_bytes;
    bool sliced = from_bytes * (size_t)self->to.channels > SLICE_BYTES &&
                  self->to.channels % SLICE_CHANNELS == 0 &&
                  staying * (size_t)self->tiles <= RESIDENT_BYTES;
    self->slice_channels = sliced ? SLICE_CHANNELS : self->to.channels;
    self->chunk_tiles = self->tiles;
    bool whole = sliced;
    if (keeps_filters(self)) self->slice_channels = self->to.channels;
    if (!whole) cut_chunks(self, from_bytes + to_bytes);
    self->slices = self->to.channels / self->slice_channels;
    self->chunks = divided_up(self->tiles, self->chunk_tiles);
}

/* The 36 values of a row are adjacent. */
static matrices of_tiles(int tiles, int channels) {
    size_t stride = (size_t)channels, row = WINOGRAD_PRODUCTS * stride;
    return (matrices){.stride = stride, .row = row, .floats = (size_t)tiles * row};
}

/* One matrix after the other. The extra line avoids distances of a power of two, which would share
 * cache sets. */
static matrices of_filters(int rows, int columns) {
    size_t stride = (size_t)rows * (size_t)columns + LINE_FLOATS;
    return (matrices){
        .stride = stride, .row = (size_t)columns, .floats = WINOGRAD_PRODUCTS * stride};
}

static int panels_of(const cpu_winograd *self) {
    return divided_up(self->to.channels, CPU_PANEL);
}

/* The extra line of a row is for the same reason. */
static void place_packed(cpu_winograd *self) {
    int columns = panels_of(self) * CPU_PANEL;
    self->left = of_filters(self->chunk_tiles, self->from.channels + LINE_FLOATS);
    self->right = of_filters(self->from.channels, columns);
    self->right.row = CPU_PANEL;
    self->product = of_filters(self->chunk_tiles, columns + LINE_FLOATS);
    self->product.offset = self->left.floats;
}

/* [36, rows, columns]; a transposed operand has its columns where the memory has rows. */
static yoke_status describe(const cpu_winograd *self, const cpu_desc **desc,
                            const matrices *operand, int rows, int columns, bool transposed) {
    dnnl_dim_t row = (dnnl_dim_t)operand->row;
    const dnnl_dims_t dims = {WINOGRAD_PRODUCTS, rows, columns};
    const dnnl_dims_t strides = {(dnnl_dim_t)operand->stride, transposed ? 1 : row,
                                 transposed ? row : 1};
    TRY_DNNL(cpu_desc_by_strides(desc, &self->device->descs, 3, dims, dnnl_f32, strides));
    return YOKE_OK;
}

static yoke_status winograd_build(cpu_winograd *self) {
    TRY(view_tensors(self));
    cut(self);
    if (is_packed(self)) {
        place_packed(self);
        return YOKE_OK;
    }
    self->left = of_tiles(self->chunk_tiles, self->from.channels);
    self->right = of_tiles(self->chunk_tiles, self->slice_channels);
    self->product = of_filters(self->from.channels, self->slice_channels);
    if (!for_weights(self)) {
        matrices filters = self->product;
        self->product = self->right;
        self->right = filters;
    }
    self->right.offset = self->left.floats;
    self->product.offset = self->left.floats + (keeps_filters(self) ? 0 : self->right.floats);
    bool weights = for_weights(self);
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

yoke_status cpu_winograd_create(cpu_winograd **winograd, cpu_device *device,
                                const cpu_operation *convolution) {
    *winograd = NULL;
    if (!convolution_fits(convolution))
        return FAIL(YOKE_ERROR_DEVICE, "this convolution does not fit Winograd's F(4x4, 3x3)");
    cpu_winograd *self = calloc(1, sizeof *self);
    if (self == NULL) return FAIL_MEMORY(sizeof *self, "a convolution");
    self->device = device;
    self->convolution = *convolution;
    self->transforms = choose_transforms(convolution);
    self->lanes = self->transforms->lanes;
    if (!cpu_epilogue_bounds(&convolution->epilogue, &self->low, &self->high)) {
        free(self);
        return FAIL(YOKE_ERROR_DEVICE, "Winograd computes no such activation");
    }
    self->rows = (int)convolution->source->dims[0];
    self->padding = (int)convolution->padding[0];
    yoke_status status = winograd_build(self);
    if (status == YOKE_OK) {
        *winograd = self;
    } else {
        cpu_winograd_destroy(self);
    }
    return status;
}

void cpu_winograd_destroy(cpu_winograd *self) {
    if (self == NULL) return;
    cpu_primitive_destroy(&self->multiply);
    cpu_primitive_destroy(&self->multiply_add);
    free(self->from.groups);
    free(self->to.groups);
    free(self->filter_rows);
    free(self->filter_columns);
    free(self);
}

static size_t matrices_floats(const cpu_winograd *self) {
    return self->product.offset + self->product.floats;
}

/* One scratchpad serves both products. */
size_t cpu_winograd_scratch_bytes(const cpu_winograd *self) {
    size_t first = cpu_primitive_scratch(&self->multiply);
    size_t second = cpu_primitive_scratch(&self->multiply_add);
    return matrices_floats(self) * sizeof(float) + (first > second ? first : second);
}

size_t cpu_winograd_kept_bytes(const cpu_winograd *self) {
    return keeps_filters(self) ? self->right.floats * sizeof(float) : 0;
}

yoke_status cpu_winograd_bind(cpu_winograd *self, const cpu_winograd_addresses *addresses) {
    self->weights = addresses->weights;
    if (self->convolution.direction != CPU_BACKWARD_DATA) self->bias = addresses->bias;
    self->scratch = addresses->scratch;
    self->filters = keeps_filters(self) ? addresses->kept : self->scratch + self->right.offset;
    *(self->swapped ? &self->to.memory : &self->from.memory) = addresses->input;
    *(self->swapped ? &self->from.memory : &self->to.memory) = addresses->output;
    if (is_packed(self)) return YOKE_OK;
    const cpu_address operands[] = {{DNNL_ARG_SRC, self->scratch + self->left.offset},
                                    {DNNL_ARG_WEIGHTS, self->filters},
                                    {DNNL_ARG_DST, self->scratch + self->product.offset},
                                    CPU_LAST_ADDRESS};
    void *scratchpad = self->scratch + matrices_floats(self);
    TRY(cpu_primitive_bind(&self->multiply, self->device, operands, scratchpad));
    if (self->multiply_add.description == NULL) return YOKE_OK;
    return cpu_primitive_bind(&self->multiply_add, self->device, operands, scratchpad);
}

/* Running. */

typedef void (*range_body)(const winograd_part *part, int begin, int end);

/* One thread does without OpenMP: a team, even of one, is allocated. */
static void run_range(const winograd_part *part, range_body body, int count) {
    int threads = part->winograd->device->base.threads;
    if (threads <= 1) {
        body(part, 0, count);
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int thread = 0; thread < threads; thread++)
        body(part, (int)((long)count * thread / threads),
             (int)((long)count * (thread + 1) / threads));
}

static winograd_range existing(int first, int edge, int size) {
    winograd_range range = {first < 0 ? -first : 0, size - first < edge ? size - first : edge};
    return range;
}

static size_t first_channel(const cpu_winograd *self, int group) {
    return (size_t)group * (size_t)self->lanes;
}

static char *element_at(const tiled *values, int image, int group, ptrdiff_t pixels) {
    ptrdiff_t element = image * values->row + values->groups[group] + pixels;
    return values->memory + element * (ptrdiff_t)(values->half ? sizeof(uint16_t) : sizeof(float));
}

static winograd_window window_at(const cpu_winograd *self, const tiled *values, int tile,
                                 int group) {
    int column = tile % self->tiles_wide * WINOGRAD_OUTPUT - values->before;
    int row = tile / self->tiles_wide;
    int image = row / self->tiles_high;
    row = row % self->tiles_high * WINOGRAD_OUTPUT - values->before;
    winograd_window window = {.half = values->half,
                              .line = values->line,
                              .pixel = values->pixel,
                              .rows = existing(row, values->edge, values->height),
                              .columns = existing(column, values->edge, values->width)};
    window.origin = element_at(values, image, group, row * values->line + column * values->pixel);
    return window;
}

/* Tiles begin .. end - 1 of the part's chunk, for `count` groups of channels from `first`. */
static void transform_tiles(const winograd_part *part, const tiled *values, const matrices *to,
                            int first, int count, int begin, int end) {
    const cpu_winograd *self = part->winograd;
    float *matrix = self->scratch + to->offset;
    int before = part->chunk * self->chunk_tiles;
    for (int group = 0; group < count; group++) {
        for (int i = begin; i < end; i++) {
            float *tile = matrix + (size_t)i * to->row + first_channel(self, group);
            if (before + i >= self->tiles) {
                for (int k = 0; k < WINOGRAD_PRODUCTS; k++)
                    memset(tile + (size_t)k * to->stride, 0, (size_t)self->lanes * sizeof *tile);
                continue;
            }
            winograd_window window = window_at(self, values, before + i, first + group);
            values->transform(&window, tile, to->stride);
        }
    }
}

static void transform_left(const winograd_part *part, int begin, int end) {
    const cpu_winograd *self = part->winograd;
    transform_tiles(part, &self->from, &self->left, 0, self->from.channels / self->lanes, begin,
                    end);
}

static void transform_right(const winograd_part *part, int begin, int end) {
    const cpu_winograd *self = part->winograd;
    int groups = self->slice_channels / self->lanes;
    transform_tiles(part, &self->to, &self->right, part->slice * groups, groups, begin, end);
}

static void transform_product(const winograd_part *part, int begin, int end) {
    const cpu_winograd *self = part->winograd;
    const float *matrix = self->scratch + self->product.offset;
    int groups = self->slice_channels / self->lanes, before = part->chunk * self->chunk_tiles;
    if (before + end > self->tiles) end = self->tiles - before;
    for (int group = 0; group < groups; group++) {
        int channels = (part->slice * groups + group) * self->lanes;
        const winograd_epilogue epilogue = {.bias =
                                                self->bias != NULL ? self->bias + channels : NULL,
                                            .adds = self->convolution.epilogue.adds,
                                            .low = self->low,
                                            .high = self->high};
        for (int i = begin; i < end; i++) {
            winograd_window window =
                window_at(self, &self->to, before + i, part->slice * groups + group);
            self->transforms->output(matrix + (size_t)i * self->product.row +
                                         first_channel(self, group),
                                     self->product.stride, &epilogue, &window);
        }
    }
}

/* The gradient of the data is a convolution of the output gradient with the filters rotated by 180
 * degrees. */
static winograd_filter filter_at(const winograd_part *part, int row, int group) {
    const cpu_winograd *self = part->winograd;
    const cpu_desc *weights = self->convolution.weights;
    winograd_filter filter = {.origin = self->weights + self->filter_rows[row],
                              .line = (ptrdiff_t)weights->strides[2],
                              .pixel = (ptrdiff_t)weights->strides[3],
                              .lanes = self->filter_columns + part->slice * self->slice_channels +
                                       group * self->lanes};
    if (self->convolution.direction != CPU_BACKWARD_DATA) return filter;
    filter.origin += (WINOGRAD_TAPS - 1) * (filter.line + filter.pixel);
    filter.line = -filter.line;
    filter.pixel = -filter.pixel;
    return filter;
}

/* Where a group of columns begins in a matrix of filters. */
static size_t column_of(const cpu_winograd *self, int group) {
    size_t column = first_channel(self, group);
    if (!is_packed(self)) return column;
    return column / CPU_PANEL * CPU_PANEL * (size_t)self->from.channels + column % CPU_PANEL;
}

static void transform_filters(const winograd_part *part, int begin, int end) {
    const cpu_winograd *self = part->winograd;
    const matrices *to = &self->right;
    float *matrix = self->filters;
    for (int group = 0; group < self->slice_channels / self->lanes; group++) {
        for (int row = begin; row < end; row++) {
            winograd_filter filter = filter_at(part, row, group);
            self->transforms->filter(
                &filter, matrix + (size_t)row * to->row + column_of(self, group), to->stride);
        }
    }
}

static void transform_filter_gradients(const winograd_part *part, int begin, int end) {
    const cpu_winograd *self = part->winograd;
    const matrices *from = &self->product;
    const float *matrix = self->scratch + from->offset;
    for (int group = 0; group < self->slice_channels / self->lanes; group++) {
        for (int row = begin; row < end; row++) {
            winograd_filter filter = filter_at(part, row, group);
            self->transforms->filter_gradient(matrix + (size_t)row * from->row +
                                                  first_channel(self, group),
                                              from->stride, &filter);
        }
    }
}

/* The output gradient of some groups of channels, added up over the images. */
static void sum_bias_gradient(const winograd_part *part, int begin, int end) {
    const cpu_winograd *self = part->winograd;
    const tiled *output = self->swapped ? &self->from : &self->to;
    for (int group = begin; group < end; group++) {
        float *sums = self->bias + first_channel(self, group);
        memset(sums, 0, (size_t)self->lanes * sizeof *sums);
        for (int image = 0; image < self->rows; image++) {
            winograd_window window = {.origin = element_at(output, image, group, 0),
                                      .half = output->half,
                                      .line = output->line,
                                      .pixel = output->pixel,
                                      .rows = {0, output->height},
                                      .columns = {0, output->width}};
            self->transforms->add_pixels(&window, sums);
        }
    }
}

/* Panels begin .. end - 1 of those of all 36 matrices. */
static void multiply_panels(const winograd_part *part, int begin, int end) {
    const cpu_winograd *self = part->winograd;
    size_t panels = (size_t)panels_of(self), depth = (size_t)self->from.channels;
    for (size_t i = (size_t)begin; i < (size_t)end; i++) {
        size_t matrix = i / panels, panel = i % panels;
        const cpu_packed_product product = {
            .left = self->scratch + self->left.offset + matrix * self->left.stride,
            .panel = self->filters + matrix * self->right.stride + panel * CPU_PANEL * depth,
            .to = self->scratch + self->product.offset + matrix * self->product.stride +
                  panel * CPU_PANEL,
            .rows = (size_t)self->chunk_tiles,
            .depth = depth,
            .left_row = self->left.row,
            .to_row = self->product.row};
        cpu_multiply_panel(&product);
    }
}

static yoke_status multiply(const winograd_part *part) {
    const cpu_winograd *self = part->winograd;
    if (!is_packed(self)) return cpu_call_run(&self->multiply.call, self->device);
    run_range(part, multiply_panels, WINOGRAD_PRODUCTS * panels_of(self));
    return YOKE_OK;
}

/* Kept filters are one slice. */
void cpu_winograd_prepare(const cpu_winograd *self) {
    run_range(&(winograd_part){.winograd = self}, transform_filters, self->from.channels);
}

/* For each slice: its filters, then every chunk. With one chunk, the tiles are transformed once. */
static yoke_status run_values(const cpu_winograd *self) {
    for (winograd_part at = {.winograd = self}; at.slice < self->slices; at.slice++) {
        if (!keeps_filters(self)) run_range(&at, transform_filters, self->from.channels);
        for (at.chunk = 0; at.chunk < self->chunks; at.chunk++) {
            if (at.slice == 0 || self->chunks > 1)
                run_range(&at, transform_left, self->chunk_tiles);
            TRY(multiply(&at));
            run_range(&at, transform_product, self->chunk_tiles);
        }
    }
    return YOKE_OK;
}

static yoke_status run_weights(const cpu_winograd *self) {
    winograd_part at = {.winograd = self};
    if (self->bias != NULL)
        run_range(&at, sum_bias_gradient,
                  (int)self->convolution.destination->dims[1] / self->lanes);
    for (; at.slice < self->slices; at.slice++) {
        for (at.chunk = 0; at.chunk < self->chunks; at.chunk++) {
            if (at.slice == 0 || self->chunks > 1)
                run_range(&at, transform_left, self->chunk_tiles);
            run_range(&at, transform_right, self->chunk_tiles);
            const cpu_primitive *product = at.chunk > 0 ? &self->multiply_add : &self->multiply;
            TRY(cpu_call_run(&product->call, self->device));
        }
        run_range(&at, transform_filter_gradients, self->from.channels);
    }
    return YOKE_OK;
}

yoke_status cpu_winograd_run(const cpu_winograd *self) {
    return for_weights(self) ? run_weights(self) : run_values(self);
}
