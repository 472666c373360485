/* SPDX-License-Identifier: Apache-2.0 */
/* A profile from the trace of an engine on one device: means over its fastest steps. */
#include "bench/tool/bench_profile.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/floor/floor.h"
#include "bench/tool/bench_engine.h"
#include "cli/cli.h"
#include "simulate/simulate.h"

#define WARM_UP 3
#define DEFAULT_STEPS 20
#define FASTEST_PART 4 /* a quarter of them */
#define DEFAULT_ROWS 32
#define DDP_BUCKET_BYTES ((size_t)25 << 20) /* the engine's among several GPUs */

/* Columns of a step's times; behind them one for each segment of backward. */
enum { STEP, FORWARD, LOSS, UPDATE, SEGMENTS };

typedef struct profile_table {
    double *values; /* [steps][columns] ms */
    int steps, columns;
    uint64_t first_step;
} profile_table;

static int column_of(const yoke_span_info *span) {
    switch (span->stage) {
    case YOKE_STAGE_STEP:
        return STEP;
    case YOKE_STAGE_FORWARD:
        return FORWARD;
    case YOKE_STAGE_LOSS:
        return LOSS;
    case YOKE_STAGE_UPDATE:
    case YOKE_STAGE_EXCHANGE:
        return UPDATE;
    case YOKE_STAGE_BACKWARD:
        return SEGMENTS + span->bucket;
    default:
        return -1;
    }
}

static yoke_status read_table(profile_table *table, const yoke_trace *trace) {
    size_t count = yoke_trace_read(trace, NULL, 0);
    yoke_span_info *spans = calloc(count > 0 ? count : 1, sizeof *spans);
    if (spans == NULL || count == 0) {
        free(spans);
        return cli_refuse(YOKE_ERROR_MEMORY, "no memory for the spans of a profile");
    }
    spans[0].struct_size = sizeof spans[0];
    yoke_trace_read(trace, spans, count);
    table->first_step = spans[0].step;
    for (size_t i = 0; i < count; i++)
        if (spans[i].step < table->first_step) table->first_step = spans[i].step;
    for (size_t i = 0; i < count; i++) {
        int column = column_of(&spans[i]);
        uint64_t row = spans[i].step - table->first_step;
        if (column < 0 || column >= table->columns || row >= (uint64_t)table->steps) continue;
        table->values[row * (size_t)table->columns + (size_t)column] +=
            1e-6 * (double)(spans[i].end_ns - spans[i].begin_ns);
    }
    free(spans);
    return YOKE_OK;
}

/* The fastest steps come first. */
static int by_step(const void *a, const void *b) {
    double x = ((const double *)a)[STEP], y = ((const double *)b)[STEP];
    return (x > y) - (x < y);
}

static int fastest_of(int steps) {
    return (steps + FASTEST_PART - 1) / FASTEST_PART;
}

/* The mean of a column over the fastest steps. */
static double mean(const profile_table *table, int column) {
    int count = fastest_of(table->steps);
    double sum = 0;
    for (int row = 0; row < count; row++)
        sum += table->values[row * table->columns + column];
    return sum / count;
}

static yoke_status fill_segments(yoke_profile *profile, const bench_engine *engine) {
    int count = bench_bucket_bytes(engine->parallel, NULL, 0);
    size_t *bytes = calloc((size_t)count, sizeof *bytes);
    profile->segments = calloc((size_t)count, sizeof *profile->segments);
    profile->segment_count = count;
    if (bytes != NULL && profile->segments != NULL) {
        bench_bucket_bytes(engine->parallel, bytes, count);
        for (int s = 0; s < count; s++)
            profile->segments[s].bytes = bytes[s];
    }
    free(bytes);
    return bytes != NULL && profile->segments != NULL
               ? YOKE_OK
               : cli_refuse(YOKE_ERROR_MEMORY, "no memory for a profile");
}

static size_t values_of(yoke_shape shape) {
    return (size_t)shape.channels * (size_t)shape.height * (size_t)shape.width;
}

