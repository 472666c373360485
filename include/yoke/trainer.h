/* Training from a file to a checkpoint: the whole road with one call. Everything is reported
 * through one callback; the library prints nothing. */
#ifndef YOKE_TRAINER_H
#define YOKE_TRAINER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "yoke/data_parallel.h"
#include "yoke/dataset.h"
#include "yoke/distributed.h"
#include "yoke/optimizer.h"
#include "yoke/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct yoke_trainer yoke_trainer;

typedef enum yoke_mode {
    YOKE_MODE_DATA_PARALLEL,
    YOKE_MODE_SINGLE,
    YOKE_MODE_DISTRIBUTED_DATA_PARALLEL /* one of several processes: `ranks` says which */
} yoke_mode;

typedef enum yoke_event_kind {
    YOKE_EVENT_READY,      /* plans made, memory known, nothing trained yet */
    YOKE_EVENT_STEP,       /* after every update */
    YOKE_EVENT_EVALUATION, /* after an evaluation */
    YOKE_EVENT_SAVED,      /* a file was written: path */
    YOKE_EVENT_WARNING     /* text: something was refused but training goes on (disk full) */
} yoke_event_kind;

typedef struct yoke_event {
    size_t struct_size;
    yoke_event_kind kind;
    uint64_t step, steps; /* updates done, updates of the whole run */
    uint64_t epoch;       /* 0-based */
    double loss;          /* of the batch, or of the evaluation */
    double accuracy;      /* evaluation, or of the batch; -1: none */
    double learning_rate;
    int rows;
    double step_ms;
    double seconds_elapsed;
    const char *text; /* path or warning; NULL otherwise */
} yoke_event;

typedef struct yoke_trainer_options {
    size_t struct_size;
    const char *model;   /* NULL: "resnet20" */
    const char *dataset; /* SPEC; NULL: "synthetic" */
    const char *devices; /* LIST; NULL: "auto" */
    int threads;
    yoke_mode mode;
    yoke_schedule schedule;
    yoke_precision precision;
    yoke_algorithm algorithm;
    int batch;                        /* whole batch; 0: 64 */
    int epochs;                       /* 0: 1; ignored when steps > 0 */
    uint64_t steps;                   /* updates; 0: epochs decide */
    yoke_optimizer_options optimizer; /* struct_size may be 0: all default */
    yoke_lr_schedule_kind lr_schedule;
    uint64_t warmup_steps;
    double label_smoothing;
    uint64_t seed;
    bool no_shuffle;
    yoke_augment augment;
    int accumulate;
    const char *init;    /* safetensors to start from */
    const char *save;    /* safetensors to write at the end and when stopped */
    int evaluate_every;  /* epochs; 0: at the end only; -1: never */
    const char *metrics; /* JSON lines */
    const char *trace;   /* Chrome trace */
    void (*on_event)(const yoke_event *event, void *payload);
    void *payload;
    yoke_collectives collectives;
    /* DDP. The same program text, options and seed as for one process; `batch` is that of all
     * ranks, `devices` are those of a machine: each rank takes its own. Rank 0 alone writes
     * files. */
    const yoke_process_group_options *ranks; /* its devices are set here; the texts are copied */
    size_t bucket_bytes;                     /* all modes; as yoke_data_parallel_options */
    bool own_buffers, mean_of_ranks;
} yoke_trainer_options;

/* Opens dataset, devices and engine; nothing is trained yet. In DDP it meets the other ranks: PEER
 * when they train something else. */
YOKE_API yoke_status yoke_trainer_create(yoke_trainer **trainer,
                                         const yoke_trainer_options *options);
YOKE_API void yoke_trainer_destroy(yoke_trainer *trainer);

/* Trains to the end, evaluates and saves; in DDP all ranks call it together. CANCELLED after
 * yoke_trainer_stop, of any rank: the running step was finished and the file saved; another run
 * goes on behind it. */
YOKE_API yoke_status yoke_trainer_run(yoke_trainer *trainer);

/* Asks a running trainer to stop after the step; callable from a signal handler or another thread.
 */
YOKE_API void yoke_trainer_stop(yoke_trainer *trainer);

/* One pass over the test split, exact (no padding); in DDP over all ranks, who call it together. */
YOKE_API yoke_status yoke_trainer_evaluate(yoke_trainer *trainer, yoke_step_result *result);

/* What happened, for the last line of a run. Borrowed texts live as long as the trainer. */
typedef struct yoke_trainer_summary {
    size_t struct_size;
    const char *mode, *schedule, *model, *dataset, *precision;
    int devices;
    size_t parameters;
    int batch;
    uint64_t steps;
    double images_per_second; /* batch / median step time */
    double step_ms_median, step_ms_p90;
    double load_wait_share; /* of the run's time in which devices waited for data */
    double loss;            /* last step's, or the evaluation's when there was one */
    double accuracy;        /* -1: not evaluated */
    size_t peak_bytes;      /* largest device of this process */
    uint64_t weights_hash;
    int rank, world;       /* 0 of 1 unless DDP; devices is then world */
    const char *transport; /* of DDP; NULL otherwise */
} yoke_trainer_summary;
YOKE_API yoke_status yoke_trainer_summarize(yoke_trainer *trainer, yoke_trainer_summary *summary);

YOKE_API yoke_data_parallel *yoke_trainer_engine(yoke_trainer *trainer); /* borrowed */

/* Weights of an engine to and from a safetensors file with PyTorch's names and layout; a "module."
 * prefix is accepted. Loading checks every name and shape before it changes anything. Saving is
 * atomic: the file is complete or what it was. */
YOKE_API yoke_status yoke_weights_save(yoke_data_parallel *parallel, const yoke_model *model,
                                       const char *path);
YOKE_API yoke_status yoke_weights_load(yoke_data_parallel *parallel, const yoke_model *model,
                                       const char *path);

#ifdef __cplusplus
}
#endif

#endif
