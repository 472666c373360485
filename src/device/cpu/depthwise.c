/* SPDX-License-Identifier: Apache-2.0 */
/* dw[channel][tap] = the sum over rows and places of dy[place] * x[place * stride + tap]. Channels
 * of one block lie side by side: the loop over them is the innermost. */
#include "device/cpu/depthwise.h"

#include <stdlib.h>
#include <string.h>

#include "device/cpu/clones.h"
#include "device/cpu/geometry.h"

enum { LANES = 16 }; /* channels of a block, at most */

struct cpu_depthwise {
    cpu_device *device;
    cpu_geometry from, to; /* input, output */
    size_t rows;
    int height, width, out_height, out_width;
    yoke_taps down, across;
    size_t block; /* channels that lie side by side in input, output and weights */
    size_t weight_block, weight_stride, tap_strides[2];
    const float *input, *output_gradient;
    float *weight_gradient;
    size_t weight_bytes;
};

static bool fits(const cpu_operation *o) {
    const cpu_desc *w = o->weights;
    bool depthwise = o->direction == CPU_BACKWARD_WEIGHTS && w != NULL && w->ndims == 5 &&
                     o->kind == CPU_CONVOLUTION && w->dims[1] == 1 && w->dims[2] == 1;
    if (!depthwise || o->bias != NULL) return false;
    bool blocked = w->inner_count == 0 || (w->inner_count == 1 && w->inner_dims[0] == 0);
    return o->source->type == dnnl_f32 && o->destination->type == dnnl_f32 && w->type == dnnl_f32 &&
           w->is_blocked && blocked && w->offset == 0;
}

/* Channels last counts as blocks of any size. */
static size_t block_of(const cpu_geometry *g) {
    bool channels_last = g->block == 1 && g->block_stride == 1;
    return channels_last ? LANES : g->block;
}

static size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

static yoke_taps taps_of(const cpu_operation *o, int direction) {
    return (yoke_taps){.kernel = (int)o->weights->dims[3 + direction],
                       .stride = (int)o->strides[direction],
                       .padding = (int)o->padding[direction],
                       .dilation = (int)o->dilation[direction] + 1};
}

static yoke_status describe_depthwise(cpu_depthwise *self, const cpu_operation *o) {
    const cpu_desc *w = o->weights;
    TRY(cpu_geometry_read(&self->from, o->source, "depthwise convolution"));
    TRY(cpu_geometry_read(&self->to, o->destination, "depthwise convolution"));
    self->rows = (size_t)o->source->dims[0];
    self->height = (int)o->source->dims[2];
    self->width = (int)o->source->dims[3];
    self->out_height = (int)o->destination->dims[2];
    self->out_width = (int)o->destination->dims[3];
    self->down = taps_of(o, 0);
    self->across = taps_of(o, 1);
    self->weight_block = w->inner_count == 1 ? (size_t)w->inner_blocks[0] : 1;
    self->weight_stride = (size_t)w->strides[0];
    self->tap_strides[0] = (size_t)w->strides[3];
    self->tap_strides[1] = (size_t)w->strides[4];
    self->weight_bytes = w->bytes;
    self->block = smaller(smaller(block_of(&self->from), block_of(&self->to)), LANES);
    return YOKE_OK;
}

yoke_status cpu_depthwise_create(cpu_depthwise **depthwise, cpu_device *device,
                                 const cpu_operation *convolution) {
    *depthwise = NULL;
    if (!fits(convolution))
        return FAIL(YOKE_ERROR_DEVICE, "this is no gradient of the weights of a depthwise "
                                       "convolution in float32 without a bias");
    cpu_depthwise *self = calloc(1, sizeof *self);
    if (self == NULL) return FAIL_MEMORY(sizeof *self, "a convolution");
    self->device = device;
    yoke_status status = describe_depthwise(self, convolution);
    if (status == YOKE_OK)
        *depthwise = self;
    else
        free(self);
    return status;
}

void cpu_depthwise_destroy(cpu_depthwise *depthwise) {
    free(depthwise);
}

void cpu_depthwise_bind(cpu_depthwise *self, const float *input, const float *output_gradient,
                        float *weight_gradient) {
    self->input = input;
    self->output_gradient = output_gradient;
    self->weight_gradient = weight_gradient;
}

static size_t channel_offset(const cpu_geometry *g, size_t channel) {
    return channel / g->block * g->block_stride + channel % g->block;
}

/* sums[lanes] += dy * x along one line of places. */
CPU_CLONES static void add_line(float *sums, const float *x, size_t x_step, const float *dy,
                                size_t dy_step, int places, size_t lanes) {
    for (int place = 0; place < places; place++, x += x_step, dy += dy_step)
        for (size_t lane = 0; lane < lanes; lane++)
            sums[lane] += x[lane] * dy[lane];
}

static void sum_tap(const cpu_depthwise *self, size_t channel, size_t lanes, int ky, int kx,
                    float *sums) {
    int top = ky * self->down.dilation - self->down.padding;
    int left = kx * self->across.dilation - self->across.padding, step = self->across.stride;
    yoke_window down = yoke_tap_window(self->out_height, self->height, self->down.stride, top);
    yoke_window across = yoke_tap_window(self->out_width, self->width, step, left);
    if (across.end <= across.begin) return;
    for (size_t row = 0; row < self->rows; row++)
        for (int y = down.begin; y < down.end; y++) {
            size_t pixel =
                (size_t)((y * self->down.stride + top) * self->width + across.begin * step + left);
            size_t place = (size_t)(y * self->out_width + across.begin);
            add_line(sums,
                     self->input + row * self->from.row_stride +
                         channel_offset(&self->from, channel) + pixel * self->from.pixel_stride,
                     self->from.pixel_stride * (size_t)step,
                     self->output_gradient + row * self->to.row_stride +
                         channel_offset(&self->to, channel) + place * self->to.pixel_stride,
                     self->to.pixel_stride, across.end - across.begin, lanes);
        }
}

void cpu_depthwise_run(const cpu_depthwise *self) {
    size_t channels = self->from.channels, blocks = (channels + self->block - 1) / self->block;
    int threads = self->device->base.threads;
    memset(self->weight_gradient, 0, self->weight_bytes); /* padding channels stay 0 */
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (size_t i = 0; i < blocks; i++) {
        size_t first = i * self->block;
        size_t lanes = smaller(self->block, self->from.channels - first);
        for (int tap = 0; tap < self->down.kernel * self->across.kernel; tap++) {
            float sums[LANES] = {0};
            int ky = tap / self->across.kernel, kx = tap % self->across.kernel;
            sum_tap(self, first, lanes, ky, kx, sums);
            for (size_t lane = 0; lane < lanes; lane++) {
                size_t channel = first + lane;
                self->weight_gradient[channel / self->weight_block * self->weight_stride +
                                      channel % self->weight_block +
                                      (size_t)ky * self->tap_strides[0] +
                                      (size_t)kx * self->tap_strides[1]] = sums[lane];
            }
        }
    }
}
