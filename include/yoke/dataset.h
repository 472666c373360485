/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Rows to train on: files in well-known formats, drawn images, arrays or callbacks of the host
 * program; and the loader that makes batches of them.
 */
#ifndef YOKE_DATASET_H
#define YOKE_DATASET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "yoke/decoding.h"
#include "yoke/device.h"
#include "yoke/model.h"
#include "yoke/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Rows in a fixed order. Read-only once it is open, so threads may share it. */
typedef struct yoke_dataset yoke_dataset;

/** The part of a dataset. No row is in both. */
typedef enum yoke_split {
    YOKE_SPLIT_TRAIN, /**< The rows to train on. */
    YOKE_SPLIT_TEST   /**< The rows to evaluate on. */
} yoke_split;

/** Opens a dataset by its SPEC:
 *
 * - `cifar10:DIR`: data_batch_1..5.bin and test_batch.bin (records of 3073 bytes). Training reads
 *   the data_batch files that exist, in order; the first must.
 * - `cifar100:DIR`: train.bin and test.bin (records of 3074 bytes; fine labels)
 * - `mnist:DIR`: {train,t10k}-{images-idx3,labels-idx1}-ubyte, also as .gz
 * - `images:DIR[,size=N][,resize=N][,validation=X][,decode=scaled|exact][,crop=gpu|cpu]`: JPEG and
 *   PNG files, a folder for each class, in DIR/train and DIR/val (or test, validation, valid);
 *   without those, in DIR, and the test split is a tenth of each class, or X. Rows are size x size
 *   pixels, 224; the shorter side is resized to N, 8 / 7 of that, and the center cut out, but see
 *   YOKE_AUGMENT_RESIZED_CROP_FLIP. Means and stds are ImageNet's. `exact` gives Pillow's
 *   pixels; `scaled`, the default, decodes a JPEG at a half, a fourth or an eighth of its size
 *   where that leaves enough pixels. GPUs crop and scale rows themselves, with the CPU's pixels;
 *   with `crop=cpu` the CPU does it for them. Loader threads read the files while the engine
 *   computes.
 * - `text:FILE[,context=N][,validation=X][,tokenizer=PATH]`: a file of bytes. With a tokenizer
 *   (yoke/tokenizer.h) all its tokens are classes; otherwise a token is a byte that occurs in the
 *   file; class_names has its character, or "\\x0a". A row is a window of N tokens, 128, and each
 *   has the next one for a label. The last tenth, or X, of the file is the test split, cut to whole
 *   windows, so that each byte is a label once. An epoch reads the rest once, in windows that begin
 *   elsewhere in each epoch.
 * - `pairs:FILE[,context=N][,validation=X]`: lines SOURCE, tab, TARGET: a text and what it becomes.
 *   A token is a byte that occurs in the file, behind `<pad>`, `<begin>` and `<end>`. A row has the
 *   inputs "input", the source; "source_length"; "target", `<begin>` and the target; and
 *   "target_length". Labels are the target and `<end>`. Each has N positions, as many as the
 *   longest line needs; behind the end are `<pad>` and YOKE_NO_LABEL. The test split is a tenth of
 *   the lines, or X.
 * - `npy:X.npy,Y.npy[,test=X.npy,Y.npy][,validation=X][,channels=first]`: arrays as numpy.save
 *   writes them. X: uint8 [rows, channels, height, width], [rows, height, width] or [rows,
 *   features], pixels that the loader normalizes with their mean and std; or float32, used as
 *   it is, from the mapped file; or float64, which becomes float32 in memory. Y: integers [rows],
 *   the classes; or floats [rows] or [rows, targets], for regression. The test split is a tenth of
 *   each class, or X, or the other files; of `npy:X.npy` alone it is all rows, without labels, for
 *   predictions. No file may become shorter while it is open.
 * - `npz:FILE.npz[,x=NAME,y=NAME][,input=NAME]...[,test=FILE.npz][,validation=X][,channels=first]`:
 * the same from an archive of numpy.savez or savez_compressed: arrays x and y, X and Y, X and y,
 * arr_0 and arr_1; or x_train, y_train, x_test and y_test; or train_images, train_labels,
 * test_images and test_labels. `npz:FILE.npz,x=NAME` alone has rows to predict. Each `input=NAME`
 * is the array of one more input, for the model's input of that name; beside x_train and x_test it
 * is NAME_train and NAME_test. Integers in X are tokens, and Y may then have a label for each:
 * [rows, positions].
 * - `csv:FILE,label=COLUMN[,ignore=COLUMN]...[,test=FILE][,validation=X]`: a first line with the
 *   names of the columns, then rows. Labels are words or whole numbers, the other columns numbers,
 *   normalized with the mean and std of the training rows. `target=COLUMN` instead of
 *   `label`: numbers, for regression. `csv:FILE` alone, with neither: its test split is all rows,
 *   without labels, for predictions.
 * - `synthetic[:CxHxW[,classes=N][,rows=N]]`: shapes and textures that Yoke draws. Default:
 *   3x32x32,classes=10,rows=5000; the test split has a fifth of the rows.
 *
 * @param[out] dataset  The dataset; close it with yoke_dataset_close. NULL on failure.
 * @param spec          The SPEC.
 * @param split         The part to open.
 * @return MISSING: files are missing; the text names them. DATA: a size or label is invalid; the
 *         text names file and byte offset. ARGUMENT: the SPEC is malformed.
 */
