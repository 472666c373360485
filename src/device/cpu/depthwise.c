/* SPDX-License-Identifier: Apache-2.0 */
/* y[place] = bias + the sum over taps of w[tap] * x[place * stride + tap], for each channel; in
 * backward dw[tap] = the sum over rows and places of dy[place] * x[place * stride + tap]. LANES
 * channels are computed side by side. Where a value's layout does not have them so, a row of them
 * is copied. */
#include "device/cpu/depthwise.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/clones.h"
#include "device/cpu/geometry.h"

enum {
    LANES = 16,
    SERIAL_PRODUCTS = 1 << 15 /* fewer are done before a second thread has begun */
};

/* A tap that meets pixels of the image: where its weight lies in a channel's, the first place and
 * the first pixel, how many lines of how many places there are. */
typedef struct tap {
    size_t weight, place, pixel;
    int lines, places;
} tap;

typedef struct cpu_depthwise {
    cpu_own_kernel base;
    cpu_device *device;
    bool backward;
    cpu_geometry from, to; /* input, output */
    size_t rows;
    int height, width, out_height, out_width;
    yoke_taps down, across;
    size_t weight_block, weight_stride, weight_bytes;
    size_t line_pixels; /* from a line's pixels to the next one's */
    float low, high;    /* of the output */
    tap *taps;
    int tap_count;
    cpu_own_addresses at;
} cpu_depthwise;

static bool fits(const cpu_operation *o) {
    const cpu_desc *w = o->weights;
    bool depthwise = o->direction != CPU_BACKWARD_DATA && w != NULL && w->ndims == 5 &&
                     o->kind == CPU_CONVOLUTION && w->dims[1] == 1 && w->dims[2] == 1;
    if (!depthwise) return false;
    bool blocked = w->inner_count == 0 || (w->inner_count == 1 && w->inner_dims[0] == 0);
    return o->source->type == dnnl_f32 && o->destination->type == dnnl_f32 && w->type == dnnl_f32 &&
           w->is_blocked && blocked && w->offset == 0;
}

static yoke_taps taps_of(const cpu_operation *o, int direction) {
    return (yoke_taps){.kernel = (int)o->weights->dims[3 + direction],
                       .stride = (int)o->strides[direction],
                       .padding = (int)o->padding[direction],
                       .dilation = (int)o->dilation[direction] + 1};
}

/* Taps beyond the image are left out: of a kernel of 7 over an image of 2, all but 9 of 49. */
static yoke_status list_taps(cpu_depthwise *self, const cpu_desc *w) {
    size_t most = (size_t)self->down.kernel * (size_t)self->across.kernel;
    self->taps = yoke_malloc(most * sizeof *self->taps);
    if (self->taps == NULL) return FAIL_MEMORY(most * sizeof *self->taps, "a convolution's taps");
    for (int i = 0; i < (int)most; i++) {
        int ky = i / self->across.kernel, kx = i % self->across.kernel;
        int top = ky * self->down.dilation - self->down.padding;
        int left = kx * self->across.dilation - self->across.padding;
        yoke_window down = yoke_tap_window(self->out_height, self->height, self->down.stride, top);
        yoke_window across =
            yoke_tap_window(self->out_width, self->width, self->across.stride, left);
        if (down.end <= down.begin || across.end <= across.begin) continue;
        int y = down.begin * self->down.stride + top, x = across.begin * self->across.stride + left;
        self->taps[self->tap_count++] =
            (tap){.weight = (size_t)ky * (size_t)w->strides[3] + (size_t)kx * (size_t)w->strides[4],
                  .place = (size_t)(down.begin * self->out_width + across.begin),
                  .pixel = (size_t)(y * self->width + x),
                  .lines = down.end - down.begin,
                  .places = across.end - across.begin};
    }
    return YOKE_OK;
}

/* What a thread works with: a row of input and output, weights or their gradients, a bias. */
static size_t thread_floats(const cpu_depthwise *self) {
    return (self->from.pixels + self->to.pixels + (size_t)self->tap_count + 1) * LANES;
}

static yoke_status describe_depthwise(cpu_depthwise *self, const cpu_operation *o) {
    const cpu_desc *w = o->weights;
    TRY(cpu_geometry_read(&self->from, o->source, "depthwise convolution"));
    TRY(cpu_geometry_read(&self->to, o->destination, "depthwise convolution"));
    self->backward = o->direction == CPU_BACKWARD_WEIGHTS;
    self->rows = (size_t)o->source->dims[0];
    self->height = (int)o->source->dims[2];
    self->width = (int)o->source->dims[3];
    self->out_height = (int)o->destination->dims[2];
    self->out_width = (int)o->destination->dims[3];
    self->down = taps_of(o, 0);
    self->across = taps_of(o, 1);
    self->weight_block = w->inner_count == 1 ? (size_t)w->inner_blocks[0] : 1;
    self->weight_stride = (size_t)w->strides[0];
    self->line_pixels = (size_t)self->down.stride * (size_t)self->width;
    self->weight_bytes = w->bytes;
    return list_taps(self, w);
}

