/* Every rank claims its number and counts itself; the last to come lays out the table of peers and
 * says that all is well. Whoever finds a mistake first says so in the same place, so that all ranks
 * end with one text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "distributed/distributed.h"
#include "distributed/frame.h"

#define OUTCOME "rendezvous/outcome" /* "<status> <text>" */
#define OUTCOME_BYTES (YOKE_ERROR_TEXT_BYTES + 8)
#define PEERS_PART 512 /* of the table: within a value's limit */
#define MISSING_NAMED 16
#define MOMENT_MS 1000

/* What a rank says of itself. The nonce tells threads of one process apart. */
typedef struct claim {
    yoke_peer peer;
    int rank, world;
    uint8_t nonce[YOKE_NONCE_BYTES];
} claim;

typedef struct meeting {
    yoke_store *store;
    claim own;
    uint64_t deadline;
    int timeout_ms;
} meeting;

static void name_claim(char key[64], int rank) {
    snprintf(key, 64, "rendezvous/rank/%d", rank);
}

/* Rounded up: a wait of that long does not end before the deadline. */
static int time_left(uint64_t deadline) {
    uint64_t now = yoke_now_ns();
    return now < deadline ? (int)((deadline - now + 999999u) / 1000000u) : 0;
}

/* What is left of the time all waits share; a question that is answered at once has a moment. */
static void begin_wait(const meeting *here) {
    int left = time_left(here->deadline);
    yoke_store_timeout(here->store, left < MOMENT_MS ? MOMENT_MS : left);
}

/* The claim under a key: MISSING when there is none at the moment. */
static yoke_status look(const meeting *here, const char *key, claim *found) {
    size_t bytes;
    yoke_store_timeout(here->store, 0);
    yoke_status status = yoke_store_wait(here->store, key, found, sizeof *found, &bytes);
    begin_wait(here);
    if (status == YOKE_OK && bytes != sizeof *found)
        return FAIL(YOKE_ERROR_DATA, "%s has %zu bytes: another version of Yoke wrote it", key,
                    bytes);
    found->peer.host[sizeof found->peer.host - 1] = '\0';
    return status == YOKE_ERROR_TIMEOUT ? YOKE_ERROR_MISSING : status;
}

/* Says how it ends, unless somebody did before. Keeps the thread's error. */
static void say_outcome(const meeting *here, yoke_status status, const char *text) {
    char outcome[OUTCOME_BYTES];
    yoke_error error = yoke_error_take(status);
    int length = snprintf(outcome, sizeof outcome, "%d %s", (int)status, text);
    begin_wait(here);
    yoke_store_set(here->store, OUTCOME, outcome, (size_t)length);
    yoke_error_restore(&error);
}

/* The first of a kind stays; the claim of another is `found`. */
static yoke_status claim_key(const meeting *here, const char *key, claim *found) {
    *found = here->own;
    yoke_status status = yoke_store_set(here->store, key, &here->own, sizeof here->own);
    if (status != YOKE_ERROR_ARGUMENT) return status;
    status = look(here, key, found);
    return status == YOKE_ERROR_MISSING ? YOKE_ERROR_TIMEOUT : status;
}

static yoke_status check_rank(const meeting *here) {
    const claim *own = &here->own;
    claim found;
    char key[64];
    name_claim(key, own->rank);
    TRY(claim_key(here, key, &found));
    if (memcmp(found.nonce, own->nonce, sizeof own->nonce) == 0) return YOKE_OK;
    return FAIL(
        YOKE_ERROR_PEER,
        "rank %d came twice: %s:%d and %s:%d; each rank is one process, did two get the same "
        "variables?",
        own->rank, found.peer.host, found.peer.pid, own->peer.host, own->peer.pid);
}

static yoke_status check_world(const meeting *here) {
    const claim *own = &here->own;
    claim found;
    TRY(claim_key(here, "rendezvous/world", &found));
    if (found.world == own->world) return YOKE_OK;
    return FAIL(
        YOKE_ERROR_PEER,
        "rank %d (%s:%d) was told a world of %d, rank %d (%s:%d) one of %d: start all ranks "
        "of a run alike",
        found.rank, found.peer.host, found.peer.pid, found.world, own->rank, own->peer.host,
        own->peer.pid, own->world);
}

/* The world's mistakes first: in a world of another size a rank may well be there twice. */
static yoke_status enter(const meeting *here, int64_t *count) {
    yoke_status status = check_world(here);
    if (status == YOKE_OK) status = check_rank(here);
    if (status == YOKE_ERROR_PEER) say_outcome(here, status, yoke_last_error());
    TRY(status);
    return yoke_store_add(here->store, "rendezvous/count", 1, count);
}

/* The last to come: everybody else's claim is there. */
static yoke_status publish_peers(const meeting *here, yoke_peer *peers) {
    char key[64];
    for (int rank = 0; rank < here->own.world; rank++) {
        claim found;
        name_claim(key, rank);
        yoke_status status = look(here, key, &found);
        TRY(status == YOKE_ERROR_MISSING ? YOKE_ERROR_TIMEOUT : status);
        peers[rank] = found.peer;
    }
    for (int first = 0; first < here->own.world; first += PEERS_PART) {
        int left = here->own.world - first, part = left < PEERS_PART ? left : PEERS_PART;
        snprintf(key, sizeof key, "rendezvous/peers/%d", first);
        TRY(yoke_store_set(here->store, key, &peers[first], (size_t)part * sizeof *peers));
    }
    return YOKE_OK;
}

