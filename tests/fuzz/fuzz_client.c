/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank reads of the server of its store, or of whoever listens there. The first byte says
 * whether the handshake comes first; the rest is what the server sends. */
#include <sys/socket.h>

#include "distributed/store/store_tcp.c"
#include "fuzz/fuzz.h"

enum { PATIENCE_MS = 10000 }; /* never waited for: the peer has closed its half */

/* Calls that a rank makes; a reply has the number of its request. */
static void use_store(tcp_store *own) {
    uint8_t data[64];
    yoke_store_value value = {.data = data, .capacity = sizeof data};
    int64_t sum;
    (void)own->store.set(&own->store, "key", "value", 5);
    (void)own->store.add(&own->store, "sum", 3, &sum);
    (void)own->store.wait(&own->store, "key", &value, 0);
    (void)own->store.wait(&own->store, "key", &value, deadline_after(PATIENCE_MS));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    yoke_store_options options = {.address = "tcp://server:1", .run_id = "run1", .token = "secret"};
    int pair[2], cause = 0;
    if (size == 0 || size > YOKE_FRAME_LIMIT) return 0;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0) abort();
    tcp_store *own = calloc(1, sizeof *own);
    if (own == NULL) abort();
    own->connection = pair[0];
    own->store = (yoke_store){.address = strdup(options.address),
                              .timeout_ms = PATIENCE_MS,
                              .set = tcp_set,
                              .wait = tcp_wait,
                              .add = tcp_add,
                              .destroy = tcp_destroy};
    if (send(pair[1], data + 1, size - 1, 0) != (ssize_t)(size - 1)) abort();
    shutdown(pair[1], SHUT_WR);
    yoke_status status = YOKE_OK;
    if ((data[0] & 1) != 0)
        status = shake_hands(own, &options, deadline_after(PATIENCE_MS), &cause);
    /* Nobody can know the proof of a fresh nonce. */
    if ((data[0] & 1) != 0 && status == YOKE_OK && cause == 0) abort();
    if ((data[0] & 1) == 0) use_store(own);
    yoke_store_destroy(&own->store);
    close(pair[1]);
    return 0;
}
