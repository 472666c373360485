/* SPDX-License-Identifier: Apache-2.0 */
/* yoke bench: ratios of two contenders raced in one run, each with its line and its noise. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench/tool/bench_count.h"
#include "bench/tool/bench_drive.h"
#include "bench/tool/bench_kernels.h"
#include "bench/tool/bench_profile.h"
#include "bench/tool/bench_rows.h"
#include "cli/cli.h"

typedef struct bench_arguments {
    bench_effort effort;
    bool json, list, gate, drive, kernels, count;
    bench_profile_options profile;
} bench_arguments;

#define FIELD(name) CLI_FIELD(bench_arguments, name)

static const cli_option options[] = {
    {"rounds", "N", "rounds of a row (5; with names 9)", FIELD(effort.rounds), 3, RACE_ROUNDS},
    {"steps", "N",
     "steps of each contender in a round (half a second); of a profile (20); runs of a kernel (10)",
     FIELD(effort.steps), 1, 1e6},
    {"seconds", "X", "time limit of a row's race, without preparation (10; with names 90)",
     FIELD(effort.seconds), 0.1, 86400},
    {"gate", NULL,
     "exit with 1 when a row misses its line by more than its noise; when im2col computes a "
     "convolution of --kernels because no library has another algorithm",
     FIELD(gate)},
    {"list", NULL, "list the rows; measure nothing", FIELD(list)},
    {"json", NULL, "print the result as one JSON object", FIELD(json)},
    {"profile", "FILE",
     "measure no rows, but the parts of a step of one device, for yoke simulate and advise",
     FIELD(profile.path)},
    {"kernels", NULL,
     "measure no rows, but each kernel of a step alone: its algorithm, and its part of the "
     "roofline",
     FIELD(kernels)},
    {"count", NULL,
     "kernels: on simulated GPUs, count what a step moves and computes, and say what a model of an "
     "H100 makes of it; nothing is timed",
     FIELD(count)},
    {"model", "NAME", "profile, kernels: preset, as in yoke help train (resnet20)",
     FIELD(profile.model)},
    {"dataset", "SPEC",
     "profile, kernels: cifar10:DIR, synthetic:3x224x224,classes=1000, ... (10 classes of random "
     "images)",
     FIELD(profile.dataset)},
    {"rows", "N", "profile, kernels: rows of a step (32)", FIELD(profile.rows), 1, 1 << 20},
    {"device", "NAME", "profile, kernels: cuda:0, for example (cpu)", FIELD(profile.device)},
    {"threads", "N", "profile, kernels: compute threads of a CPU device (cores)",
     FIELD(profile.threads), 0, 1024},
    {"precision", YOKE_PRECISION_WORDS, "profile, kernels: precision of the computation (float32)",
     FIELD(profile.precision)},
    {"drive", NULL, "run engines for another program, which sends requests on stdin", FIELD(drive)},
};

const cli_verb bench_verb = {
    .name = "bench",
    .operands = "[all | NAME...]",
    .summary = "measure the engine: its own cost, scaling, schedules and stages",
    .options = options,
    .option_count = CLI_OPTION_COUNT(options),
    .more = "Without a NAME it measures the quick rows, in two or three "
            "minutes; all takes half an hour.\n"
            "A row is called by what it measures and on which model: "
            "scaling-resnet18. NAME is a row or\n"
            "the first part of a name, a group: scaling. --list shows all "
            "rows, bench/README.md explains\n"
            "them. --profile FILE writes what yoke simulate and yoke advise read,\n"
            "--kernels lists the kernels of a step.\n"};

typedef enum verdict { PASSED, WITHIN_NOISE, MISSED } verdict;

static const char *const verdict_names[] = {"pass", "in noise", "MISS"};

/* Passed: the whole interval lies on the right side of the line. */
static verdict judge(const bench_row *row, const bench_result *result) {
    double slack = isnan(result->noise) ? 0 : result->noise * row->line;
    double worst = row->at_most ? result->value.high : result->value.low;
    double beyond = row->at_most ? worst - row->line : row->line - worst;
    if (beyond <= 0) return PASSED;
    return beyond <= slack ? WITHIN_NOISE : MISSED;
}

static bool names_a_row(const char *name) {
    const bench_row *row;
    for (int i = 0; (row = bench_row_at(i)) != NULL; i++)
        if (strcmp(name, row->name) == 0) return true;
    return false;
}

