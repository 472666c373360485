/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/compare/compare_child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"

#define NO_PROGRAM_EXIT 127
#define END_MS 2000 /* for a process whose socket is closed to end */
#define LOOK_MS 5

/* The meeting. */

int compare_meeting_open(compare_meeting *meeting) {
    int code = launch_folder_make(meeting->folder, "compare");
    if (code >= 0) return code;
    code = launch_guard_start(&meeting->guard, meeting->folder);
    if (code >= 0) rmdir(meeting->folder);
    return code;
}

void compare_meeting_close(compare_meeting *meeting) {
    launch_guard_end(&meeting->guard);
}

/* Processes. */

static void redirect(const char *output_path) {
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    int output = output_path != NULL
                     ? open(output_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)
                     : nothing;
    dup2(nothing, STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    if (output_path != NULL) dup2(output, STDERR_FILENO);
}

/* The socket gets a fixed number; exec closes all others. */
static void become(const compare_command *command, int socket, pid_t parent) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1); /* the parent died before prctl */
    redirect(command->output_path);
    if (socket != COMPARE_CHILD_SOCKET)
        dup2(socket, COMPARE_CHILD_SOCKET);
    else
        fcntl(socket, F_SETFD, 0);
    char *const *words = (char *const *)command->words; /* exec changes none */
    if (command->variables != NULL) environ = (char **)command->variables;
    execvp(command->program, words);
    _exit(NO_PROGRAM_EXIT);
}

yoke_status compare_child_start(compare_child *child, const compare_meeting *meeting,
                                const compare_command *command) {
    int ends[2];
    pid_t parent = getpid();
    if (socketpair(AF_UNIX, command->socket_type | SOCK_CLOEXEC, 0, ends) != 0)
        return cli_refuse(YOKE_ERROR_SYSTEM, "cannot create a socket: %s", strerror(errno));
    pid_t pid = fork();
    int cause = errno;
    if (pid == 0) become(command, ends[1], parent);
    close(ends[1]);
    child->socket = ends[0];
    if (pid < 0)
        return cli_refuse(YOKE_ERROR_SYSTEM, "cannot start a process: %s", strerror(cause));
    setpgid(pid, pid); /* both processes do it, so nobody waits for the other */
    child->pid = pid;
    launch_guard_add(&meeting->guard, pid);
    return YOKE_OK;
}

void compare_child_reap(compare_child *child, const compare_meeting *meeting) {
    if (child->socket >= 0) close(child->socket);
    child->socket = -1;
    if (child->pid <= 0) return;
    kill(-child->pid, SIGKILL);
    launch_guard_remove(&meeting->guard, child->pid);
    waitpid(child->pid, NULL, 0);
    child->pid = 0;
}

/* false: it has closed its socket, but lives. */
static bool has_ended(const compare_child *child, siginfo_t *info) {
    for (int waited_ms = 0; waited_ms <= END_MS; waited_ms += LOOK_MS) {
        *info = (siginfo_t){0};
        if (waitid(P_PID, (id_t)child->pid, info, WEXITED | WNOWAIT | WNOHANG) != 0) return false;
        if (info->si_pid != 0) return true;
        usleep(1000 * LOOK_MS);
    }
    return false;
}

void compare_child_describe_end(const compare_child *child, char text[COMPARE_END_BYTES]) {
    siginfo_t info;
    if (!has_ended(child, &info))
        snprintf(text, COMPARE_END_BYTES, "has closed its connection");
    else if (info.si_code == CLD_EXITED)
        snprintf(text, COMPARE_END_BYTES, "exited with code %d", info.si_status);
    else
        snprintf(text, COMPARE_END_BYTES, "died of signal %d (%s)", info.si_status,
                 strsignal(info.si_status));
}

bool compare_child_is_no_program(const compare_child *child) {
    siginfo_t info;
    return has_ended(child, &info) && info.si_code == CLD_EXITED &&
           info.si_status == NO_PROGRAM_EXIT;
}

double compare_child_seconds(const compare_child *child) {
    clockid_t clock;
    struct timespec used;
    if (clock_getcpuclockid(child->pid, &clock) != 0) return 0;
    if (clock_gettime(clock, &used) != 0) return 0;
    return (double)used.tv_sec + (double)used.tv_nsec * 1e-9;
}
