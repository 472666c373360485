/* The store keeps what ranks tell each other, for its own run alone: strangers, stale files and
 * silence cost nobody else anything. */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "distributed/distributed.h"
#include "distributed/frame.h"

#define SOON_MS 300      /* for what is expected to pass */
#define PATIENT_MS 20000 /* for what is not */

static char base[64], place[128];

/* What both kinds of store promise is asked of both. */
static const char *kind;

static int make_base(void **state) {
    (void)state;
    strcpy(base, "/tmp/yoke-store-XXXXXX");
    if (mkdtemp(base) == NULL) return -1;
    snprintf(place, sizeof place, "file://%s/run", base);
    return 0;
}

static int remove_base(void **state) {
    (void)state;
    return rmdir(base); /* fails when anything was left behind */
}

static yoke_store *open_store(yoke_store_options options) {
    yoke_store *store;
    if (options.timeout_ms == 0) options.timeout_ms = PATIENT_MS;
    if (yoke_store_create(&store, &options) != YOKE_OK) fail_msg("%s", yoke_last_error());
    return store;
}

/* The address by which others find a keeper. */
static const char *address_of(const yoke_store *keeper) {
    static char address[64];
    if (strcmp(kind, "file") == 0) return place;
    snprintf(address, sizeof address, "tcp://127.0.0.1:%d", yoke_store_port(keeper));
    return address;
}

static yoke_store *keep(const char *run_id, const char *token) {
    return open_store(
        (yoke_store_options){.address = strcmp(kind, "file") == 0 ? place : "tcp://127.0.0.1:0",
                             .serve = true,
                             .run_id = run_id,
                             .token = token});
}

static yoke_store *join(const yoke_store *keeper) {
    return open_store((yoke_store_options){.address = address_of(keeper), .run_id = "run"});
}

