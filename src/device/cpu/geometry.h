/* SPDX-License-Identifier: Apache-2.0 */
/* Where the elements of a value [rows, channels, height, width] lie, for loops over them. */
#ifndef DEVICE_CPU_GEOMETRY_H
#define DEVICE_CPU_GEOMETRY_H

#include "base/base.h"
#include "device/cpu/onednn.h"

/* Element (channel, pixel) of a row is at channel / block * block_stride + channel % block + pixel
 * * pixel_stride. */
typedef struct cpu_geometry {
    size_t row_stride; /* elements, as all strides */
    size_t channels, padded_channels, pixels;
    size_t block, block_stride, pixel_stride;
} cpu_geometry;

/* One row, for loops over it. Channels that lie side by side form a group of `width`. */
typedef struct cpu_row_view {
    size_t groups, width, group_stride, pixels, pixel_stride;
} cpu_row_view;
cpu_row_view cpu_view_row(const cpu_geometry *geometry);

/* Whether a value of float32 has its channels side by side, or in whole blocks of `lanes`, and no
 * gap between its lines. */
bool cpu_has_lanes(const cpu_desc *desc, int lanes);

/* Plain, channels last, or channels in one block: all layouts that plans of this room write.
 * INTERNAL: another one; the text begins with `what`. */
yoke_status cpu_geometry_read(cpu_geometry *geometry, const cpu_desc *desc, const char *what);

#endif
