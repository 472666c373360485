/* SPDX-License-Identifier: Apache-2.0 */
/* ResNets as lists of operations, in the order forward runs them. */
#include "onednn_loop_parts.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static int add_value(loop_device *device, int channels, int size) {
    assert(device->value_count < LOOP_VALUES);
    int index = device->value_count++;
    loop_value *value = &device->values[index];
    value->channels = channels;
    value->size = size;
    dnnl_dims_t dims = {device->options->rows, channels, size, size};
    dnnl_format_tag_t tag = index == 0 ? dnnl_nchw : dnnl_nChw16c;
    MUST(cpu_desc_by_tag(&value->desc, &device->descs, 4, dims, device->type, tag));
    value->bytes = value->desc->bytes;
    value->elements = value->bytes / (device->options->bfloat16 ? 2 : 4);
    return index;
}

static loop_op *add_op(loop_device *device, loop_kind kind, int input, int output) {
    assert(device->op_count < LOOP_OPS);
    loop_op *op = &device->ops[device->op_count++];
    op->kind = kind;
    op->input = input;
    op->output = output;
    op->parameter = device->parameter_count;
    return op;
}

/* desc is final for all but filters, whose layout is chosen later. */
static void add_parameter(loop_device *device, const char *layer, const char *kind, int rank,
                          const dnnl_dim_t *dims) {
    assert(device->parameter_count < LOOP_PARAMETERS);
    loop_parameter *parameter = &device->parameters[device->parameter_count++];
    snprintf(parameter->name, sizeof parameter->name, "%s.%s", layer, kind);
    MUST(cpu_desc_by_strides(&parameter->plain, &device->descs, rank, dims, dnnl_f32, NULL));
    parameter->desc = parameter->plain;
    parameter->bytes = parameter->plain->bytes;
}

typedef struct filter {
    int channels, kernel, stride;
} filter;

static int convolution(loop_device *device, int input, filter shape, const char *name) {
    int padding = shape.kernel / 2, in = device->values[input].channels;
    int size = (device->values[input].size + 2 * padding - shape.kernel) / shape.stride + 1;
    int output = add_value(device, shape.channels, size);
    loop_op *op = add_op(device, LOOP_CONV, input, output);
    op->kernel = shape.kernel;
    op->stride = shape.stride;
    op->padding = padding;
    add_parameter(device, name, "weight", 4,
                  (dnnl_dims_t){shape.channels, in, shape.kernel, shape.kernel});
    return output;
}

static int norm(loop_device *device, int input, bool relu, const char *name) {
    int channels = device->values[input].channels;
    int output = add_value(device, channels, device->values[input].size);
    loop_op *op = add_op(device, LOOP_NORM, input, output);
    op->relu = relu;
    add_parameter(device, name, "weight", 1, (dnnl_dims_t){channels});
    device->parameters[op->parameter].initial = 1;
    add_parameter(device, name, "bias", 1, (dnnl_dims_t){channels});
    return output;
}

/* conv + batch norm: PREFIX.convK and PREFIX.bnK. */
static int unit(loop_device *device, int input, filter shape, bool relu, const char *prefix,
                int number) {
    char name[40];
    snprintf(name, sizeof name, "%sconv%d", prefix, number);
    int value = convolution(device, input, shape, name);
    snprintf(name, sizeof name, "%sbn%d", prefix, number);
    return norm(device, value, relu, name);
}

/* One residual block: width, and width * 4 out of a bottleneck. */
static int block(loop_device *device, int input, int width, int stride, bool bottleneck,
                 const char *prefix) {
    int out = bottleneck ? width * 4 : width, left;
    if (bottleneck) {
        left = unit(device, input, (filter){width, 1, 1}, true, prefix, 1);
        left = unit(device, left, (filter){width, 3, stride}, true, prefix, 2);
        left = unit(device, left, (filter){out, 1, 1}, false, prefix, 3);
    } else {
        left = unit(device, input, (filter){width, 3, stride}, true, prefix, 1);
        left = unit(device, left, (filter){width, 3, 1}, false, prefix, 2);
    }
    int right = input;
    if (stride != 1 || device->values[input].channels != out) {
        char name[40];
        snprintf(name, sizeof name, "%sdownsample.0", prefix);
        right = convolution(device, input, (filter){out, 1, stride}, name);
        snprintf(name, sizeof name, "%sdownsample.1", prefix);
        right = norm(device, right, false, name);
    }
    int output = add_value(device, out, device->values[left].size);
    add_op(device, LOOP_ADD, left, output)->other = right;
    return output;
}

static int stem(loop_device *device, bool cifar) {
    int input = add_value(device, 3, LOOP_IMAGE);
    if (cifar) return unit(device, input, (filter){64, 3, 1}, true, "", 1);
    int value = unit(device, input, (filter){64, 7, 2}, true, "", 1);
    int output = add_value(device, 64, (device->values[value].size - 1) / 2 + 1);
    loop_op *op = add_op(device, LOOP_MAX_POOL, value, output);
    op->kernel = 3;
    op->stride = 2;
    op->padding = 1;
    return output;
}

bool loop_network_build(loop_device *device, const char *name) {
    static const struct {
        const char *name;
        bool cifar, bottleneck;
        int depths[4];
    } networks[] = {{"resnet18-cifar", true, false, {2, 2, 2, 2}},
                    {"resnet50", false, true, {3, 4, 6, 3}}};
    int which = 0;
    while (which < 2 && strcmp(name, networks[which].name) != 0)
        which++;
    if (which == 2) return false;
    int value = stem(device, networks[which].cifar);
    for (int stage = 0; stage < 4; stage++)
        for (int i = 0; i < networks[which].depths[stage]; i++) {
            char prefix[24];
            snprintf(prefix, sizeof prefix, "layer%d.%d.", stage + 1, i);
            int stride = stage > 0 && i == 0 ? 2 : 1;
            value = block(device, value, 64 << stage, stride, networks[which].bottleneck, prefix);
        }
    add_op(device, LOOP_HEAD, value, value);
    int channels = device->values[value].channels;
    add_parameter(device, "fc", "weight", 2, (dnnl_dims_t){LOOP_CLASSES, channels});
    add_parameter(device, "fc", "bias", 1, (dnnl_dims_t){LOOP_CLASSES});
    return true;
}
