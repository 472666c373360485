/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Layers over volumes: films, scans. A row has three axes, so that a volume of `depth` planes is an
 * image whose planes lie one below the other, [channels, depth * height, width]: the numbers of
 * PyTorch's [channels, depth, height, width], in the same order. The layers of yoke/model.h that
 * look at single places or whole channels (ReLU, batch norm, a global average pool) read it as it
 * is. Names and first values are PyTorch's.
 */
#ifndef YOKE_VOLUME_H
#define YOKE_VOLUME_H

#include "yoke/elementary.h"

#ifdef __cplusplus
extern "C" {
#endif

/** torch.nn.Conv3d without groups. Triples are for depth, height and width. */
typedef struct yoke_conv3d_options {
    size_t struct_size;      /**< sizeof(yoke_conv3d_options). */
    const char *name;        /**< Prefix of the parameters' names; required. */
    int depth;               /**< Planes of the input; divides its height; required. */
    int out_channels;        /**< Required. */
    int kernel[3];           /**< Required. */
    int stride[3];           /**< 0: 1. */
    int padding[3];          /**< Zeros on each side; of depth less than the kernel. */
    bool no_bias;            /**< Leave the bias out: before a batch norm, say. */
    const char *shared_with; /**< An earlier layer whose parameters this one uses; NULL: its own. */
} yoke_conv3d_options;

/** The defaults; set name, depth, out_channels and kernel. */
#define YOKE_CONV3D_OPTIONS_INIT                                                                   \
    { sizeof(yoke_conv3d_options), NULL, 0, 0, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}, false, NULL }

/** torch.nn.MaxPool3d, AvgPool3d. Triples are for depth, height and width. */
typedef struct yoke_pool3d_options {
    size_t struct_size; /**< sizeof(yoke_pool3d_options). */
    int depth;          /**< Planes of the input; divides its height; required. */
    int kernel[3];      /**< Required. */
    int stride[3];      /**< 0: the kernel. */
    int padding[3];     /**< Places on each side, at most half the kernel. */
} yoke_pool3d_options;

/** The defaults; set depth and kernel. */
#define YOKE_POOL3D_OPTIONS_INIT                                                                   \
    {                                                                                              \
        sizeof(yoke_pool3d_options), 0, {0, 0, 0}, {0, 0, 0}, {                                    \
            0, 0, 0                                                                                \
        }                                                                                          \
    }

/** The planes that a convolution or a pool makes of `depth` planes.
 *
 * @param depth    Planes of the input.
 * @param kernel   In depth.
 * @param stride   In depth; at least 1.
 * @param padding  In depth.
 * @return (depth + 2 * padding - kernel) / stride + 1, rounded down; 0: there is none.
 */
YOKE_API int yoke_volume_depth(int depth, int kernel, int stride, int padding);

/** Adds a convolution over a volume: for each plane of the output a two-dimensional one over the
 * planes that it reads, all with the same parameters. Parameters: NAME.weight [out, in *
 * kernel[0], kernel[1], kernel[2]], the numbers of PyTorch's [out, in, kernel[0], kernel[1],
 * kernel[2]] in the same order, which --init takes too, and NAME.bias [out].
 *
 * @param model    The model.
 * @param input    An image [channels, depth * height, width].
 * @param options  Not NULL.
 * @return [out_channels, depth * height, width], each by PyTorch's rule.
 */
YOKE_API yoke_value yoke_conv3d(yoke_model *model, yoke_value input,
                                const yoke_conv3d_options *options);

/** Adds max pooling over a volume. Padding never wins.
 *
 * @param model    The model.
 * @param input    An image [channels, depth * height, width].
 * @param options  Not NULL.
 * @return [channels, depth * height, width], each by PyTorch's rule.
 */
YOKE_API yoke_value yoke_max_pool3d(yoke_model *model, yoke_value input,
                                    const yoke_pool3d_options *options);

/** Adds average pooling over a volume. Padding counts in the average, as PyTorch's
 * count_include_pad=True.
 *
 * @param model    The model.
 * @param input    An image [channels, depth * height, width].
 * @param options  Not NULL.
 * @return [channels, depth * height, width], each by PyTorch's rule.
 */
YOKE_API yoke_value yoke_average_pool3d(yoke_model *model, yoke_value input,
                                        const yoke_pool3d_options *options);

#ifdef __cplusplus
}
#endif

#endif