YOKE_API yoke_status yoke_dataset_open(yoke_dataset **dataset, const char *spec, yoke_split split);

/** A label that says: none here. It is PyTorch's ignore_index: with
 * yoke_loss_options.ignore_index of this number the row or position has no loss and counts nowhere.
 * Positions behind the end of a short row have it. */
#define YOKE_NO_LABEL (-100)

/** Keeps `rows` rows at most: the same ones in every run and on every rank, drawn by torch.randperm
 * with seed 0, in the order in which they are stored; of a row stream the first ones of each pass.
 * Call it before a loader reads the dataset.
 *
 * @param dataset  The dataset.
 * @param rows     At least 1; more than the dataset has: nothing happens.
 * @return ARGUMENT: `dataset` is NULL, `rows` 0, or there is a loader of it.
 */
YOKE_API yoke_status yoke_dataset_limit(yoke_dataset *dataset, size_t rows);

/** A row whose file cannot be read. It lives until the callback returns. */
typedef struct yoke_bad_row {
    size_t struct_size; /**< sizeof(yoke_bad_row) of the library. */
    size_t row;         /**< Its number before any row was left out. */
    const char *text;   /**< The file's name, a colon and what is wrong with it. */
} yoke_bad_row;

/** Reads every file of `images` once and leaves out the rows whose file cannot be decoded. Other
 * formats have no such rows. Call it before a loader reads the dataset, and on every rank.
 *
 * @param dataset  The dataset.
 * @param threads  That read files; 0: one per core, at most 64.
 * @param on_bad   Called for each such row, in their order, by the calling thread; may be NULL.
 * @param payload  Passed to on_bad.
 * @return DATA: no file can be read. ARGUMENT: `dataset` is NULL, `threads` out of range, or there
 * is a loader of it. MEMORY.
 */
YOKE_API yoke_status yoke_dataset_skip_bad(yoke_dataset *dataset, int threads,
                                           void (*on_bad)(const yoke_bad_row *bad, void *payload),
                                           void *payload);

/** Closes a dataset. Loaders that read it must be destroyed first.
 *
 * @param dataset  May be NULL.
 */
YOKE_API void yoke_dataset_close(yoke_dataset *dataset);

