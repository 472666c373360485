/* SPDX-License-Identifier: Apache-2.0 */
/* The fastest of several candidates that compute the same. They take turns, heat after heat,
 * so that other load on the machine hits all of them; those that are clearly slower drop out. */
#ifndef DEVICE_CPU_CONTEST_H
#define DEVICE_CPU_CONTEST_H

#include "device/backend.h"

enum { CPU_CONTEST_CANDIDATES = 16 };

typedef struct cpu_contest {
    int count; /* up to CPU_CONTEST_CANDIDATES */
    /* Runs a candidate once. DEVICE: it does not serve, and drops out. */
    yoke_status (*run)(void *context, int candidate, double *milliseconds);
    void *context;
    /* Each run finds in the caches what the others left, not what its own last run did: for
     * candidates that read more than a cache holds, as they will where they are used. */
    bool cold;
} cpu_contest;

/* *best becomes the fastest candidate and *best_ms its time; a single candidate is not run, and has
 * 0. -1: none serves. Lets `algorithms` go on before each run. */
yoke_status cpu_contest_hold(const cpu_contest *contest, yoke_algorithms *algorithms, int *best,
                             double *best_ms);

#endif
