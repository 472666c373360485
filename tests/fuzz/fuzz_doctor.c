/* SPDX-License-Identifier: Apache-2.0 */
/* Traces of PyTorch's profiler: the stages of one that is read add up to its step, and its profile
 * simulates or is refused. */
#include <math.h>

#include "doctor/doctor.h"
#include "fuzz/fuzz.h"

static void check(const yoke_doctor *doctor) {
    double sum_ms = 0;
    yoke_simulation found;
    for (int stage = 0; stage < YOKE_ACCOUNT_STAGES; stage++) {
        if (!(doctor->stage_ms[stage] >= 0)) abort();
        sum_ms += doctor->stage_ms[stage];
    }
    if (!(fabs(sum_ms - doctor->step_ms) <= 1e-6 * doctor->step_ms)) abort();
    if (!(doctor->hidden_ms >= 0 && doctor->hidden_ms <= doctor->travel_ms * (1 + 1e-9))) abort();
    if (doctor->profile.segment_count == 0) return;
    if (yoke_simulate(&found, &doctor->profile, &doctor->topology, YOKE_SIMULATED_DDP_RING,
                      doctor->devices) == YOKE_OK)
        yoke_simulation_clear(&found);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    yoke_doctor doctor;
    yoke_doctor_options options = {.bytes = size % 3 == 0 ? 4e6 : 0};
    char *own = fuzz_copy(data, size);
    if (yoke_doctor_read_bytes(&doctor, "fuzzed", own, size, &options) == YOKE_OK) {
        check(&doctor);
        yoke_doctor_clear(&doctor);
    }
    free(own);
    return 0;
}
