/* SPDX-License-Identifier: Apache-2.0 */
/* Convolution: the best of direct and Winograd for each pass, measured; weights kept in the layout
 * in which their gradient is computed, reordered only where a pass wants another. */
#include "onednn_loop_parts.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static cpu_operation convolution(loop_device *device, const loop_op *op, cpu_direction direction,
                                 dnnl_alg_kind_t algorithm) {
    const cpu_desc *in = device->values[op->input].desc, *out = device->values[op->output].desc;
    const cpu_desc *plain = device->parameters[op->parameter].plain;
    cpu_operation operation = {.kind = CPU_CONVOLUTION,
                               .direction = direction,
                               .algorithm = algorithm,
                               .source = in,
                               .destination = out,
                               .strides = {op->stride, op->stride},
                               .padding = {op->padding, op->padding}};
    MUST(cpu_desc_by_tag(&operation.weights, &device->descs, 4, plain->dims,
                         direction == CPU_BACKWARD_WEIGHTS ? dnnl_f32 : device->type,
                         dnnl_format_tag_any));
    for (int i = 0; i < 2; i++)
        operation.padding_end[i] = loop_padding_end(op, in->dims[2 + i], out->dims[2 + i]);
    return operation;
}

/* NULL: this library has no such algorithm for this shape. */
static dnnl_primitive_desc_t describe(loop_device *device, const loop_op *op,
                                      cpu_direction direction, dnnl_alg_kind_t algorithm) {
    cpu_operation operation = convolution(device, op, direction, algorithm);
    cpu_operation forward = convolution(device, op, CPU_FORWARD, dnnl_convolution_direct);
    dnnl_primitive_desc_t hint = NULL, description = NULL;
    if (direction != CPU_FORWARD) MUST(cpu_operation_describe(&hint, device->engine, &forward));
    operation.hint = hint;
    dnnl_status_t status = cpu_operation_describe(&description, device->engine, &operation);
    if (hint) MUST(dnnl_primitive_desc_destroy(hint));
    if (status == dnnl_unimplemented) return NULL;
    loop_must(status, "cpu_operation_describe");
    return description;
}