/** A dataset's rows. */
typedef struct yoke_dataset_info {
    size_t struct_size; /**< sizeof(yoke_dataset_info). */
    const char *name;   /**< "cifar10", "synthetic", "arrays", ...; borrowed. */
    size_t rows;        /**< Rows of this split; 0: a row stream, which does not say. */
    yoke_shape shape;   /**< The shape of one row. */
    int classes;        /**< 0: regression. */
    int target_count;   /**< Regression targets per row. */
    /** [channel]: the mean of values in 0..1, for normalization. Well-known datasets have published
     * numbers, pixels of the host program are measured, its inputs have 0. Channels past the fourth
     * use the fourth's. */
    float mean[4];
    float std[4]; /**< [channel]: the standard deviation, likewise; inputs have 1. */
    /** [classes], borrowed from the dataset. NULL: it has no names. Those of `images` are its
     * folders, of `csv` the values of its column, of CIFAR the archive's (batches.meta.txt or
     * fine_label_names.txt, where it has a line for each class), of `text` characters. */
    const char *const *class_names;
    int label_count; /**< Labels of a row; 0: regression. */
    const char *const
        *feature_names; /**< [channels], borrowed: the columns of `csv`; NULL: none. */
    int resize; /**< `images`: the shorter side before the center is cut out; 0: other rows. */
    bool exact; /**< `images`: decode=exact. */
    /** [channels], borrowed: the means that the columns of `csv` have over the training rows, with
     * which they are normalized instead of `mean`. NULL: other rows. */
    const float *means;
    const float *stds; /**< [channels], likewise. */
    int input_count;   /**< Inputs of a row; yoke_dataset_describe_input tells of each. */
    bool unlabelled;   /**< Some labels are YOKE_NO_LABEL. Of rows that a callback makes, this is
                            not known: false. */
} yoke_dataset_info;

/** All zero but the size. */
#define YOKE_DATASET_INFO_INIT                                                                     \
    {                                                                                              \
        sizeof(yoke_dataset_info), NULL, 0, {0, 0, 0, false, false}, 0, 0, {0}, {0}, NULL, 0,      \
            NULL, 0, false, NULL, NULL, 0, false                                                   \
    }

/** Describes a dataset.
 *
 * @param dataset    The dataset.
 * @param[out] info  Set struct_size first.
 * @return ARGUMENT: a pointer or struct_size is wrong.
 */
YOKE_API yoke_status yoke_dataset_describe(const yoke_dataset *dataset, yoke_dataset_info *info);

/** Describes an input of a dataset's rows.
 *
 * @param dataset    The dataset.
 * @param index      Counted from 0, "input".
 * @param[out] info  Set struct_size first. The name is borrowed from the dataset.
 * @return ARGUMENT: there is no such input, or a pointer or struct_size is wrong.
 */
YOKE_API yoke_status yoke_dataset_describe_input(const yoke_dataset *dataset, int index,
                                                 yoke_value_info *info);

/** The loss that rows ask for: cross-entropy of labels, without those that are YOKE_NO_LABEL where
 * some are; MSE of targets.
 *
 * @param dataset    The dataset.
 * @param[out] loss  Set struct_size first.
 * @return ARGUMENT: a pointer or struct_size is wrong.
 */
YOKE_API yoke_status yoke_dataset_default_loss(const yoke_dataset *dataset,
                                               yoke_loss_options *loss);

/** Normalizes with other numbers than the dataset's own, with those that weights were trained on,
 * for example. Call it before any loader reads the dataset.
 *
 * @param dataset    The dataset.
 * @param mean       [4], as in yoke_dataset_info.
 * @param std  [4], each above 0.
 * @return ARGUMENT: a pointer is NULL, a std is not above 0, or there is a loader of it.
 */
YOKE_API yoke_status yoke_dataset_normalize(yoke_dataset *dataset, const float mean[4],
                                            const float std[4]);

/** Normalizes the columns of a table, `csv`, with other numbers than those of its training rows.
 * Call it before any loader reads the dataset.
 *
 * @param dataset     The dataset.
 * @param means       [channels], as in yoke_dataset_info; copied.
 * @param stds  [channels], each above 0; copied.
 * @return ARGUMENT: a pointer is NULL, a std not above 0, the rows no table's, or have a loader.
 */
YOKE_API yoke_status yoke_dataset_normalize_columns(yoke_dataset *dataset, const float *means,
                                                    const float *stds);

/** The file of a row.
 *
 * @param dataset  The dataset. NULL: NULL.
 * @param row      Less than yoke_dataset_info.rows.
 * @return Its path, borrowed from the dataset; NULL: the row has no file of its own.
 */
