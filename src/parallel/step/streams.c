/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/step/streams.h"

yoke_status yoke_lanes_synchronize(yoke_step *step) {
    for (int k = 0; k < step->count; k++)
        TRY(yoke_device_synchronize(step->lanes[k].device));
    return YOKE_OK;
}

yoke_status yoke_lanes_order(yoke_step *step, yoke_stream from, yoke_stream to) {
    for (int k = 0; k < step->count; k++) {
        const yoke_lane *lane = &step->lanes[k];
        yoke_device_event *passed =
            from == YOKE_STREAM_COMPUTE ? lane->events.computed : lane->events.published;
        TRY(yoke_device_event_record(passed, from));
        TRY(yoke_device_event_wait(passed, lane->device, to));
    }
    return YOKE_OK;
}
