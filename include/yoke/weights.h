/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Files of weights: saving, loading, and what a file says of itself, so that a program which has
 * the file alone can build the model and prepare its inputs.
 */
#ifndef YOKE_WEIGHTS_H
#define YOKE_WEIGHTS_H

#include <stdbool.h>
#include <stddef.h>

#include "yoke/data_parallel.h"
#include "yoke/model.h"
#include "yoke/sink.h"
#include "yoke/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Saves an engine's weights and buffers as safetensors, with PyTorch's names and layout. Where
 * writing fails it waits shortly and tries again, three times in all; it writes nowhere else. A
 * link at the path stays, and the file that it leads to is replaced.
 *
 * @param parallel  The engine.
 * @param model     The engine's model.
 * @param path      The file; it is complete, or what it was before.
 * @return IO: the text names the path and the cause. ARGUMENT: the path is a pipe or a device, or
 *         leads to a file without a name (/proc/self/fd/N of memfd_create, or of a deleted file).
 *         NUMERIC: a value is not finite.
 */
YOKE_API yoke_status yoke_weights_save(yoke_data_parallel *parallel, const yoke_model *model,
                                       const char *path);

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

/** All zero but the size. */
#define YOKE_WEIGHTS_INFO_INIT                                                                     \
    {                                                                                              \
        sizeof(yoke_weights_info), NULL, {0, 0, 0, false, false}, 0, 0, NULL, NULL, {0}, {0}, 0,   \
            false, NULL, NULL, NULL, NULL, NULL                                                    \
    }

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

/** Writes the file of yoke_weights_save_described, or of yoke_weights_save, to a sink: the same
 * bytes. It holds one tensor at a time beside the engine's, and writes once: nothing is tried
 * again.
 *
 * @param parallel  The engine.
 * @param model     The engine's model.
 * @param info      What the file will say. NULL: nothing, as yoke_weights_save.
 * @param sink      Gets the bytes.
 * @return What the sink returns. NUMERIC: a value is not finite; the sink may have got bytes before
 *         it. ARGUMENT: as yoke_weights_save_described.
 */
YOKE_API yoke_status yoke_weights_write(yoke_data_parallel *parallel, const yoke_model *model,
                                        const yoke_weights_info *info, const yoke_sink *sink);

/** Writes an engine's model and weights as a file of ONNX: yoke_model_save_onnx (yoke/onnx.h).
 *
 * @param parallel  The engine.
 * @param model     The engine's model.
 * @param path      The file; it is complete, or what it was before.
 * @return As yoke_model_save_onnx and yoke_data_parallel_read.
 */
YOKE_API yoke_status yoke_weights_save_onnx(yoke_data_parallel *parallel, const yoke_model *model,
                                            const char *path);

/** Writes the file of yoke_weights_save_onnx to a sink: the same bytes.
 *
 * @param parallel  The engine.
 * @param model     The engine's model.
 * @param sink      Gets the bytes.
 * @return As yoke_model_write_onnx and yoke_data_parallel_read.
 */
YOKE_API yoke_status yoke_weights_write_onnx(yoke_data_parallel *parallel, const yoke_model *model,
                                             const yoke_sink *sink);

/** Why yoke_weights_load_partial left a tensor out. */
typedef enum yoke_skip_reason {
    YOKE_SKIP_MISSING = 1, /**< The file lacks it: the model keeps its own values. */
    YOKE_SKIP_SHAPE,       /**< It has another shape in the file: likewise. */
    YOKE_SKIP_NOT_FINITE,  /**< It is not finite in the file: likewise. */
    YOKE_SKIP_UNKNOWN,     /**< The model lacks it. */
    YOKE_SKIP_NEW_HEAD     /**< `new_head` leaves it out: the model keeps its own values. */
} yoke_skip_reason;

/** A tensor that was left out. It lives until the callback returns. */
typedef struct yoke_weights_skip {
    size_t struct_size;      /**< sizeof(yoke_weights_skip) of the library. */
    yoke_skip_reason reason; /**< Why. */
    const char *name;        /**< The tensor's name, without "module.". */
    const char *text;        /**< A line that says so. */
} yoke_weights_skip;

