/* SPDX-License-Identifier: Apache-2.0 */
/* The engine. Each struct in it belongs to the file of its name. */
#ifndef PARALLEL_ENGINE_H
#define PARALLEL_ENGINE_H

#include "parallel/average.h"
#include "parallel/entry.h"
#include "parallel/exchange.h"
#include "parallel/flight.h"
#include "parallel/groups.h"
#include "parallel/guard.h"
#include "parallel/interpreter.h"
#include "parallel/lane.h"
#include "parallel/no_sync.h"
#include "parallel/parallel.h"
#include "parallel/ranks.h"
#include "parallel/reach.h"
#include "parallel/root_loss.h"
#include "parallel/shadow.h"
#include "parallel/shards.h"
#include "parallel/spare_update.h"
#include "parallel/straggler.h"
#include "parallel/sync_batch_norm.h"
#include "parallel/timeline.h"
#include "parallel/waits.h"

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

struct yoke_data_parallel {
    const yoke_model *model;
    yoke_devices *devices;
    yoke_data_parallel_options options;
    yoke_optimizer_options optimizer_options;
    yoke_groups groups;
    yoke_batch_limits limits;
    bool queued; /* devices have memory and streams of their own: calls only queue work */
    int count;
    yoke_lane *lanes;      /* [count]; lane 0 is the root's */
    const yoke_flat *flat; /* the layout of every flat buffer; the root replica's */
    yoke_workers *workers;
    bool bound; /* the calling thread is the root's worker, until released */
    yoke_entry entry;
    yoke_choices *choices;
    yoke_trace *trace;
    yoke_timeline timeline;
    yoke_exchange *exchange;
    struct yoke_links *links;      /* modelled ones; NULL: none, or one device */
    yoke_interpreter *interpreter; /* NULL unless the schedule is python */
    yoke_root_loss root_loss;
    yoke_sync_norm *sync_norm; /* NULL: a batch norm sees the rows of its shard */
    yoke_ranks ranks;
    yoke_shards shards;
    yoke_guard guards[YOKE_GUARDS];
    yoke_flight flight;
    yoke_unsynced unsynced;
    yoke_reach reach;
    int32_t *labels; /* [limits.rows, positions], on the host, of labels that lie on a device */

    /* Grow when the root's weights or running statistics change; a lane behind them is stale. */
    uint64_t weights_version, buffers_version;
    uint64_t frozen_version; /* the weights_version in which a frozen parameter last changed */
    uint64_t steps, batches_tracked;
    bool is_torn; /* a step failed in the middle of its update */
    yoke_average average;
    bool gradient_on_root; /* the whole gradient of the last backward by hand */
    bool gradient_is_used; /* yoke_update has applied it */
    bool input_gradients;  /* the replicas hold those of the last backward */
};

/* yoke_data_parallel_create with a record of choices, which the engine takes over, whether or not
 * create succeeds; NULL: a new one. The pointers are not checked. */
yoke_status yoke_engine_create(yoke_data_parallel **parallel, const yoke_model *model,
                               yoke_devices *devices, const yoke_optimizer_options *optimizer,
                               const yoke_data_parallel_options *options, yoke_choices *choices);

/* A training forward begins: even one that fails changes the root's running statistics. An exchange
 * has run: every replica holds the new weights. */
void yoke_count_forward(yoke_data_parallel *parallel);
void yoke_count_update(yoke_data_parallel *parallel);

/* ARGUMENT: the caller wants to train an engine that only predicts. */
yoke_status yoke_engine_check_trains(const yoke_data_parallel *parallel, bool training);

/* Whether each stage ends before the next begins, with the loss on the root: classic and python. */
bool yoke_steps_by_phases(const yoke_data_parallel *parallel);

/* Runs `job` on the workers of lanes 0 .. lanes - 1 and waits; 1: on the root's worker, which is
 * the calling thread. A failure's text begins with `what`, replica and device. */
yoke_status yoke_apply(yoke_data_parallel *parallel, int lanes, const char *what,
                       yoke_replica_job job, void *context);
/* Likewise on all lanes, for a job that begins with a forward: python starts threads for it. */
yoke_status yoke_apply_forward(yoke_data_parallel *parallel, const char *what, yoke_replica_job job,
                               void *context);

#endif
