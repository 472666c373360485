/* SPDX-License-Identifier: Apache-2.0 */
/* Order between the streams of lanes whose devices queue; elsewhere nothing waits. */
#ifndef PARALLEL_STEP_STREAMS_H
#define PARALLEL_STEP_STREAMS_H

#include "parallel/step/parts.h"

/* On every lane, work queued later on stream `to` waits for all work queued on `from`: one of them
 * computes, the other communicates. synchronize: the host waits for every stream. */
yoke_status yoke_lanes_order(yoke_step *step, yoke_stream from, yoke_stream to);
yoke_status yoke_lanes_synchronize(yoke_step *step);

#endif
