/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's side of the TCP store: connects until the server accepts, passes the handshake and sends
 * one request at a time. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "distributed/store/frame.h"
#include "distributed/store/proof.h"
#include "distributed/store/store.h"
#include "distributed/store/store_server.h"
#include "distributed/store/tcp.h"

#define HANDSHAKE_MS 5000
#define RETRY_MS 20

typedef struct tcp_store {
    yoke_store store; /* first */
    yoke_tcp_address at;
    yoke_store_server *server; /* NULL: another process serves */
    int connection;
    uint32_t sequence;
    uint8_t buffer[YOKE_FRAME_HEADER_BYTES + YOKE_FRAME_LIMIT];
} tcp_store;

static uint64_t deadline_after(int timeout_ms) {
    return yoke_now_ns() + (uint64_t)timeout_ms * 1000000u;
}

/* Receives a frame into the buffer, its payload behind the header. Returns 0 or an errno: ETIMEDOUT
 * if no byte arrived, EPROTO if the bytes are not a frame of this version. */
static int receive_frame(tcp_store *own, uint64_t deadline, yoke_frame *frame) {
    size_t done;
    int cause =
        yoke_tcp_receive(own->connection, own->buffer, YOKE_FRAME_HEADER_BYTES, deadline, &done);
    if (cause != 0) return cause == ETIMEDOUT && done > 0 ? ECONNRESET : cause;
    if (!yoke_frame_read(own->buffer, frame) || frame->version != YOKE_FRAME_VERSION) return EPROTO;
    cause = yoke_tcp_receive(own->connection, own->buffer + YOKE_FRAME_HEADER_BYTES, frame->length,
                             deadline, &done);
    return cause == ETIMEDOUT ? ECONNRESET : cause;
}

static int send_frame(tcp_store *own, uint16_t type, size_t bytes, uint64_t deadline) {
    yoke_frame_write(
        own->buffer,
        (yoke_frame){.type = type, .sequence = ++own->sequence, .length = (uint32_t)bytes});
    return yoke_tcp_send(own->connection, own->buffer, YOKE_FRAME_HEADER_BYTES + bytes, deadline);
}

/* Before the handshake ends, a server says nothing about itself. */
static yoke_status fail_handshake(const tcp_store *own, const yoke_frame *frame) {
    int length = (int)frame->length;
    if (length == 0)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "%s: the store there refused the handshake: it belongs to another run, or the "
                    "token is not the store's",
                    own->store.address);
    return FAIL(YOKE_ERROR_ARGUMENT, "%s: %.*s", own->store.address, length,
                (const char *)own->buffer + YOKE_FRAME_HEADER_BYTES);
}

static yoke_status fail_refused(const tcp_store *own, const yoke_frame *frame) {
    return FAIL(YOKE_ERROR_ARGUMENT, "%s: %.*s", own->store.address, (int)frame->length,
                (const char *)own->buffer + YOKE_FRAME_HEADER_BYTES);
}

static yoke_status fail_protocol(const tcp_store *own) {
    return FAIL(YOKE_ERROR_ARGUMENT,
                "%s: the listener there is not a store of this version of Yoke: use another port",
                own->store.address);
}

