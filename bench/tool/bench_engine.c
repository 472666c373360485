/* SPDX-License-Identifier: Apache-2.0 */
/* Builds an engine with its batch, and times its steps and kernels. */
#include "bench/tool/bench_engine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/floor/floor.h"

#define CLASSES 10
#define TOKENS 65 /* bytes that occur in a text, as in Tiny Shakespeare */

/* The usual length of a text's row; 0: the model reads images. */
static int text_length(const bench_setup *setup) {
    static const struct {
        const char *model;
        int length;
    } texts[] = {{"gpt2", 128}, {"lstm-char", 64}};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (strncmp(setup->model, texts[i].model, strlen(texts[i].model)) == 0)
            return texts[i].length;
    return 0;
}

static bool reads_text(const bench_setup *setup) {
    return text_length(setup) > 0;
}

static int classes_of(const bench_setup *setup) {
    if (setup->classes > 0) return setup->classes;
    return reads_text(setup) ? TOKENS : CLASSES;
}

yoke_shape bench_input_shape(const bench_setup *setup) {
    if (reads_text(setup))
        return (yoke_shape){.channels = setup->side > 0 ? setup->side : text_length(setup),
                            .height = 1,
                            .width = 1,
                            .flat = true};
    bool mlp = strcmp(setup->model, "mlp") == 0;
    int side = setup->side > 0 ? setup->side : mlp ? 28 : 32;
    return (yoke_shape){.channels = mlp ? 1 : 3, .height = side, .width = side};
}

static uint32_t next_word(uint32_t *state) {
    return *state = *state * 1664525u + 1013904223u;
}

/* Random values: kernels can be faster on zeros. */
static yoke_status fill_batch(bench_engine *engine) {
    yoke_shape shape = bench_input_shape(&engine->setup);
    bool text = reads_text(&engine->setup);
    size_t rows = (size_t)(engine->setup.rows * engine->setup.devices);
    size_t count = rows * (size_t)(shape.channels * shape.height * shape.width);
    size_t labels = text ? count : rows;
    uint32_t state = 2026, classes = (uint32_t)classes_of(&engine->setup);
    engine->inputs = malloc(count * sizeof *engine->inputs);
    engine->labels = malloc(labels * sizeof *engine->labels);
    if (!engine->inputs || !engine->labels) return YOKE_ERROR_MEMORY;
    for (size_t i = 0; i < count; i++) {
        uint32_t word = next_word(&state);
        engine->inputs[i] =
            text ? (float)((word >> 16) % classes) : (float)(word >> 8) * 0x1p-23f - 1.0f;
    }
    for (size_t i = 0; i < labels; i++)
        engine->labels[i] = (int32_t)((next_word(&state) >> 16) % classes);
    return YOKE_OK;
}

static yoke_status open_dataset(bench_engine *engine) {
    const bench_setup *setup = &engine->setup;
    if (setup->dataset != NULL)
        return yoke_dataset_open(&engine->dataset, setup->dataset, YOKE_SPLIT_TRAIN);
    yoke_status status = fill_batch(engine);
    if (status != YOKE_OK) return status;
    bool text = reads_text(setup);
    yoke_arrays arrays = {.struct_size = sizeof arrays,
                          .rows = (size_t)(setup->rows * setup->devices),
                          .shape = bench_input_shape(setup),
                          .inputs = engine->inputs,
                          .classes = classes_of(setup),
                          .labels = engine->labels};
    if (text) arrays.label_count = arrays.shape.channels;
    return yoke_dataset_from_arrays(&engine->dataset, &arrays);
}

/* A loader places the batch in the memory that its devices copy from fastest. */
static yoke_status load_batch(bench_engine *engine) {
    int rows = engine->setup.rows * engine->setup.devices;
    yoke_loader_options options = {
        .struct_size = sizeof options, .batch = rows, .slots = 1, .devices = engine->devices};
    engine->batch.struct_size = sizeof engine->batch;
    yoke_status status = yoke_loader_create(&engine->loader, engine->dataset, &options);
    if (status == YOKE_OK) status = yoke_loader_select_inputs(engine->loader, engine->model);
    if (status == YOKE_OK) status = yoke_loader_begin(engine->loader, 0);
    return status == YOKE_OK ? yoke_loader_next(engine->loader, &engine->batch, NULL) : status;
}

static yoke_status open_devices(bench_engine *engine) {
    bench_setup *setup = &engine->setup;
    char list[24];
    snprintf(list, sizeof list, "%dxcpu", setup->devices);
    yoke_devices_options options = {.struct_size = sizeof options,
                                    .list = setup->list ? setup->list : list,
                                    .threads = setup->threads};
    yoke_status status = yoke_devices_open(&engine->devices, &options);
    if (status == YOKE_OK) setup->devices = yoke_devices_count(engine->devices);
    return status;
}

