/* SPDX-License-Identifier: Apache-2.0 */
/* yoke advise: which mode to train in on 2, 4 and 8 devices, what it gains, and what limits it. */
#include <math.h>
#include <string.h>

#include "cli/simulate/found_link.h"
#include "cli/simulate/simulate_setup.h"

#define MOST_DEVICES 8
#define FASTEST_LINK 1e6 /* GB/s */
#define GOAL 0.9         /* efficiency that a link should allow */

#define AT(field) CLI_FIELD(simulate_flags, field)

static const cli_option options[] = {
    SIMULATE_OPTIONS(AT),
};

const cli_verb advise_verb = {
    .name = "advise",
    .operands = "PROFILE | NAME",
    .summary = "say which mode to take on 2, 4 and 8 devices, and what it gains",
    .options = options,
    .option_count = CLI_OPTION_COUNT(options),
    .more = "'yoke bench --profile PROFILE' measures one device; 'yoke simulate --list' shows the\n"
            "profiles that come with Yoke. Every device keeps the rows. Of modes that are as fast "
            "to 2 %, the advice is the first of dp-overlap, dp-sharded and\n"
            "DDP. 'yoke simulate PROFILE' shows all figures. More than 100 % is no mistake: "
            "dp-sharded\n"
            "divides the update, too.\n"
            "\n"
            "  yoke advise p.json --link pcie4\n"};

/* In the order in which they are easy to use. */
static const yoke_simulated_mode candidates[] = {
    YOKE_SIMULATED_OVERLAP,  YOKE_SIMULATED_SHARDED,          YOKE_SIMULATED_DDP_RING,
    YOKE_SIMULATED_DDP_TREE, YOKE_SIMULATED_DDP_HIERARCHICAL,
};
#define CANDIDATES (sizeof candidates / sizeof *candidates)
#define AS_FAST 1.02

static yoke_status efficiency_of(const yoke_profile *profile, const yoke_topology *topology,
                                 yoke_simulated_mode mode, int devices, double *efficiency) {
    yoke_simulation found;
    TRY(yoke_simulate(&found, profile, topology, mode, devices));
    *efficiency = found.efficiency;
    yoke_simulation_clear(&found);
    return YOKE_OK;
}

/* The first candidate that is as fast as the fastest. */
static yoke_status choose(const simulate_setup *setup, int devices, yoke_simulated_mode *mode,
                          double *efficiency) {
    const yoke_topology *topology = &setup->topology;
    bool several = topology->per_node > 0 && devices > topology->per_node;
    double all[CANDIDATES], best = 0;
    size_t first = several ? 2 : 0; /* DataParallel stays within a node */
    for (size_t i = first; i < CANDIDATES; i++) {
        TRY(efficiency_of(&setup->profile, topology, candidates[i], devices, &all[i]));
        if (all[i] > best) best = all[i];
    }
    while (all[first] * AS_FAST < best)
        first++;
    *mode = candidates[first];
    *efficiency = all[first];
    return YOKE_OK;
}

static yoke_status print_devices(const simulate_setup *setup, int devices,
                                 yoke_simulated_mode *mode) {
    double efficiency, classic = 0;
    TRY(choose(setup, devices, mode, &efficiency));
    bool one_node = setup->topology.per_node == 0 || devices <= setup->topology.per_node;
    bool slower = efficiency * devices < 1;
    printf("%d devices: %s%s, %.2f times %s one device (%.0f %% efficient)", devices,
           slower ? "stay on one; " : "", yoke_simulated_name(*mode), efficiency * devices,
           slower ? "the speed of" : "as fast as", 100 * efficiency);
    if (one_node)
        TRY(efficiency_of(&setup->profile, &setup->topology, YOKE_SIMULATED_CLASSIC, devices,
                          &classic));
    if (one_node) printf("; dp-classic %.2f", classic * devices);
    printf("\n");
    return YOKE_OK;
}

