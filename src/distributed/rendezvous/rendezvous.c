/* SPDX-License-Identifier: Apache-2.0 */
/* Every rank claims its number; rank 0 waits for all claims, publishes the table of peers, then the
 * outcome. A rank that finds an error publishes it as the outcome, so every rank reports one text.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "distributed/rendezvous/rendezvous.h"
#include "distributed/store/proof.h"

#define OUTCOME "rendezvous/outcome" /* "<status> <text>" */
#define OUTCOME_BYTES (YOKE_ERROR_TEXT_BYTES + 8)
#define PEERS_PART 512 /* ranks per value of the table: fits YOKE_STORE_VALUE_LIMIT */
#define MISSING_NAMED 16
#define REQUEST_MS 1000 /* the deadline of requests that the store answers at once */
#define ANSWER_MS 400   /* what rank 0 and the store get beyond the deadline */
#define LOOK_MS 50 /* from one look at the outcome to the next, while rank 0 waits for claims */

/* Who a rank is. The nonce tells apart threads of one process. */
typedef struct claim {
    yoke_peer peer;
    int rank, world;
    uint8_t nonce[YOKE_NONCE_BYTES];
} claim;

typedef struct rendezvous {
    yoke_store *store;
    claim own;
    uint64_t deadline;
    int timeout_ms;
} rendezvous;

static void name_claim(char key[64], int rank) {
    snprintf(key, 64, "rendezvous/rank/%d", rank);
}

/* The ms until the deadline, rounded up so that a wait does not end before it. */
static int time_left(uint64_t deadline) {
    uint64_t now = yoke_now_ns();
    return now < deadline ? (int)((deadline - now + 999999u) / 1000000u) : 0;
}

/* All waits share one deadline. */
static void begin_wait(const rendezvous *state) {
    int left = time_left(state->deadline);
    yoke_store_timeout(state->store, left < REQUEST_MS ? REQUEST_MS : left);
}

/* MISSING if the key is not set within `timeout_ms`. */
static yoke_status read_claim(const rendezvous *state, const char *key, claim *found,
                              int timeout_ms) {
    size_t bytes;
    yoke_store_timeout(state->store, timeout_ms);
    yoke_status status = yoke_store_wait(state->store, key, found, sizeof *found, &bytes);
    begin_wait(state);
    if (status == YOKE_OK && bytes != sizeof *found)
        return FAIL(YOKE_ERROR_DATA, "%s has %zu bytes: another version of Yoke wrote it", key,
                    bytes);
    found->peer.host[sizeof found->peer.host - 1] = '\0';
    return status == YOKE_ERROR_TIMEOUT ? YOKE_ERROR_MISSING : status;
}

/* Publishes the outcome, unless another rank did so first. Keeps the thread's error. */
static void publish_outcome(const rendezvous *state, yoke_status status, const char *text) {
    char outcome[OUTCOME_BYTES];
    yoke_error error = yoke_error_take(status);
    int length = snprintf(outcome, sizeof outcome, "%d %s", (int)status, text);
    begin_wait(state);
    yoke_store_set(state->store, OUTCOME, outcome, (size_t)length);
    yoke_error_restore(&error);
}

/* Sets the key to this rank's claim; `found` is the first claim of that key. */
static yoke_status claim_key(const rendezvous *state, const char *key, claim *found) {
    *found = state->own;
    yoke_status status = yoke_store_set(state->store, key, &state->own, sizeof state->own);
    if (status != YOKE_ERROR_ARGUMENT) return status;
    status = read_claim(state, key, found, 0);
    return status == YOKE_ERROR_MISSING ? YOKE_ERROR_TIMEOUT : status;
}

static yoke_status check_rank(const rendezvous *state) {
    const claim *own = &state->own;
    claim found;
    char key[64];
    name_claim(key, own->rank);
    TRY(claim_key(state, key, &found));
    if (memcmp(found.nonce, own->nonce, sizeof own->nonce) == 0) return YOKE_OK;
    return FAIL(YOKE_ERROR_PEER,
                "two processes claim rank %d: %s:%d and %s:%d; did both get the same launcher "
                "variables?",
                own->rank, found.peer.host, found.peer.pid, own->peer.host, own->peer.pid);
}