static void assert_says(const char *words) {
    if (strstr(yoke_last_error(), words) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", yoke_last_error(), words);
}

static void assert_refused(yoke_store_options options, yoke_status status, const char *words) {
    yoke_store *store;
    if (options.timeout_ms == 0) options.timeout_ms = PATIENT_MS;
    assert_int_equal(yoke_store_create(&store, &options), status);
    assert_null(store);
    assert_says(words);
}

static void assert_value(yoke_store *store, const char *key, const char *wanted) {
    char value[64] = "";
    size_t bytes = 0;
    if (yoke_store_wait(store, key, value, sizeof value, &bytes) != YOKE_OK)
        fail_msg("%s", yoke_last_error());
    assert_int_equal(bytes, strlen(wanted));
    assert_memory_equal(value, wanted, bytes);
}

static void check_values(void) {
    yoke_store *keeper = keep("run", NULL), *other = join(keeper);
    assert_int_equal(yoke_store_set(keeper, "a", "one", 3), YOKE_OK);
    assert_int_equal(yoke_store_set(other, "b/c d", "", 0), YOKE_OK);
    assert_value(other, "a", "one");
    assert_value(keeper, "b/c d", "");
    assert_int_equal(yoke_store_set(other, "a", "one", 3), YOKE_OK);
    assert_int_equal(yoke_store_set(other, "a", "two", 3), YOKE_ERROR_ARGUMENT);
    assert_says("\"a\"");
    assert_says("another value already");
    assert_int_equal(yoke_store_set(other, "a", "onetwo", 6), YOKE_ERROR_ARGUMENT);
    assert_value(other, "a", "one");
    int64_t sum;
    assert_int_equal(yoke_store_add(keeper, "sum", 5, &sum), YOKE_OK);
    assert_int_equal(sum, 5);
    assert_int_equal(yoke_store_add(other, "sum", -7, &sum), YOKE_OK);
    assert_int_equal(sum, -2);
    assert_int_equal(yoke_store_add(other, "a", 1, &sum), YOKE_ERROR_ARGUMENT);
    assert_says("no sum");
    assert_int_equal(yoke_store_add(other, "large", INT64_MAX, &sum), YOKE_OK);
    assert_int_equal(yoke_store_add(other, "large", 1, &sum), YOKE_ERROR_ARGUMENT);
    assert_says("beyond an int64");
    yoke_store_destroy(other);
    yoke_store_destroy(keeper);
}

static void check_limits(void) {
    yoke_store *keeper = keep("run", NULL), *other = join(keeper);
    char *large = malloc(YOKE_STORE_VALUE_LIMIT + 1), *back = malloc(YOKE_STORE_VALUE_LIMIT + 1);
    char key[YOKE_STORE_KEY_LIMIT + 1];
    size_t bytes;
    assert_non_null(large);
    assert_non_null(back);
    for (size_t i = 0; i <= YOKE_STORE_VALUE_LIMIT; i++)
        large[i] = (char)(i * 31);
    memset(key, 'k', sizeof key);
    key[YOKE_STORE_KEY_LIMIT] = '\0';
    assert_int_equal(yoke_store_set(other, key, "x", 1), YOKE_ERROR_ARGUMENT);
    key[YOKE_STORE_KEY_LIMIT - 1] = '\0';
    assert_int_equal(yoke_store_set(other, key, large, YOKE_STORE_VALUE_LIMIT + 1),
                     YOKE_ERROR_ARGUMENT);
    assert_int_equal(yoke_store_set(other, "", "x", 1), YOKE_ERROR_ARGUMENT);
    assert_int_equal(yoke_store_set(other, key, large, YOKE_STORE_VALUE_LIMIT), YOKE_OK);
    assert_int_equal(yoke_store_wait(keeper, key, back, 7, &bytes), YOKE_ERROR_ARGUMENT);
    assert_says("room for 7");
    assert_int_equal(yoke_store_wait(keeper, key, back, YOKE_STORE_VALUE_LIMIT, &bytes), YOKE_OK);
    assert_int_equal(bytes, YOKE_STORE_VALUE_LIMIT);
    assert_memory_equal(back, large, bytes);
    free(large);
    free(back);
    yoke_store_destroy(other);
    yoke_store_destroy(keeper);
}

static void check_deadline(void) {
    yoke_store *keeper = keep("run", NULL), *other = join(keeper);
    char value[8];
    size_t bytes;
    assert_int_equal(yoke_store_timeout(other, 50), PATIENT_MS);
    uint64_t begin = yoke_now_ns();
    assert_int_equal(yoke_store_wait(other, "late", value, sizeof value, &bytes),
                     YOKE_ERROR_CANCELLED);
    assert_true(yoke_now_ns() - begin >= 50 * 1000000u);
    assert_says("\"late\"");
    assert_says("50 ms");
    yoke_store_timeout(other, 0);
    assert_int_equal(yoke_store_wait(other, "late", value, sizeof value, &bytes),
                     YOKE_ERROR_CANCELLED);
    /* The wait that was given up must not answer another question. */
    assert_int_equal(yoke_store_set(keeper, "late", "L", 1), YOKE_OK);
    assert_int_equal(yoke_store_set(keeper, "next", "N", 1), YOKE_OK);
    yoke_store_timeout(other, PATIENT_MS);
    assert_value(other, "next", "N");
    assert_value(other, "late", "L");
    yoke_store_destroy(other);
    yoke_store_destroy(keeper);
}

typedef struct party {
    yoke_store_options options;
    int index;
    int64_t sum;
    yoke_error error;
} party;

static yoke_status speak(party *one, yoke_store *store) {
    char key[32], value[32];
    size_t bytes;
    snprintf(key, sizeof key, "from %d", one->index);
    TRY(yoke_store_set(store, key, key, strlen(key)));
    for (int i = 0; i < 20; i++)
        TRY(yoke_store_add(store, "sum", 1, &one->sum));
    snprintf(key, sizeof key, "from %d", (one->index + 1) % 4);
    return yoke_store_wait(store, key, value, sizeof value, &bytes);
}

static void *run_party(void *context) {
    party *one = context;
    yoke_store *store;
    yoke_status status = yoke_store_create(&store, &one->options);
    if (status == YOKE_OK) status = speak(one, store);
    one->error = yoke_error_take(status);
    yoke_store_destroy(store);
    return NULL;
}

static void check_parties(void) {
    yoke_store *keeper = keep("run", NULL);
    party parties[4] = {0};
    pthread_t threads[4];
    int64_t sum;
    const char *address = address_of(keeper);
    for (int i = 0; i < 4; i++) {
        parties[i].index = i;
        parties[i].options =
            (yoke_store_options){.address = address, .run_id = "run", .timeout_ms = PATIENT_MS};
        assert_int_equal(pthread_create(&threads[i], NULL, run_party, &parties[i]), 0);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 4; i++) {
        if (parties[i].error.status != YOKE_OK) fail_msg("%s", parties[i].error.text);
    }
    assert_int_equal(yoke_store_add(keeper, "sum", 0, &sum), YOKE_OK);
    assert_int_equal(sum, 80);
    yoke_store_destroy(keeper);
}

static void *destroy_soon(void *store) {
    poll(NULL, 0, 30);
    yoke_store_destroy(store);
    return NULL;
}

/* The keeper leaves while another waits. */
static void check_farewell(void) {
    yoke_store *keeper = keep("run", NULL), *other = join(keeper);
    char value[8];
    size_t bytes;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, destroy_soon, keeper), 0);
    assert_int_equal(yoke_store_wait(other, "never", value, sizeof value, &bytes),
                     YOKE_ERROR_CANCELLED);
    assert_says("has left");
    assert_int_not_equal(yoke_store_set(other, "a", "b", 1), YOKE_OK);
    yoke_store_destroy(other);
    pthread_join(thread, NULL);
}

