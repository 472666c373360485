/* SPDX-License-Identifier: Apache-2.0 */
/* The simulator against the formulas of docs/ddp.md. */
#include "simulate/bare_profile.h"
#include "simulate/spread.h"
#include "yoke/data_parallel.h"

/* Times are whole ns. */
static void expect_step(yoke_profile profile, const yoke_topology *topology,
                        yoke_simulated_mode mode, int devices, double formula_ns) {
    yoke_simulation found = simulate(&profile, topology, mode, devices);
    if (fabs((double)found.step_ns - formula_ns) > 100 + 1e-9 * formula_ns)
        fail_msg("%s on %d devices: %.0f ns, the formula says %.0f", yoke_simulated_name(mode),
                 devices, (double)found.step_ns, formula_ns);
    yoke_simulation_clear(&found);
}

static void transfers_alone_take_their_formulas(void **state) {
    (void)state;
    yoke_topology topology = topology_of(LINK, 0, NULL);
    for (int devices = 1; devices <= YOKE_SIMULATED_DEVICES; devices *= 2) {
        double n = devices, b = SEGMENTS, one = devices > 1 ? 1 : 0, depth = log2(n);
        double ring = 2 * (n - 1) * (b * alpha + p / (n * beta));
        double classic = 5 * one * alpha + (n - 1) * (ROWS * (INPUT + 2 * OUTPUT) + 2 * p) / beta;
        expect_step(bare_profile(), &topology, YOKE_SIMULATED_CLASSIC, devices, classic);
        expect_step(bare_profile(), &topology, YOKE_SIMULATED_OVERLAP, devices,
                    2 * (b * (n - 1) * alpha + one * p / beta));
        expect_step(bare_profile(), &topology, YOKE_SIMULATED_SHARDED, devices, ring);
        expect_step(bare_profile(), &topology, YOKE_SIMULATED_DDP_RING, devices, ring);
        expect_step(bare_profile(), &topology, YOKE_SIMULATED_DDP_HIERARCHICAL, devices, ring);
        expect_step(bare_profile(), &topology, YOKE_SIMULATED_DDP_TREE, devices,
                    2 * (b * depth * alpha + one * p / beta));
    }
}

/* One device has nothing to transfer: the profile's own step. */
static void one_device_takes_the_profiles_step(void **state) {
    (void)state;
    yoke_profile_segment own[2] = {{3, 1000}, {4, 1000}};
    yoke_profile profile = bare_profile();
    profile.segments = own;
    profile.segment_count = 2;
    profile.host_ms = 0.5;
    profile.forward_ms = 5;
    profile.loss_ms = 1;
    profile.update_ns_per_byte = 250;
    assert_float_equal(yoke_profile_step_ms(&profile), 14, 1e-9);
    yoke_topology topology = topology_of("pcie3", 0, NULL);
    for (int mode = 0; mode < YOKE_SIMULATED_MODES; mode++)
        expect_step(profile, &topology, (yoke_simulated_mode)mode, 1, 14e6);
}

/* Behind a backward of 1 s only the last bucket shows. */
static void backward_hides_all_but_the_last_bucket(void **state) {
    (void)state;
    yoke_profile_segment own[SEGMENTS];
    yoke_profile profile = bare_profile();
    yoke_topology topology = topology_of(LINK, 0, NULL);
    memcpy(own, segments, sizeof own);
    for (int s = 0; s < SEGMENTS; s++)
        own[s].backward_ms = 1000;
    profile.segments = own;
    double last = (double)own[SEGMENTS - 1].bytes;
    expect_step(profile, &topology, YOKE_SIMULATED_OVERLAP, 4, 3e9 + 2 * (3 * alpha + last / beta));
    expect_step(profile, &topology, YOKE_SIMULATED_DDP_RING, 4,
                3e9 + 2 * 3 * (alpha + last / (4 * beta)));
    expect_step(profile, &topology, YOKE_SIMULATED_CLASSIC, 4,
                3e9 + 5 * alpha + 3 * (ROWS * (INPUT + 2 * OUTPUT) + 2 * p) / beta);
}

