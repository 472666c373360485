/* SPDX-License-Identifier: Apache-2.0 */
/* no_sync: the gradients of several backward calls add up in the replicas, which exchange nothing
 * until one reduce sums them all. */
#ifndef PARALLEL_NO_SYNC_H
#define PARALLEL_NO_SYNC_H

#include "device/device.h"
#include "parallel/parallel.h"

typedef struct yoke_unsynced {
    bool on;
    bool holds;                      /* `sums` hold gradients that no reduce has taken */
    bool added;                      /* those of the last backward are among them */
    int contributors;                /* participants 0 .. contributors - 1 have rows among them */
    float *sums[YOKE_DEVICES_LIMIT]; /* [lanes] of flat buffers; NULL until no_sync is first on */
} yoke_unsynced;

void yoke_unsynced_close(yoke_data_parallel *parallel);
/* A backward by hand begins; it has ended: while no_sync is on, every lane adds its gradients. */
void yoke_unsynced_begin(yoke_data_parallel *parallel);
yoke_status yoke_unsynced_add(yoke_data_parallel *parallel);
/* Whether the sums are all that a reduce needs. */
bool yoke_unsynced_is_whole(const yoke_data_parallel *parallel);
/* Before a reduce: the sums become the lanes' gradients. ARGUMENT while no_sync is on. */
yoke_status yoke_unsynced_take(yoke_data_parallel *parallel);
/* ARGUMENT when a whole step would lose the gradients that wait. */
yoke_status yoke_unsynced_check_step(const yoke_data_parallel *parallel);

#endif
