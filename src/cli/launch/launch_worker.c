/* SPDX-License-Identifier: Apache-2.0 */
/* A worker leads a process group, so that a signal reaches all its children; it dies with the
 * launcher. */
#include "cli/launch/launch_worker.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/launch/launch_environment.h"

#define LOOK_MS 200 /* between two looks at a program that does not begin */

/* Output. */

/* first: an earlier run's lines go. */
static int open_log(launch_stream *stream, const launch_start *start, bool first, int rank,
                    const char *kind) {
    const char *folder = start->flags->log_dir;
    if (folder == NULL) return -1;
    snprintf(stream->path, sizeof stream->path, "%s/rank_%d.%s", folder, rank, kind);
    stream->log = yoke_file_append(stream->path);
    bool begins = stream->log >= 0 && first;
    if (begins && ftruncate(stream->log, 0) != 0) errno = 0; /* a pipe has no length */
    if (stream->log >= 0) return -1;
    fprintf(stderr, "yoke: %s: cannot write the log: %s\n", stream->path,
            errno == ENXIO ? "it is a FIFO that nobody reads; remove it" : strerror(errno));
    return yoke_status_exit_code(YOKE_ERROR_IO);
}

void launch_worker_prepare(launch_worker *worker, const launch_start *start, int rank) {
    /* Whoever is rank 0 at the end prints the result, and the others nothing. */
    bool listed = launch_is_listed(start->flags->log_ranks, rank) || start->flags->tee ||
                  start->plan->min_ranks > 0;
    worker->rank = rank;
    worker->pid = 0;
    worker->given_up = worker->leaves = false;
    worker->death = worker->out.descriptor = worker->err.descriptor = -1;
    worker->out.log = worker->err.log = -1;
    worker->out.sink = listed ? start->out : NULL;
    worker->err.sink = start->err;
    worker->out.bytes = worker->err.bytes = 0;
    worker->out.tail_bytes = worker->err.tail_bytes = 0;
    if (rank > 0 || start->flags->tee)
        snprintf(worker->prefix, sizeof worker->prefix, "[rank %d] ", rank);
    worker->out.prefix = worker->err.prefix = worker->prefix;
}

int launch_worker_open_logs(launch_worker *worker, const launch_start *start) {
    bool first = worker->starts++ == 0;
    int code = open_log(&worker->out, start, first, worker->rank, "out");
    return code >= 0 ? code : open_log(&worker->err, start, first, worker->rank, "err");
}

/* Rank 0 writes to a terminal itself, so that it can draw a progress bar there. */
static bool is_direct(const launch_worker *worker, const launch_stream *stream) {
    return worker->prefix[0] == '\0' && stream->log < 0 && stream->sink != NULL &&
           isatty(stream->sink->descriptor);
}

/* The worker's end of a stream; -1 with errno. */
static int open_end(const launch_worker *worker, launch_stream *stream) {
    int ends[2];
    if (is_direct(worker, stream)) return fcntl(stream->sink->descriptor, F_DUPFD_CLOEXEC, 3);
    if (stream->sink == NULL && stream->log < 0) return open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (pipe2(ends, O_CLOEXEC) != 0) return -1;
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    stream->descriptor = ends[0];
    return ends[1];
}

/* Rank 0 reads a pipe on standard input. A terminal would stop it: its process group is not in the
 * foreground. */
static int open_input(const launch_worker *worker) {
    if (worker->rank == 0 && !isatty(STDIN_FILENO)) return fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
    return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/* The process. */

/* Becomes the program; if exec fails, sends errno through `failure`. Never returns. */
static void become(const launch_worker *worker, const launch_start *start, const int ends[3],
                   int failure) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != start->launcher) _exit(1); /* the launcher died before prctl */
    for (int i = 0; i < 3; i++)
        dup2(ends[i], i);
    launch_variable list[LAUNCH_VARIABLES];
    int count = launch_variables(start->plan, worker->rank, list);
    for (int i = 0; i < count; i++) {
        if (list[i].value[0] == '\0')
            unsetenv(list[i].name);
        else
            setenv(list[i].name, list[i].value, 1);
    }
    signal(SIGPIPE, start->on_pipe);
    sigprocmask(SIG_SETMASK, &start->mask, NULL);
    execvp(start->program, start->command);
    int cause = errno;
    if (write(failure, &cause, sizeof cause) < 0) _exit(126);
    _exit(127);
}

