/* Collectives over the devices of one process: a group queues on the communication streams of all
 * its devices, and the host goes on. One thread at a time (the coordinator) calls a group. */
#ifndef DEVICE_COLLECTIVES_H
#define DEVICE_COLLECTIVES_H

#include "device/device.h"

typedef struct yoke_group yoke_group;

typedef struct yoke_group_request {
    yoke_device *const *devices;
    int count;
    yoke_collectives kind;
    size_t scratch_elements; /* of the largest range a reduce will be given */
    int timeout_ms;          /* for the making of communicators; 0: 60000 */
} yoke_group_request;

/* AUTO takes NCCL where the build has it, every device is a GPU of its own and there are two at
 * least; otherwise copies, which serve any backend without shared memory. NCCL that can't be had is
 * DEVICE, with the reason. */
yoke_status yoke_group_create(yoke_group **group, const yoke_group_request *request);
void yoke_group_destroy(yoke_group *group);           /* takes NULL; aborts what hangs */
const char *yoke_group_name(const yoke_group *group); /* "nccl 2.28.9", "copy" */

/* buffers[k] + offset is the range on device k. Each work waits for what device k's communication
 * stream was given before. */
typedef struct yoke_range {
    float *const *buffers; /* [count] */
    size_t offset, elements;
} yoke_range;

/* On the root the range becomes the sum of those of devices 0 .. contributors - 1, a left fold in
 * their order with copies, NCCL's order with NCCL. Ranges elsewhere may be overwritten. */
yoke_status yoke_group_reduce(yoke_group *group, const yoke_range *range, int contributors);
/* The root's range goes to all. The root is device 0. */
yoke_status yoke_group_broadcast(yoke_group *group, const yoke_range *range);
/* Device k's part of the range, elements / count at k * elements / count, becomes the sum of all
 * the contributors' parts. elements is a multiple of 16 * count. */
yoke_status yoke_group_reduce_scatter(yoke_group *group, const yoke_range *range, int contributors);
/* Device k's part goes to all. */
yoke_status yoke_group_all_gather(yoke_group *group, const yoke_range *range);

/* What a kind of group is made of; first member of each. */
struct yoke_group {
    char name[32];
    int count;
    yoke_status (*reduce)(yoke_group *group, const yoke_range *range, int contributors);
    yoke_status (*broadcast)(yoke_group *group, const yoke_range *range);
    yoke_status (*reduce_scatter)(yoke_group *group, const yoke_range *range, int contributors);
    yoke_status (*all_gather)(yoke_group *group, const yoke_range *range);
    void (*destroy)(yoke_group *group); /* takes half-built groups */
};

/* copy_group.c: on copies, sums and events of any backend. */
yoke_status yoke_copy_group_create(yoke_group **group, const yoke_group_request *request);

#endif
