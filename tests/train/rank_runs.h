/* SPDX-License-Identifier: Apache-2.0 */
/* Small runs of two ranks, as threads, with a deadline that a slow disk passes. */
#ifndef RANK_RUNS_H
#define RANK_RUNS_H

#include <pthread.h>
#include <stdatomic.h>

#include "trainer_check.h"

enum { RANK_RUNS = 2, DEADLINE_MS = 2000, SLOW_US = 3500000 };

typedef struct rank_run {
    pthread_t thread;
    const char *store;
    int number;
    yoke_trainer_options options; /* mode and process_group are filled in */
    log_of_run run;
    yoke_error error;
    uint64_t hash; /* of the weights at the end; 0: the run failed */
} rank_run;

static inline void *run_one_rank(void *context) {
    rank_run *self = context;
    yoke_rank_info info = {.struct_size = sizeof info, .rank = self->number, .world = RANK_RUNS};
    yoke_process_group_options group = {.struct_size = sizeof group,
                                        .rank = &info,
                                        .transport = YOKE_TRANSPORT_SHARED_MEMORY,
                                        .store = self->store,
                                        .timeout_ms = DEADLINE_MS};
    self->options.mode = YOKE_MODE_DISTRIBUTED_DATA_PARALLEL;
    self->options.process_group = &group;
    self->error = yoke_error_take(train(&self->run, &self->options));
    if (self->error.status == YOKE_OK)
        yoke_data_parallel_hash(yoke_trainer_engine(self->run.trainer), &self->hash);
    yoke_trainer_destroy(self->run.trainer);
    return NULL;
}

/* Trains by ranks[RANK_RUNS] and waits for their ends. */
static inline void run_ranks(rank_run *ranks) {
    static int runs;
    char store[64];
    snprintf(store, sizeof store, "file:///tmp/yoke-ranks-%d-%d", (int)getpid(), runs++);
    for (int k = 0; k < RANK_RUNS; k++) {
        ranks[k].number = k;
        ranks[k].store = store;
        assert_int_equal(pthread_create(&ranks[k].thread, NULL, run_one_rank, &ranks[k]), 0);
    }
    for (int k = 0; k < RANK_RUNS; k++)
        pthread_join(ranks[k].thread, NULL);
}

static inline void expect_all_well(const rank_run *ranks) {
    for (int k = 0; k < RANK_RUNS; k++)
        if (ranks[k].error.status != YOKE_OK) fail_msg("rank %d: %s", k, ranks[k].error.text);
}

#endif
