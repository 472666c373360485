/* SPDX-License-Identifier: Apache-2.0 */
/* The table of rows. */
#include "bench/tool/bench_rows.h"

#define R18 "resnet18-cifar"
#define R50 "resnet50"
#define SETUP(network, count, cores, shard, ...)                                                   \
    { .model = (network), .devices = (count), .threads = (cores), .rows = (shard), __VA_ARGS__ }
#define DIRECT .algorithm = YOKE_ALGORITHM_DIRECT
#define BFLOAT16 .precision = YOKE_BFLOAT16
#define FLOAT32 .precision = YOKE_FLOAT32
#define CLASSIC .schedule = YOKE_SCHEDULE_CLASSIC
#define SHARDED .schedule = YOKE_SCHEDULE_SHARDED
#define UNCHECKED .skip_finite_check = true
#define SHARDS_OF_32(devices, rows) .shards = (devices) * (rows) / 32

/* model, devices, threads of each, rows of each */
static const bench_setup mlp_1x1 = SETUP("mlp", 1, 1, 64, FLOAT32);
static const bench_setup mlp_1x2 = SETUP("mlp", 1, 2, 128, FLOAT32);
static const bench_setup mlp_2x1 = SETUP("mlp", 2, 1, 64, FLOAT32);
static const bench_setup mlp_2x1_1 = SETUP("mlp", 2, 1, 1, FLOAT32);
static const bench_setup mlp_2x1_16 = SETUP("mlp", 2, 1, 16, FLOAT32);
static const bench_setup mlp_2x1_16_classic = SETUP("mlp", 2, 1, 16, CLASSIC);
static const bench_setup mlp_2x1_16_sharded = SETUP("mlp", 2, 1, 16, SHARDED);
static const bench_setup mlp_2x1_unchecked = SETUP("mlp", 2, 1, 64, UNCHECKED);
static const bench_setup mlp_4x1_1 = SETUP("mlp", 4, 1, 1, FLOAT32);
static const bench_setup narrow_8x1_1 = SETUP("mlp:width=32", 8, 1, 1, FLOAT32);
static const bench_setup narrow_16x1_1 = SETUP("mlp:width=32", 16, 1, 1, FLOAT32);
static const bench_setup narrow_32x1_1 = SETUP("mlp:width=32", 32, 1, 1, FLOAT32);
static const bench_setup narrow_64x1_1 = SETUP("mlp:width=32", 64, 1, 1, FLOAT32);
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
static const bench_setup r18_2x1_128 = SETUP(R18, 2, 1, 128, FLOAT32);
static const bench_setup r18_2x1_128_micro = SETUP(R18, 2, 1, 128, .accumulate = 128 / 32);
static const bench_setup r18_2x1_128_shards = SETUP(R18, 2, 1, 128, SHARDS_OF_32(2, 128));
static const bench_setup r18_2x1_bf16 = SETUP(R18, 2, 1, 32, BFLOAT16);
static const bench_setup r18_2x1_classic = SETUP(R18, 2, 1, 32, CLASSIC);
static const bench_setup r18_2x1_direct = SETUP(R18, 2, 1, 32, DIRECT);
static const bench_setup r18_2x1_sharded = SETUP(R18, 2, 1, 32, SHARDED);
static const bench_setup r18_2x1_unchecked = SETUP(R18, 2, 1, 32, UNCHECKED);
static const bench_setup r50_1x1 = SETUP(R50, 1, 1, 32, FLOAT32);
static const bench_setup r50_1x1_bf16 = SETUP(R50, 1, 1, 32, BFLOAT16);
static const bench_setup r50_1x2 = SETUP(R50, 1, 2, 64, FLOAT32);
static const bench_setup r50_2x1 = SETUP(R50, 2, 1, 32, FLOAT32);
static const bench_setup r50_2x1_2 = SETUP(R50, 2, 1, 2, FLOAT32);
static const bench_setup r50_2x1_classic = SETUP(R50, 2, 1, 32, CLASSIC);
static const bench_setup r50_2x1_sharded = SETUP(R50, 2, 1, 32, SHARDED);
static const bench_setup r50_2x1_unchecked = SETUP(R50, 2, 1, 32, UNCHECKED);

#define AT_LEAST false
#define AT_MOST true
#define QUICK true
#define FULL false

