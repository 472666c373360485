/* Calls the engine in this process, or the ranks. */
#include "cli/compare/compare_contender.h"

static const struct {
    const char *name;
    yoke_schedule schedule;
} kinds[COMPARE_KINDS] = {[COMPARE_SINGLE] = {"single", YOKE_SCHEDULE_OVERLAP},
                          [COMPARE_CLASSIC] = {"dp classic", YOKE_SCHEDULE_CLASSIC},
                          [COMPARE_OVERLAP] = {"dp overlap", YOKE_SCHEDULE_OVERLAP},
                          [COMPARE_SHARDED] = {"dp sharded", YOKE_SCHEDULE_SHARDED},
                          [COMPARE_DDP] = {"ddp", YOKE_SCHEDULE_OVERLAP}};

const char *compare_kind_name(compare_kind kind) {
    return kinds[kind].name;
}

yoke_status compare_contender_build(compare_contender *contender, const compare_setup *setup,
                                    const compare_meeting *meeting) {
    compare_role role = {.devices = contender->devices,
                         .schedule = kinds[contender->kind].schedule,
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
    contender->ranks = NULL;
    contender->engine = NULL;
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

yoke_status compare_contender_run(void *context, int steps, double *milliseconds) {
    compare_contender *contender = context;
    bool fresh = contender->runs++ < 2;
    return run(contender, steps, fresh, milliseconds);
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
    *percent = 100 * compare_stage_share(&contender->stages, YOKE_STAGE_WAIT);
    return status;
}

static const yoke_stage_summary *find_stage(const compare_stages *stages, yoke_stage stage) {
    static const yoke_stage_summary nothing = {.count = 0};
    for (int i = 0; i < stages->count; i++)
        if (stages->rows[i].stage == stage) return &stages->rows[i];
    return &nothing;
}

double compare_stage_share(const compare_stages *stages, yoke_stage stage) {
    return find_stage(stages, stage)->share;
}

double compare_stage_ms(const compare_stages *stages, yoke_stage stage) {
    return find_stage(stages, stage)->median_ms;
}
