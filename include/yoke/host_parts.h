/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * A loss and metrics of the host program, for a trainer.
 */
#ifndef YOKE_HOST_PARTS_H
#define YOKE_HOST_PARTS_H

#include <stddef.h>

#include "yoke/dataset.h"
#include "yoke/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Rows for a loss or a metric of the host program. */
typedef struct yoke_outputs {
    size_t struct_size;          /**< sizeof(yoke_outputs) of the library. */
    const yoke_batch *batch;     /**< The rows, with labels or targets as the dataset gave them. */
    int count;                   /**< Outputs of the model; 1 for a metric beside the model's own
                                      loss. */
    const float *const *outputs; /**< [count], each [batch->rows, shape of the output]; host. */
    float *const
        *gradients; /**< Where a loss in training adds its gradients: the same shapes,
                         zero before the call. NULL otherwise. A loss that leaves all of an output's
                       at zero does not use that output (yoke_data_parallel_unreached). */
} yoke_outputs;

/** A loss of the host program over any outputs of a model. */
typedef struct yoke_custom_loss {
    size_t struct_size; /**< sizeof(yoke_custom_loss). */
    /** Sets *loss to the mean over the rows and, where `gradients` is not NULL, writes its
     * derivative by each output there. The trainer weighs micro-batches and ranks by their rows.
     * The engine's calling thread calls it; it must not call the engine. A status other than OK
     * ends the step and the run; yoke_error_raise gives it words. */
    yoke_status (*compute)(void *payload, const yoke_outputs *rows, double *loss);
    void *payload; /**< Passed to `compute`. */
} yoke_custom_loss;

/** All zero but the size. */
#define YOKE_CUSTOM_LOSS_INIT                                                                      \
    { sizeof(yoke_custom_loss), NULL, NULL }

/** Sums that a metric may keep. */
#define YOKE_METRIC_SUMS 16

/** A number of the host program for each evaluation: precision, an error in meters, ... The trainer
 * adds sums up over the batches and, in DDP, over the ranks; the number is a function of the sums.
 */
typedef struct yoke_metric {
    size_t struct_size; /**< sizeof(yoke_metric). */
    const char *name;   /**< In events and in the file of metrics; copied. */
    /** Adds these rows to sums[YOKE_METRIC_SUMS], which are 0 before the first batch.
     * rows->gradients is NULL. A status other than OK ends the run; yoke_error_raise gives it
     * words. */
    yoke_status (*add)(void *payload, const yoke_outputs *rows, double *sums);
    /** The number from the sums of all rows; NULL: sums[0] / sums[1]. */
    double (*value)(void *payload, const double *sums);
    void *payload; /**< Passed to both. */
} yoke_metric;

/** All zero but the size. */
#define YOKE_METRIC_INIT                                                                           \
    { sizeof(yoke_metric), NULL, NULL, NULL, NULL }

/** A metric's number in an event. */
typedef struct yoke_metric_value {
    const char *name; /**< As in yoke_metric. */
    double value;     /**< Over the rows of the evaluation. */
} yoke_metric_value;

#ifdef __cplusplus
}
#endif

#endif
