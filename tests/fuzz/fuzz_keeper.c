/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks and strangers send to the store's server: two connections, whose pieces arrive in the
 * order of the input, of which the first byte says who has passed the handshake. Without a thread
 * and a clock: the harness includes the server and calls its rounds. */
#include "distributed/store/store_server.c"
#include "fuzz/fuzz.h"

enum { CLIENTS = 2, PIECE = 64, FOREVER_S = 3600 };

static void send_bytes(int socket, const void *data, size_t bytes) {
    if (send(socket, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno != EPIPE &&
        errno != EAGAIN)
        abort();
}

/* Leaves room for the server's replies. */
static void drain(int socket) {
    uint8_t bytes[4096];
    while (recv(socket, bytes, sizeof bytes, MSG_DONTWAIT) > 0) {
    }
}

/* One round of the thread: all sockets are ready. */
static void serve_round(yoke_store_server *server) {
    for (size_t i = 0; i < server->count; i++)
        server->polls[i + 2].revents = server->connections[i]->reply != NULL ? POLLOUT : POLLIN;
    serve_all(server);
    if (server->unauthenticated > server->count) abort();
}

/* The challenge of the server is answered as a rank of the run does. */
static void shake_hands(yoke_store_server *server, int socket) {
    struct {
        uint8_t header[YOKE_FRAME_HEADER_BYTES], nonce[YOKE_NONCE_BYTES], proof[YOKE_PROOF_BYTES];
        char run_id[4];
    } hello = {.run_id = {'r', 'u', 'n', '1'}};
    uint8_t challenge[YOKE_FRAME_HEADER_BYTES + YOKE_NONCE_BYTES];
    if (recv(socket, challenge, sizeof challenge, MSG_DONTWAIT) != sizeof challenge) abort();
    yoke_handshake handshake = {.token = server->token, .run_id = server->run_id};
    memcpy(handshake.nonces, challenge + YOKE_FRAME_HEADER_BYTES, YOKE_NONCE_BYTES);
    yoke_proof_make(&handshake, false, hello.proof);
    yoke_frame_write(hello.header, (yoke_frame){.type = YOKE_FRAME_HELLO,
                                                .sequence = 1,
                                                .length = sizeof hello - sizeof hello.header});
    size_t strangers = server->unauthenticated;
    send_bytes(socket, &hello, sizeof hello);
    serve_round(server);
    if (server->unauthenticated != strangers - 1) abort();
}

/* The input is a row of pieces of up to PIECE bytes. One byte precedes each: its lowest bit
 * chooses the connection that sends the piece, the others its length. */
static void send_pieces(yoke_store_server *server, const int sockets[CLIENTS], const uint8_t *data,
                        size_t size) {
    while (size > 1) {
        int to = sockets[data[0] & 1];
        size_t bytes = 1u + (data[0] >> 1) % PIECE;
        if (bytes > size - 1) bytes = size - 1;
        send_bytes(to, data + 1, bytes);
        data += 1 + bytes;
        size -= 1 + bytes;
        serve_round(server);
        drain(sockets[0]);
        drain(sockets[1]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static yoke_store_server server;
    static char token[] = "secret";
    int sockets[CLIENTS];
    if (size == 0) return 0;
    memset(&server, 0, sizeof server);
    memcpy(server.run_id, "run1", 5);
    server.token = (data[0] & 4) != 0 ? token : NULL;
    server.frame_ns = (uint64_t)FOREVER_S * 1000000000u;
    for (int i = 0; i < CLIENTS; i++) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0) abort();
        add(&server, pair[0], false);
        sockets[i] = pair[1];
        if ((data[0] >> i & 1) != 0) shake_hands(&server, sockets[i]);
    }
    send_pieces(&server, sockets, data + 1, size - 1);
    /* Nobody can guess the proof for a fresh nonce. */
    size_t known = (size_t)((data[0] & 1) + (data[0] >> 1 & 1));
    if (server.count - server.unauthenticated > known) abort();
    for (int i = 0; i < CLIENTS; i++)
        close(sockets[i]);
    while (server.count > 0)
        drop(&server, server.count - 1);
    if (server.unauthenticated != 0) abort();
    yoke_store_table_clear(&server.table);
    return 0;
}
