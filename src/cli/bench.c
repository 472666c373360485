/* yoke bench: ratios measured side by side in one run, each with its line and its noise. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench_drive.h"
#include "bench_rows.h"
#include "cli.h"

typedef struct bench_arguments {
    bench_effort effort;
    bool json, list, gate, drive;
} bench_arguments;

#define FIELD(name) offsetof(bench_arguments, name)

static const cli_option options[] = {
    {"rounds", "N", "interleaved rounds of a row (5; with names: 9)", CLI_INTEGER,
     FIELD(effort.rounds), 3, RACE_ROUNDS},
    {"steps", "N", "steps of a contender in a round (half a second's worth)", CLI_INTEGER,
     FIELD(effort.steps), 1, 1e6},
    {"seconds", "X", "longest race of a row, preparation not counted (10; with names: 90)",
     CLI_REAL, FIELD(effort.seconds), 0.1, 86400},
    {"gate", NULL, "exit with 1 when a row misses its line by more than its noise", CLI_FLAG,
     FIELD(gate), 0, 0},
    {"list", NULL, "name the rows and leave", CLI_FLAG, FIELD(list), 0, 0},
    {"json", NULL, "one JSON object on stdout", CLI_FLAG, FIELD(json), 0, 0},
    {"drive", NULL, "run steps as another program asks on stdin", CLI_FLAG, FIELD(drive), 0, 0},
};

const cli_verb bench_verb = {
    .name = "bench",
    .operands = "[all | NAME...]",
    .summary = "measure the engine against itself, side by side",
    .options = options,
    .option_count = CLI_OPTION_COUNT(options),
    .more = "Without names: a quick part of the rows. A NAME is a row (scaling-resnet18), a group\n"
            "(scaling) or a line of the table of goals (C5). bench/README.md explains each row.\n"};

typedef enum verdict { PASSED, WITHIN_NOISE, MISSED } verdict;

static const char *const verdict_names[] = {"pass", "in noise", "MISS"};

/* The whole interval must lie on the right side. */
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

/* NAME is the row itself, the group before a dash, or the goal. */
static bool matches(const bench_row *row, const char *name) {
    if (names_a_row(name)) return strcmp(name, row->name) == 0;
    if (strcmp(name, "all") == 0) return true;
    if (row->id[0] != '\0' && strcmp(name, row->id) == 0) return true;
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
        const char *near = cli_nearest(names[i], known, known_count);
        if (!found && near != NULL)
            return cli_usage_error("bench", "there is no row '%s'; did you mean '%s'?", names[i],
                                   near);
        if (!found)
            return cli_usage_error("bench", "there is no row '%s'; --list names them", names[i]);
    }
    return 0;
}

static void print_list(void) {
    const bench_row *row;
    for (int i = 0; (row = bench_row_at(i)) != NULL; i++)
        printf("%-24s  %-4s %c  %s\n", row->name, row->id, row->quick ? 'q' : ' ', row->what);
    printf("\nq: measured by `yoke bench` without names\n");
}

static void print_header(void) {
    printf("%-24s %-4s %8s  %-17s %9s %7s  %-8s  %s\n", "row", "goal", "value", "95 % interval",
           "line", "noise", "verdict", "measured");
}

static void print_row(const bench_row *row, const bench_result *result) {
    char interval[32], noise[16], measured[64];
    snprintf(interval, sizeof interval, "%.3g .. %.3g", result->value.low, result->value.high);
    snprintf(noise, sizeof noise, isnan(result->noise) ? "-" : "%.1f %%", 100 * result->noise);
    int length = snprintf(measured, sizeof measured, "%.4g", result->a);
    if (!isnan(result->b))
        length +=
            snprintf(measured + length, sizeof measured - (size_t)length, " : %.4g", result->b);
    snprintf(measured + length, sizeof measured - (size_t)length, " %s", row->unit);
    printf("%-24s %-4s %8.3f  %-17s %s %6g %7s  %-8s  %s", row->name, row->id, result->value.median,
           interval, row->at_most ? "<=" : ">=", row->line, noise,
           verdict_names[judge(row, result)], measured);
    if (result->noisy > 0) printf("  (%d of %d rounds disturbed)", result->noisy, result->rounds);
    printf("\n");
    fflush(stdout);
}

static void emit_row(emit *json, const bench_row *row, const bench_result *result) {
    emit_open(json, NULL, '{');
    emit_text(json, "name", row->name);
    emit_text(json, "goal", row->id);
    emit_text(json, "what", row->what);
    emit_real(json, "value", result->value.median);
    emit_real(json, "low", result->value.low);
    emit_real(json, "high", result->value.high);
    emit_text(json, "must_be", row->at_most ? "<=" : ">=");
    emit_real(json, "line", row->line);
    emit_real(json, "noise", result->noise);
    emit_text(json, "verdict", verdict_names[judge(row, result)]);
    emit_text(json, "unit", row->unit);
    emit_real(json, "measured", result->a);
    emit_real(json, "against", result->b);
    emit_integer(json, "rounds", result->rounds);
    emit_integer(json, "repeated", result->repeated);
    emit_integer(json, "disturbed", result->noisy);
    emit_close(json, '}');
}

static void emit_machine(emit *json) {
    yoke_devices *devices = NULL;
    yoke_device_info info = {.struct_size = sizeof info};
    yoke_devices_options asked = {.struct_size = sizeof asked, .list = "1xcpu"};
    if (yoke_devices_open(&devices, &asked) == YOKE_OK &&
        yoke_devices_describe(devices, 0, &info) == YOKE_OK) {
        emit_text(json, "processor", info.description);
        emit_integer(json, "cores", info.core_count);
    }
    yoke_devices_close(devices);
}

/* Measures the rows asked for; *missed counts those beyond their noise. */
static yoke_status measure_all(const bench_arguments *arguments, char **names, int count,
                               emit *json, int *missed) {
    const bench_row *row;
    for (int i = 0; (row = bench_row_at(i)) != NULL; i++) {
        if (!wanted(row, names, count)) continue;
        bench_result result = {0};
        yoke_status status = row->measure(row, &arguments->effort, &result);
        if (status != YOKE_OK) return status;
        *missed += judge(row, &result) == MISSED;
        if (arguments->json)
            emit_row(json, row, &result);
        else
            print_row(row, &result);
    }
    return YOKE_OK;
}

static void set_defaults(bench_effort *effort, bool quick) {
    if (effort->rounds == 0) effort->rounds = quick ? 5 : 9;
    if (effort->seconds == 0) effort->seconds = quick ? 10 : 90;
}

int bench_main(int argc, char **argv) {
    bench_arguments arguments = {0};
    int count = 0, missed = 0, code = cli_parse(&bench_verb, argc, argv, &arguments, &count);
    if (code >= 0) return code;
    if (arguments.list) {
        print_list();
        return 0;
    }
    if (arguments.drive) return bench_drive();
    code = check_names(argv + 1, count);
    if (code != 0) return code;
    set_defaults(&arguments.effort, count == 0);
    emit json;
    emit_begin(&json, stdout);
    if (arguments.json) {
        emit_open(&json, NULL, '{');
        emit_machine(&json);
        emit_open(&json, "rows", '[');
    } else {
        print_header();
    }
    yoke_status status = measure_all(&arguments, argv + 1, count, &json, &missed);
    if (arguments.json) {
        emit_close(&json, ']');
        emit_integer(&json, "missed", missed);
        emit_close(&json, '}');
        emit_end(&json);
    }
    if (status != YOKE_OK) return cli_fail(status);
    return arguments.gate && missed > 0 ? 1 : 0;
}
