/* SPDX-License-Identifier: Apache-2.0 */
/* Predictions by several threads at once, which read one copy of the weights. docs/serving.md says
 * how it works. */
#ifndef SERVE_PREDICTORS_H
#define SERVE_PREDICTORS_H

#include "model/model.h"
#include "parallel/parallel.h"

typedef struct yoke_predictors yoke_predictors;

/* Zeroed fields mean the default; create copies what it needs, but the model must outlive the
 * predictors. */
typedef struct yoke_predictors_options {
    const yoke_model *model; /* finished */
    /* Of GPUs: the list, for one engine on all of them. Of CPU devices only the kind counts and
     * `threads`, of each predicting thread; 0: 1. NULL: the list "auto". */
    const yoke_devices_options *devices;
    yoke_precision precision;
    yoke_algorithm algorithm;
    const char *algorithm_cache; /* NULL: none */
    double measure_seconds;      /* 0: no limit */
    int slots; /* threads that predict at once; more wait, in their order. 0: the cores */
    int plans; /* numbers of rows that a slot keeps plans for, at most; those longest unused go. 0:
                  16 */
    int rows;  /* of the largest batch that is computed at once; calls cut theirs. 0: 64 */
} yoke_predictors_options;

/* Plans the largest batch and one row in every slot. There are no weights yet: run returns ARGUMENT
 * before the first publish. */
yoke_status yoke_predictors_create(yoke_predictors **predictors,
                                   const yoke_predictors_options *options);
/* No thread may be in a call. Takes NULL. */
void yoke_predictors_destroy(yoke_predictors *predictors);

/* Writes a tensor of the model's table to `values`, in PyTorch's layout, as yoke_replica_read does.
 * It is called for each tensor but integer ones, in the table's order. */
typedef yoke_status (*yoke_tensor_reader)(void *context, int tensor, float *values);

/* New weights and running statistics: runs that begin after it has returned predict with them, and
 * each run with one set. No run waits for it; those of several threads take turns. Where `read`
 * fails, its error is returned and the old weights stay. */
yoke_status yoke_predictors_publish(yoke_predictors *predictors, yoke_tensor_reader read,
                                    void *context);
/* Those of an engine of the same model, or of one with the same tensors. */
yoke_status yoke_predictors_publish_engine(yoke_predictors *predictors, yoke_data_parallel *engine);

/* Predicts. inputs: [inputs of the model], each [rows, its shape] float32; outputs: [outputs of the
 * model], likewise, NULL: not wanted. Any number of rows and of threads. The bits of a row do not
 * depend on the values of others. After a failure some rows of the outputs may have been written.
 */
yoke_status yoke_predictors_run(yoke_predictors *predictors, const float *const *inputs,
                                size_t rows, float *const *outputs);

/* The same of arrays that may lie on a GPU of the predictors, which `stream`, a cudaStream_t or
 * NULL, writes and reads: as yoke_batch.stream. */
yoke_status yoke_predictors_run_on(yoke_predictors *predictors, const float *const *inputs,
                                   size_t rows, float *const *outputs, void *stream);

/* Memory of devices, in bytes, and counts. Of plans: what they compute in, not their descriptions.
 * Any thread may ask at any time. */
typedef struct yoke_predictors_report {
    size_t weights;     /* parameters and running statistics; two sets while an old one is read */
    size_t packed;      /* what plans make of them beforehand; likewise */
    size_t values;      /* inputs, outputs, activations and scratch of all slots */
    int slots;          /* threads that can predict at once */
    int plans;          /* numbers of rows with a plan in some slot */
    int programs;       /* plans of all slots */
    int sets;           /* of weights: 1, or more while old ones are read; 0: none was published */
    uint64_t published; /* how often */
    uint64_t predictions; /* rows */
} yoke_predictors_report;
void yoke_predictors_describe(yoke_predictors *predictors, yoke_predictors_report *report);

#endif
