/* SPDX-License-Identifier: Apache-2.0 */
/* The loop of a run: waits for deaths, signals, output and deadlines in one poll, and handles each
 * as it comes. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/base.h"
#include "cli/launch/launch_memory.h"
#include "cli/launch/launch_survival.h"

#define LINGER_NS 500000000u /* for children that outlive their worker to finish writing */
#define LOOK_NS 1000000000u  /* between two looks at workers that may be stopped */
#define LOOKS 3              /* that find them so, before they count as lost */

void launch_signal_all(launch_session *session, int number) {
    for (int i = 0; i < session->count; i++)
        launch_worker_signal(&session->workers[i], number);
}

static void kill_all(launch_session *session) {
    session->killed = true;
    session->kill_ns = 0;
    launch_signal_all(session, SIGKILL);
}

/* A stopped worker cannot end, and the others would wait for it until they are killed themselves,
 * before they have saved. */
static void kill_stopped(launch_session *session) {
    for (int i = 0; i < session->count; i++) {
        launch_worker *worker = &session->workers[i];
        if (!launch_worker_is_alive(worker) || !launch_worker_is_stopped(worker)) continue;
        if (!worker->given_up)
            launch_sink_print(session->start.err,
                              "yoke: rank %d (pid %d) is stopped, and cannot end: sending SIGKILL",
                              worker->rank, (int)worker->pid);
        worker->given_up = true;
        launch_worker_signal(worker, SIGKILL);
    }
    session->look_ns = yoke_now_ns() + LOOK_NS;
}

/* What follows does not prolong it. */
static void begin_grace(launch_session *session) {
    if (session->kill_ns != 0 || session->killed) return;
    session->kill_ns = yoke_now_ns() + (uint64_t)(session->start.flags->grace_s * 1e9);
    kill_stopped(session);
}

/* Ends of workers. */

void launch_fail(launch_session *session, launch_worker *worker, const char *how) {
    char others[32] = "";
    if (session->failed != NULL) return;
    session->failed = worker;
    int others_alive = session->alive - launch_worker_is_alive(worker);
    if (others_alive > 0) snprintf(others, sizeof others, "; stopping the other %d", others_alive);
    launch_sink_print(session->start.err, "yoke: rank %d %s%s", worker->rank, how, others);
    /* A program may take a second signal as the order to end without saving. */
    if (session->ending == 0) launch_signal_all(session, SIGTERM);
    begin_grace(session);
}

/* The kernel counts the kill before the process ends. */
static const char *explain_kill(const launch_session *session, const launch_worker *worker) {
    bool is_kill = worker->killed && worker->code == 128 + SIGKILL;
    if (!is_kill || session->memory_kills < 0) return "";
    return launch_memory_kills() > session->memory_kills
               ? ", probably out of memory: the kernel has killed a process of this control group "
                 "for lack of it; try a smaller batch or a higher limit"
               : "";
}

/* Ranks that took SIGUSR1 or SIGUSR2 as the order to end have not failed: that ends the run. */
static bool ended_as_told(launch_session *session, int code) {
    if (session->passed == 0 || code != 128 + session->passed) return false;
    if (session->ending == 0) session->ending = session->passed;
    begin_grace(session);
    return true;
}

static void check_exit(launch_session *session, launch_worker *worker) {
    char how[256];
    int code = worker->code;
    bool expected = session->ending != 0 &&
                    (code == 128 + session->ending || session->killed || worker->given_up);
    session->done += code == 0;
    if (code == 0 || expected || ended_as_told(session, code)) return;
    const char *name = worker->killed ? launch_signal_name(code - 128) : NULL;
    if (name != NULL)
        snprintf(how, sizeof how, "(pid %d) died of SIG%s%s%s", (int)worker->pid, name,
                 worker->core_dumped ? " (core dumped)" : "", explain_kill(session, worker));
    else
        snprintf(how, sizeof how, "(pid %d) exited with code %d", (int)worker->pid, code);
    if (!launch_left(session, worker) && !launch_goes_on(session, worker, how))
        launch_fail(session, worker, how);
}