/* If the status is OK, *cause is 0 or an errno after which another attempt may succeed. */
static yoke_status shake_hands(tcp_store *own, const yoke_store_options *options, uint64_t deadline,
                               int *cause) {
    uint8_t *payload = own->buffer + YOKE_FRAME_HEADER_BYTES, proof[YOKE_PROOF_BYTES];
    yoke_handshake handshake = {.token = options->token, .run_id = options->run_id};
    uint8_t *nonce = handshake.nonces + YOKE_NONCE_BYTES;
    yoke_frame frame;
    *cause = receive_frame(own, deadline, &frame);
    if (*cause == EPROTO) return fail_protocol(own);
    if (*cause != 0) return YOKE_OK;
    if (frame.type != YOKE_FRAME_CHALLENGE || frame.length != YOKE_NONCE_BYTES)
        return fail_protocol(own);
    memcpy(handshake.nonces, payload, YOKE_NONCE_BYTES);
    if (!yoke_nonce_make(nonce))
        return FAIL(YOKE_ERROR_SYSTEM, "cannot make a nonce: getrandom failed");
    yoke_proof_make(&handshake, false, proof);
    memcpy(payload, nonce, YOKE_NONCE_BYTES);
    memcpy(payload + YOKE_NONCE_BYTES, proof, sizeof proof);
    size_t run_bytes = strlen(options->run_id), before = YOKE_NONCE_BYTES + sizeof proof;
    memcpy(payload + before, options->run_id, run_bytes);
    *cause = send_frame(own, YOKE_FRAME_HELLO, before + run_bytes, deadline);
    if (*cause == 0) *cause = receive_frame(own, deadline, &frame);
    if (*cause == EPROTO) return fail_protocol(own);
    if (*cause != 0) return YOKE_OK;
    if (frame.type == YOKE_FRAME_REFUSED) return fail_handshake(own, &frame);
    yoke_proof_make(&handshake, true, proof);
    if (frame.type == YOKE_FRAME_WELCOME && frame.length == sizeof proof &&
        yoke_proof_equal(proof, payload))
        return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT, "%s: the listener there does not know the token",
                own->store.address);
}

static void disconnect(tcp_store *own) {
    if (own->connection >= 0) close(own->connection);
    own->connection = -1;
}

/* Sends the payload that the buffer holds and receives the reply. MISSING at the deadline; a later
 * call recognises the late reply by its sequence number and skips it. */
static yoke_status request(tcp_store *own, uint16_t type, size_t bytes, uint64_t deadline,
                           yoke_frame *reply) {
    if (own->connection < 0)
        return FAIL(YOKE_ERROR_PEER, "%s: an earlier failure closed the connection",
                    own->store.address);
    int cause = send_frame(own, type, bytes, deadline);
    if (cause == ETIMEDOUT) cause = ECONNRESET;
    do {
        if (cause == 0) cause = receive_frame(own, deadline, reply);
    } while (cause == 0 && reply->sequence != own->sequence);
    if (cause == ETIMEDOUT) return YOKE_ERROR_MISSING;
    if (cause == 0) return reply->type == YOKE_FRAME_REFUSED ? fail_refused(own, reply) : YOKE_OK;
    disconnect(own);
    return FAIL(YOKE_ERROR_PEER, "%s: rank 0, which serves the store, has left (%s)",
                own->store.address, strerror(cause));
}

/* For requests that the server answers at once. */
static yoke_status request_now(tcp_store *own, uint16_t type, size_t bytes, yoke_frame *reply) {
    int timeout_ms = own->store.timeout_ms > 0 ? own->store.timeout_ms : HANDSHAKE_MS;
    yoke_status status = request(own, type, bytes, deadline_after(timeout_ms), reply);
    if (status != YOKE_ERROR_MISSING) return status;
    disconnect(own);
    return FAIL(YOKE_ERROR_TIMEOUT, "%s: rank 0, which serves the store, did not answer for %d ms",
                own->store.address, timeout_ms);
}

/* "key", 0, value; returns the bytes of both. */
static size_t put(tcp_store *own, const char *key, const void *value, size_t bytes) {
    uint8_t *payload = own->buffer + YOKE_FRAME_HEADER_BYTES;
    size_t length = strlen(key) + 1;
    memcpy(payload, key, length);
    if (bytes > 0) memcpy(payload + length, value, bytes);
    return length + bytes;
}

static yoke_status tcp_set(yoke_store *store, const char *key, const void *value, size_t bytes) {
    tcp_store *own = (tcp_store *)store;
    yoke_frame reply;
    yoke_status status = request_now(own, YOKE_FRAME_SET, put(own, key, value, bytes), &reply);
    if (status == YOKE_ERROR_ARGUMENT) yoke_error_prefix("cannot set \"%s\"", key);
    return status;
}

static yoke_status tcp_wait(yoke_store *store, const char *key, yoke_store_value *value,
                            uint64_t deadline) {
    tcp_store *own = (tcp_store *)store;
    size_t bytes = put(own, key, NULL, 0);
    yoke_frame reply;
    TRY(deadline == 0 ? request_now(own, YOKE_FRAME_PEEK, bytes, &reply)
                      : request(own, YOKE_FRAME_WAIT, bytes, deadline, &reply));
    if (reply.type == YOKE_FRAME_ABSENT) return YOKE_ERROR_MISSING;
    value->bytes = reply.length;
    if (value->bytes <= value->capacity && value->bytes > 0)
        memcpy(value->data, own->buffer + YOKE_FRAME_HEADER_BYTES, value->bytes);
    return YOKE_OK;
}

