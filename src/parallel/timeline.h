/* SPDX-License-Identifier: Apache-2.0 */
/* When each stage ran. Where lanes share memory the host's clock measures it; on devices that
 * queue, events in their streams do, and are read one batch later, when they have passed. */
#ifndef PARALLEL_TIMELINE_H
#define PARALLEL_TIMELINE_H

#include "parallel/parallel.h"

typedef struct yoke_clock yoke_clock; /* of one lane */

/* Two sets of events take turns: one batch records its set while the other set is read. */
typedef struct yoke_timeline {
    int clocks; /* lanes that have one: all or none */
    int turn;
    uint64_t turns;
    bool in_step; /* idle lanes wait (waits.c) */
} yoke_timeline;

/* A stage of one lane while it runs. */
typedef struct yoke_stage_span {
    yoke_stage stage;
    int lane, bucket; /* bucket: of backward and exchange */
    uint64_t begin_ns, bytes;
} yoke_stage_span;

yoke_status yoke_clock_create(yoke_data_parallel *parallel, int lane);
void yoke_clock_destroy(yoke_data_parallel *parallel, int lane);

/* What a lane queues between begin and end is one bar of the timeline. Inside a recording they only
 * place the events; queued then says that a run of the recording was queued. */
yoke_status yoke_stage_begin(yoke_data_parallel *parallel, yoke_stage_span *stage);
yoke_status yoke_stage_end(yoke_data_parallel *parallel, const yoke_stage_span *stage);
void yoke_stage_queued(yoke_data_parallel *parallel, const yoke_stage_span *stage);

/* turn: the losses of a batch have arrived, so the batch before it is read. read: waits for all
 * streams and completes the trace. */
yoke_status yoke_timeline_turn(yoke_data_parallel *parallel);
yoke_status yoke_timeline_read(yoke_data_parallel *parallel);

#endif
