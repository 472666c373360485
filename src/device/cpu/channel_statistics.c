/* SPDX-License-Identifier: Apache-2.0 */
/* One pass over the input sums the differences to a value near each channel's mean, and their
 * squares: TILE channels side by side, or the pixels of a channel. */
#include "device/cpu/channel_statistics.h"

#include <string.h>

#include "device/cpu/clones.h"

enum {
    TILE = 16,        /* channels whose sums stay in registers */
    CHAIN = 32,       /* values that one float32 sums */
    SAMPLES = 8,      /* values of a channel, whose mean is near its own */
    PARTS = 16,       /* at most */
    PART_VALUES = 512 /* of a channel in a part, at least */
};

/* Sums of a tile's channels. */
typedef struct tile_sums {
    float origin[TILE];
    double sums[TILE], squares[TILE];
} tile_sums;

/* What a tile reads: `rows` of `pixels` of `width` channels side by side, from `at` on. */
typedef struct tile_view {
    const void *values;
    size_t at, rows, row_stride, pixels, pixel_stride;
} tile_view;

/* One value of each channel. */
static inline __attribute__((always_inline)) void add_pixel(const tile_view *view, size_t at,
                                                            bool half, size_t width,
                                                            const float *origin, float *sum,
                                                            float *square) {
#pragma omp simd
    for (size_t i = 0; i < width; i++) {
        float difference = cpu_load(view->values, at + i, half) - origin[i];
        sum[i] += difference;
        square[i] += difference * difference;
    }
}

/* The sums of at most CHAIN values of each channel; the two halves do not wait for each other. */
static inline __attribute__((always_inline)) void add_chain(const tile_view *view, bool half,
                                                            size_t width, tile_sums *to) {
    float sum[2][TILE] = {0}, square[2][TILE] = {0}, origin[TILE];
    memcpy(origin, to->origin, sizeof origin);
    for (size_t row = 0; row < view->rows; row++) {
        size_t at = view->at + row * view->row_stride, pixel = 0;
        for (; pixel + 1 < view->pixels; pixel += 2, at += 2 * view->pixel_stride) {
            add_pixel(view, at, half, width, origin, sum[0], square[0]);
            add_pixel(view, at + view->pixel_stride, half, width, origin, sum[1], square[1]);
        }
        if (pixel < view->pixels) add_pixel(view, at, half, width, origin, sum[0], square[0]);
    }
#pragma omp simd
    for (size_t i = 0; i < width; i++) {
        to->sums[i] += (double)(sum[0][i] + sum[1][i]);
        to->squares[i] += (double)(square[0][i] + square[1][i]);
    }
}

/* The same of one channel, whose pixels lie side by side. */
static inline __attribute__((always_inline)) void add_plane_chain(const tile_view *view, bool half,
                                                                  tile_sums *to) {
    float sum = 0, square = 0, origin = to->origin[0];
    for (size_t row = 0; row < view->rows; row++) {
        size_t at = view->at + row * view->row_stride;
#pragma omp simd reduction(+ : sum, square)
        for (size_t pixel = 0; pixel < view->pixels; pixel++) {
            float difference = cpu_load(view->values, at + pixel, half) - origin;
            sum += difference;
            square += difference * difference;
        }
    }
    to->sums[0] += (double)sum;
    to->squares[0] += (double)square;
}

/* Cuts what a tile reads into chains. */
static inline __attribute__((always_inline)) void sum_tile(const tile_view *tile, bool half,
                                                           size_t width, tile_sums *to) {
    size_t pixels = tile->pixels < CHAIN ? tile->pixels : CHAIN, rows = CHAIN / pixels;
    bool planes = width == 1 && tile->pixel_stride == 1;
    for (size_t row = 0; row < tile->rows; row += rows) {
        for (size_t pixel = 0; pixel < tile->pixels; pixel += pixels) {
            tile_view chain = *tile;
            chain.at += row * tile->row_stride + pixel * tile->pixel_stride;
            chain.rows = tile->rows - row < rows ? tile->rows - row : rows;
            chain.pixels = tile->pixels - pixel < pixels ? tile->pixels - pixel : pixels;
            if (planes)
                add_plane_chain(&chain, half, to);
            else
                add_chain(&chain, half, width, to);
        }
    }
}

/* The mean of SAMPLES values of each channel, from all over the batch `all`. */
static inline __attribute__((always_inline)) void find_origin(const tile_view *all, bool half,
                                                              size_t width, tile_sums *to) {
    size_t total = all->rows * all->pixels, samples = total < SAMPLES ? total : SAMPLES;
    float part = 1 / (float)samples;
    for (size_t sample = 0; sample < samples; sample++) {
        size_t value = sample * total / samples, row = value / all->pixels;
        size_t at =
            all->at + row * all->row_stride + (value - row * all->pixels) * all->pixel_stride;
#pragma omp simd
        for (size_t i = 0; i < width; i++)
            to->origin[i] += cpu_load(all->values, at + i, half) * part;
    }
}

