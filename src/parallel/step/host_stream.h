/* SPDX-License-Identifier: Apache-2.0 */
/* Order between the engine and a stream of the host program, by events: no host thread waits. The
 * calling thread calls these, while no worker has a job. */
#ifndef PARALLEL_STEP_HOST_STREAM_H
#define PARALLEL_STEP_HOST_STREAM_H

#include "parallel/step/parts.h"

/* What all lanes queue from now on waits for what the stream holds. *owner gets the device whose
 * stream it is. The search begins with `likely`; NULL: with the first. ARGUMENT: no device of the
 * engine has this stream, or devices of this kind have none. */
yoke_status yoke_host_stream_arrive(yoke_step *step, void *stream, yoke_device *likely,
                                    yoke_device **owner);
/* The same for the stream of the batch in flight, if it has one. */
yoke_status yoke_host_stream_arrive_again(yoke_step *step);
/* Whether the batch in flight has a stream. */
bool yoke_host_stream_is_given(const yoke_step *step);
/* What the host program queues from now on in the stream of the batch in flight waits for the
 * compute stream of `device`, one of the list. */
yoke_status yoke_host_stream_follow(yoke_step *step, yoke_device *device);
/* For the compute streams of all lanes, if the batch has a stream: for what reads its arrays. */
yoke_status yoke_host_stream_follow_lanes(yoke_step *step);

#endif
