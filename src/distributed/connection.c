/* Nothing here waits: the keeper's poll does. */
#include "distributed/connection.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base.h"

/* A stranger may say hello and nothing longer. */
#define HELLO_LIMIT (YOKE_NONCE_BYTES + YOKE_SHA256_BYTES + YOKE_RUN_ID_LIMIT)

yoke_connection *yoke_connection_create(int socket, uint64_t frame_ns) {
    yoke_connection *connection = calloc(1, sizeof *connection);
    if (connection == NULL) {
        close(socket);
        return NULL;
    }
    connection->socket = socket;
    connection->frame_ns = frame_ns;
    connection->deadline = yoke_now_ns() + frame_ns;
    return connection;
}

void yoke_connection_destroy(yoke_connection *connection) {
    if (connection == NULL) return;
    close(connection->socket);
    free(connection->payload);
    free(connection->answer);
    free(connection->waits);
    free(connection);
}

static void begin_deadline(yoke_connection *connection) {
    if (connection->proven) connection->deadline = yoke_now_ns() + connection->frame_ns;
}

static bool read_header(yoke_connection *connection) {
    yoke_frame *frame = &connection->frame;
    if (!yoke_frame_read(connection->header, frame)) return false;
    if (frame->version != YOKE_FRAME_VERSION) return false;
    if (!connection->proven && frame->length > HELLO_LIMIT) return false;
    connection->payload = calloc(1, frame->length + 1);
    return connection->payload != NULL;
}

yoke_progress yoke_connection_receive(yoke_connection *connection) {
    for (;;) {
        bool in_header = connection->got < sizeof connection->header;
        size_t whole = sizeof connection->header + (in_header ? 0 : connection->frame.length);
        if (!in_header && connection->got == whole) return YOKE_PROGRESS_DONE;
        uint8_t *to = in_header ? connection->header + connection->got
                                : connection->payload + connection->got - sizeof connection->header;
        ssize_t got = recv(connection->socket, to, whole - connection->got, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EAGAIN) return YOKE_PROGRESS_WAIT;
        if (got <= 0) return YOKE_PROGRESS_LOST;
        if (connection->got == 0) begin_deadline(connection);
        connection->got += (size_t)got;
        if (connection->got == sizeof connection->header && !read_header(connection))
            return YOKE_PROGRESS_LOST;
    }
}

void yoke_connection_next(yoke_connection *connection) {
    free(connection->payload);
    connection->payload = NULL;
    connection->got = 0;
    if (connection->proven && connection->answer == NULL) connection->deadline = 0;
}

bool yoke_connection_answer(yoke_connection *connection, yoke_answer answer) {
    connection->answer_bytes = YOKE_FRAME_HEADER_BYTES + answer.bytes;
    connection->answer = malloc(connection->answer_bytes);
    connection->sent = 0;
    if (connection->answer == NULL) return false;
    yoke_frame_write(connection->answer, (yoke_frame){.type = answer.type,
                                                      .sequence = answer.sequence,
                                                      .length = (uint32_t)answer.bytes});
    if (answer.bytes > 0)
        memcpy(connection->answer + YOKE_FRAME_HEADER_BYTES, answer.data, answer.bytes);
    begin_deadline(connection);
    return yoke_connection_send(connection);
}

bool yoke_connection_send(yoke_connection *connection) {
    while (connection->sent < connection->answer_bytes) {
        ssize_t sent = send(connection->socket, connection->answer + connection->sent,
                            connection->answer_bytes - connection->sent, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) return errno == EAGAIN;
        connection->sent += (size_t)sent;
    }
    free(connection->answer);
    connection->answer = NULL;
    if (connection->proven) connection->deadline = 0;
    if (connection->got > 0) begin_deadline(connection);
    return !connection->last;
}