static void check_other_run(void) {
    yoke_store *keeper = keep("run", NULL);
    assert_refused((yoke_store_options){.address = address_of(keeper), .run_id = "other"},
                   YOKE_ERROR_ARGUMENT, "run");
    yoke_store *other = join(keeper);
    yoke_store_destroy(other);
    yoke_store_destroy(keeper);
}

static void on_both(void (*check)(void)) {
    kind = "tcp";
    check();
    kind = "file";
    check();
}

static void values_are_set_once_and_sums_add(void **state) {
    (void)state;
    on_both(check_values);
}

static void keys_and_values_have_limits(void **state) {
    (void)state;
    on_both(check_limits);
}

static void a_wait_ends_at_its_deadline_and_names_the_key(void **state) {
    (void)state;
    on_both(check_deadline);
}

static void many_speak_at_once(void **state) {
    (void)state;
    on_both(check_parties);
}

static void who_waits_learns_that_the_keeper_left(void **state) {
    (void)state;
    on_both(check_farewell);
}

static void another_run_is_refused(void **state) {
    (void)state;
    on_both(check_other_run);
}

static void a_token_is_proven_both_ways(void **state) {
    (void)state;
    kind = "tcp";
    yoke_store *keeper = keep("run", "secret");
    yoke_store_options options = {.address = address_of(keeper), .run_id = "run"};
    assert_refused(options, YOKE_ERROR_ARGUMENT, "token");
    options.token = "wrong";
    assert_refused(options, YOKE_ERROR_ARGUMENT, "token");
    options.token = "secret";
    yoke_store *other = open_store(options);
    assert_int_equal(yoke_store_set(other, "a", "b", 1), YOKE_OK);
    assert_value(keeper, "a", "b");
    yoke_store_destroy(other);
    yoke_store_destroy(keeper);
}

/* A keeper that welcomes whoever comes. */
static int listen_anywhere(int *port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(listener, 8), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &length), 0);
    *port = ntohs(at.sin_port);
    return listener;
}

static void *pretend(void *context) {
    int connection = accept4(*(int *)context, NULL, NULL, SOCK_CLOEXEC);
    uint8_t frame[YOKE_FRAME_HEADER_BYTES + YOKE_NONCE_BYTES] = {0}, hello[256];
    yoke_frame_write(frame, (yoke_frame){.type = YOKE_FRAME_CHALLENGE, .length = YOKE_NONCE_BYTES});
    send(connection, frame, sizeof frame, MSG_NOSIGNAL);
    recv(connection, hello, sizeof hello, 0);
    yoke_frame_write(frame, (yoke_frame){.type = YOKE_FRAME_WELCOME, .length = YOKE_SHA256_BYTES});
    /* The newcomer's own proof sent back is no keeper's. */
    memcpy(frame + YOKE_FRAME_HEADER_BYTES, hello + YOKE_FRAME_HEADER_BYTES + YOKE_NONCE_BYTES,
           YOKE_SHA256_BYTES);
    send(connection, frame, sizeof frame, MSG_NOSIGNAL);
    recv(connection, hello, sizeof hello, 0);
    close(connection);
    return NULL;
}

