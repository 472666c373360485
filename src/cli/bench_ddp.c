/* The rows that race processes against threads: DDP's ranks beside DataParallel's devices. */
#include "bench_rows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli.h"
#include "compare_contender.h"

typedef struct duel {
    compare_meeting meeting;
    compare_contender ranks, threads;
} duel;

static compare_setup setup_of(const bench_setup *row) {
    compare_setup setup = {.device_count = row->devices,
                           .threads = row->threads,
                           .batch = row->rows * row->devices,
                           .precision = row->precision,
                           .algorithm = row->algorithm,
                           .ddp_schedule = row->schedule,
                           .optimizer = {.struct_size = sizeof setup.optimizer,
                                         .kind = YOKE_SGD,
                                         .momentum = BENCH_MOMENTUM,
                                         .weight_decay = BENCH_WEIGHT_DECAY}};
    snprintf(setup.model, sizeof setup.model, "%s", row->model);
    snprintf(setup.dataset, sizeof setup.dataset, "synthetic:3x32x32,rows=%d", setup.batch);
    for (int i = 0; i < row->devices; i++)
        snprintf(setup.names[i], sizeof setup.names[i], "cpu:%d", i);
    return setup;
}

static double rank_seconds(void *both) {
    return compare_ranks_seconds(((duel *)both)->ranks.ranks);
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
    compare_setup setup = setup_of(row->a);
    rounds race = race_of(row, effort, both);
    race.contenders[race.count++] = (race_contender){compare_contender_run, &both->ranks};
    race.contenders[race.count++] = (race_contender){compare_contender_run, &both->threads};
    race.contenders[race.count++] = (race_contender){compare_contender_run, &both->ranks};
    both->threads = (compare_contender){.kind = COMPARE_OVERLAP, .devices = row->a->devices};
    yoke_status status = compare_contender_build(&both->threads, &setup, &both->meeting);
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
    race.contenders[race.count++] = (race_contender){compare_contender_wait, &both->ranks};
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
    compare_setup setup = setup_of(row->a);
    duel *both = calloc(1, sizeof *both);
    if (both == NULL) return cli_refuse(YOKE_ERROR_MEMORY, "no memory for a race");
    both->ranks = (compare_contender){.kind = COMPARE_DDP, .devices = row->a->devices};
    bool open = compare_meeting_open(&both->meeting) < 0;
    yoke_status status =
        open ? compare_contender_build(&both->ranks, &setup, &both->meeting) : YOKE_ERROR_SYSTEM;
    if (status == YOKE_OK) status = race(row, effort, both, result);
    compare_contender_clear(&both->ranks);
    compare_contender_clear(&both->threads);
    if (open) compare_meeting_close(&both->meeting);
    free(both);
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
