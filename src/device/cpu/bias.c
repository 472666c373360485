/* SPDX-License-Identifier: Apache-2.0 */
/* Adds a bias to the channels of an image. oneDNN's transposed convolution does it in plain loops,
 * which may take as long as the products. */
#include "device/cpu/bias.h"

#include "device/cpu/clones.h"

#define TILE 16 /* channels whose biases stay in registers */

/* Channels side by side. */
typedef struct bias_tile {
    void *row;
    size_t at, width; /* where its first pixel lies; width <= TILE */
    const float *bias;
} bias_tile;

static inline void add_tile(const cpu_row_view *view, const bias_tile *tile, bool half) {
    float bias[TILE];
    for (size_t i = 0; i < tile->width; i++)
        bias[i] = tile->bias[i];
    for (size_t pixel = 0; pixel < view->pixels; pixel++) {
        size_t at = tile->at + pixel * view->pixel_stride;
        for (size_t i = 0; i < tile->width; i++)
            cpu_store(tile->row, at + i, half, cpu_load(tile->row, at + i, half) + bias[i]);
    }
}

CPU_CLONES static void add_halves(const cpu_row_view *view, const bias_tile *tile) {
    add_tile(view, tile, true);
}

CPU_CLONES static void add_floats(const cpu_row_view *view, const bias_tile *tile) {
    add_tile(view, tile, false);
}

/* Padding channels stay 0. */
static void add_to_row(const cpu_geometry *image, void *row, bool half, const float *bias) {
    cpu_row_view view = cpu_view_row(image);
    for (size_t group = 0; group < view.groups; group++)
        for (size_t first = 0; first < view.width; first += TILE) {
            size_t channel = group * view.width + first;
            if (channel >= image->channels) return;
            size_t width = view.width - first < TILE ? view.width - first : TILE;
            if (width > image->channels - channel) width = image->channels - channel;
            bias_tile tile = {row, group * view.group_stride + first, width, bias + channel};
            (half ? add_halves : add_floats)(&view, &tile);
        }
}

void cpu_add_bias(const cpu_device *device, const cpu_geometry *images, size_t rows, void *values,
                  bool half, const float *bias) {
    size_t row_bytes = images->row_stride * (half ? sizeof(uint16_t) : sizeof(float));
    int threads = device->base.threads;
#pragma omp parallel for num_threads(                                                              \
    threads) if (cpu_is_parallel(threads, rows * images->row_stride))
    for (size_t row = 0; row < rows; row++)
        add_to_row(images, (char *)values + row * row_bytes, half, bias);
}