/* Waits until the program runs: exec closes the pipe. Returns 0, or the errno of exec. A process
 * that is stopped before exec must not stop the launcher; one on a slow disk takes its time. */
static int wait_for_program(const launch_worker *worker, int pipe) {
    struct pollfd look = {.fd = pipe, .events = POLLIN};
    int cause = 0, ready;
    do {
        ready = poll(&look, 1, LOOK_MS);
    } while (ready < 0 ? errno == EINTR : ready == 0 && !launch_worker_is_stopped(worker));
    ssize_t got = ready > 0 ? read(pipe, &cause, sizeof cause) : 0;
    return got == (ssize_t)sizeof cause ? cause : 0;
}

static int fork_worker(launch_worker *worker, const launch_start *start, const int ends[3]) {
    int failure[2];
    if (pipe2(failure, O_CLOEXEC) != 0) return errno;
    pid_t pid = fork();
    int cause = errno;
    if (pid == 0) become(worker, start, ends, failure[1]);
    close(failure[1]);
    if (pid > 0) {
        setpgid(pid, pid); /* as in become, which may not have come so far */
        worker->pid = pid;
        cause = wait_for_program(worker, failure[0]);
    }
    close(failure[0]);
    if (pid < 0 || cause != 0) return cause;
    worker->death = (int)syscall(SYS_pidfd_open, pid, 0);
    return worker->death < 0 ? errno : 0;
}

int launch_worker_start(launch_worker *worker, const launch_start *start) {
    int ends[3] = {open_input(worker), open_end(worker, &worker->out),
                   open_end(worker, &worker->err)};
    int cause = ends[0] < 0 || ends[1] < 0 || ends[2] < 0 ? errno : 0;
    if (cause == 0) cause = fork_worker(worker, start, ends);
    for (int i = 0; i < 3; i++)
        if (ends[i] >= 0) close(ends[i]);
    return cause;
}

bool launch_worker_is_alive(const launch_worker *worker) {
    return worker->death >= 0;
}

bool launch_worker_is_stopped(const launch_worker *worker) {
    char path[64], line[512], state = '?';
    snprintf(path, sizeof path, "/proc/%d/stat", (int)worker->pid);
    FILE *file = fopen(path, "re");
    if (file == NULL) return false;
    /* The name in parentheses may hold any byte: the state follows the last one. */
    const char *rest = fgets(line, sizeof line, file) != NULL ? strrchr(line, ')') : NULL;
    fclose(file);
    return rest != NULL && sscanf(rest + 1, " %c", &state) == 1 && state == 'T';
}

void launch_worker_signal(const launch_worker *worker, int number) {
    if (worker->pid > 0) kill(-worker->pid, number);
}

void launch_worker_end(launch_worker *worker) {
    siginfo_t info = {0};
    close(worker->death);
    worker->death = -1;
    waitid(P_PID, (id_t)worker->pid, &info, WEXITED | WNOWAIT);
    worker->code = info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
    worker->killed = info.si_code != CLD_EXITED;
    worker->core_dumped = info.si_code == CLD_DUMPED;
}

void launch_worker_reap(launch_worker *worker) {
    launch_stream_close(&worker->out);
    launch_stream_close(&worker->err);
    if (worker->death >= 0) close(worker->death);
    worker->death = -1;
    if (worker->pid <= 0) return;
    launch_worker_signal(worker, SIGKILL);
    waitpid(worker->pid, NULL, 0);
    worker->pid = 0;
}

/* As sigabbrev_np, which came with glibc 2.32. */
const char *launch_signal_name(int number) {
#define NAME(name) [SIG##name] = #name
    static const char *const names[] = {
        NAME(HUP),  NAME(INT),    NAME(QUIT), NAME(ILL),  NAME(TRAP),   NAME(ABRT), NAME(BUS),
        NAME(FPE),  NAME(KILL),   NAME(USR1), NAME(SEGV), NAME(USR2),   NAME(PIPE), NAME(ALRM),
        NAME(TERM), NAME(STKFLT), NAME(CHLD), NAME(CONT), NAME(STOP),   NAME(TSTP), NAME(TTIN),
        NAME(TTOU), NAME(URG),    NAME(XCPU), NAME(XFSZ), NAME(VTALRM), NAME(PROF), NAME(WINCH),
        NAME(POLL), NAME(PWR),    NAME(SYS)};
#undef NAME
    int count = (int)(sizeof names / sizeof names[0]);
    return number > 0 && number < count ? names[number] : NULL;
}