static cpu_depthwise *depthwise_of(const cpu_own_kernel *kernel) {
    return (cpu_depthwise *)kernel;
}

static void depthwise_destroy(cpu_own_kernel *kernel) {
    yoke_free(depthwise_of(kernel)->taps);
    yoke_free(kernel);
}

static size_t depthwise_scratch_bytes(const cpu_own_kernel *kernel) {
    const cpu_depthwise *self = depthwise_of(kernel);
    return (size_t)self->device->base.threads * thread_floats(self) * sizeof(float);
}

static yoke_status depthwise_bind(cpu_own_kernel *kernel, const cpu_own_addresses *addresses) {
    depthwise_of(kernel)->at = *addresses;
    return YOKE_OK;
}

static size_t channel_offset(const cpu_geometry *g, size_t channel) {
    return channel / g->block * g->block_stride + channel % g->block;
}

static float *weight_at(const cpu_depthwise *self, size_t channel, const tap *t) {
    return self->at.weights + channel / self->weight_block * self->weight_stride +
           channel % self->weight_block + t->weight;
}

/* LANES channels from `first` on, of which the last ones may not exist. */
typedef struct channel_block {
    size_t first, lanes;
    float *weights, *bias, *input, *output; /* copies: [taps, LANES], [LANES], [pixels, LANES] */
} channel_block;

static channel_block block_of(const cpu_depthwise *self, size_t index) {
    size_t first = index * LANES, left = self->from.channels - first;
    float *weights = (float *)self->at.scratch + (size_t)omp_get_thread_num() * thread_floats(self);
    float *bias = weights + (size_t)self->tap_count * LANES, *input = bias + LANES;
    return (channel_block){.first = first,
                           .lanes = left < LANES ? left : LANES,
                           .weights = weights,
                           .bias = bias,
                           .input = input,
                           .output = input + self->from.pixels * LANES};
}

/* A row's pixels, LANES channels side by side. */
typedef struct pixels {
    float *at;
    size_t step; /* floats from one to the next */
} pixels;

/* Whether a value has the block's channels so. */
static bool has_lanes(const cpu_geometry *g, const channel_block *block) {
    bool channels_last = g->block == 1 && g->block_stride == 1 && block->lanes == LANES;
    return channels_last || g->block == LANES;
}

static pixels pixels_of(const cpu_geometry *g, const channel_block *block, float *values,
                        size_t row, float *copy) {
    if (!has_lanes(g, block)) return (pixels){copy, LANES};
    return (pixels){values + row * g->row_stride + channel_offset(g, block->first),
                    g->pixel_stride};
}

/* Between a row of a value and its copy. */
static void copy_row(const cpu_geometry *g, const channel_block *block, float *values, size_t row,
                     float *copy, bool back) {
    if (has_lanes(g, block)) return;
    for (size_t lane = 0; lane < LANES; lane++) {
        float *plane = values + row * g->row_stride + channel_offset(g, block->first + lane);
        for (size_t pixel = 0; pixel < g->pixels; pixel++) {
            float *own = &copy[pixel * LANES + lane];
            if (back && lane < block->lanes)
                plane[pixel * g->pixel_stride] = *own;
            else if (!back)
                *own = lane < block->lanes ? plane[pixel * g->pixel_stride] : 0;
        }
    }
}

#define FOR_LANES _Pragma("omp simd") for (size_t lane = 0; lane < LANES; lane++)

/* Places of the image whose tap lies in it. */
CPU_CLONES static void add_products(const cpu_depthwise *self, const tap *t,
                                    const float *restrict weights, pixels from, pixels to) {
    for (int line = 0; line < t->lines; line++) {
        const float *x = from.at + (t->pixel + (size_t)line * self->line_pixels) * from.step;
        float *y = to.at + (t->place + (size_t)line * (size_t)self->out_width) * to.step;
        for (int place = 0; place < t->places; place++) {
            FOR_LANES
                y[lane] += weights[lane] * x[lane];
            x += from.step * (size_t)self->across.stride;
            y += to.step;
        }
    }
}

CPU_CLONES static void sum_products(const cpu_depthwise *self, const tap *t, float *restrict sums,
                                    pixels from, pixels to) {
    float own[LANES];
    FOR_LANES
        own[lane] = sums[lane];
    for (int line = 0; line < t->lines; line++) {
        const float *x = from.at + (t->pixel + (size_t)line * self->line_pixels) * from.step;
        const float *dy = to.at + (t->place + (size_t)line * (size_t)self->out_width) * to.step;
        for (int place = 0; place < t->places; place++) {
            FOR_LANES
                own[lane] += x[lane] * dy[lane];
            x += from.step * (size_t)self->across.stride;
            dy += to.step;
        }
    }
    FOR_LANES
        sums[lane] = own[lane];
}

