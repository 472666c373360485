/* SPDX-License-Identifier: Apache-2.0 */
/* dp-async against formulas for its rate and the staleness of its pushes. */
#include "simulate/bare_profile.h"

static yoke_profile pushing_profile(double forward_ms) {
    yoke_profile profile = bare_profile();
    profile.forward_ms = forward_ms;
    return profile;
}

static void expect_pushes(const yoke_profile *profile, const yoke_topology *topology, int devices,
                          double step_ns, double mean, uint64_t largest) {
    yoke_simulation found = simulate(profile, topology, YOKE_SIMULATED_ASYNC, devices);
    if (fabs((double)found.step_ns - step_ns) > 100 + 1e-9 * step_ns)
        fail_msg("%d devices: %.0f ns for as many pushes, the formula says %.0f", devices,
                 (double)found.step_ns, step_ns);
    if (fabs(found.mean_staleness - mean) > 1e-9 || found.largest_staleness != largest)
        fail_msg("%d devices: pushes are %.3f updates behind, %.0f at most; not %.3f and %.0f",
                 devices, found.mean_staleness, (double)found.largest_staleness, mean,
                 (double)largest);
    yoke_simulation_clear(&found);
}

/* Each of the others pushes once while a device computes: N - 1 updates. */
static void equal_devices_push_in_turns(void **state) {
    (void)state;
    yoke_profile profile = pushing_profile(100);
    yoke_topology topology = topology_of(LINK, 0, NULL), fast = topology_of("1e6,0", 0, NULL);
    for (int devices = 1; devices <= 4096; devices *= 4)
        expect_pushes(&profile, &fast, devices, 100e6 + (devices > 1 ? 2 * p / 1e6 : 0),
                      devices - 1, (uint64_t)devices - 1);
    /* Over a slow link N - 1 devices share the root's; the root's own pushes need no link. */
    profile.forward_ms = 1;
    yoke_simulation found = simulate(&profile, &topology, YOKE_SIMULATED_ASYNC, 4);
    double apart = (double)found.links[0].sent / p; /* pushes of others, of 4 */
    double pace_ns = (double)found.step_ns / apart; /* each has passed the root's link */
    if (fabs(pace_ns / (p / beta) - 1) > 1e-5)
        fail_msg("a push of another device every %.0f ns", pace_ns);
    yoke_simulation_clear(&found);
    /* A server that updates all the time sets the pace. */
    profile.update_ns_per_byte = 10;
    expect_pushes(&profile, &fast, 4, 4 * 10 * p, 3, 3);
}

/* A device that is k times slower pushes 1 / k times as often, and nobody waits. While it computes
 * the others push k (N - 1) times; on average a push is N - 1 behind, whoever is slow. */
static void a_slow_device_slows_nobody_down(void **state) {
    (void)state;
    yoke_profile profile = pushing_profile(100);
    yoke_topology topology = topology_of("1e6,0", 0, NULL);
    topology.straggler = 0; /* it pushes over no link */
    for (double factor = 1.7; factor <= 8; factor *= 1.9)
        for (int devices = 2; devices <= 8; devices += 3) {
            topology.straggler_factor = factor;
            double n = devices, fast_ns = 100e6 + 2 * p / 1e6;
            yoke_simulation found = simulate(&profile, &topology, YOKE_SIMULATED_ASYNC, devices);
            double step_ns = n / ((n - 1) / fast_ns + 1 / (100e6 * factor));
            assert_true(fabs((double)found.step_ns / step_ns - 1) < 1e-4);
            assert_true(fabs(found.mean_staleness - (n - 1)) < 0.2);
            assert_true(fabs((double)found.largest_staleness - factor * (n - 1)) <= n - 1);
            yoke_simulation_clear(&found);
        }
}

/* While the slow device computes, S updates come from others, and then all wait for it: S + 1
 * pushes in its time. With S = N - 1 every step is one of all devices. */
static void a_bound_makes_all_wait_for_the_slow_device(void **state) {
    (void)state;
    yoke_profile profile = pushing_profile(100);
    yoke_topology topology = topology_of("1e6,0", 0, NULL);
    topology.straggler = 3;
    topology.straggler_factor = 10;
    for (int bound = 3; bound <= 12; bound += 3) {
        topology.max_staleness = bound;
        yoke_simulation found = simulate(&profile, &topology, YOKE_SIMULATED_ASYNC, 4);
        double step_ns = 4 * 1000e6 / (bound + 1);
        assert_true(fabs((double)found.step_ns / step_ns - 1) < 1e-3);
        assert_int_equal(found.largest_staleness, bound);
        yoke_simulation_clear(&found);
    }
    topology.max_staleness = 2;
    expect_refused(&topology, YOKE_SIMULATED_ASYNC, 4, "as stale as 3");
    expect_refused(&topology, YOKE_SIMULATED_ASYNC, 4, "staleness of 2");
}

/* A round of equal devices: each computes once, and the links' lanes have what the links carried.
 */
static void a_round_of_pushes_is_shown(void **state) {
    (void)state;
    yoke_profile profile = pushing_profile(100);
    yoke_topology topology = topology_of(LINK, 0, NULL);
    yoke_simulation found = simulate(&profile, &topology, YOKE_SIMULATED_ASYNC, 3);
    uint64_t forward_ns[3] = {0}, bytes[3] = {0};
    for (int i = 0; i < found.span_count; i++) {
        const yoke_span_info *span = &found.spans[i];
        int device = span->lane - YOKE_SIMULATED_LANES;
        if (device >= 0) bytes[device] += span->bytes;
        if (span->stage == YOKE_STAGE_FORWARD)
            forward_ns[span->lane] += span->end_ns - span->begin_ns;
    }
    for (int k = 1; k < 3; k++) {
        assert_true(fabs((double)forward_ns[k] - 100e6) < 30e6);
        assert_true(bytes[k] > p && bytes[k] <= 2 * p);
    }
    assert_true(bytes[0] > 2 * p && bytes[0] <= 4 * p);
    yoke_simulation_clear(&found);
}

/* Nobody waits for the slowest: of the spread's mean of 1 the mean of the rates remains. */
static void a_spread_hardly_slows_pushes_down(void **state) {
    (void)state;
    yoke_profile profile = pushing_profile(100);
    yoke_topology topology = topology_of("1e6,0", 0, NULL);
    topology.spread = 0.1;
    yoke_simulation found = simulate(&profile, &topology, YOKE_SIMULATED_ASYNC, 8);
    double slow = 1 + 0.1423600, other = 1 - 0.1423600 / 7,
           step_ns = 100e6 * 8 / (1 / slow + 7 / other);
    assert_true(fabs((double)found.step_ns / step_ns - 1) < 1e-3);
    yoke_simulation_clear(&found);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_devices_push_in_turns),
        cmocka_unit_test(a_slow_device_slows_nobody_down),
        cmocka_unit_test(a_bound_makes_all_wait_for_the_slow_device),
        cmocka_unit_test(a_spread_hardly_slows_pushes_down),
        cmocka_unit_test(a_round_of_pushes_is_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
