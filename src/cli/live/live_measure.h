/* SPDX-License-Identifier: Apache-2.0 */
/* What each device does in the last steps, from the engine's trace. */
#ifndef CLI_LIVE_MEASURE_H
#define CLI_LIVE_MEASURE_H

#include "cli/live/live_numbers.h"

/* Fills in devices[].work, wait and idle, stages, step_ms and measured_steps; device_count is
 * given. `most` limits the steps. Returns how many spans a step has; 0: no step is complete, or
 * memory is short, and the numbers stay as they were. Call it while no stage is running. */
size_t live_measure(const yoke_trace *trace, int most, live_numbers *numbers);

#endif
