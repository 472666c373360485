/* SPDX-License-Identifier: Apache-2.0 */
/* yoke advise: which mode to train in on 2, 4 and 8 devices, what it gains, and what limits it. */
#include <math.h>
#include <string.h>

#include "cli/simulate/found_link.h"
#include "cli/simulate/simulate_setup.h"

#define FASTEST_LINK 1e6 /* GB/s */
#define GOAL 0.9         /* efficiency that a link should allow */

typedef struct advise_arguments {
    simulate_flags flags;
    bool json;
} advise_arguments;

#define FIELD(name) CLI_FIELD(advise_arguments, name)
#define FLAGS(name) FIELD(flags.name)

static const cli_option options[] = {
    SIMULATE_OPTIONS(FLAGS),
    {"json", NULL, "print the advice as one JSON object", FIELD(json)},
};

const cli_verb advise_verb = {
    .name = "advise",
    .operands = "PROFILE | NAME",
    .summary = "say which mode to take on 2, 4 and 8 devices, and what it gains",
    .options = options,
    .option_count = CLI_OPTION_COUNT(options),
    .more =
        "'yoke bench --profile PROFILE' measures one device; 'yoke simulate --list' shows the\n"
        "profiles that come with Yoke. Every device keeps the rows. The advice is a mode that\n"
        "'yoke train' has: dp-overlap, dp-sharded and dp-classic by --schedule, ddp-ring by\n"
        "--mode ddp. Of those that are as fast to 2 %, it is the first in this order: dp-overlap,\n"
        "dp-sharded, ddp-ring, dp-classic. 'yoke simulate PROFILE' shows all figures. More than\n"
        "100 % is no mistake: dp-sharded divides the update, too.\n"
        "\n"
        "  yoke advise p.json --link pcie4\n"};

/* What yoke train has, in the order in which it is easy to use. */
static const yoke_simulated_mode candidates[] = {YOKE_SIMULATED_OVERLAP, YOKE_SIMULATED_SHARDED,
                                                 YOKE_SIMULATED_DDP_RING, YOKE_SIMULATED_CLASSIC};
#define CANDIDATES (sizeof candidates / sizeof *candidates)
#define AS_FAST 1.02

/* Efficiencies are the speed-up of all devices, divided by their number. */
typedef struct device_advice {
    int devices;
    yoke_simulated_mode mode;
    double efficiency;
    double classic; /* of dp-classic; NaN: it stays within a node */
} device_advice;

typedef struct advised_limit {
    bool links;       /* the links, or computation */
    double waits;     /* the links' share of the step of devices that are alike */
    double slowest;   /* the share in which all wait for the slowest device */
    double latency;   /* the share of their latency */
    double bandwidth; /* so many times as much allows the efficiency; NaN: no bandwidth does */
    double efficiency;
} advised_limit;

#define COUNTS 3 /* of devices: 2, 4, 8 */
typedef struct whole_advice {
    device_advice counts[COUNTS];
    advised_limit limit; /* on the most devices */
} whole_advice;

static yoke_status efficiency_of(const yoke_profile *profile, const yoke_topology *topology,
                                 yoke_simulated_mode mode, int devices, double *efficiency) {
    yoke_simulation found;
    TRY(yoke_simulate(&found, profile, topology, mode, devices));
    *efficiency = found.efficiency;
    yoke_simulation_clear(&found);
    return YOKE_OK;
}

