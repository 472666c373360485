/* SPDX-License-Identifier: Apache-2.0 */
/* A block of tiles goes through three steps: its input is transformed into a matrix for each
 * product, these are multiplied by the transformed filters, and the products are transformed back,
 * with bias, add and activation. */
#include "device/cpu/winograd_inference.h"

#include <omp.h>
#include <stdlib.h>

#include "device/cpu/geometry.h"
#include "device/cpu/processor.h"

enum {
    LANES = CPU_PANEL,
    TAPS = WINOGRAD_TAPS * WINOGRAD_TAPS,
    BLOCK_BYTES = 192 << 10, /* of a thread's tiles, beside filters in the second-level cache */
    CHUNK_BYTES = 1 << 20,   /* of the tiles of all threads, for each thread */
    ROWS = 12,               /* of a product at a time */
    ALIASED_BYTES = 512,     /* rows a multiple of this apart share lines of the first cache */
};

/* A matrix for each product, in scratch. */
typedef struct matrices {
    size_t row, stride; /* from row to row, from one to the next; in floats */
} matrices;

typedef struct winograd_inference {
    cpu_own_kernel base;
    int threads;
    const winograd_form *form;
    cpu_winograd_split split;
    const cpu_desc *weights;
    cpu_geometry from, to;
    winograd_range height, width, out_height, out_width; /* end: the size */
    int padding, products;
    int tiles_high, tiles_wide, tiles, block_tiles, blocks;
    size_t in, out;
    int vectors; /* of a panel of filters */
    matrices left, right, product;
    bool adds;
    float low, high;
    cpu_own_addresses at;
} winograd_inference;

/* Planning. */

static bool value_fits(const cpu_desc *desc) {
    return cpu_has_lanes(desc, LANES) && desc->dims[1] % LANES == 0;
}

static bool convolution_fits(const cpu_operation *convolution) {
    const cpu_desc *input = convolution->source, *weights = convolution->weights;
    if (!convolution->inference || convolution->direction != CPU_FORWARD || weights == NULL ||
        weights->ndims != 4 || weights->type != dnnl_f32 || !weights->is_blocked ||
        !cpu_has_avx512() || !value_fits(input) || !value_fits(convolution->destination))
        return false;
    for (int i = 0; i < 2; i++) {
        dnnl_dim_t padding = convolution->padding[i];
        if (weights->dims[2 + i] != WINOGRAD_TAPS || convolution->strides[i] != 1 ||
            convolution->dilation[i] != 0 || padding != convolution->padding[0] || padding < 0 ||
            padding > 2 || input->dims[2 + i] + 2 * padding < WINOGRAD_TAPS)
            return false;
    }
    return true;
}

static int most(int a, int b) {
    return a > b ? a : b;
}

/* Rows of whole cache lines; an odd number of lines from one matrix to the next, so that the same
 * place of all lies in different sets of the cache. */
static matrices place(size_t rows, size_t columns) {
    size_t row = columns * sizeof(float) % ALIASED_BYTES == 0 ? columns + LANES : columns;
    return (matrices){.row = row, .stride = (rows * row / LANES | 1) * LANES};
}

static size_t filter_floats(const winograd_inference *self) {
    return (size_t)self->products * self->right.stride;
}

/* Floats of a block's tiles and their products. */
static size_t block_floats(const winograd_inference *self) {
    return (size_t)self->products * (self->left.stride + self->product.stride);
}

/* By tiles blocks are small, and every thread gets as many. By filters a block that is smaller than
 * the filters would read these too often. */
