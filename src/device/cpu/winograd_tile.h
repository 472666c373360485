/* SPDX-License-Identifier: Apache-2.0 */
/* The transforms of one Winograd tile, 8 or 16 channels at a time: its lanes. */
#ifndef DEVICE_CPU_WINOGRAD_TILE_H
#define DEVICE_CPU_WINOGRAD_TILE_H

#include <stdbool.h>
#include <stddef.h>

enum {
    WINOGRAD_OUTPUT = 4, /* a tile's edge in the output */
    WINOGRAD_TAPS = 3,   /* the filter's edge */
    WINOGRAD_EDGE = 6,   /* a tile's edge in the input, and transformed */
    WINOGRAD_PRODUCTS = 36
};

/* Pixels first .. end - 1 of a tile's rows or columns exist. The others read as zero and are never
 * written. */
typedef struct winograd_range {
    int first, end;
} winograd_range;

/* Those of `edge` pixels from `first` on that a tensor of `size` pixels has. */
static inline winograd_range winograd_existing(int first, int edge, int size) {
    winograd_range range = {first < 0 ? -first : 0, size - first < edge ? size - first : edge};
    return range;
}

static inline int winograd_divided_up(int a, int b) {
    return (a + b - 1) / b;
}

/* The part of a tensor under a tile; `origin` is the address of pixel (0, 0), even if that lies
 * outside. Strides are in elements. */
typedef struct winograd_window {
    char *origin;
    bool half; /* bfloat16 in memory; tiles are float32 */
    ptrdiff_t line, pixel;
    winograd_range rows, columns;
} winograd_window;

/* What becomes of a value: it gets the bias, if any, and what is there, if it `adds`; then it is no
 * less than `low` and no more than `high`, but NaN stays NaN. */
typedef struct winograd_epilogue {
    const float *bias;
    bool adds;
    float low, high;
} winograd_epilogue;

/* Tap (row, column) of lane l is at origin[row * line + column * pixel + lanes[l]]. */
typedef struct winograd_filter {
    float *origin;
    ptrdiff_t line, pixel;
    const ptrdiff_t *lanes;
} winograd_filter;

/* Product k of a transformed tile is at tile[k * stride]. */
typedef struct winograd_transforms {
    int lanes;
    void (*input)(const winograd_window *from, float *tile, size_t stride);
    void (*output_gradient)(const winograd_window *from, float *tile, size_t stride);
    void (*output)(const float *tile, size_t stride, const winograd_epilogue *epilogue,
                   const winograd_window *to);
    void (*add_pixels)(const winograd_window *from, float *sums); /* every pixel of a window */
    void (*filter)(const winograd_filter *from, float *tile, size_t stride);
    void (*filter_gradient)(const float *tile, size_t stride, const winograd_filter *to);
} winograd_transforms;

/* The wide ones have 16 lanes, a vector of AVX-512; the others 8. Both compute the same bits. */
extern const winograd_transforms winograd_narrow, winograd_wide;

#endif
