/* SPDX-License-Identifier: Apache-2.0 */
/* The gradient lies in memory as a matrix, or as several side by side, `line` elements wide: an
 * element of it is one sum over the rows of the batch, so its bits do not depend on which part of
 * it is computed at a time, nor with whose. */
#include "device/cpu/factors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/block_product.h"
#include "device/cpu/clones.h"

enum {
    ROWS_MOST = 384,
    WEIGHTS_LEAST = 4096,
    PART_ELEMENTS_LEAST = 1 << 14, /* for each thread */
    TREE_ELEMENTS = 2048           /* partial sums stay in the first-level cache */
};

/* An element of left and right is a float, or a pair of bfloat16 of two rows. */
typedef struct cpu_factors {
    yoke_factors base;
    size_t rows, steps; /* of the batch; what the product adds up */
    size_t in, out;
    bool half, by_output; /* left is the output's gradient */
    size_t lines, matrices;
    float *left, *right; /* [steps, lines], [steps, matrices * line], in rows of: */
    size_t left_row, right_row;
    cpu_block_multiply *multiply;
} cpu_factors;

int cpu_most_rows(const yoke_plan_request *request) {
    int rows = request->most_rows > 0 ? request->most_rows : request->rows;
    return rows * request->operation->input.height;
}

bool cpu_takes_factors(const yoke_plan_request *request) {
    size_t in = (size_t)request->operation->input.channels;
    size_t out = (size_t)request->operation->output.channels;
    size_t rows = (size_t)cpu_most_rows(request);
    return request->sole_weight && cpu_find_block_multiply() != NULL && rows <= ROWS_MOST &&
           in * out >= WEIGHTS_LEAST && 2 * rows * (in + out) <= in * out;
}

/* Layouts. */

/* Plain, where the rows may be padded. */
static bool read_plain(cpu_factors *self, const cpu_desc *weight) {
    size_t strides[] = {(size_t)weight->strides[0], (size_t)weight->strides[1]};
    self->by_output = strides[1] == 1 && strides[0] >= self->in;
    self->lines = self->by_output ? self->out : self->in;
    self->base.line = strides[self->by_output ? 0 : 1];
    self->matrices = 1;
    return self->by_output || (strides[0] == 1 && strides[1] >= self->out);
}

/* Blocks, each of some rows of a panel: those of a panel lie one behind the other. */
static bool read_panels(cpu_factors *self, const cpu_desc *weight) {
    int last = weight->inner_count - 1;
    size_t side = (size_t)weight->inner_dims[last], other = 1 - side;
    size_t line = (size_t)weight->inner_blocks[last], block = line;
    if (last > 1 || (last == 1 && (size_t)weight->inner_dims[0] != other)) return false;
    if (last == 1) block *= (size_t)weight->inner_blocks[0];
    self->by_output = side == 1;
    self->lines = (size_t)weight->dims[other];
    self->matrices = (size_t)weight->dims[side] / line;
    self->base.line = line;
    bool whole =
        weight->dims[0] == weight->padded_dims[0] && weight->dims[1] == weight->padded_dims[1];
    return whole && (size_t)weight->strides[other] == block &&
           (size_t)weight->strides[side] == self->lines * line;
}

static bool read_layout(cpu_factors *self, const cpu_desc *weight) {
    if (!weight->is_blocked || weight->ndims != 2 || weight->offset != 0) return false;
    bool reads = weight->inner_count == 0 ? read_plain(self, weight) : read_panels(self, weight);
    return reads && self->base.line % CPU_PANEL == 0;
}

/* A panel more than whole panels: rows a power of two apart would share cache sets. */
static size_t padded(size_t elements) {
    return (elements + CPU_PANEL - 1) / CPU_PANEL * CPU_PANEL + CPU_PANEL;
}

/* Life. */

