/* SPDX-License-Identifier: Apache-2.0 */
/* The OpenMP team of a device's worker. libgomp ends the process when it cannot start a thread, so
 * plain threads try first; and it keeps a team until its thread ends, so the caller's is ended. */
#include <execinfo.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "device/cpu/cpu.h"

#define LOOKS 100000 /* each yields the core */
#define TEAM_IDS 128

/* The team of the calling thread ends with that thread, and so does this. A forked child inherits
 * the number but not the threads, and OpenMP would wait for them forever. */
static _Thread_local struct {
    int threads; /* 0: no team */
    pid_t process;
    int holds;           /* of signals, since pairs may be nested */
    int open_threads;    /* of a team with threads that took signals; 0: none did */
    int safe_threads;    /* of the team in which none did; 0: unknown */
    pid_t ids[TEAM_IDS]; /* of that team's threads; 0: the caller */
} own;

/* Counts this process's threads; 0: unknown. The system lists a folder for each thread, and each
 * folder links to its parent. */
static size_t count_threads(void) {
    struct stat tasks;
    return stat("/proc/self/task", &tasks) == 0 && tasks.st_nlink > 2 ? tasks.st_nlink - 2 : 0;
}

static void *await(void *gate) {
    pthread_mutex_lock(gate);
    pthread_mutex_unlock(gate);
    return NULL;
}

/* All live at once, as the team's threads will. Answers how many the system gave. */
static int try_threads(pthread_t *threads, int count, int *cause) {
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    int started = 0;
    pthread_mutex_lock(&gate);
    while (started < count) {
        *cause = yoke_thread_start(&threads[started], await, &gate);
        if (*cause != 0) break;
        started++;
    }
    pthread_mutex_unlock(&gate);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    return started;
}

yoke_status cpu_start_team(yoke_device *device) {
    int cause = 0, count = device->threads - 1;
    if (count < 1) return YOKE_OK;
    pid_t process = getpid();
    if (own.threads == device->threads && own.process == process) return YOKE_OK;
    if (own.threads > 0 && own.process != process)
        return FAIL(YOKE_ERROR_SYSTEM,
                    "%s: process %d started OpenMP's threads, and a forked child cannot start "
                    "others; open the devices with threads 1, or fork before the first engine",
                    device->name, (int)own.process);
    TRY(yoke_room_check());
    /* A thread of OpenMP that ends unwinds its stack; glibc loads the unwinder then, and aborts
     * where it has no memory for it. */
    void *frame;
    if (backtrace(&frame, 1) == 0) return FAIL_MEMORY(sizeof frame, "the stack's unwinder");
    size_t before = count_threads();
    pthread_t *threads = yoke_calloc((size_t)count, sizeof *threads);
    if (threads == NULL) return FAIL_MEMORY((size_t)count * sizeof *threads, "compute threads");
    int started = try_threads(threads, count, &cause);
    yoke_free(threads);
    if (started < count)
        return FAIL(YOKE_ERROR_SYSTEM,
                    "%s: cannot start compute thread %d of %d: %s; open the devices with fewer "
                    "threads, or raise the limit on processes (ulimit -u)",
                    device->name, started + 2, device->threads, strerror(cause));
    /* The system counts a thread for a moment after its end. */
    for (int look = 0; look < LOOKS && count_threads() > before; look++)
        sched_yield();
    (void)yoke_signals_hold(); /* new threads inherit the mask */
#pragma omp parallel num_threads(device->threads)
    __asm__ volatile(""); /* compilers leave an empty region out */
    yoke_signals_release();
    own.threads = device->threads;
    own.process = process;
    return YOKE_OK;
}

/* A thread of the team that the host program started, for parallel regions of its own, takes
 * signals until it is held. */
static _Thread_local struct {
    bool is_held;
    yoke_signal_mask before;
} of_team;

static bool hold_team_thread(void) {
    if (omp_get_thread_num() == 0 || of_team.is_held) return of_team.is_held;
    of_team.is_held = yoke_signals_block(&of_team.before);
    return of_team.is_held;
}

static void release_team_thread(void) {
    if (of_team.is_held) yoke_signals_restore(&of_team.before);
    of_team.is_held = false;
}

/* A thread of OpenMP leaves its team only to end. To wake all of them in order to ask would cost up
 * to 2 % of a small step. */
static bool team_is_safe(int threads) {
    if (own.safe_threads != threads) return false;
    for (int i = 1; i < threads; i++)
        if (syscall(SYS_tgkill, own.process, own.ids[i], 0) != 0) return false;
    return true;
}

void cpu_hold_signals(yoke_device *device) {
    (void)yoke_signals_hold();
    own.holds++;
    if (device->threads > 1 && !team_is_safe(device->threads)) {
        bool open = false;
        pid_t *ids = own.ids;
#pragma omp parallel num_threads(device->threads) reduction(|| : open)
        {
            int number = omp_get_thread_num();
            open = hold_team_thread();
            if (number < TEAM_IDS) ids[number] = gettid();
        }
        own.safe_threads = open || device->threads > TEAM_IDS ? 0 : device->threads;
        if (open && device->threads > own.open_threads) own.open_threads = device->threads;
    }
}

void cpu_release_signals(yoke_device *device) {
    (void)device;
    if (--own.holds == 0 && own.open_threads > 0) {
#pragma omp parallel num_threads(own.open_threads)
        release_team_thread();
        own.open_threads = 0;
    }
    yoke_signals_release();
}

void cpu_end_team(yoke_device *device) {
    if (device->threads < 2 || own.threads == 0 || own.process != getpid()) return;
    omp_pause_resource_all(omp_pause_soft);
    own.threads = own.safe_threads = 0;
}
