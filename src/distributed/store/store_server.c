/* SPDX-License-Identifier: Apache-2.0 */
/* One thread and one poll. Until a connection passes the handshake it has a deadline, a limit on
 * its frame and a place in a small queue, so it costs little and cannot delay the ranks. */
#include "distributed/store/store_server.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "distributed/store/frame.h"
#include "distributed/store/proof.h"
#include "distributed/store/store.h"
#include "distributed/store/store_table.h"

#define FRAME_MS 5000
#define LINGER_MS 1000
#define CONNECTIONS_LIMIT 4096
#define UNAUTHENTICATED_LIMIT 128
#define PAUSE_MS 50 /* of accepting, when the process is out of descriptors */
/* The longest frame before authentication. */
#define HELLO_LIMIT (YOKE_NONCE_BYTES + YOKE_PROOF_BYTES + YOKE_RUN_ID_LIMIT)

/* Connections: a request arrives piece by piece, then its reply leaves. Nothing here waits. */

typedef struct connection {
    int socket;
    bool authenticated;
    bool closing;      /* drop it when its reply is sent */
    uint64_t deadline; /* of the handshake, request or reply under way; 0: none */
    uint64_t frame_ns; /* time limit of each */
    uint8_t nonce[YOKE_NONCE_BYTES];

    uint8_t header[YOKE_FRAME_HEADER_BYTES];
    yoke_frame frame;
    uint8_t *payload; /* [frame.length + 1], ends with 0 */
    size_t got;       /* of header and payload */

    uint8_t *reply; /* NULL: none is under way */
    size_t reply_bytes, sent;

    char *awaited_key; /* the reply comes when this key is set; NULL: none */
    uint32_t awaited_sequence;
} connection;

typedef enum progress { PROGRESS_WAIT, PROGRESS_DONE, PROGRESS_LOST } progress;

/* Takes the socket. NULL: out of memory, and the socket is closed. */
static connection *connection_create(int socket, uint64_t frame_ns) {
    connection *client = yoke_calloc(1, sizeof *client);
    if (client == NULL) {
        close(socket);
        return NULL;
    }
    client->socket = socket;
    client->frame_ns = frame_ns;
    client->deadline = yoke_now_ns() + frame_ns;
    return client;
}

/* The handshake has one deadline for all of it. */
static void begin_deadline(connection *client) {
    if (client->authenticated) client->deadline = yoke_now_ns() + client->frame_ns;
}

static bool read_header(connection *client) {
    yoke_frame *frame = &client->frame;
    if (!yoke_frame_read(client->header, frame)) return false;
    if (frame->version != YOKE_FRAME_VERSION) return false;
    if (!client->authenticated && frame->length > HELLO_LIMIT) return false;
    client->payload = yoke_calloc(1, frame->length + 1);
    return client->payload != NULL;
}

/* Reads what has arrived. DONE: a whole frame; LOST: closed, failed or against the protocol. */
static progress connection_receive(connection *client) {
    for (;;) {
        bool in_header = client->got < sizeof client->header;
        size_t whole = sizeof client->header + (in_header ? 0 : client->frame.length);
        if (!in_header && client->got == whole) return PROGRESS_DONE;
        uint8_t *to = in_header ? client->header + client->got
                                : client->payload + client->got - sizeof client->header;
        ssize_t got = recv(client->socket, to, whole - client->got, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EAGAIN) return PROGRESS_WAIT;
        if (got <= 0) return PROGRESS_LOST;
        if (client->got == 0) begin_deadline(client);
        client->got += (size_t)got;
        if (client->got == sizeof client->header && !read_header(client)) return PROGRESS_LOST;
    }
}

/* Sends what the socket takes. False: the connection is lost, or was closing. */
static bool connection_send(connection *client) {
    while (client->sent < client->reply_bytes) {
        ssize_t sent = send(client->socket, client->reply + client->sent,
                            client->reply_bytes - client->sent, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) return errno == EAGAIN;
        client->sent += (size_t)sent;
    }
    yoke_free(client->reply);
    client->reply = NULL;
    if (client->authenticated) client->deadline = 0;
    if (client->got > 0) begin_deadline(client);
    return !client->closing;
}

