/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/launch/launch_survival.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/control.h"

/* Memory without a name, which ends with the launcher. Ranks open it through the launcher. */
int launch_roll_make(launch_plan *plan) {
    if (plan->roll_memory > 0) close(plan->roll_memory);
    plan->roll[0] = '\0';
    if (plan->min_ranks == 0) return -1;
    plan->roll_memory = memfd_create("yoke-roll", MFD_CLOEXEC);
    if (plan->roll_memory < 0) return cli_system_error("cannot make the roll of the ranks");
    snprintf(plan->roll, sizeof plan->roll, "/proc/%d/fd/%d", (int)getpid(), plan->roll_memory);
    return -1;
}

bool launch_goes_on(launch_session *session, launch_worker *worker, const char *how) {
    launch_plan *plan = session->start.plan;
    char then[80] = "";
    bool enough = session->done > 0 || session->alive >= plan->min_ranks;
    if (plan->min_ranks == 0 || !enough || session->ending != 0 || session->killed) return false;
    bool may = session->done == 0 && worker->code != yoke_status_exit_code(YOKE_ERROR_ARGUMENT);
    worker->comes_again = may && plan->restart + plan->returns < plan->max_restarts;
    if (worker->comes_again)
        snprintf(then, sizeof then, "; starting it again (%d of %d)",
                 plan->restart + ++plan->returns, plan->max_restarts);
    launch_sink_print(session->start.err, "yoke: rank %d %s; the other %d go%s on%s", worker->rank,
                      how, session->alive, session->alive == 1 ? "es" : "", then);
    return true;
}

/* Its children end with it, and what it wrote last is shown. */
static void clear(launch_session *session, launch_worker *worker) {
    launch_stream *streams[] = {&worker->out, &worker->err};
    launch_worker_signal(worker, SIGKILL);
    for (int i = 0; i < 2; i++) {
        launch_read got = LAUNCH_MORE;
        while (streams[i]->descriptor >= 0 && got == LAUNCH_MORE &&
               launch_stream_may_read(streams[i]))
            got = launch_stream_read(streams[i], session->start.err, &session->lost);
    }
    if (worker->pid > 0) launch_guard_remove(&session->guard, worker->pid);
    launch_worker_reap(worker);
}

void launch_start_again(launch_session *session) {
    for (int i = 0; i < session->count; i++) {
        launch_worker *worker = &session->workers[i];
        if (!worker->comes_again) continue;
        worker->comes_again = false;
        clear(session, worker);
        launch_worker_prepare(worker, &session->start, worker->rank);
        if (launch_worker_open_logs(worker, &session->start) < 0) launch_start_one(session, worker);
    }
}

/* Another number of ranks. */

bool launch_left(launch_session *session, const launch_worker *worker) {
    if (worker->leaves)
        launch_sink_print(session->start.err, "yoke: rank %d (pid %d) is out; %d go%s on",
                          worker->rank, (int)worker->pid, session->alive,
                          session->alive == 1 ? "es" : "");
    return worker->leaves;
}

/* A rank that does not start is no failure of those that run. */
static void add(launch_session *session, int rank) {
    launch_worker *worker = &session->workers[rank];
    if (rank == session->count)
        session->start.plan->nproc = ++session->count;
    else
        clear(session, worker);
    launch_worker_prepare(worker, &session->start, rank);
    if (launch_worker_open_logs(worker, &session->start) >= 0) return;
    int cause = launch_try_one(session, worker);
    if (cause == 0)
        launch_sink_print(session->start.err, "yoke: started rank %d (pid %d)", rank,
                          (int)worker->pid);
    else
        launch_sink_print(session->start.err, "yoke: rank %d did not start: %s", rank,
                          strerror(cause));
}

/* The others go on as after its death: a rank has nothing that they lack. */
static void drop(launch_worker *worker) {
    worker->leaves = true;
    launch_worker_signal(worker, SIGKILL);
}

static bool stays(const launch_session *session, int rank) {
    if (rank >= session->count) return false;
    const launch_worker *worker = &session->workers[rank];
    return launch_worker_is_alive(worker) && !worker->leaves;
}

static int count_ranks(const launch_session *session) {
    int count = 0;
    for (int rank = 0; rank < session->count; rank++)
        count += stays(session, rank);
    return count;
}

static void change_ranks(launch_session *session, int ranks) {
    const launch_plan *plan = session->start.plan;
    int more = ranks - count_ranks(session);
    for (int i = 0; i < plan->max_ranks && more > 0; i++) {
        bool is_free = i >= session->count || !launch_worker_is_alive(&session->workers[i]);
        if (!is_free) continue;
        add(session, i);
        more--;
    }
    for (int i = session->count - 1; i >= 0 && more < 0; i--) {
        if (!stays(session, i)) continue;
        drop(&session->workers[i]);
        more++;
    }
}

/* Why there cannot be so many; empty: there can. */
static void check(const launch_session *session, int ranks, char text[CONTROL_BYTES]) {
    const launch_plan *plan = session->start.plan;
    bool ends = session->done > 0 || session->ending != 0 || session->killed ||
                session->failed != NULL || session->alive == 0;
    if (ends)
        snprintf(text, CONTROL_BYTES, "its ranks are about to end");
    else if (ranks == 0)
        snprintf(text, CONTROL_BYTES, "launches ranks, with a device each: give --ranks");
    else if (ranks < plan->min_ranks)
        snprintf(text, CONTROL_BYTES, "%d ranks are fewer than its --min-ranks, %d", ranks,
                 plan->min_ranks);
    else if (ranks > plan->max_ranks)
        snprintf(text, CONTROL_BYTES, "%d ranks are more than its --max-ranks, %d", ranks,
                 plan->max_ranks);
}

static int answer(const char *request, char text[CONTROL_BYTES], void *context) {
    launch_session *session = context;
    int ranks = 0, before = count_ranks(session);
    (void)sscanf(request, "ranks %d", &ranks);
    check(session, ranks, text);
    if (text[0] != '\0') return yoke_status_exit_code(YOKE_ERROR_ARGUMENT);
    change_ranks(session, ranks);
    if (count_ranks(session) < ranks) {
        snprintf(text, CONTROL_BYTES, "%d of %d ranks run: the launcher says why",
                 count_ranks(session), ranks);
        return yoke_status_exit_code(YOKE_ERROR_SYSTEM);
    }
    session->wanted = ranks;
    snprintf(text, CONTROL_BYTES, "goes on with %d rank%s instead of %d", ranks,
             ranks == 1 ? "" : "s", before);
    return 0;
}

void launch_resize(launch_session *session) {
    control_serve(session->control, answer, session);
}
