/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of a step: the devices' lanes, the batch in flight, the weights' versions, the
 * gradient, and the tables by which one runner runs its stages. Types alone; each part's functions
 * are in the header of its name. */
#ifndef PARALLEL_STEP_PARTS_H
#define PARALLEL_STEP_PARTS_H

#include <stdatomic.h>

#include "distributed/distributed.h"
#include "model/model.h"
#include "optimizer/optimizer.h"
#include "parallel/parallel.h"

typedef struct yoke_step yoke_step;
typedef struct yoke_exchange yoke_exchange; /* how gradients become new weights everywhere */

/* The tables. */

/* What a lane does in one go: one bar of the timeline. */
typedef struct yoke_bar {
    yoke_stage stage;
    bool on_stream; /* a device that queues times it by events in its streams, not by the host */
    /* On the lane's worker. span: the bar as the trace will have it; the work may fill in bytes. */
    yoke_status (*work)(yoke_step *step, int lane, yoke_span *span);
} yoke_bar;

typedef enum yoke_stage_place {
    YOKE_ON_HOST,    /* the calling thread alone; the bar is lane 0's */
    YOKE_ON_ROOT,    /* lane 0's worker, which is the calling thread, with the root's threads */
    YOKE_ON_LANES,   /* every lane's worker at once */
    YOKE_ON_REPLICAS /* likewise, and the work begins with a forward */
} yoke_stage_place;

#define YOKE_NO_STAGE                                                                              \
    YOKE_STAGE_COUNT /* what a schedule does between its stages: no bar, no name */

/* A stage of a step: an entry of a schedule's lists. Of work, lane and bar it has one. */
typedef struct yoke_stage_def {
    yoke_stage stage; /* its name in the trace, the table, errors, docs and the simulator */
    const char *what; /* begins the text of a lane's failure; NULL: the stage's name */
    yoke_stage_place place;
    yoke_status (*begin)(yoke_step *step); /* on the calling thread, before; NULL: nothing to do */
    yoke_status (*work)(yoke_step *step);  /* on the host */
    yoke_replica_job lane;                 /* on the workers; its context is the step */
    /* Those that `lane` goes through without waiting for the others, then YOKE_NO_STAGE; NULL: this
     * stage alone. */
    const yoke_stage *lane_stages;
    const yoke_bar *bar;
    yoke_status (*end)(yoke_step *step); /* on the calling thread, after; NULL: nothing to do */
    yoke_stage progress; /* the batch's behind it; LOAD, which is 0: `end` sets it, or nothing */
    /* What it moves between the root and lane 1, 2, ...: modelled links carry that. NULL: nothing.
     */
    size_t (*bytes)(const yoke_step *step, int lane);
    bool (*travels)(const yoke_step *step); /* whether it moves anything now; NULL: always */
    bool to_root;                           /* from the lanes to the root, not from it */
    bool ends_batch; /* the host has waited for the losses: the batch before has left the devices */
} yoke_stage_def;

/* NULL behind the last stage of each list. */
typedef struct yoke_schedule_def {
    const yoke_stage_def *const *begin;
    const yoke_stage_def *const *micro_batch; /* for every micro-batch, or round of shards */
    const yoke_stage_def *const *end;
} yoke_schedule_def;

/* A bar in progress. */
typedef struct yoke_open_bar {
    const yoke_bar *bar;
    yoke_span span;
} yoke_open_bar;

/* Who watches a step, or slows it down on purpose: the runner calls it, stages never do. Entries
 * may be NULL. before runs in the order of the step's observers, after in the reverse order. */
