/* SPDX-License-Identifier: Apache-2.0 */
/* For each tap of the filters, the pixels of the input that it meets times its weights are added to
 * those of the output; pixels outside are left out. Weights are packed in the order in which they
 * are read: for each panel of columns, one tap after the other. The pixels that a tap meets are
 * copied side by side, except where it is the only one and they are so already. */
#include "device/cpu/few_pixels.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/block_product.h"
#include "device/cpu/geometry.h"
#include "device/cpu/processor.h"

enum {
    LANES = CPU_PANEL,
    MOST_PIXELS = 512,         /* of all rows; more are for oneDNN */
    SERIAL_PRODUCTS = 1 << 16, /* fewer are done before a second thread has begun */
};

/* What is read as a value of [rows, channels, height, width]. */
typedef struct value {
    cpu_geometry at;
    int height, width;
} value;

typedef struct few_pixels {
    cpu_own_kernel base;
    int threads;
    const cpu_desc *weights;
    value from, to;
    yoke_taps taps[2]; /* down, across */
    size_t rows, pixels, in, out;
    bool adds, copies;
    bool sparse; /* not every pixel meets an input under every tap */
    float low, high;
    int vectors;
    size_t panels, blocks; /* blocks of pixels, as many in each panel */
    size_t tap_count;
    size_t *sources,
        *places;    /* of the meetings, by block and then tap: in the input; in the block */
    size_t *begins; /* [blocks * taps + 1]: where each begins among them */
    cpu_own_addresses at;
} few_pixels;

/* Planning. */

static bool value_fits(const cpu_desc *desc) {
    if (desc->ndims != 2) return cpu_has_lanes(desc, LANES);
    return desc->type == dnnl_f32 && desc->is_blocked && desc->offset == 0 &&
           desc->inner_count == 0 && desc->strides[1] == 1;
}

static bool operation_fits(const cpu_operation *o) {
    const cpu_desc *w = o->weights;
    bool kind = o->kind == CPU_CONVOLUTION ? o->source->ndims == 4 : o->source->ndims == 2;
    return kind && o->inference && o->direction == CPU_FORWARD && w != NULL &&
           w->ndims == o->source->ndims && w->type == dnnl_f32 && w->is_blocked &&
           cpu_has_avx512() && value_fits(o->source) && value_fits(o->destination);
}

static yoke_status read_value(value *to, const cpu_desc *desc) {
    *to = (value){.height = 1, .width = 1};
    if (desc->ndims == 2) {
        to->at = (cpu_geometry){.row_stride = (size_t)desc->strides[0],
                                .channels = (size_t)desc->dims[1],
                                .padded_channels = (size_t)desc->dims[1],
                                .pixels = 1,
                                .block = 1,
                                .block_stride = 1};
        return YOKE_OK;
    }
    to->height = (int)desc->dims[2];
    to->width = (int)desc->dims[3];
    return cpu_geometry_read(&to->at, desc, "a convolution");
}

static void read_taps(few_pixels *self, const cpu_operation *o) {
    for (int i = 0; i < 2; i++)
        self->taps[i] = o->kind == CPU_CONVOLUTION
                            ? (yoke_taps){.kernel = (int)o->weights->dims[2 + i],
                                          .stride = (int)o->strides[i],
                                          .padding = (int)o->padding[i],
                                          .dilation = (int)o->dilation[i] + 1}
                            : (yoke_taps){.kernel = 1, .stride = 1, .dilation = 1};
    self->tap_count = (size_t)self->taps[0].kernel * (size_t)self->taps[1].kernel;
}

