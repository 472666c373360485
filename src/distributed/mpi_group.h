/* The MPI transport, for its own files only. MPI is called through the module, and every call is
 * non-blocking and polled, for the deadline's sake. */
#ifndef DISTRIBUTED_MPI_GROUP_H
#define DISTRIBUTED_MPI_GROUP_H

#include "distributed/mpi/mpi.h"
#include "distributed/plain_memory.h"
#include "distributed/watch.h"

enum {
    CALL_WORDS = 5,    /* of a yoke_call as the ranks exchange it */
    STARTED_LIMIT = 32 /* all-reduces at the same time */
};

/* An all-reduce that was started: first the ranks agree on it, then it moves. */
typedef struct mpi_started {
    float *buffer;
    yoke_call call;
    int64_t operation; /* of the watch */
    bool moves;
    yoke_mpi_request request;
    int64_t own[CALL_WORDS], *all; /* [world][CALL_WORDS] */
} mpi_started;

typedef struct mpi_group {
    yoke_process_group group;
    const yoke_mpi_calls *calls;
    yoke_mpi_world *world; /* each of its channels sees its calls in the same order everywhere */
    bool initialized_here;
    bool disagreed; /* the failure is every rank's, at the same call: they can part in order */
    yoke_watch watch;
    int64_t *headers; /* [world][CALL_WORDS] */
    float *wide;      /* of bfloat16 on its way */
    size_t wide_count;
    yoke_plain_memory *memory;
    mpi_started started[STARTED_LIMIT]; /* the oldest first, from `first` on */
    int first, started_count;
} mpi_group;

static inline mpi_group *mpi_of(yoke_process_group *group) {
    return (mpi_group *)group;
}

/* mpi_library.c */
/* Opens the module, which stays open for good. DEVICE: why there is none, and what to do. */
yoke_status yoke_mpi_open(const yoke_mpi_calls **calls);

/* mpi_agree.c */
/* SYSTEM with MPI's own text when the answer is no success. */
yoke_status yoke_mpi_answered(const mpi_group *mpi, int answer);
#define TRY_MPI(mpi, call) TRY(yoke_mpi_answered(mpi, (mpi)->calls->call))
/* Waits until the request is over. */
yoke_status yoke_mpi_wait(mpi_group *mpi, yoke_mpi_request *request);
void yoke_mpi_pack(const yoke_call *call, int64_t *words);
/* ARGUMENT on every rank when the calls differ. */
yoke_status yoke_mpi_compare(const mpi_group *mpi, const int64_t *all);
/* Begins a call: what was started is over and all ranks have called the same. */
yoke_status yoke_mpi_agree(mpi_group *mpi, const yoke_call *call);

/* mpi_collectives.c */
yoke_status yoke_mpi_check_count(const mpi_group *mpi, const yoke_call *call);
yoke_status yoke_mpi_barrier(yoke_process_group *group);
yoke_status yoke_mpi_broadcast(yoke_process_group *group, void *buffer,
                               const yoke_reduce_call *call);
yoke_status yoke_mpi_reduce(yoke_process_group *group, void *buffer, const yoke_reduce_call *call);
yoke_status yoke_mpi_all_gather(yoke_process_group *group, void *to, const void *from,
                                const yoke_reduce_call *call);
yoke_status yoke_mpi_reduce_scatter(yoke_process_group *group, void *to, const void *from,
                                    const yoke_reduce_call *call);
yoke_status yoke_mpi_scatter(yoke_process_group *group, void *to, const void *from,
                             const yoke_reduce_call *call);
yoke_status yoke_mpi_allocate(yoke_process_group *group, size_t bytes, void **memory);

/* mpi_started.c */
yoke_status yoke_mpi_start(yoke_process_group *group, float *buffer, size_t count);
yoke_status yoke_mpi_progress(yoke_process_group *group, bool wait);

#endif
