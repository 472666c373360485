/* SPDX-License-Identifier: Apache-2.0 */
/* classic's loss, as users of nn.DataParallel write it: gather the outputs on the root, take the
 * loss there over the whole batch, scatter its gradient back to the replicas. */
#ifndef PARALLEL_ROOT_LOSS_H
#define PARALLEL_ROOT_LOSS_H

#include "parallel/step/step.h"

typedef struct yoke_root_loss {
    float *outputs, *gradients; /* [rows of a micro-batch, output channels] */
    int32_t *labels;
    yoke_label_mix *mixes;
    float *targets;
    struct yoke_root_loss_plan {
        const yoke_model *model;
        int rows;
        yoke_plan *plan;
    } * plans; /* one for each model and number of rows */
    int plan_count;
    void *scratch;
    size_t scratch_bytes;
} yoke_root_loss;

/* Makes step->root_loss where the schedule is classic or python. */
yoke_status yoke_root_loss_create(yoke_step *step);
void yoke_root_loss_destroy(yoke_step *step);
yoke_status yoke_root_loss_prepare(yoke_step *step, int rows);

extern const yoke_stage_def yoke_stage_gather_to_root, yoke_stage_loss_on_root,
    yoke_stage_scatter_back;

#endif