YOKE_API const char *yoke_dataset_row_name(const yoke_dataset *dataset, size_t row);

/** How a photograph becomes a row. */
typedef struct yoke_image_options {
    size_t struct_size; /**< sizeof(yoke_image_options). */
    yoke_shape shape;   /**< [1 or 3, N, N]; 1 channel: the brightness, as Pillow computes it. */
    int resize;         /**< The shorter side before the center is cut out; 0: N. */
    bool exact;         /**< Pillow's pixels; false: a large JPEG is decoded at a fraction. */
    float mean[4];      /**< [channel], as in yoke_dataset_info. */
    float std[4];       /**< [channel], likewise. */
} yoke_image_options;

/** All zero but the size. */
#define YOKE_IMAGE_OPTIONS_INIT                                                                    \
    {                                                                                              \
        sizeof(yoke_image_options), {0, 0, 0, false, false}, 0, false, {0}, {                      \
            0                                                                                      \
        }                                                                                          \
    }

/** Reads a JPEG or PNG file as a row: torchvision's Resize, CenterCrop, ToTensor and Normalize, as
 * `images:DIR` does. Any thread may call it.
 *
 * @param path         The file.
 * @param options      Not NULL.
 * @param[out] inputs  [channels, N, N]
 * @return MISSING: there is no such file. DATA: it is no image, or damaged; the text names the
 * file. ARGUMENT: the text names the offending option.
 */
YOKE_API yoke_status yoke_image_read(const char *path, const yoke_image_options *options,
                                     float *inputs);

/** A batch. The engine reads its arrays until the step that got it returns.
 *
 * The arrays are host memory. For an engine on GPUs, `inputs`, `more_inputs`, `pixels`, `targets`
 * and `labels` may also be memory of any GPU of that engine (cudaMalloc), each array on one GPU.
 * The shards then travel from GPU to GPU; only labels come to the host, where each is checked. What
 * writes such memory must be complete before the call, or queued in `stream`. */
typedef struct yoke_batch {
    size_t struct_size;    /**< sizeof(yoke_batch). */
    int rows;              /**< Rows in the arrays below. */
    const float *inputs;   /**< [rows, channels, height, width]; NULL with `pixels`. */
    const int32_t *labels; /**< [rows, positions of the output] or [rows]; NULL for regression. */
    const float *targets;  /**< [rows, target_count]; NULL for classification. */
    int first_row;         /**< DDP: where this rank's rows begin in the batch of all ranks. With
                                yoke_data_parallel_no_sync: in the batch whose parts add up. */
    int whole_rows;        /**< DDP: rows of the batch of all ranks; 0: the ranks must count. With
                                yoke_data_parallel_no_sync: of all parts. */
    const uint8_t *pixels; /**< [rows, channels, height, width]: stored pixels, which GPUs decode;
                                instead of `inputs`. */
    const yoke_placement *placements; /**< [rows]; NULL: every image as it is. */
    const yoke_decoding *decoding;    /**< Required with `pixels`. */
    size_t inputs_count;  /**< Floats in `inputs`; 0: unknown. The engine refuses a batch */
    size_t labels_count;  /**< whose counts do not belong to `rows` rows. Labels in `labels`, */
    size_t targets_count; /**< and floats in `targets`, likewise. */
    /** [more_input_count] arrays, each [rows, shape of its input]: inputs 1, 2, ... of a model with
     * several. */
    const float *const *more_inputs;
    int more_input_count;             /**< The number of the model's inputs - 1. */
    const size_t *more_inputs_counts; /**< [more_input_count]: floats that each holds, 0: not said;
                                           NULL: of none. */
    double whole_weight; /**< What divides the sum of the losses of the batch of all ranks or parts;
                              0: their labels or, with class_weights or ignore_index, what the ranks
                              count. Parts of yoke_data_parallel_no_sync need it then. */
    const yoke_crop *crops; /**< [rows], host memory: `pixels` are parts of decoded images, which
                                 GPUs scale. A batch of a loader; NULL: pixels have the shape of
                                 rows. */
    /** [rows], host memory: second labels; NULL: each row has one. For cross-entropy of outputs
     * without positions and without ignore_index. As in PyTorch with probabilities as targets, the
     * rows divide the sum of the losses, whatever class_weights. All ranks give them, or none. */
    const yoke_label_mix *mixes;
    int model; /**< Which of the engine's models reads the rows: 0: the one that it was made of; k:
                    other_models[k - 1] of yoke_data_parallel_options. Alike on all ranks. */
    void *stream; /**< NULL, or a cudaStream_t of a GPU of the engine, which lives as long as calls
                       are about this batch: it and they wait for each other (docs/cuda.md). */
} yoke_batch;

