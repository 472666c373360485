/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of CPU_PANEL channels, of which each has its weights side by side: [taps, lanes]. */
#include "device/cpu/depthwise_wide.h"

#include <stdlib.h>

#include "device/cpu/block_product.h"
#include "device/cpu/geometry.h"
#include "device/cpu/processor.h"

enum {
    LANES = CPU_PANEL,
    SERIAL_PRODUCTS = 1 << 15 /* fewer are done before a second thread has begun */
};

typedef struct depthwise_wide {
    cpu_own_kernel base;
    int threads;
    const cpu_desc *weights;
    cpu_geometry from, to;
    int rows, height, width, out_height, out_width;
    yoke_taps down, across;
    bool adds;
    float low, high;
    cpu_own_addresses at;
} depthwise_wide;

/* A row's pixels, of one group of channels. */
typedef struct group {
    const float *from, *weights, *bias; /* bias NULL: none */
    float *to;
} group;

#if defined(__x86_64__)
#include <immintrin.h>

#define KERNEL __attribute__((target("avx512f")))

/* The taps that meet pixels of the image: begin .. end - 1. */
typedef struct tap_range {
    int begin, end;
} tap_range;

static inline tap_range taps_inside(const yoke_taps *taps, int first, int size) {
    tap_range range = {0, taps->kernel};
    while (range.begin < range.end && first + range.begin * taps->dilation < 0)
        range.begin++;
    while (range.end > range.begin && first + (range.end - 1) * taps->dilation >= size)
        range.end--;
    return range;
}

KERNEL static void convolve_line(const depthwise_wide *self, const group *g, int y) {
    const ptrdiff_t pixel = (ptrdiff_t)self->from.pixel_stride, line = self->width * pixel;
    const ptrdiff_t to_pixel = (ptrdiff_t)self->to.pixel_stride;
    const int top = y * self->down.stride - self->down.padding;
    const tap_range down = taps_inside(&self->down, top, self->height);
    const __m512 low = _mm512_set1_ps(self->low), high = _mm512_set1_ps(self->high);
    const __m512 bias = g->bias != NULL ? _mm512_loadu_ps(g->bias) : _mm512_setzero_ps();
    float *to = g->to + y * self->out_width * to_pixel;
    for (int x = 0; x < self->out_width; x++, to += to_pixel) {
        const int left = x * self->across.stride - self->across.padding;
        const tap_range across = taps_inside(&self->across, left, self->width);
        __m512 sum = bias;
        for (int row = down.begin; row < down.end; row++) {
            const float *from = g->from + (top + row * self->down.dilation) * line + left * pixel;
            const float *weights = g->weights + (ptrdiff_t)row * self->across.kernel * LANES;
            for (int tap = across.begin; tap < across.end; tap++)
                sum = _mm512_fmadd_ps(_mm512_loadu_ps(weights + tap * LANES),
                                      _mm512_loadu_ps(from + tap * self->across.dilation * pixel),
                                      sum);
        }
        if (self->adds) sum = _mm512_add_ps(sum, _mm512_loadu_ps(to));
        /* NaN stays NaN: where one operand is, max and min give the second. */
        _mm512_storeu_ps(to, _mm512_min_ps(high, _mm512_max_ps(low, sum)));
    }
}

#else

static void convolve_line(const depthwise_wide *self, const group *g, int y) {
    (void)self; /* nobody calls it here */
    (void)g;
    (void)y;
}

#endif

static int taps_of(const depthwise_wide *self) {
    return self->down.kernel * self->across.kernel;
}

static size_t groups_of(const depthwise_wide *self) {
    return self->from.channels / LANES;
}

static size_t group_offset(const cpu_geometry *g, size_t index) {
    return index * (g->block == LANES ? g->block_stride : LANES);
}

static void prepare(const cpu_own_kernel *kernel, const float *weights, void *kept) {
    const depthwise_wide *self = (const depthwise_wide *)kernel;
    const cpu_desc *desc = self->weights;
    size_t taps = (size_t)taps_of(self);
    float *to = kept;
    for (size_t channel = 0; channel < self->from.channels; channel++)
        for (int tap = 0; tap < taps_of(self); tap++)
            to[(channel / LANES * taps + (size_t)tap) * LANES + channel % LANES] =
                weights[desc->offset + cpu_desc_offset(desc, 0, (int)channel) +
                        cpu_desc_offset(desc, 3, tap / self->across.kernel) +
                        cpu_desc_offset(desc, 4, tap % self->across.kernel)];
}

