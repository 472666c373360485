/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * What the callbacks of an operation of the host program get (yoke/host_operation.h).
 */
#ifndef YOKE_HOST_CALL_H
#define YOKE_HOST_CALL_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/** An input or a parameter of an operation. Elements are float32 in row-major order: an image's row
 * is [channels, height, width], a sequence's [positions, features]. */
typedef struct yoke_host_value {
    const float *values; /**< An input's [rows, elements]; a parameter's [elements]. */
    float *gradient; /**< Where backward writes its gradient: the same shape, a parameter's the sum
                          over the rows. NULL in forward, and where nobody wants it. */
    size_t elements; /**< Of a row; of the whole parameter. */
} yoke_host_value;

/** A forward or a backward of some rows. On CPU devices pointers are host memory, and the work is
 * finished when the callback returns. On GPUs they are the device's memory, and the callback only
 * queues its work on `stream`. */
typedef struct yoke_host_call {
    size_t struct_size;                /**< sizeof(yoke_host_call) of the library. */
    int rows;                          /**< Of a device's shard: at least 1. */
    bool training;                     /**< Whether a backward follows. */
    int input_count;                   /**< As in the options. */
    const yoke_host_value *inputs;     /**< [input_count] */
    int parameter_count;               /**< As in the options. */
    const yoke_host_value *parameters; /**< [parameter_count] */
    float *output; /**< [rows, output_elements]: forward writes each element, backward may read
                      them. */
    const float *output_gradient; /**< [rows, output_elements]; NULL in forward. */
    size_t output_elements;       /**< Of a row. */
    void *stream;                 /**< A cudaStream_t; NULL on CPU devices. */
} yoke_host_call;

#ifdef __cplusplus
}
#endif

#endif
