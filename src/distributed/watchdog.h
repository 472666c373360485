/* SPDX-License-Identifier: Apache-2.0 */
/* The watchdog of a transport that cannot say which rank is missing. A rank that waits long writes
 * the number of its operation to the store; a rank whose deadline passes reads there which ranks
 * have not reached that operation. The first failure is in the store, too, so every rank reports
 * one text. */
#ifndef DISTRIBUTED_WATCHDOG_H
#define DISTRIBUTED_WATCHDOG_H

#include "distributed/transport.h"

typedef struct yoke_watchdog {
    const char *name;                /* of the transport; prefix of the store's keys */
    const yoke_process_group *group; /* rank, world and deadline */
    yoke_store *store;
    const yoke_peer *peers;
    yoke_call_kind kind;
    /* Numbers of operations: this rank's last, the last in the store, the one it waits for. */
    int64_t operation, published, awaited;
    /* Times in ns: of the last look at the clock, waited so far, waited when the store was last
     * read, waited when a peer was first seen to have ended (0: none has). */
    uint64_t seen_ns, waited_ns, read_ns, ended_ns;
} yoke_watchdog;

/* Begins the next operation. Every rank begins the same operations in the same order, and no rank
 * ends one before every rank has begun it. */
void yoke_watchdog_begin(yoke_watchdog *watchdog, yoke_call_kind kind);
/* Later waits are for an operation that has begun; the deadline counts from now. */
void yoke_watchdog_await(yoke_watchdog *watchdog, yoke_call_kind kind, int64_t operation);
/* One short wait. TIMEOUT: the deadline passed; PEER: a rank ended; or the failure of another rank.
 */
yoke_status yoke_watchdog_wait(yoke_watchdog *watchdog);
/* Publishes this thread's error unless another rank failed first; returns the first failure. */
yoke_status yoke_watchdog_fail(yoke_watchdog *watchdog, yoke_status status);

#endif