/* epoll reports deaths in the order in which they happened, so the first failure read is the cause,
 * even when other ranks died of it in the meantime. */
static void read_deaths(launch_session *session) {
    struct epoll_event dead[64];
    int count = epoll_wait(session->deaths, dead, 64, 0);
    for (int i = 0; i < count; i++) {
        launch_worker *worker = dead[i].data.ptr;
        launch_worker_end(worker);
        session->alive--;
        check_exit(session, worker);
    }
    launch_start_again(session);
    if (session->alive == 0) session->end_ns = yoke_now_ns() + LINGER_NS;
    if (count > 0) session->look_ns = yoke_now_ns() + LOOK_NS;
}

/* A worker that is alive and stopped, if all that are alive are stopped. */
static launch_worker *find_stopped(launch_session *session) {
    launch_worker *stopped = NULL;
    for (int i = 0; i < session->count; i++) {
        launch_worker *worker = &session->workers[i];
        if (!launch_worker_is_alive(worker)) continue;
        if (!launch_worker_is_stopped(worker)) return NULL;
        stopped = worker;
    }
    return stopped;
}

/* Some workers have ended, or were asked to. A worker that is stopped on its way out misses no
 * other rank, so none reports it, and the run would last for ever. */
static void look_for_stopped(launch_session *session) {
    if (session->kill_ns != 0 || session->killed) {
        kill_stopped(session);
        return;
    }
    launch_worker *stopped = find_stopped(session);
    session->stopped = stopped != NULL ? session->stopped + 1 : 0;
    session->look_ns = yoke_now_ns() + LOOK_NS;
    if (session->stopped < LOOKS) return;
    char how[80];
    snprintf(how, sizeof how, "(pid %d) is stopped, and no other rank runs here",
             (int)stopped->pid);
    launch_fail(session, stopped, how);
}

/* Signals. */

static void end_on_signal(launch_session *session, int number) {
    const char *name = launch_signal_name(number), *plural = session->alive == 1 ? "" : "s";
    if (++session->presses > 1) {
        kill_all(session);
    } else if (session->failed != NULL) { /* the ranks have their SIGTERM, and rank 0 may save */
        launch_sink_print(session->start.err,
                          "yoke: SIG%s: %d rank%s had SIGTERM already; a second signal kills at "
                          "once",
                          name, session->alive, plural);
    } else {
        session->ending = number;
        launch_sink_print(session->start.err,
                          "yoke: passed SIG%s on to %d rank%s, to end within %g s; a second "
                          "signal kills at once",
                          name, session->alive, plural, session->start.flags->grace_s);
        launch_signal_all(session, number);
        begin_grace(session);
    }
}