/* The root takes the loss of all rows in classic, and updates everything but in sharded. */
static void the_root_computes_what_others_do_not(void **state) {
    (void)state;
    yoke_topology topology = topology_of("1e6,0", 0, NULL);
    yoke_profile profile = bare_profile();
    profile.loss_ms = 1;
    profile.update_ns_per_byte = 1;
    yoke_simulation classic = simulate(&profile, &topology, YOKE_SIMULATED_CLASSIC, 4);
    yoke_simulation sharded = simulate(&profile, &topology, YOKE_SIMULATED_SHARDED, 4);
    assert_int_equal(classic.loss_ns, 4000000);
    assert_int_equal(sharded.loss_ns, 1000000);
    assert_int_equal(classic.update_ns, 8000000);
    assert_int_equal(sharded.update_ns, 2000000);
    yoke_simulation_clear(&sharded);
    yoke_simulation_clear(&classic);
}

/* Short kernels: the lock is always taken, N L u. Long ones: only the first calls wait, (N - 1) u.
 * Before either the root rebuilds N L modules. */
static void python_takes_its_lock_for_every_layer(void **state) {
    (void)state;
    yoke_profile profile = bare_profile();
    yoke_topology topology = topology_of("1e6,0", 0, NULL);
    topology.interpreter_us = 10;
    profile.layers = 50;
    double n = 4, l = 50, u = 10e3, transfers = 3 * (ROWS * (INPUT + 2 * OUTPUT) + 2 * p) / 1e6;
    profile.forward_ms = 50 * 0.02; /* 20 us a layer, less than 3 calls */
    expect_step(profile, &topology, YOKE_SIMULATED_PYTHON, 4, 2 * n * l * u + 20e3 + transfers);
    profile.forward_ms = 50 * 0.04;
    expect_step(profile, &topology, YOKE_SIMULATED_PYTHON, 4,
                n * l * u + (n - 1) * u + l * (u + 40e3) + transfers);
    expect_step(profile, &topology, YOKE_SIMULATED_PYTHON, 1, l * (u + 40e3));
    profile.forward_ms = 50 * 0.02; /* short again: all but the first holder have waited */
    topology.handover_us = 3;
    topology.thread_us = 40;
    expect_step(profile, &topology, YOKE_SIMULATED_PYTHON, 4,
                n * (l * u + 40e3) + n * l * u + (n * l - 1) * 3e3 + 20e3 + transfers);
    expect_step(profile, &topology, YOKE_SIMULATED_PYTHON, 1, l * (u + 20e3));
    topology.interpreter_us = topology.handover_us = topology.thread_us = 0;
    expect_step(profile, &topology, YOKE_SIMULATED_PYTHON, 4, l * 20e3 + transfers);
}

/* Everybody waits for it, and nobody where there is no such device. */
static void a_straggler_sets_the_pace(void **state) {
    (void)state;
    yoke_profile_segment own[SEGMENTS];
    yoke_profile profile = bare_profile();
    yoke_topology topology = topology_of("1e6,0", 0, NULL);
    memcpy(own, segments, sizeof own);
    for (int s = 0; s < SEGMENTS; s++)
        own[s].backward_ms = 7;
    profile.segments = own;
    profile.forward_ms = 5;
    profile.loss_ms = 1;
    double classic = 3 * (ROWS * (INPUT + 2 * OUTPUT) + 2 * p) / 1e6;
    double chain = 2 * (double)own[SEGMENTS - 1].bytes / 1e6;
    topology.straggler = 1;
    topology.straggler_factor = 2.5;
    expect_step(profile, &topology, YOKE_SIMULATED_OVERLAP, 4, 2.5 * 26e6 + 1e6 + chain);
    expect_step(profile, &topology, YOKE_SIMULATED_CLASSIC, 4, 2.5 * 26e6 + 4e6 + classic);
    expect_step(profile, &topology, YOKE_SIMULATED_PYTHON, 4, 2.5 * 26e6 + 4e6 + classic);
    expect_step(profile, &topology, YOKE_SIMULATED_OVERLAP, 1, 27e6);
    for (topology.straggler = 0; topology.straggler < 2; topology.straggler++) {
        yoke_simulation found = simulate(&profile, &topology, YOKE_SIMULATED_DDP_RING, 4);
        double waits = topology.straggler == 0 ? 0 : 1.5 * 26e6;
        assert_float_equal((double)(found.communicate_ns + found.wait_ns), waits, 10e3);
        yoke_simulation_clear(&found);
    }
    topology.straggler_factor = 0.5;
    expect_refused(&topology, YOKE_SIMULATED_OVERLAP, 2, "straggler");
}

