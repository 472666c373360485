/* Collectives over the devices of one process, as groups, and of one device with those of other
 * processes, as communicators. They queue on communication streams, and the host goes on. One
 * thread at a time calls a group or a communicator. */
#ifndef DEVICE_COLLECTIVES_H
#define DEVICE_COLLECTIVES_H

#include "device/device.h"
#include "yoke/element.h"

typedef struct yoke_device_group yoke_device_group;

typedef struct yoke_device_group_request {
    yoke_device *const *devices;
    int count;
    yoke_collectives kind;
    size_t scratch_elements; /* of the largest range a reduce will be given */
    int timeout_ms;          /* for the making of communicators; 0: 60000 */
} yoke_device_group_request;

/* AUTO takes NCCL where the build has it, every device is a GPU of its own and there are two at
 * least; otherwise copies, which serve any backend without shared memory. NCCL that can't be had is
 * DEVICE, with the reason. */
yoke_status yoke_device_group_create(yoke_device_group **group,
                                     const yoke_device_group_request *request);
void yoke_device_group_destroy(yoke_device_group *group); /* takes NULL; aborts what hangs */
const char *yoke_device_group_name(const yoke_device_group *group); /* "nccl 2.28.9", "copy" */

/* buffers[k] + offset is the range on device k. Each work waits for what device k's communication
 * stream was given before. */
typedef struct yoke_range {
    float *const *buffers; /* [count] */
    size_t offset, elements;
} yoke_range;

/* On the root the range becomes the sum of those of devices 0 .. contributors - 1, a left fold in
 * their order with copies, NCCL's order with NCCL. Ranges elsewhere may be overwritten. */
yoke_status yoke_device_group_reduce(yoke_device_group *group, const yoke_range *range,
                                     int contributors);
/* The root's range goes to all. The root is device 0. */
yoke_status yoke_device_group_broadcast(yoke_device_group *group, const yoke_range *range);
/* Device k's part of the range, elements / count at k * elements / count, becomes the sum of all
 * the contributors' parts. elements is a multiple of 16 * count. */
yoke_status yoke_device_group_reduce_scatter(yoke_device_group *group, const yoke_range *range,
                                             int contributors);
/* Device k's part goes to all. */
yoke_status yoke_device_group_all_gather(yoke_device_group *group, const yoke_range *range);

/* What a kind of group is made of; first member of each. */
struct yoke_device_group {
    char name[32];
    int count;
    yoke_status (*reduce)(yoke_device_group *group, const yoke_range *range, int contributors);
    yoke_status (*broadcast)(yoke_device_group *group, const yoke_range *range);
    yoke_status (*reduce_scatter)(yoke_device_group *group, const yoke_range *range,
                                  int contributors);
    yoke_status (*all_gather)(yoke_device_group *group, const yoke_range *range);
    void (*destroy)(yoke_device_group *group); /* takes half-built groups */
};

/* Communicators: a device of this process among those of others, one a rank. Nothing here waits;
 * who waits polls, and aborts what takes too long. A failure aborts too: streams that wait in a
 * collective go on then, with any values. */

typedef struct yoke_communicator yoke_communicator;

#define YOKE_COMMUNICATOR_ID_BYTES 128

typedef struct yoke_communicator_request {
    yoke_device *device;
    const uint8_t *id; /* [YOKE_COMMUNICATOR_ID_BYTES], of one rank, the same for all */
    int rank, world;
    int timeout_ms; /* for the others' farewell at destroy; 0: 60000 */
} yoke_communicator_request;

/* DEVICE with the reason when ranks can't be joined by devices of this kind. */
yoke_status yoke_communicator_check(const yoke_device *device);
yoke_status yoke_communicator_id(yoke_device *device, uint8_t *id);
/* Begins to join the others: done at QUEUED. */
yoke_status yoke_communicator_create(yoke_communicator **communicator,
                                     const yoke_communicator_request *request);
/* Takes NULL. All ranks destroy theirs, or abort. */
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

/* Memory of the device. `from` may be `to` where both have `count` elements. */
typedef struct yoke_communicator_call {
    yoke_collective collective;
    const void *from;
    void *to;
    size_t count; /* as of yoke/distributed.h: of one rank's part */
    yoke_element element;
    yoke_reduction reduction;
    int root;
} yoke_communicator_call;

/* The call before must be at QUEUED. Sums have the communicator's own order and, of bfloat16,
 * rounding. */
yoke_status yoke_communicator_take(yoke_communicator *communicator,
                                   const yoke_communicator_call *call);

typedef enum yoke_communicator_stage {
    YOKE_COMMUNICATOR_QUEUED, /* it has joined, and what the communication stream is given now runs
                                 behind the last call */
    YOKE_COMMUNICATOR_IDLE    /* all that the communication stream was given has run */
} yoke_communicator_stage;
/* Whether it has reached a stage, or the failure of a call. The stream is asked for IDLE
 * only: a stream that is recorded can't be. */
yoke_status yoke_communicator_poll(yoke_communicator *communicator, yoke_communicator_stage wanted,
                                   bool *reached);

/* What a kind of communicator is made of; first member of each. */
struct yoke_communicator {
    char name[32];
    yoke_status (*take)(yoke_communicator *communicator, const yoke_communicator_call *call);
    yoke_status (*poll)(yoke_communicator *communicator, yoke_communicator_stage wanted,
                        bool *reached);
    void (*abort)(yoke_communicator *communicator);
    void (*destroy)(yoke_communicator *communicator); /* takes half-built ones */
};

/* copy_group.c: on copies, sums and events of any backend. */
yoke_status yoke_copy_group_create(yoke_device_group **group,
                                   const yoke_device_group_request *request);

#endif
