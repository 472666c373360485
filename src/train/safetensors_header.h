/* SPDX-License-Identifier: Apache-2.0 */
/* The header of a safetensors file, for safetensors.c. */
#ifndef TRAIN_SAFETENSORS_HEADER_H
#define TRAIN_SAFETENSORS_HEADER_H

#include "train/safetensors.h"

/* Elements and bytes of a tensor from its shape and type; false if they overflow or are not whole
 * bytes. */
bool yoke_file_tensor_measure(yoke_file_tensor *tensor);

/* Makes room for another entry, in a table that grows to twice its size. MEMORY. */
yoke_status yoke_table_grow(void **table, int count, int *capacity, size_t entry_bytes,
                            const char *what);

/* Reads the JSON of `bytes` in file->header, whose texts become the names and notes, and checks
 * that the tensors cover the bytes behind it. DATA names path, problem and position; the caller
 * closes the file then, too. */
yoke_status yoke_safetensors_read_header(yoke_safetensors *file, size_t bytes);

#endif
