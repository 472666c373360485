/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Models from and to files of ONNX (onnx.ai), with their weights: networks that PyTorch, Keras and
 * others export are trained here, and what was trained runs wherever ONNX does. docs/onnx.md has
 * the operators.
 */
#ifndef YOKE_ONNX_H
#define YOKE_ONNX_H

#include "yoke/model.h"
#include "yoke/sink.h"

#ifdef __cplusplus
extern "C" {
#endif

/** How to read a file. */
typedef struct yoke_onnx_options {
    size_t struct_size; /**< sizeof(yoke_onnx_options). */
    yoke_shape input;   /**< The rows of the first input; sizes that the file leaves open come from
                             here. 0 channels: the file's. A vector in the place of an image of as
                             many numbers, and the other way, is taken. */
    int outputs;        /**< What the first output must have: classes. 0: the file's. */
    const yoke_loss_options *loss; /**< NULL: YOKE_LOSS_OPTIONS_INIT. */
    const char *name;              /**< Of the model; NULL: the path, or "model" of bytes. */
} yoke_onnx_options;

/** What the file says. */
#define YOKE_ONNX_OPTIONS_INIT                                                                     \
    { sizeof(yoke_onnx_options), {0, 0, 0, false, false}, 0, NULL, NULL }

/** Reads a model. Engines of it begin with the file's weights and running statistics; names, shapes
 * and what is shared are the file's. Dimension 0 of inputs is the batch, which stays free. Weights
 * may lie in other files of the same folder, to which no link leads; nothing else is read.
 *
 * Initializers of layers, and those of arithmetic unless an exporter made up their names, are
 * parameters. Whole numbers and what the graph computes of constants alone are constants. Where the
 * loss is cross-entropy, classes are dimension 1 of the first output and become the last, as in
 * PyTorch.
 *
 * @param[out] model  The finished model; NULL on failure.
 * @param path        The file: operators of set 13 or newer.
 * @param options     NULL: YOKE_ONNX_OPTIONS_INIT.
 * @return MISSING, IO: the file or one beside it cannot be read. DATA: it is malformed. ARGUMENT:
 * it has an operator that Yoke lacks, or asks of one what Yoke does not do; the text names operator
 * and node. DEVICE: this build has no ONNX; the text says how to get it.
 */
YOKE_API yoke_status yoke_model_load_onnx(yoke_model **model, const char *path,
                                          const yoke_onnx_options *options);

/** yoke_model_load_onnx from a file's bytes in memory, which has all weights itself: DATA if it
 * names other files.
 *
 * @param[out] model  The finished model; NULL on failure.
 * @param bytes       [count], a whole file. Read until it returns.
 * @param count       Its bytes.
 * @param options     NULL: YOKE_ONNX_OPTIONS_INIT.
 * @return As yoke_model_load_onnx; texts name "the bytes in memory".
 */
YOKE_API yoke_status yoke_model_read_onnx(yoke_model **model, const void *bytes, size_t count,
                                          const yoke_onnx_options *options);

/** Where weights come from: fills `values` with [count] floats of tensor `index`, as
 * yoke_model_tensor counts them. An error ends the writing. */
typedef yoke_status (*yoke_onnx_weights)(void *payload, int index, float *values, size_t count);

/** Writes a model for inference: operators of set 17, float32, the batch a free dimension. Tensors
 * have their names. Dropout is left out, and batch norms use the running statistics. Token ids are
 * int64. yoke_weights_save_onnx writes an engine's weights.
 *
 * @param model    A finished model.
 * @param weights  Called for every tensor but num_batches_tracked; NULL: the weights with which a
 *                 model from a file begins.
 * @param payload  Passed to weights.
 * @param path     The file; it is complete, or what it was before.
 * @return IO: the text names path and cause. ARGUMENT: a layer has no form in ONNX, as an operation
 *         of the host program; `weights` is NULL, and the model has none; or it has more than 2 GB.
 *         DEVICE: this build has no ONNX.
 */
YOKE_API yoke_status yoke_model_save_onnx(const yoke_model *model, yoke_onnx_weights weights,
                                          void *payload, const char *path);

/** Writes the file of yoke_model_save_onnx to a sink: the same bytes. yoke_weights_write_onnx
 * writes an engine's weights.
 *
 * @param model    A finished model.
 * @param weights  As in yoke_model_save_onnx; NULL: the weights with which a model from a file
 *                 begins.
 * @param payload  Passed to weights.
 * @param sink     Gets the bytes.
 * @return What the sink returns; ARGUMENT and DEVICE as yoke_model_save_onnx.
 */
YOKE_API yoke_status yoke_model_write_onnx(const yoke_model *model, yoke_onnx_weights weights,
                                           void *payload, const yoke_sink *sink);

#ifdef __cplusplus
}
#endif

#endif