/* NAME is the row itself, or its group: the beginning up to a dash. */
static bool matches(const bench_row *row, const char *name) {
    if (names_a_row(name)) return strcmp(name, row->name) == 0;
    if (strcmp(name, "all") == 0) return true;
    size_t length = strlen(name);
    return strncmp(row->name, name, length) == 0 && row->name[length] == '-';
}

static bool wanted(const bench_row *row, char **names, int count) {
    for (int i = 0; i < count; i++)
        if (matches(row, names[i])) return true;
    return count == 0 && row->quick;
}

static int check_names(char **names, int count) {
    const char *known[64];
    int known_count = 0;
    for (const bench_row *row; known_count < 64 && (row = bench_row_at(known_count)) != NULL;)
        known[known_count++] = row->name;
    for (int i = 0; i < count; i++) {
        bool found = false;
        for (int k = 0; k < known_count && !found; k++)
            found = matches(bench_row_at(k), names[i]);
        const char *near = yoke_text_nearest(names[i], known, (size_t)known_count);
        if (!found && near != NULL)
            return cli_usage_error("bench", "no row is called '%s'; did you mean '%s'?", names[i],
                                   near);
        if (!found)
            return cli_usage_error("bench", "no row is called '%s'; yoke bench --list shows all",
                                   names[i]);
    }
    return 0;
}

static void print_header(void) {
    printf("%-24s %8s  %-17s %9s %7s  %-8s  %s\n", "row", "value", "95 % interval", "line", "noise",
           "verdict", "measured");
}

static void print_row(const bench_row *row, const bench_result *result) {
    char interval[32], noise[16], measured[64];
    snprintf(interval, sizeof interval, "%.3g .. %.3g", result->value.low, result->value.high);
    snprintf(noise, sizeof noise, isnan(result->noise) ? "-" : "%.1f %%", 100 * result->noise);
    int length = snprintf(measured, sizeof measured, "%.4g", result->a);
    if (!isnan(result->b))
        length +=
            snprintf(measured + length, sizeof measured - (size_t)length, " : %.4g", result->b);
    snprintf(measured + length, sizeof measured - (size_t)length, " %s", bench_row_unit(row));
    printf("%-24s %8.3f  %-17s %s %6g %7s  %-8s  %s", row->name, result->value.median, interval,
           row->at_most ? "<=" : ">=", row->line, noise, verdict_names[judge(row, result)],
           measured);
    if (result->noisy > 0) printf("  (%d of %d rounds disturbed)", result->noisy, result->rounds);
    printf("\n");
    fflush(stdout);
}

static void json_row(yoke_json *json, const bench_row *row, const bench_result *result) {
    yoke_json_open(json, NULL, '{');
    yoke_json_text(json, "name", row->name);
    yoke_json_text(json, "what", row->what);
    yoke_json_real(json, "value", result->value.median);
    yoke_json_real(json, "low", result->value.low);
    yoke_json_real(json, "high", result->value.high);
    yoke_json_text(json, "must_be", row->at_most ? "<=" : ">=");
    yoke_json_real(json, "line", row->line);
    yoke_json_real(json, "noise", result->noise);
    yoke_json_text(json, "verdict", verdict_names[judge(row, result)]);
    yoke_json_text(json, "unit", bench_row_unit(row));
    yoke_json_real(json, "measured", result->a);
    yoke_json_real(json, "against", result->b);
    yoke_json_integer(json, "rounds", result->rounds);
    yoke_json_integer(json, "repeated", result->repeated);
    yoke_json_integer(json, "disturbed", result->noisy);
    yoke_json_close(json, '}');
}

static void json_machine(yoke_json *json) {
    yoke_devices *devices = NULL;
    yoke_device_info info = {.struct_size = sizeof info};
    yoke_devices_options asked = {.struct_size = sizeof asked, .list = "1xcpu"};
    if (yoke_devices_open(&devices, &asked) == YOKE_OK &&
        yoke_devices_describe(devices, 0, &info) == YOKE_OK) {
        yoke_json_text(json, "processor", info.description);
        yoke_json_integer(json, "cores", info.core_count);
    }
    yoke_devices_close(devices);
}

/* Measures the rows that `names` chooses; *missed counts the verdicts MISS. */
static yoke_status measure_all(const bench_arguments *arguments, char **names, int count,
                               yoke_json *json, int *missed) {
    const bench_row *row;
    for (int i = 0; (row = bench_row_at(i)) != NULL; i++) {
        if (!wanted(row, names, count)) continue;
        bench_result result = {0};
        yoke_status status = bench_measure(row, &arguments->effort, &result);
        if (status != YOKE_OK) return status;
        *missed += judge(row, &result) == MISSED;
        if (arguments->json)
            json_row(json, row, &result);
        else
            print_row(row, &result);
    }
    return YOKE_OK;
}