static void read_signals(launch_session *session) {
    struct signalfd_siginfo info;
    while (read(session->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        int number = (int)info.ssi_signo;
        if (number == SIGUSR1 || number == SIGUSR2) {
            session->passed = number;
            launch_signal_all(session, number);
        } else {
            end_on_signal(session, number);
        }
    }
}

/* Time. */

static bool is_over(uint64_t deadline, uint64_t now) {
    return deadline != 0 && now >= deadline;
}

static int milliseconds_until(uint64_t deadline, uint64_t now) {
    if (deadline == 0) return -1;
    return now >= deadline ? 0 : (int)((deadline - now + 999999u) / 1000000u);
}

static void keep_time(launch_session *session) {
    uint64_t now = yoke_now_ns();
    if (session->alive == 0) return;
    if (is_over(session->look_ns, now)) look_for_stopped(session);
    if (!is_over(session->kill_ns, now)) return;
    launch_sink_print(session->start.err,
                      "yoke: %d rank%s did not end within %g s: sending SIGKILL", session->alive,
                      session->alive == 1 ? "" : "s", session->start.flags->grace_s);
    kill_all(session);
}

/* Output. */

static launch_stream *stream_of(launch_session *session, int index) {
    launch_worker *worker = &session->workers[index / 2];
    return index % 2 == 0 ? &worker->out : &worker->err;
}

static bool any_open(launch_session *session) {
    for (int i = 0; i < 2 * session->count; i++)
        if (stream_of(session, i)->descriptor >= 0) return true;
    return false;
}

/* All workers have ended and the time for their children is over: reads what is left in the pipes.
 */
static void read_last(launch_session *session) {
    for (int i = 0; i < 2 * session->count; i++) {
        launch_stream *stream = stream_of(session, i);
        launch_read got = LAUNCH_MORE;
        while (stream->descriptor >= 0 && got == LAUNCH_MORE && launch_stream_may_read(stream))
            got = launch_stream_read(stream, session->start.err, &session->lost);
        if (got == LAUNCH_NOTHING || session->presses > 1) launch_stream_close(stream);
    }
}

/* The loop. */

static struct pollfd watch_for(int descriptor, short events, bool wanted) {
    return (struct pollfd){.fd = wanted ? descriptor : -1, .events = events};
}

static void wait_for_any(launch_session *session, bool last) {
    struct pollfd *watched = session->watched;
    uint64_t now = yoke_now_ns();
    uint64_t kill = session->kill_ns, look = session->look_ns;
    uint64_t deadline = kill == 0 || (look != 0 && look < kill) ? look : kill;
    if (session->alive == 0) deadline = session->end_ns;
    watched[LAUNCH_SIGNALS] = watch_for(session->signals, POLLIN, true);
    watched[LAUNCH_DEATHS] = watch_for(session->deaths, POLLIN, session->alive > 0);
    watched[LAUNCH_CONTROL] = watch_for(session->control, POLLIN, session->control >= 0);
    for (int i = 0; i < 2; i++)
        watched[LAUNCH_SINKS + i] = watch_for(session->sinks[i].descriptor, POLLOUT,
                                              !launch_sink_is_empty(&session->sinks[i]));
    for (int i = 0; i < 2 * session->count; i++) {
        const launch_stream *stream = stream_of(session, i);
        watched[LAUNCH_WATCHED + i] =
            watch_for(stream->descriptor, POLLIN,
                      !last && stream->descriptor >= 0 && launch_stream_may_read(stream));
    }
    poll(watched, LAUNCH_WATCHED + 2 * (nfds_t)session->count,
         last ? -1 : milliseconds_until(deadline, now));
}

static void serve(launch_session *session, bool last) {
    const struct pollfd *watched = session->watched;
    int streams = 2 * session->count; /* that were watched */
    if (watched[LAUNCH_SIGNALS].revents != 0) read_signals(session);
    if (watched[LAUNCH_DEATHS].revents != 0) read_deaths(session);
    for (int i = 0; i < streams && !last; i++) {
        if (watched[LAUNCH_WATCHED + i].revents != 0)
            launch_stream_read(stream_of(session, i), session->start.err, &session->lost);
    }
    if (watched[LAUNCH_CONTROL].revents != 0) launch_resize(session);
    for (int i = 0; i < 2; i++)
        launch_sink_write(&session->sinks[i]);
    keep_time(session);
}

static bool is_written(const launch_session *session) {
    return session->presses > 1 ||
           (launch_sink_is_empty(&session->sinks[0]) && launch_sink_is_empty(&session->sinks[1]));
}

void launch_watch(launch_session *session) {
    bool last = false;
    if (session->alive == 0) session->end_ns = yoke_now_ns();
    while (session->alive > 0 || any_open(session) || !is_written(session)) {
        wait_for_any(session, last);
        serve(session, last);
        bool patient = session->presses < 2 && !is_over(session->end_ns, yoke_now_ns());
        if (session->alive > 0 || (any_open(session) && patient && !last)) continue;
        if (!last) launch_signal_all(session, SIGKILL);
        last = true;
        read_last(session);
    }
}
