/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the ranks of this machine: opens what they need, starts them, and returns the exit code. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/control.h"
#include "cli/launch/launch_memory.h"
#include "cli/launch/launch_session.h"
#include "cli/launch/launch_survival.h"

#define NOT_FOUND_EXIT 127 /* as in shells */
#define NOT_STARTED_EXIT 126

/* Opening. */

/* Opens closed standard streams, so that no later descriptor gets the number of one. */
static void fill_standard_streams(void) {
    int descriptor;
    do {
        descriptor = open("/dev/null", O_RDWR);
    } while (descriptor >= 0 && descriptor <= STDERR_FILENO);
    if (descriptor >= 0) close(descriptor);
}

static int open_signals(launch_session *session) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        struct sigaction found;
        sigaction(numbers[i], NULL, &found);
        if (found.sa_handler != SIG_IGN)
            sigaddset(&set, numbers[i]); /* nohup ignores SIGHUP: so do the ranks */
    }
    sigprocmask(SIG_BLOCK, &set, &session->start.mask);
    signal(SIGCHLD, SIG_DFL); /* if ignored, the kernel keeps no exit code of a worker */
    session->start.on_pipe = signal(SIGPIPE, SIG_IGN);
    session->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    session->deaths = epoll_create1(EPOLL_CLOEXEC);
    return session->signals < 0 || session->deaths < 0 ? cli_system_error("cannot watch workers")
                                                       : -1;
}

static int open_log_folder(const launch_flags *flags) {
    if (flags->log_dir == NULL || mkdir(flags->log_dir, 0777) == 0) return -1;
    bool exists = errno == EEXIST;
    int cause = exists ? yoke_file_check_links(flags->log_dir) : errno;
    if (exists && cause != EACCES) return -1; /* the logs show what else is wrong */
    fprintf(stderr, "yoke: %s: cannot create the folder: %s\n", flags->log_dir, strerror(cause));
    return yoke_status_exit_code(YOKE_ERROR_IO);
}

/* A verb runs this very file; execvp searches the PATH for other programs. */
static int choose_program(launch_start *start, char **argv, char path[4096]) {
    static char own_name[] = "yoke";
    start->command = argv + 1;
    start->program = argv[1];
    if (cli_find_verb(argv[1]) == NULL) return -1;
    ssize_t length = readlink("/proc/self/exe", path, 4095);
    if (length < 0) return cli_system_error("cannot read /proc/self/exe");
    path[length] = '\0';
    start->program = path;
    start->command = argv;
    argv[0] = own_name;
    return -1;
}

static int open_session(launch_session *session, char *folder) {
    int code = open_log_folder(session->start.flags);
    if (code < 0) code = open_signals(session);
    struct stat out, err;
    bool same = fstat(STDOUT_FILENO, &out) == 0 && fstat(STDERR_FILENO, &err) == 0 &&
                out.st_dev == err.st_dev && out.st_ino == err.st_ino;
    session->sinks[0].descriptor = STDOUT_FILENO;
    session->sinks[1].descriptor = STDERR_FILENO;
    session->start.out = &session->sinks[0];
    /* Two streams to one file share a sink, so that lines stay whole. */
    session->start.err = &session->sinks[same ? 0 : 1];
    size_t most =
        (size_t)(session->start.plan->max_ranks > session->count ? session->start.plan->max_ranks
                                                                 : session->count);
    session->workers = calloc(most, sizeof *session->workers);
    session->watched = calloc(LAUNCH_WATCHED + 2 * most, sizeof *session->watched);
    if (code < 0 && (session->workers == NULL || session->watched == NULL))
        code = cli_system_error("no memory for the workers");
    /* With several nodes or a port the ranks meet at host and port. */
    const launch_plan *plan = session->start.plan;
    if (code < 0 && plan->nodes <= 1 && plan->port <= 0)
        code = launch_folder_make(folder, "launch");
    if (code >= 0) return code;
    code = launch_guard_start(&session->guard, folder);
    if (code >= 0) rmdir(folder);
    return code;
}

/* One attempt. */

/* A port for programs that meet over TCP. The kernel picks a free one at bind; rank 0 takes it
 * later. */
static int find_free_port(void) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof address;
    int probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), port = 0;
    if (probe >= 0 && bind(probe, (struct sockaddr *)&address, sizeof address) == 0 &&
        getsockname(probe, (struct sockaddr *)&address, &length) == 0)
        port = ntohs(address.sin_port);
    if (probe >= 0) close(probe);
    return port;
}

static int choose_place(launch_plan *plan, bool own_port, const char *folder) {
    if (!own_port) return -1;
    snprintf(plan->store, sizeof plan->store, "file://%s/%d", folder, plan->restart);
    plan->port = find_free_port();
    return plan->port > 0 ? -1 : cli_system_error("cannot find a free port");
}

