/* SPDX-License-Identifier: Apache-2.0 */
/* Who races in each form, and the one way in which every row is measured. */
#include "bench/tool/bench_forms.h"

#include <math.h>

#include "bench/tool/bench_ranks.h"

/* Engine a against engine b. */
static yoke_status open_throughput(const bench_row *row, bench_field *field) {
    yoke_status status = bench_engine_create(&field->engines[0], row->a);
    if (status == YOKE_OK) status = bench_engine_create(&field->engines[1], row->b);
    if (status != YOKE_OK) return status;
    field->a = (race_contender){bench_engine_steps, field->engines[0]};
    field->b = (race_contender){bench_engine_steps, field->engines[1]};
    field->a_work = 1e3 * field->engines[0]->batch.rows;
    field->b_work = 1e3 * field->engines[1]->batch.rows;
    return YOKE_OK;
}

/* The fastest step against the fastest kernels: the difference is the engine's, not the machine's.
 */
static yoke_status open_kernels(const bench_row *row, race_run_function kernels,
                                bench_field *field) {
    yoke_status status = bench_engine_create(&field->engines[0], row->a);
    field->a = (race_contender){bench_engine_fastest, field->engines[0]};
    field->b = (race_contender){kernels, field->engines[0]};
    return status;
}

static yoke_status open_cost(const bench_row *row, bench_field *field) {
    return open_kernels(row, bench_engine_kernels_alone, field);
}

static yoke_status open_in_order(const bench_row *row, bench_field *field) {
    return open_kernels(row, bench_engine_kernels_in_order, field);
}

/* Steps into the engine's trace, and their stages: STAGE_COUNT rows, *count of them filled. */
static yoke_status trace_steps(bench_engine *engine, int steps, yoke_stage_summary *stages,
                               int *count) {
    yoke_trace *trace = yoke_data_parallel_trace(engine->parallel);
    yoke_trace_reset(trace);
    double milliseconds;
    yoke_status status = bench_engine_steps(engine, steps, &milliseconds);
    for (int i = 0; i < YOKE_STAGE_COUNT; i++)
        stages[i].struct_size = sizeof stages[i];
    *count = yoke_trace_summarize(trace, stages, YOKE_STAGE_COUNT);
    return status;
}

/* Percent of the steps' time that lies in no stage of the trace. */
static yoke_status run_outside(void *context, int steps, double *percent) {
    yoke_stage_summary stages[YOKE_STAGE_COUNT];
    int count;
    yoke_status status = trace_steps(context, steps, stages, &count);
    double inside = 0;
    for (int i = 0; i < count; i++)
        if (stages[i].stage != YOKE_STAGE_STEP) inside += stages[i].share;
    *percent = 100 * (1 - inside);
    return status;
}

static yoke_status open_outside(const bench_row *row, bench_field *field) {
    yoke_status status = bench_engine_create(&field->engines[0], row->a);
    field->a = (race_contender){run_outside, field->engines[0]};
    return status;
}

static double stage_median(const yoke_stage_summary *stages, int count, yoke_stage stage) {
    for (int i = 0; i < count; i++)
        if (stages[i].stage == stage) return stages[i].median_ms;
    return 0;
}

/* How much longer engine a exchanges than engine b, in percent of a's step. Whole steps vary more
 * than what the check of gradients costs; it happens in the exchange. */
static yoke_status run_check(void *context, int steps, double *percent) {
    bench_engine **engines = ((bench_field *)context)->engines;
    yoke_stage_summary stages[2][YOKE_STAGE_COUNT];
    int count[2] = {0};
    yoke_status status = trace_steps(engines[0], steps, stages[0], &count[0]);
    if (status == YOKE_OK) status = trace_steps(engines[1], steps, stages[1], &count[1]);
    double with = stage_median(stages[0], count[0], YOKE_STAGE_EXCHANGE);
    double without = stage_median(stages[1], count[1], YOKE_STAGE_EXCHANGE);
    *percent = 100 * (with - without) / stage_median(stages[0], count[0], YOKE_STAGE_STEP);
    return status;
}

static yoke_status open_check(const bench_row *row, bench_field *field) {
    yoke_status status = bench_engine_create(&field->engines[0], row->a);
    if (status == YOKE_OK) status = bench_engine_create(&field->engines[1], row->b);
    field->a = (race_contender){run_check, field};
    return status;
}