/** All zero but the size. */
#define YOKE_BATCH_INIT                                                                            \
    {                                                                                              \
        sizeof(yoke_batch), 0, NULL, NULL, NULL, 0, 0, NULL, NULL, NULL, 0, 0, 0, NULL, 0, NULL,   \
            0, NULL, NULL, 0, NULL                                                                 \
    }

/** Augmentation, for images with labels only. Order and arithmetic are torchvision's: beyond its
 * edge an image is black. */
typedef enum yoke_augment {
    YOKE_AUGMENT_NONE,             /**< Rows as they are. */
    YOKE_AUGMENT_CROP_FLIP,        /**< Pad by 4, random crop, random horizontal flip. */
    YOKE_AUGMENT_CROP_FLIP_CUTOUT, /**< And set an 8x8 square to the mean. */
    YOKE_AUGMENT_RESIZED_CROP_FLIP /**< `images:DIR`: torchvision's RandomResizedCrop and
                                        RandomHorizontalFlip. */
} yoke_augment;

#define YOKE_CROP_PADDING_LIMIT 1024 /**< yoke_crop_flip.padding, at most. */
/** How to crop and mirror. All 0: torchvision's RandomCrop(padding=4) and RandomHorizontalFlip. */
typedef struct yoke_crop_flip {
    int padding;    /**< Pixels around the image before the crop, fewer than it has; 0: 4. */
    bool reflect;   /**< padding_mode="reflect"; otherwise the padding is black. */
    bool alternate; /**< Mirror the rows drawn for the first epoch in every other one, the others in
                         those between (Jordan 2024). Also for RESIZED_CROP_FLIP. */
} yoke_crop_flip;

/** torchvision's ColorJitter, for rows that are stored as bytes of three channels: in a random
 * order, and before crop and flip, it changes each of these whose number is not 0. */
typedef struct yoke_color_jitter {
    double brightness; /**< Factor from 1 - brightness to 1 + brightness, at least 0. */
    double contrast;   /**< Likewise, to the mean of the image's gray values. */
    double saturation; /**< Likewise, to the gray image. */
    double hue;        /**< Turn of the hue from -hue to hue; at most 0.5. */
} yoke_color_jitter;

/** Which rows an epoch has. */
typedef enum yoke_sampling {
    YOKE_SAMPLING_EACH,     /**< Each row once. */
    YOKE_SAMPLING_BALANCED, /**< As many draws as rows, with replacement, each class equally likely:
                                torch.utils.data.WeightedRandomSampler with weights 1 / the rows of
                                a class, seeded with seed + epoch. Needs labels in memory. */
    YOKE_SAMPLING_BY_LENGTH /**< Each row once, in batches of about one length: 50 batches at a time
                                are sorted by it, and then come in a random order, as torchtext's
                                BucketIterator made them. Needs an input `length` or `..._length` in
                                memory. */
} yoke_sampling;

