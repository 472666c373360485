/* SPDX-License-Identifier: Apache-2.0 */
/* Scenarios of test_allocator.c: ranks, as threads, over shared memory. A rank that lacks memory
 * says so; the other may say that it has left. */
#ifndef FAILING_RANK_SCENARIOS_H
#define FAILING_RANK_SCENARIOS_H

#include "failing_data_scenarios.h"
#include "failing_hook.h"

/* A rank waits long for one that comes, and shortly for one that lacks memory. */
enum { RANKS = 2, COMES_MS = 20000, LACKS_MS = 200 };

typedef struct rank_thread {
    pthread_t thread;
    const char *store;
    int number;
    yoke_status (*use)(made *m, const yoke_process_group_options *group);
    yoke_error error;
} rank_thread;

static inline void *run_rank(void *context) {
    rank_thread *self = context;
    yoke_rank_info info = {.struct_size = sizeof info, .rank = self->number, .world = RANKS};
    yoke_process_group_options options = {.struct_size = sizeof options,
                                          .rank = &info,
                                          .transport = YOKE_TRANSPORT_SHARED_MEMORY,
                                          .store = self->store,
                                          .timeout_ms = hook.at == 0 ? COMES_MS : LACKS_MS};
    made m = {0};
    (void)yoke_error_raise(YOKE_ERROR_INTERNAL, "stale");
    self->error = yoke_error_take(self->use(&m, &options));
    close_all(&m);
    return NULL;
}

static inline yoke_status use_ranks(yoke_status (*use)(made *m,
                                                       const yoke_process_group_options *group)) {
    static int plays;
    rank_thread ranks[RANKS];
    char store[96];
    snprintf(store, sizeof store, "file://%s-store-%d", scenario_folder, plays++);
    for (int k = 0; k < RANKS; k++) {
        ranks[k] = (rank_thread){.store = store, .number = k, .use = use};
        if (pthread_create(&ranks[k].thread, NULL, run_rank, &ranks[k]) != 0) abort();
    }
    const yoke_error *worst = NULL;
    for (int k = 0; k < RANKS; k++) {
        pthread_join(ranks[k].thread, NULL);
        const yoke_error *error = &ranks[k].error;
        if (error->status != YOKE_OK && (worst == NULL || error->status == YOKE_ERROR_MEMORY))
            worst = error;
    }
    return worst == NULL ? YOKE_OK : yoke_error_restore(worst);
}

static inline yoke_status use_group(made *m, const yoke_process_group_options *options) {
    float values[8] = {1}, all[8 * RANKS];
    void *shared = NULL;
    TRY(yoke_process_group_create(&m->group, options));
    TRY(yoke_process_group_barrier(m->group));
    TRY(yoke_process_group_all_reduce(m->group, values, 8, YOKE_ELEMENT_FLOAT32, YOKE_SUM));
    TRY(yoke_process_group_all_gather(m->group, all, values, 8, YOKE_ELEMENT_FLOAT32));
    TRY(yoke_process_group_allocate(m->group, sizeof values, &shared));
    memcpy(shared, values, sizeof values);
    TRY(yoke_process_group_all_reduce_async(m->group, shared, 8));
    return yoke_process_group_wait(m->group);
}

static inline yoke_status train_in_group(made *m, const yoke_process_group_options *group) {
    yoke_data_parallel_options engine = engine_options();
    engine.batch = 0;
    yoke_trainer_options options = small_run(&engine);
    options.mode = YOKE_MODE_DISTRIBUTED_DATA_PARALLEL;
    options.process_group = group;
    options.steps = 2;
    return run_to_end(m, &options);
}

static inline yoke_status ranks_of_a_group(made *m) {
    (void)m;
    return use_ranks(use_group);
}

static inline yoke_status ranks_that_train(made *m) {
    (void)m;
    return use_ranks(train_in_group);
}

#endif
