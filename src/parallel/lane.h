/* SPDX-License-Identifier: Apache-2.0 */
/* A lane: one device with its worker, its replica and its shard of the batch in flight. Lane 0 is
 * the root's; the calling thread is its worker. */
#ifndef PARALLEL_LANE_H
#define PARALLEL_LANE_H

#include "model/model.h"
#include "parallel/parallel.h"
#include "parallel/timeline.h"

/* Consecutive rows of the micro-batch; with options.shards, of the batch. 0 rows: the lane is idle.
 */
typedef yoke_chunk yoke_shard;

/* Order between the streams of a device. Every event is NULL where lanes share memory: there calls
 * finish before they return, and recording or awaiting a NULL event does nothing. */
typedef struct yoke_lane_events {
    yoke_device_event *scattered; /* the shard has arrived in staging memory */
    yoke_device_event *consumed;  /* the compute stream has read the staging memory */
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

typedef struct yoke_recordings yoke_recordings; /* recorded.c */

typedef struct yoke_lane {
    yoke_device *device;
    yoke_device_scope scope; /* of the worker's thread */
    yoke_replica *replica;
    const yoke_replica_memory *memory; /* the replica's; borrowed */
    yoke_shard shard;
    int position;        /* of the shard's first row among those of all lanes */
    bool bad_statistics; /* statistics of forward are not finite: the loss is NaN */
    bool loss_is_mapped; /* the loss writes memory->on_host itself */
    float *accumulated;  /* gradients of earlier micro-batches, or shards; NULL: none are kept */
    /* Of the weights and running statistics this replica holds; behind the engine's: stale. */
    uint64_t weights_version, buffers_version;
    yoke_lane_events events;
    yoke_staging staging;
    uint64_t idle_ns;            /* since when it has no job, within a step; 0: it has one */
    yoke_clock *clock;           /* NULL where lanes share memory */
    yoke_recordings *recordings; /* NULL unless the device records */
} yoke_lane;

/* Called on the lane's worker once its replica exists: memory and events. */
yoke_status yoke_lane_open(yoke_data_parallel *parallel, int lane);
int yoke_lane_sums(const yoke_data_parallel *parallel); /* gradients in `accumulated` */
/* What helps when memory that grows with the rows is short. */
const char *yoke_rows_advice(const yoke_data_parallel *parallel);
void yoke_lane_close(yoke_data_parallel *parallel, int lane);

/* The three stages of a shard, on the lane's worker. backward runs segment by segment and hands
 * each finished bucket to `exchange`; NULL: the gradients stay in the replica (no_sync). */
struct yoke_exchange;
yoke_status yoke_lane_forward(yoke_data_parallel *parallel, int lane);
yoke_status yoke_lane_loss(yoke_data_parallel *parallel, int lane);
yoke_status yoke_lane_backward(yoke_data_parallel *parallel, int lane,
                               struct yoke_exchange *exchange);
/* In a step, NUMERIC of forward becomes OK and the loss NaN: the other participants wait for this
 * lane's buckets, and the step fails later on all of them. Returns any other status. */
yoke_status yoke_lane_note_nonfinite(yoke_data_parallel *parallel, int lane, yoke_status status);

/* What they queue on the compute stream, for recorded.c. */
yoke_status yoke_lane_queue_forward(yoke_data_parallel *parallel, int lane, int rows,
                                    bool training);
yoke_status yoke_lane_queue_loss(yoke_data_parallel *parallel, int lane);
yoke_status yoke_lane_queue_segment(yoke_data_parallel *parallel, int lane, int segment);

/* Queues the copy of the loss to the host, unless the loss writes it there itself. */
yoke_status yoke_lane_download_scalars(const yoke_lane *lane);

/* What changes from step to step for the plans of this lane. */
yoke_plan_step yoke_lane_plan_step(const yoke_data_parallel *parallel, int lane);

/* On every lane, work queued later on stream `to` waits for all work queued on `from`: one of them
 * computes, the other communicates. synchronize: the host waits for every stream. */
yoke_status yoke_lanes_order(yoke_data_parallel *parallel, yoke_stream from, yoke_stream to);
yoke_status yoke_lanes_synchronize(yoke_data_parallel *parallel);

#endif
