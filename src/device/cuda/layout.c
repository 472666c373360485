/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts: the order and type of a tensor's elements, and conversion between them. */
#include <assert.h>
#include <string.h>

#include "device/cuda/cuda.h"

cuda_type cuda_compute_type(yoke_precision precision) {
    static const cuda_type types[] = {
        [YOKE_BFLOAT16] = CUDA_BFLOAT16, [YOKE_FLOAT16] = CUDA_FLOAT16, [YOKE_TF32] = CUDA_FLOAT32};
    return types[precision];
}

size_t cuda_elements(const cuda_layout *layout) {
    size_t elements = 1;
    for (int i = 0; i < layout->ndim; i++)
        elements *= (size_t)layout->dims[i];
    return elements;
}

/* Field by field, so that equal layouts have equal bytes. */
void cuda_layout_store(yoke_layout *layout, const cuda_layout *own) {
    memset(layout, 0, sizeof *layout);
    layout->bytes = cuda_elements(own) * cuda_type_bytes(own->type);
    cuda_layout *to = (cuda_layout *)layout->opaque;
    to->type = own->type;
    to->channels_last = own->channels_last;
    to->ndim = own->ndim;
    for (int i = 0; i < own->ndim; i++)
        to->dims[i] = own->dims[i];
}

const cuda_layout *cuda_layout_of(const yoke_layout *layout) {
    return (const cuda_layout *)layout->opaque;
}

cuda_layout cuda_value_layout(int rows, yoke_dims dims, yoke_precision precision) {
    bool orders_differ = dims.channels > 1 && dims.height * dims.width > 1;
    cuda_layout layout = {.type = cuda_compute_type(precision),
                          .channels_last = orders_differ && !dims.sequence,
                          .ndim = 4};
    yoke_dims_shape(dims, rows, layout.dims);
    return layout;
}

yoke_status cuda_layout_plain(yoke_device *device, const int64_t *shape, int ndim,
                              yoke_layout *layout) {
    cuda_layout plain = {.type = CUDA_FLOAT32, .ndim = ndim};
    if (ndim < 0 || ndim > (int)(sizeof plain.dims / sizeof plain.dims[0]))
        return FAIL(YOKE_ERROR_INTERNAL, "%s: a layout of %d dimensions", device->name, ndim);
    for (int i = 0; i < ndim; i++)
        plain.dims[i] = shape[i];
    cuda_layout_store(layout, &plain);
    return YOKE_OK;
}

/* Plain is [outer, channels, pixels], channels last is [outer, pixels, channels]. Two plain layouts
 * may differ in ndim and have the same order. */
static cuda_reorder_job reorder_job(const cuda_layout *to, const cuda_layout *from) {
    cuda_reorder_job job = {.to_type = to->type,
                            .from_type = from->type,
                            .outer = 1,
                            .rows = 1,
                            .columns = cuda_elements(to)};
    if (to->channels_last == from->channels_last) return job;
    const int64_t *dims = to->channels_last ? to->dims : from->dims;
    size_t channels = (size_t)dims[1], pixels = (size_t)(dims[2] * dims[3]);
    job.outer = (size_t)dims[0];
    job.rows = to->channels_last ? channels : pixels;
    job.columns = to->channels_last ? pixels : channels;
    return job;
}

yoke_status cuda_reorder(cuda_device *device, const cuda_layout *to_layout, void *to,
                         const cuda_layout *from_layout, const void *from) {
    cudaStream_t stream = device->streams[YOKE_STREAM_COMPUTE];
    size_t elements = cuda_elements(to_layout);
    if (elements == 0) return YOKE_OK;
    if (elements != cuda_elements(from_layout)) {
        /* Images with more channels in one of the two layouts. */
        bool pads = to_layout->dims[1] > from_layout->dims[1];
        const cuda_layout *padded = pads ? to_layout : from_layout;
        const cuda_layout *plain = pads ? from_layout : to_layout;
        cuda_pad_job job = {.to = to,
                            .from = from,
                            .type = padded->type,
                            .outer = (size_t)plain->dims[0],
                            .pixels = (size_t)(plain->dims[2] * plain->dims[3]),
                            .channels = (int)plain->dims[1],
                            .padded = (int)padded->dims[1]};
        assert(plain->type == CUDA_FLOAT32 && !plain->channels_last);
        TRY_CUDA(device,
                 pads ? cuda_run_pad_pixels(&job, stream) : cuda_run_cut_pixels(&job, stream));
        return YOKE_OK;
    }
    cuda_reorder_job job = reorder_job(to_layout, from_layout);
    job.to = to;
    job.from = from;
    if (to_layout->channels_last != from_layout->channels_last)
        TRY_CUDA(device, cuda_run_transpose(&job, stream));
    else if (to_layout->type != from_layout->type)
        TRY_CUDA(device, cuda_run_convert(&job, stream));
    else if (to != from)
        TRY_CUDA(device, cudaMemcpyAsync(to, from, elements * cuda_type_bytes(to_layout->type),
                                         cudaMemcpyDeviceToDevice, stream));
    return YOKE_OK;
}

/* Conversion for loading and saving. */

/* One end of a conversion: the kernel uses the caller's memory, or a copy on the device. */
typedef struct end {
    const yoke_layout *layout;
    void *host, *memory; /* host: NULL when memory is the caller's */
} end;

static yoke_status end_open(end *opened, yoke_device *device, const yoke_layout *layout,
                            void *pointer) {
    bool on_device = false;
    struct cudaPointerAttributes attributes;
    TRY_CUDA(cuda_of(device), cudaPointerGetAttributes(&attributes, pointer));
    on_device = attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
    *opened = (end){.layout = layout, .memory = on_device ? pointer : NULL};
    if (on_device) return YOKE_OK;
    opened->host = pointer;
    return yoke_device_allocate(device, layout->bytes, "a conversion of layouts", &opened->memory);
}

static yoke_status convert_layout(yoke_device *device, end *to, end *from) {
    if (from->host != NULL)
        TRY(yoke_device_upload(device, YOKE_STREAM_COMPUTE, from->memory, from->host,
                               from->layout->bytes));
    TRY(cuda_reorder(cuda_of(device), cuda_layout_of(to->layout), to->memory,
                     cuda_layout_of(from->layout), from->memory));
    if (to->host != NULL)
        TRY(yoke_device_download(device, YOKE_STREAM_COMPUTE, to->host, to->memory,
                                 to->layout->bytes));
    return yoke_device_synchronize(device);
}

yoke_status cuda_layout_convert(yoke_device *device, const yoke_layout *to_layout, void *to,
                                const yoke_layout *from_layout, const void *from) {
    if (to_layout->bytes == 0) return YOKE_OK;
    TRY(cuda_use(device));
    TRY(yoke_device_synchronize(device)); /* another stream may still write `from` */
    end ends[2] = {0};
    yoke_status status = end_open(&ends[0], device, to_layout, to);
    if (status == YOKE_OK)
        status = end_open(&ends[1], device, from_layout, (void *)(uintptr_t)from);
    if (status == YOKE_OK) status = convert_layout(device, &ends[0], &ends[1]);
    for (int i = 0; i < 2; i++)
        if (ends[i].host != NULL) yoke_device_free(device, ends[i].memory);
    return status;
}
