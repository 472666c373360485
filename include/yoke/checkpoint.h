/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Checkpoints: one safetensors file with all that a run needs to go on bit for bit. Weights and
 * buffers have PyTorch's names, the optimizer's state those of its state_dict, as in
 * `optimizer.fc.weight.momentum_buffer`. XXH3 digests cover every byte. docs/checkpoints.md
 * describes the file.
 */
#ifndef YOKE_CHECKPOINT_H
#define YOKE_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "yoke/data_parallel.h"
#include "yoke/sink.h"
#include "yoke/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Saves an engine's state between two steps: weights, buffers, the optimizer's state, the number
 * of steps, and the options that decide what the next steps compute. Random numbers are keyed by
 * seed, step and row: those are their whole state. In DDP all ranks call it together, and rank 0
 * writes.
 *
 * @param parallel  The engine.
 * @param path      The file; it is complete and on the disk, or what it was before.
 * @return IO: the text names the path and the cause. ARGUMENT: as yoke_weights_save. NUMERIC: a
 *         value is not finite.
 */
YOKE_API yoke_status yoke_state_save(yoke_data_parallel *parallel, const char *path);

/** Writes the file of yoke_state_save to a sink: the same bytes. In DDP all ranks call it together,
 * and rank 0's sink alone gets the bytes.
 *
 * @param parallel  The engine.
 * @param sink      Gets the bytes.
 * @return What the sink returns. NUMERIC: a value is not finite; the sink has got nothing.
 */
YOKE_API yoke_status yoke_state_write(yoke_data_parallel *parallel, const yoke_sink *sink);

/** Loads the state of an engine with the same model and optimizer; the number of devices and the
 * schedule may differ. The next step is the one that would have followed. In DDP all ranks call it
 * together: rank 0 reads, and all receive. Nothing changes unless the whole file fits.
 *
 * @param parallel  The engine.
 * @param path      The file.
 * @param anyway    Options that may differ from those of the file: names as in the error's text,
 *                  with commas between them. NULL or "": none.
 * @return MISSING: there is no such file. DATA: the file is damaged, or has the state of another
 *         model. ARGUMENT: options differ, and the text has both values; or `anyway` has an unknown
 *         name, and the text has all names.
 */
YOKE_API yoke_status yoke_state_load(yoke_data_parallel *parallel, const char *path,
                                     const char *anyway);

/** yoke_state_load from a file's bytes in memory, with the same checks. In DDP all ranks call it
 * together: rank 0's bytes are read, and all receive.
 *
 * @param parallel  The engine.
 * @param bytes     [count], at any address: a whole file. Only rank 0 looks at it.
 * @param count     Its bytes.
 * @param anyway    As in yoke_state_load. NULL or "": none.
 * @return As yoke_state_load; texts name "the bytes in memory".
 */
YOKE_API yoke_status yoke_state_read(yoke_data_parallel *parallel, const void *bytes, size_t count,
                                     const char *anyway);

/** A checkpoint that was read and verified. */
typedef struct yoke_checkpoint yoke_checkpoint;

/** Opens a checkpoint and compares every digest. The file stays open, and its tensors on the disk:
 * memory holds the header and at most one tensor at a time, as with every file of weights. A state
 * that another program wrote, PyTorch for example, has none: its fact `yoke.format` is `unsealed`.
 *
 * @param[out] checkpoint  The checkpoint; close it with yoke_checkpoint_close. NULL on failure.
 * @param path             The file.
 * @return MISSING: there is no such file. DATA: it is no checkpoint, cut off or altered; the text
 *         names the offset.
 */
YOKE_API yoke_status yoke_checkpoint_open(yoke_checkpoint **checkpoint, const char *path);

/** Closes a checkpoint.
 *
 * @param checkpoint  May be NULL.
 */
YOKE_API void yoke_checkpoint_close(yoke_checkpoint *checkpoint);

/** The facts that a checkpoint states beside its tensors: `step`, `epoch`, `config.batch` and so
 * on.
 *
 * @param checkpoint  The checkpoint.
 * @param index       From 0.
 * @param[out] key    The name; borrowed from the checkpoint.
 * @param[out] value  The value; borrowed from the checkpoint.
 * @return false: there are no more.
 */
YOKE_API bool yoke_checkpoint_fact(const yoke_checkpoint *checkpoint, int index, const char **key,
                                   const char **value);

/** A tensor of a checkpoint. */
typedef struct yoke_checkpoint_tensor_info {
    size_t struct_size; /**< sizeof(yoke_checkpoint_tensor_info). */
    const char *name;   /**< Borrowed from the checkpoint. */
    const char *dtype;  /**< "F32", "I64". */
    int ndim;           /**< Number of dimensions; 0: a scalar. */
    int64_t shape[8];   /**< The first ndim are used. */
    size_t count;       /**< Elements. */
    size_t offset;      /**< Where its first byte is in the file. */
    size_t bytes;       /**< In the file. */
    const char *digest; /**< XXH3-64 of its bytes, 16 hexadecimal digits; NULL in a file that
                           another program wrote without digests. */
} yoke_checkpoint_tensor_info;

/** All zero but the size. */
#define YOKE_CHECKPOINT_TENSOR_INFO_INIT                                                           \
    { sizeof(yoke_checkpoint_tensor_info), NULL, NULL, 0, {0}, 0, 0, 0, NULL }

/** Describes a tensor.
 *
 * @param checkpoint  The checkpoint.
 * @param index       From 0, in the order of the file.
 * @param[out] info   Set struct_size first.
 * @return ARGUMENT: there are fewer tensors.
 */
YOKE_API yoke_status yoke_checkpoint_tensor(const yoke_checkpoint *checkpoint, int index,
                                            yoke_checkpoint_tensor_info *info);

/** Reads the bytes of a tensor from the file, packed and little-endian.
 *
 * @param checkpoint  The checkpoint.
 * @param index       From 0, in the order of the file.
 * @param[out] bytes  [count]
 * @param count       The tensor's yoke_checkpoint_tensor_info.bytes.
 * @return ARGUMENT: the index, or the count, is wrong. IO: the file cannot be read any more.
 */
YOKE_API yoke_status yoke_checkpoint_bytes(const yoke_checkpoint *checkpoint, int index,
                                           void *bytes, size_t count);

/** Reads the values of a tensor of floats from the file.
 *
 * @param checkpoint   The checkpoint.
 * @param index        From 0, in the order of the file.
 * @param[out] values  [count], in PyTorch's order.
 * @param count        The tensor's.
 * @return ARGUMENT: the index, or the count, is wrong. DATA: the tensor has integers. IO: the file
 *         cannot be read any more.
 */
YOKE_API yoke_status yoke_checkpoint_values(const yoke_checkpoint *checkpoint, int index,
                                            float *values, size_t count);

#ifdef __cplusplus
}
#endif

#endif
