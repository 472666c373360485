/* SPDX-License-Identifier: Apache-2.0 */
/* Yoke against the hand-written oneDNN loop: the same network, weights, batch and update, in
 * interleaved rounds. A race counts only when both lose their loss alike. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "bench/tool/bench_engine.h"
#include "onednn_loop.h"

/* How far two correct runs may drift apart. resnet50 sees 32x32 images as one pixel a channel in
 * its last stage, where batch norm's gradient multiplies rounding errors by a thousand a step: the
 * engine's own direct and Winograd runs differ as much. So it takes fewer and smaller steps. */
typedef struct agreement {
    const char *name;
    int steps;
    double learning_rate;
    double float32, bfloat16; /* largest relative difference of the losses */
} agreement;

static const agreement agreements[] = {{"resnet18-cifar", 20, 1e-3, 1e-3, 3e-2},
                                       {"resnet50", 3, 1e-6, 5e-3, 1e-1}};
#define MODELS ((int)(sizeof agreements / sizeof *agreements))

typedef struct pairing {
    const agreement *model;
    char title[48];
    bool bfloat16;
    int devices;
} pairing;

typedef struct race_outcome {
    rounds race;
    race_ratio ratio; /* engine / loop */
    double noise, drift, engine_rate, loop_rate;
} race_outcome;

typedef struct versus_settings {
    int rounds, steps, rows;
    double seconds;
    bool json;
    const char *only; /* a model's name; NULL: both */
} versus_settings;

static yoke_status run_loop(void *context, int steps, double *milliseconds) {
    double begin = race_clock();
    (void)onednn_loop_run(context, steps);
    *milliseconds = (race_clock() - begin) * 1e3 / steps;
    return YOKE_OK;
}

/* The loop starts from the engine's weights. */
static yoke_status share_weights(const bench_engine *engine, onednn_loop *loop) {
    const char *name;
    size_t count;
    yoke_status status = YOKE_OK;
    for (int i = 0; status == YOKE_OK && onednn_loop_tensor(loop, i, &name, &count); i++) {
        float *values = malloc(count * sizeof *values);
        if (!values) return YOKE_ERROR_MEMORY;
        status = yoke_data_parallel_read(engine->parallel, name, values, count);
        if (status == YOKE_OK) onednn_loop_write(loop, i, values);
        free(values);
    }
    return status;
}

/* The largest relative difference of the two losses over the first steps. */
static yoke_status compare_trajectories(bench_engine *engine, onednn_loop *loop, int steps,
                                        double *drift) {
    double milliseconds;
    *drift = 0;
    for (int i = 0; i < steps; i++) {
        yoke_status status = bench_engine_steps(engine, 1, &milliseconds);
        if (status != YOKE_OK) return status;
        double other = onednn_loop_run(loop, 1);
        *drift = fmax(*drift, fabs(engine->loss - other) / fmax(fabs(other), 1e-3));
    }
    return YOKE_OK;
}

static yoke_status race_pair(const versus_settings *settings, const pairing *pair,
                             bench_engine *engine, onednn_loop *loop, race_outcome *outcome) {
    yoke_status status = share_weights(engine, loop);
    if (status == YOKE_OK)
        status = compare_trajectories(engine, loop, pair->model->steps, &outcome->drift);
    outcome->race = (rounds){.title = pair->title,
                             .contenders = {{bench_engine_steps, engine},
                                            {run_loop, loop},
                                            {bench_engine_steps, engine}},
                             .count = 3,
                             .rounds = settings->rounds,
                             .steps = settings->steps,
                             .seconds = settings->seconds};
    if (status == YOKE_OK) status = race_run(&outcome->race);
    if (status != YOKE_OK) return status;
    double rows = engine->batch.rows;
    outcome->ratio = race_compare(&outcome->race, 0, 1, 1);
    outcome->noise = race_noise(&outcome->race, 0, 2);
    outcome->engine_rate = 1e3 * rows / race_times(&outcome->race, 0, 1).median;
    outcome->loop_rate = 1e3 * rows / race_times(&outcome->race, 1, 1).median;
    return YOKE_OK;
}

static yoke_status run_versus(const versus_settings *settings, const pairing *pair,
                              race_outcome *outcome) {
    bench_setup setup = {.model = pair->model->name,
                         .learning_rate = pair->model->learning_rate,
                         .devices = pair->devices,
                         .threads = 1,
                         .rows = settings->rows,
                         .precision = pair->bfloat16 ? YOKE_BFLOAT16 : YOKE_FLOAT32};
    bench_engine *engine = NULL;
    yoke_status status = bench_engine_create(&engine, &setup);
    if (status != YOKE_OK) return status;
    int rows = settings->rows;
    onednn_loop_options options = {.network = pair->model->name,
                                   .rows = rows,
                                   .devices = pair->devices,
                                   .threads = 1,
                                   .bfloat16 = pair->bfloat16,
                                   .learning_rate = (float)pair->model->learning_rate,
                                   .momentum = (float)BENCH_MOMENTUM,
                                   .weight_decay = (float)BENCH_WEIGHT_DECAY};
    onednn_loop *loop = onednn_loop_create(&options);
    if (loop) {
        onednn_loop_batch(loop, engine->inputs, engine->labels);
        status = race_pair(settings, pair, engine, loop, outcome);
    }
    onednn_loop_destroy(loop);
    bench_engine_destroy(engine);
    return loop ? status : YOKE_ERROR_ARGUMENT;
}

