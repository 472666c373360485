/* Collectives: a group joins the devices of one process, a communicator joins one device with those
 * of other processes. Calls queue work on communication streams and return. One thread at a time
 * calls a group or a communicator. */
#ifndef DEVICE_COLLECTIVES_H
#define DEVICE_COLLECTIVES_H

#include "device/device.h"
#include "yoke/element.h"

typedef struct yoke_device_group yoke_device_group;

typedef struct yoke_device_group_request {
    yoke_device *const *devices;
    int count;
    yoke_collectives kind;
    size_t scratch_elements; /* of the largest range that will be reduced */
    int timeout_ms;          /* to create NCCL's communicators; 0: 60000 */
} yoke_device_group_request;

/* AUTO chooses NCCL where the build has it and the list holds two or more different GPUs, otherwise
 * copies, which work on any backend without shared memory. DEVICE, with the reason, when NCCL is
 * requested and not possible. */
yoke_status yoke_device_group_create(yoke_device_group **group,
                                     const yoke_device_group_request *request);
void yoke_device_group_destroy(
    yoke_device_group *group); /* takes NULL; aborts collectives that hang */
const char *yoke_device_group_name(const yoke_device_group *group); /* "nccl 2.28.9", "copy" */

/* buffers[k] + offset is the range on device k. A collective runs on device k after the work
 * already queued on its communication stream. */
typedef struct yoke_range {
    float *const *buffers; /* [count] */
    size_t offset, elements;
} yoke_range;

/* The root's range becomes the sum of the ranges of devices 0 .. contributors - 1: with copies by
 * yoke_device_sum's tree, with NCCL in NCCL's order. The other devices' ranges may be
 * overwritten. */
yoke_status yoke_device_group_reduce(yoke_device_group *group, const yoke_range *range,
                                     int contributors);
/* Copies the root's range to all devices. The root is device 0. */
yoke_status yoke_device_group_broadcast(yoke_device_group *group, const yoke_range *range);
/* Device k's part of the range, elements / count at k * elements / count, becomes the sum of all
 * the contributors' parts. elements is a multiple of 16 * count. */
yoke_status yoke_device_group_reduce_scatter(yoke_device_group *group, const yoke_range *range,
                                             int contributors);
/* Copies device k's part to all devices, for every k. */
yoke_status yoke_device_group_all_gather(yoke_device_group *group, const yoke_range *range);

/* What a kind of group implements; first member of each kind. */
struct yoke_device_group {
    char name[32];
    int count;
    yoke_status (*reduce)(yoke_device_group *group, const yoke_range *range, int contributors);
    yoke_status (*broadcast)(yoke_device_group *group, const yoke_range *range);
    yoke_status (*reduce_scatter)(yoke_device_group *group, const yoke_range *range,
                                  int contributors);
    yoke_status (*all_gather)(yoke_device_group *group, const yoke_range *range);
    void (*destroy)(yoke_device_group *group); /* accepts half-built groups */
};

/* Communicators join one device of each rank. No call here waits: a caller polls, and aborts when
 * it takes too long. A failure aborts as well. After an abort blocked streams continue; results are
 * undefined. */

typedef struct yoke_communicator yoke_communicator;

#define YOKE_COMMUNICATOR_ID_BYTES 128

typedef struct yoke_communicator_request {
    yoke_device *device;
    const uint8_t *id; /* [YOKE_COMMUNICATOR_ID_BYTES], one rank makes it and sends it to all */
    int rank, world;
    int timeout_ms; /* that destroy waits for the other ranks; 0: 60000 */
} yoke_communicator_request;

/* DEVICE, with the reason, when devices of this kind cannot join ranks. */
yoke_status yoke_communicator_check(const yoke_device *device);
yoke_status yoke_communicator_id(yoke_device *device, uint8_t *id);
/* Begins to join the other ranks; the communicator has joined when poll reports QUEUED. */
yoke_status yoke_communicator_create(yoke_communicator **communicator,
                                     const yoke_communicator_request *request);
/* Takes NULL. Every rank destroys its communicator, or aborts it. */
void yoke_communicator_destroy(yoke_communicator *communicator);
void yoke_communicator_abort(yoke_communicator *communicator);
const char *yoke_communicator_name(const yoke_communicator *communicator); /* "nccl 2.28.9" */

typedef enum yoke_collective {
    YOKE_COLLECTIVE_BROADCAST,
    YOKE_COLLECTIVE_REDUCE,
    YOKE_COLLECTIVE_ALL_REDUCE,
    YOKE_COLLECTIVE_ALL_GATHER,
    YOKE_COLLECTIVE_REDUCE_SCATTER,
    YOKE_COLLECTIVE_GATHER,
    YOKE_COLLECTIVE_SCATTER
} yoke_collective;

/* Addresses are memory of the device. `from` may equal `to` where both have `count` elements. */
typedef struct yoke_communicator_call {
    yoke_collective collective;
    const void *from;
    void *to;
    size_t count; /* elements of one rank's part, as in yoke/distributed.h */
    yoke_element element;
    yoke_reduction reduction;
    int root;
} yoke_communicator_call;

/* The previous call must have reached QUEUED. The library decides the order of sums, and how
 * bfloat16 sums round. */
yoke_status yoke_communicator_take(yoke_communicator *communicator,
                                   const yoke_communicator_call *call);

typedef enum yoke_communicator_stage {
    YOKE_COMMUNICATOR_QUEUED, /* it has joined; work queued now on the communication stream runs
                                 after the last call */
    YOKE_COMMUNICATOR_IDLE    /* the communication stream has run all its work */
} yoke_communicator_stage;
/* Whether the communicator has reached a stage; returns the failure of a call. Only IDLE queries
 * the stream, which is not allowed while the stream records. */
yoke_status yoke_communicator_poll(yoke_communicator *communicator, yoke_communicator_stage wanted,
                                   bool *reached);

/* What a kind of communicator implements; first member of each kind. */
struct yoke_communicator {
    char name[32];
    yoke_status (*take)(yoke_communicator *communicator, const yoke_communicator_call *call);
    yoke_status (*poll)(yoke_communicator *communicator, yoke_communicator_stage wanted,
                        bool *reached);
    void (*abort)(yoke_communicator *communicator);
    void (*destroy)(yoke_communicator *communicator); /* accepts half-built ones */
};

/* copy_group.c: a group by copies, sums and events of any backend. */
yoke_status yoke_copy_group_create(yoke_device_group **group,
                                   const yoke_device_group_request *request);

#endif