typedef struct yoke_observer {
    void (*before_step)(yoke_step *step);
    void (*after_step)(yoke_step *step, uint64_t number); /* of step `number` */
    void (*before_stage)(yoke_step *step, const yoke_stage_def *stage);
    yoke_status (*after_stage)(yoke_step *step, const yoke_stage_def *stage);
    /* A job: what a lane's worker does between two waits for the other lanes. */
    void (*before_job)(yoke_step *step, int lane);
    void (*after_job)(yoke_step *step, int lane);
    void (*after_jobs)(yoke_step *step, int lanes);
    yoke_status (*before_bar)(yoke_step *step, int lane, yoke_open_bar *open);
    yoke_status (*after_bar)(yoke_step *step, int lane, yoke_open_bar *open);
    /* A lane's gradient of a bucket, from one shard alone: it is complete, and nobody has read it.
     */
    yoke_status (*after_gradient)(yoke_step *step, int lane, yoke_bucket bucket);
    void (*after_replay)(yoke_step *step, int lane, yoke_open_bar *open); /* of a recorded bar */
    /* Runs the job of a stage in place of the workers, where before_stage has made it the crew. */
    yoke_status (*run)(yoke_step *step, int lanes, yoke_worker_job job, void *context, int *failed);
} yoke_observer;

#define YOKE_OBSERVERS 8

/* What observers keep. */
typedef struct yoke_watch {
    const yoke_observer *observers[YOKE_OBSERVERS];
    int count;
    yoke_trace *trace;
    struct yoke_links *links;             /* modelled ones; NULL: none, or one device */
    struct yoke_interpreter *interpreter; /* NULL unless the schedule is python */
    struct yoke_speeds *speeds;           /* NULL unless they decide about shares */
    struct yoke_faults *faults;           /* NULL unless the options ask for some */
    struct yoke_audit *audit;             /* NULL without options.audit */
    const yoke_observer *crew;            /* runs the stage in progress; NULL: the workers do */
    int crew_lanes;                       /* on lanes 0 .. crew_lanes - 1 */
    /* Two sets of events and recordings take turns: one batch fills its set while the other is
     * read.
     */
    int turn;
    uint64_t turns;
    bool in_step;                   /* a lane without a job waits for one */
    const yoke_stage_def *modelled; /* links show this stage, in place of its own bars */
    uint64_t modelled_begin_ns;
    size_t modelled_bytes[YOKE_DEVICES_LIMIT];
} yoke_watch;

/* Lanes. */

/* Consecutive rows of the micro-batch; with options.shards, of the batch. 0 rows: the lane is idle.
 */
typedef yoke_chunk yoke_shard;

/* Order between the streams of a device. Every event is NULL where lanes share memory: there calls
 * finish before they return, and recording or awaiting a NULL event does nothing. */
typedef struct yoke_lane_events {
    yoke_device_event *scattered; /* the shard has arrived in staging memory */
    yoke_device_event *consumed;  /* the compute stream has read the staging memory, unless a
                                     recording has: then `losses` says so */
    yoke_device_event *losses;    /* the loss is on the host */
    yoke_device_event *computed;  /* all work queued on the compute stream before a collective */
    yoke_device_event *published; /* all work queued on the communication stream */
    yoke_device_event **buckets;  /* [buckets] the gradients of a bucket are complete */
} yoke_lane_events;

/* Device memory the next shard is copied to while the compute stream works on this one. */
typedef struct yoke_staging {
    void *rows; /* pixels; crops and inputs too, unless the options promise pixels */
    yoke_crop *crops;
    float *more_inputs[YOKE_INPUTS_LIMIT];
    yoke_placement *placements;
    float *targets;
    int32_t *labels;
    yoke_label_mix *mixes;
} yoke_staging;

/* One device with its worker, its replica and its shard of the batch in flight. Lane 0 is the
 * root's; the calling thread is its worker. */
typedef struct yoke_lane {
    yoke_device *device;
    yoke_device_scope scope; /* of the worker's thread */
    yoke_replica *replica;
    const yoke_replica_memory *memory; /* the replica's; borrowed */
    yoke_shard shard;
    int round;    /* of its shards, with options.shards */
    int position; /* of the shard's first row among those of all lanes */
    bool audits;  /* the shard is another lane's: its gradient goes nowhere */
    bool packed;  /* the shard is in staging memory still: the next forward unpacks it */
    yoke_device_event *reader; /* of the staging memory, last; NULL: the host knows that it has */
    bool bad_statistics;       /* statistics of forward are not finite: the loss is NaN */
    bool loss_is_mapped;       /* the loss writes memory->on_host itself */
    float *accumulated;    /* gradients of earlier micro-batches, or shards; NULL: none are kept */
    yoke_step_result done; /* of its rounds before this one, where lanes go through them alone */
    /* The versions that this replica holds; behind the step's: stale. */
    uint64_t weights_version, buffers_version;
    yoke_lane_events events;
    yoke_staging staging;
    yoke_open_bar *open;                /* the bar in progress; NULL: none */
    uint64_t idle_ns;                   /* since when it has no job, in a step; 0: it has one */
    struct yoke_clock *clock;           /* times bars by events; NULL where lanes share memory */
    struct yoke_recordings *recordings; /* NULL unless the device records */
} yoke_lane;