/* Threads share panels, or pixels where there are too few panels for all. */
static void cut(few_pixels *self) {
    size_t threads = (size_t)self->threads;
    self->vectors = cpu_block_panels(self->pixels, (self->out + LANES - 1) / LANES * LANES);
    size_t columns = (size_t)self->vectors * LANES;
    self->panels = (self->out + columns - 1) / columns;
    bool even = self->panels % threads == 0 || self->panels >= 4 * threads;
    self->blocks = even || self->pixels < threads ? 1 : threads;
    size_t products = self->pixels * self->tap_count * self->in * self->out;
    if (products < SERIAL_PRODUCTS) self->threads = 1;
}

static size_t first_pixel(const few_pixels *self, size_t block) {
    return self->pixels * block / self->blocks;
}

/* Where the input of an output's pixel lies under a tap; false: outside. */
static bool meets(const few_pixels *self, size_t pixel, size_t tap, size_t *offset) {
    const value *from = &self->from, *to = &self->to;
    size_t across = (size_t)self->taps[1].kernel, places = (size_t)(to->height * to->width);
    int place = (int)(pixel % places);
    int y = place / to->width * self->taps[0].stride - self->taps[0].padding +
            (int)(tap / across) * self->taps[0].dilation;
    int x = place % to->width * self->taps[1].stride - self->taps[1].padding +
            (int)(tap % across) * self->taps[1].dilation;
    if (y < 0 || x < 0 || y >= from->height || x >= from->width) return false;
    *offset = pixel / places * from->at.row_stride +
              (size_t)(y * from->width + x) * from->at.pixel_stride;
    return true;
}

static void list_meetings(few_pixels *self) {
    size_t count = 0, group = 0;
    for (size_t block = 0; block < self->blocks; block++)
        for (size_t tap = 0; tap < self->tap_count; tap++) {
            self->begins[group++] = count;
            size_t first = first_pixel(self, block), end = first_pixel(self, block + 1);
            for (size_t pixel = first; pixel < end; pixel++) {
                if (!meets(self, pixel, tap, &self->sources[count])) continue;
                self->places[count++] = pixel - first;
            }
        }
    self->begins[group] = count;
    self->sparse = count < self->pixels * self->tap_count;
}

/* Whether the pixels that the only tap meets lie apart by the same distance, all of them. */
static bool lie_in_order(const few_pixels *self) {
    if (self->tap_count > 1 || self->sparse || self->from.at.block != 1) return false;
    for (size_t i = 2; i < self->pixels; i++)
        if (self->sources[i] - self->sources[i - 1] != self->sources[1] - self->sources[0])
            return false;
    return true;
}

static yoke_status build(few_pixels *self, const cpu_operation *o) {
    TRY(read_value(&self->from, o->source));
    TRY(read_value(&self->to, o->destination));
    read_taps(self, o);
    self->rows = (size_t)o->source->dims[0];
    self->pixels = self->rows * (size_t)(self->to.height * self->to.width);
    self->in = (size_t)o->source->dims[1];
    self->out = (size_t)o->destination->dims[1];
    if (self->pixels > MOST_PIXELS)
        return FAIL(YOKE_ERROR_DEVICE, "an output of %zu pixels has too many", self->pixels);
    cut(self);
    size_t most = self->pixels * self->tap_count;
    self->sources = yoke_malloc(most * sizeof *self->sources);
    self->places = yoke_malloc(most * sizeof *self->places);
    self->begins = yoke_malloc((self->blocks * self->tap_count + 1) * sizeof *self->begins);
    if (self->sources == NULL || self->places == NULL || self->begins == NULL)
        return FAIL_MEMORY(2 * most * sizeof *self->places, "a convolution's pixels");
    list_meetings(self);
    self->copies = !lie_in_order(self);
    return YOKE_OK;
}

/* Weights. */

static size_t columns_of(const few_pixels *self) {
    return (size_t)self->vectors * LANES;
}

static size_t panel_floats(const few_pixels *self) {
    return self->tap_count * self->in * columns_of(self);
}

