/* SPDX-License-Identifier: Apache-2.0 */
/* The batch in flight, from the call that brings it to its result. */
#ifndef PARALLEL_FLIGHT_H
#define PARALLEL_FLIGHT_H

#include "parallel/parallel.h"

/* The devices whose memory the caller's arrays are; NULL: they are host memory. */
typedef struct yoke_locations {
    yoke_device *inputs[YOKE_INPUTS_LIMIT]; /* the first of pixels, too */
    yoke_device *targets;
} yoke_locations;

typedef struct yoke_flight {
    yoke_batch batch; /* the micro-batch: borrowed until the step ends, or gather by hand */
    const float *more_inputs[YOKE_INPUTS_LIMIT]; /* of the micro-batch */
    yoke_locations locations;
    yoke_decoding decoding; /* of its pixels */
    bool training;
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
    unsigned reached;        /* as bits, the outputs that the gradient of its loss comes from */
    double gradient_norm;    /* -1 until clipping knows it */
    yoke_step_result result; /* sums over the micro-batches so far */
} yoke_flight;

/* The device whose memory an array of the caller is; NULL: it is host memory. ARGUMENT: memory of a
 * GPU that is not in this engine. */
yoke_status yoke_locate(const yoke_data_parallel *parallel, const void *array,
                        yoke_device **location);
/* Copies and checks the caller's batch. with_labels: it must have what the loss compares with. */
yoke_status yoke_flight_check(yoke_data_parallel *parallel, const yoke_batch *given,
                              bool with_labels, yoke_batch *batch);
/* Begins a batch, which the engine's options cut; in_one: all of it goes to the devices at once.
 * With ranks, finds its place in the whole. */
yoke_status yoke_flight_begin(yoke_data_parallel *parallel, const yoke_batch *batch, bool in_one,
                              bool training);
/* The result of a batch before any of its losses is known. */
yoke_step_result yoke_flight_no_result(yoke_label_count labels);
/* The micro-batches of so many rows; 1 of none: a rank without rows takes part all the same. */
int yoke_flight_micros(int rows, int parts);
/* Cuts the current micro-batch into shards. */
void yoke_flight_cut(yoke_data_parallel *parallel, const yoke_batch *batch);
bool yoke_flight_is_last(const yoke_flight *flight);
/* Whether no micro-batch or round so far has rows for the lane. */
bool yoke_flight_is_idle(const yoke_data_parallel *parallel, int lane);

/* Whether the losses are finite: of the micro-batches gathered so far; and of the shards that the
 * lanes have computed since. */
bool yoke_flight_is_finite_so_far(const yoke_flight *flight);
bool yoke_flight_is_finite(const yoke_data_parallel *parallel);

/* The order of the stages called by hand. ARGUMENT unless the batch has gone through `first` and
 * not past `last`; unless its forward was in training mode; unless it has labels or targets. */
yoke_status yoke_flight_require(const yoke_data_parallel *parallel, const char *stage,
                                yoke_stage first, yoke_stage last);
yoke_status yoke_flight_require_training(const yoke_data_parallel *parallel, const char *stage);
yoke_status yoke_flight_require_labels(const yoke_data_parallel *parallel, const yoke_batch *batch);

#endif
