/* SPDX-License-Identifier: Apache-2.0 */
/* An update of the root's weights on buffers of its own, to be timed: nothing of the model
 * changes. */
#ifndef PARALLEL_SPARE_UPDATE_H
#define PARALLEL_SPARE_UPDATE_H

#include "device/device.h"
#include "optimizer/optimizer.h"
#include "parallel/step/step.h"

typedef struct yoke_spare_update {
    yoke_device *device;
    size_t elements;
    float *weights, *gradients;
    uint16_t *shadow;
    yoke_precision precision; /* of the shadow */
    yoke_optimizer *optimizer;
} yoke_spare_update;

/* open: for the first `elements` weights. close takes zeroed and half-open ones. */
yoke_status yoke_spare_update_open(yoke_spare_update *update, const yoke_step *step,
                                   size_t elements);
void yoke_spare_update_close(yoke_spare_update *update);
/* Queues it on the compute stream. */
yoke_status yoke_spare_update_run(const yoke_spare_update *update, bool writes_shadow);

#endif
