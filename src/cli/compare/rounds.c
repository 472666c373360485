/* SPDX-License-Identifier: Apache-2.0 */
/* The order of turns, the quiet gate, and the statistics of ratios. */
#include "cli/compare/rounds.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/base.h"

#define FOREIGN_CORES 0.04              /* of one core: more makes a round disturbed */
#define PROBE_SLACK 1.15                /* the probe's time over its median */
#define PROBE_FLOATS ((size_t)11174962) /* resnet18-cifar's gradients: 44.7 MB */
#define RESAMPLES 2000
#define ROUNDS_SHARE 0.6 /* of the time limit; the rest is for disturbed rounds */
#define MOST_STEPS 20000

double race_clock(void) {
    return 1e-9 * (double)yoke_now_ns();
}

static int pick(uint64_t *state, int count) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (int)(*state % (uint64_t)count);
}

/* Statistics. */

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int count) {
    qsort(values, (size_t)count, sizeof *values, ascending);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

/* median(above[i]) / median(below[i]) over the rounds i that a resample picks. */
static double resample(const double *above, const double *below, int count, uint64_t *state) {
    double tops[RACE_ROUNDS], bottoms[RACE_ROUNDS];
    for (int k = 0; k < count; k++) {
        int round = pick(state, count);
        tops[k] = above[round];
        bottoms[k] = below[round];
    }
    return median(tops, count) / median(bottoms, count);
}

static double median_of(const double *values, int count) {
    double sorted[RACE_ROUNDS];
    memcpy(sorted, values, (size_t)count * sizeof *sorted);
    return median(sorted, count);
}

static void find_range(const double *above, const double *below, int count, race_ratio *ratio) {
    ratio->low = ratio->high = above[0] / below[0];
    for (int i = 1; i < count; i++) {
        ratio->low = fmin(ratio->low, above[i] / below[i]);
        ratio->high = fmax(ratio->high, above[i] / below[i]);
    }
}

static void find_interval(const double *above, const double *below, int count, race_ratio *ratio) {
    double resamples[RESAMPLES];
    uint64_t state = 88172645463325252u;
    for (int i = 0; i < RESAMPLES; i++)
        resamples[i] = resample(above, below, count, &state);
    qsort(resamples, RESAMPLES, sizeof *resamples, ascending);
    ratio->low = resamples[RESAMPLES / 40];
    ratio->high = resamples[RESAMPLES - 1 - RESAMPLES / 40];
}

static race_ratio quotient(const double *above, const double *below, int count) {
    race_ratio ratio = {NAN, NAN, NAN};
    if (count < 1 || count > RACE_ROUNDS) return ratio;
    ratio.median = median_of(above, count) / median_of(below, count);
    if (count < RACE_INTERVAL_ROUNDS)
        find_range(above, below, count, &ratio);
    else
        find_interval(above, below, count, &ratio);
    return ratio;
}

static race_ratio scaled(race_ratio ratio, double scale) {
    return (race_ratio){scale * ratio.median, scale * ratio.low, scale * ratio.high};
}

static void times_of(const rounds *race, int contender, double times[RACE_ROUNDS]) {
    for (int i = 0; i < race->done; i++)
        times[i] = race->milliseconds[i][contender];
}

race_ratio race_interval(const double *values, int count) {
    double ones[RACE_ROUNDS];
    for (int i = 0; i < RACE_ROUNDS; i++)
        ones[i] = 1;
    return quotient(values, ones, count);
}

race_ratio race_compare(const rounds *race, int a, int b, double scale) {
    double above[RACE_ROUNDS], below[RACE_ROUNDS];
    times_of(race, b, above);
    times_of(race, a, below);
    return scaled(quotient(above, below, race->done), scale);
}

race_ratio race_times(const rounds *race, int contender, double scale) {
    double times[RACE_ROUNDS];
    times_of(race, contender, times);
    return scaled(race_interval(times, race->done), scale);
}

double race_noise(const rounds *race, int a, int same) {
    race_ratio ratio = race_compare(race, a, same, 1);
    return fmax(fabs(ratio.high - 1), fabs(ratio.low - 1));
}

/* The quiet gate. */

/* Processor seconds of all processes so far, with the time that the hypervisor took. */
static double machine_seconds(void) {
    FILE *file = fopen("/proc/stat", "r");
    if (!file) return 0;
    double user, nice, system, idle, wait, irq, soft, steal;
    int got = fscanf(file, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &user, &nice, &system, &idle,
                     &wait, &irq, &soft, &steal);
    fclose(file);
    if (got != 8) return 0;
    return (user + nice + system + irq + soft + steal) / (double)sysconf(_SC_CLK_TCK);
}

static double seconds_of(struct timeval time) {
    return (double)time.tv_sec + (double)time.tv_usec * 1e-6;
}

static double own_seconds(const rounds *race) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    double helpers = race->helpers != NULL ? race->helpers(race->context) : 0;
    return seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime) + helpers;
}

/* Foreign work shows in the processor time of others, and in a probe of cache and memory: a += b.
 */
typedef struct quiet_gate {
    float *a, *b;
    double probes[RACE_ROUNDS];
    int probe_count;
    double machine, own, clock;
} quiet_gate;

static double probe(quiet_gate *gate) {
    double begin = race_clock();
    for (size_t i = 0; i < PROBE_FLOATS; i++)
        gate->a[i] += gate->b[i];
    return race_clock() - begin;
}

static bool gate_open(quiet_gate *gate) {
    gate->a = calloc(PROBE_FLOATS, sizeof *gate->a);
    gate->b = calloc(PROBE_FLOATS, sizeof *gate->b);
    if (!gate->a || !gate->b) return false;
    for (size_t i = 0; i < PROBE_FLOATS; i++)
        gate->a[i] = gate->b[i] = 1e-3f;
    return true;
}

