/* SPDX-License-Identifier: Apache-2.0 */
/* The exponential moving average of the weights. */
#ifndef PARALLEL_ENGINE_AVERAGE_H
#define PARALLEL_ENGINE_AVERAGE_H

#include "parallel/engine/engine.h"

bool yoke_averages(const yoke_data_parallel *parallel);
size_t yoke_average_bytes(const yoke_data_parallel *parallel);
/* Checks options.ema_decay and allocates, unless it is 0. */
yoke_status yoke_average_create(yoke_data_parallel *parallel);
void yoke_average_destroy(yoke_data_parallel *parallel);
/* After an update of the weights. */
yoke_status yoke_average_update(yoke_data_parallel *parallel);
/* ARGUMENT while the root has the average. */
yoke_status yoke_average_check(const yoke_data_parallel *parallel);
/* The average, to and from the host: flat[trainable elements]. */
yoke_status yoke_average_read(yoke_data_parallel *parallel, float *flat);
yoke_status yoke_average_write(yoke_data_parallel *parallel, const float *flat);

#endif