/* DDP's ranks against as many devices of this process. */
static yoke_status open_ddp(const bench_row *row, bench_field *field) {
    yoke_status status = bench_ranks_create(&field->ranks, row->a);
    if (status != YOKE_OK) return status;
    field->threads = (compare_contender){.kind = COMPARE_OVERLAP, .devices = row->a->devices};
    field->a = (race_contender){compare_contender_run, &field->ranks->contender};
    field->b = (race_contender){compare_contender_run, &field->threads};
    field->a_work = field->b_work = 1e3 * row->a->rows * row->a->devices;
    return compare_contender_build(&field->threads, &field->ranks->setup, NULL);
}

static yoke_status open_wait(const bench_row *row, bench_field *field) {
    yoke_status status = bench_ranks_create(&field->ranks, row->a);
    if (status == YOKE_OK)
        field->a = (race_contender){compare_contender_wait, &field->ranks->contender};
    return status;
}

const bench_form bench_throughput = {"img/s", BENCH_SPEED, 1, true, 0, open_throughput};
const bench_form bench_cost = {"ms", BENCH_TIME, 1, true, 0, open_cost};
const bench_form bench_in_order = {"ms", BENCH_TIME, 1, true, 0, open_in_order};
const bench_form bench_outside = {"%", BENCH_FIGURE, 1, false, 5, open_outside};
const bench_form bench_check = {"%", BENCH_FIGURE, 1, false, 10, open_check};
const bench_form bench_ddp = {"img/s", BENCH_SPEED, 1, true, 0, open_ddp};
const bench_form bench_wait = {"%", BENCH_FIGURE, 1, false, 5, open_wait};
const bench_form bench_replicate = {"GB/s", BENCH_SPEED, 1, true, 10, bench_open_replicate};
const bench_form bench_reduce = {"GB/s", BENCH_SPEED, 1, true, 10, bench_open_reduce};
const bench_form bench_dispatch = {"us", BENCH_FIGURE, 1e3, true, 0, bench_open_dispatch};
const bench_form bench_barrier = {"us", BENCH_SPEED, 1e3, true, 0, bench_open_barrier};
const bench_form bench_futex = {"us", BENCH_TIME, 1e3, true, 0, bench_open_futex};

const char *bench_row_unit(const bench_row *row) {
    return row->form->unit;
}

static double rank_seconds(void *context) {
    const bench_field *field = context;
    return field->ranks != NULL ? compare_contender_seconds(&field->ranks->contender) : 0;
}

static void close_field(bench_field *field) {
    bench_copy_destroy(field->copy);
    bench_meeting_destroy(field->meeting);
    compare_contender_clear(&field->threads);
    bench_ranks_destroy(field->ranks);
    bench_engine_destroy(field->engines[1]);
    bench_engine_destroy(field->engines[0]);
}

static double figure(const bench_form *form, const rounds *race, int contender, double work) {
    double milliseconds = race_times(race, contender, 1).median;
    return work > 0 ? work / milliseconds : form->units_per_ms * milliseconds;
}

static bench_result read_result(const bench_form *form, const bench_field *field,
                                const rounds *race) {
    bool rival = field->b.run != NULL;
    double scale = field->a_work > 0 ? field->a_work / field->b_work : 1;
    bench_result result = {.noise = form->twin ? race_noise(race, 0, race->count - 1) : (double)NAN,
                           .a = figure(form, race, 0, field->a_work),
                           .b = rival ? figure(form, race, 1, field->b_work) : (double)NAN,
                           .rounds = race->done,
                           .repeated = race->repeated,
                           .noisy = race->noisy};
    if (form->value == BENCH_SPEED)
        result.value = race_compare(race, 0, 1, scale);
    else if (form->value == BENCH_TIME)
        result.value = race_compare(race, 1, 0, 1);
    else
        result.value = race_times(race, 0, form->units_per_ms);
    return result;
}

yoke_status bench_measure(const bench_row *row, const bench_effort *effort, bench_result *result) {
    const bench_form *form = row->form;
    bench_field field = {0};
    rounds race = {.title = row->name,
                   .rounds = effort->rounds,
                   .steps = effort->steps > 0 ? effort->steps : form->steps,
                   .seconds = effort->seconds,
                   .helpers = rank_seconds,
                   .context = &field};
    yoke_status status = form->open(row, &field);
    race.contenders[race.count++] = field.a;
    if (field.b.run != NULL) race.contenders[race.count++] = field.b;
    if (form->twin) race.contenders[race.count++] = field.a;
    if (status == YOKE_OK) status = race_run(&race);
    if (status == YOKE_OK) *result = read_result(form, &field, &race);
    close_field(&field);
    return status;
}
