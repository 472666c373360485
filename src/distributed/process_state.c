/* SPDX-License-Identifier: Apache-2.0 */
/* Reads /proc/PID/stat. A pid alone proves nothing: a killed process keeps its pid until its parent
 * reaps it, and a later process may get the same one. */
#include "distributed/process_state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct process_facts {
    char state;
    long threads;
    unsigned long long start_time;
} process_facts;

/* Returns 0 or an errno. The name in parentheses may hold any byte: parse after the last one. */
static int read_facts(int pid, process_facts *facts) {
    char path[64], line[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return errno;
    ssize_t bytes = read(file, line, sizeof line - 1);
    int cause = bytes < 0 ? errno : 0;
    close(file);
    if (cause != 0) return cause;
    line[bytes] = '\0';
    const char *rest = strrchr(line, ')');
    if (rest == NULL) return EINVAL;
    int known =
        sscanf(rest + 1,
               " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %ld %*d %llu",
               &facts->state, &facts->threads, &facts->start_time);
    return known == 3 ? 0 : EINVAL;
}

uint64_t yoke_process_start_time(int pid) {
    process_facts facts;
    return read_facts(pid, &facts) == 0 ? facts.start_time : 0;
}

yoke_process_state yoke_process_state_of(int pid, uint64_t start_time) {
    process_facts facts;
    int cause = read_facts(pid, &facts);
    if (cause == ENOENT || cause == ESRCH) return YOKE_PROCESS_ENDED;
    if (cause != 0) return YOKE_PROCESS_RUNNING;
    if (start_time != 0 && facts.start_time != start_time) return YOKE_PROCESS_ENDED;
    /* A zombie first thread may have running siblings. */
    if (strchr("ZXx", facts.state) != NULL && facts.threads <= 1) return YOKE_PROCESS_ENDED;
    return strchr("Tt", facts.state) != NULL ? YOKE_PROCESS_STOPPED : YOKE_PROCESS_RUNNING;
}
