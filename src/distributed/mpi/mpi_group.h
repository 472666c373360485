/* SPDX-License-Identifier: Apache-2.0 */
/* The MPI transport, for its own files only. It calls MPI through the module; every MPI call but
 * its start and end is non-blocking and polled, so that a deadline can end the wait. */
#ifndef DISTRIBUTED_MPI_GROUP_H
#define DISTRIBUTED_MPI_GROUP_H

#include "distributed/mpi/module/module.h"
#include "distributed/mpi/mpi_thread.h"
#include "distributed/watchdog.h"

enum {
    CALL_WORDS = 5,    /* of a yoke_call as the ranks exchange it */
    PENDING_LIMIT = 32 /* all_reduce_async in flight */
};

/* How far an all_reduce_async is. In a fixed order each rank collects its slice from all, adds them
 * itself and sends the sum to all; otherwise MPI adds. */
typedef enum sum_progress {
    SUM_COMPARES, /* the ranks' calls */
    SUM_ADDS,
    SUM_COLLECTS,
    SUM_RETURNS,
    SUM_IS_OVER
} sum_progress;

typedef struct mpi_pending {
    float *buffer;
    yoke_call call;
    int64_t operation; /* the watchdog's number */
    sum_progress progress;
    yoke_mpi_request request;
    int64_t own[CALL_WORDS], *all; /* [world][CALL_WORDS] */
} mpi_pending;

typedef struct mpi_group {
    yoke_process_group group;
    const yoke_mpi_calls *calls;
    yoke_mpi_world *world;   /* on each of its channels every rank posts the same calls in order */
    yoke_mpi_thread *thread; /* NULL: the program initialized MPI */
    bool posted;             /* requests that use the group */
    bool disagreed; /* every rank failed at the same call, so all can still close together */
    yoke_watchdog watchdog;
    int64_t *headers; /* [world][CALL_WORDS] */
    float *wide;      /* bfloat16 as float32, while MPI sums it */
    size_t wide_count;
    float *slices, *collected; /* [world][slice] of the sum in a fixed order that is under way */
    size_t slices_count;       /* floats that fit in each */
    yoke_private_memory *memory;
    mpi_pending pending[PENDING_LIMIT]; /* a ring from `first`, oldest first */
    int first, pending_count;
} mpi_group;

static inline mpi_group *mpi_of(yoke_process_group *group) {
    return (mpi_group *)group;
}

/* mpi_library.c: opens the module, which stays open until the process ends. DEVICE: the reason why
 * not, and what to do. */
yoke_status yoke_mpi_open(const yoke_mpi_calls **calls);

/* mpi_collectives.c */

/* SYSTEM with MPI's own text unless the code is MPI's 0. */
yoke_status yoke_mpi_check_code(const mpi_group *mpi, int code);
#define TRY_MPI(mpi, call) TRY(yoke_mpi_check_code(mpi, (mpi)->calls->call))
/* Waits until the request is complete. */
yoke_status yoke_mpi_wait(mpi_group *mpi, yoke_mpi_request *request);
yoke_status yoke_mpi_progress(yoke_process_group *group, bool wait);
/* Enters the collectives into the group's table. */
void yoke_mpi_set_collectives(yoke_process_group *group);

#endif