/* Expected largest of N standard normal deviates: Tippett 1925, and tables of order statistics. */
static void the_slowest_of_several_sets_the_pace(void **state) {
    (void)state;
    static const struct {
        int devices;
        double deviations;
    } table[] = {{1, 0}, {2, 0.56419}, {4, 1.02938}, {8, 1.42360}, {10, 1.53875}, {1000, 3.24144}};
    yoke_profile profile = bare_profile();
    yoke_topology topology = topology_of("1e6,0", 0, NULL);
    profile.forward_ms = 100;
    topology.spread = 0.1;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        double ring_ns = 2 * (table[i].devices - 1) * p / (1e6 * table[i].devices);
        assert_true(fabs(yoke_largest_deviate(table[i].devices) - table[i].deviations) < 1e-5);
        expect_step(profile, &topology, YOKE_SIMULATED_DDP_RING, table[i].devices,
                    100e6 * (1 + 0.1 * yoke_largest_deviate(table[i].devices)) + ring_ns);
    }
    yoke_simulation found = simulate(&profile, &topology, YOKE_SIMULATED_DDP_RING, 2);
    double forward_ns = (double)(found.spans[0].end_ns - found.spans[0].begin_ns);
    assert_true(fabs(forward_ns - 100e6 * (1 - 0.056419)) < 1000); /* the mean of two is 1 */
    yoke_simulation_clear(&found);
    topology.straggler_factor = 1.5; /* and the root is slower still */
    expect_step(profile, &topology, YOKE_SIMULATED_OVERLAP, 4, 150e6 + 2 * 3e6 / 1e6);
    topology.spread = 1.1;
    expect_refused(&topology, YOKE_SIMULATED_OVERLAP, 2, "spread");
    topology.spread = NAN;
    expect_refused(&topology, YOKE_SIMULATED_OVERLAP, 2, "spread");
}

/* As the engine does: replicate is the transfer of the weights, python the copy of the modules. */
static void copies_of_modules_are_of_the_stage_python(void **state) {
    (void)state;
    yoke_profile profile = bare_profile();
    yoke_topology topology = topology_of(LINK, 0, NULL);
    uint64_t stage_ns[YOKE_STAGE_COUNT] = {0};
    topology.interpreter_us = 10;
    profile.layers = 50;
    yoke_simulation found = simulate(&profile, &topology, YOKE_SIMULATED_PYTHON, 4);
    for (int i = 0; i < found.span_count && found.spans[i].lane == 0; i++)
        stage_ns[found.spans[i].stage] += found.spans[i].end_ns - found.spans[i].begin_ns;
    assert_int_equal(stage_ns[YOKE_STAGE_PYTHON], 4 * 50 * 10000);
    assert_int_equal(stage_ns[YOKE_STAGE_REPLICATE], (uint64_t)(alpha + 3 * p / beta));
    yoke_simulation_clear(&found);
}

/* Two nodes of 4: the cards carry a ring's step, a tree's upper level, or what hierarchical leaves.
 */
static void nodes_take_their_formulas(void **state) {
    (void)state;
    yoke_topology topology = topology_of(LINK, 4, "0.25,20");
    double b = SEGMENTS, a_nic = 20e3, b_nic = 0.25;
    expect_step(bare_profile(), &topology, YOKE_SIMULATED_DDP_RING, 8,
                2 * 7 * (b * a_nic + p / (8 * b_nic)));
    expect_step(bare_profile(), &topology, YOKE_SIMULATED_DDP_TREE, 8,
                2 * (b * (2 * alpha + a_nic) + p / b_nic));
    expect_step(bare_profile(), &topology, YOKE_SIMULATED_DDP_HIERARCHICAL, 8,
                2 * (3 * (b * alpha + p / (4 * beta)) + b * a_nic + p / (2 * b_nic)));
}

