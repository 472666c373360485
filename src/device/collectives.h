/* SPDX-License-Identifier: Apache-2.0 */
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
    int timeout_ms;          /* of every call over NCCL; 0: 60000 */
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
    const size_t *cuts; /* [count + 1] of an all-gather, from 0 to elements: device k's part begins
                           at cuts[k] and ends at cuts[k + 1]; NULL: equal parts */
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
/* Copies device k's part to all devices, for every k. Of equal parts elements is a multiple of
 * count. */
yoke_status yoke_device_group_all_gather(yoke_device_group *group, const yoke_range *range);

/* Tells the group of buffers of `bytes`, [count], whose ranges collectives will take: NCCL
 * registers them, so that it moves data without copies of its own. They stay until the group is
 * destroyed. */
void yoke_device_group_register(yoke_device_group *group, float *const *buffers, size_t bytes);

/* What a kind of group implements; first member of each kind. */
struct yoke_device_group {
    char name[32];
    int count;
    yoke_status (*reduce)(yoke_device_group *group, const yoke_range *range, int contributors);
    yoke_status (*broadcast)(yoke_device_group *group, const yoke_range *range);
    yoke_status (*reduce_scatter)(yoke_device_group *group, const yoke_range *range,
                                  int contributors);
    yoke_status (*all_gather)(yoke_device_group *group, const yoke_range *range);
    /* NULL: it needs none */
    void (*register_buffers)(yoke_device_group *group, float *const *buffers, size_t bytes);
    void (*destroy)(yoke_device_group *group); /* accepts half-built groups */
};

/* Communicators join one device of each rank. create and take may wait for other ranks; meanwhile a
 * thread of the communicator's own calls `check`, and aborts when that fails. Any failure aborts.
 * After an abort blocked streams continue; results are undefined. */

typedef struct yoke_communicator yoke_communicator;

#define YOKE_COMMUNICATOR_ID_BYTES 128

typedef struct yoke_communicator_request {
    yoke_device *device;
    const uint8_t *id; /* [YOKE_COMMUNICATOR_ID_BYTES], one rank makes it and sends it to all */
    int rank, world;
    int timeout_ms; /* that destroy waits for the other ranks; 0: 60000 */
    /* Whether create or take may wait longer: the call fails as this does. Called ten times a
     * second during a call, by another thread. NULL: they wait for timeout_ms. */
    yoke_status (*check)(void *context);
    void *context;
} yoke_communicator_request;

/* DEVICE, with the reason, when devices of this kind cannot join ranks. */
yoke_status yoke_communicator_check(const yoke_device *device);
yoke_status yoke_communicator_id(yoke_device *device, uint8_t *id);
/* Waits until all ranks have joined. */
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

/* Work queued now on the communication stream runs after the call. The library decides the order of
 * sums, and how bfloat16 sums round. */
yoke_status yoke_communicator_take(yoke_communicator *communicator,
                                   const yoke_communicator_call *call);

/* Tells the communicator of a buffer of `bytes` whose ranges collectives will take, until forget,
 * before the buffer is freed: NCCL registers it. A few at a time; others serve as well. forget
 * takes buffers that it does not know. */
void yoke_communicator_register(yoke_communicator *communicator, void *buffer, size_t bytes);
void yoke_communicator_forget(yoke_communicator *communicator, void *buffer);

/* Whether the communication stream has run all its work; returns the failure of a call. Not while
 * the stream records. */
yoke_status yoke_communicator_is_idle(yoke_communicator *communicator, bool *idle);

/* What a kind of communicator implements; first member of each kind. */
struct yoke_communicator {
    char name[32];
    yoke_status (*take)(yoke_communicator *communicator, const yoke_communicator_call *call);
    yoke_status (*is_idle)(yoke_communicator *communicator, bool *idle);
    void (*register_buffer)(yoke_communicator *communicator, void *buffer, size_t bytes);
    void (*forget_buffer)(yoke_communicator *communicator, void *buffer);
    void (*abort)(yoke_communicator *communicator);
    void (*destroy)(yoke_communicator *communicator); /* accepts half-built ones */
};

/* copy_group.c: a group by copies, sums and events of any backend. */
yoke_status yoke_copy_group_create(yoke_device_group **group,
                                   const yoke_device_group_request *request);

#endif
