/* SPDX-License-Identifier: Apache-2.0 */
/* Both ends of a DDP contender: this process starts ranks and sends every request to all of them;
 * a rank serves requests until its socket closes. */
#include "cli/compare/compare_ranks.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "cli/cli.h"
#include "cli/compare/rounds.h"

#define GRACE_MS 500 /* after a failure, for replies of other ranks: one of them has the cause */
#define FAREWELL_MS 5000 /* for ranks to destroy their engines */

/* Both ends are one program, so a message is a struct as it lies in memory. */
typedef enum request_kind {
    REQUEST_BUILD, /* the first request, with setup and role */
    REQUEST_LEARN,
    REQUEST_RUN,
    REQUEST_STAGES,
    REQUEST_STEPS,
    REQUEST_STEP,
    REQUEST_READ
} request_kind;

typedef struct rank_request {
    request_kind kind;
    int steps;
    bool fresh;
    compare_step step;
    compare_setup setup;
    compare_role role;
} rank_request;

typedef struct rank_reply {
    yoke_status status;
    char text[1024]; /* of a failure */
    double milliseconds;
    compare_facts facts;
    compare_memory memory;
    compare_learned learned;
    yoke_account account;
    compare_stages stages;
    compare_step step;
    yoke_span_info spans[COMPARE_LANE_SPANS]; /* [step.count]; of STEPS whole steps */
} rank_reply;

typedef enum rank_state { RANK_IDLE, RANK_WAITING, RANK_FAILED, RANK_GONE } rank_state;

typedef struct rank {
    compare_child child;
    rank_state state;
    rank_reply reply;
} rank;

struct compare_ranks {
    const compare_meeting *meeting;
    rank_request request;
    compare_facts facts;
    compare_memory *memory; /* [world] */
    struct pollfd *watched; /* [world] */
    int world;
    rank ranks[];
};

/* Processes. */

/* Runs this program as a rank. */
static yoke_status start_one(compare_ranks *ranks, rank *one) {
    static const char *const words[] = {"yoke", "compare", "--rank-worker", NULL};
    const compare_command command = {
        .program = "/proc/self/exe", .words = words, .socket_type = SOCK_SEQPACKET};
    return compare_child_start(&one->child, ranks->meeting, &command);
}

/* Failures. */

/* One failure makes other ranks fail. The cause is a rank that died, else a rank with an error of
 * its own, else one that lost its peers. */
static int weight(const rank *one) {
    if (one->state == RANK_GONE) return 3;
    if (one->state != RANK_FAILED) return 0;
    yoke_status status = one->reply.status;
    bool lost_peer =
        status == YOKE_ERROR_CANCELLED || status == YOKE_ERROR_PEER || status == YOKE_ERROR_TIMEOUT;
    return lost_peer ? 1 : 2;
}

static yoke_status report_failure(const compare_ranks *ranks) {
    int worst = 0;
    for (int i = 1; i < ranks->world; i++)
        if (weight(&ranks->ranks[i]) > weight(&ranks->ranks[worst])) worst = i;
    const rank *one = &ranks->ranks[worst];
    if (weight(one) == 0) return YOKE_OK;
    if (one->state == RANK_FAILED)
        return cli_refuse(one->reply.status, "rank %d of %d: %s", worst, ranks->world,
                          one->reply.text);
    char end[COMPARE_END_BYTES];
    compare_child_describe_end(&one->child, end);
    return cli_refuse(YOKE_ERROR_PEER, "rank %d of %d (process %d) %s", worst, ranks->world,
                      (int)one->child.pid, end);
}

/* Requests. */

static void receive_reply(rank *one) {
    ssize_t got;
    do {
        got = recv(one->child.socket, &one->reply, sizeof one->reply, 0);
    } while (got < 0 && errno == EINTR);
    if (got != (ssize_t)sizeof one->reply)
        one->state = RANK_GONE;
    else
        one->state = one->reply.status == YOKE_OK ? RANK_IDLE : RANK_FAILED;
}

/* Ranks that owe a reply; *failed when one failed or is gone. */
static int count_waiting(const compare_ranks *ranks, bool *failed) {
    int asked = 0;
    for (int i = 0; i < ranks->world; i++) {
        asked += ranks->ranks[i].state == RANK_WAITING;
        *failed = *failed || ranks->ranks[i].state > RANK_WAITING;
    }
    return asked;
}