static void run_group(const depthwise_wide *self, size_t row, size_t index) {
    const group g = {.from = (const float *)self->at.input + row * self->from.row_stride +
                             group_offset(&self->from, index),
                     .weights =
                         (const float *)self->at.kept + index * (size_t)taps_of(self) * LANES,
                     .bias = self->at.bias != NULL ? self->at.bias + index * LANES : NULL,
                     .to = (float *)self->at.output + row * self->to.row_stride +
                           group_offset(&self->to, index)};
    for (int y = 0; y < self->out_height; y++)
        convolve_line(self, &g, y);
}

static yoke_status run(const cpu_own_kernel *kernel) {
    const depthwise_wide *self = (const depthwise_wide *)kernel;
    size_t groups = groups_of(self), count = groups * (size_t)self->rows;
    if (self->threads == 1) {
        for (size_t i = 0; i < count; i++)
            run_group(self, i / groups, i % groups);
        return YOKE_OK;
    }
#pragma omp parallel for num_threads(self->threads) schedule(static)
    for (size_t i = 0; i < count; i++)
        run_group(self, i / groups, i % groups);
    return YOKE_OK;
}

static size_t scratch_bytes(const cpu_own_kernel *kernel) {
    (void)kernel;
    return 0;
}

static size_t kept_bytes(const cpu_own_kernel *kernel) {
    const depthwise_wide *self = (const depthwise_wide *)kernel;
    return self->from.channels * (size_t)taps_of(self) * sizeof(float);
}

static yoke_status bind(cpu_own_kernel *kernel, const cpu_own_addresses *addresses) {
    ((depthwise_wide *)kernel)->at = *addresses;
    return YOKE_OK;
}

static void destroy(cpu_own_kernel *kernel) {
    yoke_free(kernel);
}

/* Planning. */

static bool value_fits(const cpu_desc *desc) {
    return cpu_has_lanes(desc, LANES) && desc->dims[1] % LANES == 0;
}

static bool convolution_fits(const cpu_operation *o) {
    const cpu_desc *w = o->weights;
    return o->inference && o->kind == CPU_CONVOLUTION && o->direction == CPU_FORWARD && w != NULL &&
           w->ndims == 5 && w->dims[1] == 1 && w->dims[2] == 1 && w->type == dnnl_f32 &&
           w->is_blocked && cpu_has_avx512() && value_fits(o->source) && value_fits(o->destination);
}

static yoke_taps read_taps(const cpu_operation *o, int direction) {
    return (yoke_taps){.kernel = (int)o->weights->dims[3 + direction],
                       .stride = (int)o->strides[direction],
                       .padding = (int)o->padding[direction],
                       .dilation = (int)o->dilation[direction] + 1};
}

static yoke_status build(depthwise_wide *self, const cpu_operation *o) {
    TRY(cpu_geometry_read(&self->from, o->source, "a convolution"));
    TRY(cpu_geometry_read(&self->to, o->destination, "a convolution"));
    self->rows = (int)o->source->dims[0];
    self->height = (int)o->source->dims[2];
    self->width = (int)o->source->dims[3];
    self->out_height = (int)o->destination->dims[2];
    self->out_width = (int)o->destination->dims[3];
    self->down = read_taps(o, 0);
    self->across = read_taps(o, 1);
    size_t products =
        (size_t)self->rows * self->to.pixels * (size_t)taps_of(self) * self->from.channels;
    if (products < SERIAL_PRODUCTS) self->threads = 1;
    return YOKE_OK;
}

yoke_status cpu_depthwise_wide_create(cpu_own_kernel **kernel, cpu_device *device,
                                      const cpu_operation *convolution) {
    static const cpu_own_calls calls = {
        "depthwise wide", scratch_bytes, kept_bytes, prepare, NULL, bind, run, destroy};
    *kernel = NULL;
    float low = 0, high = 0;
    if (!convolution_fits(convolution) || !cpu_epilogue_bounds(&convolution->epilogue, &low, &high))
        return FAIL(YOKE_ERROR_DEVICE, "this is no depthwise convolution for inference");
    depthwise_wide *self = yoke_calloc(1, sizeof *self);
    if (self == NULL) return FAIL_MEMORY(sizeof *self, "a convolution");
    *self = (depthwise_wide){.base = {&calls},
                             .threads = device->base.threads,
                             .weights = convolution->weights,
                             .adds = convolution->epilogue.adds,
                             .low = low,
                             .high = high};
    yoke_status status = build(self, convolution);
    if (status == YOKE_OK)
        *kernel = &self->base;
    else
        yoke_free(self);
    return status;
}
