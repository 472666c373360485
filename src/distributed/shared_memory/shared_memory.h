/* SPDX-License-Identifier: Apache-2.0 */
/* The shared-memory transport, for its own files only: segments that all ranks of a machine map,
 * and counters in them that the ranks wait for. */
#ifndef DISTRIBUTED_SHARED_MEMORY_H
#define DISTRIBUTED_SHARED_MEMORY_H

#include <limits.h>
#include <sched.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <sys/types.h>
#include <unistd.h>

#include "distributed/process_state.h"
#include "distributed/shared_memory/reduce_kernels.h"
#include "distributed/transport.h"

enum {
    SHM_RANKS = FOLD_RANKS,
    SHM_LINE = 64,       /* a cache line: two ranks never write to the same one */
    SHM_OPERATIONS = 64, /* announcements kept; all_reduce_async has two fewer in flight */
};

/* A counter that only its rank raises; it is a futex for the ranks that wait for it. Counters wrap
 * around, so compare their difference. */
typedef struct shm_counter {
    _Atomic uint32_t value, sleepers;
} shm_counter;

typedef struct shm_call {
    yoke_call what;
    /* Where this rank's data are, if in shared memory. Ranks may differ in it. */
    uint64_t offset;  /* in the rank's part of the segment */
    uint32_t segment; /* 1 + its index; 0: in private memory */
} shm_call;

/* A rank announces its operation n in line n % SHM_OPERATIONS, counter and call in one cache line:
 * the rank that sees the counter reach n has the call with it. */
typedef struct shm_announcement {
    alignas(SHM_LINE) shm_counter counter;
    shm_call call;
} shm_announcement;

typedef struct shm_rank {
    shm_announcement announcements[SHM_OPERATIONS];
    /* The steps of this rank, over all its operations. */
    alignas(SHM_LINE) shm_counter finished;
    alignas(SHM_LINE) atomic_int pid; /* 0: has not joined; written after the fields below */
    uint64_t start_time;              /* yoke_process_start_time */
    cpu_set_t cores;
    atomic_bool left;
    yoke_error cause; /* the error with which this rank broke the group, if it did */
} shm_rank;

/* Where another process finds a segment: it has no name that could outlive the run. */
typedef struct shm_handle {
    int pid, descriptor;
    uint64_t inode, bytes;
} shm_handle;

typedef struct shm_control {
    alignas(SHM_LINE) _Atomic uint32_t broken; /* 1 + the rank that broke the group; 0: intact */
    shm_handle handle;                         /* of the segment that rank 0 is creating */
    shm_rank ranks[];
} shm_control;

/* A segment as this rank has it mapped: [world x part_bytes] after the first head_bytes. */
typedef struct shm_segment {
    char *base;
    size_t head_bytes, part_bytes;
    size_t bytes;
    int descriptor; /* open until all ranks have mapped the segment, then -1 */
} shm_segment;

/* An all_reduce_async under way. */
typedef struct shm_pending {
    uint32_t operation, step; /* it is over when every rank has finished `step` */
    shm_call call;
    const yoke_rank_blocks *blocks; /* NULL: one buffer a rank */
} shm_pending;

typedef struct shm_group {
    yoke_process_group group;
    yoke_peer peers[SHM_RANKS];
    shm_segment first; /* the control, then the two slots of each rank */
    shm_control *control;
    size_t slot_bytes;
    bool crowded;                         /* fewer cores than ranks */
    uint32_t announced, finished, staged; /* by this rank */
    yoke_call_kind current;
    shm_segment *segments; /* [segment_count], of allocate */
    size_t segment_count;
    shm_pending pending[SHM_OPERATIONS]; /* [pending_count], oldest first */
    int pending_count, pending_done;     /* done: this rank has reduced its slice */
} shm_group;

static inline shm_group *shm_of(yoke_process_group *group) {
    return (shm_group *)group;
}

static inline shm_rank *shm_self(shm_group *shm) {
    return &shm->control->ranks[shm->group.rank];
}

/* shm_segment.c: anonymous memory, opened through the process that created it. */

/* Creates and maps a zeroed segment of head_bytes and `world` parts. */
yoke_status shm_segment_create(shm_segment *segment, int world, shm_handle *handle);
yoke_status shm_segment_open(shm_segment *segment, int world, const shm_handle *handle);
/* Allocates the pages of this rank's part, so that a machine out of memory fails here, not at the
 * first write. */
