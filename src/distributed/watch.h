/* Waits over a transport that can't say who is missing. Ranks that wait long tell the store which
 * operation they have come to; whoever's time is up reads there who has not. A failure is told
 * there, too, so that all ranks end with one text. */
#ifndef DISTRIBUTED_WATCH_H
#define DISTRIBUTED_WATCH_H

#include "distributed/call.h"

typedef struct yoke_watch {
    const char *name;                /* of the transport: begins the store's keys */
    const yoke_process_group *group; /* rank, world and deadline */
    yoke_store *store;
    const yoke_peer *peers;
    yoke_call_kind kind;
    /* Numbers of operations: this rank's last, the last it told of, the one it waits for. */
    int64_t operation, told, awaited;
    uint64_t seen_ns, waited_ns, looked_ns, lost_ns;
} yoke_watch;

/* The next operation: every rank begins the same ones in the same order, and no rank is over with
 * one before all have begun it. */
void yoke_watch_begin(yoke_watch *watch, yoke_call_kind kind);
/* What waits from now on are for, an operation begun before; their time begins. */
void yoke_watch_await(yoke_watch *watch, yoke_call_kind kind, int64_t operation);
/* A moment of the wait. TIMEOUT: the deadline has passed; PEER: one of the others has ended; or
 * what another rank failed with. */
yoke_status yoke_watch_wait(yoke_watch *watch);
/* Tells the others this thread's error, unless somebody was first; answers the first. */
yoke_status yoke_watch_break(yoke_watch *watch, yoke_status status);

#endif
