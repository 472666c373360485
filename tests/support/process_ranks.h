/* SPDX-License-Identifier: Apache-2.0 */
/* Runs one script on every rank of a process group; the ranks are threads or processes. */
#ifndef TESTS_PROCESS_RANKS_H
#define TESTS_PROCESS_RANKS_H

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "distributed/transports.h"

enum { RANKS = 13, TIMEOUT_MS = 600000 };

/* Ranks and what each of them does. Threads and processes answer by value. */
typedef struct script script;
typedef yoke_status (*scene)(yoke_process_group *group, const script *play);

struct script {
    int world, timeout_ms; /* once joined */
    scene scene;
    int joining_ms;               /* 0: TIMEOUT_MS */
    yoke_devices *const *devices; /* one a rank, for groups over NCCL; NULL: shared memory */
    const void *detail;
    void *shared; /* share_bytes */
};

typedef struct outcome {
    atomic_int pid;
    yoke_error error;
} outcome;

typedef struct actor {
    const struct script *script;
    int rank;
    const char *store;
    outcome *outcome;
    pthread_t thread;
} actor;

/* A store of its own for every play. */
static inline void name_store(char *address, size_t size) {
    static int plays;
    snprintf(address, size, "file:///tmp/yoke-test-%d-%d", (int)getpid(), plays++);
}

static inline yoke_status join_and_play(const actor *self) {
    yoke_process_group_options options = {
        .struct_size = sizeof options,
        .rank = &(yoke_rank_info){.struct_size = sizeof(yoke_rank_info),
                                  .rank = self->rank,
                                  .world = self->script->world},
        .transport = YOKE_TRANSPORT_SHARED_MEMORY,
        .store = self->store,
        .timeout_ms = self->script->joining_ms > 0 ? self->script->joining_ms : TIMEOUT_MS};
    if (self->script->devices != NULL) {
        options.transport = YOKE_TRANSPORT_NCCL;
        options.devices = self->script->devices[self->rank];
    }
    yoke_process_group *group = NULL;
    TRY(yoke_process_group_create(&group, &options));
    group->timeout_ms = self->script->timeout_ms;
    yoke_status status = self->script->scene(group, self->script);
    yoke_error error = yoke_error_take(status);
    yoke_process_group_destroy(group);
    return status == YOKE_OK ? YOKE_OK : yoke_error_restore(&error);
}

static inline void *act(void *context) {
    actor *self = context;
    self->outcome->error = yoke_error_take(join_and_play(self));
    return NULL;
}

static inline outcome *play_threads(const script *play) {
    actor actors[RANKS];
    outcome *outcomes = calloc(RANKS, sizeof *outcomes);
    char store[64];
    name_store(store, sizeof store);
    for (int rank = 0; rank < play->world; rank++) {
        actors[rank] = (struct actor){
            .script = play, .rank = rank, .store = store, .outcome = &outcomes[rank]};
        assert_int_equal(pthread_create(&actors[rank].thread, NULL, act, &actors[rank]), 0);
    }
    for (int rank = 0; rank < play->world; rank++)
        pthread_join(actors[rank].thread, NULL);
    return outcomes;
}

/* Memory that threads and processes share. */
static inline void *share_bytes(size_t bytes) {
    void *shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(shared, MAP_FAILED);
    return shared;
}

static inline outcome *start_processes(const script *play) {
    outcome *outcomes = share_bytes(RANKS * sizeof *outcomes);
    char store[64];
    name_store(store, sizeof store);
    for (int rank = 0; rank < play->world; rank++) {
        pid_t pid = fork();
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            actor self = {.script = play, .rank = rank, .store = store, .outcome = &outcomes[rank]};
            act(&self);
            _exit(0);
        }
        assert_true(pid > 0);
        atomic_store(&outcomes[rank].pid, pid);
    }
    return outcomes;
}

/* Answers how many were killed. */
static inline int join_processes(int world) {
    int killed = 0;
    for (int rank = 0; rank < world; rank++) {
        int status;
        assert_true(wait(&status) > 0);
        killed += WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    }
    return killed;
}

static inline void expect_all_well(const outcome *outcomes, int world) {
    for (int rank = 0; rank < world; rank++) {
        if (outcomes[rank].error.status != YOKE_OK)
            fail_msg("rank %d of %d: %s", rank, world, outcomes[rank].error.text);
    }
}

#endif
