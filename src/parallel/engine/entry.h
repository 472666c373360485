/* SPDX-License-Identifier: Apache-2.0 */
/* Every public call that computes enters the engine: one thread at a time, in the process that made
 * it, with the root's compute threads and without signals. A second thread waits for its turn if
 * the engine only predicts; otherwise it is a mistake, except of the thread that the engine is
 * bound to, which waits until the other is out. */
#ifndef PARALLEL_ENGINE_ENTRY_H
#define PARALLEL_ENGINE_ENTRY_H

#include "parallel/engine/engine.h"

void yoke_entry_begin(yoke_data_parallel *parallel);
void yoke_entry_end(yoke_data_parallel *parallel);

/* Begins a public call, or one inside it. ARGUMENT, and the text begins with `call`: the engine is
 * NULL, another thread is inside, or this process is a fork of the engine's. After OK, yoke_leave
 * ends it (parallel.h). */
yoke_status yoke_enter(yoke_data_parallel *parallel, const char *call);
/* Without the root's compute threads, for the calls that bind and release them. */
yoke_status yoke_claim(yoke_data_parallel *parallel, const char *call);

#endif
