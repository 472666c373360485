/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that serves a TCP store. It answers clients that pass the handshake; it closes all
 * other connections within seconds, and they use bounded memory. */
#ifndef DISTRIBUTED_STORE_SERVER_H
#define DISTRIBUTED_STORE_SERVER_H

#include "base/base.h"

typedef struct yoke_store_server yoke_store_server;

typedef struct yoke_server_options {
    int listener; /* the server owns it, on failure too; -1: it serves this process alone */
    const char *run_id, *token;
    int timeout_ms;
} yoke_server_options;

/* *own: an authenticated connection to the server for this process, which closes it. */
yoke_status yoke_store_server_create(yoke_store_server **server, const yoke_server_options *options,
                                     int *own);
/* Accepts no new connection, but serves the present ones up to a second longer, so that their ranks
 * can still read why the run ends. */
void yoke_store_server_destroy(yoke_store_server *server);

#endif
