/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/launch/launch_survival.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cli/cli.h"

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
    launch_guard_remove(&session->guard, worker->pid);
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