static void a_false_keeper_is_found_out(void **state) {
    (void)state;
    int port, listener = listen_anywhere(&port);
    char address[64];
    pthread_t thread;
    snprintf(address, sizeof address, "tcp://127.0.0.1:%d", port);
    assert_int_equal(pthread_create(&thread, NULL, pretend, &listener), 0);
    assert_refused((yoke_store_options){.address = address, .run_id = "run", .token = "secret"},
                   YOKE_ERROR_ARGUMENT, "does not know the token");
    pthread_join(thread, NULL);
    close(listener);
}

static void *greet_in_http(void *context) {
    static const char text[] = "HTTP/1.1 400 Bad Request\r\n\r\n";
    int connection = accept4(*(int *)context, NULL, NULL, SOCK_CLOEXEC);
    send(connection, text, sizeof text - 1, MSG_NOSIGNAL);
    char byte;
    recv(connection, &byte, 1, 0);
    close(connection);
    return NULL;
}

static void another_service_at_the_port_is_told(void **state) {
    (void)state;
    int port, listener = listen_anywhere(&port);
    char address[64];
    pthread_t thread;
    snprintf(address, sizeof address, "tcp://127.0.0.1:%d", port);
    assert_int_equal(pthread_create(&thread, NULL, greet_in_http, &listener), 0);
    assert_refused((yoke_store_options){.address = address, .run_id = "run"}, YOKE_ERROR_ARGUMENT,
                   "no store");
    pthread_join(thread, NULL);
    /* Nobody accepts, then nobody listens. */
    yoke_store_options soon = {.address = address, .run_id = "run", .timeout_ms = SOON_MS};
    assert_refused(soon, YOKE_ERROR_CANCELLED, "rank 0");
    close(listener);
    assert_refused(soon, YOKE_ERROR_CANCELLED, "Connection refused");
}

static void without_a_token_only_this_machine_is_spoken_to(void **state) {
    (void)state;
    const bool serves[] = {false, true};
    for (int i = 0; i < 2; i++) {
        yoke_store_options options = {
            .address = "tcp://192.0.2.1:29500", .run_id = "run", .serve = serves[i]};
        assert_refused(options, YOKE_ERROR_ARGUMENT, "guard it with a token");
    }
    yoke_store_options elsewhere = {
        .address = "tcp://192.0.2.1:29500", .run_id = "run", .serve = true, .token = "secret"};
    assert_refused(elsewhere, YOKE_ERROR_ARGUMENT, "no address of this machine");
    kind = "tcp";
    elsewhere.address = "tcp://0.0.0.0:0";
    yoke_store *keeper = open_store(elsewhere);
    yoke_store *other = open_store(
        (yoke_store_options){.address = address_of(keeper), .run_id = "run", .token = "secret"});
    yoke_store_destroy(other);
    yoke_store_destroy(keeper);
}

static void a_busy_port_is_named_with_its_owner(void **state) {
    (void)state;
    int port, listener = listen_anywhere(&port);
    char address[64], pid[32];
    snprintf(address, sizeof address, "tcp://127.0.0.1:%d", port);
    snprintf(pid, sizeof pid, "pid %ld", (long)getpid());
    yoke_store_options options = {.address = address, .run_id = "run", .serve = true};
    assert_refused(options, YOKE_ERROR_SYSTEM, pid);
    assert_says("is taken by");
    close(listener);
    yoke_store *keeper = open_store(options);
    assert_int_equal(yoke_store_port(keeper), port);
    yoke_store_destroy(keeper);
}