static yoke_status read_peers(const meeting *here, yoke_peer *peers) {
    for (int first = 0; first < here->own.world; first += PEERS_PART) {
        int left = here->own.world - first, part = left < PEERS_PART ? left : PEERS_PART;
        char key[64];
        size_t bytes, wanted = (size_t)part * sizeof *peers;
        snprintf(key, sizeof key, "rendezvous/peers/%d", first);
        TRY(yoke_store_wait(here->store, key, &peers[first], wanted, &bytes));
        if (bytes != wanted)
            return FAIL(YOKE_ERROR_DATA, "%s has %zu bytes, not %zu", key, bytes, wanted);
        for (int rank = first; rank < first + part; rank++)
            peers[rank].host[sizeof peers[rank].host - 1] = '\0';
    }
    return YOKE_OK;
}

/* "1, 3, 4 and 7 more". Returns how many there are. */
static int list_missing(const meeting *here, char *list, size_t size) {
    int missing = 0;
    list[0] = '\0';
    for (int rank = 0; rank < here->own.world; rank++) {
        claim found;
        char key[64];
        size_t used = strlen(list);
        name_claim(key, rank);
        if (look(here, key, &found) != YOKE_ERROR_MISSING) continue;
        if (missing < MISSING_NAMED)
            snprintf(list + used, size - used, "%s%d", missing == 0 ? "" : ", ", rank);
        missing++;
    }
    size_t used = strlen(list);
    if (missing > MISSING_NAMED)
        snprintf(list + used, size - used, " and %d more", missing - MISSING_NAMED);
    return missing;
}

/* The deadline is over: says so, unless somebody has told another end. */
static void say_missing(const meeting *here) {
    char list[MISSING_NAMED * 12 + 32];
    int missing = list_missing(here, list, sizeof list);
    if (missing == 0) {
        FAIL(YOKE_ERROR_TIMEOUT,
             "all %d ranks came within %d ms, but the last stopped before the meeting ended",
             here->own.world, here->timeout_ms);
    } else {
        FAIL(YOKE_ERROR_TIMEOUT,
             "%d of %d ranks did not come within %d ms: rank%s %s; were they started?", missing,
             here->own.world, here->timeout_ms, missing == 1 ? "" : "s", list);
    }
    say_outcome(here, YOKE_ERROR_TIMEOUT, yoke_last_error());
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

static yoke_status read_outcome(const meeting *here, uint64_t deadline) {
    char outcome[OUTCOME_BYTES] = "", *text;
    size_t bytes;
    yoke_store_timeout(here->store, time_left(deadline));
    TRY(yoke_store_wait(here->store, OUTCOME, outcome, sizeof outcome - 1, &bytes));
    outcome[bytes] = '\0';
    long number = strtol(outcome, &text, 10);
    if (*text != ' ' || !is_status(number))
        return FAIL(YOKE_ERROR_DATA, "%s is \"%s\"", OUTCOME, outcome);
    return number == YOKE_OK ? YOKE_OK : FAIL((yoke_status)number, "%s", text + 1);
}

/* Also at the deadline the store has the last word: all ranks end alike. */
static yoke_status hear_outcome(const meeting *here) {
    yoke_status status = read_outcome(here, here->deadline);
    if (status != YOKE_ERROR_TIMEOUT || yoke_now_ns() < here->deadline) return status;
    say_missing(here);
    return read_outcome(here, yoke_now_ns() + MOMENT_MS * 1000000u);
}

static yoke_status meet(const meeting *here, yoke_peer *peers) {
    int64_t count;
    begin_wait(here);
    TRY(enter(here, &count));
    if (count != here->own.world) {
        TRY(hear_outcome(here));
        begin_wait(here);
        return read_peers(here, peers);
    }
    yoke_status status = publish_peers(here, peers);
    say_outcome(here, status, status == YOKE_OK ? "all came" : yoke_last_error());
    TRY(status);
    return hear_outcome(here);
}

yoke_status yoke_rendezvous(yoke_store *store, const yoke_rank_info *rank, yoke_peer *peers,
                            int timeout_ms) {
    if (rank->world < 1 || rank->rank < 0 || rank->rank >= rank->world)
        return FAIL(YOKE_ERROR_ARGUMENT, "rank %d of a world of %d: 0 to world - 1 is expected",
                    rank->rank, rank->world);
    meeting here;
    memset(&here, 0, sizeof here); /* claims travel whole: no byte is left to chance */
    here.store = store;
    here.timeout_ms = timeout_ms;
    here.deadline = yoke_now_ns() + (uint64_t)timeout_ms * 1000000u;
    here.own.rank = rank->rank;
    here.own.world = rank->world;
    here.own.peer.pid = (int)getpid();
    here.own.peer.local_rank = rank->local_rank;
    if (gethostname(here.own.peer.host, sizeof here.own.peer.host - 1) != 0)
        strcpy(here.own.peer.host, "unknown");
    if (!yoke_nonce_make(here.own.nonce))
        return FAIL(YOKE_ERROR_SYSTEM, "no random numbers for a nonce");
    int before = yoke_store_timeout(store, timeout_ms);
    yoke_status status = meet(&here, peers);
    yoke_store_timeout(store, before);
    return status;
}