static yoke_status tcp_add(yoke_store *store, const char *key, int64_t value, int64_t *sum) {
    tcp_store *own = (tcp_store *)store;
    uint8_t bytes[8];
    yoke_frame reply;
    yoke_int64_write(bytes, value);
    yoke_status status =
        request_now(own, YOKE_FRAME_ADD, put(own, key, bytes, sizeof bytes), &reply);
    if (status == YOKE_ERROR_ARGUMENT) yoke_error_prefix("cannot add to \"%s\"", key);
    TRY(status);
    *sum = yoke_int64_read(own->buffer + YOKE_FRAME_HEADER_BYTES);
    return YOKE_OK;
}

static void tcp_destroy(yoke_store *store) {
    tcp_store *own = (tcp_store *)store;
    disconnect(own);
    yoke_store_server_destroy(own->server);
    yoke_free(own);
}

static yoke_status serve(tcp_store *own, const yoke_store_options *options) {
    int listener = -1;
    bool alone = strcmp(options->address, YOKE_STORE_ALONE) == 0;
    if (!alone) TRY(yoke_tcp_listen(&own->at, &listener, &own->store.port));
    yoke_server_options serving = {.listener = listener,
                                   .run_id = options->run_id,
                                   .token = options->token,
                                   .timeout_ms = options->timeout_ms};
    return yoke_store_server_create(&own->server, &serving, &own->connection);
}

static yoke_status build(tcp_store *own, const yoke_store_options *options) {
    if (strcmp(options->address, YOKE_STORE_ALONE) == 0) return serve(own, options);
    TRY(yoke_tcp_parse(&own->at, options->address));
    own->at.has_token = options->token != NULL;
    own->store.port = own->at.port;
    if (strlen(options->run_id) >= YOKE_RUN_ID_LIMIT)
        return FAIL(YOKE_ERROR_ARGUMENT, "the run id has %zu bytes: at most %d are allowed",
                    strlen(options->run_id), YOKE_RUN_ID_LIMIT - 1);
    if (options->serve) return serve(own, options);
    if (own->at.port == 0)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: port 0 is only for the rank that serves the store",
                    options->address);
    /* Retry until the deadline: the server may start later than this rank, or be full. */
    uint64_t deadline = deadline_after(options->timeout_ms);
    for (int reported = ETIMEDOUT;;) {
        uint64_t attempt = deadline_after(HANDSHAKE_MS);
        if (deadline < attempt) attempt = deadline;
        int cause;
        TRY(yoke_tcp_connect(&own->at, attempt, &own->connection, &cause));
        if (cause == 0) TRY(shake_hands(own, options, attempt, &cause));
        if (cause == 0) return YOKE_OK;
        disconnect(own);
        if (cause != ETIMEDOUT) reported = cause; /* explains more than a timeout does */
        if (yoke_now_ns() >= deadline)
            return FAIL(
                YOKE_ERROR_TIMEOUT,
                "no store answered at %s within %d ms (%s): rank 0 serves it, is it running "
                "there?",
                own->store.address, options->timeout_ms, strerror(reported));
        poll(NULL, 0, RETRY_MS);
    }
}

yoke_status yoke_tcp_store(yoke_store **store, const yoke_store_options *options) {
    tcp_store *own = yoke_calloc(1, sizeof *own);
    if (own == NULL) return FAIL_MEMORY(sizeof *own, "a store");
    own->connection = -1;
    own->store =
        (yoke_store){.set = tcp_set, .wait = tcp_wait, .add = tcp_add, .destroy = tcp_destroy};
    own->store.address = yoke_strdup(options->address);
    yoke_status status = own->store.address == NULL
                             ? FAIL_MEMORY(strlen(options->address) + 1, "a store address")
                             : build(own, options);
    if (status == YOKE_OK) {
        *store = &own->store;
    } else {
        yoke_store_destroy(&own->store);
    }
    return status;
}
