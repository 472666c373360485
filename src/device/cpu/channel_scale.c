/* SPDX-License-Identifier: Apache-2.0 */
/* An image times a factor for each channel of a row. The gradient of a factor is the sum over the
 * pixels of the output's gradient times the image, in double. */
#include "device/cpu/clones.h"
#include "device/cpu/cpu.h"
#include "device/cpu/geometry.h"

#define TILE 16 /* channels whose factors and sums stay in registers */

typedef struct scale_plan {
    yoke_plan base;
    cpu_geometry image, factors;
    cpu_row_view view; /* of a row of the image */
    size_t tiles;      /* of a group */
    bool half, factors_half;
} scale_plan;

/* Channels side by side in one row. */
typedef struct channel_tile {
    size_t row, channel, width; /* width <= TILE */
    size_t at;                  /* where its first pixel lies in the image */
    bool last;                  /* of its row */
} channel_tile;

static inline size_t factor_at(const scale_plan *scale, const channel_tile *tile, size_t channel) {
    const cpu_geometry *factors = &scale->factors;
    return tile->row * factors->row_stride + channel / factors->block * factors->block_stride +
           channel % factors->block;
}

/* Padding channels have the factor 0. */
static inline void load_factors(const scale_plan *scale, const channel_tile *tile, float to[TILE]) {
    bool half = scale->factors_half;
    for (size_t i = 0; i < tile->width; i++) {
        size_t channel = tile->channel + i;
        to[i] = channel < scale->image.channels
                    ? cpu_load(scale->base.binding.inputs[1], factor_at(scale, tile, channel), half)
                    : 0;
    }
}

/* to = from times the factors, which may lie in the same memory. */
static inline void multiply_tile(const scale_plan *scale, const channel_tile *tile,
                                 const void *from, void *to, bool half) {
    const cpu_row_view *view = &scale->view;
    float by[TILE];
    load_factors(scale, tile, by);
    for (size_t pixel = 0; pixel < view->pixels; pixel++) {
        size_t at = tile->at + pixel * view->pixel_stride;
        for (size_t i = 0; i < tile->width; i++)
            cpu_store(to, at + i, half, cpu_load(from, at + i, half) * by[i]);
    }
}

/* The gradients of a tile's factors; the last tile clears the padding behind the channels. */
static inline void sum_tile(const scale_plan *scale, const channel_tile *tile, bool half) {
    const cpu_row_view *view = &scale->view;
    const void *image = scale->base.binding.inputs[0],
               *gradient = scale->base.binding.output_gradient;
    void *to = scale->base.binding.input_gradients[1];
    double sums[TILE] = {0};
    for (size_t pixel = 0; pixel < view->pixels; pixel++) {
        size_t at = tile->at + pixel * view->pixel_stride;
        for (size_t i = 0; i < tile->width; i++)
            sums[i] +=
                (double)cpu_load(gradient, at + i, half) * (double)cpu_load(image, at + i, half);
    }
    for (size_t i = 0; i < tile->width && tile->channel + i < scale->factors.channels; i++)
        cpu_store(to, factor_at(scale, tile, tile->channel + i), scale->factors_half,
                  (float)sums[i]);
    for (size_t c = scale->factors.channels; tile->last && c < scale->factors.padded_channels; c++)
        cpu_store(to, factor_at(scale, tile, c), scale->factors_half, 0);
}

CPU_CLONES static void forward_tile(const scale_plan *scale, const channel_tile *tile) {
    const void *image = scale->base.binding.inputs[0];
    void *output = scale->base.binding.output;
    if (scale->half)
        multiply_tile(scale, tile, image, output, true);
    else
        multiply_tile(scale, tile, image, output, false);
}

/* The sums come first: the image's gradient may overwrite the output's. */
CPU_CLONES static void backward_tile(const scale_plan *scale, const channel_tile *tile) {
    const void *gradient = scale->base.binding.output_gradient;
    void *to = scale->base.binding.input_gradients[0];
    if (scale->base.binding.input_gradients[1] != NULL && scale->half)
        sum_tile(scale, tile, true);
    else if (scale->base.binding.input_gradients[1] != NULL)
        sum_tile(scale, tile, false);
    if (to != NULL && scale->half)
        multiply_tile(scale, tile, gradient, to, true);
    else if (to != NULL)
        multiply_tile(scale, tile, gradient, to, false);
}

static void run_tiles(const scale_plan *scale,
                      void (*run)(const scale_plan *, const channel_tile *)) {
    const cpu_row_view *view = &scale->view;
    size_t each = view->groups * scale->tiles, tiles = scale->base.rows * each;
    int threads = scale->base.device->threads;
    bool parallel = cpu_is_parallel(threads, scale->base.rows * scale->image.row_stride);
#pragma omp parallel for num_threads(threads) if (parallel)
    for (size_t i = 0; i < tiles; i++) {
        size_t row = i / each, group = i % each / scale->tiles;
        size_t first = i % each % scale->tiles * TILE, left = view->width - first;
        channel_tile own = {.row = row,
                            .channel = group * view->width + first,
                            .width = left < TILE ? left : TILE,
                            .at =
                                row * scale->image.row_stride + group * view->group_stride + first,
                            .last = i % each == each - 1};
        run(scale, &own);
    }
}

static yoke_status channel_scale_forward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    run_tiles((const scale_plan *)plan, forward_tile);
    return YOKE_OK;
}

static yoke_status channel_scale_backward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    run_tiles((const scale_plan *)plan, backward_tile);
    return YOKE_OK;
}

yoke_status cpu_plan_channel_scale(yoke_plan **plan, cpu_device *device,
                                   const yoke_plan_request *request) {
    static const yoke_plan_calls calls = {NULL, channel_scale_forward, channel_scale_backward, NULL,
                                          YOKE_IN_PLACE | YOKE_READS_INPUT | YOKE_READS_SECOND};
    TRY(yoke_plan_allocate(plan, sizeof(scale_plan), &device->base, request, &calls));
    scale_plan *scale = (scale_plan *)*plan;
    const cpu_desc *image = cpu_layout_desc(&request->inputs[0]);
    const cpu_desc *factors = cpu_layout_desc(&request->inputs[1]);
    const char *what = "multiplication by a factor for each channel";
    TRY(cpu_geometry_read(&scale->image, image, what));
    TRY(cpu_geometry_read(&scale->factors, factors, what));
    scale->view = cpu_view_row(&scale->image);
    scale->tiles = (scale->view.width + TILE - 1) / TILE;
    scale->half = image->type == dnnl_bf16;
    scale->factors_half = factors->type == dnnl_bf16;
    scale->base.needs.output = request->inputs[0];
    return YOKE_OK;
}
