/* SPDX-License-Identifier: Apache-2.0 */
/* What every part of a run sees: the options, the engine, and how far the run is. The parts
 * lie side by side in a trainer (trainer_parts.h), which they do not see. */
#ifndef TRAIN_RUN_H
#define TRAIN_RUN_H

#include <stdatomic.h>

#include "data/data.h"
#include "distributed/distributed.h"
#include "parallel/parallel.h"
#include "trace/trace.h"
#include "train/description.h"
#include "train/digest.h"
#include "yoke/trainer.h"

/* Where a run is, and where it ends. */
typedef struct yoke_position {
    uint64_t step, epoch, batches; /* updates; complete epochs; batches of this epoch */
    uint64_t steps, epochs;        /* either ends the run; UINT64_MAX: the other does */
} yoke_position;

/* A split of the dataset, which splits.c opens. */
typedef struct yoke_rows {
    yoke_dataset *opened;     /* by SPEC; NULL: the host's */
    const yoke_dataset *rows; /* NULL: not open */
    yoke_dataset_info info;
    yoke_loader *loader;
    yoke_loader_options loading; /* what it was made with, but what the run adds */
} yoke_rows;

/* The traces of a run's engines before the present one. */
typedef struct yoke_past_traces {
    yoke_trace *traces[YOKE_DEVICES_LIMIT];
    char names[YOKE_DEVICES_LIMIT + 1][80]; /* of these and of the present one */
    int count;
} yoke_past_traces;

typedef struct yoke_run {
    yoke_trainer_options options;      /* defaults filled in; what it points to lives as long */
    yoke_data_parallel_options engine; /* options.engine points to it */
    yoke_kept_lists *lists;            /* that it points to */
    yoke_devices *devices;
    yoke_process_group *ranks;            /* DDP; NULL otherwise */
    int node;                             /* DDP: the number of this machine */
    int seat;                             /* DDP: the rank as which it was started */
    int opened_rank, opened_world;        /* as which its device was opened */
    double rank_shares[YOKE_PEERS_LIMIT]; /* of ranks with auto_shares; engine points to it */
    yoke_workers *file_workers; /* file_work.c: of rank 0 in DDP, from the first file on */
    yoke_rows training;
    char labels[YOKE_DIGEST_TEXT]; /* of the training rows */
    const yoke_model *model;
    const yoke_model *const
        *shorter; /* [shorter_count] of shorter rows; the loaders' and engine's */
    int shorter_count;
    yoke_notes description; /* of the weights, for every file that has them */
    yoke_data_parallel *parallel;
    yoke_past_traces past;  /* empty without options.trace */
    yoke_trace_mark *marks; /* [mark_count]: likewise */
    int mark_count;
    yoke_lr_schedule schedule;
    yoke_position at;
    uint64_t begin_ns; /* of the latest run; 0: none yet */
    atomic_bool stopping;
    bool is_apart; /* devices have weights of their own: step_kinds.h */
    bool in_step;  /* a step failed in its update: the weights are undefined */
} yoke_run;

/* Calls the host program's on_event, outside the engine; fills in the fields that all events share.
 * say: an event that is only a text; NULL: no event. warn: the last error as a WARNING. */
void yoke_run_emit(yoke_run *run, yoke_event *event);
void yoke_run_say(yoke_run *run, yoke_event_kind kind, const char *text);
void yoke_run_warn(yoke_run *run);

/* Whether this process writes the files: rank 0, or the only one. */
bool yoke_run_writes(const yoke_run *run);
/* All ranks together: whether the value is true on any of them. */
yoke_status yoke_run_any(const yoke_run *run, bool *value);
/* All ranks call it together: each gives its own but `stop` and gets what the caller asked of any
 * rank.
 */
typedef struct yoke_requests {
    bool stop, save, keep, grow; /* keep: the state, in memory; grow: a process waits to join */
} yoke_requests;
yoke_status yoke_run_poll(const yoke_run *run, yoke_requests *asked);
/* Whether all ranks get this result after the same step. */
bool yoke_status_is_common(yoke_status status);

/* Whether all steps, or epochs, are done. */
bool yoke_run_is_over(const yoke_run *run);
/* Whether all batches of the epoch are done; whether its end has an evaluation. */
bool yoke_run_epoch_is_done(const yoke_run *run);
bool yoke_run_evaluation_is_due(const yoke_run *run);
/* Whether a run that goes on from a checkpoint begins with an evaluation: it is complete, or the
 * checkpoint ends an epoch. */
bool yoke_run_evaluates_first(const yoke_run *run);
/* " of 120", or "" where the number of steps is unknown. */
const char *yoke_run_of_steps(const yoke_run *run, char text[32]);
/* The share of labels predicted correctly; -1: a regression. */
double yoke_step_accuracy(const yoke_step_result *result);

#endif
