/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/step/host_stream.h"

/* Every device has an event, and one of them takes the stream. */
static yoke_status record(yoke_step *step, void *stream, const yoke_device *likely,
                          const yoke_lane **owner) {
    yoke_status status = YOKE_ERROR_ARGUMENT;
    for (int turn = 0; turn < 2 && status == YOKE_ERROR_ARGUMENT; turn++)
        for (int k = 0; k < step->count && status == YOKE_ERROR_ARGUMENT; k++) {
            *owner = &step->lanes[k];
            if (((*owner)->device == likely) == (turn == 0))
                status = yoke_device_event_record_host((*owner)->events.computed, (*owner)->device,
                                                       stream);
        }
    return status;
}

yoke_status yoke_host_stream_arrive(yoke_step *step, void *stream, yoke_device *likely,
                                    yoke_device **owner) {
    const yoke_lane *found = NULL;
    *owner = NULL;
    if (stream == NULL) return YOKE_OK;
    TRY(record(step, stream, likely, &found));
    for (int k = 0; k < step->count; k++) {
        yoke_device *device = step->lanes[k].device;
        TRY(yoke_device_event_wait(found->events.computed, device, YOKE_STREAM_COPY));
        TRY(yoke_device_event_wait(found->events.computed, device, YOKE_STREAM_COMPUTE));
    }
    *owner = found->device;
    return YOKE_OK;
}

yoke_status yoke_host_stream_follow_lanes(yoke_step *step) {
    for (int k = 0; k < step->count && yoke_host_stream_is_given(step); k++)
        TRY(yoke_host_stream_follow(step, step->lanes[k].device));
    return YOKE_OK;
}

bool yoke_host_stream_is_given(const yoke_step *step) {
    return step->flight.locations.stream != NULL;
}

yoke_status yoke_host_stream_arrive_again(yoke_step *step) {
    yoke_device *owner = step->flight.locations.stream;
    if (owner == NULL) return YOKE_OK;
    return yoke_host_stream_arrive(step, step->flight.batch.stream, owner, &owner);
}

yoke_status yoke_host_stream_follow(yoke_step *step, yoke_device *device) {
    const yoke_lane *lane = step->lanes;
    while (lane->device != device)
        lane++;
    TRY(yoke_device_event_record(lane->events.computed, YOKE_STREAM_COMPUTE));
    return yoke_device_event_wait_host(lane->events.computed, step->flight.locations.stream,
                                       step->flight.batch.stream);
}
