/* SPDX-License-Identifier: Apache-2.0 */
/* yoke doctor: where the time of a step of PyTorch goes, and which schedule would gain. */
#include <string.h>

#include "cli/doctor/doctor_runs.h"
#include "yoke/data_parallel.h"

#define PARAMETER_BYTES 4

typedef struct doctor_arguments {
    const char *link, *profile;
    double bytes, parameters;
    int devices, rows;
    bool json;
} doctor_arguments;

#define FIELD(name) CLI_FIELD(doctor_arguments, name)

static const cli_option options[] = {
    {"link", "pcie3|pcie4|pcie5|nvlink2|nvlink3|nvlink4|GB/s,US[,switch|bridge]",
     "link of each device (measured in the trace; where it has none, pcie4)", FIELD(link)},
    {"bytes", "N", "bytes of all gradients (those in the trace)", FIELD(bytes), 1, 1e12},
    {"parameters", "N", "parameters that are trained, of 4 bytes each; in place of --bytes",
     FIELD(parameters), 1, 1e11},
    {"devices", "N", "devices to simulate (those of the run; for one device, 4)", FIELD(devices), 2,
     YOKE_SIMULATED_DEVICES},
    {"rows", "N", "rows of a step on each device (from shapes in the trace)", FIELD(rows), 1, 1e9},
    {"profile", "FILE", "write the profile, which yoke simulate and yoke advise read",
     FIELD(profile)},
    {"json", NULL, "print the result as one JSON object", FIELD(json)},
};

const cli_verb doctor_verb = {
    .name = "doctor",
    .operands = "TRACE",
    .summary = "say where the time of PyTorch's steps goes, from its profiler's trace",
    .options = options,
    .option_count = CLI_OPTION_COUNT(options),
    .more = "TRACE is what export_chrome_trace of torch.profiler writes, plain or .gz, of\n"
            "nn.DataParallel, of DistributedDataParallel or of one device. Profile three steps or\n"
            "more, with prof.step() after each; record_shapes=True lets the trace tell bytes and "
            "rows.\n"
            "\n"
            "  yoke doctor trace.json\n"
            "  yoke doctor trace.json.gz --parameters 25557032 --link nvlink4\n"
            "  yoke doctor trace.json --profile p.json && yoke simulate p.json --devices 1..64\n"};

static yoke_status simulate_mode(const yoke_doctor *doctor, const yoke_topology *topology,
                                 yoke_simulated_mode mode, doctor_runs *runs) {
    doctor_run *run = &runs->list[runs->count];
    bool ran = doctor->has_mode && mode == doctor->mode;
    yoke_status status =
        yoke_simulate(&run->found, &doctor->profile, topology, mode, doctor->devices);
    if (status == YOKE_ERROR_ARGUMENT) /* the options have been checked */
        return cli_refuse(YOKE_ERROR_DATA, "the trace's times and bytes cannot be: %s",
                          yoke_last_error());
    TRY(status);
    run->step_ms = 1e-6 * (double)run->found.step_ns + (ran ? doctor->outside_ms : 0);
    if (ran) runs->ran = runs->count;
    runs->count++;
    return YOKE_OK;
}

/* In one node hierarchical is the ring; asynchronous training is another method, whose steps are
 * worth less. */
static bool is_left_out(int mode) {
    return mode == YOKE_SIMULATED_DDP_HIERARCHICAL || mode == YOKE_SIMULATED_ASYNC;
}

static yoke_status simulate_all(const yoke_doctor *doctor, doctor_runs *runs) {
    yoke_topology topology = doctor->topology;
    topology.interpreter_us = YOKE_INTERPRETER_US;
    topology.handover_us = YOKE_HANDOVER_US;
    topology.thread_us = YOKE_THREAD_US;
    runs->ran = runs->best = -1;
    if (doctor->profile.segment_count == 0) return YOKE_OK;
    for (int mode = 0; mode < YOKE_SIMULATED_MODES; mode++)
        if (!is_left_out(mode))
            TRY(simulate_mode(doctor, &topology, (yoke_simulated_mode)mode, runs));
    /* One device's rate times the devices, where no mode ran. */
    double base_ms = runs->ran >= 0 ? runs->list[runs->ran].step_ms
                                    : doctor->devices * yoke_profile_step_ms(&doctor->profile);
    if (runs->ran >= 0) runs->error = base_ms / doctor->step_ms - 1;
    for (int i = 0; i < runs->count; i++) {
        runs->list[i].speed = base_ms / runs->list[i].step_ms;
        bool better = runs->best < 0 || runs->list[i].speed > runs->list[runs->best].speed;
        if (i != runs->ran && better) runs->best = i;
    }
    return YOKE_OK;
}

static yoke_status show(const doctor_arguments *arguments, const yoke_doctor *doctor) {
    doctor_runs runs = {0};
    yoke_status status = simulate_all(doctor, &runs);
    if (status == YOKE_OK && arguments->profile != NULL && doctor->profile.segment_count == 0)
        status = cli_refuse(YOKE_ERROR_ARGUMENT,
                            "--profile %s: the trace does not say how many bytes of gradients "
                            "there are; give --bytes or --parameters",
                            arguments->profile);
    if (status == YOKE_OK && arguments->json)
        status = doctor_print_json(stdout, doctor, &runs);
    else if (status == YOKE_OK)
        doctor_print_table(stdout, doctor, &runs);
    if (status == YOKE_OK && arguments->profile != NULL)
        status = yoke_profile_write(&doctor->profile, arguments->profile);
    for (int i = 0; i < runs.count; i++)
        yoke_simulation_clear(&runs.list[i].found);
    return status;
}

int doctor_main(int argc, char **argv) {
    doctor_arguments arguments = {0};
    yoke_doctor doctor;
    int operands = 0, code = cli_parse(&doctor_verb, argc, argv, &arguments, &operands);
    if (code >= 0) return code;
    if (operands != 1) return cli_usage_error("doctor", "doctor takes one TRACE");
    if (arguments.bytes > 0 && arguments.parameters > 0)
        return cli_usage_error("doctor", "--bytes and --parameters say the same; give one");
    yoke_used_file files[] = {{"--profile", arguments.profile, YOKE_FILE_WRITTEN},
                              {"the trace", argv[1], YOKE_FILE_READ}};
    yoke_doctor_options given = {
        .link = arguments.link,
        .bytes = arguments.bytes > 0 ? arguments.bytes : PARAMETER_BYTES * arguments.parameters,
        .devices = arguments.devices,
        .rows = arguments.rows};
    yoke_status status = yoke_files_check_apart(files, 2);
    if (status == YOKE_OK) status = yoke_doctor_read(&doctor, argv[1], &given);
    if (status != YOKE_OK) return cli_fail(status);
    status = show(&arguments, &doctor);
    yoke_doctor_clear(&doctor);
    return status == YOKE_OK ? 0 : cli_fail(status);
}