static float weight_at(const few_pixels *self, const float *weights, size_t out, size_t tap,
                       size_t in) {
    const cpu_desc *desc = self->weights;
    size_t across = (size_t)self->taps[1].kernel;
    ptrdiff_t offset =
        desc->offset + cpu_desc_offset(desc, 0, (int)out) + cpu_desc_offset(desc, 1, (int)in);
    if (desc->ndims == 4)
        offset += cpu_desc_offset(desc, 2, (int)(tap / across)) +
                  cpu_desc_offset(desc, 3, (int)(tap % across));
    return weights[offset];
}

static void prepare(const cpu_own_kernel *kernel, const float *weights, void *kept) {
    const few_pixels *self = (const few_pixels *)kernel;
    size_t columns = columns_of(self);
#pragma omp parallel for num_threads(self->threads) if (self->threads > 1)
    for (size_t panel = 0; panel < self->panels; panel++) {
        float *to = (float *)kept + panel * panel_floats(self);
        for (size_t i = 0; i < panel_floats(self); i++) {
            size_t out = panel * columns + i % columns, row = i / columns;
            to[i] =
                out < self->out ? weight_at(self, weights, out, row / self->in, row % self->in) : 0;
        }
    }
}

static int kept_form(const cpu_own_kernel *kernel) {
    return ((const few_pixels *)kernel)->vectors;
}

/* Running. */

static size_t row_floats(const few_pixels *self) {
    return (self->in + LANES - 1) / LANES * LANES + LANES;
}

/* The meetings first .. end - 1. */
static void copy_pixels(const few_pixels *self, size_t first, size_t end) {
    const float *input = self->at.input;
    size_t block = self->from.at.block, width = block > 1 ? block : self->in;
    for (size_t i = first; i < end; i++) {
        float *to = (float *)self->at.scratch + i * row_floats(self);
        for (size_t at = 0; at < self->in; at += width)
            memcpy(to + at, input + self->sources[i] + at / width * self->from.at.block_stride,
                   width * sizeof *to);
    }
}

/* The sums of a pixel become its channels `first` .. of the output. */
static void finish_pixel(const few_pixels *self, const float *sums, size_t pixel, size_t first) {
    const cpu_geometry *g = &self->to.at;
    size_t places = (size_t)(self->to.height * self->to.width);
    size_t end = first + columns_of(self) < self->out ? first + columns_of(self) : self->out;
    size_t width = g->block > 1 ? g->block : end - first;
    float *to = (float *)self->at.output + pixel / places * g->row_stride +
                pixel % places * g->pixel_stride;
    cpu_finish finish = {.adds = self->adds, .low = self->low, .high = self->high};
    for (size_t channel = first; channel < end; channel += width) {
        if (self->at.bias != NULL) finish.bias = self->at.bias + channel;
        cpu_finish_sums(&finish, sums + channel - first,
                        to + (g->block > 1 ? channel / width * g->block_stride : channel), width);
    }
}

/* One panel for the pixels of a block. */
static void run_part(const few_pixels *self, size_t block, size_t panel, float *sums) {
    size_t columns = columns_of(self), first = first_pixel(self, block);
    size_t pixels = first_pixel(self, block + 1) - first, distance = 0;
    const float *weights = (const float *)self->at.kept + panel * panel_floats(self);
    if (!self->copies && self->pixels > 1) distance = self->sources[1] - self->sources[0];
    bool adds = self->tap_count > 1 || self->sparse;
    if (adds) memset(sums, 0, pixels * columns * sizeof *sums);
    for (size_t tap = 0; tap < self->tap_count; tap++, weights += self->in * columns) {
        size_t begin = self->begins[block * self->tap_count + tap];
        size_t end = self->begins[block * self->tap_count + tap + 1];
        const cpu_block_product product = {
            .left = self->copies ? (const float *)self->at.scratch + begin * row_floats(self)
                                 : (const float *)self->at.input + self->sources[begin],
            .right = weights,
            .next = panel + 1 < self->panels || tap + 1 < self->tap_count
                        ? weights + self->in * columns
                        : NULL,
            .to = sums,
            .rows = end - begin,
            .depth = self->in,
            .panels = (size_t)self->vectors,
            .left_row = self->copies ? row_floats(self) : distance,
            .left_step = 1,
            .right_step = columns,
            .right_panel = CPU_PANEL,
            .to_row = columns,
            .places = self->sparse ? self->places + begin : NULL,
            .adds = adds};
        cpu_multiply_wide(&product);
    }
    for (size_t pixel = 0; pixel < pixels; pixel++)
        finish_pixel(self, sums + pixel * columns, first + pixel, panel * columns);
}

