/* Convolution: the best of direct and Winograd for each pass, measured; weights kept in the layout
 * in which their gradient is computed, reordered only where a pass wants another. */
#include "onednn_loop_parts.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* NULL: this library has no such algorithm for this shape. */
static dnnl_primitive_desc_t describe(const loop_device *device, const loop_op *op, loop_pass pass,
                                      dnnl_alg_kind_t algorithm) {
    const dnnl_memory_desc_t *in = &device->values[op->input].desc;
    const dnnl_memory_desc_t *out = &device->values[op->output].desc;
    const dnnl_memory_desc_t *plain = &device->parameters[op->parameter].plain;
    dnnl_data_type_t type = pass == LOOP_BACKWARD_WEIGHTS ? dnnl_f32 : device->type;
    dnnl_memory_desc_t weights;
    MUST(dnnl_memory_desc_init_by_tag(&weights, 4, plain->dims, type, dnnl_format_tag_any));
    dnnl_dims_t strides = {op->stride, op->stride}, padding = {op->padding, op->padding};
    dnnl_dims_t right; /* what the stride leaves over is not padding */
    for (int i = 0; i < 2; i++)
        right[i] = (out->dims[2 + i] - 1) * op->stride + op->kernel - in->dims[2 + i] - op->padding;
    dnnl_convolution_desc_t desc;
    if (pass == LOOP_FORWARD)
        MUST(dnnl_convolution_forward_desc_init(&desc, dnnl_forward_training, algorithm, in,
                                                &weights, NULL, out, strides, padding, right));
    else if (pass == LOOP_BACKWARD_DATA)
        MUST(dnnl_convolution_backward_data_desc_init(&desc, algorithm, in, &weights, out, strides,
                                                      padding, right));
    else
        MUST(dnnl_convolution_backward_weights_desc_init(&desc, algorithm, in, &weights, NULL, out,
                                                         strides, padding, right));
    dnnl_primitive_desc_t description = NULL;
    dnnl_status_t status =
        dnnl_primitive_desc_create(&description, &desc, device->attributes, device->engine, NULL);
    if (status == dnnl_unimplemented) return NULL;
    loop_must(status, "dnnl_primitive_desc_create");
    return description;
}

static dnnl_query_t weights_query(loop_pass pass) {
    return pass == LOOP_BACKWARD_WEIGHTS ? dnnl_query_diff_weights_md : dnnl_query_weights_md;
}

/* Small random values: zeros and denormals would time something else. */
static void *probe(const dnnl_memory_desc_t *desc) {
    size_t bytes = dnnl_memory_desc_get_size(desc);
    float *values = aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
    uint32_t state = 12345;
    for (size_t i = 0; values && i < bytes / sizeof *values; i++) {
        state = state * 1664525u + 1013904223u;
        values[i] = (float)(state >> 8) * 0x1p-24f - 0.5f;
    }
    return values;
}

static double now_ms(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec * 1e-6;
}

/* Best of five, in milliseconds. */
static double measure(const loop_device *device, dnnl_primitive_desc_t description,
                      const int *arguments, const dnnl_query_t *queries) {
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t bound[4];
    void *data[4];
    MUST(dnnl_primitive_create(&primitive, description));
    for (int i = 0; i < 4; i++) {
        const dnnl_memory_desc_t *desc = dnnl_primitive_desc_query_md(description, queries[i], 0);
        data[i] = probe(desc);
        bound[i].arg = arguments[i];
        MUST(dnnl_memory_create(&bound[i].memory, desc, device->engine, data[i]));
    }
    double best = 1e30;
    for (int i = 0; i < 6; i++) {
        double begin = now_ms();
        MUST(dnnl_primitive_execute(primitive, device->stream, 4, bound));
        double took = now_ms() - begin;
        if (i > 0 && took < best) best = took;
    }
    for (int i = 0; i < 4; i++) {
        dnnl_memory_destroy(bound[i].memory);
        free(data[i]);
    }
    dnnl_primitive_destroy(primitive);
    return best;
}

static double measure_pass(const loop_device *device, dnnl_primitive_desc_t description,
                           loop_pass pass) {
    static const int arguments[3][4] = {
        {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD},
        {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST, DNNL_ARG_SCRATCHPAD},
        {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST, DNNL_ARG_SCRATCHPAD}};
    static const dnnl_query_t queries[3][4] = {
        {dnnl_query_src_md, dnnl_query_weights_md, dnnl_query_dst_md, dnnl_query_scratchpad_md},
        {dnnl_query_diff_src_md, dnnl_query_weights_md, dnnl_query_diff_dst_md,
         dnnl_query_scratchpad_md},
        {dnnl_query_src_md, dnnl_query_diff_weights_md, dnnl_query_diff_dst_md,
         dnnl_query_scratchpad_md}};
    return measure(device, description, arguments[pass], queries[pass]);
}

static bool same_shape(const loop_device *device, const loop_op *a, const loop_op *b) {
    const loop_value *x = &device->values[a->input], *y = &device->values[b->input];
    return b->kind == LOOP_CONV && a->kernel == b->kernel && a->stride == b->stride &&
           x->channels == y->channels && x->size == y->size &&
           device->values[a->output].channels == device->values[b->output].channels;
}