/* A lane does one thing at a time, and all it does lies in the step. */
static void lanes_do_one_thing_at_a_time(void **state) {
    (void)state;
    yoke_profile_segment own[SEGMENTS];
    yoke_profile profile = bare_profile();
    yoke_topology topology = topology_of(LINK, 0, NULL);
    memcpy(own, segments, sizeof own);
    topology.interpreter_us = 100;
    topology.straggler = 2;
    topology.straggler_factor = 1.5;
    for (int s = 0; s < SEGMENTS; s++)
        own[s].backward_ms = 7;
    profile.segments = own;
    profile.forward_ms = 5;
    profile.loss_ms = profile.host_ms = 1;
    profile.update_ns_per_byte = 0.1;
    for (int mode = 0; mode < YOKE_SIMULATED_MODES; mode++) {
        yoke_simulation found = simulate(&profile, &topology, (yoke_simulated_mode)mode, 4);
        uint64_t root_ns = 0;
        assert_true(found.span_count > 4 * (SEGMENTS + 2));
        for (int i = 0; i < found.span_count; i++) {
            const yoke_span_info *span = &found.spans[i];
            if (i > 0 && span->lane == span[-1].lane)
                assert_true(span->begin_ns >= span[-1].end_ns);
            assert_true(span->begin_ns < span->end_ns && span->end_ns <= found.step_ns);
            if (span->lane == 0) root_ns += span->end_ns - span->begin_ns;
        }
        if (mode != YOKE_SIMULATED_ASYNC) /* whose rounds end within a step of the root */
            assert_int_equal(root_ns + 1000000, found.step_ns); /* and the host's time */
        yoke_simulation_clear(&found);
    }
}

static void expect_bytes(const yoke_simulation *found, int device, double sent, double received) {
    if ((double)found->links[device].sent != sent ||
        (double)found->links[device].received != received)
        fail_msg("%s: the link of device %d sent %.0f and received %.0f bytes, not %.0f and %.0f",
                 yoke_simulated_name(found->mode), device, (double)found->links[device].sent,
                 (double)found->links[device].received, sent, received);
}

/* docs/ddp.md, "How many bytes move": P of gradients, and in classic rows and outputs. */
static void links_carry_what_the_schedule_moves(void **state) {
    (void)state;
    enum { DEVICES = 8 };
    yoke_profile profile = bare_profile();
    yoke_topology topology = topology_of(LINK, 0, NULL);
    double n = DEVICES, to = ROWS * (INPUT + OUTPUT), from = ROWS * OUTPUT;
    for (int mode = 0; mode < YOKE_SIMULATED_MODES; mode++) {
        profile.forward_ms = mode == YOKE_SIMULATED_ASYNC ? 1000 : 0; /* all push equally often */
        yoke_simulation found = simulate(&profile, &topology, (yoke_simulated_mode)mode, DEVICES);
        assert_int_equal(found.link_count, DEVICES);
        if (mode == YOKE_SIMULATED_CLASSIC || mode == YOKE_SIMULATED_PYTHON) {
            expect_bytes(&found, 0, (n - 1) * (p + to), (n - 1) * (p + from));
            expect_bytes(&found, 7, p + from, p + to);
        } else if (mode == YOKE_SIMULATED_NCCL) {
            expect_bytes(&found, 0, p + (n - 1) * to, p + (n - 1) * from);
            expect_bytes(&found, 6, 2 * p + from, 2 * p + to);
            expect_bytes(&found, 7, p + from, p + to);
        } else if (mode == YOKE_SIMULATED_ASYNC) {
            expect_bytes(&found, 0, (n - 1) * p, (n - 1) * p);
            expect_bytes(&found, 7, p, p);
        } else if (mode == YOKE_SIMULATED_OVERLAP) {
            expect_bytes(&found, 0, p, p);
            expect_bytes(&found, 6, 2 * p, 2 * p);
        } else {
            for (int k = 0; k < DEVICES; k++)
                expect_bytes(&found, k, 2 * p * (n - 1) / n, 2 * p * (n - 1) / n);
        }
        yoke_simulation_clear(&found);
    }
}

