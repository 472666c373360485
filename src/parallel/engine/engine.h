/* SPDX-License-Identifier: Apache-2.0 */
/* The engine: a step, who may be inside, and what outlives a step. */
#ifndef PARALLEL_ENGINE_ENGINE_H
#define PARALLEL_ENGINE_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "parallel/step/step.h"

/* Who is inside: entry.h. */
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

struct yoke_data_parallel {
    yoke_step step; /* the first member: what sees the step alone may be given the engine's */
    yoke_entry entry;
    bool bound;   /* the calling thread is the root's worker, until released */
    bool is_torn; /* a step failed in the middle of its update */
};

/* yoke_data_parallel_create with a record of algorithms, which the engine takes over, whether or
 * not create succeeds; NULL: a new one. The pointers are not checked. */
yoke_status yoke_engine_create(yoke_data_parallel **parallel, const yoke_model *model,
                               yoke_devices *devices, const yoke_optimizer_options *optimizer,
                               const yoke_data_parallel_options *options,
                               yoke_algorithms *algorithms);

/* ARGUMENT: the caller wants to train an engine that only predicts. */
yoke_status yoke_engine_check_trains(const yoke_data_parallel *parallel, bool training);

#endif
