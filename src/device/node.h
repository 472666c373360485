/* SPDX-License-Identifier: Apache-2.0 */
/* Memory nodes (NUMA) of devices that share memory. */
#ifndef DEVICE_NODE_H
#define DEVICE_NODE_H

typedef struct yoke_device yoke_device;

#define YOKE_NO_NODE (-1)
/* The node that the device's cores lie on, as the system numbers it; 0 where there is one. NO_NODE:
 * they are of several, or any. */
int yoke_device_node(const yoke_device *device);

/* What a pointer is. */
typedef enum yoke_memory {
    YOKE_MEMORY_ORDINARY,
    YOKE_MEMORY_PINNED, /* the host's; devices copy it while the host goes on */
    YOKE_MEMORY_DEVICE
} yoke_memory;

#endif