/* The root's link is busy from the first copy to the last, another's during its own. */
static void a_links_lane_shows_when_it_carries(void **state) {
    (void)state;
    yoke_profile profile = bare_profile();
    yoke_topology topology = topology_of(LINK, 0, NULL);
    yoke_simulation found = simulate(&profile, &topology, YOKE_SIMULATED_CLASSIC, 3);
    double copy_ns = ROWS * INPUT / beta;
    uint64_t bytes[YOKE_SIMULATED_LANES] = {0};
    int seen = 0;
    for (int i = 0; i < found.span_count; i++) {
        const yoke_span_info *span = &found.spans[i];
        int device = span->lane - YOKE_SIMULATED_LANES;
        if (device < 0) continue;
        bytes[device] += span->bytes;
        if (span->stage != YOKE_STAGE_SCATTER || bytes[device] != span->bytes) continue;
        double begin_ns = alpha + (device == 2 ? copy_ns : 0);
        double end_ns = begin_ns + (device == 0 ? 2 : 1) * copy_ns;
        if (fabs((double)span->begin_ns - begin_ns) > 1 || fabs((double)span->end_ns - end_ns) > 1)
            fail_msg("link %d: %.0f to %.0f, not %.0f to %.0f ns", device, (double)span->begin_ns,
                     (double)span->end_ns, begin_ns, end_ns);
        seen++;
    }
    assert_int_equal(seen, 3);
    for (int k = 0; k < 3; k++)
        assert_int_equal(bytes[k], found.links[k].sent + found.links[k].received);
    yoke_simulation_clear(&found);
    found = simulate(&profile, &topology, YOKE_SIMULATED_DDP_RING, 3);
    for (int i = 0; i < found.span_count; i++)
        if (found.spans[i].lane >= YOKE_SIMULATED_LANES) seen++;
    assert_int_equal(seen, 3 + 3 * SEGMENTS);
    yoke_simulation_clear(&found);
}

/* A byte takes less than a nanosecond. */
static void no_span_is_empty(void **state) {
    (void)state;
    yoke_profile_segment own[2] = {{1, 1}, {1, 1}};
    yoke_profile profile = bare_profile();
    yoke_topology topology = topology_of("1e6,0", 0, NULL);
    profile.segments = own;
    profile.segment_count = 2;
    profile.rows = 1;
    profile.input_bytes = profile.output_bytes = 1;
    for (int mode = 0; mode < YOKE_SIMULATED_MODES; mode++) {
        yoke_simulation found = simulate(&profile, &topology, (yoke_simulated_mode)mode, 4);
        assert_true(found.span_count > 0);
        for (int i = 0; i < found.span_count; i++)
            assert_true(found.spans[i].begin_ns < found.spans[i].end_ns);
        yoke_simulation_clear(&found);
    }
}

static void impossible_topologies_are_refused(void **state) {
    (void)state;
    yoke_topology one = topology_of(LINK, 0, NULL), nodes = topology_of(LINK, 4, "1,20");
    yoke_topology no_card = topology_of(LINK, 4, NULL),
                  bridged = topology_of("1,5,bridge", 4, "1,2");
    yoke_topology odd_card = topology_of(LINK, 4, "1,5,bridge"),
                  below = topology_of(LINK, -1, NULL);
    expect_refused(&one, YOKE_SIMULATED_DDP_RING, 0, "0 devices");
    expect_refused(&one, YOKE_SIMULATED_DDP_RING, 4097, "4097 devices");
    expect_refused(&nodes, YOKE_SIMULATED_OVERLAP, 8, "one process on one node");
    expect_refused(&nodes, YOKE_SIMULATED_DDP_RING, 6, "do not fill nodes of 4");
    expect_refused(&no_card, YOKE_SIMULATED_DDP_TREE, 8, "link between nodes");
    expect_refused(&bridged, YOKE_SIMULATED_DDP_RING, 8, "switch");
    expect_refused(&odd_card, YOKE_SIMULATED_DDP_RING, 8, "bridge");
    one.interpreter_us = NAN;
    expect_refused(&one, YOKE_SIMULATED_PYTHON, 2, "interpreter");
    expect_refused(&below, YOKE_SIMULATED_DDP_RING, 2, "-1 devices");
}

