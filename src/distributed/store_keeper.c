/* One thread and one poll. A connection proves itself first; until then it has a deadline, a small
 * frame and a place in a small queue, so strangers cost little and never hold up the ranks. */
#include "distributed/store_keeper.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "distributed/connection.h"
#include "distributed/store_table.h"

#define FRAME_MS 5000
#define FAREWELL_MS 1000
#define CONNECTIONS_LIMIT 4096
#define STRANGERS_LIMIT 128
#define PAUSE_MS 50 /* when no descriptor is left for one who knocks */

struct yoke_store_keeper {
    char run_id[YOKE_RUN_ID_LIMIT], *token;
    uint64_t frame_ns, end_ns; /* end: when the farewell is over; 0: none is said yet */
    int listener, wake;
    bool runs, paused;
    pthread_t thread;
    yoke_store_table table;
    yoke_connection *connections[CONNECTIONS_LIMIT]; /* oldest first */
    struct pollfd polls[CONNECTIONS_LIMIT + 2];
    size_t count, strangers;
};

static bool answer(yoke_connection *to, uint16_t type, const void *data, size_t bytes) {
    return yoke_connection_answer(
        to,
        (yoke_answer){.type = type, .sequence = to->frame.sequence, .data = data, .bytes = bytes});
}

static bool refuse(yoke_connection *connection, const char *why) {
    return answer(connection, YOKE_FRAME_REFUSED, why, strlen(why));
}

/* Told only to who knows the token, but for the token's own failure. */
static bool refuse_hello(yoke_connection *connection, const char *why, const char *what) {
    char text[160];
    snprintf(text, sizeof text, "%s%s", why, what);
    connection->last = true;
    return refuse(connection, text);
}

static bool hear_hello(yoke_store_keeper *keeper, yoke_connection *connection) {
    const size_t proof_at = YOKE_NONCE_BYTES, run_at = YOKE_NONCE_BYTES + YOKE_SHA256_BYTES;
    const uint8_t *hello = connection->payload;
    if (connection->frame.type != YOKE_FRAME_HELLO || connection->frame.length < run_at)
        return false;
    const char *run_id = (const char *)hello + run_at;
    yoke_greeting greeting = {.token = keeper->token, .run_id = run_id};
    memcpy(greeting.nonces, connection->nonce, YOKE_NONCE_BYTES);
    memcpy(greeting.nonces + YOKE_NONCE_BYTES, hello, YOKE_NONCE_BYTES);
    uint8_t proof[YOKE_SHA256_BYTES];
    yoke_proof_make(&greeting, false, proof);
    if (!yoke_digest_equal(proof, hello + proof_at))
        return refuse_hello(connection, "the token is not the store's", "");
    if (strcmp(run_id, keeper->run_id) != 0)
        return refuse_hello(connection, "the store belongs to another run, ", keeper->run_id);
    yoke_proof_make(&greeting, true, proof);
    connection->proven = true;
    keeper->strangers--;
    return answer(connection, YOKE_FRAME_WELCOME, proof, sizeof proof);
}

/* Lost ones are swept when the round is over. */
static void lose(yoke_connection *connection) {
    shutdown(connection->socket, SHUT_RDWR);
    connection->deadline = 1;
}

static void tell_waiters(yoke_store_keeper *keeper, const char *key) {
    const yoke_store_entry *entry = yoke_store_table_find(&keeper->table, key);
    for (size_t i = 0; i < keeper->count; i++) {
        yoke_connection *each = keeper->connections[i];
        if (each->waits == NULL || strcmp(each->waits, key) != 0) continue;
        free(each->waits);
        each->waits = NULL;
        if (!yoke_connection_answer(each, (yoke_answer){.type = YOKE_FRAME_VALUE,
                                                        .sequence = each->waits_sequence,
                                                        .data = entry->value,
                                                        .bytes = entry->bytes}))
            lose(each);
    }
}

static bool hear_change(yoke_store_keeper *keeper, yoke_connection *connection, const char *key) {
    const uint8_t *value = connection->payload + strlen(key) + 1;
    size_t bytes = connection->frame.length - strlen(key) - 1;
    bool adds = connection->frame.type == YOKE_FRAME_ADD;
    if (adds && bytes != 8) return false;
    const char *why = adds ? yoke_store_table_add(&keeper->table, key, yoke_int64_read(value))
                           : yoke_store_table_set(&keeper->table, key, value, bytes);
    if (why != NULL) return refuse(connection, why);
    tell_waiters(keeper, key);
    const yoke_store_entry *entry = yoke_store_table_find(&keeper->table, key);
    return answer(connection, YOKE_FRAME_VALUE, entry->value, adds ? entry->bytes : 0);
}

