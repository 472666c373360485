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
            compare_account_add(&mode->parts[k].account,
                                &contender->history[middle[i] * contender->devices + k], 0.5);
}

static yoke_status fill_parts(const comparison *all, const compare_contender *contender,
                              compare_mode *mode) {
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
    const compare_span *a = left, *b = right;
    if (a->device != b->device) return a->device < b->device ? -1 : 1;
    return (a->begin_ms > b->begin_ms) - (a->begin_ms < b->begin_ms);
}

static double since(const compare_step *step, uint64_t ns) {
    return 1e-6 * ((double)ns - (double)step->begin_ns);
}

static yoke_status fill_spans(compare_contender *contender, compare_mode *mode) {
    compare_step step = {.number = COMPARE_NO_STEP, .milliseconds = mode->step_ms.median};
    yoke_status status = compare_contender_step(contender, &step);
    mode->spans = calloc((size_t)step.count + 1, sizeof *mode->spans);
    if (status == YOKE_OK && mode->spans == NULL)
        status = cli_refuse(YOKE_ERROR_MEMORY, "no memory for %d spans", step.count);
    for (int i = 0; i < step.count && status == YOKE_OK; i++) {
        const yoke_span_info *span = &step.spans[i];
        mode->spans[mode->span_count++] = (compare_span){.device = span->lane,
                                                         .bucket = span->bucket,
                                                         .stage = span->stage,
                                                         .awaits = span->awaits,
                                                         .begin_ms = since(&step, span->begin_ns),
                                                         .end_ms = since(&step, span->end_ns),
                                                         .bytes = (double)span->bytes};
    }
    if (status == YOKE_OK)
        qsort(mode->spans, (size_t)mode->span_count, sizeof *mode->spans, by_device_and_begin);
    mode->span_step_ms = step.milliseconds;
    mode->spans_left_out = step.left_out;
    free(step.spans);
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
    fill_figures(all, index, mode);
    yoke_status status = fill_learned(contender, all->result.learn_steps, mode);
    if (status == YOKE_OK) status = fill_parts(all, contender, mode);
    return status == YOKE_OK ? fill_spans(contender, mode) : status;
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
    if (status == YOKE_OK) compare_judge(result);
    return status;
}