/* The first candidate that is as fast as the fastest. Between nodes DDP alone runs. */
static yoke_status choose(const simulate_setup *setup, device_advice *advice) {
    const yoke_topology *topology = &setup->topology;
    bool several = topology->per_node > 0 && advice->devices > topology->per_node;
    double all[CANDIDATES], best = 0;
    advice->classic = NAN;
    for (size_t i = 0; i < CANDIDATES; i++) {
        all[i] = 0;
        if (several && candidates[i] != YOKE_SIMULATED_DDP_RING) continue;
        TRY(efficiency_of(&setup->profile, topology, candidates[i], advice->devices, &all[i]));
        if (candidates[i] == YOKE_SIMULATED_CLASSIC) advice->classic = all[i];
        if (all[i] > best) best = all[i];
    }
    size_t first = 0;
    while (all[first] * AS_FAST < best)
        first++;
    advice->mode = candidates[first];
    advice->efficiency = all[first];
    return YOKE_OK;
}

static bool gains(const device_advice *advice) {
    return advice->efficiency * advice->devices >= 1;
}

static void print_devices(const device_advice *advice) {
    double speedup = advice->efficiency * advice->devices;
    printf("%d devices: %s%s, %.2f times %s one device (%.0f %% efficient)", advice->devices,
           gains(advice) ? "" : "stay on one; ", yoke_simulated_name(advice->mode), speedup,
           gains(advice) ? "as fast as" : "the speed of", 100 * advice->efficiency);
    if (advice->mode != YOKE_SIMULATED_CLASSIC && !isnan(advice->classic))
        printf("; dp-classic %.2f", advice->classic * advice->devices);
    printf("\n");
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
static yoke_status find_bandwidth(const simulate_setup *setup, const device_advice *advice,
                                  advised_limit *limit) {
    const yoke_topology *topology = &setup->topology;
    double rate = 1;
    double gigabytes = topology->link.bytes_per_ns;
    if (topology->nic.bytes_per_ns > 0) gigabytes = fmin(gigabytes, topology->nic.bytes_per_ns);
    while (limit->efficiency < GOAL && gigabytes * rate < FASTEST_LINK) {
        rate *= 2;
        TRY(changed(setup, advice->mode, advice->devices, rate, 1, &limit->efficiency));
    }
    limit->bandwidth = limit->efficiency < GOAL ? NAN : rate;
    return YOKE_OK;
}

/* What the step would gain without bandwidth's, and without latency's, share. */
static yoke_status find_limit(const simulate_setup *setup, const device_advice *advice,
                              advised_limit *limit) {
    double no_latency;
    yoke_simulation found;
    yoke_topology alike = setup->topology;
    alike.spread = 0;
    TRY(yoke_simulate(&found, &setup->profile, &alike, advice->mode, advice->devices));
    limit->waits = (double)(found.communicate_ns + found.wait_ns) / (double)found.step_ns;
    limit->slowest = 1 - advice->efficiency / found.efficiency;
    yoke_simulation_clear(&found);
    limit->links = limit->waits >= 0.02;
    if (!limit->links) return YOKE_OK;
    TRY(changed(setup, advice->mode, advice->devices, 1, 0, &no_latency));
    limit->latency = 1 - advice->efficiency / no_latency;
    return find_bandwidth(setup, advice, limit);
}

static void print_limit(const advised_limit *limit, int devices) {
    if (!limit->links) {
        printf("limit: computation; on %d devices links take %.1f %% of the step", devices,
               100 * limit->waits);
        if (limit->slowest > 0)
            printf(", and waits for the slowest device %.1f %%", 100 * limit->slowest);
        printf("\n");
        return;
    }
    printf("limit: the links, %.0f %% of the step on %d devices (latency %.0f %%); ",
           100 * limit->waits, devices, 100 * limit->latency);
    if (isnan(limit->bandwidth))
        printf("no bandwidth makes it %.0f %% efficient\n", 100 * GOAL);
    else
        printf("%g times the bandwidth makes it %.0f %% efficient\n", limit->bandwidth,
               100 * limit->efficiency);
}

static yoke_status find_advice(const simulate_setup *setup, whole_advice *advice) {
    for (int i = 0; i < COUNTS; i++) {
        device_advice *own = &advice->counts[i];
        own->devices = 2 << i;
        TRY(yoke_simulate_check(&setup->topology, YOKE_SIMULATED_DDP_RING, own->devices));
        TRY(choose(setup, own));
    }
    return find_limit(setup, &advice->counts[COUNTS - 1], &advice->limit);
}

static void print_advice(const simulate_setup *setup, const whole_advice *advice) {
    const yoke_profile *profile = &setup->profile;
    cli_print_text(stdout, profile->model, 0);
    printf(", %d rows a device: %.2f ms on ", profile->rows, yoke_profile_step_ms(profile));
    cli_print_text(stdout, profile->device, 0);
    printf("; links of %s\n", setup->link_text);
    for (int i = 0; i < COUNTS; i++)
        print_devices(&advice->counts[i]);
    print_limit(&advice->limit, advice->counts[COUNTS - 1].devices);
}

static yoke_status print_json(const simulate_setup *setup, const whole_advice *advice) {
    const yoke_profile *profile = &setup->profile;
    const advised_limit *limit = &advice->limit;
    yoke_json json;
    yoke_json_begin(&json);
    yoke_json_open(&json, NULL, '{');
    yoke_json_text(&json, "model", profile->model);
    yoke_json_text(&json, "device", profile->device);
    yoke_json_text(&json, "links", setup->link_text);
    yoke_json_integer(&json, "rows_per_device", profile->rows);
    yoke_json_real(&json, "profile_step_ms", yoke_profile_step_ms(profile));
    yoke_json_open(&json, "advice", '[');
    for (int i = 0; i < COUNTS; i++) {
        const device_advice *own = &advice->counts[i];
        yoke_json_open(&json, NULL, '{');
        yoke_json_integer(&json, "devices", own->devices);
        yoke_json_text(&json, "mode", yoke_simulated_name(own->mode));
        yoke_json_real(&json, "speedup", own->efficiency * own->devices);
        yoke_json_real(&json, "efficiency", own->efficiency);
        yoke_json_boolean(&json, "gains", gains(own));
        yoke_json_real(&json, "classic_speedup", own->classic * own->devices);
        yoke_json_close(&json, '}');
    }
    yoke_json_close(&json, ']');
    yoke_json_text(&json, "limit", limit->links ? "links" : "computation");
    yoke_json_real(&json, "links_share", limit->waits);
    yoke_json_real(&json, "slowest_share", limit->slowest);
    if (limit->links) {
        yoke_json_real(&json, "latency_share", limit->latency);
        yoke_json_real(&json, "bandwidth_factor", limit->bandwidth);
        yoke_json_real(&json, "bandwidth_efficiency", limit->efficiency);
    }
    yoke_json_close(&json, '}');
    return cli_print_json(&json, stdout);
}

int advise_main(int argc, char **argv) {
    advise_arguments arguments = {.flags = {.spread = NOT_STATED}};
    simulate_setup setup;
    whole_advice advice = {0};
    int operands = 0, code = cli_parse(&advise_verb, argc, argv, &arguments, &operands);
    if (code >= 0) return code;
    if (operands != 1) return cli_usage_error("advise", "advise takes one PROFILE or NAME");
    yoke_status status = simulate_setup_read(&setup, &arguments.flags, argv[1]);
    bool measured = status == YOKE_OK && !setup.published && !setup.found;
    if (measured && !found_processor(setup.profile.device)) {
        /* A CPU's profile says little about another machine. */
        fprintf(stderr, "yoke: note: the profile is of '");
        cli_print_text(stderr, setup.profile.device, 0);
        fprintf(stderr, "', not of this machine's processor\n");
    }
    if (status == YOKE_OK) status = find_advice(&setup, &advice);
    if (status == YOKE_OK && arguments.json)
        status = print_json(&setup, &advice);
    else if (status == YOKE_OK)
        print_advice(&setup, &advice);
    yoke_profile_clear(&setup.profile);
    return status == YOKE_OK ? 0 : cli_fail(status);
}