/* The batch. */

/* The largest batch, and what its rows are. */
typedef struct yoke_batch_limits {
    int rows;            /* of a batch, in this process */
    int micro_rows;      /* of a micro-batch */
    size_t row_elements; /* floats, or pixels, of one input row */
    int channels;        /* of the output: its classes */
    size_t outputs;      /* floats of one output row */
    size_t positions;    /* labels of one row */
    bool labels;         /* the loss compares with labels; otherwise with targets */
} yoke_batch_limits;

/* The devices whose memory the caller's arrays are; NULL: they are host memory. */
typedef struct yoke_locations {
    yoke_device *inputs[YOKE_INPUTS_LIMIT]; /* the first of pixels, too */
    yoke_device *targets;
    yoke_device *stream; /* whose the batch's stream is; NULL: it has none */
    bool ordinary;       /* some of them are host memory that is not pinned */
} yoke_locations;

/* A loss of the host program, between the stages of a step. */
typedef struct yoke_host_loss {
    const yoke_custom_loss *loss; /* NULL: the model's */
    const yoke_output_rows *rows; /* host memory: outputs, and in training their gradients */
    yoke_batch given, unlabelled; /* the host program's; the same without labels and targets */
    /* Calls `loss` outside of the engine. */
    yoke_status (*call)(yoke_step *step, const yoke_outputs *outputs, double *mean);
} yoke_host_loss;

/* The batch in flight, from the call that brings it to its result. */
typedef struct yoke_flight {
    const yoke_batch *whole;            /* this process's rows, as the caller gave them */
    yoke_host_loss *host;               /* the caller's own loss and rows; NULL: none */
    double learning_rate;               /* of the step; negative: the optimizer's own */
    float *outputs[YOKE_OUTPUTS_LIMIT]; /* where gather writes them; NULL: not this one */
    yoke_batch batch; /* the micro-batch: borrowed until the step ends, or gather by hand */
    const float *more_inputs[YOKE_INPUTS_LIMIT]; /* of the micro-batch */
    yoke_locations locations;
    yoke_decoding decoding; /* of its pixels */
    bool training;
    bool loss_only;                    /* nobody reads the outputs of this forward */
    const yoke_float_scalars *scalars; /* [scalar_count] of a recorded step's updates */
    int scalar_count;
    bool settled;            /* the host knows what closed the gates of earlier steps */
    bool factors_only;       /* the exchange sums factors, where plans keep some */
    int rows;                /* of the batch, in this process */
    int whole_rows;          /* of the batch, in all ranks */
    yoke_label_count own;    /* of the batch, in this process */
    double whole_weight;     /* of the batch, in all ranks; divides the loss gradient */
    bool is_weighed;         /* whole_weight is right; false: no gradient may follow */
    int first_row;           /* where this process's rows begin in the whole batch */
    int micro_first;         /* where the micro-batch begins in this process's rows */
    bool by_shards;          /* options.shards cuts it: a round takes a shard of every lane */
    int parts;               /* micro-batches to cut the batch into; with shards, rounds */
    int micro, micros;       /* the current one; all of them: fewer than `parts` of a short batch.
                                With synchronised batch norm, those of the rank
                                with the most */
    int contributors;        /* participants 0 .. contributors - 1 hold a gradient */
    yoke_stage progress;     /* the last stage the batch went through; LOAD: not scattered yet */
    bool losses_known;       /* of the micro-batch */
    bool left_out;           /* this step, or the one before it: it has changed nothing */
    bool loss_on_root;       /* lane 0 has that of all lanes */
    unsigned reached;        /* as bits, the outputs that the gradient of its loss comes from */
    double gradient_norm;    /* -1 until clipping knows it */
    yoke_step_result result; /* sums over the micro-batches so far */
} yoke_flight;