static yoke_status check_world(const rendezvous *state) {
    const claim *own = &state->own;
    claim found;
    TRY(claim_key(state, "rendezvous/world", &found));
    if (found.world == own->world) return YOKE_OK;
    return FAIL(
        YOKE_ERROR_PEER,
        "rank %d (%s:%d) has a world of %d, rank %d (%s:%d) one of %d: start all ranks of a run "
        "with one world size",
        found.rank, found.peer.host, found.peer.pid, found.world, own->rank, own->peer.host,
        own->peer.pid, own->world);
}

/* Compares the world size first: two runs of different sizes claim the same ranks. */
static yoke_status claim_rank(const rendezvous *state) {
    yoke_status status = check_world(state);
    if (status == YOKE_OK) status = check_rank(state);
    if (status == YOKE_ERROR_PEER) publish_outcome(state, status, yoke_last_error());
    return status;
}

static bool outcome_is_known(const rendezvous *state) {
    char outcome[OUTCOME_BYTES];
    size_t bytes;
    yoke_store_timeout(state->store, 0);
    return yoke_store_wait(state->store, OUTCOME, outcome, sizeof outcome, &bytes) == YOKE_OK;
}

/* MISSING: at the deadline, or when another rank has published an error. */
static yoke_status await_claim(const rendezvous *state, int rank, claim *found) {
    char key[64];
    name_claim(key, rank);
    for (;;) {
        int left = time_left(state->deadline);
        yoke_status status = read_claim(state, key, found, left < LOOK_MS ? left : LOOK_MS);
        if (status != YOKE_ERROR_MISSING || left == 0 || outcome_is_known(state)) return status;
    }
}

static yoke_status publish_peers(const rendezvous *state, const yoke_peer *peers) {
    begin_wait(state);
    for (int first = 0; first < state->own.world; first += PEERS_PART) {
        int left = state->own.world - first, part = left < PEERS_PART ? left : PEERS_PART;
        char key[64];
        snprintf(key, sizeof key, "rendezvous/peers/%d", first);
        TRY(yoke_store_set(state->store, key, &peers[first], (size_t)part * sizeof *peers));
    }
    return YOKE_OK;
}

static yoke_status read_peers(const rendezvous *state, yoke_peer *peers) {
    for (int first = 0; first < state->own.world; first += PEERS_PART) {
        int left = state->own.world - first, part = left < PEERS_PART ? left : PEERS_PART;
        char key[64];
        size_t bytes, wanted = (size_t)part * sizeof *peers;
        snprintf(key, sizeof key, "rendezvous/peers/%d", first);
        TRY(yoke_store_wait_root(state->store, key, &peers[first], wanted, &bytes));
        if (bytes != wanted)
            return FAIL(YOKE_ERROR_DATA, "%s has %zu bytes, not %zu", key, bytes, wanted);
        for (int rank = first; rank < first + part; rank++)
            peers[rank].host[sizeof peers[rank].host - 1] = '\0';
    }
    return YOKE_OK;
}

/* "1, 3, 4 and 7 more". Returns the number of missing ranks. */
static int list_missing(const rendezvous *state, char *list, size_t size) {
    int missing = 0;
    list[0] = '\0';
    for (int rank = 0; rank < state->own.world; rank++) {
        claim found;
        char key[64];
        size_t used = strlen(list);
        name_claim(key, rank);
        if (read_claim(state, key, &found, 0) != YOKE_ERROR_MISSING) continue;
        if (missing < MISSING_NAMED)
            snprintf(list + used, size - used, "%s%d", missing == 0 ? "" : ", ", rank);
        missing++;
    }
    size_t used = strlen(list);
    if (missing > MISSING_NAMED)
        snprintf(list + used, size - used, " and %d more", missing - MISSING_NAMED);
    return missing;
}

static bool is_status(long number) {
    switch ((yoke_status)number) {
#define CASE(name, text, exit_code) case name:
        YOKE_STATUS_TABLE(CASE)
#undef CASE
        return true;
    }
    return false;
}

static yoke_status read_outcome(const rendezvous *state, uint64_t deadline) {
    char outcome[OUTCOME_BYTES] = "", *text;
    size_t bytes;
    yoke_store_timeout(state->store, time_left(deadline));
    TRY(yoke_store_wait(state->store, OUTCOME, outcome, sizeof outcome - 1, &bytes));
    outcome[bytes] = '\0';
    long number = strtol(outcome, &text, 10);
    if (*text != ' ' || !is_status(number))
        return FAIL(YOKE_ERROR_DATA, "%s is \"%s\"", OUTCOME, outcome);
    return number == YOKE_OK ? YOKE_OK : FAIL((yoke_status)number, "%s", text + 1);
}

