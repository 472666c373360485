/* SPDX-License-Identifier: Apache-2.0 */
/* Average pooling to a given size, with PyTorch's windows: neighbours overlap where the sizes do
 * not divide. The output is plain in any layout of the input. */
#include "device/cpu/cpu.h"
#include "device/cpu/geometry.h"

typedef struct adaptive_plan {
    yoke_plan base;
    cpu_geometry from; /* of the input */
    bool half;
} adaptive_plan;

/* Where a channel of a row of the input begins. */
static size_t plane_begin(const cpu_geometry *g, size_t row, size_t channel) {
    return row * g->row_stride + channel / g->block * g->block_stride + channel % g->block;
}

static int length(yoke_window span) {
    return span.end - span.begin;
}

/* The mean of the input over one window. */
static float average(const adaptive_plan *pool, size_t plane, yoke_window down,
                     yoke_window across) {
    float sum = 0;
    for (int y = down.begin; y < down.end; y++)
        for (int x = across.begin; x < across.end; x++)
            sum += cpu_load(pool->base.binding.inputs[0],
                            plane + (size_t)(y * pool->base.operation.input.width + x) *
                                        pool->from.pixel_stride,
                            pool->half);
    return sum / (float)(length(down) * length(across));
}

/* What the windows over pixel (y, x) return to it; `at` is their plane of the output. */
static float gradient_of(const adaptive_plan *pool, size_t at, int y, int x) {
    yoke_dims in = pool->base.operation.input, out = pool->base.operation.output;
    /* Window i reads pixel y where pixel y, as a window over the outputs, reads output i. */
    yoke_window rows = yoke_adaptive_window(y, in.height, out.height);
    yoke_window columns = yoke_adaptive_window(x, in.width, out.width);
    float sum = 0;
    for (int i = rows.begin; i < rows.end; i++) {
        int height = length(yoke_adaptive_window(i, out.height, in.height));
        for (int j = columns.begin; j < columns.end; j++) {
            int width = length(yoke_adaptive_window(j, out.width, in.width));
            sum += cpu_load(pool->base.binding.output_gradient, at + (size_t)(i * out.width + j),
                            pool->half) /
                   (float)(height * width);
        }
    }
    return sum;
}

static bool is_parallel(const adaptive_plan *pool) {
    size_t elements = pool->base.rows * pool->from.channels *
                      (pool->from.pixels + (size_t)(pool->base.operation.output.height *
                                                    pool->base.operation.output.width));
    return cpu_is_parallel(pool->base.device->threads, elements);
}

static yoke_status adaptive_pool_forward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const adaptive_plan *pool = (const adaptive_plan *)plan;
    size_t channels = pool->from.channels;
#pragma omp parallel for num_threads(plan->device->threads) if (is_parallel(pool))
    for (size_t i = 0; i < pool->base.rows * channels; i++) {
        size_t row = i / channels, channel = i % channels;
        yoke_dims in = pool->base.operation.input, out = pool->base.operation.output;
        size_t plane = plane_begin(&pool->from, row, channel);
        size_t at = (row * pool->from.channels + channel) * (size_t)(out.height * out.width);
        for (int k = 0; k < out.height * out.width; k++) {
            yoke_window down = yoke_adaptive_window(k / out.width, out.height, in.height);
            yoke_window across = yoke_adaptive_window(k % out.width, out.width, in.width);
            cpu_store(pool->base.binding.output, at + (size_t)k, pool->half,
                      average(pool, plane, down, across));
        }
    }
    return YOKE_OK;
}

static yoke_status adaptive_pool_backward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const adaptive_plan *pool = (const adaptive_plan *)plan;
    size_t channels = pool->from.padded_channels;
    if (pool->base.binding.input_gradients[0] == NULL) return YOKE_OK;
#pragma omp parallel for num_threads(plan->device->threads) if (is_parallel(pool))
    for (size_t i = 0; i < pool->base.rows * channels; i++) {
        size_t row = i / channels, channel = i % channels;
        const cpu_geometry *g = &pool->from;
        size_t plane = plane_begin(g, row, channel);
        size_t at = (row * g->channels + channel) * (size_t)(pool->base.operation.output.height *
                                                             pool->base.operation.output.width);
        int width = pool->base.operation.input.width;
        for (int k = 0; k < pool->base.operation.input.height * width; k++) {
            bool padding = channel >= g->channels;
            float sum = padding ? 0 : gradient_of(pool, at, k / width, k % width);
            cpu_store(pool->base.binding.input_gradients[0], plane + (size_t)k * g->pixel_stride,
                      pool->half, sum);
        }
    }
    return YOKE_OK;
}

yoke_status cpu_plan_adaptive_pool(yoke_plan **plan, cpu_device *device,
                                   const yoke_plan_request *request) {
    static const yoke_plan_calls calls = {NULL, adaptive_pool_forward, adaptive_pool_backward};
    TRY(yoke_plan_allocate(plan, sizeof(adaptive_plan), &device->base, request, &calls));
    adaptive_plan *pool = (adaptive_plan *)*plan;
    const cpu_desc *input = cpu_layout_desc(&request->inputs[0]);
    TRY(cpu_geometry_read(&pool->from, input, "adaptive pooling"));
    pool->half = input->type == dnnl_bf16;
    return cpu_plan_plain_output(*plan, request, input->type);
}
