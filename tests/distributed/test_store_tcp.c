/* SPDX-License-Identifier: Apache-2.0 */
/* The TCP store serves its own run alone: strangers, false keepers and silent connections cost
 * the others nothing. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>

#include "distributed/store/frame.h"
#include "distributed/store/proof.h"
#include "store_check.h"

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
    yoke_frame_write(frame, (yoke_frame){.type = YOKE_FRAME_WELCOME, .length = YOKE_PROOF_BYTES});
    /* The newcomer's own proof sent back is no keeper's. */
    memcpy(frame + YOKE_FRAME_HEADER_BYTES, hello + YOKE_FRAME_HEADER_BYTES + YOKE_NONCE_BYTES,
           YOKE_PROOF_BYTES);
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

static void another_service_at_the_port_is_reported(void **state) {
    (void)state;
    int port, listener = listen_anywhere(&port);
    char address[64];
    pthread_t thread;
    snprintf(address, sizeof address, "tcp://127.0.0.1:%d", port);
    assert_int_equal(pthread_create(&thread, NULL, greet_in_http, &listener), 0);
    assert_refused((yoke_store_options){.address = address, .run_id = "run"}, YOKE_ERROR_ARGUMENT,
                   "not a store");
    pthread_join(thread, NULL);
    /* Nobody accepts, then nobody listens. */
    yoke_store_options soon = {.address = address, .run_id = "run", .timeout_ms = SOON_MS};
    assert_refused(soon, YOKE_ERROR_TIMEOUT, "rank 0");
    close(listener);
    assert_refused(soon, YOKE_ERROR_TIMEOUT, "Connection refused");
}

static void without_a_token_only_this_machine_is_spoken_to(void **state) {
    (void)state;
    const bool serves[] = {false, true};
    for (int i = 0; i < 2; i++) {
        yoke_store_options options = {
            .address = "tcp://192.0.2.1:29500", .run_id = "run", .serve = serves[i]};
        assert_refused(options, YOKE_ERROR_ARGUMENT, "set a token");
    }
    yoke_store_options elsewhere = {
        .address = "tcp://192.0.2.1:29500", .run_id = "run", .serve = true, .token = "secret"};
    assert_refused(elsewhere, YOKE_ERROR_ARGUMENT, "not an address of this machine");
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
        {"tcp://:29500", "a host is expected"},
        {"tcp://[::1]:", ":port"},
        {"tcp://127.0.0.1:0", "only for the rank that serves"},
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

/* Greets with a proof of the token and the run. Returns the bytes of the reply's payload. */
static uint32_t greet(int stranger, const char *token, const char *run_id, uint16_t *type) {
    uint8_t bytes[256] = {0}, *payload = bytes + YOKE_FRAME_HEADER_BYTES;
    yoke_handshake handshake = {.token = token, .run_id = run_id};
    size_t length = YOKE_NONCE_BYTES + YOKE_PROOF_BYTES + strlen(run_id);
    recv(stranger, bytes, YOKE_FRAME_HEADER_BYTES + YOKE_NONCE_BYTES, MSG_WAITALL);
    memcpy(handshake.nonces, payload, YOKE_NONCE_BYTES);
    memset(payload, 0, YOKE_NONCE_BYTES);
    yoke_proof_make(&handshake, false, payload + YOKE_NONCE_BYTES);
    memcpy(payload + YOKE_NONCE_BYTES + YOKE_PROOF_BYTES, run_id, strlen(run_id));
    yoke_frame_write(bytes, (yoke_frame){.type = YOKE_FRAME_HELLO, .length = (uint32_t)length});
    send(stranger, bytes, YOKE_FRAME_HEADER_BYTES + length, MSG_NOSIGNAL);
    yoke_frame reply = {0};
    assert_int_equal(recv(stranger, bytes, YOKE_FRAME_HEADER_BYTES, MSG_WAITALL),
                     YOKE_FRAME_HEADER_BYTES);
    assert_true(yoke_frame_read(bytes, &reply));
    *type = reply.type;
    return reply.length;
}

static void a_stranger_learns_nothing_from_a_refusal(void **state) {
    (void)state;
    kind = "tcp";
    static const struct {
        const char *token, *guess, *run_id;
        bool told;
    } cases[] = {{NULL, NULL, "other", false},
                 {"secret", "guessed", "run", false},
                 {"secret", "guessed", "other", false},
                 {"secret", "secret", "other", true}};
    for (int i = 0; i < 4; i++) {
        yoke_store *keeper = keep("run", cases[i].token);
        uint16_t type;
        int stranger = knock(keeper);
        uint32_t bytes = greet(stranger, cases[i].guess, cases[i].run_id, &type);
        assert_int_equal(type, YOKE_FRAME_REFUSED);
        assert_int_equal(bytes > 0, cases[i].told);
        assert_dropped(stranger);
        yoke_store_destroy(keeper);
    }
}

static void a_store_for_one_process_listens_nowhere(void **state) {
    (void)state;
    yoke_store *alone = open_store(
        (yoke_store_options){.address = YOKE_STORE_ALONE, .serve = true, .run_id = "run"});
    assert_int_equal(yoke_store_port(alone), 0);
    assert_int_equal(yoke_store_set(alone, "a", "b", 1), YOKE_OK);
    assert_value(alone, "a", "b");
    yoke_store_destroy(alone);
}

static yoke_store *keep_shortly(void) {
    kind = "tcp";
    return open_store((yoke_store_options){
        .address = "tcp://127.0.0.1:0", .serve = true, .run_id = "run", .timeout_ms = SOON_MS});
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
        uint16_t type;
        int wild = knock(keeper);
        recv(wild, bytes, greet(wild, NULL, "run", &type), MSG_WAITALL);
        assert_int_equal(type, YOKE_FRAME_WELCOME);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_token_is_proven_both_ways),
        cmocka_unit_test(a_false_keeper_is_found_out),
        cmocka_unit_test(another_service_at_the_port_is_reported),
        cmocka_unit_test(without_a_token_only_this_machine_is_spoken_to),
        cmocka_unit_test(a_busy_port_is_named_with_its_owner),
        cmocka_unit_test(wrong_addresses_say_what_is_expected),
        cmocka_unit_test(a_stranger_learns_nothing_from_a_refusal),
        cmocka_unit_test(a_store_for_one_process_listens_nowhere),
        cmocka_unit_test(garbage_and_oversized_frames_are_dropped),
        cmocka_unit_test(a_rank_gone_wild_is_dropped),
        cmocka_unit_test(a_slow_or_half_open_stranger_is_dropped_at_the_deadline),
        cmocka_unit_test(two_hundred_quick_connections_hold_nobody_up),
    };
    return cmocka_run_group_tests(tests, make_base, remove_base);
}
