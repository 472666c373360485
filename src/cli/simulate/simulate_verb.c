/* SPDX-License-Identifier: Apache-2.0 */
/* yoke simulate: the step of a profile on devices that one does not have. */
#include <stdlib.h>
#include <string.h>

#include "cli/option_values.h"
#include "cli/simulate/published.h"
#include "cli/simulate/simulate_setup.h"
#include "yoke/data_parallel.h"

#define COUNTS_MAX 64

typedef struct simulate_arguments {
    simulate_flags flags;
    const char *devices, *html;
    straggler straggler;
    unsigned mode; /* 0: all */
    double interpreter_us;
    int max_staleness; /* 0: no bound */
    bool json, list;
} simulate_arguments;

#define FIELD(name) CLI_FIELD(simulate_arguments, name)
#define FLAGS(name) FIELD(flags.name)

static const cli_option options[] = {
    {"devices", "LIST", "numbers of devices, or a range of powers of two: 1..4096 (1,2,4,8)",
     FIELD(devices)},
    {"mode",
     "all|dp-python|dp-classic|dp-nccl|dp-overlap|dp-sharded|dp-async|ddp-ring|ddp-tree|"
     "ddp-hierarchical",
     "schedule of DataParallel, or route of DDP's all-reduce (all but dp-async, another method)",
     FIELD(mode)},
    {"max-staleness", "N",
     "dp-async: devices that are ahead wait, so that no push is staler (no bound)",
     FIELD(max_staleness), 1, 1e6},
    SIMULATE_OPTIONS(FLAGS),
    {"interpreter-us", "X",
     "dp-python: microseconds of Python for each layer and replica (13, as measured)",
     FIELD(interpreter_us), 0, 1e6},
    {"straggler", "K:X", "forward and backward take device K, from 0, X times as long: 1:2.0",
     FIELD(straggler)},
    {"list", NULL, "list the profiles that come with Yoke; simulate nothing", FIELD(list)},
    {"html", "FILE", "write a page of figures: step time, timeline, stages", FIELD(html)},
    {"json", NULL, "print the result as one JSON object, with the timelines", FIELD(json)},
};

const cli_verb simulate_verb = {
    .name = "simulate",
    .operands = "PROFILE | NAME",
    .summary = "predict the step of a profile on many devices, from their links",
    .options = options,
    .option_count = CLI_OPTION_COUNT(options),
    .more =
        "'yoke bench --profile PROFILE' measures one device; NAME is a profile that comes with\n"
        "Yoke, estimated from published throughput. Every device keeps the profile's rows.\n"
        "DataParallel is one process and stays within a node; several nodes need --nic.\n"
        "\n"
        "  yoke simulate --list\n"
        "  yoke simulate h100:resnet50 --devices 1..64 --devices-per-node 8 --nic 50,10\n"
        "  yoke bench --profile p.json --model resnet18-cifar --rows 32\n"
        "  yoke simulate p.json --link pcie3\n"
        "  yoke simulate p.json --devices 8..4096 --devices-per-node 8 --link nvlink4 --nic "
        "50,10\n"};

typedef struct device_counts {
    int counts[COUNTS_MAX], count;
} device_counts;

static bool read_count(const char *text, size_t length, int64_t *value) {
    char word[16];
    if (length == 0 || length >= sizeof word) return false;
    memcpy(word, text, length);
    word[length] = '\0';
    return yoke_text_integer(word, 1, YOKE_SIMULATED_DEVICES, value);
}

static bool read_range(const char *text, const char *dots, device_counts *found) {
    int64_t first, last;
    if (!read_count(text, (size_t)(dots - text), &first)) return false;
    if (!read_count(dots + 2, strlen(dots + 2), &last) || last < first) return false;
    for (int64_t count = first; count <= last; count *= 2)
        found->counts[found->count++] = (int)count;
    return true;
}

static bool read_counts(const char *text, device_counts *found) {
    const char *dots = strstr(text, "..");
    found->count = 0;
    if (dots != NULL) return read_range(text, dots, found);
    for (const char *rest = text;; rest++) {
        int64_t value;
        size_t length = strcspn(rest, ",");
        if (found->count == COUNTS_MAX || !read_count(rest, length, &value)) return false;
        if (found->count > 0 && value <= found->counts[found->count - 1]) return false;
        found->counts[found->count++] = (int)value;
        rest += length;
        if (*rest == '\0') return true;
    }
}

