/* SPDX-License-Identifier: Apache-2.0 */
/* Calls the engine in this process, or the ranks. */
#include "cli/compare/compare_contender.h"

#include <stdlib.h>

#include "cli/cli.h"

static const struct {
    const char *name;
    yoke_schedule schedule;
} kinds[COMPARE_KINDS] = {[COMPARE_SINGLE] = {"single", YOKE_SCHEDULE_OVERLAP},
                          [COMPARE_ALL_CORES] = {"all cores", YOKE_SCHEDULE_OVERLAP},
                          [COMPARE_PYTHON] = {"dp python", YOKE_SCHEDULE_PYTHON},
                          [COMPARE_CLASSIC] = {"dp classic", YOKE_SCHEDULE_CLASSIC},
                          [COMPARE_NCCL] = {"dp nccl", YOKE_SCHEDULE_CLASSIC},
                          [COMPARE_OVERLAP] = {"dp overlap", YOKE_SCHEDULE_OVERLAP},
                          [COMPARE_SHARDED] = {"dp sharded", YOKE_SCHEDULE_SHARDED},
                          [COMPARE_DDP] = {"ddp", YOKE_SCHEDULE_OVERLAP}};

const char *compare_kind_name(compare_kind kind) {
    return kinds[kind].name;
}

yoke_status compare_contender_build(compare_contender *contender, const compare_setup *setup,
                                    const compare_meeting *meeting) {
    compare_role role = {.devices = contender->devices,
                         .threads = contender->threads,
                         .schedule = kinds[contender->kind].schedule,
                         .chains = contender->kind == COMPARE_NCCL,
                         .rank = {.struct_size = sizeof role.rank}};
    bool ranks = contender->kind == COMPARE_DDP;
    yoke_status status =
        ranks ? compare_ranks_start(&contender->ranks, meeting, setup, contender->devices)
              : compare_engine_create(&contender->engine, setup, &role);
    if (status != YOKE_OK) return status;
    if (ranks)
        compare_ranks_describe(contender->ranks, &contender->facts);
    else
        compare_engine_describe(contender->engine, &contender->facts);
    return YOKE_OK;
}

void compare_contender_clear(compare_contender *contender) {
    compare_ranks_end(contender->ranks);
    compare_engine_destroy(contender->engine);
    free(contender->history);
    free(contender->memory);
    contender->ranks = NULL;
    contender->engine = NULL;
    contender->history = NULL;
    contender->memory = NULL;
}

yoke_status compare_contender_record(compare_contender *contender) {
    size_t devices = (size_t)contender->devices;
    contender->history = calloc(RACE_ROUNDS * devices, sizeof *contender->history);
    contender->memory = calloc(devices, sizeof *contender->memory);
    if (contender->history == NULL || contender->memory == NULL)
        return cli_refuse(YOKE_ERROR_MEMORY, "no memory for the rounds of %zu devices", devices);
    if (contender->ranks == NULL)
        return compare_engine_memory(contender->engine, contender->memory);
    compare_ranks_memory(contender->ranks, contender->memory);
    return YOKE_OK;
}

yoke_status compare_contender_learn(compare_contender *contender, int steps) {
    return contender->ranks != NULL
               ? compare_ranks_learn(contender->ranks, steps, &contender->learned)
               : compare_engine_learn(contender->engine, steps, &contender->learned);
}

static yoke_status run(compare_contender *contender, int steps, bool fresh, double *milliseconds) {
    return contender->ranks != NULL
               ? compare_ranks_run(contender->ranks, steps, fresh, milliseconds)
               : compare_engine_run(contender->engine, steps, fresh, milliseconds);
}

static yoke_status account(compare_contender *contender, int round, double milliseconds) {
    if (round < 0 || round >= RACE_ROUNDS) return YOKE_OK;
    yoke_account *lanes = contender->history + (size_t)(round * contender->devices);
    yoke_status status = contender->ranks != NULL
                             ? compare_ranks_account(contender->ranks, lanes)
                             : compare_engine_account(contender->engine, lanes);
    /* A rank that ends before the slowest one is idle. */
    for (int i = 0; i < contender->devices && status == YOKE_OK; i++)
        yoke_account_stretch(&lanes[i], milliseconds);
    return status;
}

yoke_status compare_contender_run(void *context, int steps, double *milliseconds) {
    compare_contender *contender = context;
    int round = contender->runs++ - 1;
    yoke_status status = run(contender, steps, round < 1, milliseconds);
    if (status != YOKE_OK || contender->history == NULL) return status;
    return account(contender, round, *milliseconds);
}

yoke_status compare_contender_step(compare_contender *contender, double milliseconds,
                                   double least_ms, compare_step *step) {
    int capacity = contender->devices * COMPARE_LANE_SPANS, count = 0;
    bool ranks = contender->ranks != NULL;
    *step = (compare_step){.spans = calloc((size_t)capacity, sizeof *step->spans)};
    if (step->spans == NULL)
        return cli_refuse(YOKE_ERROR_MEMORY, "no memory for %d spans", capacity);
    yoke_status status =
        ranks ? compare_ranks_steps(contender->ranks, step->spans, &count)
              : compare_engine_steps(contender->engine, step->spans, capacity, &count);
    step->number = compare_steps_choose(step->spans, count, milliseconds, least_ms);
    if (status != YOKE_OK || step->number == COMPARE_NO_STEP) return status;
    return ranks ? compare_ranks_step(contender->ranks, step)
                 : compare_engine_step(contender->engine, step, capacity);
}

yoke_status compare_contender_look(compare_contender *contender) {
    if (contender->ranks != NULL) return compare_ranks_stages(contender->ranks, &contender->stages);
    compare_engine_stages(contender->engine, &contender->stages);
    return YOKE_OK;
}

yoke_status compare_contender_wait(void *context, int steps, double *percent) {
    compare_contender *contender = context;
    double milliseconds = 0;
    yoke_status status = run(contender, steps, true, &milliseconds);
    if (status == YOKE_OK) status = compare_contender_look(contender);
    *percent = 0;
    for (int i = 0; i < contender->stages.count; i++)
        if (contender->stages.rows[i].stage == YOKE_STAGE_WAIT)
            *percent = 100 * contender->stages.rows[i].share;
    return status;
}