static void cut(winograd_inference *self) {
    size_t tile_bytes = (size_t)self->products * (self->in + self->out) * sizeof(float);
    size_t filter_bytes = (size_t)self->products * self->in * self->out * sizeof(float);
    if (self->split == CPU_BY_TILES) {
        int tiles = most((int)(BLOCK_BYTES / tile_bytes) / ROWS * ROWS, ROWS);
        int rounds = winograd_divided_up(self->tiles, tiles * self->threads);
        self->block_tiles = winograd_divided_up(self->tiles, rounds * self->threads);
    } else {
        size_t bytes = (size_t)CHUNK_BYTES * (size_t)self->threads;
        if (bytes < filter_bytes / 2) bytes = filter_bytes / 2;
        int tiles = most((int)(bytes / tile_bytes), ROWS);
        self->block_tiles =
            winograd_divided_up(self->tiles, winograd_divided_up(self->tiles, tiles));
    }
    self->blocks = winograd_divided_up(self->tiles, self->block_tiles);
    self->vectors = cpu_block_panels((size_t)self->block_tiles, self->out);
    self->left = place((size_t)self->block_tiles, self->in);
    self->product = place((size_t)self->block_tiles, self->out);
    self->right.stride = self->in * self->out;
}

static yoke_status build(winograd_inference *self, const cpu_operation *convolution) {
    const cpu_desc *input = convolution->source, *output = convolution->destination;
    TRY(cpu_geometry_read(&self->from, input, "a convolution"));
    TRY(cpu_geometry_read(&self->to, output, "a convolution"));
    self->height.end = (int)input->dims[2];
    self->width.end = (int)input->dims[3];
    self->out_height.end = (int)output->dims[2];
    self->out_width.end = (int)output->dims[3];
    self->in = (size_t)input->dims[1];
    self->out = (size_t)output->dims[1];
    self->padding = (int)convolution->padding[0];
    self->products = self->form->edge * self->form->edge;
    self->tiles_high = winograd_divided_up(self->out_height.end, self->form->output);
    self->tiles_wide = winograd_divided_up(self->out_width.end, self->form->output);
    self->tiles = (int)input->dims[0] * self->tiles_high * self->tiles_wide;
    cut(self);
    return YOKE_OK;
}

/* Filters. */

/* The taps of LANES filters for one channel of the input. */
static void read_taps(const winograd_inference *self, const float *weights, size_t in, size_t out,
                      float taps[TAPS][LANES]) {
    const cpu_desc *desc = self->weights;
    const float *channel = weights + desc->offset + cpu_desc_offset(desc, 1, (int)in);
    for (int lane = 0; lane < LANES; lane++) {
        const float *filter = channel + cpu_desc_offset(desc, 0, (int)out + lane);
        for (int tap = 0; tap < TAPS; tap++)
            taps[tap][lane] = filter[cpu_desc_offset(desc, 2, tap / WINOGRAD_TAPS) +
                                     cpu_desc_offset(desc, 3, tap % WINOGRAD_TAPS)];
    }
}

static void prepare(const cpu_own_kernel *kernel, const float *weights, void *kept) {
    const winograd_inference *self = (const winograd_inference *)kernel;
    size_t panel = (size_t)self->vectors * LANES;
#pragma omp parallel for num_threads(self->threads) if (self->threads > 1)
    for (size_t in = 0; in < self->in; in++)
        for (size_t out = 0; out < self->out; out += LANES) {
            float taps[TAPS][LANES];
            float *to = (float *)kept + out / panel * panel * self->in + in * panel;
            read_taps(self, weights, in, out, taps);
            winograd_wide_filter(self->form, taps, to + out % panel, self->right.stride);
        }
}

static int kept_form(const cpu_own_kernel *kernel) {
    return ((const winograd_inference *)kernel)->vectors;
}

/* Running. */

/* Where a tile lies. */
typedef struct tile_place {
    size_t image;
    int row, column; /* of its first pixel, in the output */
} tile_place;

static tile_place place_of(const winograd_inference *self, int tile) {
    int line = tile / self->tiles_wide;
    return (tile_place){.image = (size_t)(line / self->tiles_high),
                        .row = line % self->tiles_high * self->form->output,
                        .column = tile % self->tiles_wide * self->form->output};
}