static void receive_replies(compare_ranks *ranks) {
    bool failed = false;
    double end = 0;
    while (count_waiting(ranks, &failed) > 0) {
        if (failed && end == 0) end = race_clock() + GRACE_MS * 1e-3;
        int wait_ms = failed ? (int)((end - race_clock()) * 1e3) : -1;
        if (failed && wait_ms <= 0) return;
        for (int i = 0; i < ranks->world; i++) {
            bool asked = ranks->ranks[i].state == RANK_WAITING;
            ranks->watched[i] =
                (struct pollfd){.fd = asked ? ranks->ranks[i].child.socket : -1, .events = POLLIN};
        }
        if (poll(ranks->watched, (nfds_t)ranks->world, wait_ms) < 0) continue;
        for (int i = 0; i < ranks->world; i++)
            if (ranks->watched[i].revents != 0) receive_reply(&ranks->ranks[i]);
    }
}

static yoke_status request_all(compare_ranks *ranks) {
    for (int i = 0; i < ranks->world; i++) {
        rank *one = &ranks->ranks[i];
        ranks->request.role.rank.rank = ranks->request.role.rank.local_rank = i;
        ssize_t sent =
            send(one->child.socket, &ranks->request, sizeof ranks->request, MSG_NOSIGNAL);
        one->state = sent == (ssize_t)sizeof ranks->request ? RANK_WAITING : RANK_GONE;
    }
    receive_replies(ranks);
    return report_failure(ranks);
}

/* Life. */

static void fill_request(compare_ranks *ranks, const compare_setup *setup) {
    yoke_rank_info info = {.struct_size = sizeof info,
                           .source = "yoke compare",
                           .world = ranks->world,
                           .local_world = ranks->world,
                           .nodes = 1};
    snprintf(info.address, sizeof info.address, "file://%s/%d", ranks->meeting->folder,
             ranks->world);
    snprintf(info.run_id, sizeof info.run_id, "%s", strrchr(ranks->meeting->folder, '/') + 1);
    ranks->request = (rank_request){
        .kind = REQUEST_BUILD,
        .setup = *setup,
        .role = {.devices = ranks->world, .schedule = setup->ddp_schedule, .rank = info}};
}

static yoke_status start_all(compare_ranks *ranks) {
    yoke_status status = YOKE_OK;
    for (int i = 0; i < ranks->world && status == YOKE_OK; i++)
        status = start_one(ranks, &ranks->ranks[i]);
    if (status == YOKE_OK) status = request_all(ranks);
    ranks->facts = ranks->ranks[0].reply.facts;
    for (int i = 0; i < ranks->world; i++)
        ranks->memory[i] = ranks->ranks[i].reply.memory;
    return status;
}

yoke_status compare_ranks_start(compare_ranks **ranks, const compare_meeting *meeting,
                                const compare_setup *setup, int world) {
    *ranks = NULL;
    compare_ranks *made = calloc(1, sizeof *made + (size_t)world * sizeof made->ranks[0]);
    if (made == NULL) return cli_refuse(YOKE_ERROR_MEMORY, "no memory for %d ranks", world);
    made->meeting = meeting;
    made->world = world;
    for (int i = 0; i < world; i++)
        made->ranks[i].child.socket = -1;
    made->watched = calloc((size_t)world, sizeof *made->watched);
    made->memory = calloc((size_t)world, sizeof *made->memory);
    fill_request(made, setup);
    yoke_status status = made->watched != NULL && made->memory != NULL
                             ? start_all(made)
                             : cli_refuse(YOKE_ERROR_MEMORY, "no memory for %d ranks", world);
    if (status == YOKE_OK)
        *ranks = made;
    else
        compare_ranks_end(made);
    return status;
}

/* Ranks end when their socket closes; theirs closes when they have ended. */
static void wait_for_ends(compare_ranks *ranks) {
    double end = race_clock() + FAREWELL_MS * 1e-3;
    for (int i = 0; i < ranks->world; i++)
        shutdown(ranks->ranks[i].child.socket, SHUT_WR);
    for (int i = 0; i < ranks->world; i++) {
        struct pollfd last = {.fd = ranks->ranks[i].child.socket, .events = POLLIN};
        int wait_ms = (int)((end - race_clock()) * 1e3);
        (void)poll(&last, 1, wait_ms > 0 ? wait_ms : 0);
    }
}

void compare_ranks_end(compare_ranks *ranks) {
    bool failed = false;
    if (ranks == NULL) return;
    if (ranks->watched != NULL && count_waiting(ranks, &failed) == 0 && !failed)
        wait_for_ends(ranks);
    for (int i = 0; i < ranks->world; i++)
        compare_child_reap(&ranks->ranks[i].child, ranks->meeting);
    free(ranks->memory);
    free(ranks->watched);
    free(ranks);
}