yoke_status cpu_factors_create(yoke_factors **factors, cpu_device *device, const cpu_desc *weight,
                               size_t rows, bool half) {
    cpu_factors read = {.rows = rows,
                        .steps = half ? (rows + 1) / 2 : rows,
                        .in = (size_t)weight->dims[1],
                        .out = (size_t)weight->dims[0],
                        .half = half,
                        .multiply = cpu_find_block_multiply()};
    *factors = NULL;
    if (read.multiply == NULL || !read_layout(&read, weight)) return YOKE_OK;
    cpu_factors *self = yoke_malloc(sizeof *self);
    if (self == NULL) return FAIL_MEMORY(sizeof *self, "the factors of a gradient");
    *self = read;
    self->left_row = padded(read.lines);
    self->right_row = padded(read.matrices * read.base.line);
    size_t bytes = read.steps * (self->left_row + self->right_row) * sizeof(float);
    yoke_status status = yoke_device_allocate(&device->base, bytes, "the factors of a gradient",
                                              (void **)&self->left);
    if (status != YOKE_OK) {
        yoke_free(self);
        return status;
    }
    self->base.bytes = read.steps * (read.lines + read.matrices * read.base.line) * sizeof(float);
    memset(self->left, 0, bytes); /* padding of rows stays zero */
    self->right = self->left + read.steps * self->left_row;
    *factors = &self->base;
    return YOKE_OK;
}

void cpu_factors_destroy(yoke_factors *factors, cpu_device *device) {
    if (factors == NULL) return;
    yoke_device_free(&device->base, ((cpu_factors *)factors)->left);
    yoke_free(factors);
}

/* Copies. They return the bits of the largest absolute value: as numbers they are in its order, and
 * infinity and NaN come last. */

#define ABSOLUTE 0x7fffffffu

CPU_CLONES static uint32_t copy_floats(float *to, size_t to_row, const float *from, size_t rows,
                                       size_t columns) {
    uint32_t largest = 0;
    for (size_t row = 0; row < rows; row++) {
        memcpy(to + row * to_row, from + row * columns, columns * sizeof *to);
        for (size_t i = 0; i < columns; i++) {
            yoke_float_bits value = {.value = from[row * columns + i]};
            uint32_t size = value.bits & ABSOLUTE;
            largest = size > largest ? size : largest;
        }
    }
    return largest;
}

CPU_CLONES static uint32_t copy_pairs(uint32_t *to, size_t to_row, const uint16_t *from,
                                      size_t rows, size_t columns) {
    uint32_t largest = 0;
    for (size_t row = 0; row < rows; row += 2) {
        const uint16_t *first = from + row * columns;
        const uint16_t *second = row + 1 < rows ? first + columns : NULL;
        uint32_t *pairs = to + row / 2 * to_row;
        for (size_t i = 0; i < columns; i++) {
            uint32_t high = second != NULL ? (uint32_t)second[i] << 16 : 0;
            uint32_t low = (uint32_t)first[i] << 16;
            uint32_t size = (low & ABSOLUTE) > (high & ABSOLUTE) ? low & ABSOLUTE : high & ABSOLUTE;
            pairs[i] = high | first[i];
            largest = size > largest ? size : largest;
        }
    }
    return largest;
}

static double copy(const cpu_factors *self, float *to, size_t to_row, const void *from,
                   size_t columns) {
    yoke_float_bits largest = {
        .bits = self->half ? copy_pairs((uint32_t *)to, to_row, from, self->rows, columns)
                           : copy_floats(to, to_row, from, self->rows, columns)};
    return isfinite(largest.value) ? (double)largest.value : INFINITY;
}

void cpu_factors_keep(yoke_factors *factors, const void *input, const void *output_gradient) {
    cpu_factors *self = (cpu_factors *)factors;
    const void *left = self->by_output ? output_gradient : input;
    const void *right = self->by_output ? input : output_gradient;
    size_t left_columns = self->by_output ? self->out : self->in;
    double bound = copy(self, self->left, self->left_row, left, left_columns);
    double other =
        copy(self, self->right, self->right_row, right, self->by_output ? self->in : self->out);
    bool finite = isfinite(bound) && isfinite(other);
    self->base.bound = finite ? bound * other * (double)self->rows : INFINITY;
}

CPU_CLONES void cpu_factors_sum_bias(const yoke_factors *factors, const void *output_gradient,
                                     float *gradient) {
    const cpu_factors *self = (const cpu_factors *)factors;
    memset(gradient, 0, self->out * sizeof *gradient);
    for (size_t row = 0; row < self->rows; row++) {
        if (self->half) {
            const uint16_t *from = (const uint16_t *)output_gradient + row * self->out;
            for (size_t i = 0; i < self->out; i++) {
                yoke_float_bits value = {.bits = (uint32_t)from[i] << 16};
                gradient[i] += value.value;
            }
        } else {
            const float *from = (const float *)output_gradient + row * self->out;
            for (size_t i = 0; i < self->out; i++)
                gradient[i] += from[i];
        }
    }
}