/** How to make batches. */
typedef struct yoke_loader_options {
    size_t struct_size;    /**< sizeof(yoke_loader_options). */
    int batch;             /**< Rows of a batch; required. The last one of an epoch may be short. */
    bool shuffle;          /**< torch.randperm seeded with seed + epoch, as DistributedSampler. */
    bool drop_last;        /**< Leave a short last batch out. */
    yoke_augment augment;  /**< What to do to images. */
    bool raw;              /**< Do not normalize: values stay in 0..1. */
    uint64_t seed;         /**< Seeds order and augmentation. */
    int slots;             /**< Batches prepared ahead; 0: 3, for `images` at least `threads`. */
    int threads;           /**< Loader threads; 0: 1, for `images` the cores / world, at
                                most 8. A row stream has 1. */
    yoke_devices *devices; /**< Where batches will go; must outlive the loader. For GPUs, batches
                                then lie in pinned memory, and rows stored as bytes come as pixels.
                                NULL: ordinary memory and inputs. */
    int rank;              /**< DDP: this rank. */
    int world;             /**< DDP: the number of ranks. Each rank gets its part of each batch by
                                torch.chunk's rule; all ranks get the same number of batches, and
                                a part of a short batch may have no rows. 0: whole batches. */
    int shards;            /**< DDP: as yoke_data_parallel_options.shards: a rank's part is that of
                                its shards, the first ranks having one more where shards is no
                                multiple of world. 0: one shard each. */
    yoke_color_jitter color_jitter; /**< Changes of colour; all 0: none. */
    double erasing; /**< Probability of torchvision's RandomErasing, with its default sizes: a box
                         of an image is set to the mean. */
    yoke_sampling sampling; /**< Which rows an epoch has; `balanced` needs `shuffle`. */
    double mixup; /**< alpha of torchvision's MixUp: row i becomes share * row i + (1 - share) * row
                       i - 1 of the whole batch, the first row's partner being the last. The share
                       is drawn for each row from Beta(alpha, alpha), by (seed, epoch, stored row).
                       Labels become `mixes`, targets are mixed like inputs. Batches then hold
                       inputs, not pixels. 0: off. */
    int first_shard; /**< DDP: the first of this rank's own_shards. */
    int own_shards;  /**< DDP: how many of `shards` this rank has, where ranks have unequal shares;
                          the ranks' shards follow each other without a gap. 0: as `shards`. */
    yoke_crop_flip crop_flip; /**< How `augment` crops and mirrors. */
} yoke_loader_options;

/** The defaults; set batch. */
#define YOKE_LOADER_OPTIONS_INIT                                                                   \
    {                                                                                              \
        sizeof(yoke_loader_options), 0, false, false, YOKE_AUGMENT_NONE, false, 0, 0, 0, NULL, 0,  \
            0, 0, {0, 0, 0, 0}, 0, YOKE_SAMPLING_EACH, 0, 0, 0, {                                  \
            0, false, false                                                                        \
        }                                                                                          \
    }

/** Prepares batches in the background while the caller computes on another. */
typedef struct yoke_loader yoke_loader;

/** Makes a loader.
 *
 * @param[out] loader  The loader; destroy it with yoke_loader_destroy. NULL on failure.
 * @param dataset      Must outlive the loader.
 * @param options      Copied; not NULL.
 * @return ARGUMENT: the text names the offending option.
 */
YOKE_API yoke_status yoke_loader_create(yoke_loader **loader, const yoke_dataset *dataset,
                                        const yoke_loader_options *options);

/** Destroys a loader, and with it the batch it lent.
 *
 * @param loader  May be NULL.
 */
YOKE_API void yoke_loader_destroy(yoke_loader *loader);

/** Begins an epoch, and ends a running one. The order depends on (seed, epoch) alone.
 *
 * @param loader  The loader.
 * @param epoch   Counted from 0.
 * @return ARGUMENT: `loader` is NULL, or its row stream has no second pass.
 */
YOKE_API yoke_status yoke_loader_begin(yoke_loader *loader, uint64_t epoch);

/** Begins an epoch behind its first batches, which are not read; those of a row stream without
 * `skip` are.
 *
 * @param loader  The loader.
 * @param epoch   Counted from 0.
 * @param batch   The first batch to lend, 0 to yoke_loader_batch_count; that many: the epoch is
 * over.
 * @return ARGUMENT: `loader` is NULL, or the epoch has fewer batches. Of a row stream without
 *         `skip` yoke_loader_next returns DATA for fewer batches; behind a `skip` past the end the
 *         epoch is over.
 */