void compare_ranks_describe(const compare_ranks *ranks, compare_facts *facts) {
    *facts = ranks->facts;
}

/* Training, racing, stages. */

yoke_status compare_ranks_learn(compare_ranks *ranks, int steps, compare_learned *learned) {
    ranks->request.kind = REQUEST_LEARN;
    ranks->request.steps = steps;
    yoke_status status = request_all(ranks);
    if (status != YOKE_OK) return status;
    *learned = ranks->ranks[0].reply.learned;
    if (ranks->facts.batch_norm) return YOKE_OK; /* running statistics differ between ranks */
    for (int i = 1; i < ranks->world; i++)
        if (ranks->ranks[i].reply.learned.hash != learned->hash)
            return cli_refuse(YOKE_ERROR_INTERNAL,
                              "rank %d of %d and rank 0 have different weights after %d steps", i,
                              ranks->world, steps);
    return YOKE_OK;
}

yoke_status compare_ranks_run(compare_ranks *ranks, int steps, bool fresh, double *milliseconds) {
    ranks->request.kind = REQUEST_RUN;
    ranks->request.steps = steps;
    ranks->request.fresh = fresh;
    yoke_status status = request_all(ranks);
    *milliseconds = 0;
    for (int i = 0; i < ranks->world; i++) {
        double own = ranks->ranks[i].reply.milliseconds;
        if (own > *milliseconds) *milliseconds = own;
    }
    return status;
}

yoke_status compare_ranks_stages(compare_ranks *ranks, compare_stages *stages) {
    ranks->request.kind = REQUEST_STAGES;
    yoke_status status = request_all(ranks);
    *stages = ranks->ranks[0].reply.stages;
    return status;
}

yoke_status compare_ranks_account(compare_ranks *ranks, yoke_account *lanes) {
    for (int i = 0; i < ranks->world; i++)
        lanes[i] = ranks->ranks[i].reply.account;
    return YOKE_OK;
}

/* Widens the steps of rank 0 to those of the others. */
yoke_status compare_ranks_steps(compare_ranks *ranks, yoke_span_info *steps, int *count) {
    ranks->request.kind = REQUEST_STEPS;
    yoke_status status = request_all(ranks);
    const rank_reply *first = &ranks->ranks[0].reply;
    *count = status == YOKE_OK ? first->step.count : 0;
    memcpy(steps, first->spans, (size_t)*count * sizeof *steps);
    for (int i = 1; i < ranks->world && status == YOKE_OK; i++)
        *count = compare_steps_join(steps, *count, ranks->ranks[i].reply.spans,
                                    ranks->ranks[i].reply.step.count);
    return status;
}

yoke_status compare_ranks_step(compare_ranks *ranks, compare_step *step) {
    yoke_span_info *spans = step->spans;
    ranks->request.kind = REQUEST_STEP;
    ranks->request.step = *step;
    yoke_status status = request_all(ranks);
    if (status != YOKE_OK) return status;
    *step = ranks->ranks[0].reply.step;
    step->spans = spans;
    step->count = step->left_out = 0;
    for (int i = 0; i < ranks->world; i++) {
        rank_reply *reply = &ranks->ranks[i].reply;
        reply->step.spans = reply->spans; /* the pointer came from the rank's process */
        compare_step_join(step, &reply->step, i);
    }
    return YOKE_OK;
}

void compare_ranks_memory(const compare_ranks *ranks, compare_memory *memory) {
    memcpy(memory, ranks->memory, (size_t)ranks->world * sizeof *memory);
}

#define WEIGHTS_PATH_BYTES 288 /* the address and a suffix */

/* Where rank 0 leaves its weights: in the meeting's folder, beside the store. */
static void weights_path(char path[WEIGHTS_PATH_BYTES], const yoke_rank_info *info) {
    snprintf(path, WEIGHTS_PATH_BYTES, "%s.weights", info->address + strlen("file://"));
}

yoke_status compare_ranks_read(compare_ranks *ranks, float *weights, size_t count) {
    char path[WEIGHTS_PATH_BYTES];
    ranks->request.kind = REQUEST_READ;
    yoke_status status = request_all(ranks);
    if (status != YOKE_OK) return status;
    weights_path(path, &ranks->request.role.rank);
    FILE *file = fopen(path, "rb");
    size_t got = file != NULL ? fread(weights, sizeof *weights, count, file) : 0;
    if (file != NULL) fclose(file);
    return got == count ? YOKE_OK
                        : cli_refuse(YOKE_ERROR_IO, "%s has %zu of %zu weights", path, got, count);
}

