/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * What a model is made of: layers, tensors and the segments of its backward.
 */
#ifndef YOKE_MODEL_INFO_H
#define YOKE_MODEL_INFO_H

#include "yoke/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Layers of a model that compute: the calls of a forward written in Python.
 *
 * @param model  A finished model. NULL: 0.
 * @return At least 1.
 */
YOKE_API int yoke_model_layer_count(const yoke_model *model);

/** A segment of backward: it ends where a bucket of gradients is complete. */
typedef struct yoke_model_segment {
    size_t bytes;           /**< The size of the bucket. */
    double multiplications; /**< In a forward of one row, by the convolutions and linear layers
                                 whose weights are in the bucket; backward takes twice as many. */
} yoke_model_segment;

/** The segments of a model on devices that keep weights as PyTorch does, as GPUs do, without a
 * device: the first bucket has 1 MiB, as in the engine.
 *
 * @param model          A finished model.
 * @param bucket_bytes   The size of every other bucket; 0: 4 MiB. On GPUs the engine takes 25 MiB.
 * @param[out] segments  In the order of backward; may be NULL with capacity 0.
 * @param capacity       The number of segments there is space for.
 * @param[out] count     The number of segments; the first `capacity` of them were written.
 * @return ARGUMENT: a pointer is NULL.
 */
YOKE_API yoke_status yoke_model_segments(const yoke_model *model, size_t bucket_bytes,
                                         yoke_model_segment *segments, int capacity, int *count);

/** A layer of a model, as it was added: before anything is fused. */
typedef struct yoke_layer_info {
    size_t struct_size;      /**< sizeof(yoke_layer_info). */
    const char *name;        /**< "layer1.0.conv1", or kind and place: "relu.7"; borrowed. */
    const char *kind;        /**< "conv2d", "batch_norm", ...; static. */
    yoke_shape output;       /**< The shape of one row. */
    size_t parameters;       /**< Trainable scalars; those of an earlier layer count there. */
    double flops;            /**< In a forward of one row: a multiplication and an addition are two.
                                  Convolution, linear, attention (causal or not): products and
                                  bias; norms: 2 for each element; pooling: the taps of all windows;
                                  dropout, embedding of tokens and what only moves values: 0; others:
                                  1 for each element. */
    size_t activation_bytes; /**< The output of one row takes them, in float32. */
} yoke_layer_info;

/** All zero but the size. */
#define YOKE_LAYER_INFO_INIT                                                                       \
    { sizeof(yoke_layer_info), NULL, NULL, {0, 0, 0, false, false}, 0, 0, 0 }

/** Describes a layer that computes.
 *
 * @param model      A finished model.
 * @param index      Counted from 0, in topological order; below yoke_model_layer_count.
 * @param[out] info  Set struct_size first.
 * @return ARGUMENT: there is no such layer, the model is not finished, or a pointer or struct_size
 *         is wrong.
 */
YOKE_API yoke_status yoke_model_describe_layer(const yoke_model *model, int index,
                                               yoke_layer_info *info);

/** A tensor of a model, with PyTorch's name and shape. */
typedef struct yoke_tensor_info {
    size_t struct_size; /**< sizeof(yoke_tensor_info). */
    const char *name;   /**< Borrowed from the model. */
    int ndim;           /**< Number of dimensions; 0: a scalar. */
    int64_t shape[4];   /**< The first ndim are used. */
    size_t count;       /**< Elements. */
    bool trainable;     /**< A parameter; otherwise a buffer (running statistics). */
    bool integer;       /**< num_batches_tracked: one scalar, int64 in files. */
} yoke_tensor_info;

/** All zero but the size. */
#define YOKE_TENSOR_INFO_INIT                                                                      \
    { sizeof(yoke_tensor_info), NULL, 0, {0}, 0, false, false }

/** The number of tensors: parameters and buffers.
 *
 * @param model  The model. NULL: 0.
 * @return The count.
 */
YOKE_API int yoke_model_tensor_count(const yoke_model *model);

/** Describes a tensor.
 *
 * @param model      The model.
 * @param index      Position in the order of PyTorch's state_dict, counted from 0.
 * @param[out] info  Set struct_size first.
 * @return ARGUMENT: there is no such tensor, or a pointer or struct_size is wrong.
 */
YOKE_API yoke_status yoke_model_tensor(const yoke_model *model, int index, yoke_tensor_info *info);

#ifdef __cplusplus
}
#endif

#endif
