/* The engine, for this room's own files: what the stages share. */
#ifndef PARALLEL_ENGINE_H
#define PARALLEL_ENGINE_H

#include <stdatomic.h>

#include "device/collectives.h"
#include "distributed/distributed.h"
#include "parallel/parallel.h"

/* Floats a worker sums, updates and publishes at a time: three such blocks stay in its cache. */
#define YOKE_EXCHANGE_BLOCK 8192

/* One device's part of the batch in flight: rows of the micro-batch; 0 rows: idle. */
typedef yoke_chunk yoke_shard;

/* What classic keeps on the root: the whole batch's outputs and the loss over them. */
typedef struct yoke_root_loss {
    float *outputs, *gradients; /* [rows of a micro-batch, output channels] */
    int32_t *labels;
    float *targets;
    yoke_plan **plans; /* one for each number of rows seen */
    int *plan_rows;
    int plan_count;
    void *scratch;
    size_t scratch_bytes;
} yoke_root_loss;

/* What orders the streams of one replica's device; every event is NULL where memory is shared. */
typedef struct yoke_replica_events {
    yoke_device_event *scattered; /* the shard has arrived in the staging memory */
    yoke_device_event *consumed;  /* and has left it for the replica's inputs */
    yoke_device_event *losses;    /* loss and hits have reached the host */
    yoke_device_event *computed;  /* what the compute stream was given before a collective */
    yoke_device_event *published; /* the communication stream has done its part: weights are new */
    yoke_device_event **buckets;  /* [buckets]: gradients complete */
} yoke_replica_events;

/* What an exchange on queues needs of a device whose weights it updates. */
typedef struct yoke_home {
    yoke_gate *gate;
    double *losses;      /* [replicas]; on the root only */
    double *square_sums; /* [replicas x buckets] on the root; others use the first [buckets] */
    double *work;        /* of one square sum */
} yoke_home;

/* A shard on its way in: filled in the copy stream while the compute stream still works on the last
 * batch. */
typedef struct yoke_staging {
    void *rows; /* pixels; inputs too, unless the options promise pixels */
    yoke_placement *placements;
    float *targets;
    int32_t *labels;
} yoke_staging;

typedef struct yoke_replica_clock yoke_replica_clock; /* spans.c */
typedef struct yoke_recorded yoke_recorded;           /* recorded.c */

/* A stage of one replica while it runs. */
typedef struct yoke_stage_span {
    yoke_stage stage;
    int lane, bucket; /* bucket: of backward and exchange */
    uint64_t begin_ns, bytes;
} yoke_stage_span;

/* What a rank that shares the update tells the others, in memory they all see. */
typedef struct yoke_board {
    _Atomic uint32_t found_nonfinite; /* its loss is not finite; told before the first arrival */
    _Atomic uint32_t arrivals[];      /* [buckets]: the round whose gradients are complete */
} yoke_board;

struct yoke_data_parallel {
    const yoke_model *model;
    yoke_devices *devices;
    int count;
    bool queued;                 /* devices have memory and streams of their own */
    yoke_device_group *group;    /* queued, with two devices at least */
    yoke_replica_events *events; /* [count] */
    yoke_staging *staging;       /* [count]; empty unless queued */
    yoke_home *homes;            /* [count]; empty unless queued */
    yoke_gate *host_gate;        /* of the step in flight, in host memory */
    yoke_device_event *gated;    /* host_gate has arrived */
    yoke_replica_clock *clocks;  /* [count]; NULL unless queued */
    int turn;                    /* which half of the clocks this batch uses */
    yoke_recorded *recorded;     /* [count]; NULL unless devices record */
    uint64_t turns;
    yoke_data_parallel_options options;
    yoke_optimizer_options optimizer_options;
    int micro_rows; /* rows of the largest micro-batch */
    int channels;   /* of one output row */
    bool classification;

    /* DDP: this process is rank `rank` of `world`. NULL, 0 of 1: alone. */
    yoke_process_group *ranks;
    int rank, world;
    int rows_limit;         /* rows of a batch that come to this process at most */
    yoke_board **boards;    /* [world], where ranks share the update; NULL otherwise */
    uint32_t round;         /* steps begun: what arrivals on a board are counted in */
    float *found_nonfinite; /* 0, or NaN when a rank's loss is not finite: summed over ranks */
    bool shared_buffers;    /* all ranks have rank 0's, until the next forward that trains */

