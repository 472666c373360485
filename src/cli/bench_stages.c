/* replicate and reduce by hand, against memcpy of as many bytes by the same threads. */
#include "bench_rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_PAGE ((size_t)1 << 21)
#define STAGE_STEPS 10

/* What each worker copies: from and to are its own. */
typedef struct copy_crew {
    bench_engine *engine;
    size_t bytes; /* of one worker */
    char **from, **to;
} copy_crew;

/* The smallest way to make the other replicas stale. */
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
    yoke_status status = yoke_scatter(engine->parallel, &engine->batch);
    if (status == YOKE_OK) status = yoke_replicate(engine->parallel);
    if (status == YOKE_OK) status = yoke_forward_replicas(engine->parallel, true);
    if (status == YOKE_OK) status = yoke_loss_replicas(engine->parallel);
    return status == YOKE_OK ? yoke_backward_replicas(engine->parallel) : status;
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
    yoke_data_parallel_release(engine->parallel);
    *milliseconds = seconds * 1e3 / steps;
    return status;
}

static yoke_status run_replicate(void *engine, int steps, double *milliseconds) {
    return time_stage(engine, steps, milliseconds, make_stale, yoke_replicate);
}

static yoke_status run_reduce(void *engine, int steps, double *milliseconds) {
    return time_stage(engine, steps, milliseconds, fill_gradients, yoke_reduce);
}

static yoke_status copy_job(int worker, void *context) {
    copy_crew *copy = context;
    memcpy(copy->to[worker], copy->from[worker], copy->bytes);
    return YOKE_OK;
}

static yoke_status run_copy(void *context, int steps, double *milliseconds) {
    copy_crew *copy = context;
    yoke_status status = yoke_data_parallel_bind(copy->engine->parallel);
    double begin = race_clock();
    for (int i = 0; i < steps && status == YOKE_OK; i++)
        status = yoke_parallel_apply(copy->engine->parallel, copy_job, copy);
    *milliseconds = (race_clock() - begin) * 1e3 / steps;
    yoke_data_parallel_release(copy->engine->parallel);
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
    copy_crew *copy = context;
    copy->from[worker] = huge_buffer(copy->bytes);
    copy->to[worker] = huge_buffer(copy->bytes);
    return copy->from[worker] && copy->to[worker] ? YOKE_OK : YOKE_ERROR_MEMORY;
}

/* `moved` counts reads and writes, as the trace does. */
static yoke_status copy_build(copy_crew *copy, bench_engine *engine, double moved) {
    size_t devices = (size_t)engine->setup.devices;
    copy->engine = engine;
    copy->bytes = (size_t)(moved / 2) / devices;
    copy->from = calloc(devices, sizeof *copy->from);
    copy->to = calloc(devices, sizeof *copy->to);
    if (!copy->from || !copy->to) return YOKE_ERROR_MEMORY;
    return yoke_parallel_apply(engine->parallel, allocate_job, copy);
}

static void copy_free(const copy_crew *copy, int devices) {
    for (int i = 0; i < devices && copy->from && copy->to; i++) {
        free(copy->from[i]);
        free(copy->to[i]);
    }
    free(copy->from);
    free(copy->to);
}

/* Bytes the stage moves, all lanes, by the engine's own trace. */
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

typedef struct stage_case {
    yoke_stage stage;
    race_run_function run;
} stage_case;

static yoke_status race_copy(const bench_row *row, const bench_effort *effort, stage_case which,
                             bench_engine *engine, bench_result *result) {
    double moved;
    yoke_status status = stage_bytes(engine, which.run, which.stage, &moved);
    if (status != YOKE_OK) return status;
    copy_crew copy = {0};
    status = copy_build(&copy, engine, moved);
    rounds race = {.title = row->name,
                   .contenders = {{which.run, engine}, {run_copy, &copy}, {which.run, engine}},
                   .count = 3,
                   .rounds = effort->rounds,
                   .steps = effort->steps > 0 ? effort->steps : STAGE_STEPS,
                   .seconds = effort->seconds};
    if (status == YOKE_OK) status = race_run(&race);
    if (status == YOKE_OK) {
        bench_race_result(&race, 2, result);
        result->value = race_compare(&race, 0, 1, 1);
        result->a = moved * 1e-6 / race_times(&race, 0, 1).median;
        result->b = moved * 1e-6 / race_times(&race, 1, 1).median;
    }
    copy_free(&copy, engine->setup.devices);
    return status;
}

static yoke_status measure_stage(const bench_row *row, const bench_effort *effort, stage_case which,
                                 bench_result *result) {
    bench_engine *engine = NULL;
    yoke_status status = bench_engine_create(&engine, row->a);
    if (status == YOKE_OK) status = race_copy(row, effort, which, engine, result);
    bench_engine_destroy(engine);
    return status;
}

yoke_status bench_measure_replicate(const bench_row *row, const bench_effort *effort,
                                    bench_result *result) {
    return measure_stage(row, effort, (stage_case){YOKE_STAGE_REPLICATE, run_replicate}, result);
}

yoke_status bench_measure_reduce(const bench_row *row, const bench_effort *effort,
                                 bench_result *result) {
    return measure_stage(row, effort, (stage_case){YOKE_STAGE_REDUCE, run_reduce}, result);
}
