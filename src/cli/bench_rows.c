/* The table of rows, and the races between engines. */
#include "bench_rows.h"

#include <math.h>

#define R18 "resnet18-cifar"
#define R50 "resnet50"
#define SETUP(network, count, cores, shard, ...)                                                   \
    { .model = (network), .devices = (count), .threads = (cores), .rows = (shard), __VA_ARGS__ }
#define DIRECT .algorithm = YOKE_ALGORITHM_DIRECT
#define BFLOAT16 .precision = YOKE_BFLOAT16
#define FLOAT32 .precision = YOKE_FLOAT32
#define CLASSIC .schedule = YOKE_SCHEDULE_CLASSIC
#define SHARDED .schedule = YOKE_SCHEDULE_SHARDED

/* model, devices, threads of each, rows of each */
static const bench_setup mlp_1x1 = SETUP("mlp", 1, 1, 64, FLOAT32);
static const bench_setup mlp_1x2 = SETUP("mlp", 1, 2, 128, FLOAT32);
static const bench_setup mlp_2x1 = SETUP("mlp", 2, 1, 64, FLOAT32);
static const bench_setup mlp_2x1_1 = SETUP("mlp", 2, 1, 1, FLOAT32);
static const bench_setup mlp_2x1_16 = SETUP("mlp", 2, 1, 16, FLOAT32);
static const bench_setup mlp_2x1_16_classic = SETUP("mlp", 2, 1, 16, CLASSIC);
static const bench_setup mlp_2x1_16_sharded = SETUP("mlp", 2, 1, 16, SHARDED);
static const bench_setup mlp_4x1_1 = SETUP("mlp", 4, 1, 1, FLOAT32);
static const bench_setup r18_1x1 = SETUP(R18, 1, 1, 32, FLOAT32);
static const bench_setup r18_1x1_64 = SETUP(R18, 1, 1, 64, FLOAT32);
static const bench_setup r18_1x1_bf16 = SETUP(R18, 1, 1, 32, BFLOAT16);
static const bench_setup r18_1x1_direct = SETUP(R18, 1, 1, 32, DIRECT);
static const bench_setup r18_1x2 = SETUP(R18, 1, 2, 64, FLOAT32);
static const bench_setup r18_1x2_bf16 = SETUP(R18, 1, 2, 64, BFLOAT16);
static const bench_setup r18_1x2_direct = SETUP(R18, 1, 2, 64, DIRECT);
static const bench_setup r18_2x1 = SETUP(R18, 2, 1, 32, FLOAT32);
static const bench_setup r18_2x1_1 = SETUP(R18, 2, 1, 1, FLOAT32);
static const bench_setup r18_2x1_64 = SETUP(R18, 2, 1, 64, FLOAT32);
static const bench_setup r18_2x1_bf16 = SETUP(R18, 2, 1, 32, BFLOAT16);
static const bench_setup r18_2x1_classic = SETUP(R18, 2, 1, 32, CLASSIC);
static const bench_setup r18_2x1_direct = SETUP(R18, 2, 1, 32, DIRECT);
static const bench_setup r18_2x1_sharded = SETUP(R18, 2, 1, 32, SHARDED);
static const bench_setup r50_1x1 = SETUP(R50, 1, 1, 32, FLOAT32);
static const bench_setup r50_1x1_bf16 = SETUP(R50, 1, 1, 32, BFLOAT16);
static const bench_setup r50_1x2 = SETUP(R50, 1, 2, 64, FLOAT32);
static const bench_setup r50_2x1 = SETUP(R50, 2, 1, 32, FLOAT32);
static const bench_setup r50_2x1_2 = SETUP(R50, 2, 1, 2, FLOAT32);
static const bench_setup r50_2x1_classic = SETUP(R50, 2, 1, 32, CLASSIC);
static const bench_setup r50_2x1_sharded = SETUP(R50, 2, 1, 32, SHARDED);

#define AT_LEAST false
#define AT_MOST true
#define QUICK true
#define FULL false

