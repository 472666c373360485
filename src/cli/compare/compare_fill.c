/* SPDX-License-Identifier: Apache-2.0 */
/* From contenders that have raced to a result. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/compare/compare.h"

static const race_ratio unknown = {NAN, NAN, NAN};

static int find_contender(const comparison *all, compare_kind kind) {
    for (int i = 0; i < all->count; i++)
        if (all->contenders[i].kind == kind) return i;
    return -1;
}

static void fill_figures(const comparison *all, int index, compare_mode *mode) {
    int all_cores = find_contender(all, COMPARE_ALL_CORES);
    double images = 1e3 * all->result.setup.batch;
    mode->step_ms = race_times(&all->race, index, 1);
    mode->images_per_second = (race_ratio){.median = images / mode->step_ms.median,
                                           .low = images / mode->step_ms.high,
                                           .high = images / mode->step_ms.low};
    mode->speedup = race_compare(&all->race, index, 0, 1);
    mode->efficiency = race_compare(&all->race, index, 0, 1.0 / mode->devices);
    mode->speedup_all_cores = unknown;
    if (all_cores >= 0) mode->speedup_all_cores = race_compare(&all->race, index, all_cores, 1);
    for (int i = 0; i < all->race.done; i++)
        mode->round_ms[i] = all->race.milliseconds[i][index];
}

static yoke_status fill_learned(const compare_contender *contender, int steps, compare_mode *mode) {
    mode->losses = calloc((size_t)steps + 1, sizeof *mode->losses);
    if (mode->losses == NULL)
        return cli_refuse(YOKE_ERROR_MEMORY, "no memory for %d losses", steps);
    memcpy(mode->losses, contender->learned.losses, (size_t)steps * sizeof *mode->losses);
    mode->weights_hash = contender->learned.hash;
    return YOKE_OK;
}

typedef struct placed {
    double ms;
    int number; /* of the round */
} placed;

static int by_ms(const void *left, const void *right) {
    double a = ((const placed *)left)->ms, b = ((const placed *)right)->ms;
    return (a > b) - (a < b);
}

/* The accounts of the one or two rounds in the middle, whose times make the median. */
static void fill_accounts(const comparison *all, const compare_contender *contender,
                          compare_mode *mode) {
    placed order[RACE_ROUNDS];
    int count = all->race.done;
    for (int i = 0; i < count; i++)
        order[i] = (placed){mode->round_ms[i], all->race.number[i]};
    qsort(order, (size_t)count, sizeof *order, by_ms);
    const int middle[] = {order[(count - 1) / 2].number, order[count / 2].number};
    for (int k = 0; k < mode->devices; k++)
        for (int i = 0; i < 2; i++)
            yoke_account_add(&mode->parts[k].account,
                             &contender->history[middle[i] * contender->devices + k], 0.5);
}

/* A contender that records nothing has no parts. */
static yoke_status fill_parts(const comparison *all, const compare_contender *contender,
                              compare_mode *mode) {
    if (contender->history == NULL) return YOKE_OK;
    mode->parts = calloc((size_t)mode->devices, sizeof *mode->parts);
    if (mode->parts == NULL)
        return cli_refuse(YOKE_ERROR_MEMORY, "no memory for %d devices", mode->devices);
    for (int i = 0; i < mode->devices; i++) {
        memcpy(mode->parts[i].name, all->result.setup.names[i], sizeof mode->parts[i].name);
        mode->parts[i].memory = contender->memory[i];
    }
    fill_accounts(all, contender, mode);
    return YOKE_OK;
}

static int by_device_and_begin(const void *left, const void *right) {
    const yoke_span_info *a = left, *b = right;
    if (a->lane != b->lane) return a->lane < b->lane ? -1 : 1;
    return (a->begin_ns > b->begin_ns) - (a->begin_ns < b->begin_ns);
}

static int by_median(const void *left, const void *right) {
    double a = (*(compare_mode *const *)left)->step_ms.median;
    double b = (*(compare_mode *const *)right)->step_ms.median;
    return (a > b) - (a < b);
}

static yoke_status fill_steps(comparison *all) {
    compare_mode *order[RACE_CONTENDERS];
    yoke_status status = YOKE_OK;
    double least_ms = 0; /* the step of the next faster mode: recorded steps order as medians do */
    for (int i = 0; i < all->count; i++)
        order[i] = &all->result.modes[i];
    qsort(order, (size_t)all->count, sizeof *order, by_median);
    for (int i = 0; i < all->count && status == YOKE_OK; i++) {
        compare_contender *contender = &all->contenders[order[i] - all->result.modes];
        compare_step *step = &order[i]->step;
        status = compare_contender_step(contender, order[i]->step_ms.median, least_ms, step);
        if (status == YOKE_OK && step->count > 0)
            qsort(step->spans, (size_t)step->count, sizeof *step->spans, by_device_and_begin);
        if (step->spans != NULL) least_ms = step->milliseconds;
    }
    return status;
}

static yoke_status fill_mode(comparison *all, int index) {
    compare_contender *contender = &all->contenders[index];
    compare_mode *mode = &all->result.modes[index];
    int threads = contender->threads > 0 ? contender->threads : all->result.setup.threads;
    mode->kind = contender->kind;
    mode->devices = contender->devices;
    mode->threads = all->result.cores > 0 ? threads : 0;
    memcpy(mode->transport, contender->facts.transport, sizeof mode->transport);
    if (contender->facts.torch[0] != '\0')
        memcpy(all->result.torch, contender->facts.torch, sizeof all->result.torch);
    mode->staleness = compare_contender_staleness(contender);
    fill_figures(all, index, mode);
    yoke_status status = fill_learned(contender, all->result.learn_steps, mode);
    return status == YOKE_OK ? fill_parts(all, contender, mode) : status;
}

yoke_status compare_fill(comparison *all) {
    compare_result *result = &all->result;
    result->modes = calloc((size_t)all->count, sizeof *result->modes);
    if (result->modes == NULL)
        return cli_refuse(YOKE_ERROR_MEMORY, "no memory for %d modes", all->count);
    result->mode_count = all->count;
    result->parameters = all->contenders[0].facts.parameters;
    result->batch_norm = all->contenders[0].facts.batch_norm;
    result->steps = all->race.steps;
    result->rounds = all->race.done;
    result->repeated = all->race.repeated;
    result->disturbed = all->race.noisy;
    result->interval = all->race.done >= RACE_INTERVAL_ROUNDS;
    yoke_status status = YOKE_OK;
    for (int i = 0; i < all->count && status == YOKE_OK; i++)
        status = fill_mode(all, i);
    if (status == YOKE_OK) status = fill_steps(all);
    if (status == YOKE_OK) compare_judge(result);
    return status;
}