/** Loads an engine's weights and buffers from a safetensors file. A "module." prefix of the names
 * is accepted. It checks every name, shape and value before it changes anything. In DDP, call
 * yoke_data_parallel_broadcast afterwards. It writes tensor by tensor: where other threads
 * predict with the engine meanwhile, a prediction may mix old and new weights. To change the
 * weights under predictors, load into a second engine, then call yoke_data_parallel_copy_weights,
 * which no prediction sees half done.
 *
 * @param parallel  The engine.
 * @param model     The engine's model.
 * @param path      The file.
 * @return MISSING: there is no such file. DATA: the file is malformed, does not fit the model or
 *         has a value that is not finite; the text says where.
 */
YOKE_API yoke_status yoke_weights_load(yoke_data_parallel *parallel, const yoke_model *model,
                                       const char *path);

/** What a file of weights may lack, and have besides. Patterns are the shell's, with commas between
 * them: "fc.*,head.*". */
typedef struct yoke_weights_load_options {
    size_t struct_size;        /**< sizeof(yoke_weights_load_options). */
    const char *allow_missing; /**< These tensors of the model keep their own values if the file
                                    lacks them, or has them in another shape or not finite (a
                                    replaced `fc`). NULL: none. */
    const char *allow_unknown; /**< These tensors of the file are ignored if the model lacks them.
                                    NULL: none. */
    void (*on_skip)(const yoke_weights_skip *skip, void *payload); /**< For each one left out,
                                    before weights change. May be NULL. */
    void *payload;                                                 /**< Passed to on_skip. */
    bool new_head; /**< The head, which is the linear layer that computes the model's first output,
                        keeps its own values, whatever the file has: for fine-tuning on other
                        classes. */
} yoke_weights_load_options;

/** Every tensor must be in the file and in the model. */
#define YOKE_WEIGHTS_LOAD_OPTIONS_INIT                                                             \
    { sizeof(yoke_weights_load_options), NULL, NULL, NULL, NULL, false }

/** Loads what fits, as torch.nn.Module.load_state_dict(strict=False) does, but only where the
 * options allow a difference.
 *
 * @param parallel  The engine.
 * @param model     The engine's model.
 * @param path      The file.
 * @param options   NULL: YOKE_WEIGHTS_LOAD_OPTIONS_INIT.
 * @return As yoke_weights_load; ARGUMENT: a pattern of allow_missing matches no tensor of the
 *         model, or the model has no head for new_head.
 */
YOKE_API yoke_status yoke_weights_load_partial(yoke_data_parallel *parallel,
                                               const yoke_model *model, const char *path,
                                               const yoke_weights_load_options *options);

/** yoke_weights_load_partial from a file's bytes in memory, with the same checks: nothing changes
 * unless all fits. It copies the header and one tensor at a time.
 *
 * @param parallel  The engine.
 * @param model     The engine's model.
 * @param bytes     [count], at any address: a whole file of safetensors. Read until it returns.
 * @param count     Its bytes.
 * @param options   NULL: YOKE_WEIGHTS_LOAD_OPTIONS_INIT.
 * @return As yoke_weights_load_partial; texts name "the bytes in memory".
 */
YOKE_API yoke_status yoke_weights_read(yoke_data_parallel *parallel, const yoke_model *model,
                                       const void *bytes, size_t count,
                                       const yoke_weights_load_options *options);

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

/** yoke_weights_description_open from a file's bytes in memory.
 *
 * @param[out] description  Close it with yoke_weights_description_close. NULL on failure.
 * @param bytes             [count]: a whole file. Read until it returns.
 * @param count             Its bytes.
 * @return As yoke_weights_description_open; texts name "the bytes in memory".
 */
YOKE_API yoke_status yoke_weights_description_read(yoke_weights_description **description,
                                                   const void *bytes, size_t count);

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
