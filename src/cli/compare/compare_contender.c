/* SPDX-License-Identifier: Apache-2.0 */
/* Which way each kind trains, and what is done with all of them. */
#include "cli/compare/compare_contender.h"

#include <stdlib.h>

#include "cli/cli.h"

static const struct {
    const char *name;
    const compare_way *way;
    yoke_schedule schedule; /* of an engine */
    yoke_mode mode;         /* of a trainer */
    const char *torch;      /* as compare_entry.torch */
} kinds[COMPARE_KINDS] = {
    [COMPARE_SINGLE] = {"single", &compare_by_engine, .schedule = YOKE_SCHEDULE_OVERLAP},
    [COMPARE_ALL_CORES] = {"all cores", &compare_by_engine, .schedule = YOKE_SCHEDULE_OVERLAP},
    [COMPARE_PYTHON] = {"dp python", &compare_by_engine, .schedule = YOKE_SCHEDULE_PYTHON},
    [COMPARE_CLASSIC] = {"dp classic", &compare_by_engine, .schedule = YOKE_SCHEDULE_CLASSIC},
    [COMPARE_NCCL] = {"dp nccl", &compare_by_engine, .schedule = YOKE_SCHEDULE_CLASSIC},
    [COMPARE_OVERLAP] = {"dp overlap", &compare_by_engine, .schedule = YOKE_SCHEDULE_OVERLAP},
    [COMPARE_SHARDED] = {"dp sharded", &compare_by_engine, .schedule = YOKE_SCHEDULE_SHARDED},
    [COMPARE_DDP] = {"ddp", &compare_by_ranks, .schedule = YOKE_SCHEDULE_OVERLAP},
    [COMPARE_ASYNC] = {"async", &compare_by_trainer, .mode = YOKE_MODE_ASYNC},
    [COMPARE_LOCAL] = {"local", &compare_by_trainer, .mode = YOKE_MODE_LOCAL},
    [COMPARE_TORCH_EAGER] = {"torch eager", &compare_by_torch, .torch = "eager"},
    [COMPARE_TORCH_DP] = {"torch dp", &compare_by_torch, .torch = "dp"},
    [COMPARE_TORCH_DDP] = {"torch ddp", &compare_by_torch, .torch = "ddp"}};

const char *compare_kind_name(compare_kind kind) {
    return kinds[kind].name;
}

static const compare_way *way_of(const compare_contender *contender) {
    return kinds[contender->kind].way;
}

yoke_status compare_contender_build(compare_contender *contender, const compare_setup *setup,
                                    const compare_meeting *meeting) {
    const compare_way *way = way_of(contender);
    compare_entry entry = {.setup = setup,
                           .meeting = meeting,
                           .role = {.devices = contender->devices,
                                    .threads = contender->threads,
                                    .schedule = kinds[contender->kind].schedule,
                                    .chains = contender->kind == COMPARE_NCCL,
                                    .rank = {.struct_size = sizeof entry.role.rank}},
                           .mode = kinds[contender->kind].mode,
                           .name = kinds[contender->kind].name,
                           .torch = kinds[contender->kind].torch};
    yoke_status status = way->build(&contender->inside, &entry);
    if (status == YOKE_OK && way->describe != NULL)
        way->describe(contender->inside, &contender->facts);
    return status;
}

void compare_contender_clear(compare_contender *contender) {
    way_of(contender)->clear(contender->inside);
    free(contender->history);
    free(contender->memory);
    contender->inside = NULL;
    contender->history = NULL;
    contender->memory = NULL;
}

yoke_status compare_contender_record(compare_contender *contender) {
    size_t devices = (size_t)contender->devices;
    if (way_of(contender)->account == NULL) return YOKE_OK;
    contender->history = calloc(RACE_ROUNDS * devices, sizeof *contender->history);
    contender->memory = calloc(devices, sizeof *contender->memory);
    if (contender->history == NULL || contender->memory == NULL)
        return cli_refuse(YOKE_ERROR_MEMORY, "no memory for the rounds of %zu devices", devices);
    return way_of(contender)->memory(contender->inside, contender->memory);
}

yoke_status compare_contender_learn(compare_contender *contender, int steps) {
    return way_of(contender)->learn(contender->inside, steps, &contender->learned);
}

static yoke_status run(compare_contender *contender, int steps, bool fresh, double *milliseconds) {
    return way_of(contender)->run(contender->inside, steps, fresh, milliseconds);
}

static yoke_status account(compare_contender *contender, int round, double milliseconds) {
    if (round < 0 || round >= RACE_ROUNDS) return YOKE_OK;
    yoke_account *lanes = contender->history + (size_t)(round * contender->devices);
    yoke_status status = way_of(contender)->account(contender->inside, lanes);
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
    const compare_way *way = way_of(contender);
    int capacity = contender->devices * COMPARE_LANE_SPANS, count = 0;
    *step = (compare_step){.number = COMPARE_NO_STEP};
    if (way->step == NULL) return YOKE_OK;
    step->spans = calloc((size_t)capacity, sizeof *step->spans);
    if (step->spans == NULL)
        return cli_refuse(YOKE_ERROR_MEMORY, "no memory for %d spans", capacity);
    yoke_status status = way->steps(contender->inside, step->spans, capacity, &count);
    step->number = compare_steps_choose(step->spans, count, milliseconds, least_ms);
    if (status != YOKE_OK || step->number == COMPARE_NO_STEP) return status;
    return way->step(contender->inside, step, capacity);
}

yoke_status compare_contender_look(compare_contender *contender) {
    const compare_way *way = way_of(contender);
    return way->stages != NULL ? way->stages(contender->inside, &contender->stages) : YOKE_OK;
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

compare_staleness compare_contender_staleness(const compare_contender *contender) {
    compare_staleness staleness = {0};
    const compare_way *way = way_of(contender);
    if (way->staleness != NULL) way->staleness(contender->inside, &staleness);
    return staleness;
}

double compare_contender_seconds(const compare_contender *contender) {
    const compare_way *way = way_of(contender);
    bool has_others = contender->inside != NULL && way->seconds != NULL;
    return has_others ? way->seconds(contender->inside) : 0;
}