static const bench_row rows[] = {
    {"cost-resnet18", "step / sum of its own kernels, float32", 1.03, AT_MOST, FULL, &bench_cost,
     &r18_1x1, NULL},
    {"cost-resnet18-bf16", "step / sum of its own kernels, bfloat16", 1.03, AT_MOST, FULL,
     &bench_cost, &r18_1x1_bf16, NULL},
    {"cost-resnet50", "step / sum of its own kernels, float32", 1.05, AT_MOST, QUICK, &bench_cost,
     &r50_1x1, NULL},
    {"cost-resnet50-bf16", "step / sum of its own kernels, bfloat16", 1.05, AT_MOST, QUICK,
     &bench_cost, &r50_1x1_bf16, NULL},
    {"cost-mlp", "step / sum of its own kernels, 64 rows", 1.06, AT_MOST, QUICK, &bench_cost,
     &mlp_1x1, NULL},
    {"in-order-resnet18", "step / its kernels timed in order", 1.03, AT_MOST, FULL, &bench_in_order,
     &r18_1x1, NULL},
    {"in-order-resnet50", "step / its kernels timed in order", 1.03, AT_MOST, QUICK,
     &bench_in_order, &r50_1x1, NULL},
    {"in-order-mlp", "step / its kernels timed in order, 64 rows", 1.06, AT_MOST, QUICK,
     &bench_in_order, &mlp_1x1, NULL},
    {"outside-resnet18", "percent of a step outside every stage", 0.3, AT_MOST, FULL,
     &bench_outside, &r18_1x1, NULL},
    {"outside-mlp", "percent of a step outside every stage, 64 rows", 2, AT_MOST, QUICK,
     &bench_outside, &mlp_1x1, NULL},

    {"scaling-resnet18", "2 devices / 1, float32", 1.88, AT_LEAST, FULL, &bench_throughput,
     &r18_2x1, &r18_1x1},
    {"scaling-resnet18-direct", "2 devices / 1, direct convolution", 1.94, AT_LEAST, FULL,
     &bench_throughput, &r18_2x1_direct, &r18_1x1_direct},
    {"scaling-resnet18-bf16", "2 devices / 1, bfloat16", 1.93, AT_LEAST, FULL, &bench_throughput,
     &r18_2x1_bf16, &r18_1x1_bf16},
    {"scaling-resnet18-64", "2 devices / 1, float32, 64 rows each", 1.88, AT_LEAST, FULL,
     &bench_throughput, &r18_2x1_64, &r18_1x1_64},
    {"scaling-resnet50", "2 devices / 1, float32", 1.85, AT_LEAST, QUICK, &bench_throughput,
     &r50_2x1, &r50_1x1},
    {"scaling-mlp", "2 devices / 1, 64 rows each", 1.85, AT_LEAST, QUICK, &bench_throughput,
     &mlp_2x1, &mlp_1x1},

    {"split-resnet18", "2 devices x 1 thread / 1 x 2, float32", 0.93, AT_LEAST, FULL,
     &bench_throughput, &r18_2x1, &r18_1x2},
    {"split-resnet18-direct", "2 devices x 1 thread / 1 x 2, direct", 0.97, AT_LEAST, FULL,
     &bench_throughput, &r18_2x1_direct, &r18_1x2_direct},
    {"split-resnet18-bf16", "2 devices x 1 thread / 1 x 2, bfloat16", 0.97, AT_LEAST, FULL,
     &bench_throughput, &r18_2x1_bf16, &r18_1x2_bf16},
    {"split-resnet50", "2 devices x 1 thread / 1 x 2, float32", 0.93, AT_LEAST, QUICK,
     &bench_throughput, &r50_2x1, &r50_1x2},
    {"split-mlp", "2 devices x 1 thread / 1 x 2", 0.97, AT_LEAST, QUICK, &bench_throughput,
     &mlp_2x1, &mlp_1x2},

    {"algorithm-resnet18", "measured algorithms / direct", 1.75, AT_LEAST, FULL, &bench_throughput,
     &r18_1x1, &r18_1x1_direct},

    {"finite-resnet18", "percent of a step for the check of gradients, 2 devices", 0.5, AT_MOST,
     FULL, &bench_check, &r18_2x1, &r18_2x1_unchecked},
    {"finite-resnet50", "percent of a step for the check of gradients, 2 devices", 0.5, AT_MOST,
     FULL, &bench_check, &r50_2x1, &r50_2x1_unchecked},
    {"finite-mlp", "percent of a step for the check of gradients, 64 rows", 0.5, AT_MOST, FULL,
     &bench_check, &mlp_2x1, &mlp_2x1_unchecked},
    {"shards-resnet18", "8 shards of 32 rows / 1 a device, 2 devices", 0.95, AT_LEAST, FULL,
     &bench_throughput, &r18_2x1_128_shards, &r18_2x1_128},
    {"shards-micro-resnet18", "8 shards of 32 rows / micro-batches of 32, 2 devices", 0.95,
     AT_LEAST, FULL, &bench_throughput, &r18_2x1_128_shards, &r18_2x1_128_micro},

    {"overlap-resnet18", "overlap / classic, 2 devices", 1, AT_LEAST, FULL, &bench_throughput,
     &r18_2x1, &r18_2x1_classic},
    {"sharded-resnet18", "sharded / classic, 2 devices", 1, AT_LEAST, FULL, &bench_throughput,
     &r18_2x1_sharded, &r18_2x1_classic},
    {"overlap-resnet50", "overlap / classic, 2 devices", 1.04, AT_LEAST, QUICK, &bench_throughput,
     &r50_2x1, &r50_2x1_classic},
    {"sharded-resnet50", "sharded / classic, 2 devices", 1, AT_LEAST, QUICK, &bench_throughput,
     &r50_2x1_sharded, &r50_2x1_classic},
    {"overlap-mlp", "overlap / classic, 2 devices, 16 rows each", 1.2, AT_LEAST, QUICK,
     &bench_throughput, &mlp_2x1_16, &mlp_2x1_16_classic},
    {"sharded-mlp", "sharded / classic, 2 devices, 16 rows each", 1, AT_LEAST, QUICK,
     &bench_throughput, &mlp_2x1_16_sharded, &mlp_2x1_16_classic},

    {"ddp-resnet18", "2 ranks x 1 thread / 2 devices x 1 thread", 0.97, AT_LEAST, FULL, &bench_ddp,
     &r18_2x1, NULL},
    {"ddp-resnet18-direct", "2 ranks x 1 thread / 2 devices x 1 thread, direct", 0.97, AT_LEAST,
     FULL, &bench_ddp, &r18_2x1_direct, NULL},
    {"ddp-resnet50", "2 ranks x 1 thread / 2 devices x 1 thread", 0.97, AT_LEAST, FULL, &bench_ddp,
     &r50_2x1, NULL},
    {"ddp-sharded-resnet50", "2 ranks x 1 thread, sharded / 2 devices x 1 thread", 0.97, AT_LEAST,
     FULL, &bench_ddp, &r50_2x1_sharded, NULL},
    {"wait-resnet18", "percent of a rank's step spent waiting, 2 ranks", 3, AT_MOST, FULL,
     &bench_wait, &r18_2x1, NULL},
    {"wait-resnet50", "percent of a rank's step spent waiting, 2 ranks", 3, AT_MOST, FULL,
     &bench_wait, &r50_2x1, NULL},

    {"replicate-resnet18", "replicate / memcpy by the same threads", 0.8, AT_LEAST, QUICK,
     &bench_replicate, &r18_2x1_1, NULL},
    {"replicate-resnet50", "replicate / memcpy by the same threads", 0.8, AT_LEAST, FULL,
     &bench_replicate, &r50_2x1_2, NULL},
    {"reduce-resnet18", "reduce / memcpy by the same threads", 0.8, AT_LEAST, QUICK, &bench_reduce,
     &r18_2x1_1, NULL},
    {"reduce-resnet50", "reduce / memcpy by the same threads", 0.8, AT_LEAST, FULL, &bench_reduce,
     &r50_2x1_2, NULL},

    {"dispatch-2", "an empty job to 2 devices, microseconds", 2, AT_MOST, QUICK, &bench_dispatch,
     &mlp_2x1_1, NULL},
    {"dispatch-4", "an empty job to 4 devices, microseconds", 50, AT_MOST, QUICK, &bench_dispatch,
     &mlp_4x1_1, NULL},
    {"dispatch-8", "an empty job to 8 devices, microseconds", 100, AT_MOST, FULL, &bench_dispatch,
     &narrow_8x1_1, NULL},
    {"dispatch-16", "an empty job to 16 devices, microseconds", 200, AT_MOST, FULL, &bench_dispatch,
     &narrow_16x1_1, NULL},
    {"dispatch-32", "an empty job to 32 devices, microseconds", 400, AT_MOST, FULL, &bench_dispatch,
     &narrow_32x1_1, NULL},
    {"dispatch-64", "an empty job to 64 devices, microseconds", 800, AT_MOST, FULL, &bench_dispatch,
     &narrow_64x1_1, NULL},
    {"barrier-2", "two pthread barriers / an empty job, 2 threads", 200, AT_LEAST, QUICK,
     &bench_barrier, &mlp_2x1_1, NULL},
    {"barrier-4", "an empty job / two futex barriers, 4 threads", 1.1, AT_MOST, QUICK, &bench_futex,
     &mlp_4x1_1, NULL},
};

const bench_row *bench_row_at(int index) {
    return index >= 0 && index < (int)(sizeof rows / sizeof *rows) ? &rows[index] : NULL;
}
