/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Types of elements, and the collectives' reductions.
 */
#ifndef YOKE_ELEMENT_H
#define YOKE_ELEMENT_H

#ifdef __cplusplus
extern "C" {
#endif

/** The type of a buffer's elements. */
typedef enum yoke_element {
    YOKE_ELEMENT_FLOAT32,  /**< 4 bytes. */
    YOKE_ELEMENT_BFLOAT16, /**< 2 bytes; reductions compute in float32. */
    YOKE_ELEMENT_INT64,    /**< 8 bytes, signed. */
    YOKE_ELEMENT_FLOAT64,  /**< 8 bytes. */
    YOKE_ELEMENT_INT32,    /**< 4 bytes, signed; of arrays: collectives refuse it. */
    YOKE_ELEMENT_UINT8     /**< 1 byte; likewise. */
} yoke_element;

/** What a reduction computes, element by element. */
typedef enum yoke_reduction {
    YOKE_SUM,  /**< The sum. */
    YOKE_MEAN, /**< The sum divided by the number of ranks. */
    YOKE_MIN,  /**< The smallest. */
    YOKE_MAX   /**< The largest. */
} yoke_reduction;

#ifdef __cplusplus
}
#endif

#endif
