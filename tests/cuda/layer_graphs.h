/* SPDX-License-Identifier: Apache-2.0 */
/* A layer's convolution with its batch norm and ReLU as one graph of cuDNN's backend, in float16.
 * Values are [n, c, h, w], in memory channels last; what a graph keeps between nodes is float32,
 * but for what a convolution reads. */
#ifndef LAYER_GRAPHS_H
#define LAYER_GRAPHS_H

#include "device/cuda/operation_graph.h"
#include "gpu_rig.h"

typedef enum layer_graph_kind {
    LAYER_SUMS,          /* y = conv(x), and sums of y and its squares */
    LAYER_NORMED_SUMS,   /* the same of the ReLU of x * scale + shift */
    LAYER_NORMED_FILTER, /* the filter's gradient of that */
    LAYER_NORMED_IMAGE,  /* the gradient of an image behind batch norm and ReLU, and what the batch
                            norm's backward needs */
    LAYER_GRAPHS
} layer_graph_kind;

/* Square images and filters. */
typedef struct layer_shape {
    int rows, channels, size, outputs, kernel, stride, padding;
} layer_shape;

typedef struct layer_graph {
    cuda_graph *graph;
    const layer_shape *shape;
    int64_t uid; /* the last */
} layer_graph;

#define ONE_OF(name, type, value)                                                                  \
    { name, type, 1, value }

static cuda_graph_object layer_tensor(layer_graph *to, cudnnDataType_t type, const int64_t dims[4],
                                      bool is_virtual) {
    const cuda_graph_values values = {
        .uid = ++to->uid,
        .type = type,
        .ndim = 4,
        .dims = {dims[0], dims[1], dims[2], dims[3]},
        .strides = {dims[1] * dims[2] * dims[3], 1, dims[1] * dims[3], dims[1]},
        .is_virtual = is_virtual};
    return cuda_graph_tensor(to->graph, &values);
}

static cuda_graph_object layer_input(layer_graph *to, cudnnDataType_t type, bool is_virtual) {
    const layer_shape *of = to->shape;
    const int64_t dims[] = {of->rows, of->channels, of->size, of->size};
    return layer_tensor(to, type, dims, is_virtual);
}

static cuda_graph_object layer_output(layer_graph *to) {
    const layer_shape *of = to->shape;
    int size = (of->size + 2 * of->padding - of->kernel) / of->stride + 1;
    const int64_t dims[] = {of->rows, of->outputs, size, size};
    return layer_tensor(to, CUDNN_DATA_HALF, dims, false);
}

static cuda_graph_object layer_filter(layer_graph *to) {
    const layer_shape *of = to->shape;
    const int64_t dims[] = {of->outputs, of->channels, of->kernel, of->kernel};
    return layer_tensor(to, CUDNN_DATA_HALF, dims, false);
}

static cuda_graph_object layer_channels(layer_graph *to, cudnnDataType_t type, int64_t count) {
    const int64_t dims[] = {1, count, 1, 1};
    return layer_tensor(to, type, dims, false);
}

static cuda_graph_object layer_window(layer_graph *to) {
    const int64_t axes = 2, padding[] = {to->shape->padding, to->shape->padding},
                  stride[] = {to->shape->stride, to->shape->stride}, ones[] = {1, 1};
    const cudnnDataType_t sums = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const cuda_graph_attribute attributes[] = {
        ONE_OF(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, &axes),
        ONE_OF(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, &sums),
        ONE_OF(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, &mode),
        {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, padding},
        {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, padding},
        {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, stride},
        {CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, ones}};
    return cuda_graph_part(to->graph, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, attributes,
                           COUNT(attributes));
}

/* `first` is the node's alpha, which beta, the convolution, w, x and y follow. */
static void layer_convolve(layer_graph *to, cudnnBackendDescriptorType_t type,
                           cudnnBackendAttributeName_t first, const cuda_graph_object tensors[3]) {
    const float alpha = 1, beta = 0;
    const cuda_graph_object window = layer_window(to);
    const void *const values[] = {&alpha, &beta, &window, &tensors[0], &tensors[1], &tensors[2]};
    cuda_graph_attribute attributes[COUNT(values)];
    for (size_t i = 0; i < COUNT(values); i++)
        attributes[i] = (cuda_graph_attribute){
            (cudnnBackendAttributeName_t)((size_t)first + i),
            i < 2 ? CUDNN_TYPE_FLOAT : CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, values[i]};
    cuda_graph_node(to->graph, type, attributes, COUNT(attributes));
}

/* b may be NULL. Backward of a ReLU reads y's gradient as b. */
static cuda_graph_object layer_apply(layer_graph *to, cudnnPointwiseMode_t mode,
                                     cuda_graph_object x, cuda_graph_object b,
                                     cuda_graph_object y) {
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    const bool backward = mode == CUDNN_POINTWISE_RELU_BWD;
    const cuda_graph_attribute of[] = {
        ONE_OF(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, &mode),
        ONE_OF(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, &type)};
    const cuda_graph_object operation =
        cuda_graph_part(to->graph, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, of, COUNT(of));
    const cuda_graph_attribute attributes[] = {
        ONE_OF(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR,
               &operation),
        ONE_OF(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, &x),
        ONE_OF(backward ? CUDNN_ATTR_OPERATION_POINTWISE_DXDESC
                        : CUDNN_ATTR_OPERATION_POINTWISE_YDESC,
               CUDNN_TYPE_BACKEND_DESCRIPTOR, &y),
        ONE_OF(backward ? CUDNN_ATTR_OPERATION_POINTWISE_DYDESC
                        : CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
               CUDNN_TYPE_BACKEND_DESCRIPTOR, &b)};
    cuda_graph_node(to->graph, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, attributes,
                    b != NULL ? 4 : 3);
    return y;
}