/* Small random values: zeros and denormals would time something else. */
static void *probe(const cpu_desc *desc) {
    size_t bytes = desc->bytes;
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
static double measure(loop_device *device, dnnl_primitive_desc_t description,
                      cpu_direction direction) {
    static const int arguments[CPU_DIRECTIONS][4] = {
        {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD},
        {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST, DNNL_ARG_SCRATCHPAD},
        {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST, DNNL_ARG_SCRATCHPAD}};
    loop_call call = {0};
    void *data[4] = {0};
    MUST(dnnl_primitive_create(&call.primitive, description));
    for (int i = 0; i < 4; i++) {
        const cpu_desc *desc = loop_desc(device, description, arguments[direction][i]);
        if (!desc) continue;
        data[i] = probe(desc);
        loop_bind(device, &call, arguments[direction][i], desc, data[i]);
    }
    double best = 1e30;
    for (int i = 0; i < 6; i++) {
        double begin = now_ms();
        loop_execute(device, &call);
        double took = now_ms() - begin;
        if (i > 0 && took < best) best = took;
    }
    loop_call_destroy(&call);
    for (int i = 0; i < 4; i++)
        free(data[i]);
    return best;
}

static bool same_shape(const loop_device *device, const loop_op *a, const loop_op *b) {
    const loop_value *x = &device->values[a->input], *y = &device->values[b->input];
    return b->kind == LOOP_CONV && a->kernel == b->kernel && a->stride == b->stride &&
           x->channels == y->channels && x->size == y->size &&
           device->values[a->output].channels == device->values[b->output].channels;
}

static dnnl_alg_kind_t choose(loop_device *device, const loop_op *op, cpu_direction pass) {
    if (device->options->direct || op->input == 0) return dnnl_convolution_direct;
    dnnl_primitive_desc_t winograd = describe(device, op, pass, dnnl_convolution_winograd);
    if (!winograd) return dnnl_convolution_direct;
    dnnl_primitive_desc_t direct = describe(device, op, pass, dnnl_convolution_direct);
    bool faster = measure(device, winograd, pass) < measure(device, direct, pass);
    dnnl_primitive_desc_destroy(winograd);
    dnnl_primitive_desc_destroy(direct);
    return faster ? dnnl_convolution_winograd : dnnl_convolution_direct;
}

void loop_conv_choose(loop_device *device, loop_op *op) {
    const loop_op *known = device->root ? &device->root->ops[op - device->ops] : NULL;
    for (const loop_op *earlier = device->ops; !known && earlier < op; earlier++)
        if (same_shape(device, op, earlier)) known = earlier;
    for (int pass = 0; pass < CPU_DIRECTIONS; pass++)
        op->algorithms[pass] =
            known ? known->algorithms[pass] : choose(device, op, (cpu_direction)pass);
    loop_parameter *parameter = &device->parameters[op->parameter];
    dnnl_primitive_desc_t description =
        describe(device, op, CPU_BACKWARD_WEIGHTS, op->algorithms[CPU_BACKWARD_WEIGHTS]);
    parameter->desc = loop_desc(device, description, DNNL_ARG_DIFF_WEIGHTS);
    parameter->bytes = parameter->desc->bytes;
    dnnl_primitive_desc_destroy(description);
}

/* The weights a pass reads: the flat buffer itself where the layouts agree, else a copy. */
static void *pass_weights(loop_device *device, const loop_op *op, const cpu_desc *wanted,
                          loop_call *reorder) {
    const loop_parameter *parameter = &device->parameters[op->parameter];
    void *flat = (char *)device->weights + parameter->offset;
    if (wanted == parameter->desc) return flat;
    void *copy = loop_allocate(device, wanted->bytes);
    loop_reorder(device, reorder, parameter->desc, flat, wanted, copy);
    return copy;
}

void loop_conv_build(loop_device *device, loop_op *op) {
    const loop_value *in = &device->values[op->input], *out = &device->values[op->output];
    dnnl_primitive_desc_t description =
        describe(device, op, CPU_FORWARD, op->algorithms[CPU_FORWARD]);
    const cpu_desc *weights = loop_desc(device, description, DNNL_ARG_WEIGHTS);
    op->forward_weights = pass_weights(device, op, weights, &op->forward_reorder);
    loop_make(device, &op->forward, description);
    loop_bind(device, &op->forward, DNNL_ARG_SRC, in->desc, in->data);
    loop_bind(device, &op->forward, DNNL_ARG_WEIGHTS, weights, op->forward_weights);
    loop_bind(device, &op->forward, DNNL_ARG_DST, out->desc, out->data);
}

void loop_conv_build_backward(loop_device *device, loop_op *op, void *output_gradient,
                              void *input_gradient) {
    const loop_value *in = &device->values[op->input], *out = &device->values[op->output];
    const loop_parameter *parameter = &device->parameters[op->parameter];
    dnnl_primitive_desc_t description =
        describe(device, op, CPU_BACKWARD_WEIGHTS, op->algorithms[CPU_BACKWARD_WEIGHTS]);
    loop_make(device, &op->backward_weights, description);
    loop_bind(device, &op->backward_weights, DNNL_ARG_SRC, in->desc, in->data);
    loop_bind(device, &op->backward_weights, DNNL_ARG_DIFF_DST, out->desc, output_gradient);
    loop_bind(device, &op->backward_weights, DNNL_ARG_DIFF_WEIGHTS, parameter->desc,
              (char *)device->gradients + parameter->offset);
    if (!input_gradient) return;
    description = describe(device, op, CPU_BACKWARD_DATA, op->algorithms[CPU_BACKWARD_DATA]);
    const cpu_desc *weights = loop_desc(device, description, DNNL_ARG_WEIGHTS);
    op->backward_weights_copy = pass_weights(device, op, weights, &op->backward_reorder);
    loop_make(device, &op->backward, description);
    loop_bind(device, &op->backward, DNNL_ARG_DIFF_DST, out->desc, output_gradient);
    loop_bind(device, &op->backward, DNNL_ARG_WEIGHTS, weights, op->backward_weights_copy);
    loop_bind(device, &op->backward, DNNL_ARG_DIFF_SRC, in->desc, input_gradient);
}
