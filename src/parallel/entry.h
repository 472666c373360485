/* SPDX-License-Identifier: Apache-2.0 */
/* Every public call that computes enters the engine: one thread at a time, in the process that made
 * it, with the root's compute threads and without signals. A second thread waits for its turn if
 * the engine only predicts; otherwise it is a mistake, except of the thread that the engine is
 * bound to, which waits until the other is out. */
#ifndef PARALLEL_ENTRY_H
#define PARALLEL_ENTRY_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "parallel/parallel.h"

typedef struct yoke_entry {
    pid_t process;
    pthread_mutex_t turn;    /* locked while it has an owner */
    _Atomic pthread_t owner; /* the thread inside, which is alive; 0: none */
    int depth;               /* of its calls, since one may make another */
    int root_depth;          /* of the call that made it the root's worker; 0: it is not */
    bool is_scoped;          /* `scope` holds what leave restores */
    yoke_device_scope scope;
    _Atomic pthread_t binder; /* the thread that the engine is bound to; 0: none */
} yoke_entry;

void yoke_entry_begin(yoke_data_parallel *parallel);
void yoke_entry_end(yoke_data_parallel *parallel);

/* Begins a public call, or one inside it. ARGUMENT, and the text begins with `call`: the engine is
 * NULL, another thread is inside, or this process is a fork of the engine's. After OK, leave ends
 * it and returns `status`. */
yoke_status yoke_enter(yoke_data_parallel *parallel, const char *call);
yoke_status yoke_leave(yoke_data_parallel *parallel, yoke_status status);
/* For all calls but a step, which settles later: NUMERIC as yoke_exchange_settle. */
yoke_status yoke_enter_settled(yoke_data_parallel *parallel, const char *call);
/* Without the root's compute threads, for the calls that bind and release them. */
yoke_status yoke_claim(yoke_data_parallel *parallel, const char *call);

#endif
