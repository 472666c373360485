/* SPDX-License-Identifier: Apache-2.0 */
/* Engines and ranks as ways to train: each function passes its call on. */
#include "cli/compare/compare_way.h"

/* An engine in this process. */

static yoke_status build_engine(void **inside, const compare_entry *entry) {
    compare_engine *engine;
    yoke_status status = compare_engine_create(&engine, entry->setup, &entry->role);
    *inside = engine;
    return status;
}

static void clear_engine(void *inside) {
    compare_engine_destroy(inside);
}

static void describe_engine(const void *inside, compare_facts *facts) {
    compare_engine_describe(inside, facts);
}

static yoke_status learn_by_engine(void *inside, int steps, compare_learned *learned) {
    return compare_engine_learn(inside, steps, learned);
}

static yoke_status run_engine(void *inside, int steps, bool fresh, double *milliseconds) {
    return compare_engine_run(inside, steps, fresh, milliseconds);
}

static yoke_status memory_of_engine(const void *inside, compare_memory *devices) {
    return compare_engine_memory(inside, devices);
}

static yoke_status account_of_engine(void *inside, yoke_account *lanes) {
    return compare_engine_account(inside, lanes);
}

static yoke_status stages_of_engine(void *inside, compare_stages *stages) {
    compare_engine_stages(inside, stages);
    return YOKE_OK;
}

static yoke_status steps_of_engine(void *inside, yoke_span_info *steps, int capacity, int *count) {
    return compare_engine_steps(inside, steps, capacity, count);
}

static yoke_status step_of_engine(void *inside, compare_step *step, int capacity) {
    return compare_engine_step(inside, step, capacity);
}

const compare_way compare_by_engine = {.build = build_engine,
                                       .clear = clear_engine,
                                       .describe = describe_engine,
                                       .learn = learn_by_engine,
                                       .run = run_engine,
                                       .memory = memory_of_engine,
                                       .account = account_of_engine,
                                       .stages = stages_of_engine,
                                       .steps = steps_of_engine,
                                       .step = step_of_engine};

/* Ranks. */

static yoke_status build_ranks(void **inside, const compare_entry *entry) {
    compare_ranks *ranks;
    yoke_status status =
        compare_ranks_start(&ranks, entry->meeting, entry->setup, entry->role.devices);
    *inside = ranks;
    return status;
}

static void clear_ranks(void *inside) {
    compare_ranks_end(inside);
}

static void describe_ranks(const void *inside, compare_facts *facts) {
    compare_ranks_describe(inside, facts);
}

static yoke_status learn_by_ranks(void *inside, int steps, compare_learned *learned) {
    return compare_ranks_learn(inside, steps, learned);
}

static yoke_status run_ranks(void *inside, int steps, bool fresh, double *milliseconds) {
    return compare_ranks_run(inside, steps, fresh, milliseconds);
}

static yoke_status memory_of_ranks(const void *inside, compare_memory *devices) {
    compare_ranks_memory(inside, devices);
    return YOKE_OK;
}

static yoke_status account_of_ranks(void *inside, yoke_account *lanes) {
    return compare_ranks_account(inside, lanes);
}

static yoke_status stages_of_ranks(void *inside, compare_stages *stages) {
    return compare_ranks_stages(inside, stages);
}

/* Both have room for COMPARE_LANE_SPANS of every rank. */
static yoke_status steps_of_ranks(void *inside, yoke_span_info *steps, int capacity, int *count) {
    (void)capacity;
    return compare_ranks_steps(inside, steps, count);
}

static yoke_status step_of_ranks(void *inside, compare_step *step, int capacity) {
    (void)capacity;
    return compare_ranks_step(inside, step);
}

static double seconds_of_ranks(const void *inside) {
    return compare_ranks_seconds(inside);
}

const compare_way compare_by_ranks = {.build = build_ranks,
                                      .clear = clear_ranks,
                                      .describe = describe_ranks,
                                      .learn = learn_by_ranks,
                                      .run = run_ranks,
                                      .memory = memory_of_ranks,
                                      .account = account_of_ranks,
                                      .stages = stages_of_ranks,
                                      .steps = steps_of_ranks,
                                      .step = step_of_ranks,
                                      .seconds = seconds_of_ranks};
