/* SPDX-License-Identifier: Apache-2.0 */
/* All-reduce between processes of one machine, float32 sums: over the shared memory that all ranks
 * read ("direct"), from private buffers, and by MPI_Allreduce where the program is built with it.
 * All are timed in turns within a round. Printed are medians over the rounds, and how many times as
 * fast as MPI.
 *
 *   all_reduce [ranks] [rounds]             forks the ranks: 2, 21 rounds
 *   mpirun -n 2 all_reduce_mpi [rounds]     with MPI_Allreduce beside
 */
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "yoke/distributed.h"

#ifdef WITH_MPI
#include <mpi.h>
#define HAS_MPI true
#else
#define HAS_MPI false
#endif

enum { ROUNDS_MAX = 200, WARM_UP = 2, WAYS = 3 };
typedef enum contender { DIRECT, PRIVATE, MPI } contender;

static const size_t sizes[] = {4096, 65536, 1048576, 26214400, 44700000};
enum { SIZES = sizeof sizes / sizeof sizes[0] };
#define LARGEST ((size_t)44700000)

typedef struct contest {
    yoke_process_group *group;
    float *direct, *own;
    int rounds;
    bool written; /* the buffer, before every call */
    double us[WAYS][ROUNDS_MAX];
} contest;

static void check(yoke_status status) {
    if (status == YOKE_OK) return;
    fprintf(stderr, "all_reduce: %s\n", yoke_last_error());
    exit(yoke_status_exit_code(status));
}

static double now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void reduce(contest *c, contender way, size_t count) {
    if (way == MPI) {
#ifdef WITH_MPI
        MPI_Allreduce(MPI_IN_PLACE, c->own, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
#endif
        return;
    }
    check(yoke_process_group_all_reduce(c->group, way == DIRECT ? c->direct : c->own, count,
                                        YOKE_ELEMENT_FLOAT32, YOKE_SUM));
}

/* About a millisecond of calls, or one. */
static int calls_of(size_t bytes) {
    size_t calls = (size_t)4000000 / bytes;
    return calls < 1 ? 1 : (int)calls;
}

static double time_calls(contest *c, contender way, size_t bytes, int calls) {
    check(yoke_process_group_barrier(c->group));
    double begin = now_us();
    for (int call = 0; call < calls; call++)
        reduce(c, way, bytes / sizeof(float));
    return (now_us() - begin) / calls;
}

/* As a step of training leaves it: every rank has just written its buffer. */
static double time_written(contest *c, contender way, size_t bytes, int calls) {
    double total = 0;
    for (int call = 0; call < calls; call++) {
        float *buffer = way == DIRECT ? c->direct : c->own;
        for (size_t i = 0; i < bytes / sizeof(float); i++)
            buffer[i] = (float)call;
        total += time_calls(c, way, bytes, 1);
    }
    return total / calls;
}

static void play_round(contest *c, size_t bytes, int round) {
    int calls = calls_of(bytes);
    for (int turn = 0; turn < WAYS; turn++) {
        contender way = (contender)((round + turn) % WAYS);
        double us = c->written ? time_written(c, way, bytes, calls < 50 ? calls : 50)
                               : time_calls(c, way, bytes, calls);
        if (round >= WARM_UP) c->us[way][round - WARM_UP] = us;
    }
}

static int by_value(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static double median(double *values, int count) {
    qsort(values, (size_t)count, sizeof *values, by_value);
    return values[count / 2];
}

static void report(contest *c, size_t bytes) {
    double ratios[WAYS][ROUNDS_MAX];
    for (int way = 0; way < WAYS; way++) {
        for (int round = 0; round < c->rounds; round++)
            ratios[way][round] = c->us[MPI][round] / c->us[way][round];
    }
    printf("%10zu %10.2f %10.2f", bytes, median(c->us[DIRECT], c->rounds),
           median(c->us[PRIVATE], c->rounds));
    if (HAS_MPI)
        printf(" %10.2f %10.1f %10.1f", median(c->us[MPI], c->rounds),
               median(ratios[DIRECT], c->rounds), median(ratios[PRIVATE], c->rounds));
    printf("\n");
}

static void run(contest *c) {
    bool first = yoke_process_group_rank(c->group) == 0;
    if (first)
        printf("us, %d processes, %s\n%10s %10s %10s%s\n", yoke_process_group_world(c->group),
               c->written ? "buffers just written" : "calls back to back", "bytes", "direct",
               "private", HAS_MPI ? "        MPI MPI/direct MPI/private" : "");
    for (int size = 0; size < SIZES; size++) {
        for (int round = 0; round < WARM_UP + c->rounds; round++)
            play_round(c, sizes[size], round);
        if (first) report(c, sizes[size]);
    }
}

static void open_and_run(yoke_rank_info rank, const char *store, int rounds) {
    contest *c = calloc(1, sizeof *c);
    yoke_process_group_options options = {.struct_size = sizeof options,
                                          .rank = &rank,
                                          .transport = YOKE_TRANSPORT_SHARED_MEMORY,
                                          .store = store};
    void *direct;
    check(yoke_process_group_create(&c->group, &options));
    check(yoke_process_group_allocate(c->group, LARGEST, &direct));
    c->direct = direct;
    c->own = calloc(1, LARGEST);
    c->rounds = rounds < 1 ? 1 : rounds > ROUNDS_MAX ? ROUNDS_MAX : rounds;
    memset(c->own, 0, LARGEST);
    run(c);
    c->written = true;
    run(c);
    yoke_process_group_destroy(c->group);
    free(c->own);
    free(c);
}

#ifdef WITH_MPI

static const char *look_up(const char *name, void *payload) {
    (void)payload;
    return getenv(name);
}

int main(int count, char **words) {
    MPI_Init(&count, &words);
    yoke_rank_info rank = {.struct_size = sizeof rank};
    check(yoke_rank_detect(&rank, look_up, NULL));
    open_and_run(rank, NULL, count > 1 ? atoi(words[1]) : 21);
    MPI_Finalize();
    return 0;
}

#else

/* Each on a core of its own, as mpirun binds them, while there are enough. */
static void bind_rank(int rank) {
    cpu_set_t all, one;
    if (sched_getaffinity(0, sizeof all, &all) != 0) return;
    int seen = 0;
    for (size_t core = 0; core < CPU_SETSIZE; core++) {
        if (!CPU_ISSET(core, &all) || seen++ != rank % CPU_COUNT(&all)) continue;
        CPU_ZERO(&one);
        CPU_SET(core, &one);
        sched_setaffinity(0, sizeof one, &one);
        return;
    }
}

int main(int count, char **words) {
    int world = count > 1 ? atoi(words[1]) : 2, rank = 0;
    int rounds = count > 2 ? atoi(words[2]) : 21;
    char store[64];
    snprintf(store, sizeof store, "file:///tmp/yoke-all-reduce-%d", (int)getpid());
    for (int other = 1; other < world && rank == 0; other++) {
        if (fork() == 0) rank = other;
    }
    if (rank != 0) prctl(PR_SET_PDEATHSIG, SIGKILL);
    bind_rank(rank);
    open_and_run(
        (yoke_rank_info){.struct_size = sizeof(yoke_rank_info), .rank = rank, .world = world},
        store, rounds);
    while (rank == 0 && wait(NULL) > 0)
        continue;
    return 0;
}

#endif