/* The first channels of an image of `values`, from a pixel on that may lie outside. */
static winograd_window window_at(const cpu_geometry *g, float *values, size_t image, int row,
                                 int column, winograd_range width) {
    ptrdiff_t pixel = (ptrdiff_t)g->pixel_stride, line = width.end * pixel;
    ptrdiff_t origin = (ptrdiff_t)(image * g->row_stride) + row * line + column * pixel;
    return (winograd_window){.origin = (char *)(values + origin), .line = line, .pixel = pixel};
}

/* To the next LANES channels. */
static void next_group(winograd_window *window, const cpu_geometry *g) {
    size_t floats = g->block == LANES ? g->block_stride : LANES;
    window->origin += floats * sizeof(float);
}

/* Tiles first .. end - 1 of the block that begins at tile `block`. */
static void transform_inputs(const winograd_inference *self, float *left, int block, int first,
                             int end) {
    for (int i = first; i < end; i++) {
        const tile_place place = place_of(self, block + i);
        const int row = place.row - self->padding, column = place.column - self->padding;
        winograd_window window =
            window_at(&self->from, self->at.input, place.image, row, column, self->width);
        window.rows = winograd_existing(row, self->form->edge, self->height.end);
        window.columns = winograd_existing(column, self->form->edge, self->width.end);
        for (size_t in = 0; in < self->in; in += LANES, next_group(&window, &self->from))
            self->form->transform_input(&window, left + (size_t)i * self->left.row + in,
                                        self->left.stride);
    }
}

static void transform_outputs(const winograd_inference *self, const float *product, int block,
                              int first, int end) {
    winograd_epilogue epilogue = {.adds = self->adds, .low = self->low, .high = self->high};
    for (int i = first; i < end; i++) {
        const tile_place place = place_of(self, block + i);
        winograd_window window = window_at(&self->to, self->at.output, place.image, place.row,
                                           place.column, self->out_width);
        window.rows = winograd_existing(place.row, self->form->output, self->out_height.end);
        window.columns = winograd_existing(place.column, self->form->output, self->out_width.end);
        for (size_t out = 0; out < self->out; out += LANES, next_group(&window, &self->to)) {
            epilogue.bias = self->at.bias != NULL ? self->at.bias + out : NULL;
            self->form->transform_output(product + (size_t)i * self->product.row + out,
                                         self->product.stride, &epilogue, &window);
        }
    }
}

/* Panels first .. end - 1 of those of all products, for so many tiles. */
static void multiply(const winograd_inference *self, const float *left, float *product, int tiles,
                     size_t first, size_t end) {
    size_t columns = (size_t)self->vectors * LANES, panels = self->out / columns;
    for (size_t i = first; i < end; i++) {
        size_t k = i / panels, panel = i % panels;
        const float *filters = (const float *)self->at.kept + i * columns * self->in;
        const cpu_block_product one = {.left = left + k * self->left.stride,
                                       .right = filters,
                                       .next = i + 1 < end ? filters + columns * self->in : NULL,
                                       .to = product + k * self->product.stride + panel * columns,
                                       .rows = (size_t)tiles,
                                       .depth = self->in,
                                       .panels = (size_t)self->vectors,
                                       .left_row = self->left.row,
                                       .left_step = 1,
                                       .right_step = columns,
                                       .right_panel = CPU_PANEL,
                                       .to_row = self->product.row};
        cpu_multiply_wide(&one);
    }
}

static size_t panels_of(const winograd_inference *self) {
    return (size_t)self->products * self->out / ((size_t)self->vectors * LANES);
}

static int tiles_of(const winograd_inference *self, int block) {
    int left = self->tiles - block * self->block_tiles;
    return left < self->block_tiles ? left : self->block_tiles;
}