static void wrong_addresses_say_what_is_expected(void **state) {
    (void)state;
    static const char *const pairs[][2] = {
        {"udp://a:1", "tcp://host:port or file:///path"},
        {"tcp://127.0.0.1", ":port"},
        {"tcp://127.0.0.1:70000", "65535"},
        {"tcp://:29500", "no host"},
        {"tcp://[::1]:", ":port"},
        {"tcp://127.0.0.1:0", "only who keeps"},
        {"tcp://no.such.host.invalid:1", "no.such.host.invalid"},
        {"file://run", "absolute path"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        assert_refused((yoke_store_options){.address = pairs[i][0], .run_id = "run"},
                       YOKE_ERROR_ARGUMENT, pairs[i][1]);
    assert_refused((yoke_store_options){.address = "tcp://127.0.0.1:1", .token = ""},
                   YOKE_ERROR_ARGUMENT, "token is empty");
    assert_refused((yoke_store_options){.address = NULL}, YOKE_ERROR_ARGUMENT, "address is NULL");
}

/* Strangers. */

static int knock(const yoke_store *keeper) {
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                             .sin_port = htons((uint16_t)yoke_store_port(keeper))};
    int stranger = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(stranger >= 0);
    assert_int_equal(connect(stranger, (struct sockaddr *)&at, sizeof at), 0);
    return stranger;
}

/* Reads past the challenge to the end. */
static void assert_dropped(int stranger) {
    struct pollfd wait = {.fd = stranger, .events = POLLIN};
    char bytes[256];
    ssize_t got;
    do {
        assert_int_equal(poll(&wait, 1, PATIENT_MS), 1);
        got = recv(stranger, bytes, sizeof bytes, 0);
    } while (got > 0);
    close(stranger);
}

static yoke_store *keep_shortly(void) {
    kind = "tcp";
    return open_store((yoke_store_options){
        .address = "tcp://127.0.0.1:0", .serve = true, .run_id = "run", .timeout_ms = SOON_MS});
}

static void assert_serves(yoke_store *keeper) {
    yoke_store *other = join(keeper);
    assert_int_equal(yoke_store_set(other, "still", "here", 4), YOKE_OK);
    assert_value(keeper, "still", "here");
    yoke_store_destroy(other);
}

static void garbage_and_oversized_frames_are_dropped(void **state) {
    (void)state;
    yoke_store *keeper = keep_shortly();
    uint8_t frames[6][YOKE_FRAME_HEADER_BYTES + 128];
    memset(frames, 0x5a, sizeof frames);
    yoke_frame_write(frames[1], (yoke_frame){.type = YOKE_FRAME_HELLO, .length = 1u << 30});
    yoke_frame_write(frames[2], (yoke_frame){.type = YOKE_FRAME_HELLO, .length = 65536});
    yoke_frame_write(frames[3], (yoke_frame){.type = YOKE_FRAME_SET, .length = 128});
    yoke_frame_write(frames[4], (yoke_frame){.type = YOKE_FRAME_HELLO, .length = 0});
    yoke_frame_write(frames[5], (yoke_frame){.type = YOKE_FRAME_HELLO, .length = 128});
    frames[5][5] = 9; /* version */
    for (int i = 0; i < 6; i++) {
        int stranger = knock(keeper);
        send(stranger, frames[i], sizeof frames[i], MSG_NOSIGNAL);
        assert_dropped(stranger);
        assert_serves(keeper);
    }
    yoke_store_destroy(keeper);
}

/* With a proof, and then beyond the limits. */
static void a_rank_gone_wild_is_dropped(void **state) {
    (void)state;
    yoke_store *keeper = keep_shortly();
    for (int i = 0; i < 4; i++) {
        uint8_t bytes[512] = {0}, *payload = bytes + YOKE_FRAME_HEADER_BYTES;
        yoke_greeting greeting = {.run_id = "run"};
        int wild = knock(keeper);
        recv(wild, bytes, YOKE_FRAME_HEADER_BYTES + YOKE_NONCE_BYTES, MSG_WAITALL);
        memcpy(greeting.nonces, payload, YOKE_NONCE_BYTES);
        memset(payload, 0, YOKE_NONCE_BYTES);
        yoke_proof_make(&greeting, false, payload + YOKE_NONCE_BYTES);
        memcpy(payload + 64, "run", 3);
        yoke_frame_write(bytes, (yoke_frame){.type = YOKE_FRAME_HELLO, .length = 67});
        send(wild, bytes, YOKE_FRAME_HEADER_BYTES + 67, MSG_NOSIGNAL);
        recv(wild, bytes, YOKE_FRAME_HEADER_BYTES + YOKE_SHA256_BYTES, MSG_WAITALL);
        assert_int_equal(bytes[7], YOKE_FRAME_WELCOME);
        const yoke_frame wrong[] = {{.type = YOKE_FRAME_SET, .length = 65537},
                                    {.type = YOKE_FRAME_SET, .length = 300},
                                    {.type = YOKE_FRAME_ADD, .length = 5},
                                    {.type = 77, .length = 5}};
        memset(bytes, 'k', sizeof bytes); /* a key without an end, in the second */
        yoke_frame_write(bytes, wrong[i]);
        if (i >= 2) memcpy(payload, "key\0x", 5);
        send(wild, bytes, i == 1 ? YOKE_FRAME_HEADER_BYTES + 300 : YOKE_FRAME_HEADER_BYTES + 5,
             MSG_NOSIGNAL);
        assert_dropped(wild);
        assert_serves(keeper);
    }
    yoke_store_destroy(keeper);
}

static void a_slow_or_half_open_stranger_is_dropped_at_the_deadline(void **state) {
    (void)state;
    yoke_store *keeper = keep_shortly();
    int silent = knock(keeper), slow = knock(keeper);
    uint8_t hello[YOKE_FRAME_HEADER_BYTES];
    yoke_frame_write(hello, (yoke_frame){.type = YOKE_FRAME_HELLO, .length = 100});
    for (int i = 0; i < 4; i++) {
        send(slow, hello + i, 1, MSG_NOSIGNAL);
        poll(NULL, 0, 20);
    }
    assert_serves(keeper);
    uint64_t begin = yoke_now_ns();
    assert_dropped(silent);
    assert_dropped(slow);
    assert_true(yoke_now_ns() - begin < (uint64_t)PATIENT_MS * 500000u);
    assert_serves(keeper);
    yoke_store_destroy(keeper);
}

static void two_hundred_quick_connections_hold_nobody_up(void **state) {
    (void)state;
    yoke_store *keeper = keep("run", NULL);
    int strangers[200];
    for (int i = 0; i < 200; i++)
        strangers[i] = knock(keeper);
    assert_serves(keeper);
    for (int i = 0; i < 200; i++)
        close(strangers[i]);
    assert_serves(keeper);
    yoke_store_destroy(keeper);
}

/* Files. */

static int count_files(const char *folder) {
    DIR *directory = opendir(folder);
    int count = 0;
    if (directory == NULL) return -1;
    for (struct dirent *each; (each = readdir(directory)) != NULL;)
        count += each->d_name[0] != '.';
    closedir(directory);
    return count;
}

static const char *run_folder(void) {
    return place + strlen("file://");
}

static void keep_and_die(const char *run_id) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        yoke_store *keeper;
        yoke_store_options options = {
            .address = place, .serve = true, .run_id = run_id, .timeout_ms = PATIENT_MS};
        if (yoke_store_create(&keeper, &options) == YOKE_OK)
            yoke_store_set(keeper, "left", "behind", 6);
        raise(SIGKILL);
    }
    waitpid(child, NULL, 0);
    assert_true(count_files(run_folder()) > 0);
}

