/* Who listens at a port of this machine. */
#ifndef DISTRIBUTED_PORT_OWNER_H
#define DISTRIBUTED_PORT_OWNER_H

#include <stdbool.h>
#include <stddef.h>

/* "python3 (pid 4711)"; false when /proc does not tell, as for another user's process. */
bool yoke_port_owner(int port, char *owner, size_t size);

#endif