/* True when the probe takes about as long as usual. */
static bool gate_begin(quiet_gate *gate, const rounds *race) {
    double took = probe(gate), sorted[RACE_ROUNDS];
    memcpy(sorted, gate->probes, sizeof sorted);
    bool usual =
        gate->probe_count < RACE_FEWEST || took <= PROBE_SLACK * median(sorted, gate->probe_count);
    if (gate->probe_count < RACE_ROUNDS) gate->probes[gate->probe_count++] = took;
    gate->machine = machine_seconds();
    gate->own = own_seconds(race);
    gate->clock = race_clock();
    return usual;
}

/* True when nobody else used the cores since gate_begin. The kernel counts in ticks: two ticks
 * prove nothing. */
static bool gate_quiet(const quiet_gate *gate, const rounds *race) {
    double elapsed = race_clock() - gate->clock, tick = 1.0 / (double)sysconf(_SC_CLK_TCK);
    double own = own_seconds(race) - gate->own;
    double foreign = machine_seconds() - gate->machine - own - 2 * tick;
    return foreign <= FOREIGN_CORES * elapsed;
}

/* The race. */

static yoke_status run_one(rounds *race, int contender, double *milliseconds) {
    const race_contender *runner = &race->contenders[contender];
    return runner->run(runner->context, race->steps, milliseconds);
}

static int choose_steps(const rounds *race, double first_ms, double all_ms) {
    double half_a_second = ceil(500 / first_ms);
    double affordable = floor(ROUNDS_SHARE * 1e3 * race->seconds / (race->rounds * all_ms));
    return (int)fmin(fmax(fmin(half_a_second, affordable), 2), MOST_STEPS);
}

static yoke_status warm_up(rounds *race) {
    double milliseconds = 0, all_ms = 0;
    bool choose = race->steps < 1;
    if (choose) race->steps = 2;
    for (int i = race->count - 1; i >= 0; i--) {
        yoke_status status = run_one(race, i, &milliseconds);
        if (status != YOKE_OK) return status;
        all_ms += milliseconds;
    }
    if (choose) race->steps = choose_steps(race, milliseconds, all_ms);
    return YOKE_OK;
}

static yoke_status run_round(rounds *race, double *milliseconds, uint64_t *state) {
    int order[RACE_CONTENDERS];
    for (int i = 0; i < race->count; i++) {
        int at = pick(state, i + 1);
        order[i] = order[at];
        order[at] = i;
    }
    for (int i = 0; i < race->count; i++) {
        yoke_status status = run_one(race, order[i], &milliseconds[order[i]]);
        if (status != YOKE_OK) return status;
    }
    return YOKE_OK;
}

/* On a terminal a line that rewrites itself, elsewhere one line a race. */
static void print_progress(const rounds *race, int quiet, bool finished) {
    bool terminal = isatty(STDERR_FILENO);
    if (race->title == NULL) return;
    if (terminal && finished)
        fprintf(stderr, "\r\033[K");
    else if (terminal)
        fprintf(stderr, "\r%s: %d of %d rounds, %d disturbed\033[K", race->title, quiet,
                race->rounds, race->done - quiet);
    else if (finished)
        fprintf(stderr, "%s: %d of %d rounds, %d repeated, %d disturbed\n", race->title, race->done,
                race->rounds, race->repeated, race->noisy);
}

/* What the rounds were like while they ran. */
typedef struct course {
    bool disturbed[RACE_ROUNDS]; /* [race->done] */
    int quiet;                   /* rounds that were not */
} course;

static yoke_status run_rounds(rounds *race, quiet_gate *gate, double begin, course *run) {
    uint64_t state = 2463534242u;
    double longest = 0;
    while (run->quiet < race->rounds && race->done < RACE_ROUNDS) {
        double now = race_clock();
        bool late = now + longest - begin > race->seconds;
        if (late && race->done >= RACE_FEWEST) return YOKE_OK;
        bool quiet = gate_begin(gate, race);
        yoke_status status = run_round(race, race->milliseconds[race->done], &state);
        if (status != YOKE_OK) return status;
        quiet = gate_quiet(gate, race) && quiet;
        longest = fmax(longest, race_clock() - now);
        race->number[race->done] = race->done;
        run->disturbed[race->done++] = !quiet;
        run->quiet += quiet;
        print_progress(race, run->quiet, false);
    }
    return YOKE_OK;
}

/* Quiet rounds alone where they suffice for an interval; else disturbed ones fill up. */
static void settle(rounds *race, const course *run) {
    bool enough = run->quiet >= race->rounds || run->quiet >= RACE_INTERVAL_ROUNDS;
    int ran = race->done, spare = enough ? 0 : race->rounds - run->quiet;
    race->done = 0;
    for (int i = 0; i < ran; i++) {
        bool kept = !run->disturbed[i] || race->noisy < spare;
        race->repeated += !kept;
        if (!kept) continue;
        race->noisy += run->disturbed[i];
        memmove(race->milliseconds[race->done], race->milliseconds[i],
                sizeof race->milliseconds[i]);
        race->number[race->done++] = i;
    }
}

yoke_status race_run(rounds *race) {
    double begin = race_clock();
    course run = {.quiet = 0};
    quiet_gate gate = {0};
    race->done = race->repeated = race->noisy = 0;
    yoke_status status = gate_open(&gate) ? warm_up(race) : YOKE_ERROR_MEMORY;
    if (status == YOKE_OK) status = run_rounds(race, &gate, begin, &run);
    free(gate.a);
    free(gate.b);
    settle(race, &run);
    print_progress(race, run.quiet, true);
    return status;
}
