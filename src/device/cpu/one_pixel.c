/* A convolution with one output pixel is a matrix product of the pixels it sees and the taps that
 * see them. Taps that meet only padding (eight of nine at 1x1) are left out; their gradient is
 * zero. */
#include <string.h>

#include "device/cpu/weighted.h"

/* The output pixel lies at the corner: taps padding .. padding + height - 1 meet pixels 0 .. */
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
           operation->groups == 1 && operation->padding < operation->kernel;
}

/* Descriptors. */

/* A value or weights of one pixel, without the two dimensions that are 1. Where it is in blocks
 * that follow each other it is plain. */
static void drop_pixel(dnnl_memory_desc_t *desc) {
    dnnl_blocking_desc_t *blocking = &desc->format_desc.blocking;
    desc->ndims = 2;
    if (blocking->inner_nblks != 1 || blocking->inner_idxs[0] != 1) return;
    if (blocking->strides[1] != blocking->inner_blks[0]) return;
    if (desc->padded_dims[1] != desc->dims[1]) return;
    blocking->inner_nblks = 0;
    blocking->strides[1] = 1;
}

static void add_pixel(dnnl_memory_desc_t *desc) {
    dnnl_blocking_desc_t *blocking = &desc->format_desc.blocking;
    for (int i = 2; i < 4; i++) {
        desc->dims[i] = desc->padded_dims[i] = 1;
        desc->padded_offsets[i] = 0;
        blocking->strides[i] = (dnnl_dim_t)(dnnl_memory_desc_get_size(desc) / sizeof(float));
    }
    desc->ndims = 4;
}

/* The window's part of a value (first = 0) or of weights (first = padding). */
static yoke_status cut(dnnl_memory_desc_t *part, const dnnl_memory_desc_t *whole, tap_window window,
                       int first) {
    const dnnl_dims_t dims = {whole->dims[0], whole->dims[1], window.height, window.width};
    const dnnl_dims_t offsets = {0, 0, first, first};
    TRY_DNNL(dnnl_memory_desc_init_submemory(part, whole, dims, offsets));
    if (window.height == 1 && window.width == 1) drop_pixel(part);
    return YOKE_OK;
}

static yoke_status shape_free(dnnl_memory_desc_t *desc, const dnnl_memory_desc_t *whole,
                              tap_window window) {
    const dnnl_dims_t dims = {whole->dims[0], whole->dims[1], window.height, window.width};
    int ndims = window.height == 1 && window.width == 1 ? 2 : 4;
    TRY_DNNL(
        dnnl_memory_desc_init_by_tag(desc, ndims, dims, whole->data_type, dnnl_format_tag_any));
    return YOKE_OK;
}

/* Planning. */

/* The layouts that neighbours expect of a convolution, whoever computes it. */
static yoke_status ask_convolution(const cpu_problem *convolution, cpu_device *device,
                                   dnnl_memory_desc_t *output, dnnl_memory_desc_t *weights) {
    cpu_operation_desc operation;
    TRY_DNNL(convolution->describe(&operation, convolution, CPU_FORWARD, 0, convolution->free));
    cpu_primitive primitive = {0};
    yoke_status status = cpu_primitive_create(&primitive, device, &operation, NULL, NULL);
    if (status == YOKE_OK) {
        *output = *cpu_primitive_desc(&primitive, DNNL_ARG_DST);
        *weights = *cpu_primitive_desc(&primitive, DNNL_ARG_WEIGHTS);
        weights->data_type = dnnl_f32;
    }
    cpu_primitive_destroy(&primitive);
    return status;
}

static yoke_status pose_product(cpu_problem *product, const cpu_problem *convolution,
                                tap_window window) {
    product->operation = convolution->operation;
    product->algorithms = cpu_product_algorithms;
    product->describe = cpu_describe_product;
    memcpy(product->key, convolution->key, sizeof product->key);
    product->free[CPU_BIAS] = convolution->free[CPU_BIAS];
    product->stored[CPU_BIAS] = convolution->stored[CPU_BIAS];
    const dnnl_memory_desc_t *free = convolution->free;
    TRY(shape_free(&product->free[CPU_INPUT], &free[CPU_INPUT], window));
    TRY(shape_free(&product->free[CPU_WEIGHTS], &free[CPU_WEIGHTS], window));
    return shape_free(&product->free[CPU_OUTPUT], &free[CPU_OUTPUT], (tap_window){1, 1});
}

/* Part of the taps are a part of the layout of all; all of them are the product's to lay out. */
static yoke_status place_weights(cpu_problem *product, const yoke_plan_request *request,
                                 dnnl_memory_desc_t *all, tap_window window) {
    const yoke_operation *operation = request->operation;
    bool whole = window.height == operation->kernel && window.width == operation->kernel;
    bool given = request->parameters[0].bytes > 0;
    if (given) *all = *cpu_layout_desc(&request->parameters[0]);
    if (!whole) product->cleared[CPU_WEIGHTS] = dnnl_memory_desc_get_size(all);
    if (whole && !given) return YOKE_OK;
    return cut(&product->stored[CPU_WEIGHTS], all, window, operation->padding);
}

static yoke_status place_values(cpu_problem *product, const yoke_plan_request *request,
                                const dnnl_memory_desc_t *output, tap_window window) {
    yoke_dims input = request->operation->input;
    if (window.height < input.height || window.width < input.width)
        product->cleared[CPU_INPUT] = request->inputs[0].bytes;
    TRY(cut(&product->stored[CPU_INPUT], cpu_layout_desc(&request->inputs[0]), window, 0));
    return cut(&product->stored[CPU_OUTPUT], output, (tap_window){1, 1}, 0);
}

yoke_status cpu_plan_one_pixel(yoke_plan **plan, cpu_device *device,
                               const yoke_plan_request *request, const cpu_problem *convolution) {
    tap_window window = window_of(request->operation);
    dnnl_memory_desc_t output, weights;
    TRY(ask_convolution(convolution, device, &output, &weights));
    cpu_problem product = {0};
    TRY(pose_product(&product, convolution, window));
    TRY(place_values(&product, request, &output, window));
    TRY(place_weights(&product, request, &weights, window));
    bool laid_out = product.stored[CPU_WEIGHTS].ndims > 0;
    TRY(cpu_weighted_create(plan, device, request, &product));
    if (!laid_out) {
        weights = product.stored[CPU_WEIGHTS];
        if (weights.ndims == 2) add_pixel(&weights);
    }
    cpu_layout_store(&(*plan)->needs.output, &output);
    cpu_layout_store(&(*plan)->needs.parameters[0], &weights);
    return YOKE_OK;
}