yoke_status shm_segment_reserve(shm_segment *segment, int rank);
/* After all ranks have mapped it: faults in this rank's pages and closes the descriptor. */
void shm_segment_settle(shm_segment *segment, int rank);
void shm_segment_close(shm_segment *segment);

/* More is a mistake, and the sum over the ranks could overflow. */
#define SHM_PART_LIMIT (SIZE_MAX / 4 / SHM_RANKS)

static inline size_t shm_whole_pages(size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = (bytes + page - 1) / page;
    return pages == 0 ? page : pages * page;
}

static inline char *shm_part(const shm_segment *segment, int rank) {
    return segment->base + segment->head_bytes + (size_t)rank * segment->part_bytes;
}

/* shm_wait.c: the only waits. Each ends when the ranks reach the value, at the deadline, or when an
 * awaited rank has ended. A failure breaks the group for every rank. */

void shm_raise(shm_counter *counter, uint32_t value);

static inline bool shm_reached(shm_counter *counter, uint32_t value) {
    uint32_t now = atomic_load_explicit(&counter->value, memory_order_acquire);
    return (int32_t)(now - value) >= 0;
}

static inline shm_counter *shm_announcement_of(shm_group *shm, int rank, uint32_t operation) {
    return &shm->control->ranks[rank].announcements[operation % SHM_OPERATIONS].counter;
}

/* The counter of every rank, `first` being rank 0's. */
static inline shm_counter *shm_counter_at(shm_counter *first, int rank) {
    return (shm_counter *)((char *)first + (size_t)rank * sizeof(shm_rank));
}
bool shm_all_reached(shm_group *shm, shm_counter *first, uint32_t value);
yoke_status shm_await(shm_group *shm, shm_counter *first, uint32_t value);

/* OK, or the error that broke the group. */
yoke_status shm_intact(shm_group *shm);
/* Breaks the group with this thread's error, unless it is broken already; returns the first error.
 */
yoke_status shm_break(shm_group *shm, yoke_status status);

/* shm_call.c: ranks announce their calls, compare them and wait for each other. */

/* Fills in where the data are, if they are in this rank's part of a segment. */
void shm_locate(shm_group *shm, shm_call *call, const void *data, size_t bytes);
/* The address, in this process, of a rank's data. */
char *shm_data_of(shm_group *shm, const shm_call *call, int rank);
uint32_t shm_announce(shm_group *shm, const shm_call *call);
const shm_call *shm_call_of(shm_group *shm, int rank, uint32_t operation);
/* Waits for every rank's announcement; ARGUMENT on every rank if they differ. */
yoke_status shm_agree(shm_group *shm, uint32_t operation);
/* Ends a step of the current operation: waits until every rank has ended it. */
yoke_status shm_step(shm_group *shm);
yoke_status shm_barrier(yoke_process_group *group);
yoke_status shm_all_reduce_async(yoke_process_group *group, float *buffer, size_t count,
                                 const yoke_rank_blocks *blocks);
yoke_status shm_progress(yoke_process_group *group, bool wait);

/* shm_collectives.c: the collectives that move data before they return. */
yoke_status shm_broadcast(yoke_process_group *group, void *buffer, const yoke_reduce_call *call);
yoke_status shm_reduce(yoke_process_group *group, void *buffer, const yoke_reduce_call *call);
yoke_status shm_all_gather(yoke_process_group *group, void *to, const void *from,
                           const yoke_reduce_call *call);
yoke_status shm_reduce_scatter(yoke_process_group *group, void *to, const void *from,
                               const yoke_reduce_call *call);
yoke_status shm_scatter(yoke_process_group *group, void *to, const void *from,
                        const yoke_reduce_call *call);

/* Reduces this rank's slice of `count` elements into the same slice of each of to[count_to]. */
void shm_fold_slice(const yoke_fold_set *fold, int rank, size_t count, char *const *to,
                    int count_to);
/* The first element of a rank's slice, on a cache line; slice `ranks` begins at count. */
size_t shm_slice_begin(const yoke_fold_set *fold, int rank, size_t count);

#endif