static const bench_row rows[] = {
    {"cost-resnet18", "C5", "step / sum of its own kernels, float32", "ms", 1.03, AT_MOST, FULL,
     bench_measure_cost, &r18_1x1, NULL},
    {"cost-resnet18-bf16", "C5", "step / sum of its own kernels, bfloat16", "ms", 1.03, AT_MOST,
     FULL, bench_measure_cost, &r18_1x1_bf16, NULL},
    {"cost-resnet50", "C5", "step / sum of its own kernels, float32", "ms", 1.05, AT_MOST, QUICK,
     bench_measure_cost, &r50_1x1, NULL},
    {"cost-resnet50-bf16", "C5", "step / sum of its own kernels, bfloat16", "ms", 1.05, AT_MOST,
     QUICK, bench_measure_cost, &r50_1x1_bf16, NULL},
    {"cost-mlp", "C5", "step / sum of its own kernels, 64 rows", "ms", 1.06, AT_MOST, QUICK,
     bench_measure_cost, &mlp_1x1, NULL},
    {"in-order-resnet18", "", "step / its kernels timed in order", "ms", 1.03, AT_MOST, FULL,
     bench_measure_in_order, &r18_1x1, NULL},
    {"in-order-resnet50", "", "step / its kernels timed in order", "ms", 1.03, AT_MOST, QUICK,
     bench_measure_in_order, &r50_1x1, NULL},
    {"in-order-mlp", "", "step / its kernels timed in order, 64 rows", "ms", 1.06, AT_MOST, QUICK,
     bench_measure_in_order, &mlp_1x1, NULL},
    {"outside-resnet18", "C6", "percent of a step outside every stage", "%", 0.3, AT_MOST, FULL,
     bench_measure_outside, &r18_1x1, NULL},
    {"outside-mlp", "C6", "percent of a step outside every stage, 64 rows", "%", 2, AT_MOST, QUICK,
     bench_measure_outside, &mlp_1x1, NULL},

    {"scaling-resnet18", "", "2 devices / 1, float32", "img/s", 1.88, AT_LEAST, FULL,
     bench_measure_throughput, &r18_2x1, &r18_1x1},
    {"scaling-resnet18-direct", "C1", "2 devices / 1, direct convolution", "img/s", 1.94, AT_LEAST,
     FULL, bench_measure_throughput, &r18_2x1_direct, &r18_1x1_direct},
    {"scaling-resnet18-bf16", "C2", "2 devices / 1, bfloat16", "img/s", 1.93, AT_LEAST, FULL,
     bench_measure_throughput, &r18_2x1_bf16, &r18_1x1_bf16},
    {"scaling-resnet18-64", "C2", "2 devices / 1, float32, 64 rows each", "img/s", 1.88, AT_LEAST,
     FULL, bench_measure_throughput, &r18_2x1_64, &r18_1x1_64},
    {"scaling-resnet50", "C3", "2 devices / 1, float32", "img/s", 1.85, AT_LEAST, QUICK,
     bench_measure_throughput, &r50_2x1, &r50_1x1},
    {"scaling-mlp", "C3", "2 devices / 1, 64 rows each", "img/s", 1.85, AT_LEAST, QUICK,
     bench_measure_throughput, &mlp_2x1, &mlp_1x1},

    {"split-resnet18", "C4", "2 devices x 1 thread / 1 x 2, float32", "img/s", 0.93, AT_LEAST, FULL,
     bench_measure_throughput, &r18_2x1, &r18_1x2},
    {"split-resnet18-direct", "C4", "2 devices x 1 thread / 1 x 2, direct", "img/s", 0.97, AT_LEAST,
     FULL, bench_measure_throughput, &r18_2x1_direct, &r18_1x2_direct},
    {"split-resnet18-bf16", "C4", "2 devices x 1 thread / 1 x 2, bfloat16", "img/s", 0.97, AT_LEAST,
     FULL, bench_measure_throughput, &r18_2x1_bf16, &r18_1x2_bf16},
    {"split-resnet50", "C4", "2 devices x 1 thread / 1 x 2, float32", "img/s", 0.93, AT_LEAST,
     QUICK, bench_measure_throughput, &r50_2x1, &r50_1x2},
    {"split-mlp", "C4", "2 devices x 1 thread / 1 x 2", "img/s", 0.97, AT_LEAST, QUICK,
     bench_measure_throughput, &mlp_2x1, &mlp_1x2},

    {"algorithm-resnet18", "C7", "measured algorithms / direct", "img/s", 1.75, AT_LEAST, FULL,
     bench_measure_throughput, &r18_1x1, &r18_1x1_direct},

    {"overlap-resnet18", "", "overlap / classic, 2 devices", "img/s", 1, AT_LEAST, FULL,
     bench_measure_throughput, &r18_2x1, &r18_2x1_classic},
    {"sharded-resnet18", "", "sharded / classic, 2 devices", "img/s", 1, AT_LEAST, FULL,
     bench_measure_throughput, &r18_2x1_sharded, &r18_2x1_classic},
    {"overlap-resnet50", "C12", "overlap / classic, 2 devices", "img/s", 1.04, AT_LEAST, QUICK,
     bench_measure_throughput, &r50_2x1, &r50_2x1_classic},
    {"sharded-resnet50", "", "sharded / classic, 2 devices", "img/s", 1, AT_LEAST, QUICK,
     bench_measure_throughput, &r50_2x1_sharded, &r50_2x1_classic},
    {"overlap-mlp", "C12", "overlap / classic, 2 devices, 16 rows each", "img/s", 1.2, AT_LEAST,
     QUICK, bench_measure_throughput, &mlp_2x1_16, &mlp_2x1_16_classic},
    {"sharded-mlp", "", "sharded / classic, 2 devices, 16 rows each", "img/s", 1, AT_LEAST, QUICK,
     bench_measure_throughput, &mlp_2x1_16_sharded, &mlp_2x1_16_classic},

    {"ddp-resnet18", "", "2 ranks x 1 thread / 2 devices x 1 thread", "img/s", 0.97, AT_LEAST, FULL,
     bench_measure_ddp, &r18_2x1, NULL},
    {"ddp-resnet18-direct", "", "2 ranks x 1 thread / 2 devices x 1 thread, direct", "img/s", 0.97,
     AT_LEAST, FULL, bench_measure_ddp, &r18_2x1_direct, NULL},
    {"ddp-resnet50", "", "2 ranks x 1 thread / 2 devices x 1 thread", "img/s", 0.97, AT_LEAST, FULL,
     bench_measure_ddp, &r50_2x1, NULL},
    {"ddp-sharded-resnet50", "", "2 ranks x 1 thread, sharded / 2 devices x 1 thread", "img/s",
     0.97, AT_LEAST, FULL, bench_measure_ddp, &r50_2x1_sharded, NULL},
    {"wait-resnet18", "", "percent of a rank's step spent waiting, 2 ranks", "%", 3, AT_MOST, FULL,
     bench_measure_wait, &r18_2x1, NULL},
    {"wait-resnet50", "", "percent of a rank's step spent waiting, 2 ranks", "%", 3, AT_MOST, FULL,
     bench_measure_wait, &r50_2x1, NULL},

    {"replicate-resnet18", "", "replicate / memcpy by the same threads", "GB/s", 0.8, AT_LEAST,
     QUICK, bench_measure_replicate, &r18_2x1_1, NULL},
    {"replicate-resnet50", "", "replicate / memcpy by the same threads", "GB/s", 0.8, AT_LEAST,
     FULL, bench_measure_replicate, &r50_2x1_2, NULL},
    {"reduce-resnet18", "", "reduce / memcpy by the same threads", "GB/s", 0.8, AT_LEAST, QUICK,
     bench_measure_reduce, &r18_2x1_1, NULL},
    {"reduce-resnet50", "", "reduce / memcpy by the same threads", "GB/s", 0.8, AT_LEAST, FULL,
     bench_measure_reduce, &r50_2x1_2, NULL},

    {"dispatch-2", "", "an empty job to 2 devices, microseconds", "us", 2, AT_MOST, QUICK,
     bench_measure_dispatch, &mlp_2x1_1, NULL},
    {"dispatch-4", "", "an empty job to 4 devices, microseconds", "us", 50, AT_MOST, QUICK,
     bench_measure_dispatch, &mlp_4x1_1, NULL},
    {"barrier-2", "C11", "two pthread barriers / an empty job, 2 threads", "us", 200, AT_LEAST,
     QUICK, bench_measure_barrier, &mlp_2x1_1, NULL},
    {"barrier-4", "C11", "an empty job / two futex barriers, 4 threads", "us", 1.1, AT_MOST, QUICK,
     bench_measure_futex, &mlp_4x1_1, NULL},
};