/* Efficiency with all links made so many times as fast, and with latencies times `latency`. */
static yoke_status changed(const simulate_setup *setup, yoke_simulated_mode mode, int devices,
                           double rate, double latency, double *efficiency) {
    yoke_topology topology = setup->topology;
    topology.link.bytes_per_ns *= rate;
    topology.link.latency_ns *= latency;
    topology.nic.bytes_per_ns *= rate;
    topology.nic.latency_ns *= latency;
    return efficiency_of(&setup->profile, &topology, mode, devices, efficiency);
}

/* Links of twice, four times ... the bandwidth, until the goal is reached. Behind the last rate the
 * slowest kind of link is as fast as FASTEST_LINK. */
static yoke_status print_bandwidth(const simulate_setup *setup, yoke_simulated_mode mode,
                                   int devices) {
    const yoke_topology *topology = &setup->topology;
    double rate = 1, efficiency = 0;
    double gigabytes = topology->link.bytes_per_ns;
    if (topology->nic.bytes_per_ns > 0) gigabytes = fmin(gigabytes, topology->nic.bytes_per_ns);
    while (efficiency < GOAL && gigabytes * rate < FASTEST_LINK) {
        rate *= 2;
        TRY(changed(setup, mode, devices, rate, 1, &efficiency));
    }
    if (efficiency < GOAL)
        printf("no bandwidth makes it %.0f %% efficient\n", 100 * GOAL);
    else
        printf("%g times the bandwidth makes it %.0f %% efficient\n", rate, 100 * efficiency);
    return YOKE_OK;
}

/* What the step would gain without bandwidth's, and without latency's, share. */
static yoke_status print_limit(const simulate_setup *setup, yoke_simulated_mode mode, int devices) {
    double now, no_latency;
    yoke_simulation found;
    TRY(yoke_simulate(&found, &setup->profile, &setup->topology, mode, devices));
    double waits = (double)(found.communicate_ns + found.wait_ns) / (double)found.step_ns;
    now = found.efficiency;
    yoke_simulation_clear(&found);
    if (waits < 0.02) {
        printf("limit: computation; on %d devices links take %.1f %% of the step\n", devices,
               100 * waits);
        return YOKE_OK;
    }
    TRY(changed(setup, mode, devices, 1, 0, &no_latency));
    double by_latency = (1 / now - 1 / no_latency) * now; /* of the step */
    printf("limit: the links, %.0f %% of the step on %d devices (latency %.0f %%); ", 100 * waits,
           devices, 100 * by_latency);
    return print_bandwidth(setup, mode, devices);
}

/* A CPU's profile says little about another machine. */
static void note_machine(const yoke_profile *profile) {
    if (found_processor(profile->device)) return;
    fprintf(stderr, "yoke: note: the profile is of '");
    cli_print_text(stderr, profile->device, 0);
    fprintf(stderr, "', not of this machine's processor\n");
}

static yoke_status advise(const simulate_setup *setup) {
    const yoke_profile *profile = &setup->profile;
    yoke_simulated_mode mode = YOKE_SIMULATED_OVERLAP;
    for (int devices = 2; devices <= MOST_DEVICES; devices *= 2)
        TRY(yoke_simulate_check(&setup->topology, YOKE_SIMULATED_DDP_RING, devices));
    cli_print_text(stdout, profile->model, 0);
    printf(", %d rows a device: %.2f ms on ", profile->rows, yoke_profile_step_ms(profile));
    cli_print_text(stdout, profile->device, 0);
    printf("; links of %s\n", setup->link_text);
    for (int devices = 2; devices <= MOST_DEVICES; devices *= 2)
        TRY(print_devices(setup, devices, &mode));
    return print_limit(setup, mode, MOST_DEVICES);
}

int advise_main(int argc, char **argv) {
    simulate_flags flags = {0};
    simulate_setup setup;
    int operands = 0, code = cli_parse(&advise_verb, argc, argv, &flags, &operands);
    if (code >= 0) return code;
    if (operands != 1) return cli_usage_error("advise", "advise takes one PROFILE or NAME");
    yoke_status status = simulate_setup_read(&setup, &flags, argv[1]);
    if (status == YOKE_OK && !setup.published && !setup.found) note_machine(&setup.profile);
    if (status == YOKE_OK) status = advise(&setup);
    yoke_profile_clear(&setup.profile);
    return status == YOKE_OK ? 0 : cli_fail(status);
}
