/* SPDX-License-Identifier: Apache-2.0 */
/* replicate and reduce by hand, against memcpy of as many bytes by the same threads. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bench/tool/bench_forms.h"

#define HUGE_PAGE ((size_t)1 << 21)

/* Each worker copies memory of its own. */
struct bench_copy {
    bench_engine *engine;
    int devices;
    size_t bytes;      /* of one worker */
    char **from, **to; /* [devices] */
};

/* Writing the smallest tensor makes the other replicas stale. */
static yoke_status make_stale(bench_engine *engine) {
    yoke_tensor_info info = {.struct_size = sizeof info};
    int last = yoke_model_tensor_count(engine->model) - 1;
    yoke_status status = yoke_model_tensor(engine->model, last, &info);
    if (status != YOKE_OK) return status;
    float *values = calloc(info.count, sizeof *values);
    if (!values) return YOKE_ERROR_MEMORY;
    status = yoke_data_parallel_write(engine->parallel, info.name, values, info.count);
    free(values);
    return status;
}

static yoke_status fill_gradients(bench_engine *engine) {
    yoke_status status = yoke_data_parallel_scatter(engine->parallel, &engine->batch);
    if (status == YOKE_OK) status = yoke_data_parallel_replicate(engine->parallel);
    if (status == YOKE_OK) status = yoke_data_parallel_forward_replicas(engine->parallel, true);
    if (status == YOKE_OK) status = yoke_data_parallel_loss_replicas(engine->parallel);
    return status == YOKE_OK ? yoke_data_parallel_backward_replicas(engine->parallel) : status;
}

/* Runs `prepare`, then times `stage`, `steps` times. */
static yoke_status time_stage(bench_engine *engine, int steps, double *milliseconds,
                              yoke_status (*prepare)(bench_engine *),
                              yoke_status (*stage)(yoke_data_parallel *)) {
    double seconds = 0;
    yoke_status status = yoke_data_parallel_bind(engine->parallel);
    for (int i = 0; i < steps && status == YOKE_OK; i++) {
        status = prepare(engine);
        if (status != YOKE_OK) break;
        double begin = race_clock();
        status = stage(engine->parallel);
        seconds += race_clock() - begin;
    }
    yoke_data_parallel_unbind(engine->parallel);
    *milliseconds = seconds * 1e3 / steps;
    return status;
}

static yoke_status run_replicate(void *engine, int steps, double *milliseconds) {
    return time_stage(engine, steps, milliseconds, make_stale, yoke_data_parallel_replicate);
}

static yoke_status run_reduce(void *engine, int steps, double *milliseconds) {
    return time_stage(engine, steps, milliseconds, fill_gradients, yoke_data_parallel_reduce);
}

static yoke_status copy_job(int worker, void *context) {
    bench_copy *copy = context;
    memcpy(copy->to[worker], copy->from[worker], copy->bytes);
    return YOKE_OK;
}

static yoke_status run_copy(void *context, int steps, double *milliseconds) {
    bench_copy *copy = context;
    yoke_status status = yoke_data_parallel_bind(copy->engine->parallel);
    double begin = race_clock();
    for (int i = 0; i < steps && status == YOKE_OK; i++)
        status = yoke_parallel_apply(copy->engine->parallel, copy_job, copy);
    *milliseconds = (race_clock() - begin) * 1e3 / steps;
    yoke_data_parallel_unbind(copy->engine->parallel);
    return status;
}

static char *huge_buffer(size_t bytes) {
    size_t rounded = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    char *buffer = aligned_alloc(HUGE_PAGE, rounded);
    if (!buffer) return NULL;
    (void)madvise(buffer, rounded, MADV_HUGEPAGE);
    memset(buffer, 1, rounded);
    return buffer;
}

/* Each worker touches its own memory first. */
static yoke_status allocate_job(int worker, void *context) {
    bench_copy *copy = context;
    copy->from[worker] = huge_buffer(copy->bytes);
    copy->to[worker] = huge_buffer(copy->bytes);
    return copy->from[worker] && copy->to[worker] ? YOKE_OK : YOKE_ERROR_MEMORY;
}

/* Bytes that the stage reads and writes on all devices, as the engine's trace counts them. */
static yoke_status stage_bytes(bench_engine *engine, race_run_function run, yoke_stage stage,
                               double *bytes) {
    yoke_trace *trace = yoke_data_parallel_trace(engine->parallel);
    double milliseconds;
    yoke_status status = run(engine, 1, &milliseconds);
    yoke_trace_reset(trace);
    if (status == YOKE_OK) status = run(engine, 1, &milliseconds);
    yoke_stage_summary stages[YOKE_STAGE_COUNT];
    for (int i = 0; i < YOKE_STAGE_COUNT; i++)
        stages[i].struct_size = sizeof stages[i];
    int count = yoke_trace_summarize(trace, stages, YOKE_STAGE_COUNT);
    *bytes = 0;
    for (int i = 0; i < count; i++)
        if (stages[i].stage == stage) *bytes = stages[i].bytes;
    return status;
}

static yoke_status open_stage(const bench_row *row, yoke_stage stage, race_run_function run,
                              bench_field *field) {
    double moved = 0;
    yoke_status status = bench_engine_create(&field->engines[0], row->a);
    if (status == YOKE_OK) status = stage_bytes(field->engines[0], run, stage, &moved);
    if (status != YOKE_OK) return status;
    bench_copy *copy = field->copy = calloc(1, sizeof *copy);
    if (!copy) return YOKE_ERROR_MEMORY;
    copy->engine = field->engines[0];
    copy->devices = copy->engine->setup.devices;
    copy->bytes = (size_t)(moved / 2) / (size_t)copy->devices;
    copy->from = calloc((size_t)copy->devices, sizeof *copy->from);
    copy->to = calloc((size_t)copy->devices, sizeof *copy->to);
    if (!copy->from || !copy->to) return YOKE_ERROR_MEMORY;
    field->a = (race_contender){run, copy->engine};
    field->b = (race_contender){run_copy, copy};
    field->a_work = field->b_work = moved * 1e-6;
    return yoke_parallel_apply(copy->engine->parallel, allocate_job, copy);
}

yoke_status bench_open_replicate(const bench_row *row, bench_field *field) {
    return open_stage(row, YOKE_STAGE_REPLICATE, run_replicate, field);
}

yoke_status bench_open_reduce(const bench_row *row, bench_field *field) {
    return open_stage(row, YOKE_STAGE_REDUCE, run_reduce, field);
}

void bench_copy_destroy(bench_copy *copy) {
    if (!copy) return;
    for (int i = 0; i < copy->devices && copy->from && copy->to; i++) {
        free(copy->from[i]);
        free(copy->to[i]);
    }
    free(copy->from);
    free(copy->to);
    free(copy);
}
