/* SPDX-License-Identifier: Apache-2.0 */
/* Engines as contenders of a race: a model, devices and a fixed random batch. */
#ifndef BENCH_TOOL_BENCH_ENGINE_H
#define BENCH_TOOL_BENCH_ENGINE_H

#include "cli/compare/rounds.h"
#include "yoke/yoke.h"

typedef struct bench_setup {
    const char *model;    /* a preset */
    const char *dataset;  /* as yoke train takes it; NULL: random images of 3x32x32, for mlp of
                             1x28x28, in 10 classes; for gpt2 128 of 65 random tokens a row, and as
                             many labels */
    const char *list;     /* of devices; NULL: that many CPU devices */
    int devices, threads; /* compute threads per device */
    int rows;             /* per device */
    int side;             /* of the images, or tokens of a row; 0: as above */
    int classes;          /* of the labels, or tokens that there are; 0: as above */
    yoke_precision precision;
    yoke_schedule schedule;
    yoke_algorithm algorithm;
    yoke_collectives collectives;
    double learning_rate; /* 0: 1e-3 */
    bool skip_finite_check;
    int accumulate;             /* micro-batches of a batch; 0: 1 */
    int shards;                 /* of a batch; 0: one per device */
    size_t gpu_bucket_bytes;    /* 0: one bucket where a GPU is alone */
    bool inference;             /* the engine only predicts */
    const char *const *prefers; /* candidates of choices, NULL behind the last; NULL: none */
} bench_setup;

typedef struct bench_engine {
    bench_setup setup;
    yoke_devices *devices;
    yoke_model *model;
    yoke_data_parallel *parallel;
    float *inputs;
    int32_t *labels;
    yoke_dataset *dataset; /* of the two above */
    yoke_loader *loader;
    yoke_batch batch;    /* of the loader's */
    double loss;         /* of the last step */
    double made_ms;      /* how long yoke_data_parallel_create took */
    double processor_ms; /* of this process, of a step among the last ones that
                            bench_engine_steps ran */
} bench_engine;

#define BENCH_MOMENTUM 0.9
#define BENCH_WEIGHT_DECAY 5e-4

yoke_shape bench_input_shape(const bench_setup *setup);

/* NULL on failure. */
yoke_status bench_engine_create(bench_engine **engine, const bench_setup *setup);
void bench_engine_destroy(bench_engine *engine);

/* Contenders; context is a bench_engine. The mean of the steps, and the fastest of them, on the
 * bound calling thread. */
yoke_status bench_engine_steps(void *context, int steps, double *milliseconds);
yoke_status bench_engine_fastest(void *context, int steps, double *milliseconds);
/* The mean of `count` forwards in evaluation mode, on the calling thread, where it is. outputs:
 * [rows, output shape] of the last; may be NULL. */
yoke_status bench_engine_forward(bench_engine *engine, int count, float *outputs,
                                 double *milliseconds);
/* Kernel time of a step, the best of `steps`: each kernel alone, or all in the order of a step. */
yoke_status bench_engine_kernels_alone(void *context, int steps, double *milliseconds);
yoke_status bench_engine_kernels_in_order(void *context, int steps, double *milliseconds);

#endif
