/* SPDX-License-Identifier: Apache-2.0 */
/* Transforms tiles of values and filters into 36 matrices each, multiplies them, by block_product.h
 * or else by oneDNN, and transforms the products back. */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "device/cpu/block_product.h"
#include "device/cpu/winograd_plan.h"

enum { PAIR = 2 }; /* panels, as many as a kernel of block_product.c takes at most */

/* A part of the work: the tiles of a chunk, the channels of a slice. */
typedef struct winograd_part {
    const cpu_winograd *winograd;
    int chunk, slice;
} winograd_part;

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

static size_t first_channel(const cpu_winograd *self, int group) {
    return (size_t)group * (size_t)self->lanes;
}

static char *element_at(const winograd_values *values, int image, int group, ptrdiff_t pixels) {
    ptrdiff_t element = image * values->row + values->groups[group] + pixels;
    return values->memory + element * (ptrdiff_t)(values->half ? sizeof(uint16_t) : sizeof(float));
}

static winograd_window window_at(const cpu_winograd *self, const winograd_values *values, int tile,
                                 int group) {
    int column = tile % self->tiles_wide * WINOGRAD_OUTPUT - values->before;
    int row = tile / self->tiles_wide;
    int image = row / self->tiles_high;
    row = row % self->tiles_high * WINOGRAD_OUTPUT - values->before;
    winograd_window window = {.half = values->half,
                              .line = values->line,
                              .pixel = values->pixel,
                              .rows = winograd_existing(row, values->edge, values->height),
                              .columns = winograd_existing(column, values->edge, values->width)};
    window.origin = element_at(values, image, group, row * values->line + column * values->pixel);
    return window;
}

/* Tiles begin .. end - 1 of the part's chunk, for `count` groups of channels from `first`. */
static void transform_tiles(const winograd_part *part, const winograd_values *values,
                            const winograd_matrices *to, int first, int count, int begin, int end) {
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
    if (self->multiply_block == NULL) return column;
    return column / CPU_PANEL * CPU_PANEL * (size_t)self->from.channels + column % CPU_PANEL;
}

static void transform_filters(const winograd_part *part, int begin, int end) {
    const cpu_winograd *self = part->winograd;
    const winograd_matrices *to = &self->right;
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
    const winograd_matrices *from = &self->product;
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
    const winograd_values *output = self->swapped ? &self->from : &self->to;
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

static int pairs_of(const cpu_winograd *self) {
    return (self->panels + PAIR - 1) / PAIR;
}

/* Pairs of panels begin .. end - 1 of those of all 36 matrices. */
static void multiply_panels(const winograd_part *part, int begin, int end) {
    const cpu_winograd *self = part->winograd;
    const winograd_matrices *left = &self->left, *right = &self->right, *to = &self->product;
    size_t panels = (size_t)self->panels, pairs = (size_t)pairs_of(self);
    size_t rows = (size_t)self->chunk_tiles, depth = (size_t)self->from.channels;
    bool weights = cpu_winograd_for_weights(self);
    cpu_block_product product = {.rows = weights ? depth : rows,
                                 .depth = weights ? rows : depth,
                                 .left_row = weights ? 1 : left->row,
                                 .left_step = weights ? left->row : 1,
                                 .right_step = right->row,
                                 .right_panel = weights ? CPU_PANEL : CPU_PANEL * depth,
                                 .to_row = to->row,
                                 .adds = weights && part->chunk > 0};
    for (size_t i = (size_t)begin; i < (size_t)end; i++) {
        size_t matrix = i / pairs, panel = i % pairs * PAIR;
        product.left = self->scratch + left->offset + matrix * left->stride;
        product.right = self->filters + matrix * right->stride + panel * product.right_panel;
        product.to = self->scratch + to->offset + matrix * to->stride + panel * CPU_PANEL;
        product.panels = panels - panel < PAIR ? panels - panel : PAIR;
        self->multiply_block(&product);
    }
}

static yoke_status multiply(const winograd_part *part) {
    const cpu_winograd *self = part->winograd;
    if (self->multiply_block != NULL) {
        run_range(part, multiply_panels, WINOGRAD_PRODUCTS * pairs_of(self));
        return YOKE_OK;
    }
    bool adds = cpu_winograd_for_weights(self) && part->chunk > 0;
    return cpu_call_run(adds ? &self->multiply_add.call : &self->multiply.call, self->device);
}

/* Kept filters are one slice. */
void cpu_winograd_prepare(const cpu_own_kernel *kernel, const float *weights, void *kept) {
    cpu_winograd own = *(const cpu_winograd *)kernel;
    own.weights = (float *)weights; /* it only reads them */
    own.filters = kept;
    run_range(&(winograd_part){.winograd = &own}, transform_filters, own.from.channels);
}

/* For each slice: its filters, then every chunk. With one chunk, the tiles are transformed once. */
static yoke_status run_values(const cpu_winograd *self) {
    for (winograd_part at = {.winograd = self}; at.slice < self->slices; at.slice++) {
        if (!cpu_winograd_keeps_filters(self))
            run_range(&at, transform_filters, self->from.channels);
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
            TRY(multiply(&at));
        }
        run_range(&at, transform_filter_gradients, self->from.channels);
    }
    return YOKE_OK;
}

yoke_status cpu_winograd_run(const cpu_own_kernel *kernel) {
    const cpu_winograd *self = (const cpu_winograd *)kernel;
    return cpu_winograd_for_weights(self) ? run_weights(self) : run_values(self);
}
