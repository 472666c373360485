/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Models by name: torchvision's and others, with options behind the name.
 */
#ifndef YOKE_PRESET_H
#define YOKE_PRESET_H

#include "yoke/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Builds a well-known model. mlp: 784-1024-1024-10 for 1x28x28 and 10 classes; takes any input.
 * mlp-dropout: mlp with dropout of 0.5 behind each ReLU, as in Srivastava et al. 2014. resnet18,
 * resnet34, resnet50, resnext50, vgg11_bn, mobilenet_v2, densenet121, efficientnet_b0,
 * convnext_tiny: torchvision's; ResNets with -cifar: 3x3 stem, no max pool (kuangliu's). resnet20,
 * resnet32, resnet44, resnet56: He et al. 2015, section 4.2, with option B shortcuts.
 *
 * gpt2: GPT-2 with the names and shapes of openai-community/gpt2, for rows of token ids and a label
 * for each; classes are its vocabulary. GPT-2 itself is
 * "gpt2:layers=12,width=768,heads=12,context=1024"; without `context` it has an embedding for each
 * position of a row.
 *
 * NET.onnx: a model from a file, with its weights (yoke_model_load_onnx); an input of 0 channels
 * and 0 classes are the file's.
 *
 * Options may follow the name: "mlp:width=256,dropout=0.5". yoke_model_preset_describe lists them.
 *
 * @param[out] model  The finished model; NULL on failure.
 * @param name        The preset, with options or without; also the name of the model.
 * @param input       The shape of its rows.
 * @param classes     Length of the output.
 * @param loss        NULL: YOKE_LOSS_OPTIONS_INIT.
 * @return ARGUMENT: the name or an option is unknown, and the text names the nearest one; an
 *         option's value is out of range; or the input does not fit the preset.
 */
YOKE_API yoke_status yoke_model_preset(yoke_model **model, const char *name, yoke_shape input,
                                       int classes, const yoke_loss_options *loss);

/** The name of a preset.
 *
 * @param index  Counted from 0.
 * @return NULL past the last one; static.
 */
YOKE_API const char *yoke_model_preset_name(int index);

#define YOKE_PRESET_OPTIONS_LIMIT 8 /**< Options of a preset, at most. */

/** An option of a preset. */
typedef struct yoke_preset_setting {
    const char *name; /**< "width"; static. */
    double value;     /**< The default. */
} yoke_preset_setting;

/** What a preset is. */
typedef struct yoke_preset_info {
    size_t struct_size;  /**< sizeof(yoke_preset_info). */
    const char *name;    /**< "resnet18"; static. */
    const char *summary; /**< One line; static. */
    yoke_shape input;    /**< The rows that the preset was published for. */
    int classes;         /**< Likewise. */
    int option_count;    /**< How many of the options are used. */
    yoke_preset_setting options[YOKE_PRESET_OPTIONS_LIMIT]; /**< With their defaults. */
} yoke_preset_info;

/** All zero but the size. */
#define YOKE_PRESET_INFO_INIT                                                                      \
    {                                                                                              \
        sizeof(yoke_preset_info), NULL, NULL, {0, 0, 0, false, false}, 0, 0, {                     \
            { NULL, 0 }                                                                            \
        }                                                                                          \
    }

/** Describes a preset.
 *
 * @param index      Counted from 0.
 * @param[out] info  Set struct_size first.
 * @return ARGUMENT: there is no such preset, or a pointer or struct_size is wrong.
 */
YOKE_API yoke_status yoke_model_preset_describe(int index, yoke_preset_info *info);

#ifdef __cplusplus
}
#endif

#endif
