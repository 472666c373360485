/* SPDX-License-Identifier: Apache-2.0 */
/* The NCCL transport, for its own files only: a communicator for device memory, and a host group,
 * or else a stage on the device, for host memory. */
#ifndef DISTRIBUTED_NCCL_GROUP_H
#define DISTRIBUTED_NCCL_GROUP_H

#include "device/collectives.h"
#include "distributed/transport.h"
#include "distributed/watchdog.h"

typedef struct nccl_group {
    yoke_process_group group;
    yoke_device *device;
    yoke_communicator *communicator;
    yoke_watchdog watchdog;
    int64_t async_calls, async_elements; /* of all_reduce_async, since the group began */
    void *stage;                         /* device memory that host memory passes through */
    size_t stage_bytes;
    yoke_private_memory *memory; /* of allocate, where there is no host group */
} nccl_group;

static inline nccl_group *nccl_of(yoke_process_group *group) {
    return (nccl_group *)group;
}

/* nccl_collectives.c */

/* Aborts the communicator and publishes this thread's error; returns the first failure. */
yoke_status nccl_fail(nccl_group *nccl, yoke_status status);
/* Enters the collectives into the group's table. */
void nccl_set_collectives(yoke_process_group *group);

#endif