static void what_a_dead_run_left_is_seen_and_replaced(void **state) {
    (void)state;
    kind = "file";
    static const char *const runs[] = {"old", "run"};
    for (int i = 0; i < 2; i++) {
        keep_and_die(runs[i]);
        assert_refused(
            (yoke_store_options){.address = place, .run_id = "run", .timeout_ms = SOON_MS},
            YOKE_ERROR_CANCELLED, runs[i]);
        assert_says("has ended");
        yoke_store *keeper = keep("run", NULL);
        char value[8];
        size_t bytes;
        yoke_store_timeout(keeper, 0);
        assert_int_equal(yoke_store_wait(keeper, "left", value, sizeof value, &bytes),
                         YOKE_ERROR_CANCELLED);
        yoke_store_timeout(keeper, PATIENT_MS);
        assert_serves(keeper);
        yoke_store_destroy(keeper);
        assert_int_equal(count_files(run_folder()), -1);
    }
}

static void a_living_runs_folder_is_not_taken(void **state) {
    (void)state;
    kind = "file";
    yoke_store *keeper = keep("run", NULL);
    char pid[32];
    snprintf(pid, sizeof pid, ":%ld", (long)getpid());
    assert_refused((yoke_store_options){.address = place, .serve = true, .run_id = "second"},
                   YOKE_ERROR_ARGUMENT, pid);
    assert_refused((yoke_store_options){.address = place, .serve = true, .run_id = "run"},
                   YOKE_ERROR_ARGUMENT, pid);
    assert_serves(keeper);
    yoke_store_destroy(keeper);
}