static bool hear_question(yoke_store_keeper *keeper, yoke_connection *connection, const char *key) {
    const yoke_store_entry *entry = yoke_store_table_find(&keeper->table, key);
    if (entry != NULL) return answer(connection, YOKE_FRAME_VALUE, entry->value, entry->bytes);
    if (connection->frame.type == YOKE_FRAME_LOOK)
        return answer(connection, YOKE_FRAME_ABSENT, NULL, 0);
    connection->waits = strdup(key);
    connection->waits_sequence = connection->frame.sequence;
    return connection->waits != NULL;
}

/* One question at a time: a new one takes back the wait before it. */
static bool hear(yoke_store_keeper *keeper, yoke_connection *connection) {
    if (!connection->proven) return hear_hello(keeper, connection);
    const char *key = (const char *)connection->payload; /* ends within: payloads end with 0 */
    size_t length = strlen(key);
    if (length == 0 || length >= YOKE_STORE_KEY_LIMIT || length >= connection->frame.length)
        return false;
    free(connection->waits);
    connection->waits = NULL;
    switch (connection->frame.type) {
    case YOKE_FRAME_SET:
    case YOKE_FRAME_ADD:
        return hear_change(keeper, connection, key);
    case YOKE_FRAME_WAIT:
    case YOKE_FRAME_LOOK:
        return hear_question(keeper, connection, key);
    default:
        return false;
    }
}

/* False: the connection is to be dropped. */
static bool serve(yoke_store_keeper *keeper, yoke_connection *connection, short events) {
    if (connection->answer != NULL) {
        return (events & (POLLERR | POLLHUP | POLLNVAL)) == 0 && yoke_connection_send(connection);
    }
    yoke_progress progress = yoke_connection_receive(connection);
    if (progress != YOKE_PROGRESS_DONE) return progress == YOKE_PROGRESS_WAIT;
    bool kept = hear(keeper, connection);
    yoke_connection_next(connection);
    return kept;
}

static void drop(yoke_store_keeper *keeper, size_t index) {
    yoke_connection *connection = keeper->connections[index];
    if (!connection->proven) keeper->strangers--;
    yoke_connection_destroy(connection);
    keeper->count--;
    memmove(&keeper->connections[index], &keeper->connections[index + 1],
            (keeper->count - index) * sizeof keeper->connections[0]);
}

static bool drop_oldest_stranger(yoke_store_keeper *keeper) {
    for (size_t i = 0; i < keeper->count; i++) {
        if (keeper->connections[i]->proven) continue;
        drop(keeper, i);
        return true;
    }
    return false;
}

static void add(yoke_store_keeper *keeper, int socket, bool proven) {
    yoke_connection *connection = yoke_connection_create(socket, keeper->frame_ns);
    if (connection == NULL) return;
    keeper->connections[keeper->count++] = connection;
    connection->proven = proven;
    if (proven) {
        connection->deadline = 0;
        return;
    }
    keeper->strangers++;
    if (!yoke_nonce_make(connection->nonce) ||
        !answer(connection, YOKE_FRAME_CHALLENGE, connection->nonce, YOKE_NONCE_BYTES))
        drop(keeper, keeper->count - 1);
}

/* Makes room before it takes one in. Without a descriptor left the one who knocks waits outside,
 * and the keeper does not spin at the door. */