/* NaN stays NaN. */
CPU_CLONES static void bound_row(const cpu_depthwise *self, pixels to) {
    float low = self->low, high = self->high;
    for (size_t place = 0; place < self->to.pixels; place++) {
        float *y = to.at + place * to.step;
        FOR_LANES
            y[lane] = y[lane] < low ? low : y[lane] > high ? high : y[lane];
    }
}

static void forward_block(const cpu_depthwise *self, const channel_block *block) {
    for (size_t lane = 0; lane < LANES; lane++) {
        size_t channel = block->first + lane;
        bool exists = lane < block->lanes;
        block->bias[lane] = exists && self->at.bias != NULL ? self->at.bias[channel] : 0;
        for (int i = 0; i < self->tap_count; i++)
            block->weights[(size_t)i * LANES + lane] =
                exists ? *weight_at(self, channel, &self->taps[i]) : 0;
    }
    for (size_t row = 0; row < self->rows; row++) {
        pixels from = pixels_of(&self->from, block, self->at.input, row, block->input);
        pixels to = pixels_of(&self->to, block, self->at.output, row, block->output);
        copy_row(&self->from, block, self->at.input, row, block->input, false);
        for (size_t place = 0; place < self->to.pixels; place++)
            memcpy(to.at + place * to.step, block->bias, LANES * sizeof(float));
        for (int i = 0; i < self->tap_count; i++)
            add_products(self, &self->taps[i], block->weights + (size_t)i * LANES, from, to);
        if (self->low > -INFINITY || self->high < INFINITY) bound_row(self, to);
        copy_row(&self->to, block, self->at.output, row, block->output, true);
    }
}

static void backward_block(const cpu_depthwise *self, const channel_block *block) {
    double bias[LANES] = {0};
    memset(block->weights, 0, (size_t)self->tap_count * LANES * sizeof(float));
    for (size_t row = 0; row < self->rows; row++) {
        pixels from = pixels_of(&self->from, block, self->at.input, row, block->input);
        pixels to = pixels_of(&self->to, block, self->at.output, row, block->output);
        copy_row(&self->from, block, self->at.input, row, block->input, false);
        copy_row(&self->to, block, self->at.output, row, block->output, false);
        for (int i = 0; i < self->tap_count; i++)
            sum_products(self, &self->taps[i], block->weights + (size_t)i * LANES, from, to);
        for (size_t place = 0; self->at.bias != NULL && place < self->to.pixels; place++)
            for (size_t lane = 0; lane < LANES; lane++)
                bias[lane] += (double)to.at[place * to.step + lane];
    }
    for (size_t lane = 0; lane < block->lanes; lane++) {
        size_t channel = block->first + lane;
        for (int i = 0; i < self->tap_count; i++)
            *weight_at(self, channel, &self->taps[i]) = block->weights[(size_t)i * LANES + lane];
        if (self->at.bias != NULL) self->at.bias[channel] = (float)bias[lane];
    }
}

static yoke_status depthwise_run(const cpu_own_kernel *kernel) {
    const cpu_depthwise *self = depthwise_of(kernel);
    size_t products = self->rows * self->to.pixels * (size_t)self->tap_count * self->from.channels;
    int threads = products < SERIAL_PRODUCTS ? 1 : self->device->base.threads;
    /* Padding channels stay 0, and so do taps beyond the image. */
    if (self->backward) memset(self->at.weights, 0, self->weight_bytes);
    if (!self->backward && self->to.padded_channels > self->to.channels)
        memset(self->at.output, 0, self->rows * self->to.row_stride * sizeof(float));
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (size_t i = 0; i < (self->from.channels + LANES - 1) / LANES; i++) {
        const channel_block block = block_of(self, i);
        if (self->backward)
            backward_block(self, &block);
        else
            forward_block(self, &block);
    }
    return YOKE_OK;
}

yoke_status cpu_depthwise_create(cpu_own_kernel **kernel, cpu_device *device,
                                 const cpu_operation *convolution) {
    static const cpu_own_calls calls = {
        "depthwise", depthwise_scratch_bytes, NULL,          NULL,
        NULL,        depthwise_bind,          depthwise_run, depthwise_destroy};
    *kernel = NULL;
    float low, high;
    const cpu_epilogue *epilogue = &convolution->epilogue;
    if (!fits(convolution) || epilogue->adds || !cpu_epilogue_bounds(epilogue, &low, &high))
        return FAIL(YOKE_ERROR_DEVICE, "this is no depthwise convolution in float32, or the "
                                       "gradient of its data");
    cpu_depthwise *self = yoke_calloc(1, sizeof *self);
    if (self == NULL) return FAIL_MEMORY(sizeof *self, "a convolution");
    self->base.calls = &calls;
    self->device = device;
    self->low = low;
    self->high = high;
    yoke_status status = describe_depthwise(self, convolution);
    if (status == YOKE_OK)
        *kernel = &self->base;
    else
        depthwise_destroy(&self->base);
    return status;
}
