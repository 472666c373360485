/* SPDX-License-Identifier: Apache-2.0 */
/* Rules that see a whole tensor at a time. */
#ifndef OPTIMIZER_WHOLE_H
#define OPTIMIZER_WHOLE_H

#include "optimizer/optimizer.h"

/* Whether such a rule updates the range, which then is one tensor. */
bool yoke_range_is_whole(const yoke_optimizer_options *options, const yoke_optimizer_range *range);
/* The work of an update of the range; 0: none. */
size_t yoke_whole_bytes(const yoke_optimizer_options *options, const yoke_optimizer_range *range);
/* Makes of the scalars of its direction those with which it is applied. */
void yoke_whole_applies(const yoke_optimizer_options *options, const yoke_optimizer_range *range,
                        yoke_update_scalars *scalars);
/* step: but for the rule, as for yoke_device_update. */
yoke_status yoke_whole_update(const yoke_optimizer_options *options,
                              const yoke_optimizer_range *range, yoke_device *device,
                              yoke_stream stream, const yoke_update_step *step, float *weights,
                              const float *gradients, float *const states[YOKE_UPDATE_STATES],
                              void *work);

#endif