/* Products. */

/* `count` lines of a matrix, or a part of one line: `columns` elements from `column` on. */
typedef struct factors_block {
    size_t matrix, line, count, column, columns;
} factors_block;

static void add_block(const cpu_factors *self, const factors_block *at, bool adds, float *to) {
    const cpu_block_product product = {.left = self->left + at->line,
                                       .right =
                                           self->right + at->matrix * self->base.line + at->column,
                                       .to = to,
                                       .rows = at->count,
                                       .depth = self->steps,
                                       .panels = at->columns / CPU_PANEL,
                                       .left_row = 1,
                                       .left_step = self->left_row,
                                       .right_step = self->right_row,
                                       .right_panel = CPU_PANEL,
                                       .to_row = self->base.line,
                                       .adds = adds,
                                       .pairs = self->half};
    self->multiply(&product);
}

/* The largest block that begins at an element and has at most so many. */
static factors_block block_at(const cpu_factors *self, size_t element, size_t most) {
    size_t line = self->base.line;
    factors_block at = {.matrix = element / (self->lines * line), .column = element % line};
    at.line = element / line % self->lines;
    size_t rest = self->lines - at.line, whole = most / line;
    bool part = at.column > 0 || whole == 0;
    at.columns = part && most < line - at.column ? most : line - at.column;
    at.count = part ? 1 : whole < rest ? whole : rest;
    return at;
}

CPU_CLONES static void add_sums(float *to, const float *from, size_t count) {
#pragma omp simd
    for (size_t i = 0; i < count; i++)
        to[i] += from[i];
}

typedef float tree_block[TREE_ELEMENTS];

/* The sum of a block in the order of base/tree.h: the left subtree's in `to`, the right one's in
 * work[0], unless it is of one. Layouts of all factors are alike, only their rows differ. */
static void sum_tree(const yoke_factors *const *factors, int count, const factors_block *at,
                     float *to, tree_block *work) {
    int left = count > 1 ? yoke_tree_split(NULL, count) : 1;
    if (left > 1)
        sum_tree(factors, left, at, to, work);
    else
        add_block((const cpu_factors *)factors[0], at, false, to);
    if (count - left == 1) add_block((const cpu_factors *)factors[left], at, true, to);
    if (count - left < 2) return;
    sum_tree(factors + left, count - left, at, work[0], work + 1);
    add_sums(to, work[0], at->count * at->columns);
}

static void sum_range(const yoke_factors *const *factors, int count, size_t first, size_t elements,
                      float *to) {
    tree_block work[YOKE_TREE_LEVELS];
    bool works = count > 3;
    for (size_t done = 0; done < elements;) {
        size_t most = elements - done;
        if (works && most > TREE_ELEMENTS) most = TREE_ELEMENTS;
        const factors_block at = block_at((const cpu_factors *)factors[0], first + done, most);
        sum_tree(factors, count, &at, to + done, work);
        done += at.count * at.columns;
    }
}

yoke_status cpu_sum_factors(yoke_device *device, const yoke_factors *const *factors, int count,
                            size_t first, size_t elements, float *to) {
    int threads = device->threads;
    size_t part = elements / (size_t)threads / CPU_PANEL * CPU_PANEL;
    if (threads == 1 || part < PART_ELEMENTS_LEAST) {
        sum_range(factors, count, first, elements, to);
        return YOKE_OK;
    }
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int thread = 0; thread < threads; thread++) {
        size_t begin = (size_t)thread * part;
        sum_range(factors, count, first + begin, thread + 1 < threads ? part : elements - begin,
                  to + begin);
    }
    return YOKE_OK;
}

void cpu_factors_multiply(const yoke_factors *factors, cpu_device *device, float *gradient) {
    const cpu_factors *self = (const cpu_factors *)factors;
    const yoke_factors *const alone[] = {factors};
    cpu_sum_factors(&device->base, alone, 1, 0, self->matrices * self->lines * self->base.line,
                    gradient);
}
