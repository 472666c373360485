/* SPDX-License-Identifier: Apache-2.0 */
/* The transforms of Winograd's F(4x4, 3x3) and F(2x2, 3x3) by AVX-512: CPU_PANEL channels at a
 * time, float32, with fused products and sums. */
#ifndef DEVICE_CPU_WINOGRAD_WIDE_H
#define DEVICE_CPU_WINOGRAD_WIDE_H

#include "device/cpu/block_product.h"
#include "device/cpu/winograd_tile.h"

/* A tile has `output` pixels along an edge of the output, `edge` along one of the input and,
 * transformed, edge * edge products. Product k of a transformed tile is at tile[k * stride]. */
typedef struct winograd_form {
    int output, edge;
    float filter[WINOGRAD_EDGE][WINOGRAD_TAPS]; /* transforms a line of a filter */
    void (*transform_input)(const winograd_window *from, float *tile, size_t stride);
    void (*transform_output)(const float *tile, size_t stride, const winograd_epilogue *epilogue,
                             const winograd_window *to);
} winograd_form;
extern const winograd_form winograd_large, winograd_small; /* 4x4, 2x2 */

/* Both sides of a filter's transform; taps [3 * 3][CPU_PANEL] become [edge * edge]. */
void winograd_wide_filter(const winograd_form *form, float taps[][CPU_PANEL], float *tile,
                          size_t stride);

#endif
