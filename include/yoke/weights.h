/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * What a file of weights says of itself, so that a program which has the file alone can build the
 * model and prepare its inputs.
 */
#ifndef YOKE_WEIGHTS_H
#define YOKE_WEIGHTS_H

#include <stdbool.h>
#include <stddef.h>

#include "yoke/data_parallel.h"
#include "yoke/model.h"
#include "yoke/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The model of a file of weights, and the rows that it was trained on. In a file these are texts
 * in safetensors' `__metadata__`: yoke.model, yoke.classes, yoke.class_names and so on; lists are
 * JSON. A file that PyTorch wrote has none of them. */
typedef struct yoke_weights_info {
    size_t struct_size; /**< sizeof(yoke_weights_info). */
    const char *model;  /**< Preset, with its options; NULL: the file does not say. */
    yoke_shape input;   /**< The shape of one row; 0 channels: the file does not say. */
    int classes;        /**< 0: the model does not classify, or the file does not say. */
    int target_count;   /**< 0: the model is no regression, or the file does not say. */
    const char *const *class_names; /**< [classes], by index; NULL: the classes have no names. */
    const char *dataset;            /**< Its kind: "images", "cifar10", ...; NULL: not said. */
    float mean[4];       /**< As in yoke_dataset_info, with which inputs are normalized; */
    float std[4];        /**< all 0: the file does not say. */
    int resize;          /**< Images: the shorter side before the center crop; 0: not resized. */
    bool exact;          /**< Images: decoded with Pillow's pixels. */
    const char *version; /**< The version of the library that wrote the file;
                              yoke_weights_save_described sets it. NULL: not said. */
    /** Without label smoothing, which training alone has. NULL: the file does not say, or the loss
     * was the host program's own. */
    const yoke_loss_options *loss;
    const char *const *feature_names; /**< [input.channels]: the columns of a table; NULL: none. */
    const float *means; /**< [input.channels], as in yoke_dataset_info; NULL: `mean`. */
    const float *stds;  /**< [input.channels], each above 0; set both or none. */
} yoke_weights_info;

/** yoke_weights_save with a description. The trainer writes one into its files by itself.
 *
 * @param parallel  The engine.
 * @param model     The engine's model.
 * @param info      What the file will say. NULL: nothing, as yoke_weights_save.
 * @param path      The file; it is complete, or what it was before.
 * @return As yoke_weights_save. ARGUMENT: `info` says what yoke_weights_description_open would
 *         refuse, a negative count for example; no file is written.
 */
YOKE_API yoke_status yoke_weights_save_described(yoke_data_parallel *parallel,
                                                 const yoke_model *model,
                                                 const yoke_weights_info *info, const char *path);

/** The description in a file, which may be a checkpoint. */
typedef struct yoke_weights_description yoke_weights_description;

/** Reads the description in a file of weights.
 *
 * @param[out] description  Close it with yoke_weights_description_close. NULL on failure.
 * @param path              The file.
 * @return MISSING: there is no such file. DATA: it is no safetensors file, or its description is
 *         wrong: the text names the entry. For a file of torch.save it has the command that
 * converts the file.
 */
YOKE_API yoke_status yoke_weights_description_open(yoke_weights_description **description,
                                                   const char *path);

/** Closes a description; texts that came from it are gone.
 *
 * @param description  May be NULL.
 */
YOKE_API void yoke_weights_description_close(yoke_weights_description *description);

/** What the file says.
 *
 * @param description  The description.
 * @param[out] info    Set struct_size first. Texts are borrowed from the description.
 * @return ARGUMENT: a pointer or struct_size is wrong.
 */
YOKE_API yoke_status yoke_weights_describe(const yoke_weights_description *description,
                                           yoke_weights_info *info);

/** Compares the tensors of a file with those of a model by name, shape and type. It needs no engine
 * and reads no value, so a program can refuse a file of unknown origin before it allocates memory
 * for the model that the file describes.
 *
 * @param model  A finished model.
 * @param path   The file.
 * @return MISSING: there is no such file. DATA: the file is malformed, or does not fit the model;
 *         the text says where.
 */
YOKE_API yoke_status yoke_weights_check(const yoke_model *model, const char *path);

#ifdef __cplusplus
}
#endif

#endif