static yoke_status describe(yoke_profile *profile, const bench_engine *engine, int steps) {
    yoke_device_info info = {.struct_size = sizeof info};
    yoke_status status = yoke_devices_describe(engine->devices, 0, &info);
    if (status != YOKE_OK) return status;
    snprintf(profile->model, sizeof profile->model, "%s", engine->setup.model);
    snprintf(profile->precision, sizeof profile->precision, "%s",
             yoke_precision_names[engine->setup.precision]);
    snprintf(profile->device, sizeof profile->device, "%s", info.description);
    if (info.capability == 0)
        snprintf(profile->device, sizeof profile->device, "%.90s, %d thread%s", info.description,
                 info.threads, info.threads == 1 ? "" : "s");
    snprintf(profile->source, sizeof profile->source,
             "measured by yoke bench --profile: the fastest %d of %d steps", fastest_of(steps),
             steps);
    profile->rows = engine->setup.rows;
    profile->layers = yoke_model_layer_count(engine->model);
    size_t value_bytes = yoke_loader_pixels(engine->loader) ? 1 : sizeof(float);
    profile->input_bytes = values_of(yoke_model_input_shape(engine->model)) * value_bytes;
    profile->output_bytes = values_of(yoke_model_output_shape(engine->model)) * sizeof(float);
    return fill_segments(profile, engine);
}

static yoke_status measure(yoke_profile *profile, bench_engine *engine, int steps) {
    yoke_trace *trace = yoke_data_parallel_trace(engine->parallel);
    double milliseconds;
    yoke_status status = bench_engine_steps(engine, WARM_UP, &milliseconds);
    if (status == YOKE_OK) yoke_trace_reset(trace);
    if (status == YOKE_OK) status = bench_engine_steps(engine, steps, &milliseconds);
    if (status == YOKE_OK) status = describe(profile, engine, steps);
    if (status != YOKE_OK) return status;
    profile_table table = {.steps = steps, .columns = SEGMENTS + profile->segment_count};
    table.values = calloc((size_t)(steps * table.columns), sizeof *table.values);
    if (table.values == NULL) return cli_refuse(YOKE_ERROR_MEMORY, "no memory for a profile");
    status = read_table(&table, yoke_data_parallel_trace(engine->parallel));
    if (status == YOKE_OK) {
        /* Other programs make steps longer, and only means of the same steps add up. What the parts
         * leave of the step is the host's. */
        size_t row_bytes = (size_t)table.columns * sizeof *table.values;
        qsort(table.values, (size_t)table.steps, row_bytes, by_step);
        profile->forward_ms = mean(&table, FORWARD);
        profile->loss_ms = mean(&table, LOSS);
        profile->update_ns_per_byte =
            1e6 * mean(&table, UPDATE) / (double)yoke_profile_bytes(profile);
        for (int s = 0; s < profile->segment_count; s++)
            profile->segments[s].backward_ms = mean(&table, SEGMENTS + s);
        profile->host_ms = fmax(0, mean(&table, STEP) - yoke_profile_step_ms(profile));
    }
    free(table.values);
    return status;
}

bench_setup bench_profile_setup(const bench_profile_options *options) {
    return (bench_setup){.model = options->model != NULL ? options->model : "resnet20",
                         .list = options->device,
                         .devices = 1,
                         .threads = options->threads,
                         .dataset = options->dataset,
                         .rows = options->rows > 0 ? options->rows : DEFAULT_ROWS,
                         .gpu_bucket_bytes = DDP_BUCKET_BYTES,
                         .precision = options->precision};
}

yoke_status bench_profile(const bench_profile_options *options) {
    bench_setup setup = bench_profile_setup(options);
    yoke_profile profile = {0};
    bench_engine *engine = NULL;
    yoke_status status = yoke_file_check(options->path);
    if (status == YOKE_OK) status = bench_engine_create(&engine, &setup);
    if (status == YOKE_OK && engine->setup.devices != 1)
        status = cli_refuse(YOKE_ERROR_ARGUMENT,
                            "--device %s: %d devices, a profile is of one; name one, as in cuda:0",
                            options->device, engine->setup.devices);
    if (status == YOKE_OK && engine->batch.rows != setup.rows)
        status = cli_refuse(YOKE_ERROR_ARGUMENT, "--rows %d: the dataset has %d", setup.rows,
                            engine->batch.rows);
    int steps = options->steps > 0 ? options->steps : DEFAULT_STEPS;
    if (status == YOKE_OK) status = measure(&profile, engine, steps);
    if (status == YOKE_OK) status = yoke_profile_write(&profile, options->path);
    if (status == YOKE_OK) {
        printf("%s: %s, %d rows, step %.2f ms on %s\n", options->path, profile.model, profile.rows,
               yoke_profile_step_ms(&profile), profile.device);
    }
    yoke_profile_clear(&profile);
    bench_engine_destroy(engine);
    return status;
}
