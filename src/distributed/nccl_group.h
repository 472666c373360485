/* The NCCL transport, for its own files only: a communicator for device memory, and a way for host
 * memory beside it. */
#ifndef DISTRIBUTED_NCCL_GROUP_H
#define DISTRIBUTED_NCCL_GROUP_H

#include "device/collectives.h"
#include "distributed/plain_memory.h"
#include "distributed/watch.h"

typedef struct nccl_group {
    yoke_process_group group;
    yoke_device *device;
    yoke_communicator *communicator;
    yoke_watch watch;
    int64_t started, started_elements; /* all-reduces, in this rank's life */
    void *stage;                       /* device memory, for staging */
    size_t stage_bytes;
    yoke_plain_memory *memory; /* of allocate, where there is no host group */
} nccl_group;

static inline nccl_group *nccl_of(yoke_process_group *group) {
    return (nccl_group *)group;
}

/* One collective as a caller asked for it. */
typedef struct nccl_request {
    yoke_call_kind kind;
    yoke_reduce_call call;
    const void *from; /* NULL where this rank has nothing to give */
    void *to;         /* NULL where it gets nothing */
} nccl_request;

/* nccl_run.c: the communicator's calls and waits. A failure aborts it and is told to the others. */

/* Waits until the communicator has reached the stage. */
yoke_status nccl_reach(nccl_group *nccl, yoke_communicator_stage wanted);
/* On device memory; ends when the communication stream has run. */
yoke_status nccl_run(nccl_group *nccl, const nccl_request *request);
/* On host memory, through the stage. */
yoke_status nccl_run_staged(nccl_group *nccl, const nccl_request *request);
yoke_status nccl_break(nccl_group *nccl, yoke_status status);

/* nccl_join.c */
yoke_status nccl_join(nccl_group *nccl, const yoke_devices *devices);

#endif
