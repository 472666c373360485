/* SPDX-License-Identifier: Apache-2.0 */
/* Profiles: one that is accepted simulates in every mode, and its timeline lies in its step. */
#include "fuzz/fuzz.h"
#include "simulate/simulate.h"

static void simulate(const yoke_profile *profile, const yoke_topology *topology,
                     yoke_simulated_mode mode, int devices) {
    yoke_simulation found;
    if (yoke_simulate(&found, profile, topology, mode, devices) != YOKE_OK) return;
    for (int i = 0; i < found.span_count; i++)
        if (found.spans[i].begin_ns >= found.spans[i].end_ns ||
            found.spans[i].end_ns > found.step_ns)
            abort();
    yoke_simulation_clear(&found);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const links[] = {"pcie3", "1e-6,1e6,bridge"};
    yoke_profile profile;
    char *own = fuzz_copy(data, size);
    if (yoke_profile_parse(&profile, "fuzzed", own, size) == YOKE_OK) {
        yoke_topology topology = {.interpreter_us = size % 3 == 0 ? 1e6 : 13};
        if (yoke_link_parse(&topology.link, links[size % 2]) != YOKE_OK) abort();
        for (int mode = 0; mode < YOKE_SIMULATED_MODES && profile.layers < 1000; mode++)
            for (int devices = 1; devices <= 8; devices *= 2)
                simulate(&profile, &topology, (yoke_simulated_mode)mode, devices);
        yoke_profile_clear(&profile);
    }
    free(own);
    return 0;
}