/* Which part of a batch each device computes (deal.h). */
typedef struct yoke_deal {
    bool is_equal;                         /* rows by torch.chunk's rule */
    double begins[YOKE_DEVICES_LIMIT + 1]; /* the part of a batch before each device's; then 1 */
    int shards[YOKE_DEVICES_LIMIT + 1]; /* the first one of each participant; then their number */
} yoke_deal;

/* options.shards V: the batch is cut into V shards whatever the number of devices, so that the same
 * sums of the same gradients are taken in the same order on any number of devices or ranks. A lane
 * computes its consecutive shards one after the other, a round each. */
typedef struct yoke_shards {
    int rounds;        /* shards of the lane with the most; 1 without options.shards */
    int levels;        /* the whole tree's: 2^levels shards */
    int waiting;       /* buffers of blocks that wait for their right neighbour */
    bool plain;        /* each participant has one block, all of one size */
    float *placed;     /* sums of a rank's shards, in memory of all ranks; NULL: the lane's own */
    float *statistics; /* the root's running statistics after its first shard; NULL: none to keep */
    double *losses;    /* [shards] of this process, in their order */
} yoke_shards;

/* DDP: the processes that train one model. Without a process group there is one rank. */
typedef struct yoke_ranks {
    yoke_process_group *process_group; /* NULL: one process */
    int rank, world;                   /* 0 of 1 without a process group */
    int seat, seats;                   /* the rank as which this process was started, of so many */
    bool is_newcomer;                  /* to a run that had begun */
    bool buffers_are_equal; /* every rank has rank 0's running statistics; until the next training
                               forward */
    uint64_t said_ns;       /* when rank 0 last said that it measures */
} yoke_ranks;

/* Parameters. */

/* Which parameters are frozen, and the ranges of the flat buffer that have a learning rate or a
 * weight decay of their own. */
typedef struct yoke_groups {
    yoke_parameter_group *list; /* [count] */
    char **patterns;            /* [count] owned; `list` points to them */
    int count;
    int *members;                 /* [tensors] index into list, or -1; NULL: no groups */
    bool *frozen;                 /* [tensors]; NULL: no groups */
    yoke_optimizer_ranges ranges; /* of the flat buffer; set by yoke_groups_cut */
} yoke_groups;

/* Which parameters the losses reach. A model of several outputs may have parameters that the loss
 * of a step does not use: their gradients are zero, and weight decay leaves them alone. Where a
 * model has one output, every loss reaches everything. */
typedef struct yoke_reach {
    unsigned *outputs; /* [tensors] as bits, those that the tensor changes; NULL: there is one */
    unsigned gradient; /* as bits, those whose gradients the next update's gradient is made of */
    unsigned so_far;   /* of all updates */
    char *text;        /* of yoke_data_parallel_unreached */
} yoke_reach;

/* They grow when the root's own change; a lane behind them is stale. */
typedef struct yoke_versions {
    uint64_t weights, buffers;
    uint64_t frozen; /* `weights` when a frozen parameter last changed */
} yoke_versions;

/* The gradients of several backward calls by hand add up in the replicas until one reduce sums them
 * all: PyTorch's no_sync. */
typedef struct yoke_unsynced {
    bool on;
    bool holds;                      /* `sums` hold gradients that no reduce has taken */
    bool added;                      /* those of the last backward are among them */
    int contributors;                /* participants 0 .. contributors - 1 have rows among them */
    float *sums[YOKE_DEVICES_LIMIT]; /* [lanes] of flat buffers; NULL until no_sync is first on */
} yoke_unsynced;

