/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the geometry of a value from its descriptor. */
#include "device/cpu/geometry.h"

bool cpu_has_lanes(const cpu_desc *desc, int lanes) {
    if (desc->type != dnnl_f32 || !desc->is_blocked || desc->ndims != 4 || desc->offset != 0)
        return false;
    if (desc->dims[2] > 1 && desc->strides[2] != desc->dims[3] * desc->strides[3]) return false;
    if (desc->inner_count == 1)
        return desc->inner_dims[0] == 1 && desc->inner_blocks[0] == lanes &&
               desc->dims[1] % lanes == 0;
    return desc->inner_count == 0 && desc->strides[1] == 1;
}

yoke_status cpu_geometry_read(cpu_geometry *geometry, const cpu_desc *desc, const char *what) {
    const dnnl_dim_t *dims = desc->dims, *strides = desc->strides;
    bool by_channel =
        desc->inner_count == 0 || (desc->inner_count == 1 && desc->inner_dims[0] == 1);
    bool dense_pixels = dims[2] == 1 || strides[2] == dims[3] * strides[3];
    if (!desc->is_blocked || desc->ndims != 4 || !by_channel || !dense_pixels)
        return FAIL(YOKE_ERROR_INTERNAL,
                    "%s over a layout of %d dimensions and %d blocks; at most one block, over the "
                    "channels of 4 dimensions",
                    what, desc->ndims, desc->inner_count);
    *geometry = (cpu_geometry){
        .row_stride = (size_t)strides[0],
        .channels = (size_t)dims[1],
        .padded_channels = (size_t)desc->padded_dims[1],
        .pixels = (size_t)(dims[2] * dims[3]),
        .block = desc->inner_count == 1 ? (size_t)desc->inner_blocks[0] : 1,
        .block_stride = (size_t)strides[1],
        .pixel_stride = (size_t)strides[3],
    };
    return YOKE_OK;
}

cpu_row_view cpu_view_row(const cpu_geometry *geometry) {
    cpu_row_view view = {.groups = geometry->padded_channels / geometry->block,
                         .width = geometry->block,
                         .group_stride = geometry->block_stride,
                         .pixels = geometry->pixels,
                         .pixel_stride = geometry->pixel_stride};
    if (view.width == 1 && view.group_stride == 1) {
        view.width = view.groups;
        view.groups = 1;
    }
    return view;
}