YOKE_API yoke_status yoke_loader_begin_at(yoke_loader *loader, uint64_t epoch, size_t batch);

/** Lends the next batch.
 *
 * @param loader          The loader.
 * @param[out] batch      Set struct_size first. Borrowed until the next call. rows = 0 ends the
 *                        epoch, except where whole_rows > 0: then other ranks have rows.
 * @param[out] waited_ns  The time the caller waited; 0: the loader was ahead. May be NULL.
 * @return The status of the first row that failed, when its batch is due, and again until the next
 *         epoch begins.
 */
YOKE_API yoke_status yoke_loader_next(yoke_loader *loader, yoke_batch *batch, uint64_t *waited_ns);

/** Makes batches bring the inputs that a model reads beside the first, found by their names, in the
 * model's order. Otherwise they bring all of the dataset's, in its order. Call it before the first
 * epoch.
 *
 * @param loader  The loader.
 * @param model   NULL: all of the dataset's.
 * @return ARGUMENT: the dataset lacks an input, or its rows have another number of values; the text
 *         names both.
 */
YOKE_API yoke_status yoke_loader_select_inputs(yoke_loader *loader, const yoke_model *model);

/** Cuts each batch to the shortest of several models that holds all of its rows, and says which in
 * yoke_batch.model: 0: rows as they are stored; k: models[k - 1], which reads the first values of
 * each row. How long a row is, its inputs named `length` or `..._length` say. Call it before the
 * first epoch, with the models of yoke_data_parallel_options.other_models.
 *
 * @param loader  The loader, of rows in memory.
 * @param models  [count]; read during the call only. May be NULL with count 0.
 * @param count   0: rows stay as they are.
 * @return ARGUMENT: rows have no lengths in memory, or a model's input has more values.
 */
YOKE_API yoke_status yoke_loader_shorten(yoke_loader *loader, const yoke_model *const *models,
                                         int count);

/** The number of batches in an epoch.
 *
 * @param loader  The loader. NULL: 0.
 * @return The same on every rank. SIZE_MAX: a row stream whose pass has not ended.
 */
YOKE_API size_t yoke_loader_batch_count(const yoke_loader *loader);

/** Whether batches come as pixels of the rows' shape; pass it on as
 * yoke_data_parallel_options.pixels.
 *
 * @param loader  The loader. NULL: false.
 * @return true: as such pixels; false: as inputs, or as crops, which take up to as many bytes.
 */
YOKE_API bool yoke_loader_pixels(const yoke_loader *loader);

/** torch.utils.data.DistributedSampler: which rows one rank reads. Exact, with the MT19937 of
 * torch.randperm. */
typedef struct yoke_sampler {
    size_t struct_size; /**< sizeof(yoke_sampler). */
    size_t rows;        /**< Rows of the dataset. */
    int world;          /**< The number of ranks, PyTorch's num_replicas; at least 1. */
    int rank;           /**< 0 <= rank < world. */
    bool shuffle;       /**< Permute the rows. */
    bool drop_last;     /**< Drop rows to make parts equal; false: repeat rows. */
    uint64_t seed;      /**< Seeds the permutation, */
    uint64_t epoch;     /**< after the epoch is added. */
} yoke_sampler;

/** All zero but the size. */
#define YOKE_SAMPLER_INIT                                                                          \
    { sizeof(yoke_sampler), 0, 0, 0, false, false, 0, 0 }

/** The number of indices of one rank.
 *
 * @param sampler  The sampler.
 * @return The count; 0 also when the sampler is invalid.
 */
YOKE_API size_t yoke_sampler_count(const yoke_sampler *sampler);

/** The indices of one rank, in their order.
 *
 * @param sampler     The sampler.
 * @param[out] order  [yoke_sampler_count(sampler)]
 * @return ARGUMENT: the text names the offending field.
 */
YOKE_API yoke_status yoke_sampler_indices(const yoke_sampler *sampler, int64_t *order);

#ifdef __cplusplus
}
#endif

#include "yoke/host_rows.h"

#endif