int launch_try_one(launch_session *session, launch_worker *worker) {
    struct epoll_event death = {.events = EPOLLIN, .data = {.ptr = worker}};
    int cause = launch_worker_start(worker, &session->start);
    if (cause == 0 && epoll_ctl(session->deaths, EPOLL_CTL_ADD, worker->death, &death) != 0)
        cause = errno;
    if (cause != 0) return cause;
    launch_guard_add(&session->guard, worker->pid);
    session->alive++;
    return 0;
}

void launch_start_one(launch_session *session, launch_worker *worker) {
    int cause = launch_try_one(session, worker);
    if (cause == 0) return;
    char how[512];
    snprintf(how, sizeof how, "did not start: %.400s: %s", session->start.program, strerror(cause));
    worker->code = cause == ENOENT ? NOT_FOUND_EXIT : NOT_STARTED_EXIT;
    session->not_started = true;
    launch_fail(session, worker, how);
}

static void start_all(launch_session *session) {
    for (int i = 0; i < session->count && session->failed == NULL; i++)
        launch_start_one(session, &session->workers[i]);
}

static void print_failure(launch_session *session) {
    const launch_worker *worker = session->failed;
    launch_sink *errors = session->start.err;
    if (worker == NULL || session->not_started) return;
    if (worker->err.tail_bytes > 0) {
        launch_sink_print(errors, "yoke: last lines of rank %d:", worker->rank);
        launch_sink_print_tail(errors, &worker->err);
    }
    if (session->start.flags->log_dir != NULL)
        launch_sink_print(errors, "yoke: all lines: %s", worker->err.path);
}

/* Starts all ranks, waits for them and returns the exit code. */
static int run_once(launch_session *session) {
    int first = session->start.plan->node_rank * session->count, code = -1;
    session->failed = NULL;
    session->alive = session->done = 0;
    session->killed = false;
    session->kill_ns = session->end_ns = session->look_ns = 0;
    session->stopped = 0;
    session->memory_kills = launch_memory_kills();
    for (int i = 0; i < session->count; i++)
        launch_worker_prepare(&session->workers[i], &session->start, first + i);
    for (int i = 0; i < session->count && code < 0; i++)
        code = launch_worker_open_logs(&session->workers[i], &session->start);
    if (code < 0) {
        start_all(session);
        launch_watch(session);
        print_failure(session);
        code = session->failed == NULL ? 0 : session->failed->code;
    }
    for (int i = 0; i < session->count; i++) {
        launch_worker *worker = &session->workers[i];
        if (worker->pid > 0) launch_guard_remove(&session->guard, worker->pid);
        launch_worker_reap(worker);
    }
    return session->ending != 0 ? 128 + session->ending : code;
}

static int run_attempts(launch_session *session, launch_plan *plan, const char *folder) {
    bool own_port = folder[0] != '\0';
    for (;;) {
        int code = choose_place(plan, own_port, folder);
        if (code < 0) code = launch_roll_make(plan);
        if (code >= 0) return code;
        code = run_once(session);
        bool failed = session->failed != NULL && !session->not_started && session->presses == 0;
        if (!failed || plan->restart + plan->returns >= plan->max_restarts) return code;
        plan->restart++;
        session->count = plan->nproc = session->wanted;
        launch_sink_print(session->start.err, "yoke: restarting all ranks (%d of %d)",
                          plan->restart + plan->returns, plan->max_restarts);
    }
}

/* End. */

static int check_output(launch_session *session, int code) {
    int lost = 0;
    for (int i = 0; i < 2; i++) {
        launch_sink_write(&session->sinks[i]);
        if (session->sinks[i].cause != EPIPE) lost = lost == 0 ? session->sinks[i].cause : lost;
    }
    if (lost != 0)
        fprintf(stderr, "yoke: cannot write the output of the ranks: %s\n", strerror(lost));
    return code == 0 && (lost != 0 || session->lost) ? yoke_status_exit_code(YOKE_ERROR_IO) : code;
}

int launch_run(launch_plan *plan, const launch_flags *flags, char **argv) {
    char folder[LAUNCH_FOLDER_BYTES] = "", path[4096];
    fill_standard_streams();
    launch_session *session = calloc(1, sizeof *session);
    if (session == NULL) return cli_system_error("no memory for the workers");
    session->count = session->wanted = plan->nproc;
    session->start = (launch_start){.plan = plan, .flags = flags, .launcher = getpid()};
    int code = choose_program(&session->start, argv, path);
    if (code < 0) code = open_session(session, folder);
    if (code < 0) {
        session->control = plan->min_ranks > 0 ? control_open() : -1;
        code = run_attempts(session, plan, folder);
        control_close(session->control);
        code = check_output(session, code);
    }
    launch_guard_end(&session->guard);
    free(session->watched);
    free(session->workers);
    free(session);
    return code;
}