/* The store has this rank's own claim, and says so unless rank 0, which serves it, is stopped. */
static yoke_status check_store(const rendezvous *state) {
    claim found;
    char key[64];
    name_claim(key, state->own.rank);
    yoke_status status = read_claim(state, key, &found, ANSWER_MS);
    if (status != YOKE_ERROR_MISSING) return status;
    return FAIL(YOKE_ERROR_TIMEOUT,
                "rank 0 did not end the rendezvous within %d ms, and the store that it serves does "
                "not answer",
                state->timeout_ms);
}

/* At the deadline, too, the outcome in the store decides, so that all ranks end alike. Rank 0,
 * where it runs, says who is missing; so not every rank asks for every claim. */
static yoke_status await_outcome(const rendezvous *state) {
    uint64_t grace = state->own.rank > 0 ? ANSWER_MS * 1000000u : 0;
    yoke_status status = read_outcome(state, state->deadline + grace);
    if (status != YOKE_ERROR_TIMEOUT || yoke_now_ns() < state->deadline) return status;
    TRY(check_store(state));
    /* No rank has said yet who is missing: publish it. */
    char list[MISSING_NAMED * 12 + 32];
    int missing = list_missing(state, list, sizeof list);
    if (missing == 0) {
        FAIL(YOKE_ERROR_TIMEOUT,
             "all %d ranks joined, but rank 0 did not end the rendezvous within %d ms",
             state->own.world, state->timeout_ms);
    } else {
        FAIL(YOKE_ERROR_TIMEOUT,
             "%d of %d ranks did not join within %d ms: rank%s %s; were they started?", missing,
             state->own.world, state->timeout_ms, missing == 1 ? "" : "s", list);
    }
    publish_outcome(state, YOKE_ERROR_TIMEOUT, yoke_last_error());
    return read_outcome(state, yoke_now_ns() + REQUEST_MS * 1000000u);
}

/* Rank 0 runs this. If claims are missing, await_outcome says why. */
static yoke_status lead(const rendezvous *state, yoke_peer *peers) {
    yoke_status status = YOKE_OK;
    for (int rank = 0; rank < state->own.world && status == YOKE_OK; rank++) {
        claim found;
        status = await_claim(state, rank, &found);
        if (status == YOKE_OK) peers[rank] = found.peer;
    }
    if (status == YOKE_ERROR_MISSING) return await_outcome(state);
    if (status == YOKE_OK) status = publish_peers(state, peers);
    publish_outcome(state, status, status == YOKE_OK ? "all joined" : yoke_last_error());
    TRY(status);
    return await_outcome(state);
}

static yoke_status meet_peers(const rendezvous *state, yoke_peer *peers) {
    begin_wait(state);
    TRY(claim_rank(state));
    if (state->own.rank == 0) return lead(state, peers);
    TRY(await_outcome(state));
    begin_wait(state);
    return read_peers(state, peers);
}

yoke_status yoke_rendezvous(yoke_store *store, const yoke_rank_info *rank, yoke_peer *peers,
                            int timeout_ms) {
    if (rank->world < 1 || rank->rank < 0 || rank->rank >= rank->world)
        return FAIL(YOKE_ERROR_ARGUMENT, "rank %d of a world of %d: 0 to world - 1 is expected",
                    rank->rank, rank->world);
    rendezvous state;
    memset(&state, 0, sizeof state); /* ranks compare claims as bytes, padding included */
    state.store = store;
    state.timeout_ms = timeout_ms;
    state.deadline = yoke_now_ns() + (uint64_t)timeout_ms * 1000000u;
    state.own.rank = rank->rank;
    state.own.world = rank->world;
    state.own.peer.pid = (int)getpid();
    state.own.peer.local_rank = rank->local_rank;
    if (gethostname(state.own.peer.host, sizeof state.own.peer.host - 1) != 0)
        strcpy(state.own.peer.host, "unknown");
    if (!yoke_nonce_make(state.own.nonce))
        return FAIL(YOKE_ERROR_SYSTEM, "cannot make a nonce: getrandom failed");
    int before = yoke_store_timeout(store, timeout_ms);
    yoke_status status = meet_peers(&state, peers);
    yoke_store_timeout(store, before);
    return status;
}

int yoke_peers_elsewhere(const yoke_peer *peers, int world) {
    for (int rank = 1; rank < world; rank++) {
        if (strcmp(peers[rank].host, peers[0].host) != 0) return rank;
    }
    return 0;
}