static void accept_one(yoke_store_keeper *keeper) {
    if (keeper->strangers >= STRANGERS_LIMIT) drop_oldest_stranger(keeper);
    if (keeper->count == CONNECTIONS_LIMIT && !drop_oldest_stranger(keeper)) {
        keeper->paused = true;
        return;
    }
    int socket = accept4(keeper->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (socket >= 0) {
        add(keeper, socket, false);
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        keeper->paused = !drop_oldest_stranger(keeper);
    }
}

static void serve_all(yoke_store_keeper *keeper) {
    size_t polled = keeper->count;
    for (size_t i = 0; i < polled; i++) {
        yoke_connection *connection = keeper->connections[i];
        short events = keeper->polls[i + 2].revents;
        if (events != 0 && !serve(keeper, connection, events)) lose(connection);
    }
    uint64_t now = yoke_now_ns();
    for (size_t i = keeper->count; i-- > 0;) {
        uint64_t deadline = keeper->connections[i]->deadline;
        if (deadline != 0 && now >= deadline) drop(keeper, i);
    }
}

static void begin_farewell(yoke_store_keeper *keeper) {
    uint64_t farewell_ns = FAREWELL_MS * 1000000u;
    if (farewell_ns > keeper->frame_ns) farewell_ns = keeper->frame_ns;
    keeper->end_ns = yoke_now_ns() + farewell_ns;
    close(keeper->listener);
    keeper->listener = -1;
    while (drop_oldest_stranger(keeper)) {
    }
}

/* Milliseconds until something is due. */
static int time_left(const yoke_store_keeper *keeper) {
    uint64_t due = keeper->end_ns;
    for (size_t i = 0; i < keeper->count; i++) {
        uint64_t deadline = keeper->connections[i]->deadline;
        if (deadline != 0 && (due == 0 || deadline < due)) due = deadline;
    }
    uint64_t now = yoke_now_ns(), pause_ns = PAUSE_MS * 1000000u;
    if (keeper->paused && (due == 0 || now + pause_ns < due)) due = now + pause_ns;
    if (due == 0) return -1;
    return now >= due ? 0 : (int)((due - now + 999999u) / 1000000u);
}

static void wait_for_events(yoke_store_keeper *keeper) {
    keeper->polls[0] =
        (struct pollfd){.fd = keeper->end_ns == 0 ? keeper->wake : -1, .events = POLLIN};
    keeper->polls[1] =
        (struct pollfd){.fd = keeper->paused ? -1 : keeper->listener, .events = POLLIN};
    for (size_t i = 0; i < keeper->count; i++) {
        const yoke_connection *each = keeper->connections[i];
        short events = each->answer != NULL ? POLLOUT : POLLIN;
        keeper->polls[i + 2] = (struct pollfd){.fd = each->socket, .events = events};
    }
    int left = time_left(keeper);
    keeper->paused = false;
    if (poll(keeper->polls, (nfds_t)keeper->count + 2, left) >= 0) return;
    for (size_t i = 0; i < keeper->count + 2; i++)
        keeper->polls[i].revents = 0;
}

static void *keep(void *context) {
    yoke_store_keeper *keeper = context;
    for (;;) {
        wait_for_events(keeper);
        serve_all(keeper);
        if (keeper->end_ns == 0 && keeper->polls[0].revents != 0)
            begin_farewell(keeper);
        else if (keeper->end_ns == 0 && keeper->polls[1].revents != 0)
            accept_one(keeper);
        if (keeper->end_ns != 0 && (keeper->count == 0 || yoke_now_ns() >= keeper->end_ns))
            return NULL;
    }
}

/* Signals are the host program's own threads' affair. */
static int start_thread(yoke_store_keeper *keeper) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int cause = pthread_create(&keeper->thread, NULL, keep, keeper);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    keeper->runs = cause == 0;
    return cause;
}

static yoke_status build(yoke_store_keeper *keeper, const yoke_keeper_options *options, int *own) {
    int pair[2];
    if (strlen(options->run_id) >= sizeof keeper->run_id)
        return FAIL(YOKE_ERROR_ARGUMENT, "the run id has %zu bytes, at most %zu are allowed",
                    strlen(options->run_id), sizeof keeper->run_id - 1);
    memcpy(keeper->run_id, options->run_id, strlen(options->run_id) + 1);
    keeper->token = options->token == NULL ? NULL : strdup(options->token);
    if (options->token != NULL && keeper->token == NULL)
        return FAIL_MEMORY(strlen(options->token) + 1, "the store's token");
    int frame_ms = options->timeout_ms < FRAME_MS ? options->timeout_ms : FRAME_MS;
    keeper->frame_ns = (uint64_t)frame_ms * 1000000u;
    keeper->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (keeper->wake < 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0)
        return FAIL(YOKE_ERROR_SYSTEM, "cannot keep a store: %s", strerror(errno));
    add(keeper, pair[0], true);
    *own = pair[1];
    if (keeper->count == 0) return FAIL_MEMORY(sizeof(yoke_connection), "a store's connection");
    int cause = start_thread(keeper);
    return cause == 0 ? YOKE_OK
                      : FAIL(YOKE_ERROR_SYSTEM, "cannot keep a store: %s", strerror(cause));
}

yoke_status yoke_store_keeper_create(yoke_store_keeper **keeper, const yoke_keeper_options *options,
                                     int *own) {
    *own = -1;
    *keeper = calloc(1, sizeof **keeper);
    if (*keeper == NULL) {
        close(options->listener);
        return FAIL_MEMORY(sizeof **keeper, "a store");
    }
    (*keeper)->listener = options->listener;
    (*keeper)->wake = -1;
    yoke_status status = build(*keeper, options, own);
    if (status == YOKE_OK) return YOKE_OK;
    if (*own >= 0) close(*own);
    *own = -1;
    yoke_store_keeper_destroy(*keeper);
    *keeper = NULL;
    return status;
}

void yoke_store_keeper_destroy(yoke_store_keeper *keeper) {
    if (keeper == NULL) return;
    if (keeper->runs) {
        eventfd_write(keeper->wake, 1);
        pthread_join(keeper->thread, NULL);
    }
    while (keeper->count > 0)
        drop(keeper, 0);
    yoke_store_table_clear(&keeper->table);
    if (keeper->listener >= 0) close(keeper->listener);
    if (keeper->wake >= 0) close(keeper->wake);
    if (keeper->token != NULL) explicit_bzero(keeper->token, strlen(keeper->token));
    free(keeper->token);
    free(keeper);
}
