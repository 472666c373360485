/* SPDX-License-Identifier: Apache-2.0 */
/* Whether another process of this machine still runs. */
#ifndef DISTRIBUTED_PROCESS_STATE_H
#define DISTRIBUTED_PROCESS_STATE_H

#include <stdint.h>

typedef enum yoke_process_state {
    YOKE_PROCESS_RUNNING, /* also when the kernel does not say */
    YOKE_PROCESS_STOPPED,
    YOKE_PROCESS_ENDED
} yoke_process_state;

/* start_time: as yoke_process_start_time returned it in that process; 0: not known. It tells the
 * process from a later one with the same pid. */
yoke_process_state yoke_process_state_of(int pid, uint64_t start_time);
uint64_t yoke_process_start_time(int pid); /* clock ticks after boot; 0: not known */

#endif