static cuda_graph_object layer_between(layer_graph *to, cudnnPointwiseMode_t mode,
                                       cuda_graph_object x, cuda_graph_object b) {
    return layer_apply(to, mode, x, b, layer_input(to, CUDNN_DATA_FLOAT, true));
}

static cuda_graph_object layer_rectified(layer_graph *to) {
    const cuda_graph_object x = layer_input(to, CUDNN_DATA_HALF, false);
    const cuda_graph_object scale = layer_channels(to, CUDNN_DATA_HALF, to->shape->channels);
    const cuda_graph_object shift = layer_channels(to, CUDNN_DATA_HALF, to->shape->channels);
    cuda_graph_object of = layer_between(to, CUDNN_POINTWISE_MUL, x, scale);
    of = layer_between(to, CUDNN_POINTWISE_ADD, of, shift);
    return layer_apply(to, CUDNN_POINTWISE_RELU_FWD, of, NULL,
                       layer_input(to, CUDNN_DATA_HALF, true));
}

static void layer_sum(layer_graph *to, cuda_graph_object y) {
    const cudnnGenStatsMode_t mode = CUDNN_GENSTATS_SUM_SQSUM;
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    const cuda_graph_object sums = layer_channels(to, type, to->shape->outputs);
    const cuda_graph_object squares = layer_channels(to, type, to->shape->outputs);
    const cuda_graph_attribute attributes[] = {
        ONE_OF(CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE, &mode),
        ONE_OF(CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_TYPE_DATA_TYPE, &type),
        ONE_OF(CUDNN_ATTR_OPERATION_GENSTATS_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, &y),
        ONE_OF(CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, &sums),
        ONE_OF(CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, &squares)};
    cuda_graph_node(to->graph, CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR, attributes,
                    COUNT(attributes));
}

/* The attributes in the order of their names: mean, invstd, scale, x, dy, and five results. */
static void layer_sum_backward(layer_graph *to, const cuda_graph_object reads[5]) {
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    cuda_graph_object tensors[10];
    cuda_graph_attribute attributes[11] = {
        ONE_OF(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MATH_PREC, CUDNN_TYPE_DATA_TYPE, &type)};
    for (int i = 0; i < 10; i++) {
        tensors[i] = i < 5 ? reads[i] : layer_channels(to, type, to->shape->channels);
        attributes[i + 1] = (cuda_graph_attribute){
            (cudnnBackendAttributeName_t)(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MEAN_DESC + i),
            CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &tensors[i]};
    }
    cuda_graph_node(to->graph, CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR, attributes,
                    COUNT(attributes));
}

static void describe_forward(layer_graph *to, bool normed) {
    const cuda_graph_object w = layer_filter(to);
    const cuda_graph_object x =
        normed ? layer_rectified(to) : layer_input(to, CUDNN_DATA_HALF, false);
    const cuda_graph_object tensors[] = {w, x, layer_output(to)};
    layer_convolve(to, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, tensors);
    layer_sum(to, tensors[2]);
}

static void describe_filter(layer_graph *to) {
    const cuda_graph_object w = layer_filter(to), x = layer_rectified(to);
    const cuda_graph_object tensors[] = {w, x, layer_output(to)};
    layer_convolve(to, CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, tensors);
}

static void describe_image(layer_graph *to) {
    const cuda_graph_object w = layer_filter(to), dx = layer_input(to, CUDNN_DATA_FLOAT, true);
    const cuda_graph_object tensors[] = {w, dx, layer_output(to)};
    layer_convolve(to, CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, tensors);
    const cuda_graph_object x = layer_input(to, CUDNN_DATA_HALF, false);
    cuda_graph_object norm[4]; /* mean, invstd, scale, shift */
    for (int i = 0; i < 4; i++)
        norm[i] = layer_channels(to, CUDNN_DATA_FLOAT, to->shape->channels);
    cuda_graph_object of = layer_between(to, CUDNN_POINTWISE_SUB, x, norm[0]);
    of = layer_between(to, CUDNN_POINTWISE_MUL, of, norm[1]);
    of = layer_between(to, CUDNN_POINTWISE_MUL, of, norm[2]);
    of = layer_between(to, CUDNN_POINTWISE_ADD, of, norm[3]);
    const cuda_graph_object dy = layer_input(to, CUDNN_DATA_HALF, false);
    layer_apply(to, CUDNN_POINTWISE_RELU_BWD, of, dx, dy);
    const cuda_graph_object reads[] = {norm[0], norm[1], norm[2], x, dy};
    layer_sum_backward(to, reads);
}

/* A finished graph. */
static cuda_graph *layer_graph_of(cuda_device *device, layer_graph_kind kind,
                                  const layer_shape *shape) {
    layer_graph to = {.shape = shape};
    bool serves;
    CHECK(cuda_graph_create(&to.graph, device));
    assert_non_null(to.graph);
    if (kind == LAYER_NORMED_IMAGE)
        describe_image(&to);
    else if (kind == LAYER_NORMED_FILTER)
        describe_filter(&to);
    else
        describe_forward(&to, kind == LAYER_NORMED_SUMS);
    CHECK(cuda_graph_finish(to.graph, &serves));
    assert_true(serves);
    return to.graph;
}

#endif