const bench_row *bench_row_at(int index) {
    return index >= 0 && index < (int)(sizeof rows / sizeof *rows) ? &rows[index] : NULL;
}

void bench_race_result(const rounds *race, int twin, bench_result *result) {
    result->noise = twin > 0 ? race_noise(race, 0, twin) : NAN;
    result->rounds = race->done;
    result->repeated = race->repeated;
    result->noisy = race->noisy;
}

static rounds race_of(const bench_row *row, const bench_effort *effort) {
    return (rounds){.title = row->name,
                    .rounds = effort->rounds,
                    .steps = effort->steps,
                    .seconds = effort->seconds};
}

static void enter(rounds *race, race_run_function run, void *context) {
    race->contenders[race->count++] = (race_contender){run, context};
}

yoke_status bench_measure_throughput(const bench_row *row, const bench_effort *effort,
                                     bench_result *result) {
    bench_engine *a = NULL, *b = NULL;
    yoke_status status = bench_engine_create(&a, row->a);
    if (status == YOKE_OK) status = bench_engine_create(&b, row->b);
    rounds race = race_of(row, effort);
    enter(&race, bench_engine_steps, a);
    enter(&race, bench_engine_steps, b);
    enter(&race, bench_engine_steps, a);
    if (status == YOKE_OK) status = race_run(&race);
    if (status == YOKE_OK) {
        double a_rows = a->batch.rows, b_rows = b->batch.rows;
        bench_race_result(&race, 2, result);
        result->value = race_compare(&race, 0, 1, a_rows / b_rows);
        result->a = 1e3 * a_rows / race_times(&race, 0, 1).median;
        result->b = 1e3 * b_rows / race_times(&race, 1, 1).median;
    }
    bench_engine_destroy(b);
    bench_engine_destroy(a);
    return status;
}