static void run_by_tiles(const winograd_inference *self, int thread, int threads) {
    float *left = (float *)self->at.scratch + (size_t)thread * block_floats(self);
    float *product = left + (size_t)self->products * self->left.stride;
    int begin = (int)((long)self->blocks * thread / threads);
    int end = (int)((long)self->blocks * (thread + 1) / threads);
    for (int block = begin; block < end; block++) {
        int tiles = tiles_of(self, block), first = block * self->block_tiles;
        transform_inputs(self, left, first, 0, tiles);
        multiply(self, left, product, tiles, 0, panels_of(self));
        transform_outputs(self, product, first, 0, tiles);
    }
}

/* A thread may write the next block's inputs while another reads this one's products. */
static void run_by_filters(const winograd_inference *self, int thread, int threads) {
    float *left = self->at.scratch, *product = left + (size_t)self->products * self->left.stride;
    size_t panels = panels_of(self), part = (size_t)thread, parts = (size_t)threads;
    for (int block = 0; block < self->blocks; block++) {
        int tiles = tiles_of(self, block), first = block * self->block_tiles;
        int begin = tiles * thread / threads, end = tiles * (thread + 1) / threads;
        transform_inputs(self, left, first, begin, end);
#pragma omp barrier
        multiply(self, left, product, tiles, panels * part / parts, panels * (part + 1) / parts);
#pragma omp barrier
        transform_outputs(self, product, first, begin, end);
    }
}

static void run_thread(const winograd_inference *self, int thread, int threads) {
    (self->split == CPU_BY_TILES ? run_by_tiles : run_by_filters)(self, thread, threads);
}

static yoke_status run(const cpu_own_kernel *kernel) {
    const winograd_inference *self = (const winograd_inference *)kernel;
    if (self->threads == 1) {
        run_thread(self, 0, 1);
        return YOKE_OK;
    }
#pragma omp parallel num_threads(self->threads)
    run_thread(self, omp_get_thread_num(), omp_get_num_threads());
    return YOKE_OK;
}

static size_t scratch_bytes(const cpu_own_kernel *kernel) {
    const winograd_inference *self = (const winograd_inference *)kernel;
    int parts = self->split == CPU_BY_TILES ? self->threads : 1;
    return (size_t)parts * block_floats(self) * sizeof(float);
}

static size_t kept_bytes(const cpu_own_kernel *kernel) {
    return filter_floats((const winograd_inference *)kernel) * sizeof(float);
}

static yoke_status bind(cpu_own_kernel *kernel, const cpu_own_addresses *addresses) {
    ((winograd_inference *)kernel)->at = *addresses;
    return YOKE_OK;
}

static void destroy(cpu_own_kernel *kernel) {
    yoke_free(kernel);
}

#define CALLS(name)                                                                                \
    { name, scratch_bytes, kept_bytes, prepare, kept_form, bind, run, destroy }

yoke_status cpu_winograd_inference_create(cpu_own_kernel **kernel, cpu_device *device,
                                          const cpu_operation *convolution,
                                          const winograd_form *form, cpu_winograd_split split) {
    static const cpu_own_calls calls[][2] = {
        {CALLS("winograd 2x2 by tiles"), CALLS("winograd 2x2 by filters")},
        {CALLS("winograd 4x4 by tiles"), CALLS("winograd 4x4 by filters")}};
    *kernel = NULL;
    float low = 0, high = 0;
    if (!convolution_fits(convolution) || !cpu_epilogue_bounds(&convolution->epilogue, &low, &high))
        return FAIL(YOKE_ERROR_DEVICE, "this convolution does not fit Winograd's for inference");
    winograd_inference *self = yoke_calloc(1, sizeof *self);
    if (self == NULL) return FAIL_MEMORY(sizeof *self, "a convolution");
    *self = (winograd_inference){.base = {&calls[form == &winograd_large][split]},
                                 .threads = device->base.threads,
                                 .form = form,
                                 .split = split,
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
