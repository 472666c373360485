/* The processor as the operating system lets this process use it. */
#ifndef DEVICE_CORES_H
#define DEVICE_CORES_H

#include <sched.h>
#include <stddef.h>

/* The cores the calling thread may run on; returns how many (1 at least; when the system does not
 * say, core 0 stands for the one). */
int yoke_cores_allowed(cpu_set_t *cores);
/* The core at `position` of the set, in ascending order. */
size_t yoke_cores_at(const cpu_set_t *cores, int position);

/* "AMD EPYC 9654"; returns buffer. */
const char *yoke_cores_model(char *buffer, size_t size);
size_t yoke_cores_memory_bytes(void);

#endif