/* Times must fit into 64 bits. */
static void a_step_of_decades_is_refused(void **state) {
    (void)state;
    yoke_profile_segment own[1] = {{0, 10000000000}};
    yoke_profile profile = bare_profile();
    yoke_topology topology = topology_of("1e-6,0", 0, NULL);
    yoke_simulation found;
    profile.segments = own;
    profile.segment_count = 1;
    for (int mode = 0; mode < YOKE_SIMULATED_MODES; mode++) {
        yoke_simulated_mode each = (yoke_simulated_mode)mode;
        assert_int_equal(yoke_simulate(&found, &profile, &topology, each, 4096),
                         YOKE_ERROR_ARGUMENT);
        assert_non_null(strstr(yoke_last_error(), "decades"));
        EXPECT_OK(yoke_simulate(&found, &profile, &topology, each, 2));
        yoke_simulation_clear(&found);
    }
}

/* Rows in a second and efficiencies divide by the step. */
static void a_step_of_no_time_gives_finite_rates(void **state) {
    (void)state;
    yoke_topology topology = topology_of("1e6,0", 0, NULL);
    for (int mode = 0; mode < YOKE_SIMULATED_MODES; mode++) {
        yoke_profile profile = bare_profile();
        profile.forward_ms = 9e-7;
        yoke_simulation found = simulate(&profile, &topology, (yoke_simulated_mode)mode, 1);
        assert_true(found.step_ns > 0 && isfinite(found.efficiency));
        yoke_simulation_clear(&found);
    }
}

/* The simulator shows no stage that the engine's schedule lacks. */
static void stages_are_those_that_the_engine_runs(void **state) {
    (void)state;
    static const struct {
        yoke_simulated_mode mode;
        yoke_schedule schedule;
    } pairs[] = {{YOKE_SIMULATED_CLASSIC, YOKE_SCHEDULE_CLASSIC},
                 {YOKE_SIMULATED_OVERLAP, YOKE_SCHEDULE_OVERLAP},
                 {YOKE_SIMULATED_SHARDED, YOKE_SCHEDULE_SHARDED}};
    yoke_profile profile = bare_profile();
    yoke_topology topology = topology_of(LINK, 4, NULL);
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        yoke_stage stages[YOKE_STAGE_COUNT];
        int count = yoke_schedule_stages(pairs[i].schedule, stages, YOKE_STAGE_COUNT);
        yoke_simulation found = simulate(&profile, &topology, pairs[i].mode, 4);
        assert_true(found.span_count > 0);
        for (int k = 0; k < found.span_count; k++) {
            yoke_stage stage = found.spans[k].stage;
            bool listed = stage == YOKE_STAGE_WAIT;
            for (int n = 0; n < count; n++)
                listed |= stages[n] == stage;
            if (!listed)
                fail_msg("mode %d simulates %s", (int)pairs[i].mode, yoke_stage_name(stage));
        }
        yoke_simulation_clear(&found);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_are_those_that_the_engine_runs),
        cmocka_unit_test(transfers_alone_take_their_formulas),
        cmocka_unit_test(one_device_takes_the_profiles_step),
        cmocka_unit_test(backward_hides_all_but_the_last_bucket),
        cmocka_unit_test(the_root_computes_what_others_do_not),
        cmocka_unit_test(python_takes_its_lock_for_every_layer),
        cmocka_unit_test(a_straggler_sets_the_pace),
        cmocka_unit_test(the_slowest_of_several_sets_the_pace),
        cmocka_unit_test(copies_of_modules_are_of_the_stage_python),
        cmocka_unit_test(nodes_take_their_formulas),
        cmocka_unit_test(lanes_do_one_thing_at_a_time),
        cmocka_unit_test(links_carry_what_the_schedule_moves),
        cmocka_unit_test(a_links_lane_shows_when_it_carries),
        cmocka_unit_test(no_span_is_empty),
        cmocka_unit_test(impossible_topologies_are_refused),
        cmocka_unit_test(a_step_of_decades_is_refused),
        cmocka_unit_test(a_step_of_no_time_gives_finite_rates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
