/* Host memory that is freed with its group, for transports that have no use for shared memory. */
#ifndef DISTRIBUTED_PLAIN_MEMORY_H
#define DISTRIBUTED_PLAIN_MEMORY_H

#include "base/base.h"

typedef struct yoke_plain_memory yoke_plain_memory; /* a list; NULL: empty */

/* Zeroed, on a cache line. */
yoke_status yoke_plain_memory_add(yoke_plain_memory **list, size_t bytes, void **memory);
void yoke_plain_memory_free(yoke_plain_memory *list);

#endif
