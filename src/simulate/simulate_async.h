/* SPDX-License-Identifier: Apache-2.0 */
/* dp-async: pushes as events. */
#ifndef SIMULATE_SIMULATE_ASYNC_H
#define SIMULATE_SIMULATE_ASYNC_H

#include "simulate/simulate.h"
#include "simulate/simulated_spans.h"

/* Fills the result but for its spans, its efficiency and what the root does. Its devices are set,
 * and its links allocated. The timeline gets the first round of the steady state. MEMORY. */
yoke_status yoke_simulate_async(yoke_simulation *result, yoke_timeline *timeline,
                                const yoke_profile *profile, const yoke_topology *topology);

#endif