static inline __attribute__((always_inline)) void sum_part(const cpu_channel_statistics *self,
                                                           const tile_view *all, bool half,
                                                           size_t part, size_t width,
                                                           tile_sums *to) {
    find_origin(all, half, width, to);
    tile_view tile = *all;
    size_t begin = part * self->part_rows;
    tile.at += begin * all->row_stride;
    tile.rows = all->rows - begin < self->part_rows ? all->rows - begin : self->part_rows;
    sum_tile(&tile, half, width, to);
}

static inline __attribute__((always_inline)) void sum_channels(const cpu_channel_statistics *self,
                                                               const cpu_row_view *view, bool half,
                                                               size_t part, size_t channel,
                                                               size_t width) {
    tile_view all = {.values = self->input,
                     .at = channel / view->width * view->group_stride + channel % view->width,
                     .rows = self->rows,
                     .row_stride = self->geometry.row_stride,
                     .pixels = view->pixels,
                     .pixel_stride = view->pixel_stride};
    tile_sums sums = {0};
    if (width == TILE) /* constants: the compiler keeps the sums in registers */
        sum_part(self, &all, half, part, TILE, &sums);
    else if (width == TILE / 2)
        sum_part(self, &all, half, part, TILE / 2, &sums);
    else if (width == 1)
        sum_part(self, &all, half, part, 1, &sums);
    else
        sum_part(self, &all, half, part, width, &sums);
    size_t channels = self->geometry.padded_channels;
    double *to = self->sums + 2 * channels * part + channel;
    memcpy(to, sums.sums, width * sizeof *to);
    memcpy(to + channels, sums.squares, width * sizeof *to);
    if (part == 0) memcpy(self->origin + channel, sums.origin, width * sizeof *self->origin);
}

CPU_CLONES static void sum_float(const cpu_channel_statistics *self, const cpu_row_view *view,
                                 size_t part, size_t channel, size_t width) {
    sum_channels(self, view, false, part, channel, width);
}

CPU_CLONES static void sum_half(const cpu_channel_statistics *self, const cpu_row_view *view,
                                size_t part, size_t channel, size_t width) {
    sum_channels(self, view, true, part, channel, width);
}

static void sum_parts(const cpu_channel_statistics *self, const cpu_row_view *view) {
    size_t channels = self->geometry.padded_channels;
    size_t tile = view->width < TILE ? view->width : TILE, tiles = (channels + tile - 1) / tile;
    bool parallel = cpu_is_parallel(self->threads, self->rows * self->geometry.row_stride);
#pragma omp parallel for collapse(2) num_threads(self->threads) if (parallel)
    for (size_t part = 0; part < self->parts; part++) {
        for (size_t i = 0; i < tiles; i++) {
            size_t channel = i * tile, left = view->width - channel % view->width;
            (self->half ? sum_half : sum_float)(self, view, part, channel,
                                                left < tile ? left : tile);
        }
    }
}

CPU_CLONES static void join_parts(const cpu_channel_statistics *self, double *means,
                                  double *deviations) {
    size_t channels = self->geometry.channels, padded = self->geometry.padded_channels;
    double inverse = 1 / ((double)self->rows * (double)self->geometry.pixels);
    for (size_t part = 1; part < self->parts; part++)
#pragma omp simd
        for (size_t i = 0; i < 2 * padded; i++)
            self->sums[i] += self->sums[2 * padded * part + i];
    const double *sums = self->sums, *squares = sums + padded;
#pragma omp simd
    for (size_t c = 0; c < channels; c++) {
        double mean = sums[c] * inverse, deviation = squares[c] - sums[c] * mean;
        means[c] = (double)self->origin[c] + mean;
        deviations[c] = deviation < 0 ? 0 : deviation;
    }
}

void cpu_channel_statistics_run(const cpu_channel_statistics *self, double *means,
                                double *deviations) {
    const cpu_row_view view = cpu_view_row(&self->geometry);
    sum_parts(self, &view);
    join_parts(self, means, deviations);
}

yoke_status cpu_channel_statistics_plan(cpu_channel_statistics *self,
                                        const yoke_plan_request *request, int threads,
                                        size_t *scratch_bytes) {
    const cpu_desc *desc = cpu_layout_desc(&request->inputs[0]);
    TRY(cpu_geometry_read(&self->geometry, desc, "batch norm"));
    self->rows = (size_t)request->rows;
    self->half = desc->type == dnnl_bf16;
    self->threads = threads;
    size_t pixels = self->geometry.pixels;
    self->part_rows = (self->rows + PARTS - 1) / PARTS;
    if (self->part_rows * pixels < PART_VALUES)
        self->part_rows = (PART_VALUES + pixels - 1) / pixels;
    self->parts = (self->rows + self->part_rows - 1) / self->part_rows;
    size_t channels = self->geometry.padded_channels;
    self->scratch_offset = cpu_align(*scratch_bytes, CPU_LINE);
    *scratch_bytes = self->scratch_offset +
                     cpu_align(self->parts * 2 * channels * sizeof(double), CPU_LINE) +
                     cpu_align(channels * sizeof(float), CPU_LINE);
    return YOKE_OK;
}

void cpu_channel_statistics_bind(cpu_channel_statistics *self, const void *input, void *scratch) {
    self->input = input;
    self->sums = (double *)(void *)((char *)scratch + self->scratch_offset);
    self->origin = (float *)(self->sums + self->parts * 2 * self->geometry.padded_channels);
}
