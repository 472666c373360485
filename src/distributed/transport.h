/* SPDX-License-Identifier: Apache-2.0 */
/* What every transport is made of: the table of a process group, and the calls that ranks compare
 * before any data move. */
#ifndef DISTRIBUTED_TRANSPORT_H
#define DISTRIBUTED_TRANSPORT_H

#include <sys/types.h>

#include "distributed/distributed.h"
#include "distributed/rendezvous/rendezvous.h"
#include "distributed/store/store.h"

typedef struct yoke_membership yoke_membership; /* membership.h */

typedef struct yoke_reduce_call {
    size_t count;
    yoke_element element;
    yoke_reduction reduction;
    int root; /* -1: all */
} yoke_reduce_call;

/* Deadlines that a patient wait for rank 0 lasts. */
#define YOKE_PATIENCE 20

/* Each transport's own struct begins with this one. process_group.c checks arguments before it
 * calls a function of the table. */
struct yoke_process_group {
    char transport[32];
    pid_t process; /* a forked child is no rank */
    int rank, world, timeout_ms;
    bool fixed_order; /* all_reduce_async adds in the order of base/tree.h */
    bool patient;     /* with rank 0: yoke_process_group_patience */
    bool at_fault;    /* this rank failed by itself: yoke_process_group_abort */
    bool broken;      /* a call failed; every later call fails with `cause` */
    char cause[256];  /* the error text of that failure */
    yoke_store *store;
    yoke_peer *peers;            /* [world] */
    yoke_membership *membership; /* NULL: without a roll */

    yoke_status (*barrier)(yoke_process_group *group);
    yoke_status (*broadcast)(yoke_process_group *group, void *buffer, const yoke_reduce_call *call);
    yoke_status (*reduce)(yoke_process_group *group, void *buffer, const yoke_reduce_call *call);
    yoke_status (*all_gather)(yoke_process_group *group, void *to, const void *from,
                              const yoke_reduce_call *call); /* root >= 0: gather */
    yoke_status (*reduce_scatter)(yoke_process_group *group, void *to, const void *from,
                                  const yoke_reduce_call *call);
    yoke_status (*scatter)(yoke_process_group *group, void *to, const void *from,
                           const yoke_reduce_call *call);
    yoke_status (*allocate)(yoke_process_group *group, size_t bytes, void **memory);
    /* blocks: NULL, unless the transport has shared memory */
    yoke_status (*all_reduce_async)(yoke_process_group *group, float *buffer, size_t count,
                                    const yoke_rank_blocks *blocks);
    yoke_status (*progress)(yoke_process_group *group, bool wait);
    yoke_status (*synchronize)(yoke_process_group *group); /* NULL: progress waits for all */
    void (*expect)(yoke_process_group *group, void *memory, size_t bytes); /* NULL: needs none */
    void (*forget)(yoke_process_group *group, void *memory);               /* likewise */
    /* Sends this thread's error to the other ranks, unless another rank failed first. */
    yoke_status (*abort)(yoke_process_group *group, yoke_status status);
    /* NULL: the transport has no shared memory. */
    yoke_status (*peers_of)(yoke_process_group *group, const void *memory, void **peers);
    yoke_process_group *host; /* the group that moves host memory; NULL: this one does */
    void (*destroy)(yoke_process_group *group); /* takes half-built groups */
};

/* A call as the other ranks see it: compared before any data move, named in errors. */

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
    CALL_ALL_REDUCE_ASYNC
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
/* ARGUMENT when `rank` made another call than rank 0; the text names both calls. */
yoke_status yoke_call_compare(const yoke_call *first, const yoke_call *other, int rank);

/* Private host memory, freed with its group: yoke_process_group_allocate of the transports without
 * shared memory. A list; NULL is the empty one. */
typedef struct yoke_private_memory yoke_private_memory;
/* Zeroed and aligned to a cache line. */
yoke_status yoke_private_memory_add(yoke_private_memory **list, size_t bytes, void **memory);
void yoke_private_memory_free(yoke_private_memory *list);

#endif
