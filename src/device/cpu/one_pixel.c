/* SPDX-License-Identifier: Apache-2.0 */
/* A convolution with one output pixel is a matrix product of the input pixels and the filter taps
 * over them. Taps that meet only padding (eight of nine at 1x1) are left out; their gradient is
 * zero. */
#include <string.h>

#include "device/cpu/weighted.h"

/* The window starts at the corner: taps padding .. padding + height - 1 meet pixels 0 .. height -
 * 1, and likewise for the width. */
typedef struct tap_window {
    int height, width;
} tap_window;

static int least(int a, int b) {
    return a < b ? a : b;
}

static tap_window window_of(const yoke_operation *operation) {
    int taps = operation->kernel - operation->padding;
    return (tap_window){least(taps, operation->input.height), least(taps, operation->input.width)};
}

bool cpu_is_one_pixel(const yoke_operation *operation) {
    return operation->output.height == 1 && operation->output.width == 1 &&
           operation->groups == 1 && operation->dilation == 1 && operation->across.kernel == 0 &&
           operation->padding < operation->kernel;
}

/* Descriptors. */

/* Drops height and width, both 1, from a value or from weights. If the channel blocks follow each
 * other the result is plain. */
static yoke_status drop_unit_dims(const cpu_desc **desc, cpu_device *device) {
    const cpu_desc *from = *desc;
    bool is_plain = from->inner_count == 1 && from->inner_dims[0] == 1 &&
                    from->strides[1] == from->inner_blocks[0] &&
                    from->padded_dims[1] == from->dims[1] && from->offset == 0;
    const dnnl_dims_t strides = {from->strides[0], 1};
    TRY_DNNL(is_plain
                 ? cpu_desc_by_strides(desc, &device->descs, 2, from->dims, from->type, strides)
                 : cpu_desc_reshape(desc, &device->descs, from, 2, from->dims));
    return YOKE_OK;
}

/* The window's part of a value (first = 0) or of weights (first = padding). */
static yoke_status cut(const cpu_desc **part, cpu_device *device, const cpu_desc *whole,
                       tap_window window, int first) {
    const dnnl_dims_t dims = {whole->dims[0], whole->dims[1], window.height, window.width};
    const dnnl_dims_t offsets = {0, 0, first, first};
    TRY_DNNL(cpu_desc_part(part, &device->descs, whole, dims, offsets));
    return window.height == 1 && window.width == 1 ? drop_unit_dims(part, device) : YOKE_OK;
}

static yoke_status describe_free(const cpu_desc **desc, cpu_device *device, const cpu_desc *whole,
                                 tap_window window) {
    const dnnl_dims_t dims = {whole->dims[0], whole->dims[1], window.height, window.width};
    int ndims = window.height == 1 && window.width == 1 ? 2 : 4;
    TRY_DNNL(cpu_desc_by_tag(desc, &device->descs, ndims, dims, whole->type, dnnl_format_tag_any));
    return YOKE_OK;
}

/* Planning. */

/* If only some taps take part, they are a part of the whole layout; if all do, the product chooses
 * it. */
static yoke_status place_weights(cpu_problem *product, cpu_device *device,
                                 const yoke_plan_request *request, const cpu_desc *all,
                                 tap_window window) {
    const yoke_operation *operation = request->operation;
    bool whole = window.height == operation->kernel && window.width == operation->kernel;
    if (!whole) product->cleared[CPU_WEIGHTS] = all->bytes;
    if (whole && request->parameters[0].bytes == 0) return YOKE_OK;
    return cut(&product->stored[CPU_WEIGHTS], device, all, window, operation->padding);
}

yoke_status cpu_plan_one_pixel(yoke_plan **plan, cpu_device *device,
                               const yoke_plan_request *request, const cpu_problem *convolution) {
    tap_window window = window_of(request->operation);
    const cpu_desc *output = NULL, *weights = cpu_layout_desc(&request->parameters[0]);
    TRY(cpu_query_forward(&output, device, convolution, cpu_data_type(request->precision),
                          DNNL_ARG_DST));
    if (weights == NULL)
        TRY(cpu_query_forward(&weights, device, convolution, dnnl_f32, DNNL_ARG_WEIGHTS));
    cpu_problem product = {0};
    product.operation = (cpu_operation){.kind = CPU_PRODUCT, .inference = request->inference};
    product.algorithms = cpu_product_algorithms;
    memcpy(product.key, convolution->key, sizeof product.key);
    product.free[CPU_BIAS] = convolution->free[CPU_BIAS];
    product.stored[CPU_BIAS] = convolution->stored[CPU_BIAS];
    const cpu_desc *const *free = convolution->free;
    TRY(describe_free(&product.free[CPU_INPUT], device, free[CPU_INPUT], window));
    TRY(describe_free(&product.free[CPU_WEIGHTS], device, free[CPU_WEIGHTS], window));
    TRY(describe_free(&product.free[CPU_OUTPUT], device, free[CPU_OUTPUT], (tap_window){1, 1}));
    yoke_dims input = request->operation->input;
    const cpu_desc *whole = cpu_layout_desc(&request->inputs[0]);
    if (window.height < input.height || window.width < input.width)
        product.cleared[CPU_INPUT] = whole->bytes;
    TRY(cut(&product.stored[CPU_INPUT], device, whole, window, 0));
    TRY(cut(&product.stored[CPU_OUTPUT], device, output, (tap_window){1, 1}, 0));
    TRY(place_weights(&product, device, request, weights, window));
    bool alike = cpu_layout_desc(&request->added) == output;
    TRY(cpu_join_next(&product, device, request, alike ? product.stored[CPU_OUTPUT] : NULL));
    bool laid_out = product.stored[CPU_WEIGHTS] != NULL;
    TRY(cpu_weighted_create(plan, device, request, &product));
    const cpu_desc *chosen = product.stored[CPU_WEIGHTS];
    const dnnl_dims_t dims = {chosen->dims[0], chosen->dims[1], 1, 1};
    if (!laid_out && chosen->ndims == 2)
        TRY_DNNL(cpu_desc_reshape(&weights, &device->descs, chosen, 4, dims));
    else if (!laid_out)
        weights = chosen;
    cpu_layout_store(&(*plan)->needs.output, output);
    cpu_layout_store(&(*plan)->needs.parameters[0], weights);
    return YOKE_OK;
}
