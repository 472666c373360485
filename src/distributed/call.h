/* What a rank calls, as the others see it: compared before anything moves, and told when two ranks
 * differ. */
#ifndef DISTRIBUTED_CALL_H
#define DISTRIBUTED_CALL_H

#include "distributed/distributed.h"

typedef enum yoke_call_kind {
    CALL_JOIN,
    CALL_BARRIER,
    CALL_BROADCAST,
    CALL_REDUCE,
    CALL_ALL_REDUCE,
    CALL_GATHER,
    CALL_ALL_GATHER,
    CALL_REDUCE_SCATTER,
    CALL_SCATTER,
    CALL_ALLOCATE,
    CALL_START
} yoke_call_kind;

typedef struct yoke_call {
    yoke_call_kind kind;
    yoke_element element;
    yoke_reduction reduction;
    int root; /* -1: none */
    uint64_t count;
} yoke_call;

const char *yoke_call_name(yoke_call_kind kind);
yoke_call yoke_call_of(yoke_call_kind kind, const yoke_reduce_call *call);
/* ARGUMENT, naming both, when `rank` called something else than rank 0. */
yoke_status yoke_call_compare(const yoke_call *first, const yoke_call *other, int rank);

#endif