static dnnl_alg_kind_t choose_pass(const loop_device *device, const loop_op *op, loop_pass pass) {
    if (device->options->direct || op->input == 0) return dnnl_convolution_direct;
    dnnl_primitive_desc_t winograd = describe(device, op, pass, dnnl_convolution_winograd);
    if (!winograd) return dnnl_convolution_direct;
    dnnl_primitive_desc_t direct = describe(device, op, pass, dnnl_convolution_direct);
    bool faster = measure_pass(device, winograd, pass) < measure_pass(device, direct, pass);
    dnnl_primitive_desc_destroy(winograd);
    dnnl_primitive_desc_destroy(direct);
    return faster ? dnnl_convolution_winograd : dnnl_convolution_direct;
}

void loop_conv_choose(loop_device *device, loop_op *op) {
    const loop_op *known = device->root ? &device->root->ops[op - device->ops] : NULL;
    for (const loop_op *earlier = device->ops; !known && earlier < op; earlier++)
        if (same_shape(device, op, earlier)) known = earlier;
    for (int pass = 0; pass < 3; pass++)
        op->algorithms[pass] =
            known ? known->algorithms[pass] : choose_pass(device, op, (loop_pass)pass);
    loop_parameter *parameter = &device->parameters[op->parameter];
    dnnl_primitive_desc_t description =
        describe(device, op, LOOP_BACKWARD_WEIGHTS, op->algorithms[LOOP_BACKWARD_WEIGHTS]);
    parameter->desc = *dnnl_primitive_desc_query_md(description, dnnl_query_diff_weights_md, 0);
    parameter->bytes = dnnl_memory_desc_get_size(&parameter->desc);
    dnnl_primitive_desc_destroy(description);
}

/* The weights a pass reads: the flat buffer itself where the layouts agree, else a copy. */
static void *pass_weights(loop_device *device, const loop_op *op, const dnnl_memory_desc_t *wanted,
                          loop_call *reorder) {
    const loop_parameter *parameter = &device->parameters[op->parameter];
    void *flat = (char *)device->weights + parameter->offset;
    if (dnnl_memory_desc_equal(wanted, &parameter->desc)) return flat;
    void *copy = loop_allocate(device, dnnl_memory_desc_get_size(wanted));
    loop_reorder(device, reorder, &parameter->desc, flat, wanted, copy);
    return copy;
}

void loop_conv_build(loop_device *device, loop_op *op) {
    const loop_value *in = &device->values[op->input], *out = &device->values[op->output];
    dnnl_primitive_desc_t description =
        describe(device, op, LOOP_FORWARD, op->algorithms[LOOP_FORWARD]);
    dnnl_memory_desc_t weights =
        *dnnl_primitive_desc_query_md(description, weights_query(LOOP_FORWARD), 0);
    op->forward_weights = pass_weights(device, op, &weights, &op->forward_reorder);
    loop_make(device, &op->forward, description);
    loop_bind(device, &op->forward, DNNL_ARG_SRC, &in->desc, in->data);
    loop_bind(device, &op->forward, DNNL_ARG_WEIGHTS, &weights, op->forward_weights);
    loop_bind(device, &op->forward, DNNL_ARG_DST, &out->desc, out->data);
}

void loop_conv_build_backward(loop_device *device, loop_op *op, void *output_gradient,
                              void *input_gradient) {
    const loop_value *in = &device->values[op->input], *out = &device->values[op->output];
    const loop_parameter *parameter = &device->parameters[op->parameter];
    dnnl_primitive_desc_t description =
        describe(device, op, LOOP_BACKWARD_WEIGHTS, op->algorithms[LOOP_BACKWARD_WEIGHTS]);
    loop_make(device, &op->backward_weights, description);
    loop_bind(device, &op->backward_weights, DNNL_ARG_SRC, &in->desc, in->data);
    loop_bind(device, &op->backward_weights, DNNL_ARG_DIFF_DST, &out->desc, output_gradient);
    loop_bind(device, &op->backward_weights, DNNL_ARG_DIFF_WEIGHTS, &parameter->desc,
              (char *)device->gradients + parameter->offset);
    if (!input_gradient) return;
    description = describe(device, op, LOOP_BACKWARD_DATA, op->algorithms[LOOP_BACKWARD_DATA]);
    dnnl_memory_desc_t weights =
        *dnnl_primitive_desc_query_md(description, weights_query(LOOP_BACKWARD_DATA), 0);
    op->backward_weights_copy = pass_weights(device, op, &weights, &op->backward_reorder);
    loop_make(device, &op->backward, description);
    loop_bind(device, &op->backward, DNNL_ARG_DIFF_DST, &out->desc, output_gradient);
    loop_bind(device, &op->backward, DNNL_ARG_WEIGHTS, &weights, op->backward_weights_copy);
    loop_bind(device, &op->backward, DNNL_ARG_DIFF_SRC, &in->desc, input_gradient);
}
