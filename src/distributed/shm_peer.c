/* What the kernel says of another process. A number alone is not enough: a killed process keeps it
 * until its parent asks, and later another process may get it. */
#include "distributed/shm_peer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct process_facts {
    char state;
    long threads;
    unsigned long long born;
} process_facts;

/* 0 or errno. The name in brackets may hold anything: what follows its last bracket is read. */
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
               &facts->state, &facts->threads, &facts->born);
    return known == 3 ? 0 : EINVAL;
}

uint64_t shm_birth_of(int pid) {
    process_facts facts;
    return read_facts(pid, &facts) == 0 ? facts.born : 0;
}

shm_life shm_life_of(int pid, uint64_t born) {
    process_facts facts;
    int cause = read_facts(pid, &facts);
    if (cause == ENOENT || cause == ESRCH) return SHM_GONE;
    if (cause != 0) return SHM_RUNNING; /* not known to be gone */
    if (born != 0 && facts.born != born) return SHM_GONE;
    /* A program may go on after its first thread has ended. */
    if (strchr("ZXx", facts.state) != NULL && facts.threads <= 1) return SHM_GONE;
    return strchr("Tt", facts.state) != NULL ? SHM_STOPPED : SHM_RUNNING;
}