/* The devices are open and counted. */
static yoke_status build_engine(bench_engine *engine) {
    const bench_setup *setup = &engine->setup;
    yoke_optimizer_options optimizer = {.struct_size = sizeof optimizer,
                                        .kind = YOKE_SGD,
                                        .learning_rate =
                                            setup->learning_rate > 0 ? setup->learning_rate : 1e-3,
                                        .momentum = BENCH_MOMENTUM,
                                        .weight_decay = BENCH_WEIGHT_DECAY};
    yoke_data_parallel_options options = {.struct_size = sizeof options,
                                          .schedule = setup->schedule,
                                          .precision = setup->precision,
                                          .algorithm = setup->algorithm,
                                          .collectives = setup->collectives,
                                          .skip_finite_check = setup->skip_finite_check,
                                          .accumulate = setup->accumulate,
                                          .shards = setup->shards,
                                          .inference = setup->inference,
                                          .batch = setup->rows * setup->devices};
    yoke_dataset_info data = {.struct_size = sizeof data};
    yoke_device_info device = {.struct_size = sizeof device};
    yoke_loss_options loss = {.struct_size = sizeof loss};
    yoke_status status = open_dataset(engine);
    if (status == YOKE_OK) status = yoke_dataset_describe(engine->dataset, &data);
    if (status == YOKE_OK) status = yoke_dataset_default_loss(engine->dataset, &loss);
    if (status == YOKE_OK) status = yoke_devices_describe(engine->devices, 0, &device);
    if (device.capability > 0) options.bucket_bytes = setup->gpu_bucket_bytes;
    if (status == YOKE_OK)
        status = yoke_model_preset(&engine->model, setup->model, data.shape, data.classes, &loss);
    if (status == YOKE_OK) status = load_batch(engine);
    double begin = race_clock();
    if (status == YOKE_OK)
        status = bench_create_preferring(&engine->parallel, engine->model, engine->devices,
                                         &optimizer, &options, setup->prefers);
    engine->made_ms = (race_clock() - begin) * 1e3;
    return status;
}

yoke_status bench_engine_create(bench_engine **engine, const bench_setup *setup) {
    *engine = NULL;
    bench_engine *made = calloc(1, sizeof *made);
    if (!made) return YOKE_ERROR_MEMORY;
    made->setup = *setup;
    yoke_status status = open_devices(made);
    if (status == YOKE_OK) status = build_engine(made);
    if (status == YOKE_OK)
        *engine = made;
    else
        bench_engine_destroy(made);
    return status;
}

void bench_engine_destroy(bench_engine *engine) {
    if (!engine) return;
    yoke_data_parallel_destroy(engine->parallel);
    yoke_model_destroy(engine->model);
    yoke_loader_destroy(engine->loader);
    yoke_dataset_close(engine->dataset);
    yoke_devices_close(engine->devices);
    free(engine->inputs);
    free(engine->labels);
    free(engine);
}

static double processor_clock(void) {
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static yoke_status run_step(bench_engine *engine) {
    yoke_step_result result = {.struct_size = sizeof result};
    yoke_status status = yoke_data_parallel_step(engine->parallel, &engine->batch,
                                                 YOKE_OPTIMIZER_LEARNING_RATE, &result);
    engine->loss = result.loss;
    return status;
}

/* A step on GPUs returns when its loss is known: backward and the update may still run, so a clock
 * stops when the devices are idle. */
yoke_status bench_engine_steps(void *context, int steps, double *milliseconds) {
    bench_engine *engine = context;
    yoke_status status = yoke_data_parallel_bind(engine->parallel);
    double begin = race_clock(), processor = processor_clock();
    for (int i = 0; i < steps && status == YOKE_OK; i++)
        status = run_step(engine);
    engine->processor_ms = (processor_clock() - processor) * 1e3 / steps;
    if (status == YOKE_OK) status = yoke_devices_synchronize(engine->devices);
    *milliseconds = (race_clock() - begin) * 1e3 / steps;
    yoke_data_parallel_unbind(engine->parallel);
    return status;
}

yoke_status bench_engine_fastest(void *context, int steps, double *milliseconds) {
    bench_engine *engine = context;
    yoke_status status = yoke_data_parallel_bind(engine->parallel);
    *milliseconds = INFINITY;
    for (int i = 0; i < steps && status == YOKE_OK; i++) {
        double begin = race_clock();
        status = run_step(engine);
        if (status == YOKE_OK) status = yoke_devices_synchronize(engine->devices);
        *milliseconds = fmin(*milliseconds, (race_clock() - begin) * 1e3);
    }
    yoke_data_parallel_unbind(engine->parallel);
    return status;
}

yoke_status bench_engine_forward(bench_engine *engine, int count, float *outputs,
                                 double *milliseconds) {
    yoke_status status = YOKE_OK;
    double begin = race_clock();
    for (int i = 0; i < count && status == YOKE_OK; i++)
        status = yoke_data_parallel_forward(engine->parallel, &engine->batch, false, outputs);
    if (status == YOKE_OK) status = yoke_devices_synchronize(engine->devices);
    *milliseconds = (race_clock() - begin) * 1e3 / count;
    return status;
}

static yoke_status time_kernels(bench_engine *engine, bench_timing timing, int repeat,
                                double *milliseconds) {
    yoke_status status = yoke_data_parallel_bind(engine->parallel);
    if (status == YOKE_OK)
        status = bench_kernel_time(engine->parallel, timing, repeat, milliseconds);
    yoke_data_parallel_unbind(engine->parallel);
    return status;
}

yoke_status bench_engine_kernels_alone(void *context, int steps, double *milliseconds) {
    return time_kernels(context, BENCH_KERNELS_ALONE, steps, milliseconds);
}

yoke_status bench_engine_kernels_in_order(void *context, int steps, double *milliseconds) {
    return time_kernels(context, BENCH_KERNELS_IN_ORDER, steps, milliseconds);
}
