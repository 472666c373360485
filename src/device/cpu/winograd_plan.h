/* SPDX-License-Identifier: Apache-2.0 */
/* A convolution by Winograd's tiles as winograd.c plans it and winograd_run.c computes it. */
#ifndef DEVICE_CPU_WINOGRAD_PLAN_H
#define DEVICE_CPU_WINOGRAD_PLAN_H

#include "device/cpu/block_product.h"
#include "device/cpu/winograd.h"
#include "device/cpu/winograd_tile.h"

/* A tensor of values cut into tiles of `edge` pixels, WINOGRAD_OUTPUT apart, the first of which
 * begins `before` pixels outside. */
typedef struct winograd_values {
    int channels, height, width, edge, before;
    ptrdiff_t row, line, pixel; /* strides, in elements */
    ptrdiff_t *groups;          /* where each group of lanes begins */
    void (*transform)(const winograd_window *from, float *tile, size_t stride);
    bool half; /* bfloat16 in memory */
    char *memory;
} winograd_values;

/* 36 matrices in scratch. */
typedef struct winograd_matrices {
    size_t stride, row; /* from one to the next, from row to row; in floats */
    size_t offset, floats;
} winograd_matrices;

/* left * right = product. For values, a row of left is a tile and an element of right belongs to a
 * filter; product becomes tiles of `to`. For the gradient of the weights, a row of left
 * (transposed) is a tile of `from` and a row of right a tile of `to`; product becomes filters. */
typedef struct cpu_winograd {
    cpu_own_kernel base;
    cpu_device *device;
    const winograd_transforms *transforms;
    int lanes; /* theirs: channels at a time */
    cpu_operation convolution;
    int rows, padding;
    winograd_values from, to;
    bool swapped;                            /* `to` is the input and `from` the output */
    ptrdiff_t *filter_rows, *filter_columns; /* offsets in the weights by channel of from, to */
    int tiles, tiles_high, tiles_wide;
    int chunk_tiles, chunks, slice_channels, slices;
    int panels; /* of a slice, for block products */
    winograd_matrices left, right, product;
    cpu_block_multiply *multiply_block;   /* NULL: oneDNN multiplies */
    cpu_primitive multiply, multiply_add; /* the second adds to the product */
    float *weights, *bias, *scratch;
    float *filters;  /* the right matrices: in scratch, or kept */
    float low, high; /* of the output */
} cpu_winograd;

/* winograd_run.c: the entries of the kernel's table. */
void cpu_winograd_prepare(const cpu_own_kernel *kernel, const float *weights, void *kept);
yoke_status cpu_winograd_run(const cpu_own_kernel *kernel);

static inline bool cpu_winograd_for_weights(const cpu_winograd *self) {
    return self->convolution.direction == CPU_BACKWARD_WEIGHTS;
}

/* Whether filters stay transformed from run to run. */
static inline bool cpu_winograd_keeps_filters(const cpu_winograd *self) {
    return self->convolution.inference && self->convolution.direction == CPU_FORWARD;
}

#endif
