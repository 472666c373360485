/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluation by several views of each image: yoke_trainer_options.test_views. */
#ifndef TRAIN_VIEWS_H
#define TRAIN_VIEWS_H

#include "train/run.h"

/* ARGUMENT: a number of views that does not exist, or what views are not for. */
yoke_status yoke_views_check(const yoke_trainer_options *options);
/* As yoke_data_parallel_evaluate_outputs, of the mean of the views' outputs. `outputs` gets output
 * 0 alone. ARGUMENT: rows or a loss that views are not for. */
yoke_status yoke_views_evaluate(const yoke_run *run, const yoke_batch *batch,
                                yoke_step_result *result, const yoke_output_rows *outputs);

#endif