    yoke_workers *workers;
    yoke_device_scope *scopes; /* of the workers' threads; [0] is the caller's while bound */
    bool bound;
    yoke_choices *choices;
    yoke_trace *trace;

    yoke_replica **replicas;
    const yoke_flat *flat;
    yoke_optimizer **optimizers; /* [home][bucket]: on the root, or on every device when sharded */
    int optimizer_homes;
    float **blocks; /* one exchange block a device */
    /* Whose gradients are summed and who gets the weights: the replicas, or ranks that share the
     * update. The flat buffers are where memory is shared. */
    int parties;
    float **party_gradients, **party_parameters;
    float **accumulated; /* gradients of earlier micro-batches; NULL without accumulation */
    float *good_buffers; /* the root's running statistics before the step, on the root */
    uint64_t good_batches_tracked;
    yoke_root_loss root_loss;

    /* Versions grow when the root's weights or running statistics change; a replica whose version
     * is behind is stale. */
    uint64_t weights_version, buffers_version;
    uint64_t *replica_weights, *replica_buffers;

    uint64_t steps, batches_tracked;

    /* The step in flight. */
    yoke_batch batch;       /* the micro-batch: borrowed from the caller for the time of the step */
    yoke_decoding decoding; /* of its pixels */
    yoke_shard *shards;
    double *loss_sums; /* per replica, of the micro-batch in flight */
    int32_t *corrects;
    const char **bad_layers;  /* per replica, only after a loss that is not finite */
    int batch_rows;           /* this process's rows of the batch */
    int whole_rows;           /* all ranks' rows: the loss gradient's 1 / rows */
    int first_row;            /* where this process's rows begin among them */
    int micro_first;          /* first row of this micro-batch among this process's */
    int parts, micro, micros; /* micro-batches wanted, current, in all */
    int contributors;         /* replicas that hold a gradient of this batch */
    bool training;
    yoke_stage progress;   /* the last stage this batch went through; load: not scattered yet */
    bool losses_known;     /* of the micro-batch in flight */
    bool gradient_on_root; /* the root's gradient is the whole last backward's */
    bool input_gradients;  /* the replicas have those of the shards in flight */
    uint32_t *arrivals;    /* per bucket: replicas whose gradients are complete */
    int *exchanged;        /* per worker: buckets it has exchanged */
    double *square_sums;   /* per worker, for clipping */
    double gradient_norm;
    yoke_optimizer_step update;
    yoke_step_result result; /* sums while gathering */
};

/* Runs a job on every worker; a failure's text gets stage, replica and device. */
yoke_status yoke_apply(yoke_data_parallel *parallel, yoke_stage stage, yoke_replica_job job);
yoke_status yoke_apply_with(yoke_data_parallel *parallel, yoke_stage stage, yoke_replica_job job,
                            void *context);

yoke_plan_step yoke_step_of(const yoke_data_parallel *parallel, int replica);

/* stage_order.c: ARGUMENT unless the batch went through `first` and not past `last`; unless its
 * forward was in training mode; unless it has what the loss compares with. */
yoke_status yoke_check_progress(const yoke_data_parallel *parallel, const char *stage,
                                yoke_stage first, yoke_stage last);
yoke_status yoke_check_trained(const yoke_data_parallel *parallel, const char *stage);
yoke_status yoke_check_answers(const yoke_data_parallel *parallel, const yoke_batch *batch);

/* queues.c: events, staging and gates of devices that queue; waits for all of them. */
yoke_status yoke_queues_create(yoke_data_parallel *parallel);
void yoke_queues_destroy(yoke_data_parallel *parallel);
yoke_status yoke_queues_synchronize(yoke_data_parallel *parallel);
/* What the communication streams are given from now on waits for the compute streams, and the
 * other way round. */
yoke_status yoke_queues_to_communication(yoke_data_parallel *parallel);
yoke_status yoke_queues_to_compute(yoke_data_parallel *parallel);

/* spans.c: what a stage was given between begin and end is one bar of the timeline; in a recording
 * they only mark it, and queued says that a run has been queued. turn is called
 * when a batch's losses have arrived; read, while nothing runs, completes the trace. */