static void the_last_one_removes_a_dead_keepers_files(void **state) {
    (void)state;
    kind = "file";
    int ready[2];
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        yoke_store *keeper;
        yoke_store_options options = {
            .address = place, .serve = true, .run_id = "run", .timeout_ms = PATIENT_MS};
        bool made = yoke_store_create(&keeper, &options) == YOKE_OK;
        if (made && write(ready[1], "k", 1) == 1) pause();
        _exit(1);
    }
    close(ready[1]);
    char byte;
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    yoke_store *first = join(NULL), *second = join(NULL);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    size_t bytes;
    assert_int_equal(yoke_store_wait(first, "never", &byte, 1, &bytes), YOKE_ERROR_CANCELLED);
    assert_says("has left");
    yoke_store_destroy(first);
    assert_true(count_files(run_folder()) > 0);
    yoke_store_destroy(second);
    assert_int_equal(count_files(run_folder()), -1);
}

static void a_folder_that_others_may_write_is_refused(void **state) {
    (void)state;
    kind = "file";
    yoke_store_options options = {.address = place, .serve = true, .run_id = "run"};
    assert_int_equal(mkdir(run_folder(), 0700), 0);
    assert_int_equal(chmod(run_folder(), 0777), 0);
    assert_refused(options, YOKE_ERROR_ARGUMENT, "a folder of its own");
    assert_int_equal(rmdir(run_folder()), 0);
    int file = open(run_folder(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(file >= 0);
    close(file);
    assert_refused(options, YOKE_ERROR_ARGUMENT, "is no folder");
    assert_int_equal(unlink(run_folder()), 0);
}

static void no_descriptor_is_left(void **state) {
    (void)state;
    int before = count_files("/proc/self/fd");
    on_both(check_values);
    kind = "tcp";
    yoke_store *keeper = keep("run", "secret");
    assert_refused((yoke_store_options){.address = address_of(keeper), .run_id = "run"},
                   YOKE_ERROR_ARGUMENT, "token");
    yoke_store_destroy(keeper);
    assert_int_equal(count_files("/proc/self/fd"), before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_set_once_and_sums_add),
        cmocka_unit_test(keys_and_values_have_limits),
        cmocka_unit_test(a_wait_ends_at_its_deadline_and_names_the_key),
        cmocka_unit_test(many_speak_at_once),
        cmocka_unit_test(who_waits_learns_that_the_keeper_left),
        cmocka_unit_test(another_run_is_refused),
        cmocka_unit_test(a_token_is_proven_both_ways),
        cmocka_unit_test(a_false_keeper_is_found_out),
        cmocka_unit_test(another_service_at_the_port_is_told),
        cmocka_unit_test(without_a_token_only_this_machine_is_spoken_to),
        cmocka_unit_test(a_busy_port_is_named_with_its_owner),
        cmocka_unit_test(wrong_addresses_say_what_is_expected),
        cmocka_unit_test(garbage_and_oversized_frames_are_dropped),
        cmocka_unit_test(a_rank_gone_wild_is_dropped),
        cmocka_unit_test(a_slow_or_half_open_stranger_is_dropped_at_the_deadline),
        cmocka_unit_test(two_hundred_quick_connections_hold_nobody_up),
        cmocka_unit_test(what_a_dead_run_left_is_seen_and_replaced),
        cmocka_unit_test(a_living_runs_folder_is_not_taken),
        cmocka_unit_test(the_last_one_removes_a_dead_keepers_files),
        cmocka_unit_test(a_folder_that_others_may_write_is_refused),
        cmocka_unit_test(no_descriptor_is_left),
    };
    return cmocka_run_group_tests(tests, make_base, remove_base);
}
