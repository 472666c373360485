/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Views of arrays of the host program.
 */
#ifndef YOKE_ARRAY_H
#define YOKE_ARRAY_H

#include <stdint.h>

#include "yoke/element.h"
#include "yoke/model.h"

#ifdef __cplusplus
extern "C" {
#endif

#define YOKE_ARRAY_DIMENSIONS 6 /**< Of an array, at most. */

/** Whose memory an array is. */
typedef enum yoke_array_place {
    YOKE_ARRAY_HOST, /**< The host's; pinned or not. */
    YOKE_ARRAY_CUDA  /**< A GPU's. */
} yoke_array_place;

/** A view of an array in row-major order, without gaps. Its first dimension counts rows. The memory
 * belongs to the host program and must live until the call that gets the view returns. dlpack.h
 * makes views from DLPack's tensors and back. */
typedef struct yoke_array {
    void *data;                           /**< Calls that read an array do not write to it. */
    yoke_element element;                 /**< The type of an element. */
    yoke_array_place place;               /**< Whose memory it is. */
    int device;                           /**< CUDA: the GPU's number. */
    int ndim;                             /**< 1 to YOKE_ARRAY_DIMENSIONS. */
    int64_t shape[YOKE_ARRAY_DIMENSIONS]; /**< The first ndim count; shape[0] is rows. */
    void *stream; /**< CUDA: the cudaStream_t whose queued work writes the array, or that reads it
                       after the call. NULL: the array is complete before the call. */
} yoke_array;

/** A view of rows on the host with one number or label each: [rows].
 *
 * @param data     The numbers.
 * @param element  Their type.
 * @param rows     How many.
 * @return The view.
 */
static inline yoke_array yoke_array_of_numbers(const void *data, yoke_element element,
                                               int64_t rows) {
    yoke_array array = {(void *)(uintptr_t)data, element, YOKE_ARRAY_HOST, 0, 1, {rows}, 0};
    return array;
}

/** A view of rows on the host: [rows, features], [rows, positions, features] or [rows, channels,
 * height, width].
 *
 * @param data     The rows.
 * @param element  The type of an element.
 * @param rows     How many.
 * @param row      The shape of one.
 * @return The view.
 */
static inline yoke_array yoke_array_of_rows(const void *data, yoke_element element, int64_t rows,
                                            yoke_shape row) {
    yoke_array array = yoke_array_of_numbers(data, element, rows);
    array.ndim = row.flat ? 2 : row.sequence ? 3 : 4;
    array.shape[1] = row.sequence ? row.height : row.channels;
    array.shape[2] = row.sequence ? row.channels : row.height;
    array.shape[3] = row.width;
    return array;
}

#ifdef __cplusplus
}
#endif

#endif
