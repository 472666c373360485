/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * What devices read of a row beside its values: how stored pixels become inputs (shift, mirror, cut
 * out, normalise), and a second label.
 */
#ifndef YOKE_DECODING_H
#define YOKE_DECODING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** How one image is placed. First output (y, x) takes pixel (y + down, x + right), black beyond the
 * edge; then the image is mirrored; then a box is cut out. All zero: the image as it is. */
typedef struct yoke_placement {
    int32_t down;       /**< Rows of pixels. */
    int32_t right;      /**< Columns of pixels. */
    int32_t cut_top;    /**< First row of the box; the box may reach over the edge. */
    int32_t cut_left;   /**< First column of the box. */
    int32_t cut_height; /**< Rows of the box; 0: none. */
    int32_t cut_width;  /**< Columns of the box. */
    bool flip;          /**< Mirror left and right. */
    bool reflect;       /**< Beyond an edge lie the pixels before it, the edge left out, instead of
                             black: torch's padding mode "reflect". `down` and `right` are then
                             smaller than the image. */
} yoke_placement;

/** Where a row lies in the pixels of a batch whose images have sizes of their own, and how a GPU
 * scales it. Loaders alone make it. */
typedef struct yoke_crop yoke_crop;

/** What the images of a batch have in common: input = (pixel / 255 - mean) / std. Channels
 * past the fourth use the fourth's numbers. */
typedef struct yoke_decoding {
    size_t struct_size; /**< sizeof(yoke_decoding). */
    float mean[4];      /**< [channel] */
    float std[4];       /**< [channel] */
    float cut_value[4]; /**< [channel]: the input inside a placement's box. */
} yoke_decoding;

/** All zero but the size. */
#define YOKE_DECODING_INIT                                                                         \
    {                                                                                              \
        sizeof(yoke_decoding), {0}, {0}, {                                                         \
            0                                                                                      \
        }                                                                                          \
    }

/** A second label of a row, as torchvision's MixUp and CutMix give it: cross-entropy compares with
 * share * onehot(the row's label) + (1 - share) * onehot(this label). */
typedef struct yoke_label_mix {
    int32_t label; /**< 0 <= label < classes. */
    float share;   /**< The share of the row's own label, 0 to 1. */
} yoke_label_mix;

#ifdef __cplusplus
}
#endif

#endif
