/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * How well a model knows the rows of a dataset.
 */
#ifndef YOKE_EVALUATION_H
#define YOKE_EVALUATION_H

#include <stddef.h>
#include <stdint.h>

#include "yoke/data_parallel.h"
#include "yoke/dataset.h"
#include "yoke/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The result of an evaluation. */
typedef struct yoke_evaluation yoke_evaluation;

/** Evaluates every row of a loader's dataset once, in order: running statistics, no dropout.
 *
 * @param[out] evaluation  Destroy it with yoke_evaluation_destroy. NULL on failure.
 * @param parallel         The engine; one that only predicts is enough.
 * @param loader           Of batches for this engine, without shuffle and augmentation.
 * @return As yoke_data_parallel_evaluate and yoke_loader_next.
 */
YOKE_API yoke_status yoke_evaluation_run(yoke_evaluation **evaluation, yoke_data_parallel *parallel,
                                         yoke_loader *loader);

/** Destroys an evaluation.
 *
 * @param evaluation  May be NULL.
 */
YOKE_API void yoke_evaluation_destroy(yoke_evaluation *evaluation);

/** An evaluation counts by true and by predicted class up to so many classes: 128 MiB of counts. */
#define YOKE_COUNTS_CLASSES 4096

/** What an evaluation found. */
typedef struct yoke_evaluation_info {
    size_t struct_size;      /**< sizeof(yoke_evaluation_info). */
    size_t rows;             /**< All rows. */
    double loss;             /**< As yoke_step_result.loss, over all of them. */
    int classes;             /**< 0: the model does not classify, and the rest is 0. */
    int64_t labels;          /**< As yoke_step_result.labels, over all rows. */
    int64_t correct;         /**< Labels whose output is the largest. */
    int64_t among_five;      /**< Labels that are among the five largest outputs; sequence: 0. */
    const int64_t *counts;   /**< [classes, classes]: labels by true class, then by predicted class;
                                  borrowed from the evaluation. NULL: a sequence, no classes, or
                                  more than YOKE_COUNTS_CLASSES. */
    size_t tallied;          /**< Rows that among_five and counts are of: those whose label counts;
                                  0: a sequence, or no classes. */
    size_t not_finite;       /**< Rows with an input that is NaN or infinite: nothing else says so,
                                  because a ReLU may swallow it. */
    size_t first_not_finite; /**< The index of the first of them. */
} yoke_evaluation_info;

/** All zero but the size. */
#define YOKE_EVALUATION_INFO_INIT                                                                  \
    { sizeof(yoke_evaluation_info), 0, 0, 0, 0, 0, 0, NULL, 0, 0, 0 }

/** What an evaluation found.
 *
 * @param evaluation  The evaluation.
 * @param[out] info   Set struct_size first.
 * @return ARGUMENT: a pointer or struct_size is wrong.
 */
YOKE_API yoke_status yoke_evaluation_describe(const yoke_evaluation *evaluation,
                                              yoke_evaluation_info *info);

#ifdef __cplusplus
}
#endif

#endif