/* Begins to send a reply. False: the connection is lost. */
static bool reply_to(connection *to, uint32_t sequence, uint16_t type, const void *data,
                     size_t bytes) {
    to->reply_bytes = YOKE_FRAME_HEADER_BYTES + bytes;
    to->reply = yoke_malloc(to->reply_bytes);
    to->sent = 0;
    if (to->reply == NULL) return false;
    yoke_frame_write(to->reply,
                     (yoke_frame){.type = type, .sequence = sequence, .length = (uint32_t)bytes});
    if (bytes > 0) memcpy(to->reply + YOKE_FRAME_HEADER_BYTES, data, bytes);
    begin_deadline(to);
    return connection_send(to);
}

/* The server. */

struct yoke_store_server {
    char run_id[YOKE_RUN_ID_LIMIT], *token;
    uint64_t frame_ns, end_ns; /* end_ns: of the lingering; 0: not begun */
    int listener, wake;
    bool runs, paused;
    pthread_t thread;
    yoke_store_table table;
    connection *connections[CONNECTIONS_LIMIT]; /* oldest first */
    struct pollfd polls[CONNECTIONS_LIMIT + 2];
    size_t count, unauthenticated;
};

static bool reply(connection *to, uint16_t type, const void *data, size_t bytes) {
    return reply_to(to, to->frame.sequence, type, data, bytes);
}

static bool refuse(connection *client, const char *why) {
    return reply(client, YOKE_FRAME_REFUSED, why, strlen(why));
}

/* A client that has not proved the token gets no reason; without a token everybody can prove it. */
static bool refuse_hello(connection *client, const char *why) {
    client->closing = true;
    return refuse(client, why);
}

static bool refuse_run(const yoke_store_server *server, connection *client) {
    char text[160];
    snprintf(text, sizeof text, "the store belongs to another run, %s", server->run_id);
    return refuse_hello(client, server->token == NULL ? "" : text);
}

static bool handle_hello(yoke_store_server *server, connection *client) {
    const size_t proof_at = YOKE_NONCE_BYTES, run_at = YOKE_NONCE_BYTES + YOKE_PROOF_BYTES;
    const uint8_t *hello = client->payload;
    if (client->frame.type != YOKE_FRAME_HELLO || client->frame.length < run_at) return false;
    const char *run_id = (const char *)hello + run_at;
    yoke_handshake handshake = {.token = server->token, .run_id = run_id};
    memcpy(handshake.nonces, client->nonce, YOKE_NONCE_BYTES);
    memcpy(handshake.nonces + YOKE_NONCE_BYTES, hello, YOKE_NONCE_BYTES);
    uint8_t proof[YOKE_PROOF_BYTES];
    yoke_proof_make(&handshake, false, proof);
    if (!yoke_proof_equal(proof, hello + proof_at)) return refuse_hello(client, "");
    if (strcmp(run_id, server->run_id) != 0) return refuse_run(server, client);
    yoke_proof_make(&handshake, true, proof);
    client->authenticated = true;
    server->unauthenticated--;
    return reply(client, YOKE_FRAME_WELCOME, proof, sizeof proof);
}

/* serve_all drops it at the end of the round. */
static void mark_lost(connection *client) {
    shutdown(client->socket, SHUT_RDWR);
    client->deadline = 1;
}

static bool handle_change(yoke_store_server *server, connection *client, const char *key) {
    const uint8_t *value = client->payload + strlen(key) + 1;
    size_t bytes = client->frame.length - strlen(key) - 1;
    bool adds = client->frame.type == YOKE_FRAME_ADD;
    if (adds && bytes != 8) return false;
    const char *why = adds ? yoke_store_table_add(&server->table, key, yoke_int64_read(value))
                           : yoke_store_table_set(&server->table, key, value, bytes);
    if (why != NULL) return refuse(client, why);
    const yoke_store_entry *entry = yoke_store_table_find(&server->table, key);
    for (size_t i = 0; i < server->count; i++) {
        connection *each = server->connections[i];
        if (each->awaited_key == NULL || strcmp(each->awaited_key, key) != 0) continue;
        yoke_free(each->awaited_key);
        each->awaited_key = NULL;
        if (!reply_to(each, each->awaited_sequence, YOKE_FRAME_VALUE, entry->value, entry->bytes))
            mark_lost(each);
    }
    return reply(client, YOKE_FRAME_VALUE, entry->value, adds ? entry->bytes : 0);
}

static bool handle_read(yoke_store_server *server, connection *client, const char *key) {
    const yoke_store_entry *entry = yoke_store_table_find(&server->table, key);
    if (entry != NULL) return reply(client, YOKE_FRAME_VALUE, entry->value, entry->bytes);
    if (client->frame.type == YOKE_FRAME_PEEK) return reply(client, YOKE_FRAME_ABSENT, NULL, 0);
    client->awaited_key = yoke_strdup(key);
    client->awaited_sequence = client->frame.sequence;
    return client->awaited_key != NULL;
}

