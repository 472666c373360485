/* A rank: builds the engine it is told to, and obeys until the other end of its socket is closed.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "cli.h"
#include "compare_ranks.h"

static yoke_status obey(compare_engine **engine, const compare_request *request,
                        compare_answer *answer) {
    if (request->word == COMPARE_BUILD) {
        yoke_status status = compare_engine_create(engine, &request->setup, &request->role);
        if (status == YOKE_OK) compare_engine_describe(*engine, &answer->facts);
        return status;
    }
    if (request->word == COMPARE_LEARN)
        return compare_engine_learn(*engine, request->steps, &answer->learned);
    if (request->word == COMPARE_RUN)
        return compare_engine_run(*engine, request->steps, request->fresh, &answer->milliseconds);
    compare_engine_stages(*engine, &answer->stages);
    return YOKE_OK;
}

static ssize_t hear(compare_request *request) {
    ssize_t got;
    do {
        got = recv(COMPARE_WORKER_SOCKET, request, sizeof *request, 0);
    } while (got < 0 && errno == EINTR);
    return got;
}

/* A failure is the last answer: the group is broken then. */
static void serve(compare_engine **engine, compare_request *request, compare_answer *answer) {
    while (hear(request) == (ssize_t)sizeof *request) {
        *answer = (compare_answer){0};
        answer->status = obey(engine, request, answer);
        if (answer->status != YOKE_OK)
            snprintf(answer->text, sizeof answer->text, "%s", cli_failure(answer->status));
        ssize_t sent = send(COMPARE_WORKER_SOCKET, answer, sizeof *answer, MSG_NOSIGNAL);
        if (sent < 0 || answer->status != YOKE_OK) return;
    }
}

static bool has_socket(void) {
    int kind = 0;
    socklen_t size = sizeof kind;
    return getsockopt(COMPARE_WORKER_SOCKET, SOL_SOCKET, SO_TYPE, &kind, &size) == 0 &&
           kind == SOCK_SEQPACKET;
}

int compare_worker(void) {
    compare_engine *engine = NULL;
    if (!has_socket())
        return cli_usage_error("compare", "--rank-worker is what yoke compare starts itself");
    compare_request *request = calloc(1, sizeof *request);
    compare_answer *answer = calloc(1, sizeof *answer);
    if (request != NULL && answer != NULL) serve(&engine, request, answer);
    compare_engine_destroy(engine);
    free(answer);
    free(request);
    return 0;
}
