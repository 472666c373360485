/* SPDX-License-Identifier: Apache-2.0 */
/* What the tables of a comparison say, in sentences of at most 80 columns. A difference counts only
 * outside its interval; in a disturbed race only where the intervals of two modes are disjoint. */
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "cli/compare/compare.h"

#define WIDTH 80
#define NAMED_SHARE 5e-3 /* a stage below it is not worth a word */

/* Prints a paragraph, broken at blanks. */
static void say(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(FILE *out, const char *format, ...) {
    char text[2048];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    size_t column = 0;
    for (const char *word = text; *word != '\0'; word += strspn(word, " ")) {
        size_t length = strcspn(word, " ");
        bool fits = column + 1 + length <= WIDTH;
        if (column > 0) fputc(fits ? ' ' : '\n', out);
        column = column > 0 && fits ? column + 1 + length : length;
        fprintf(out, "%.*s", (int)length, word);
        word += length;
    }
    fputc('\n', out);
}

/* Learning. */

/* Modes compared with single, with dp overlap on as many devices, and those of PyTorch with either.
 */
typedef enum compared { WITH_SINGLE, WITH_OVERLAP, OF_TORCH } compared;

static compared how_compared(const compare_mode *mode) {
    if (compare_is_torch(mode->kind)) return OF_TORCH;
    return mode->compared_with == 0 ? WITH_SINGLE : WITH_OVERLAP;
}

static double most_different(const compare_result *result, compared how, bool *same_bits) {
    double most = 0;
    *same_bits = true;
    for (int i = 0; i < result->mode_count; i++) {
        const compare_mode *mode = &result->modes[i];
        if (mode->compared_with < 0 || how_compared(mode) != how) continue;
        most = fmax(most, mode->difference);
        *same_bits = *same_bits && mode->verdict == COMPARE_SAME_BITS;
    }
    return most;
}

/* Whether some modes are compared with nothing, or have no weights to compare. */
static bool has_others(const compare_result *result) {
    char names[COMPARE_NAMES_BYTES];
    return compare_unrecorded_names(result, names)[0] != '\0';
}

static void say_another(FILE *out, const compare_result *result) {
    char names[COMPARE_NAMES_BYTES];
    if (compare_apart_names(result, names)[0] != '\0')
        say(out,
            "What %s learned is compared with nothing: another method ends with other "
            "weights, by design.",
            names);
}

static void say_same_network(FILE *out, const compare_result *result, double most) {
    bool some = result->batch_norm && result->learn_steps > COMPARE_TORCH_STEPS;
    char first[16] = "";
    if (some) snprintf(first, sizeof first, "first %d ", COMPARE_TORCH_STEPS);
    say(out, "PyTorch's %slosses differ from Yoke's by %.1e at most: the same network learned.%s",
        first, most,
        some ? " It rounds otherwise, and with batch norm that grows in each step: later losses "
               "part, as those of other numbers of threads do."
             : "");
}

static void say_learning(FILE *out, const compare_result *result) {
    bool same_bits, unused;
    double among = most_different(result, WITH_OVERLAP, &same_bits);
    double single = most_different(result, WITH_SINGLE, &unused);
    double torch = most_different(result, OF_TORCH, &unused);
    if (!compare_all_equal(result))
        say(out, "NOT ALL LEARNED THE SAME: losses differ by %.1e; the tolerance is %g.",
            fmax(fmax(among, single), torch), result->tolerance);
    else if (same_bits)
        say(out, "All %smodes on as many devices learned the same weights, bit for bit.",
            has_others(result) ? "dp and ddp " : "");
    else
        say(out,
            "Modes on as many devices learned the same up to rounding: losses differ by %.1e at "
            "most.",
            among);
    if (result->batch_norm)
        say(out, "Batch norm normalizes the rows of each device alone, so another number of "
                 "devices computes something else: the losses on one device stand alone.");
    else if (compare_all_equal(result))
        say(out, "Their losses differ from those of single by %.1e at most.", single);
    if (result->torch[0] != '\0' && compare_all_equal(result)) say_same_network(out, result, torch);
    say_another(out, result);
}

/* Speed. */

static bool has_verdict(const compare_result *result) {
    return result->interval && result->disturbed == 0;
}

/* Disturbed rounds make intervals wide; those that are disjoint even so order their modes. */
static void say_order(FILE *out, const compare_result *result, int devices) {
    char order[1024];
    compare_order(result, devices, order, sizeof order);
    say(out,
        "Other programs disturbed %d of %d rounds. %s Run it again on a quiet machine, or with "
        "more --seconds.",
        result->disturbed, result->rounds, order);
}

/* The rounds of both modes, as in race_compare. */
static race_ratio speed_ratio(const compare_result *result, const compare_mode *one,
                              const compare_mode *other) {
    rounds pair = {.count = 2, .done = result->rounds};
    for (int i = 0; i < result->rounds; i++) {
        pair.milliseconds[i][0] = one->round_ms[i];
        pair.milliseconds[i][1] = other->round_ms[i];
    }
    return race_compare(&pair, 0, 1, 100);
}

static void say_faster(FILE *out, const compare_result *result, const compare_mode *one,
                       const compare_mode *other) {
    race_ratio ratio = speed_ratio(result, one, other);
    const char *name = compare_kind_name(one->kind), *rival = compare_kind_name(other->kind);
    const char *verdict = ratio.low > 100    ? "it is faster"
                          : ratio.high < 100 ? "it is slower"
                                             : "no difference shows";
    say(out, "On %d device%s %s has %.1f %% of the speed of %s (95 %% interval %.1f .. %.1f): %s.",
        one->devices, one->devices == 1 ? "" : "s", name, ratio.median, rival, ratio.low,
        ratio.high, verdict);
}

/* Time. */

/* All that is not forward, loss and backward. */
static void say_overhead(FILE *out, const compare_mode *mode) {
    yoke_account mean = compare_mean_account(mode);
    char parts[512] = "";
    double computing_ms = mean.stage_ms[YOKE_STAGE_FORWARD] + mean.stage_ms[YOKE_STAGE_LOSS] +
                          mean.stage_ms[YOKE_STAGE_BACKWARD];
    double lost = 100 - 100 * computing_ms / mean.step_ms;
    for (int stage = 0; stage < YOKE_ACCOUNT_STAGES; stage++) {
        bool computes =
            stage == YOKE_STAGE_FORWARD || stage == YOKE_STAGE_LOSS || stage == YOKE_STAGE_BACKWARD;
        if (computes || mean.stage_ms[stage] < NAMED_SHARE * mean.step_ms) continue;
        size_t length = strlen(parts);
        snprintf(parts + length, sizeof parts - length, "%s%s %.2f ms", length > 0 ? ", " : "",
                 yoke_account_name(stage), mean.stage_ms[stage]);
    }
    say(out, "In %s a device spends %.1f %% of a step outside forward, loss and backward%s%s.",
        compare_kind_name(mode->kind), lost, parts[0] != '\0' ? ": " : "", parts);
}

/* What the modes do whose devices have weights of their own, and what their steps have that those
 * of the others have not. */
static void say_apart(FILE *out, const compare_result *result, int devices) {
    const compare_setup *setup = &result->setup;
    const compare_mode *async = compare_find(result, COMPARE_ASYNC, devices);
    const compare_mode *local = compare_find(result, COMPARE_LOCAL, devices);
    char names[COMPARE_NAMES_BYTES];
    if (async != NULL)
        say(out,
            "In async no device waits for another one%s. For that gradients come late: %.2f "
            "updates behind their weights on average, %d at most.",
            setup->straggler_factor > 0 ? ", nor for the slow one" : "", async->staleness.mean,
            async->staleness.most);
    if (local != NULL && setup->straggler_factor > 0)
        say(out, "In local all devices begin each step together, and wait for the slow one.");
    if (async != NULL || local != NULL)
        say(out,
            "The steps of %s include the wait for new rows and the ends of epochs; the other modes "
            "repeat one batch.",
            compare_apart_names(result, names));
}

/* The real ones, each beside what stands for it. */
static void say_torch(FILE *out, const compare_result *result, int devices) {
    static const struct {
        compare_kind torch, yoke;
    } pairs[] = {{COMPARE_TORCH_EAGER, COMPARE_SINGLE},
                 {COMPARE_TORCH_DP, COMPARE_CLASSIC},
                 {COMPARE_TORCH_DDP, COMPARE_DDP}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        int count = pairs[i].yoke == COMPARE_SINGLE ? 1 : devices;
        const compare_mode *torch = compare_find(result, pairs[i].torch, count);
        const compare_mode *yoke = compare_find(result, pairs[i].yoke, count);
        if (torch == NULL) continue;
        if (compare_pays(result, torch) && has_verdict(result) && yoke != NULL)
            say_faster(out, result, torch, yoke);
        if (!compare_pays(result, torch))
            say(out,
                "%s knows no %s: it does not pay what the others pay, and its speed is compared "
                "with "
                "nobody's.",
                compare_kind_name(torch->kind), compare_unknown(result));
    }
}

static void say_limits(FILE *out, const compare_result *result, int devices) {
    if (result->ddp_left_out)
        say(out, "No ddp where devices share a GPU: NCCL allows one rank for each GPU.");
    bool linked = result->setup.link[0] != '\0';
    bool repeats = result->setup.ddp_schedule != YOKE_SCHEDULE_SHARDED;
    if (result->cores > 0)
        say(out,
            "CPU devices share one memory, so %s slows their exchange down%s: the order on "
            "GPUs can be another.",
            linked ? "only a modelled link" : "no link",
            repeats ? ", and every ddp rank repeats the update" : "");
    if (result->cores > 0 && result->setup.threads * devices > result->cores)
        say(out, "%d devices share %d core%s and take turns: more devices bring no more speed.",
            devices, result->cores, result->cores == 1 ? "" : "s");
}

static void say_seconds(FILE *out, const compare_result *result) {
    double took = result->seconds_learning + result->seconds_preparing + result->seconds_racing;
    if (took > 1.1 * result->seconds_limit)
        say(out,
            "This took %.0f s, more than --seconds %g: %.0f s to learn, %.0f s to prepare, %.0f s "
            "to race. Fewer --learn-steps or a smaller --model take less.",
            took, result->seconds_limit, result->seconds_learning, result->seconds_preparing,
            result->seconds_racing);
}

void compare_print_sentences(FILE *out, const compare_result *result) {
    int devices = result->modes[result->mode_count - 1].devices;
    const compare_mode *python = compare_find(result, COMPARE_PYTHON, devices);
    const compare_mode *classic = compare_find(result, COMPARE_CLASSIC, devices);
    const compare_mode *nccl = compare_find(result, COMPARE_NCCL, devices);
    const compare_mode *overlap = compare_find(result, COMPARE_OVERLAP, devices);
    const compare_mode *ddp = compare_find(result, COMPARE_DDP, devices);
    const compare_mode *async = compare_find(result, COMPARE_ASYNC, devices);
    const compare_mode *local = compare_find(result, COMPARE_LOCAL, devices);
    fputc('\n', out);
    if (result->learn_steps > 0) say_learning(out, result);
    if (!result->interval)
        say(out,
            "%d rounds are too few for a verdict on what is faster; %d are enough. Run it again "
            "with more --seconds.",
            result->rounds, RACE_INTERVAL_ROUNDS);
    else if (result->disturbed > 0)
        say_order(out, result, devices);
    if (has_verdict(result) && ddp != NULL) say_faster(out, result, ddp, overlap);
    if (has_verdict(result)) say_faster(out, result, classic, overlap);
    if (has_verdict(result) && nccl != NULL) say_faster(out, result, nccl, overlap);
    if (has_verdict(result) && python != NULL) say_faster(out, result, python, classic);
    if (has_verdict(result) && async != NULL) say_faster(out, result, async, overlap);
    if (has_verdict(result) && local != NULL) say_faster(out, result, local, overlap);
    say_torch(out, result, devices);
    say_apart(out, result, devices);
    if (python != NULL) say_overhead(out, python);
    say_overhead(out, classic);
    if (nccl != NULL) say_overhead(out, nccl);
    say_overhead(out, overlap);
    if (ddp != NULL) say_overhead(out, ddp);
    say_limits(out, result, devices);
    say_seconds(out, result);
}
