/* The rows that race processes against threads: DDP's ranks beside DataParallel's devices. */
#include "bench_rows.h"

#include <math.h>

#include "bench_ranks.h"

typedef struct duel {
    bench_ranks *ranks;
    compare_contender threads;
} duel;

static double rank_seconds(void *both) {
    return compare_ranks_seconds(((duel *)both)->ranks->contender.ranks);
}

static rounds race_of(const bench_row *row, const bench_effort *effort, duel *both) {
    return (rounds){.title = row->name,
                    .rounds = effort->rounds,
                    .steps = effort->steps,
                    .seconds = effort->seconds,
                    .helpers = rank_seconds,
                    .context = both};
}

static yoke_status race_speed(const bench_row *row, const bench_effort *effort, duel *both,
                              bench_result *result) {
    rounds race = race_of(row, effort, both);
    race.contenders[race.count++] =
        (race_contender){compare_contender_run, &both->ranks->contender};
    race.contenders[race.count++] = (race_contender){compare_contender_run, &both->threads};
    race.contenders[race.count++] =
        (race_contender){compare_contender_run, &both->ranks->contender};
    both->threads = (compare_contender){.kind = COMPARE_OVERLAP, .devices = row->a->devices};
    yoke_status status = compare_contender_build(&both->threads, &both->ranks->setup, NULL);
    if (status == YOKE_OK) status = race_run(&race);
    if (status != YOKE_OK) return status;
    double rows_a_second = 1e3 * row->a->rows * row->a->devices;
    bench_race_result(&race, 2, result);
    result->value = race_compare(&race, 0, 1, 1);
    result->a = rows_a_second / race_times(&race, 0, 1).median;
    result->b = rows_a_second / race_times(&race, 1, 1).median;
    return YOKE_OK;
}

static yoke_status race_wait(const bench_row *row, const bench_effort *effort, duel *both,
                             bench_result *result) {
    rounds race = race_of(row, effort, both);
    if (race.steps == 0) race.steps = 5;
    race.contenders[race.count++] =
        (race_contender){compare_contender_wait, &both->ranks->contender};
    yoke_status status = race_run(&race);
    if (status != YOKE_OK) return status;
    bench_race_result(&race, 0, result);
    result->value = race_times(&race, 0, 1);
    result->a = result->value.median;
    result->b = NAN;
    return YOKE_OK;
}

typedef yoke_status (*duel_function)(const bench_row *row, const bench_effort *effort, duel *both,
                                     bench_result *result);

static yoke_status measure(const bench_row *row, const bench_effort *effort, duel_function race,
                           bench_result *result) {
    duel both = {0};
    yoke_status status = bench_ranks_create(&both.ranks, row->a);
    if (status == YOKE_OK) status = race(row, effort, &both, result);
    bench_ranks_destroy(both.ranks);
    compare_contender_clear(&both.threads);
    return status;
}

yoke_status bench_measure_ddp(const bench_row *row, const bench_effort *effort,
                              bench_result *result) {
    return measure(row, effort, race_speed, result);
}

yoke_status bench_measure_wait(const bench_row *row, const bench_effort *effort,
                               bench_result *result) {
    return measure(row, effort, race_wait, result);
}
