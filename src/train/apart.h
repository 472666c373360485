/* SPDX-License-Identifier: Apache-2.0 */
/* What a trainer keeps of devices that train apart (step_kinds.h). */
#ifndef TRAIN_APART_H
#define TRAIN_APART_H

#include "train/crew.h"
#include "train/push_order.h"

typedef struct yoke_apart {
    yoke_async_options async; /* defaults filled in; run.options points to these */
    yoke_local_options local;
    yoke_crew *crew;       /* NULL: in other modes */
    uint64_t updates, met; /* of the server; local: steps, and those up to the last mean */
    uint64_t given;        /* async: batches */
    bool has_ended;        /* async: the epoch has no further batch */
    uint64_t staleness[YOKE_STALENESS_LIMIT];
    yoke_push_order order;
    float *outer; /* local: the outer momentum */
} yoke_apart;

#endif
