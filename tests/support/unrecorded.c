/* SPDX-License-Identifier: Apache-2.0 */
#include "support/unrecorded.h"

#include "parallel/engine/engine.h"
#include "parallel/stages/recorded.h"

void check_engine_unrecorded(yoke_data_parallel *parallel) {
    for (int k = 0; k < parallel->step.count; k++) {
        yoke_recordings_destroy(&parallel->step.lanes[k]);
        parallel->step.lanes[k].recordings = NULL;
    }
}
