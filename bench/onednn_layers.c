/* Batch norm with its ReLU, and max pooling, as oneDNN fuses them. */
#include "onednn_loop_parts.h"

static unsigned norm_flags(const loop_op *op) {
    return (unsigned)dnnl_use_scaleshift | (op->relu ? (unsigned)dnnl_fuse_norm_relu : 0u);
}

static dnnl_primitive_desc_t norm_forward(const loop_device *device, const loop_op *op) {
    dnnl_batch_normalization_desc_t desc;
    dnnl_primitive_desc_t description;
    MUST(dnnl_batch_normalization_forward_desc_init(
        &desc, dnnl_forward_training, &device->values[op->input].desc, 1e-5f, norm_flags(op)));
    MUST(dnnl_primitive_desc_create(&description, &desc, device->attributes, device->engine, NULL));
    return description;
}

/* Weight and bias lie side by side in the flat buffer: one [2, channels] tensor to oneDNN. */
static void bind_norm(loop_device *device, const loop_op *op, loop_call *call) {
    const loop_parameter *parameter = &device->parameters[op->parameter];
    int channels = device->values[op->input].channels;
    dnnl_memory_desc_t pair;
    MUST(dnnl_memory_desc_init_by_tag(&pair, 2, (dnnl_dims_t){2, channels}, dnnl_f32, dnnl_ab));
    loop_bind(device, call, DNNL_ARG_MEAN, &parameter->plain, op->mean);
    loop_bind(device, call, DNNL_ARG_VARIANCE, &parameter->plain, op->variance);
    loop_bind(device, call, DNNL_ARG_SCALE_SHIFT, &pair,
              (char *)device->weights + parameter->offset);
    if (call == &op->backward)
        loop_bind(device, call, DNNL_ARG_DIFF_SCALE_SHIFT, &pair,
                  (char *)device->gradients + parameter->offset);
}

static void bind_workspace(loop_device *device, loop_op *op, loop_call *call,
                           dnnl_primitive_desc_t forward) {
    const dnnl_memory_desc_t *desc =
        dnnl_primitive_desc_query_md(forward, dnnl_query_workspace_md, 0);
    size_t bytes = desc ? dnnl_memory_desc_get_size(desc) : 0;
    if (bytes == 0) return;
    if (!op->workspace) op->workspace = loop_allocate(device, bytes);
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
    dnnl_primitive_desc_t description = norm_forward(device, op);
    bind_workspace(device, op, &op->forward, description);
    loop_make(device, &op->forward, description);
    loop_bind(device, &op->forward, DNNL_ARG_SRC, &in->desc, in->data);
    loop_bind(device, &op->forward, DNNL_ARG_DST, &out->desc, out->data);
    bind_norm(device, op, &op->forward);
}

void loop_norm_build_backward(loop_device *device, loop_op *op, void *output_gradient,
                              void *input_gradient) {
    const loop_value *in = &device->values[op->input], *out = &device->values[op->output];
    dnnl_primitive_desc_t forward = norm_forward(device, op), description;
    dnnl_batch_normalization_desc_t desc;
    MUST(dnnl_batch_normalization_backward_desc_init(&desc, dnnl_backward, &out->desc, &in->desc,
                                                     1e-5f, norm_flags(op)));
    MUST(dnnl_primitive_desc_create(&description, &desc, device->attributes, device->engine,
                                    forward));
    bind_workspace(device, op, &op->backward, forward);
    loop_make(device, &op->backward, description);
    loop_bind(device, &op->backward, DNNL_ARG_SRC, &in->desc, in->data);
    loop_bind(device, &op->backward, DNNL_ARG_DIFF_DST, &out->desc, output_gradient);
    loop_bind(device, &op->backward, DNNL_ARG_DIFF_SRC, &in->desc, input_gradient);
    bind_norm(device, op, &op->backward);
    MUST(dnnl_primitive_desc_destroy(forward));
}

static dnnl_primitive_desc_t pool_description(const loop_device *device, const loop_op *op,
                                              dnnl_primitive_desc_t forward) {
    const dnnl_memory_desc_t *in = &device->values[op->input].desc;
    const dnnl_memory_desc_t *out = &device->values[op->output].desc;
    dnnl_dims_t strides = {op->stride, op->stride}, kernel = {op->kernel, op->kernel};
    dnnl_dims_t left = {op->padding, op->padding}, right;
    for (int i = 0; i < 2; i++)
        right[i] = (out->dims[2 + i] - 1) * op->stride + op->kernel - in->dims[2 + i] - op->padding;
    dnnl_pooling_desc_t desc;
    dnnl_primitive_desc_t description;
    if (!forward)
        MUST(dnnl_pooling_forward_desc_init(&desc, dnnl_forward_training, dnnl_pooling_max, in, out,
                                            strides, kernel, left, right));
    else
        MUST(dnnl_pooling_backward_desc_init(&desc, dnnl_pooling_max, in, out, strides, kernel,
                                             left, right));
    MUST(dnnl_primitive_desc_create(&description, &desc, device->attributes, device->engine,
                                    forward));
    return description;
}

void loop_pool_build(loop_device *device, loop_op *op) {
    const loop_value *in = &device->values[op->input], *out = &device->values[op->output];
    dnnl_primitive_desc_t description = pool_description(device, op, NULL);
    bind_workspace(device, op, &op->forward, description);
    loop_make(device, &op->forward, description);
    loop_bind(device, &op->forward, DNNL_ARG_SRC, &in->desc, in->data);
    loop_bind(device, &op->forward, DNNL_ARG_DST, &out->desc, out->data);
}

void loop_pool_build_backward(loop_device *device, loop_op *op, void *output_gradient,
                              void *input_gradient) {
    const loop_value *in = &device->values[op->input], *out = &device->values[op->output];
    dnnl_primitive_desc_t forward = pool_description(device, op, NULL);
    dnnl_primitive_desc_t description = pool_description(device, op, forward);
    bind_workspace(device, op, &op->backward, forward);
    loop_make(device, &op->backward, description);
    loop_bind(device, &op->backward, DNNL_ARG_DIFF_DST, &out->desc, output_gradient);
    loop_bind(device, &op->backward, DNNL_ARG_DIFF_SRC, &in->desc, input_gradient);
    MUST(dnnl_primitive_desc_destroy(forward));
}
