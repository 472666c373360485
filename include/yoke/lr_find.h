/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * The learning rate range test: which learning rate to train with.
 */
#ifndef YOKE_LR_FIND_H
#define YOKE_LR_FIND_H

#include <stdbool.h>
#include <stddef.h>

#include "yoke/status.h"
#include "yoke/trainer.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A range test. */
typedef struct yoke_lr_find_options {
    size_t struct_size; /**< sizeof(yoke_lr_find_options). */
    int steps;          /**< At most, from 20 to 1000000; 0: 100. */
    double lowest;      /**< The rate of the first step; 0: 1e-7. */
    double highest;     /**< The rate of the last step, above `lowest`; 0: 10. */
    double smoothing;   /**< Weight of the losses so far against the next one, below 1; 0: no
                             smoothing. */
    double divergence;  /**< The test ends when the smoothed loss is above this many times its
                             lowest value; above 1; 0: 4. */
} yoke_lr_find_options;

/** The defaults of fastai. */
#define YOKE_LR_FIND_OPTIONS_INIT                                                                  \
    { sizeof(yoke_lr_find_options), 0, 0, 0, 0.98 /* smoothing */, 0 }

/** What a range test found. Arrays and text live until the trainer's next range test or its end. */
typedef struct yoke_lr_find_result {
    size_t struct_size;           /**< sizeof(yoke_lr_find_result). */
    int count;                    /**< Steps whose loss was finite. */
    const double *learning_rates; /**< [count]: each is the one before times the same factor. */
    const double *losses;         /**< [count]: of the batch, before the step's update. */
    const double *smoothed;       /**< [count]: their mean, in which older losses weigh less. */
    bool diverged;                /**< The loss grew so much, or was not finite, that the test ended
                                       before its last step. */
    int suggested;                /**< The index of `suggestion`; -1: none. */
    double suggestion; /**< The rate at which the smoothed loss falls fastest; 0: none. */
    double cautious;   /**< A tenth of the rate of the lowest smoothed loss, or `suggestion` if that
                            is lower: where a run at `suggestion` diverges. 0: none. */
    const char *text;  /**< What follows from the test, a sentence: why this rate, or why none. */
} yoke_lr_find_result;

/** All zero but the size. */
#define YOKE_LR_FIND_RESULT_INIT                                                                   \
    { sizeof(yoke_lr_find_result), 0, NULL, NULL, NULL, false, 0, 0, 0, NULL }

/** Takes steps at learning rates that grow exponentially, and looks where the loss falls fastest:
 * the range test of L. N. Smith, "Cyclical Learning Rates for Training Neural Networks" (2017),
 * with the smoothing of fastai's lr_find and the suggestion of PyTorch Lightning's tuner;
 * `cautious` is fastai's lr_min. It takes batches as yoke_trainer_run does, the next epoch's when
 * one is over; `lr_schedule` does not count, the scales of parameter groups do. It writes no file
 * and evaluates nothing; `on_event` gets READY and a STEP for each step.
 *
 * Afterwards the trainer is as before, weights, running statistics, optimizer and counters: a run
 * gives the same bits as without the test. rank 0, or the only process, keeps a copy of them on the
 * host meanwhile. In DDP all ranks call it together, with equal options, and get equal results.
 *
 * @param trainer      The trainer; not running.
 * @param options      NULL: YOKE_LR_FIND_OPTIONS_INIT.
 * @param[out] result  Set struct_size first. It is also filled after CANCELLED.
 * @return ARGUMENT: an option or struct_size is wrong, or the rows are a row stream without
 * `rewind`. NUMERIC: the first loss is not finite, at the weights that the trainer had. CANCELLED:
 *         yoke_trainer_stop, after as many steps as the result has. After any other error, as of
 *         yoke_data_parallel_step, destroy the trainer.
 */
YOKE_API yoke_status yoke_trainer_find_lr(yoke_trainer *trainer,
                                          const yoke_lr_find_options *options,
                                          yoke_lr_find_result *result);

#ifdef __cplusplus
}
#endif

#endif
