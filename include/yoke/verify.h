/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * What proves a run: training in float64 on the host, to compare an engine with, and files of named
 * tensors, to compare runs of different programs.
 */
#ifndef YOKE_VERIFY_H
#define YOKE_VERIFY_H

#include <stddef.h>
#include <stdint.h>

#include "yoke/data_parallel.h"
#include "yoke/dataset.h"
#include "yoke/model.h"
#include "yoke/optimizer.h"
#include "yoke/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A model that trains in float64, layer by layer as the caller built it, with plain loops on the
 * calling thread: slow, and independent of every kernel of an engine. */
typedef struct yoke_reference yoke_reference;

/** How a reference trains. */
typedef struct yoke_reference_options {
    size_t struct_size; /**< sizeof(yoke_reference_options). */
    int batch;          /**< Rows of the largest batch; required. */
    int shards;    /**< Batch norm normalizes each of so many shards alone, cut by torch.chunk's
                        rule, as an engine on as many devices does; 0: 1. */
    uint64_t seed; /**< Seeds dropout; the engine's seed. */
    const char *freeze_statistics; /**< As yoke_data_parallel_options. */
} yoke_reference_options;

/** The defaults; set batch. */
#define YOKE_REFERENCE_OPTIONS_INIT                                                                \
    { sizeof(yoke_reference_options), 0, 0, 0, NULL }

/** Makes a reference whose tensors are all zero: write each of them before the first step.
 *
 * @param[out] reference  The reference; destroy it with yoke_reference_destroy. NULL on failure.
 * @param model           A finished model; must outlive the reference.
 * @param optimizer       Copied. NULL: YOKE_SGD_OPTIONS_INIT.
 * @param options         Copied; not NULL.
 * @return ARGUMENT: the text names the offending option.
 */
YOKE_API yoke_status yoke_reference_create(yoke_reference **reference, const yoke_model *model,
                                           const yoke_optimizer_options *optimizer,
                                           const yoke_reference_options *options);

/** Destroys a reference.
 *
 * @param reference  May be NULL.
 */
YOKE_API void yoke_reference_destroy(yoke_reference *reference);

/** One update, as yoke_data_parallel_step.
 *
 * @param reference      The reference.
 * @param batch          At most options.batch rows, as inputs.
 * @param learning_rate  As in yoke_data_parallel_step.
 * @param[out] result    Set struct_size first. May be NULL.
 * @return NUMERIC: the loss is not finite; the weights are those before the step.
 */
YOKE_API yoke_status yoke_reference_step(yoke_reference *reference, const yoke_batch *batch,
                                         double learning_rate, yoke_step_result *result);

/** Writes a parameter or buffer, in PyTorch's layout.
 *
 * @param reference  The reference.
 * @param name       Its name in PyTorch's state_dict.
 * @param values     [count]
 * @param count      yoke_tensor_info.count.
 * @return ARGUMENT: there is no such tensor, or the count is wrong.
 */
YOKE_API yoke_status yoke_reference_write(yoke_reference *reference, const char *name,
                                          const double *values, size_t count);

/** Reads a parameter or buffer, in PyTorch's layout.
 *
 * @param reference    The reference.
 * @param name         Its name in PyTorch's state_dict.
 * @param[out] values  [count]
 * @param count        yoke_tensor_info.count.
 * @return As yoke_reference_write.
 */
YOKE_API yoke_status yoke_reference_read(yoke_reference *reference, const char *name,
                                         double *values, size_t count);

/** Reads the last step's gradient of a parameter: before clipping and weight decay.
 *
 * @param reference    The reference.
 * @param name         The parameter's name in PyTorch's state_dict.
 * @param[out] values  [count]
 * @param count        yoke_tensor_info.count.
 * @return As yoke_reference_write; also ARGUMENT for a buffer.
 */
YOKE_API yoke_status yoke_reference_read_gradient(yoke_reference *reference, const char *name,
                                                  double *values, size_t count);

/** What a step of a reference costs: about a nanosecond for each multiplication.
 *
 * @param model  A finished model. NULL: 0.
 * @param rows   Rows of the batch.
 * @return The multiplications in convolutions and linear layers, forward and backward.
 */
YOKE_API double yoke_reference_work(const yoke_model *model, int rows);

/** Named tensors and texts, in memory; a safetensors file on disk. */
typedef struct yoke_tensor_file yoke_tensor_file;

