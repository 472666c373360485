/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Convolutions beside yoke_conv2d: over sequences, transposed ones, and pixels made of channels.
 * Names, shapes and first values are PyTorch's.
 */
#ifndef YOKE_CONVOLUTION_H
#define YOKE_CONVOLUTION_H

#include "yoke/elementary.h"

#ifdef __cplusplus
extern "C" {
#endif

/** torch.nn.Conv1d. */
typedef struct yoke_conv1d_options {
    size_t struct_size;      /**< sizeof(yoke_conv1d_options). */
    const char *name;        /**< Prefix of the parameters' names; required. */
    int out_channels;        /**< Features of the output; required. */
    int kernel;              /**< Positions that a kernel covers; required. */
    int stride;              /**< 0: 1. */
    int padding;             /**< Zeros added before and behind. */
    int groups;              /**< 0: 1. */
    bool no_bias;            /**< Leave the bias out. */
    const char *shared_with; /**< An earlier layer whose parameters this one uses; NULL: its own. */
    int dilation;            /**< Positions from one tap to the next; 0: 1. */
} yoke_conv1d_options;

/** The defaults; set name, out_channels and kernel. */
#define YOKE_CONV1D_OPTIONS_INIT                                                                   \
    { sizeof(yoke_conv1d_options), NULL, 0, 0, 0, 0, 0, false, NULL, 0 }

/** torch.nn.ConvTranspose2d. */
typedef struct yoke_conv_transpose2d_options {
    size_t struct_size;      /**< sizeof(yoke_conv_transpose2d_options). */
    const char *name;        /**< Prefix of the parameters' names; required. */
    int out_channels;        /**< Required. */
    int kernel;              /**< Side of the kernel, or its height; required. */
    int stride;              /**< Pixels of the output for one of the input; 0: 1. */
    int padding;             /**< Pixels that each side of the output loses. */
    int output_padding;      /**< Pixels that the output gains below and on the right; less than
                                  the stride. */
    int groups;              /**< 0: 1. */
    bool no_bias;            /**< Leave the bias out: before a batch norm, say. */
    const char *shared_with; /**< An earlier layer whose parameters this one uses; NULL: its own. */
    int dilation;            /**< Pixels from one tap to the next; 0: 1. */
    int kernel_width;        /**< 0: kernel. */
    int stride_width;        /**< 0: stride. */
    int padding_width;       /**< 0: none if kernel_width is given, otherwise padding. */
    int output_padding_width; /**< 0: none if kernel_width is given, otherwise output_padding. */
    int dilation_width;       /**< 0: dilation. */
} yoke_conv_transpose2d_options;

/** The defaults; set name, out_channels and kernel. */
#define YOKE_CONV_TRANSPOSE2D_OPTIONS_INIT                                                         \
    { sizeof(yoke_conv_transpose2d_options), NULL, 0, 0, 0, 0, 0, 0, false, NULL, 0, 0, 0, 0, 0, 0 }

/** Adds a convolution over the positions of a sequence. Parameters: NAME.weight [out, in / groups,
 * kernel], NAME.bias [out]. PyTorch's Conv1d reads and writes the same numbers as [features,
 * positions].
 *
 * @param model    The model.
 * @param input    A sequence [positions, features].
 * @param options  Not NULL.
 * @return A sequence [positions by PyTorch's rule, out_channels].
 */
YOKE_API yoke_value yoke_conv1d(yoke_model *model, yoke_value input,
                                const yoke_conv1d_options *options);

/** Adds a transposed convolution: what backward of a convolution with these options computes for
 * its input (Zeiler et al. 2010; Dumoulin and Visin 2016). Parameters: NAME.weight [in, out /
 * groups, kernel, kernel_width], NAME.bias [out].
 *
 * @param model    The model.
 * @param input    An image.
 * @param options  Not NULL.
 * @return [out_channels, height, width]; each side is (side - 1) * stride - 2 * padding + dilation
 *         * (kernel - 1) + output_padding + 1.
 */
YOKE_API yoke_value yoke_conv_transpose2d(yoke_model *model, yoke_value input,
                                          const yoke_conv_transpose2d_options *options);

/** torch.nn.PixelShuffle (Shi et al. 2016): factor * factor channels become the pixels of a square.
 * It only moves elements.
 *
 * @param model   The model.
 * @param input   An image [channels * factor * factor, height, width].
 * @param factor  1 to 1024.
 * @return [channels, height * factor, width * factor].
 */
YOKE_API yoke_value yoke_pixel_shuffle(yoke_model *model, yoke_value input, int factor);

/** torch.nn.PixelUnshuffle: undoes yoke_pixel_shuffle.
 *
 * @param model   The model.
 * @param input   An image [channels, height, width]; factor divides its height and width.
 * @param factor  1 to 1024.
 * @return [channels * factor * factor, height / factor, width / factor].
 */
YOKE_API yoke_value yoke_pixel_unshuffle(yoke_model *model, yoke_value input, int factor);

#ifdef __cplusplus
}
#endif

#endif