yoke_status yoke_spans_create(yoke_data_parallel *parallel);
void yoke_spans_destroy(yoke_data_parallel *parallel);
yoke_status yoke_stage_begin(yoke_data_parallel *parallel, yoke_stage_span *stage);
yoke_status yoke_stage_end(yoke_data_parallel *parallel, const yoke_stage_span *stage);
void yoke_stage_queued(yoke_data_parallel *parallel, const yoke_stage_span *stage);
yoke_status yoke_spans_turn(yoke_data_parallel *parallel);
yoke_status yoke_spans_read(yoke_data_parallel *parallel);

/* replicate.c: weights and, unless the forward to come trains, running statistics. */
yoke_status yoke_replicate_stale(yoke_data_parallel *parallel, bool buffers);

/* replicate.c: the part of a bucket that party k answers for: whole cache lines. */
void yoke_bucket_slice(const yoke_data_parallel *parallel, int bucket, int party, size_t *offset,
                       size_t *elements);

/* scatter.c: begins a batch in at most `parts` micro-batches; cuts and scatters the current one;
 * sends output gradients. */
yoke_status yoke_begin_batch(yoke_data_parallel *parallel, const yoke_batch *batch, int parts,
                             bool training);
yoke_status yoke_scatter_micro_batch(yoke_data_parallel *parallel, const yoke_batch *batch);
/* The caller's batch, checked and in this library's size. */
yoke_status yoke_take_batch(yoke_data_parallel *parallel, const yoke_batch *given,
                            bool with_answers, yoke_batch *batch);
yoke_status yoke_scatter_output_gradients(yoke_data_parallel *parallel, const float *gradients);

/* replica_jobs.c: what each worker does on its own shard, traced. */
yoke_status yoke_forward_shard(yoke_data_parallel *parallel, int replica);
yoke_status yoke_loss_shard(yoke_data_parallel *parallel, int replica);
/* `ready`, unless NULL, is told of every bucket whose gradients of the whole batch are complete. */
typedef yoke_status (*yoke_bucket_ready)(yoke_data_parallel *parallel, int replica, int bucket);
yoke_status yoke_backward_shard(yoke_data_parallel *parallel, int replica, yoke_bucket_ready ready);
/* What the compute stream is given of the three. */
yoke_status yoke_await_weights(yoke_data_parallel *parallel, int replica);
yoke_status yoke_queue_forward(yoke_data_parallel *parallel, int replica, int rows, bool training);
yoke_status yoke_queue_loss(yoke_data_parallel *parallel, int replica);
yoke_status yoke_queue_segment(yoke_data_parallel *parallel, int replica, int segment);

/* recorded.c: forward, loss and, when training, backward of a shard as one recording. record makes
 * what is missing for a micro-batch of `rows`; compute runs a shard from its recording, where it
 * has one, and announces its buckets when asked to. */
yoke_status yoke_recorded_create(yoke_data_parallel *parallel);
void yoke_recorded_destroy(yoke_data_parallel *parallel);
yoke_status yoke_record_shards(yoke_data_parallel *parallel, int rows, bool training);
yoke_status yoke_compute_shard(yoke_data_parallel *parallel, int replica, bool announce);

/* update.c: what the optimizer needs to know of this step; who holds which part of its state. */
yoke_status yoke_update_begin(yoke_data_parallel *parallel, double learning_rate);
void yoke_clip(yoke_data_parallel *parallel);
bool yoke_is_sharded(const yoke_data_parallel *parallel);
bool yoke_shares_update(const yoke_data_parallel *parallel); /* the sharded schedule of DDP */
yoke_optimizer *yoke_optimizer_of(const yoke_data_parallel *parallel, int worker, int bucket);

/* exchange.c: reduce + update + publish in one pass. announce says that a replica's gradients of a
 * bucket are complete and takes the buckets that are so everywhere: mark in the compute stream,
 * then release. finish waits for the rest. */
void yoke_exchange_begin(yoke_data_parallel *parallel);
yoke_status yoke_exchange_announce(yoke_data_parallel *parallel, int replica, int bucket);
yoke_status yoke_exchange_mark(yoke_data_parallel *parallel, int replica, int bucket);
yoke_status yoke_exchange_release(yoke_data_parallel *parallel, int replica, int bucket);
yoke_status yoke_exchange_finish(yoke_data_parallel *parallel, int worker);
/* Of a rank that shares the update: its slice of a bucket, once all have it; or, when clipping, the
 * sums and squares of all its slices and then their updates. */
