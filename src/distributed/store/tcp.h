/* SPDX-License-Identifier: Apache-2.0 */
/* TCP sockets with deadlines. Without a token an address must be a loopback one. */
#ifndef DISTRIBUTED_TCP_H
#define DISTRIBUTED_TCP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "yoke/status.h"

typedef struct yoke_tcp_address {
    char host[256];
    int port;
    bool has_token;
} yoke_tcp_address;

/* "tcp://host:port", "tcp://[::1]:port". */
yoke_status yoke_tcp_parse(yoke_tcp_address *address, const char *text);

/* A numeric host binds that address; with a token, a host name binds every address. If the port is
 * taken, the error names the process that has it. */
yoke_status yoke_tcp_listen(const yoke_tcp_address *address, int *listener, int *port);

/* One attempt. The status is OK even if it fails: *cause is then the errno of the last address
 * tried, and 0 otherwise. */
yoke_status yoke_tcp_connect(const yoke_tcp_address *address, uint64_t deadline, int *connection,
                             int *cause);

/* Transfer all bytes and return 0, or an errno: ETIMEDOUT at the deadline, ECONNRESET if the peer
 * closed. *done: the bytes received. */
int yoke_tcp_send(int connection, const void *data, size_t bytes, uint64_t deadline);
int yoke_tcp_receive(int connection, void *data, size_t bytes, uint64_t deadline, size_t *done);

#endif
