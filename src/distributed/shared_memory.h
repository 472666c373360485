/* The shared-memory transport, for its own files only: segments that all ranks of a machine map,
 * counters in them that the ranks wait for, and what is done between two waits. */
#ifndef DISTRIBUTED_SHARED_MEMORY_H
#define DISTRIBUTED_SHARED_MEMORY_H

#include <limits.h>
#include <sched.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "distributed/call.h"
#include "distributed/reduce_kernels.h"
#include "distributed/shm_peer.h"

enum {
    SHM_RANKS = FOLD_RANKS,
    SHM_LINE = 64,       /* of a cache: two ranks never write to one */
    SHM_OPERATIONS = 64, /* announcements kept; two fewer can be in flight */
};

/* A counter that only its rank raises; whoever waits for it sleeps on it as on a futex. Counters
 * wrap around: they are compared by their distance. */
typedef struct shm_counter {
    _Atomic uint32_t value, sleepers;
} shm_counter;

typedef struct shm_call {
    yoke_call what;
    /* Where the rank's data are, if the others can read them there. It may differ between ranks. */
    uint64_t offset;  /* in the rank's part of the segment */
    uint32_t segment; /* 1 + its index; 0: in private memory */
} shm_call;

/* Number n of a rank's operations is announced in line n % SHM_OPERATIONS, all in one cache line:
 * whoever waits for the counter to be n has the call with it. */
typedef struct shm_announcement {
    alignas(SHM_LINE) shm_counter counter;
    shm_call call;
} shm_announcement;

typedef struct shm_rank {
    shm_announcement announcements[SHM_OPERATIONS];
    /* Steps of operations after their announcement. */
    alignas(SHM_LINE) shm_counter finished;
    alignas(SHM_LINE) atomic_int pid; /* 0: has not come; what follows is written before */
    uint64_t born;                    /* clock ticks after boot, as the kernel tells it */
    cpu_set_t cores;
    atomic_bool left;
    yoke_error cause; /* of breaking the group, if this rank was the first */
} shm_rank;

/* Where another process finds a segment: there is never a name that could be left behind. */
typedef struct shm_offer {
    int pid, descriptor;
    uint64_t inode, bytes;
} shm_offer;

typedef struct shm_control {
    alignas(SHM_LINE) _Atomic uint32_t broken; /* 1 + the rank that did it */
    shm_offer offer;                           /* of the segment being allocated, by rank 0 */
    shm_rank ranks[];
} shm_control;

/* A segment as this rank has it mapped: [world x part_bytes] after the first head_bytes. */
typedef struct shm_segment {
    char *base;
    size_t head_bytes, part_bytes;
    size_t bytes;
    int descriptor; /* open until all ranks have mapped it; -1 then */
} shm_segment;

/* An all-reduce that was started. */
typedef struct shm_pending {
    uint32_t operation, step; /* finished when every rank's counters are there */
    shm_call call;
} shm_pending;

typedef struct shm_group {
    yoke_process_group group;
    yoke_peer peers[SHM_RANKS];
    shm_segment first; /* control and, part by part, the ranks' two slots */
    shm_control *control;
    size_t slot_bytes;
    bool crowded;                         /* fewer cores than ranks */
    uint32_t announced, finished, staged; /* by this rank */
    yoke_call_kind current;
    shm_segment *segments; /* [segment_count], of allocate */
    size_t segment_count;
    shm_pending pending[SHM_OPERATIONS]; /* started and not known to be over, oldest first */
    int pending_count, pending_done;     /* of them, this rank's slice is reduced */
} shm_group;

static inline shm_group *shm_of(yoke_process_group *group) {
    return (shm_group *)group;
}

static inline shm_rank *shm_self(shm_group *shm) {
    return &shm->control->ranks[shm->group.rank];
}

/* shm_segment.c: memory without a name, found through the process that made it. */

/* Makes and maps a segment of head_bytes and `world` parts, zeroed. */
yoke_status shm_segment_create(shm_segment *segment, int world, shm_offer *offer);
yoke_status shm_segment_open(shm_segment *segment, int world, const shm_offer *offer);
/* Takes the memory of this rank's part now, so that a machine that has none left says so here. */
yoke_status shm_segment_reserve(shm_segment *segment, int rank);
/* All ranks have mapped it: maps this rank's pages and gives up the descriptor. */
void shm_segment_settle(shm_segment *segment, int rank);
void shm_segment_close(shm_segment *segment);

/* More is asked for by mistake; the sum over the ranks must not overflow. */
#define SHM_PART_LIMIT (SIZE_MAX / 4 / SHM_RANKS)

static inline size_t shm_whole_pages(size_t bytes) {
    size_t page = 4096, pages = (bytes + page - 1) / page;
    return pages == 0 ? page : pages * page;
}

static inline char *shm_part(const shm_segment *segment, int rank) {
    return segment->base + segment->head_bytes + (size_t)rank * segment->part_bytes;
}

/* shm_wait.c: the only waits. Every one ends: by the others, by the deadline, or because one of
 * those awaited is gone. A failure breaks the group for every rank. */

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

/* OK, or what broke the group. */
yoke_status shm_intact(shm_group *shm);
/* Breaks the group with this thread's error, unless it is broken already; answers the cause. */
yoke_status shm_break(shm_group *shm, yoke_status status);

/* shm_call.c: operations are announced, compared and met. */

/* Says where the data are, if in this rank's part of shared memory. */
void shm_locate(shm_group *shm, shm_call *call, const void *data, size_t bytes);
/* The address of a rank's data here. */
char *shm_data_of(shm_group *shm, const shm_call *call, int rank);
uint32_t shm_announce(shm_group *shm, const shm_call *call);
const shm_call *shm_call_of(shm_group *shm, int rank, uint32_t operation);
/* Waits for everybody's announcement; ARGUMENT on every rank when they differ. */
yoke_status shm_agree(shm_group *shm, uint32_t operation);
/* One more step of the current operation: everybody has done what was before it. */
yoke_status shm_step(shm_group *shm);
yoke_status shm_barrier(yoke_process_group *group);
yoke_status shm_allocate(yoke_process_group *group, size_t bytes, void **memory);

/* shm_collectives.c */
yoke_status shm_broadcast(yoke_process_group *group, void *buffer, const yoke_reduce_call *call);
yoke_status shm_reduce(yoke_process_group *group, void *buffer, const yoke_reduce_call *call);
yoke_status shm_all_gather(yoke_process_group *group, void *to, const void *from,
                           const yoke_reduce_call *call);
yoke_status shm_reduce_scatter(yoke_process_group *group, void *to, const void *from,
                               const yoke_reduce_call *call);
yoke_status shm_scatter(yoke_process_group *group, void *to, const void *from,
                        const yoke_reduce_call *call);

/* Reduces this rank's slice of `count` elements and writes it to the same place of to[count_to]. */
void shm_fold_slice(const yoke_fold_set *fold, int rank, size_t count, char *const *to,
                    int count_to);
/* Where a rank's slice begins: on a cache line; slice `ranks` begins at count. */
size_t shm_slice_begin(const yoke_fold_set *fold, int rank, size_t count);

/* shm_pending.c: all-reduces that go on while the caller computes. */
yoke_status shm_start(yoke_process_group *group, float *buffer, size_t count);
yoke_status shm_progress(yoke_process_group *group, bool wait);

#endif