/* A client has one request at a time: a new one cancels a wait. */
static bool handle(yoke_store_server *server, connection *client) {
    if (!client->authenticated) return handle_hello(server, client);
    const char *key = (const char *)client->payload; /* payloads end with 0 */
    size_t length = strlen(key);
    if (length == 0 || length >= YOKE_STORE_KEY_LIMIT || length >= client->frame.length)
        return false;
    yoke_free(client->awaited_key);
    client->awaited_key = NULL;
    switch (client->frame.type) {
    case YOKE_FRAME_SET:
    case YOKE_FRAME_ADD:
        return handle_change(server, client, key);
    case YOKE_FRAME_WAIT:
    case YOKE_FRAME_PEEK:
        return handle_read(server, client, key);
    default:
        return false;
    }
}

/* False: drop the connection. */
static bool serve(yoke_store_server *server, connection *client, short events) {
    if (client->reply != NULL) {
        return (events & (POLLERR | POLLHUP | POLLNVAL)) == 0 && connection_send(client);
    }
    progress got = connection_receive(client);
    if (got != PROGRESS_DONE) return got == PROGRESS_WAIT;
    bool keep = handle(server, client);
    /* Make room for the next request. */
    yoke_free(client->payload);
    client->payload = NULL;
    client->got = 0;
    if (client->authenticated && client->reply == NULL) client->deadline = 0;
    return keep;
}

static void drop(yoke_store_server *server, size_t index) {
    connection *client = server->connections[index];
    if (!client->authenticated) server->unauthenticated--;
    close(client->socket);
    yoke_free(client->payload);
    yoke_free(client->reply);
    yoke_free(client->awaited_key);
    yoke_free(client);
    server->count--;
    memmove(&server->connections[index], &server->connections[index + 1],
            (server->count - index) * sizeof server->connections[0]);
}

static bool drop_oldest_unauthenticated(yoke_store_server *server) {
    for (size_t i = 0; i < server->count; i++) {
        if (server->connections[i]->authenticated) continue;
        drop(server, i);
        return true;
    }
    return false;
}

static void add(yoke_store_server *server, int socket, bool authenticated) {
    connection *client = connection_create(socket, server->frame_ns);
    if (client == NULL) return;
    server->connections[server->count++] = client;
    client->authenticated = authenticated;
    if (authenticated) {
        client->deadline = 0;
        return;
    }
    server->unauthenticated++;
    if (!yoke_nonce_make(client->nonce) ||
        !reply(client, YOKE_FRAME_CHALLENGE, client->nonce, YOKE_NONCE_BYTES))
        drop(server, server->count - 1);
}

/* Makes room before it accepts. Out of descriptors, it leaves the connection in the backlog and
 * pauses accepting, because poll would report the listener at once. */
