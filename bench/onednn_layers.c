/* SPDX-License-Identifier: Apache-2.0 */
/* Batch norm with its ReLU, and max pooling, as oneDNN fuses them. */
#include "onednn_loop_parts.h"

/* Describes an operation, `forward` being the hint of its backward pass. */
static dnnl_primitive_desc_t describe(const loop_device *device, cpu_operation operation,
                                      dnnl_primitive_desc_t forward) {
    dnnl_primitive_desc_t description = NULL;
    if (forward) {
        operation.direction = CPU_BACKWARD_DATA;
        operation.hint = forward;
    }
    MUST(cpu_operation_describe(&description, device->engine, &operation));
    return description;
}

static cpu_operation norm(const loop_device *device, const loop_op *op) {
    cpu_operation operation = {.kind = CPU_NORM,
                               .source = device->values[op->input].desc,
                               .epsilon = 1e-5f,
                               .flags = dnnl_use_scale | dnnl_use_shift};
    if (op->relu) operation.flags |= dnnl_fuse_norm_relu;
    return operation;
}

/* Weight and bias lie side by side in the flat buffer. */
static void bind_norm(loop_device *device, const loop_op *op, loop_call *call) {
    const loop_parameter *parameter = &device->parameters[op->parameter];
    bool backward = call == &op->backward;
    char *scale = (char *)device->weights + parameter->offset;
    char *scale_gradient = (char *)device->gradients + parameter->offset;
    size_t bytes = (size_t)device->values[op->input].channels * sizeof(float);
    loop_bind(device, call, DNNL_ARG_MEAN, parameter->plain, op->mean);
    loop_bind(device, call, DNNL_ARG_VARIANCE, parameter->plain, op->variance);
    loop_bind(device, call, DNNL_ARG_SCALE, parameter->plain, scale);
    int shift = backward ? cpu_norm_backward_shift : DNNL_ARG_SHIFT;
    if (shift != 0) loop_bind(device, call, shift, parameter->plain, scale + bytes);
    if (!backward) return;
    loop_bind(device, call, DNNL_ARG_DIFF_SCALE, parameter->plain, scale_gradient);
    loop_bind(device, call, DNNL_ARG_DIFF_SHIFT, parameter->plain, scale_gradient + bytes);
}

static void bind_workspace(loop_device *device, loop_op *op, loop_call *call,
                           dnnl_primitive_desc_t forward) {
    const cpu_desc *desc = loop_desc(device, forward, DNNL_ARG_WORKSPACE);
    if (!desc) return;
    if (!op->workspace) op->workspace = loop_allocate(device, desc->bytes);
    loop_bind(device, call, DNNL_ARG_WORKSPACE, desc, op->workspace);
}

void loop_norm_build(loop_device *device, loop_op *op) {
    const loop_value *in = &device->values[op->input], *out = &device->values[op->output];
    size_t channels = (size_t)in->channels;
    op->mean = loop_allocate(device, channels * sizeof(float));
    op->variance = loop_allocate(device, channels * sizeof(float));
    op->running = loop_allocate(device, 2 * channels * sizeof(float));
    for (size_t i = 0; i < channels; i++)
        op->running[channels + i] = 1;
    dnnl_primitive_desc_t description = describe(device, norm(device, op), NULL);
    bind_workspace(device, op, &op->forward, description);
    loop_make(device, &op->forward, description);
    loop_bind(device, &op->forward, DNNL_ARG_SRC, in->desc, in->data);
    loop_bind(device, &op->forward, DNNL_ARG_DST, out->desc, out->data);
    bind_norm(device, op, &op->forward);
}

void loop_norm_build_backward(loop_device *device, loop_op *op, void *output_gradient,
                              void *input_gradient) {
    const loop_value *in = &device->values[op->input], *out = &device->values[op->output];
    dnnl_primitive_desc_t forward = describe(device, norm(device, op), NULL);
    dnnl_primitive_desc_t description = describe(device, norm(device, op), forward);
    bind_workspace(device, op, &op->backward, forward);
    loop_make(device, &op->backward, description);
    loop_bind(device, &op->backward, DNNL_ARG_SRC, in->desc, in->data);
    loop_bind(device, &op->backward, DNNL_ARG_DIFF_DST, out->desc, output_gradient);
    loop_bind(device, &op->backward, DNNL_ARG_DIFF_SRC, in->desc, input_gradient);
    bind_norm(device, op, &op->backward);
    MUST(dnnl_primitive_desc_destroy(forward));
}

static cpu_operation pool(const loop_device *device, const loop_op *op) {
    const cpu_desc *in = device->values[op->input].desc, *out = device->values[op->output].desc;
    cpu_operation operation = {.kind = CPU_POOLING,
                               .algorithm = dnnl_pooling_max,
                               .source = in,
                               .destination = out,
                               .strides = {op->stride, op->stride},
                               .kernel = {op->kernel, op->kernel},
                               .padding = {op->padding, op->padding}};
    for (int i = 0; i < 2; i++)
        operation.padding_end[i] = loop_padding_end(op, in->dims[2 + i], out->dims[2 + i]);
    return operation;
}

void loop_pool_build(loop_device *device, loop_op *op) {
    const loop_value *in = &device->values[op->input], *out = &device->values[op->output];
    dnnl_primitive_desc_t description = describe(device, pool(device, op), NULL);
    bind_workspace(device, op, &op->forward, description);
    loop_make(device, &op->forward, description);
    loop_bind(device, &op->forward, DNNL_ARG_SRC, in->desc, in->data);
    loop_bind(device, &op->forward, DNNL_ARG_DST, out->desc, out->data);
}

void loop_pool_build_backward(loop_device *device, loop_op *op, void *output_gradient,
                              void *input_gradient) {
    const loop_value *in = &device->values[op->input], *out = &device->values[op->output];
    dnnl_primitive_desc_t forward = describe(device, pool(device, op), NULL);
    dnnl_primitive_desc_t description = describe(device, pool(device, op), forward);
    bind_workspace(device, op, &op->backward, forward);
    loop_make(device, &op->backward, description);
    loop_bind(device, &op->backward, DNNL_ARG_DIFF_DST, out->desc, output_gradient);
    loop_bind(device, &op->backward, DNNL_ARG_DIFF_SRC, in->desc, input_gradient);
    MUST(dnnl_primitive_desc_destroy(forward));
}
