/* SPDX-License-Identifier: Apache-2.0 */
/* One engine of a comparison: model, data and devices, in this process or in a rank. */
#ifndef CLI_COMPARE_ENGINE_H
#define CLI_COMPARE_ENGINE_H

#include "cli/compare/compare_setup.h"
#include "cli/compare/compare_step.h"
#include "trace/trace.h"

#define COMPARE_LEARN_STEPS 1000

typedef struct compare_role {
    int devices; /* in this process, or one in each rank */
    int threads; /* of each device; 0: as the setup says */
    yoke_schedule schedule;
    bool chains;                          /* modelled links replicate and reduce as NCCL does */
    const yoke_custom_exchange *exchange; /* NULL: the built-in one */
    yoke_rank_info rank;                  /* world 0: not a rank */
} compare_role;

/* The first steps. */
typedef struct compare_learned {
    int steps;
    double losses[COMPARE_LEARN_STEPS];
    uint64_t hash; /* of the weights after them */
} compare_learned;

/* Over the steps since the last reset of the trace. */
typedef struct compare_stages {
    int count;
    yoke_stage_summary rows[YOKE_STAGE_COUNT];
} compare_stages;

/* For the head of a report. */
typedef struct compare_facts {
    size_t parameters;
    bool batch_norm;
    char dataset[32], transport[32];
    char torch[96]; /* "torch 2.6.0, Python 3.11.2"; "": this program computes */
} compare_facts;

/* Bytes of one device at their peak. An engine allocates all of them before its first step. */
typedef struct compare_memory {
    double weights; /* with running statistics */
    double gradients, optimizer, activations;
    double other; /* scratch memory of plans, the batch */
    double total;
} compare_memory;

typedef struct compare_engine compare_engine;

/* NULL on failure. */
yoke_status compare_engine_create(compare_engine **engine, const compare_setup *setup,
                                  const compare_role *role);
void compare_engine_destroy(compare_engine *engine);
void compare_engine_describe(const compare_engine *engine, compare_facts *facts);

/* Trains on the next batches of the dataset; new engines all get the same batches. */
yoke_status compare_engine_learn(compare_engine *engine, int steps, compare_learned *learned);
/* Mean time of `steps` steps on one batch, with a learning rate too small to change the weights.
 * fresh: resets the trace first. Ranks begin together. */
yoke_status compare_engine_run(compare_engine *engine, int steps, bool fresh, double *milliseconds);
void compare_engine_stages(compare_engine *engine, compare_stages *stages);
/* What the last run left: lanes[devices of this process]. */
yoke_status compare_engine_account(compare_engine *engine, yoke_account *lanes);
/* As compare_steps_list, of the runs since the last fresh one. */
yoke_status compare_engine_steps(compare_engine *engine, yoke_span_info *steps, int capacity,
                                 int *count);
/* As compare_step_read. */
yoke_status compare_engine_step(compare_engine *engine, compare_step *step, int capacity);
/* devices[devices of this process]. */
yoke_status compare_engine_memory(const compare_engine *engine, compare_memory *devices);

/* "winograd in 12 of 40 passes"; "direct". */
#define COMPARE_ALGORITHMS_BYTES 64
void compare_engine_algorithms(const compare_engine *engine, char text[COMPARE_ALGORITHMS_BYTES]);
/* Borrowed from the engine. */
const yoke_model *compare_engine_model(const compare_engine *engine);
/* Walks the tensors of the model but the integer ones, in their order; *place begins at 0. false:
 * past the last. */
bool compare_next_tensor(const yoke_model *model, int *place, yoke_tensor_info *info);
/* What its rows are, and the next batch of them: borrowed, the batch until the next call. */
const yoke_dataset_info *compare_engine_rows(const compare_engine *engine);
yoke_status compare_engine_next(compare_engine *engine, const yoke_batch **batch);
/* Writes the weights as safetensors. */
yoke_status compare_engine_save(compare_engine *engine, const char *path);
/* All of these, one after another. */
size_t compare_weights_count(const yoke_model *model);
yoke_status compare_engine_read(compare_engine *engine, float *weights);
/* The gradients of the last step at the same places, 0 for buffers; schedule classic only. */
yoke_status compare_engine_read_gradients(compare_engine *engine, float *gradients);

#endif