static const char *verdict(const pairing *pair, const race_outcome *outcome) {
    double allowed = pair->bfloat16 ? pair->model->bfloat16 : pair->model->float32;
    if (!(outcome->drift <= allowed)) return "void";
    if (outcome->ratio.low >= 1) return "pass";
    return outcome->ratio.low >= 1 - outcome->noise ? "in noise" : "MISS";
}

static void print_outcome(const pairing *pair, const race_outcome *outcome) {
    printf("%-14s %-8s %d x 1  %7.3f  %.3f .. %.3f  %6.1f %%  %-8s %8.1f %8.1f   %.1e",
           pair->model->name, pair->bfloat16 ? "bfloat16" : "float32", pair->devices,
           outcome->ratio.median, outcome->ratio.low, outcome->ratio.high, 100 * outcome->noise,
           verdict(pair, outcome), outcome->engine_rate, outcome->loop_rate, outcome->drift);
    if (outcome->race.noisy > 0)
        printf("  (%d of %d rounds disturbed)", outcome->race.noisy, outcome->race.done);
    printf("\n");
    fflush(stdout);
}

static void json_outcome(yoke_json *json, const pairing *pair, const race_outcome *outcome) {
    yoke_json_open(json, NULL, '{');
    yoke_json_text(json, "model", pair->model->name);
    yoke_json_text(json, "precision", pair->bfloat16 ? "bfloat16" : "float32");
    yoke_json_integer(json, "devices", pair->devices);
    yoke_json_real(json, "ratio", outcome->ratio.median);
    yoke_json_real(json, "low", outcome->ratio.low);
    yoke_json_real(json, "high", outcome->ratio.high);
    yoke_json_real(json, "noise", outcome->noise);
    yoke_json_text(json, "verdict", verdict(pair, outcome));
    yoke_json_real(json, "engine_images_per_second", outcome->engine_rate);
    yoke_json_real(json, "loop_images_per_second", outcome->loop_rate);
    yoke_json_real(json, "loss_drift", outcome->drift);
    yoke_json_integer(json, "rounds", outcome->race.done);
    yoke_json_integer(json, "repeated", outcome->race.repeated);
    yoke_json_integer(json, "disturbed", outcome->race.noisy);
    yoke_json_close(json, '}');
}

static yoke_status run_all(const versus_settings *settings, yoke_json *json) {
    for (int i = 0; i < 4 * MODELS; i++) {
        pairing pair = {
            .model = &agreements[i / 4], .bfloat16 = i / 2 % 2 == 1, .devices = i % 2 + 1};
        if (settings->only && strcmp(settings->only, pair.model->name) != 0) continue;
        snprintf(pair.title, sizeof pair.title, "%s %s %d x 1", pair.model->name,
                 pair.bfloat16 ? "bfloat16" : "float32", pair.devices);
        race_outcome outcome = {0};
        yoke_status status = run_versus(settings, &pair, &outcome);
        if (status != YOKE_OK) return status;
        if (settings->json)
            json_outcome(json, &pair, &outcome);
        else
            print_outcome(&pair, &outcome);
    }
    return YOKE_OK;
}

static int usage(void) {
    fprintf(stderr, "usage: versus_loop [--rounds N] [--steps N] [--rows N] [--seconds X] [--json] "
                    "[resnet18-cifar | resnet50]\n");
    return 2;
}

static bool number(const char *text, double low, double high, double *value) {
    char *end;
    if (!text) return false;
    *value = strtod(text, &end);
    return *end == '\0' && *value >= low && *value <= high;
}

static bool parse(int argc, char **argv, versus_settings *settings) {
    for (int i = 1; i < argc; i++) {
        double value = 0;
        bool valued = argv[i][0] == '-' && strcmp(argv[i], "--json") != 0;
        if (valued && !number(argv[i + 1], 0, 86400, &value)) return false;
        if (strcmp(argv[i], "--json") == 0)
            settings->json = true;
        else if (strcmp(argv[i], "--rounds") == 0 && value >= 1 && value <= RACE_ROUNDS)
            settings->rounds = (int)value;
        else if (strcmp(argv[i], "--steps") == 0)
            settings->steps = (int)value;
        else if (strcmp(argv[i], "--rows") == 0 && value >= 1 && value <= 1024)
            settings->rows = (int)value;
        else if (strcmp(argv[i], "--seconds") == 0)
            settings->seconds = value;
        else if (!valued && !settings->only)
            settings->only = argv[i];
        else
            return false;
        i += valued;
    }
    return true;
}

int main(int argc, char **argv) {
    versus_settings settings = {.rounds = 9, .rows = 32, .seconds = 120};
    if (!parse(argc, argv, &settings)) return usage();
    yoke_json json;
    yoke_json_begin(&json);
    if (settings.json)
        yoke_json_open(&json, NULL, '[');
    else
        printf("%-14s %-8s %-5s  %7s  %-14s  %8s  %-8s %8s %8s   %s\n", "model", "", "", "ratio",
               "95 % interval", "noise", "verdict", "engine", "loop", "loss drift");
    yoke_status status = run_all(&settings, &json);
    if (settings.json) {
        yoke_json_close(&json, ']');
        puts(json.failed ? "null" : json.text);
    }
    if (status != YOKE_OK) fprintf(stderr, "versus_loop: %s\n", yoke_last_error());
    return yoke_status_exit_code(status);
}