static void set_defaults(bench_effort *effort, bool quick) {
    if (effort->rounds == 0) effort->rounds = quick ? 5 : 9;
    if (effort->seconds == 0) effort->seconds = quick ? 10 : 90;
}

static int run_profile(bench_arguments *arguments, int names) {
    const bench_effort *effort = &arguments->effort;
    if (names > 0) return cli_usage_error("bench", "--profile measures no rows; leave NAME out");
    if (effort->rounds > 0 || effort->seconds > 0 || arguments->gate || arguments->list ||
        arguments->json || arguments->drive)
        return cli_usage_error("bench", "--profile measures no rows and writes a file; leave "
                                        "--rounds, --seconds, --gate, --list, --json and --drive "
                                        "out");
    if (effort->steps > BENCH_PROFILE_STEPS)
        return cli_usage_error("bench", "--steps %d: a profile is of %d steps at most",
                               effort->steps, BENCH_PROFILE_STEPS);
    arguments->profile.steps = arguments->effort.steps;
    yoke_status status = bench_profile(&arguments->profile);
    return status == YOKE_OK ? 0 : cli_fail(status);
}

static int run_kernels(const bench_arguments *arguments, int names) {
    const bench_effort *effort = &arguments->effort;
    const bench_profile_options *given = &arguments->profile;
    if (names > 0 || given->path != NULL || effort->rounds > 0 || effort->seconds > 0 ||
        arguments->list || arguments->drive)
        return cli_usage_error("bench", "--kernels measures no rows; leave NAME, --profile, "
                                        "--rounds, --seconds, --list and --drive out");
    bench_setup setup = bench_profile_setup(given);
    int unserved = 0;
    if (arguments->count) {
        yoke_status counted = bench_count(&setup, arguments->json);
        return counted == YOKE_OK ? 0 : cli_fail(counted);
    }
    yoke_status status =
        bench_kernels(&setup, effort->steps > 0 ? effort->steps : 10, arguments->json, &unserved);
    if (status != YOKE_OK) return cli_fail(status);
    return arguments->gate && unserved > 0 ? 1 : 0;
}

static int check_profile_only(const bench_profile_options *given) {
    if (given->model == NULL && given->dataset == NULL && given->device == NULL &&
        given->rows == 0 && given->threads == 0 && given->precision == 0)
        return 0;
    return cli_usage_error("bench",
                           "--model, --dataset, --rows, --device, --threads and --precision are of "
                           "--profile FILE and --kernels, which are missing");
}

int bench_main(int argc, char **argv) {
    bench_arguments arguments = {0};
    int count = 0, missed = 0, code = cli_parse(&bench_verb, argc, argv, &arguments, &count);
    if (code >= 0) return code;
    if (arguments.kernels) return run_kernels(&arguments, count);
    if (arguments.count)
        return cli_usage_error("bench", "--count is of --kernels, which is missing");
    if (arguments.profile.path != NULL) return run_profile(&arguments, count);
    if (arguments.list) {
        const bench_row *row;
        for (int i = 0; (row = bench_row_at(i)) != NULL; i++)
            printf("%-24s  %c  %s\n", row->name, row->quick ? 'q' : ' ', row->what);
        printf("\nq: a quick row, which `yoke bench` measures without names\n");
        return 0;
    }
    if (arguments.drive) return bench_drive();
    code = check_profile_only(&arguments.profile);
    if (code != 0) return code;
    code = check_names(argv + 1, count);
    if (code != 0) return code;
    set_defaults(&arguments.effort, count == 0);
    yoke_json json;
    yoke_json_begin(&json);
    if (arguments.json) {
        yoke_json_open(&json, NULL, '{');
        json_machine(&json);
        yoke_json_open(&json, "rows", '[');
    } else {
        print_header();
    }
    yoke_status status = measure_all(&arguments, argv + 1, count, &json, &missed);
    if (arguments.json) {
        yoke_json_close(&json, ']');
        yoke_json_integer(&json, "missed", missed);
        yoke_json_close(&json, '}');
        yoke_status printed = cli_print_json(&json, stdout);
        if (status == YOKE_OK) status = printed;
    }
    if (status != YOKE_OK) return cli_fail(status);
    return arguments.gate && missed > 0 ? 1 : 0;
}
