/* SPDX-License-Identifier: Apache-2.0 */
/* Room in the address space, which ulimit -v limits. oneDNN crashes and libgomp ends the process
 * where an allocation of theirs fails, in a step too. So that none fails, what takes memory for
 * long leaves room for theirs, or fails with a status. */
#ifndef BASE_ROOM_H
#define BASE_ROOM_H

#include <stddef.h>

#include "base/error.h"

#define YOKE_ROOM_BYTES ((size_t)32 << 20)

/* MEMORY: fewer than YOKE_ROOM_BYTES are left. A few microseconds; nothing stays taken. */
yoke_status yoke_room_check(void);

/* "; raise the limit on address space, 300.0 MiB (ulimit -v)", or "" without a limit. */
const char *yoke_room_advice(char *buffer, size_t size);

#endif