static void accept_connection(yoke_store_server *server) {
    if (server->unauthenticated >= UNAUTHENTICATED_LIMIT) drop_oldest_unauthenticated(server);
    if (server->count == CONNECTIONS_LIMIT && !drop_oldest_unauthenticated(server)) {
        server->paused = true;
        return;
    }
    int socket = accept4(server->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (socket >= 0) {
        add(server, socket, false);
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        server->paused = !drop_oldest_unauthenticated(server);
    }
}

static void serve_all(yoke_store_server *server) {
    size_t polled = server->count;
    for (size_t i = 0; i < polled; i++) {
        connection *client = server->connections[i];
        short events = server->polls[i + 2].revents;
        if (events != 0 && !serve(server, client, events)) mark_lost(client);
    }
    uint64_t now = yoke_now_ns();
    for (size_t i = server->count; i-- > 0;) {
        uint64_t deadline = server->connections[i]->deadline;
        if (deadline != 0 && now >= deadline) drop(server, i);
    }
}

static void begin_linger(yoke_store_server *server) {
    uint64_t linger_ns = LINGER_MS * 1000000u;
    if (linger_ns > server->frame_ns) linger_ns = server->frame_ns;
    server->end_ns = yoke_now_ns() + linger_ns;
    if (server->listener >= 0) close(server->listener);
    server->listener = -1;
    while (drop_oldest_unauthenticated(server)) {
    }
}

/* Milliseconds until the next deadline; -1: none. */
static int time_left(const yoke_store_server *server) {
    uint64_t due = server->end_ns;
    for (size_t i = 0; i < server->count; i++) {
        uint64_t deadline = server->connections[i]->deadline;
        if (deadline != 0 && (due == 0 || deadline < due)) due = deadline;
    }
    uint64_t now = yoke_now_ns(), pause_ns = PAUSE_MS * 1000000u;
    if (server->paused && (due == 0 || now + pause_ns < due)) due = now + pause_ns;
    if (due == 0) return -1;
    return now >= due ? 0 : (int)((due - now + 999999u) / 1000000u);
}

static void wait_for_events(yoke_store_server *server) {
    server->polls[0] =
        (struct pollfd){.fd = server->end_ns == 0 ? server->wake : -1, .events = POLLIN};
    server->polls[1] =
        (struct pollfd){.fd = server->paused ? -1 : server->listener, .events = POLLIN};
    for (size_t i = 0; i < server->count; i++) {
        const connection *each = server->connections[i];
        short events = each->reply != NULL ? POLLOUT : POLLIN;
        server->polls[i + 2] = (struct pollfd){.fd = each->socket, .events = events};
    }
    int left = time_left(server);
    server->paused = false;
    if (poll(server->polls, (nfds_t)server->count + 2, left) >= 0) return;
    for (size_t i = 0; i < server->count + 2; i++)
        server->polls[i].revents = 0;
}

static void *serve_until_end(void *context) {
    yoke_store_server *server = context;
    for (;;) {
        wait_for_events(server);
        serve_all(server);
        if (server->end_ns == 0 && server->polls[0].revents != 0)
            begin_linger(server);
        else if (server->end_ns == 0 && server->polls[1].revents != 0)
            accept_connection(server);
        if (server->end_ns != 0 && (server->count == 0 || yoke_now_ns() >= server->end_ns))
            return NULL;
    }
}

static yoke_status build(yoke_store_server *server, const yoke_server_options *options, int *own) {
    int pair[2];
    if (strlen(options->run_id) >= sizeof server->run_id)
        return FAIL(YOKE_ERROR_ARGUMENT, "the run id has %zu bytes: at most %zu are allowed",
                    strlen(options->run_id), sizeof server->run_id - 1);
    memcpy(server->run_id, options->run_id, strlen(options->run_id) + 1);
    server->token = options->token == NULL ? NULL : yoke_strdup(options->token);
    if (options->token != NULL && server->token == NULL)
        return FAIL_MEMORY(strlen(options->token) + 1, "the store's token");
    int frame_ms = options->timeout_ms < FRAME_MS ? options->timeout_ms : FRAME_MS;
    server->frame_ns = (uint64_t)frame_ms * 1000000u;
    server->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (server->wake < 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0)
        return FAIL(YOKE_ERROR_SYSTEM, "cannot serve a store: %s", strerror(errno));
    add(server, pair[0], true);
    *own = pair[1];
    if (server->count == 0) return FAIL_MEMORY(sizeof(connection), "a store connection");
    int cause = yoke_thread_start(&server->thread, serve_until_end, server);
    server->runs = cause == 0;
    return cause == 0 ? YOKE_OK
                      : FAIL(YOKE_ERROR_SYSTEM, "cannot serve a store: %s", strerror(cause));
}

yoke_status yoke_store_server_create(yoke_store_server **server, const yoke_server_options *options,
                                     int *own) {
    *own = -1;
    *server = yoke_calloc(1, sizeof **server);
    if (*server == NULL) {
        if (options->listener >= 0) close(options->listener);
        return FAIL_MEMORY(sizeof **server, "a store");
    }
    (*server)->listener = options->listener;
    (*server)->wake = -1;
    yoke_status status = build(*server, options, own);
    if (status == YOKE_OK) return YOKE_OK;
    if (*own >= 0) close(*own);
    *own = -1;
    yoke_store_server_destroy(*server);
    *server = NULL;
    return status;
}

void yoke_store_server_destroy(yoke_store_server *server) {
    if (server == NULL) return;
    if (server->runs) {
        eventfd_write(server->wake, 1);
        pthread_join(server->thread, NULL);
    }
    while (server->count > 0)
        drop(server, 0);
    yoke_store_table_clear(&server->table);
    if (server->listener >= 0) close(server->listener);
    if (server->wake >= 0) close(server->wake);
    if (server->token != NULL) explicit_bzero(server->token, strlen(server->token));
    yoke_free(server->token);
    yoke_free(server);
}