static yoke_status add_run(simulate_runs *runs, const simulate_setup *setup,
                           yoke_simulated_mode mode, int devices) {
    yoke_simulation *run = &runs->list[runs->count];
    TRY(yoke_simulate(run, &setup->profile, &setup->topology, mode, devices));
    runs->count++;
    return YOKE_OK;
}

/* `all` are the modes that take the same step: not dp-async; and those that do not span nodes only
 * within one. */
static yoke_status run_devices(simulate_runs *runs, const simulate_setup *setup, unsigned mode,
                               int devices) {
    const yoke_topology *topology = &setup->topology;
    bool several = topology->per_node > 0 && devices > topology->per_node;
    if (devices == 1) return add_run(runs, setup, YOKE_SIMULATED_OVERLAP, 1);
    if (mode > 0) return add_run(runs, setup, (yoke_simulated_mode)(mode - 1), devices);
    for (int m = several ? YOKE_SIMULATED_DDP_RING : 0; m < YOKE_SIMULATED_MODES; m++)
        if (m != YOKE_SIMULATED_ASYNC) TRY(add_run(runs, setup, (yoke_simulated_mode)m, devices));
    return YOKE_OK;
}

static yoke_status run_all(simulate_runs *runs, const simulate_setup *setup, unsigned mode,
                           const device_counts *devices) {
    size_t most = (size_t)devices->count * YOKE_SIMULATED_MODES;
    runs->list = calloc(most, sizeof *runs->list);
    if (runs->list == NULL) return cli_refuse(YOKE_ERROR_MEMORY, "no memory for simulations");
    for (int i = 0; i < devices->count; i++)
        TRY(run_devices(runs, setup, mode, devices->counts[i]));
    return YOKE_OK;
}

int simulate_main(int argc, char **argv) {
    simulate_arguments arguments = {.flags = {.spread = NOT_STATED},
                                    .devices = "1,2,4,8",
                                    .interpreter_us = YOKE_INTERPRETER_US};
    int operands = 0, code = cli_parse(&simulate_verb, argc, argv, &arguments, &operands);
    if (code >= 0) return code;
    if (arguments.list && operands == 0) {
        published_print(stdout);
        return 0;
    }
    if (operands != 1)
        return cli_usage_error("simulate", "simulate takes one PROFILE or NAME; --list takes none");
    if (arguments.max_staleness > 0 && arguments.mode != YOKE_SIMULATED_ASYNC + 1)
        return cli_usage_error("simulate", "--max-staleness is of --mode dp-async");
    device_counts devices;
    if (!read_counts(arguments.devices, &devices))
        return cli_usage_error("simulate",
                               "--devices %s: numbers of 1 to %d in rising order, as in 1,2,4, or "
                               "a range of powers of two, as in 1..%d",
                               arguments.devices, YOKE_SIMULATED_DEVICES, YOKE_SIMULATED_DEVICES);
    if (arguments.straggler.index >= devices.counts[devices.count - 1])
        return cli_usage_error("simulate", "--straggler %s: --devices %s has device 0 to %d",
                               arguments.straggler.text, arguments.devices,
                               devices.counts[devices.count - 1] - 1);
    simulate_setup setup;
    simulate_runs runs = {0};
    yoke_status status = simulate_setup_read(&setup, &arguments.flags, argv[1]);
    setup.nobody_waits = arguments.mode == YOKE_SIMULATED_ASYNC + 1;
    setup.topology.interpreter_us = arguments.interpreter_us;
    /* Without lock time no lane waits. */
    setup.topology.handover_us = arguments.interpreter_us > 0 ? YOKE_HANDOVER_US : 0;
    setup.topology.thread_us = YOKE_THREAD_US;
    setup.topology.max_staleness = arguments.max_staleness;
    setup.topology.straggler = arguments.straggler.index;
    setup.topology.straggler_factor = arguments.straggler.factor;
    if (status == YOKE_OK) status = run_all(&runs, &setup, arguments.mode, &devices);
    if (status == YOKE_OK && arguments.json)
        status = simulate_print_json(stdout, &setup, &runs);
    else if (status == YOKE_OK)
        simulate_print_table(stdout, &setup, &runs);
    if (status == YOKE_OK && arguments.html != NULL)
        status = simulate_write_page(arguments.html, &setup, &runs);
    for (int i = 0; i < runs.count; i++)
        yoke_simulation_clear(&runs.list[i]);
    free(runs.list);
    yoke_profile_clear(&setup.profile);
    return status == YOKE_OK ? 0 : cli_fail(status);
}