typedef struct yoke_gradient {
    double factor;  /* of every gradient of the batch in flight, and of those it leaves */
    bool on_root;   /* the whole gradient of the last backward by hand */
    bool is_used;   /* an update has applied it */
    bool of_inputs; /* the replicas hold those of the last backward */
    yoke_unsynced unsynced;
} yoke_gradient;

/* loss_scaler.h */
typedef struct yoke_loss_scaler {
    bool is_dynamic;
    yoke_scale_state now;
    yoke_scale_state before; /* the latest step that was not skipped */
} yoke_loss_scaler;

/* What a failed step may have to put back. Two, because the next step begins before GPUs have
 * checked this one's gradient: step s has guard s % 2. */
typedef struct yoke_guard {
    float *buffers; /* the root's running statistics before the step; NULL: the model has none */
    uint64_t batches_tracked;
    bool holds; /* it has the statistics: this step may have changed them */
} yoke_guard;
#define YOKE_GUARDS 2

/* The exponential moving average of the weights: step/moving_average.h. */
typedef struct yoke_average {
    float *values;       /* [trainable elements] on the root, every rank's own; NULL: no average */
    bool begun;          /* there was an update, */
    uint64_t first_step; /* that of the step of this number */
    bool in_use;         /* the root has the average, and `values` the weights */
} yoke_average;

/* One of the engine's models. */
typedef struct yoke_trained_model {
    const yoke_model *model;
    bool *untrained; /* [tensors] owned: those that its steps do not update, and frozen ones; NULL:
                        the frozen ones alone */
    uint64_t steps;  /* updates by it */
} yoke_trained_model;
#define YOKE_MODELS_LIMIT 32 /* bits of yoke_optimizer_range.trained_by */

#define YOKE_LEFT_BEHIND UINT64_MAX

/* What the stages see. */
struct yoke_step {
    const yoke_model *model;    /* of the batch in flight */
    yoke_trained_model *models; /* [model_count] owned; models.h */
    int model_count;
    int model_index;              /* of `model` */
    bool trains_parts;            /* a model updates some of the parameters alone */
    int last_models[YOKE_GUARDS]; /* of the latest steps, by their number */
    yoke_devices *devices;
    yoke_data_parallel_options options;
    yoke_optimizer_options optimizer_options;
    yoke_groups groups;
    bool *fixed_statistics; /* [tensors] running means of batch norms that keep them; NULL: none */
    char *fixed_patterns;   /* of their names, which checkpoints state; NULL: none */
    yoke_batch_limits limits;
    bool queued; /* devices have memory and streams of their own: calls only queue work */
    int count;
    yoke_lane *lanes;      /* [count]; lane 0 is the root's */
    const yoke_flat *flat; /* the layout of every flat buffer; the root replica's */
    yoke_workers *workers;
    yoke_algorithms *algorithms;
    yoke_exchange *exchange;
    bool host_exchanges; /* the calling thread is in custom_exchange; the lanes wait for it */
    yoke_stream exchange_stream; /* where devices queue it */
    yoke_ranks ranks;
    yoke_deal deal;
    yoke_shards shards;
    yoke_guard guards[YOKE_GUARDS];
    int guard;            /* of the step in flight, or of the one that is undone */
    uint64_t losses_seen; /* how often the host has waited for the root's loss */
    yoke_average average;
    struct yoke_root_loss *root_loss; /* NULL unless the loss is computed on the root */
    struct yoke_sync_norm *sync_norm; /* NULL: a batch norm sees the rows of its shard */
    yoke_flight flight;
    int32_t *labels; /* [limits.rows, positions], on the host, of labels that lie on a device */
    yoke_versions versions;
    yoke_loss_scaler scaler;
    uint64_t steps, batches_tracked;
    yoke_gradient gradient;
    yoke_reach reach;
    yoke_watch watch;
    /* With options.deadline: since when the calling thread runs a job or waits for a device; 0: it
     * does not; YOKE_LEFT_BEHIND: it ends as soon as it comes back. */
    _Atomic uint64_t busy_ns;
    _Atomic int awaited; /* the lane whose device it waits for; 0: the root works itself */
    int failed_lane;     /* of the latest failure of a job; -1: none, or no lane's own */
};

#endif
