/* Sockets with deadlines. Without a guard (a token) only this machine is spoken to. */
#ifndef DISTRIBUTED_TCP_H
#define DISTRIBUTED_TCP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "yoke/status.h"

typedef struct yoke_tcp_address {
    char host[256];
    int port;
    bool guarded;
} yoke_tcp_address;

/* "tcp://host:port", "tcp://[::1]:port". */
yoke_status yoke_tcp_parse(yoke_tcp_address *address, const char *text);

/* A guarded listener hears everybody who can reach a named host; a number binds that address. A
 * busy port is named with its owner. */
yoke_status yoke_tcp_listen(const yoke_tcp_address *address, int *listener, int *port);

/* One attempt. 0, or the errno of the last address tried in *cause, the status being OK. */
yoke_status yoke_tcp_connect(const yoke_tcp_address *address, uint64_t deadline, int *connection,
                             int *cause);

/* All of it, or an errno: ETIMEDOUT at the deadline, ECONNRESET when the other side left. *done
 * tells how far it came. */
int yoke_tcp_send(int connection, const void *data, size_t bytes, uint64_t deadline);
int yoke_tcp_receive(int connection, void *data, size_t bytes, uint64_t deadline, size_t *done);

#endif
