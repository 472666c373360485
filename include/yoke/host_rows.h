/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Rows of the host program: in its arrays, by a callback, or as a stream.
 */
#ifndef YOKE_HOST_ROWS_H
#define YOKE_HOST_ROWS_H

#include "yoke/dataset.h"

#ifdef __cplusplus
extern "C" {
#endif

/** An input of each row beside the first: forward(self, left, right) has two. It is for the model's
 * input of the same name (yoke_model_add_input). */
typedef struct yoke_row_input {
    size_t struct_size;  /**< sizeof(yoke_row_input). */
    const char *name;    /**< 1 to 47 characters; not "input", the first one's; copied. */
    yoke_shape shape;    /**< Of one row. The model's input has as many values. */
    const float *values; /**< [rows, shape]; used as they are. NULL in a yoke_row_source. */
} yoke_row_input;

/** All zero but the size. */
#define YOKE_ROW_INPUT_INIT                                                                        \
    { sizeof(yoke_row_input), NULL, {0, 0, 0, false, false}, NULL }

/** Rows in arrays of the host program. The dataset borrows the arrays: they must outlive it. Set
 * exactly one of `pixels` and `inputs`; `classes` and `labels` for classification; `target_count`
 * and `targets` for regression; neither where the model computes its loss (YOKE_LOSS_OUTPUT). */
typedef struct yoke_arrays {
    size_t struct_size;    /**< sizeof(yoke_arrays). */
    size_t rows;           /**< At least 1. */
    yoke_shape shape;      /**< The shape of one row. */
    const uint8_t *pixels; /**< [rows, channels, height, width]; the loader normalizes them. */
    const float *inputs;   /**< [rows, channels, height, width]; used as they are. */
    int classes;           /**< 0: regression. */
    const int32_t *labels; /**< [rows, label_count]; 0 <= label < classes, or YOKE_NO_LABEL. */
    const float *targets;  /**< [rows, target_count] */
    int target_count;      /**< 0: classification. */
    int label_count;       /**< Labels of a row; 0: 1. A model whose output is a sequence reads one
                                for each position. */
    const yoke_row_input *more_inputs; /**< [more_input_count]: the inputs beside the first. */
    int more_input_count;              /**< 0: rows have one input. */
} yoke_arrays;

/** All zero but the size. */
#define YOKE_ARRAYS_INIT                                                                           \
    { sizeof(yoke_arrays), 0, {0, 0, 0, false, false}, NULL, NULL, 0, NULL, NULL, 0, 0, NULL, 0 }

/** Makes a dataset of arrays.
 *
 * @param[out] dataset  The dataset; close it with yoke_dataset_close. NULL on failure.
 * @param arrays        Copied; the arrays themselves are borrowed.
 * @return ARGUMENT: the text says which fields contradict each other, or which label is invalid.
 */
YOKE_API yoke_status yoke_dataset_from_arrays(yoke_dataset **dataset, const yoke_arrays *arrays);

/** Rows that the host program makes on demand. */
typedef struct yoke_row_source {
    size_t struct_size; /**< sizeof(yoke_row_source). */
    size_t rows;        /**< At least 1. */
    yoke_shape shape;   /**< The shape of one row. */
    int classes;        /**< 0: regression. */
    int target_count;   /**< 0: classification. */
    /** Fills row `row`: input [channels, height, width], and its label or targets [target_count].
     * Loader threads call it, possibly several at once. Any status but YOKE_OK ends the run. */
    yoke_status (*read)(void *payload, size_t row, float *input, int32_t *label, float *targets);
    void *payload;   /**< Passed to `read`; must outlive the dataset. */
    int label_count; /**< Labels of a row, which `read` writes; 0: 1. */
    /** Instead of `read`: fills rows rows[0 .. count - 1], in this order, of every array: a batch,
     * or this rank's part of one. Without augmentation. */
    yoke_status (*read_batch)(void *payload, const int64_t *rows, int count, float *inputs,
                              int32_t *labels, float *targets);
    const yoke_row_input *more_inputs; /**< [more_input_count]: the inputs beside the first, without
                                            values. */
    int more_input_count;              /**< 0: rows have one input. */
    /** Instead of `read`: fills every input; inputs[0] is the first, inputs[k] that of
     * more_inputs[k - 1]. */
    yoke_status (*read_inputs)(void *payload, size_t row, float *const *inputs, int32_t *label,
                               float *targets);
} yoke_row_source;

/** All zero but the size. */
#define YOKE_ROW_SOURCE_INIT                                                                       \
    {                                                                                              \
        sizeof(yoke_row_source), 0, {0, 0, 0, false, false}, 0, 0, NULL, NULL, 0, NULL, NULL, 0,   \
            NULL                                                                                   \
    }

/** Makes a dataset of a callback.
 *
 * @param[out] dataset  The dataset; close it with yoke_dataset_close. NULL on failure.
 * @param source        Copied.
 * @return ARGUMENT: the text says which field is invalid.
 */
YOKE_API yoke_status yoke_dataset_from_callback(yoke_dataset **dataset,
                                                const yoke_row_source *source);

/** Rows that the host program gives one after another, without saying how many there are: from a
 * socket, a pipe or a generator. PyTorch's IterableDataset. A pass over the rows is an epoch. One
 * thread of the loader makes every call, in the order of the rows, and reads some batches ahead of
 * the step. Whatever ends a loader or its epoch waits for the call in progress. */
typedef struct yoke_row_stream {
    size_t struct_size; /**< sizeof(yoke_row_stream). */
    yoke_shape shape;   /**< The shape of one row. */
    int classes;        /**< 0: regression. */
    int target_count;   /**< 0: classification. */
    int label_count;    /**< Labels of a row; 0: 1. */
    /** Writes the next rows to the beginning of every array: inputs [room, channels, height,
     * width], and labels [room, label_count] or targets [room, target_count]. Sets *count to how
     * many it wrote, 1 to room; 0: the pass is over. A batch takes as many calls as it needs. A
     * status other than OK ends the run; yoke_error_raise gives it words. */
    yoke_status (*next)(void *payload, int room, float *inputs, int32_t *labels, float *targets,
                        int *count);
    /** Goes to the first row, before every pass. `epoch`, from 0, lets passes differ. NULL: there
     * is one pass, and no rewind before it. */
    yoke_status (*rewind)(void *payload, uint64_t epoch);
    /** Goes past the next `rows` rows, or to the end of the pass, where a resumed run continues.
     * NULL: the loader reads these rows and drops them. */
    yoke_status (*skip)(void *payload, size_t rows);
    void *payload; /**< Passed to all three; must outlive the dataset. */
} yoke_row_stream;

/** All zero but the size. */
#define YOKE_ROW_STREAM_INIT                                                                       \
    { sizeof(yoke_row_stream), {0, 0, 0, false, false}, 0, 0, 0, NULL, NULL, NULL, NULL }

/** Makes a dataset of a row stream. Its rows come in the stream's order, so a loader takes no
 * `shuffle`, balanced sampling, augmentation or mixup, and one loader at a time reads it. In DDP
 * the stream of every rank gives the same rows, and each rank keeps its part of every batch.
 *
 * @param[out] dataset  The dataset; close it with yoke_dataset_close. NULL on failure.
 * @param stream        Copied.
 * @return ARGUMENT: the text says which field is invalid.
 */
YOKE_API yoke_status yoke_dataset_from_stream(yoke_dataset **dataset,
                                              const yoke_row_stream *stream);

#ifdef __cplusplus
}
#endif

#endif