double compare_ranks_seconds(const compare_ranks *ranks) {
    double seconds = 0;
    for (int i = 0; i < ranks->world; i++)
        seconds += compare_child_seconds(&ranks->ranks[i].child);
    return seconds;
}

/* The other end: a rank. */

static yoke_status leave_weights(compare_engine *engine, const yoke_rank_info *info) {
    char path[WEIGHTS_PATH_BYTES];
    if (info->rank != 0) return YOKE_OK;
    size_t count = compare_weights_count(compare_engine_model(engine));
    float *weights = malloc(count * sizeof *weights);
    if (weights == NULL) return cli_refuse(YOKE_ERROR_MEMORY, "no memory for %zu weights", count);
    yoke_status status = compare_engine_read(engine, weights);
    weights_path(path, info);
    FILE *file = status == YOKE_OK ? fopen(path, "wb") : NULL;
    bool written = file != NULL && fwrite(weights, sizeof *weights, count, file) == count;
    if (file != NULL) written = fclose(file) == 0 && written;
    if (status == YOKE_OK && !written)
        status = cli_refuse(YOKE_ERROR_IO, "cannot write %s: %s", path, strerror(errno));
    free(weights);
    return status;
}

static yoke_status build_engine(compare_engine **engine, const rank_request *request,
                                rank_reply *reply) {
    yoke_status status = compare_engine_create(engine, &request->setup, &request->role);
    if (status != YOKE_OK) return status;
    compare_engine_describe(*engine, &reply->facts);
    return compare_engine_memory(*engine, &reply->memory);
}

static yoke_status run_engine(compare_engine *engine, const rank_request *request,
                              rank_reply *reply) {
    yoke_status status =
        compare_engine_run(engine, request->steps, request->fresh, &reply->milliseconds);
    if (status == YOKE_OK) status = compare_engine_account(engine, &reply->account);
    return status;
}

static yoke_status read_step(compare_engine *engine, const rank_request *request,
                             rank_reply *reply) {
    reply->step = request->step;
    reply->step.spans = reply->spans;
    return compare_engine_step(engine, &reply->step, COMPARE_LANE_SPANS);
}

static yoke_status run_request(compare_engine **engine, const rank_request *request,
                               rank_reply *reply) {
    if (request->kind == REQUEST_BUILD) return build_engine(engine, request, reply);
    if (request->kind == REQUEST_LEARN)
        return compare_engine_learn(*engine, request->steps, &reply->learned);
    if (request->kind == REQUEST_RUN) return run_engine(*engine, request, reply);
    if (request->kind == REQUEST_STEPS)
        return compare_engine_steps(*engine, reply->spans, COMPARE_LANE_SPANS, &reply->step.count);
    if (request->kind == REQUEST_STEP) return read_step(*engine, request, reply);
    if (request->kind == REQUEST_READ) return leave_weights(*engine, &request->role.rank);
    compare_engine_stages(*engine, &reply->stages);
    return YOKE_OK;
}

static ssize_t receive(rank_request *request) {
    ssize_t got;
    do {
        got = recv(COMPARE_CHILD_SOCKET, request, sizeof *request, 0);
    } while (got < 0 && errno == EINTR);
    return got;
}

/* Ends after a failure: the process group is broken. */
static void serve(compare_engine **engine, rank_request *request, rank_reply *reply) {
    while (receive(request) == (ssize_t)sizeof *request) {
        *reply = (rank_reply){0};
        reply->status = run_request(engine, request, reply);
        if (reply->status != YOKE_OK)
            snprintf(reply->text, sizeof reply->text, "%s", cli_failure(reply->status));
        ssize_t sent = send(COMPARE_CHILD_SOCKET, reply, sizeof *reply, MSG_NOSIGNAL);
        if (sent < 0 || reply->status != YOKE_OK) return;
    }
}

static bool has_socket(void) {
    int kind = 0;
    socklen_t size = sizeof kind;
    return getsockopt(COMPARE_CHILD_SOCKET, SOL_SOCKET, SO_TYPE, &kind, &size) == 0 &&
           kind == SOCK_SEQPACKET;
}

int compare_worker(void) {
    compare_engine *engine = NULL;
    if (!has_socket())
        return cli_usage_error("compare",
                               "--rank-worker is for ranks that yoke compare starts itself");
    rank_request *request = calloc(1, sizeof *request);
    rank_reply *reply = calloc(1, sizeof *reply);
    if (request != NULL && reply != NULL) serve(&engine, request, reply);
    compare_engine_destroy(engine);
    free(reply);
    free(request);
    return 0;
}
