/* SPDX-License-Identifier: Apache-2.0 */
/* no_sync: the gradients of several backward calls add up in the replicas, which exchange nothing
 * until one reduce sums them all. */
#ifndef PARALLEL_NO_SYNC_H
#define PARALLEL_NO_SYNC_H

#include "parallel/step/step.h"

/* on: allocates the sums when it is first on. forget: no reduce takes what waits. */
yoke_status yoke_unsynced_turn(yoke_step *step, bool on);
void yoke_unsynced_forget(yoke_step *step);
void yoke_unsynced_close(yoke_step *step);
/* A backward by hand begins; it has ended: while no_sync is on, every lane adds its gradients. */
void yoke_unsynced_begin(yoke_step *step);
yoke_status yoke_unsynced_add(yoke_step *step);
/* Whether the sums are all that a reduce needs. */
bool yoke_unsynced_is_whole(const yoke_step *step);
/* Before a reduce: the sums become the lanes' gradients. ARGUMENT while no_sync is on. */
yoke_status yoke_unsynced_take(yoke_step *step);
/* ARGUMENT when a whole step would lose the gradients that wait. */
yoke_status yoke_unsynced_check_step(const yoke_step *step);

#endif
