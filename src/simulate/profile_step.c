/* SPDX-License-Identifier: Apache-2.0 */
/* What a profile adds up to, and the same profile with other rows. */
#include "base/base.h"
#include "simulate/simulate.h"

#define SHORTEST_PART_MS 1e-4 /* on average: the simulator counts whole ns */

enum { PARTS = 4 }; /* of a step, besides segments: host, forward, loss, update */

void yoke_profile_clear(yoke_profile *profile) {
    yoke_free(profile->segments);
    *profile = (yoke_profile){0};
}

size_t yoke_profile_bytes(const yoke_profile *profile) {
    size_t bytes = 0;
    for (int s = 0; s < profile->segment_count; s++)
        bytes += profile->segments[s].bytes;
    return bytes;
}

double yoke_profile_step_ms(const yoke_profile *profile) {
    double ms = profile->host_ms + profile->forward_ms + profile->loss_ms;
    for (int s = 0; s < profile->segment_count; s++)
        ms += profile->segments[s].backward_ms;
    return ms + 1e-6 * profile->update_ns_per_byte * (double)yoke_profile_bytes(profile);
}

yoke_status yoke_profile_check(const yoke_profile *profile, const char *name, yoke_status status) {
    double step_ms = yoke_profile_step_ms(profile), most_ms = YOKE_PROFILE_MOST_MS;
    int parts = profile->segment_count + PARTS;
    double shortest_ms = SHORTEST_PART_MS * parts;
    if (!(step_ms >= shortest_ms && step_ms <= most_ms))
        return FAIL(status, "%s: a step of %g ms in %d parts; %g to %g is possible", name, step_ms,
                    parts, shortest_ms, most_ms);
    double row_bytes = (double)profile->input_bytes + (double)profile->output_bytes;
    double most_bytes = YOKE_PROFILE_MOST_BYTES;
    if (sizeof(size_t) < sizeof(uint64_t)) most_bytes = 0.5 * (double)SIZE_MAX;
    if (row_bytes * profile->rows > most_bytes)
        return FAIL(status, "%s: %d rows of %g bytes; all may have %g", name, profile->rows,
                    row_bytes, most_bytes);
    return YOKE_OK;
}

yoke_status yoke_profile_set_rows(yoke_profile *profile, int rows) {
    double factor = (double)rows / profile->rows;
    if (rows < 1)
        return FAIL(YOKE_ERROR_ARGUMENT, "%d rows on each device; a step has 1 or more", rows);
    profile->rows = rows;
    profile->forward_ms *= factor;
    profile->loss_ms *= factor;
    for (int s = 0; s < profile->segment_count; s++)
        profile->segments[s].backward_ms *= factor;
    return yoke_profile_check(profile, profile->model, YOKE_ERROR_ARGUMENT);
}