/** The type of a tensor in a file. */
typedef enum yoke_tensor_type {
    YOKE_TENSOR_FLOAT32, /**< safetensors' F32 */
    YOKE_TENSOR_FLOAT64, /**< F64 */
    YOKE_TENSOR_INT32,   /**< I32 */
    YOKE_TENSOR_INT64,   /**< I64 */
    YOKE_TENSOR_OTHER    /**< A type that yoke_tensor_file_read may still read. */
} yoke_tensor_type;

/** A tensor of a file. */
typedef struct yoke_tensor_file_entry {
    size_t struct_size;    /**< sizeof(yoke_tensor_file_entry). */
    const char *name;      /**< Borrowed from the file that was read. */
    yoke_tensor_type type; /**< The type of its values. */
    int ndim;              /**< Number of dimensions, at most 8; 0: a scalar. */
    int64_t shape[8];      /**< The first ndim are used. */
} yoke_tensor_file_entry;

/** All zero but the size. */
#define YOKE_TENSOR_FILE_ENTRY_INIT                                                                \
    {                                                                                              \
        sizeof(yoke_tensor_file_entry), NULL, YOKE_TENSOR_FLOAT32, 0, {                            \
            0                                                                                      \
        }                                                                                          \
    }

/** Begins an empty file.
 *
 * @param[out] file  The file; close it with yoke_tensor_file_close. NULL on failure.
 * @return MEMORY.
 */
YOKE_API yoke_status yoke_tensor_file_create(yoke_tensor_file **file);

/** Reads a safetensors file, and checks all of its header.
 *
 * @param[out] file  The file; close it with yoke_tensor_file_close. NULL on failure.
 * @param path       Where it is.
 * @return MISSING: there is no such file. DATA: it is malformed; the text says where.
 */
YOKE_API yoke_status yoke_tensor_file_open(yoke_tensor_file **file, const char *path);

/** Frees a file; it writes nothing.
 *
 * @param file  May be NULL.
 */
YOKE_API void yoke_tensor_file_close(yoke_tensor_file *file);

/** Adds a tensor to a file that create made.
 *
 * @param file    The file.
 * @param entry   Copied with its name, which no other tensor of the file has.
 * @param values  [product of the shape], of entry.type; copied.
 * @return ARGUMENT: a field is invalid, or the file was read.
 */
YOKE_API yoke_status yoke_tensor_file_add(yoke_tensor_file *file,
                                          const yoke_tensor_file_entry *entry, const void *values);

/** Adds a text to the metadata of a file that create made.
 *
 * @param file   The file.
 * @param key    Copied.
 * @param value  Copied.
 * @return ARGUMENT: the file was read, or has 64 texts.
 */
YOKE_API yoke_status yoke_tensor_file_note(yoke_tensor_file *file, const char *key,
                                           const char *value);

/** Writes a file that create made.
 *
 * @param file  The file.
 * @param path  Complete afterwards, or what it was before.
 * @return IO: the text names the path and the cause. ARGUMENT: two tensors, or two texts, have one
 *         name; or a tensor is `__metadata__`, or a text is `format`, which every file has already;
 *         or the path is a pipe or a device.
 */
YOKE_API yoke_status yoke_tensor_file_save(const yoke_tensor_file *file, const char *path);

/** A text of the metadata of a file that open read.
 *
 * @param file  The file. NULL: NULL.
 * @param key   Its key.
 * @return Borrowed from the file; NULL: there is none.
 */
YOKE_API const char *yoke_tensor_file_noted(const yoke_tensor_file *file, const char *key);

/** Finds a tensor of a file that open read.
 *
 * @param file        The file.
 * @param name        Its name.
 * @param[out] entry  Set struct_size first.
 * @return MISSING: the file has no such tensor.
 */
YOKE_API yoke_status yoke_tensor_file_find(const yoke_tensor_file *file, const char *name,
                                           yoke_tensor_file_entry *entry);

/** Reads the values of a tensor of a file that open read.
 *
 * @param file         The file.
 * @param name         Its name.
 * @param[out] values  [count]; F16, BF16, F32 and F64 are exact.
 * @param count        The product of its shape.
 * @return MISSING: the file has no such tensor. ARGUMENT: the count is wrong. DATA: its type is not
 *         a floating-point number.
 */
YOKE_API yoke_status yoke_tensor_file_read(const yoke_tensor_file *file, const char *name,
                                           double *values, size_t count);

#ifdef __cplusplus
}
#endif

#endif
