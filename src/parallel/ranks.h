/* SPDX-License-Identifier: Apache-2.0 */
/* DDP: what makes the processes of a group train one model. They compare what must be alike, follow
 * rank 0's choices and weights, know their place in each batch, and add up results. Without a
 * process group there is one rank, and nothing is sent. */
#ifndef PARALLEL_RANKS_H
#define PARALLEL_RANKS_H

#include "distributed/distributed.h"
#include "parallel/parallel.h"

typedef struct yoke_ranks {
    yoke_process_group *process_group; /* NULL: one process */
    int rank, world;                   /* 0 of 1 without a process group */
    bool buffers_are_equal; /* every rank has rank 0's running statistics; until the next training
                               forward */
    uint64_t said_ns;       /* when rank 0 last said that it measures */
} yoke_ranks;

/* Joins the ranks of options.process_group. ARGUMENT: this engine's devices or schedule do not fit
 * DDP. PEER: options or model differ between ranks. */
yoke_status yoke_ranks_join(yoke_data_parallel *parallel);
/* PEER when the layouts of the flat buffers differ. */
yoke_status yoke_ranks_compare_layouts(const yoke_data_parallel *parallel);

/* The other ranks wait for rank 0's choices of algorithms; rank 0 begins to tell them that it goes
 * on measuring. Then it sends them. */
yoke_status yoke_ranks_await_choices(yoke_data_parallel *parallel);
yoke_status yoke_ranks_send_choices(yoke_data_parallel *parallel);
/* Rank 0's running statistics become everyone's, before an evaluation. */
yoke_status yoke_ranks_share_buffers(yoke_data_parallel *parallel);

/* Sets first_row, whole_rows and, with synchronised batch norm, micros of the batch in flight. */
yoke_status yoke_ranks_place_batch(yoke_data_parallel *parallel, const yoke_batch *batch);
/* The result in flight becomes the sum over all ranks, in their order. */
yoke_status yoke_ranks_add_results(yoke_data_parallel *parallel);

/* Returns `status`. A failure that the other ranks cannot see aborts the process group with this
 * rank's error text; every rank sees NUMERIC by itself, in a step and in synchronised batch norms.
 */
yoke_status yoke_ranks_report(const yoke_data_parallel *parallel, yoke_status status);

#endif