yoke_status yoke_exchange_slice(yoke_data_parallel *parallel, int bucket);
yoke_status yoke_exchange_sums(yoke_data_parallel *parallel);
yoke_status yoke_exchange_updates(yoke_data_parallel *parallel);

/* exchange_queued.c: the same on devices that queue. The root's worker queues for all; nobody
 * waits. */
yoke_status yoke_queue_exchange_ready(yoke_data_parallel *parallel);
yoke_status yoke_queue_exchange_finish(yoke_data_parallel *parallel);
yoke_status yoke_queue_reduce(yoke_data_parallel *parallel);
yoke_status yoke_queue_update(yoke_data_parallel *parallel);
yoke_status yoke_queue_norm(yoke_data_parallel *parallel); /* waits for it */

/* all_reduce.c: DDP's exchange. The loss first, then each bucket as it becomes complete; finish
 * waits for the sums and updates. idle is the step of a rank that has nothing to add; gradient is
 * the whole at once, by hand. */
yoke_status yoke_all_reduce_loss(yoke_data_parallel *parallel);
yoke_status yoke_all_reduce_ready(yoke_data_parallel *parallel, int replica, int bucket);
yoke_status yoke_all_reduce_finish(yoke_data_parallel *parallel);
yoke_status yoke_all_reduce_idle(yoke_data_parallel *parallel);
yoke_status yoke_all_reduce_gradient(yoke_data_parallel *parallel);

/* shared_update.c: the same in the sharded schedule. */
yoke_status yoke_shared_update_create(yoke_data_parallel *parallel);
void yoke_shared_update_begin(yoke_data_parallel *parallel);
void yoke_shared_update_loss(yoke_data_parallel *parallel, double loss);
yoke_status yoke_shared_update_ready(yoke_data_parallel *parallel, int bucket);
yoke_status yoke_shared_update_finish(yoke_data_parallel *parallel);

/* ranks.c: every rank calls these together; alone they do nothing. PEER when options, model or
 * layouts differ. */
yoke_status yoke_ranks_compare_options(const yoke_data_parallel *parallel);
yoke_status yoke_ranks_compare_layouts(const yoke_data_parallel *parallel);
yoke_status yoke_ranks_share_choices(yoke_data_parallel *parallel);
yoke_status yoke_ranks_place(void *context, bool gradients, size_t bytes, float **memory);
yoke_status yoke_ranks_share_buffers(yoke_data_parallel *parallel);
yoke_status yoke_ranks_place_batch(yoke_data_parallel *parallel, const yoke_batch *batch);
yoke_status yoke_ranks_add_results(yoke_data_parallel *parallel);
/* Answers `status`; a failure that the others do not see by themselves is told to them. */
yoke_status yoke_ranks_tell(const yoke_data_parallel *parallel, yoke_status status);

/* gather.c: outputs in row order; the scalars of the micro-batch in flight added to the result. */
yoke_status yoke_gather_outputs(yoke_data_parallel *parallel, float *outputs);
yoke_status yoke_gather_scalars(yoke_data_parallel *parallel);
yoke_status yoke_check_result(yoke_step_result *result);
yoke_status yoke_finish_result(const yoke_data_parallel *parallel, yoke_step_result *result);

/* guard.c: keeps what a bad step must not spoil, and names the layer it went wrong in. */
yoke_status yoke_guard_begin(yoke_data_parallel *parallel);
bool yoke_losses_finite(const yoke_data_parallel *parallel);
yoke_status yoke_check_losses(const yoke_data_parallel *parallel); /* NUMERIC */
yoke_status yoke_check_loss(const yoke_data_parallel *parallel);   /* NUMERIC */
yoke_status yoke_check_norm(const yoke_data_parallel *parallel);   /* NUMERIC, when clipping */
yoke_status yoke_guard_restore(yoke_data_parallel *parallel);
yoke_status yoke_guard_fail(yoke_data_parallel *parallel, yoke_status status);

/* root_loss.c: classic's loss on the root over the gathered outputs. */
yoke_status yoke_root_loss_create(yoke_data_parallel *parallel);
void yoke_root_loss_destroy(yoke_data_parallel *parallel);
yoke_status yoke_root_loss_prepare(yoke_data_parallel *parallel, int rows);
yoke_status yoke_gather_to_root(yoke_data_parallel *parallel);
yoke_status yoke_loss_on_root(yoke_data_parallel *parallel);
yoke_status yoke_scatter_from_root(yoke_data_parallel *parallel);

#endif
