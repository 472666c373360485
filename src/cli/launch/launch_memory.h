/* SPDX-License-Identifier: Apache-2.0 */
/* Kills for lack of memory, as the kernel counts them. */
#ifndef CLI_LAUNCH_MEMORY_H
#define CLI_LAUNCH_MEMORY_H

#include <stdint.h>

/* Processes of this process's control group, which its workers share, that the kernel has killed
 * because memory ran out. -1: unknown. */
int64_t launch_memory_kills(void);

#endif