/* The fastest step beside the fastest kernels: what is left is the engine's, not the machine's. */
static yoke_status measure_floor(const bench_row *row, const bench_effort *effort,
                                 race_run_function floor, bench_result *result) {
    bench_engine *engine = NULL;
    yoke_status status = bench_engine_create(&engine, row->a);
    rounds race = race_of(row, effort);
    enter(&race, bench_engine_fastest, engine);
    enter(&race, floor, engine);
    enter(&race, bench_engine_fastest, engine);
    if (status == YOKE_OK) status = race_run(&race);
    if (status == YOKE_OK) {
        bench_race_result(&race, 2, result);
        result->value = race_compare(&race, 1, 0, 1);
        result->a = race_times(&race, 0, 1).median;
        result->b = race_times(&race, 1, 1).median;
    }
    bench_engine_destroy(engine);
    return status;
}

yoke_status bench_measure_cost(const bench_row *row, const bench_effort *effort,
                               bench_result *result) {
    return measure_floor(row, effort, bench_engine_floor_alone, result);
}

yoke_status bench_measure_in_order(const bench_row *row, const bench_effort *effort,
                                   bench_result *result) {
    return measure_floor(row, effort, bench_engine_floor_in_order, result);
}

/* By the trace: the share of the steps' time that is in none of their stages, in percent. */
static yoke_status run_outside(void *context, int steps, double *percent) {
    bench_engine *engine = context;
    yoke_trace *trace = yoke_data_parallel_trace(engine->parallel);
    yoke_trace_reset(trace);
    double milliseconds;
    yoke_status status = bench_engine_steps(engine, steps, &milliseconds);
    yoke_stage_summary stages[YOKE_STAGE_COUNT];
    for (int i = 0; i < YOKE_STAGE_COUNT; i++)
        stages[i].struct_size = sizeof stages[i];
    int count = yoke_trace_summarize(trace, stages, YOKE_STAGE_COUNT);
    double inside = 0;
    for (int i = 0; i < count; i++)
        if (stages[i].stage != YOKE_STAGE_STEP) inside += stages[i].share;
    *percent = 100 * (1 - inside);
    return status;
}

yoke_status bench_measure_outside(const bench_row *row, const bench_effort *effort,
                                  bench_result *result) {
    bench_engine *engine = NULL;
    yoke_status status = bench_engine_create(&engine, row->a);
    rounds race = race_of(row, effort);
    if (race.steps == 0) race.steps = 5;
    enter(&race, run_outside, engine);
    if (status == YOKE_OK) status = race_run(&race);
    if (status == YOKE_OK) {
        bench_race_result(&race, 0, result);
        result->value = race_times(&race, 0, 1);
        result->a = result->value.median;
        result->b = NAN;
    }
    bench_engine_destroy(engine);
    return status;
}
