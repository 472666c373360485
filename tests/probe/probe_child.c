/* SPDX-License-Identifier: Apache-2.0 */
/* A process of its own for one question. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "probe/probe.h"

#define LOOK_NS 5000000  /* between two looks at the child */
#define DIES_SECONDS 2.0 /* a process inside the driver may outlive its kill */

static void become(char *const arguments[], pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == parent) execv("/proc/self/exe", arguments);
    _exit(127);
}

static bool wait_until(pid_t child, double seconds, int *status) {
    const struct timespec pause = {0, LOOK_NS};
    uint64_t begin = yoke_now_ns();
    while (waitpid(child, status, WNOHANG) != child) {
        if ((double)(yoke_now_ns() - begin) * 1e-9 > seconds) return false;
        nanosleep(&pause, NULL);
    }
    return true;
}

static size_t length_of(char *const *list) {
    size_t count = 0;
    while (list[count] != NULL)
        count++;
    return count;
}

yoke_status probe_run_child(char **argv, char *const extra[], double seconds, probe_end *end,
                            int *code) {
    size_t own = length_of(argv), more = length_of(extra), bytes = (own + more + 1) * sizeof *argv;
    char **arguments = malloc(bytes);
    int status = 0;
    if (arguments == NULL) return FAIL_MEMORY(bytes, "the options of a question");
    memcpy(arguments, argv, own * sizeof *argv);
    memcpy(arguments + own, extra, (more + 1) * sizeof *argv);
    pid_t parent = getpid(), child = fork();
    if (child == 0) become(arguments, parent);
    free(arguments);
    if (child < 0) return FAIL(YOKE_ERROR_IO, "no process for a question: %s", strerror(errno));
    *end = PROBE_EXITED;
    if (!wait_until(child, seconds, &status)) {
        *end = PROBE_KILLED;
        kill(child, SIGKILL);
        wait_until(child, DIES_SECONDS, &status);
    } else if (WIFSIGNALED(status)) {
        *end = PROBE_DIED;
    }
    *code = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
    return YOKE_OK;
}