static size_t copy_floats(const few_pixels *self) {
    return self->copies ? self->begins[self->blocks * self->tap_count] * row_floats(self) : 0;
}

static size_t sum_floats(const few_pixels *self) {
    return self->pixels * columns_of(self) + LANES;
}

static void run_thread(const few_pixels *self, size_t thread, size_t threads) {
    size_t parts = self->blocks * self->panels;
    size_t meetings = self->begins[self->blocks * self->tap_count];
    float *sums = (float *)self->at.scratch + copy_floats(self) + thread * sum_floats(self);
    if (self->copies) {
        copy_pixels(self, meetings * thread / threads, meetings * (thread + 1) / threads);
#pragma omp barrier
    }
    for (size_t i = parts * thread / threads; i < parts * (thread + 1) / threads; i++)
        run_part(self, i / self->panels, i % self->panels, sums);
}

static yoke_status run(const cpu_own_kernel *kernel) {
    const few_pixels *self = (const few_pixels *)kernel;
    if (self->threads == 1) {
        run_thread(self, 0, 1);
        return YOKE_OK;
    }
#pragma omp parallel num_threads(self->threads)
    run_thread(self, (size_t)omp_get_thread_num(), (size_t)omp_get_num_threads());
    return YOKE_OK;
}

static size_t scratch_bytes(const cpu_own_kernel *kernel) {
    const few_pixels *self = (const few_pixels *)kernel;
    return (copy_floats(self) + (size_t)self->threads * sum_floats(self)) * sizeof(float);
}

static size_t kept_bytes(const cpu_own_kernel *kernel) {
    const few_pixels *self = (const few_pixels *)kernel;
    return self->panels * panel_floats(self) * sizeof(float);
}

static yoke_status bind(cpu_own_kernel *kernel, const cpu_own_addresses *addresses) {
    ((few_pixels *)kernel)->at = *addresses;
    return YOKE_OK;
}

static void destroy(cpu_own_kernel *kernel) {
    few_pixels *self = (few_pixels *)kernel;
    yoke_free(self->sources);
    yoke_free(self->places);
    yoke_free(self->begins);
    yoke_free(self);
}

yoke_status cpu_few_pixels_create(cpu_own_kernel **kernel, cpu_device *device,
                                  const cpu_operation *operation) {
    static const cpu_own_calls calls = {"few pixels", scratch_bytes, kept_bytes, prepare,
                                        kept_form,    bind,          run,        destroy};
    *kernel = NULL;
    float low = 0, high = 0;
    if (!operation_fits(operation) || !cpu_epilogue_bounds(&operation->epilogue, &low, &high))
        return FAIL(YOKE_ERROR_DEVICE, "this operation does not fit few pixels");
    few_pixels *self = yoke_calloc(1, sizeof *self);
    if (self == NULL) return FAIL_MEMORY(sizeof *self, "a convolution");
    *self = (few_pixels){.base = {&calls},
                         .threads = device->base.threads,
                         .weights = operation->weights,
                         .adds = operation->epilogue.adds,
                         .low = low,
                         .high = high};
    yoke_status status = build(self, operation);
    if (status == YOKE_OK)
        *kernel = &self->base;
    else
        destroy(&self->base);
    return status;
}
