/* SPDX-License-Identifier: Apache-2.0 */
/* What follows from a result: whether modes learned the same, and means over devices. */
#include "cli/compare/compare_result.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void compare_result_clear(compare_result *result) {
    for (int i = 0; i < result->mode_count; i++) {
        free(result->modes[i].losses);
        free(result->modes[i].parts);
        free(result->modes[i].step.spans);
    }
    free(result->modes);
    result->modes = NULL;
    result->mode_count = 0;
}

const compare_mode *compare_find(const compare_result *result, compare_kind kind, int devices) {
    for (int i = 0; i < result->mode_count; i++)
        if (result->modes[i].kind == kind && result->modes[i].devices == devices)
            return &result->modes[i];
    return NULL;
}

yoke_account compare_mean_account(const compare_mode *mode) {
    yoke_account mean = {0};
    for (int i = 0; i < mode->devices; i++)
        yoke_account_add(&mean, &mode->parts[i].account, 1.0 / mode->devices);
    return mean;
}

double compare_moved(const yoke_account *account) {
    double bytes = account->sent + account->received;
    if (bytes > 0) return bytes;
    for (int stage = 0; stage < YOKE_STAGE_COUNT; stage++)
        if (stage != YOKE_STAGE_LOAD) bytes += account->bytes[stage];
    return bytes;
}

/* The order of step times. */

static void append(char *text, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void append(char *text, size_t size, const char *format, ...) {
    size_t length = strlen(text);
    va_list values;
    va_start(values, format);
    vsnprintf(text + length, size - length, format, values);
    va_end(values);
}

bool compare_is_slower(const compare_mode *slow, const compare_mode *fast) {
    return slow->step_ms.low > fast->step_ms.high;
}

/* "dp classic is slower than dp overlap and ddp: 39.7 (38.9 .. 45.0) against 13.4 (...) and ..."
 * Returns how many modes are faster. */
static int append_faster(const compare_mode *slow, const compare_mode *const *modes, int count,
                         char *text, size_t size) {
    const compare_mode *faster[COMPARE_KINDS];
    int found = 0;
    for (int i = 0; i < count; i++)
        if (compare_is_slower(slow, modes[i])) faster[found++] = modes[i];
    if (found == 0) return 0;
    append(text, size, "%s%s is slower than ", text[0] != '\0' ? "; " : "",
           compare_kind_name(slow->kind));
    for (int i = 0; i < found; i++)
        append(text, size, "%s%s",
               i == 0          ? ""
               : i + 1 < found ? ", "
                               : " and ",
               compare_kind_name(faster[i]->kind));
    append(text, size, ": %.1f (%.1f .. %.1f) against ", slow->step_ms.median, slow->step_ms.low,
           slow->step_ms.high);
    for (int i = 0; i < found; i++)
        append(text, size, "%s%.1f (%.1f .. %.1f)",
               i == 0          ? ""
               : i + 1 < found ? ", "
                               : " and ",
               faster[i]->step_ms.median, faster[i]->step_ms.low, faster[i]->step_ms.high);
    append(text, size, " ms");
    return found;
}

void compare_order(const compare_result *result, int devices, char *text, size_t size) {
    const compare_mode *modes[COMPARE_KINDS];
    int count = 0, ordered = 0;
    for (int i = 0; i < result->mode_count && count < COMPARE_KINDS; i++)
        if (result->modes[i].devices == devices && compare_pays(result, &result->modes[i]))
            modes[count++] = &result->modes[i];
    text[0] = '\0';
    for (int i = 0; i < count; i++)
        ordered += append_faster(modes[i], modes, count, text, size);
    if (ordered == 0)
        append(text, size, "The modes on %d devices cannot be told apart on this busy machine.",
               devices);
    else if (ordered < count * (count - 1) / 2)
        append(text, size, "; the others cannot be told apart on this busy machine.");
    else
        append(text, size, ".");
}

/* Verdicts. */

const char *compare_verdict_name(compare_verdict verdict) {
    static const char *const names[] = {"reference", "same bits", "rounding", "different",
                                        "another method"};
    return names[verdict];
}

/* Modes on as many devices are compared with dp overlap, and that and all cores with single; not
 * with batch norm, where the result depends on the number of devices, and where the rounding of
 * another number of threads grows from step to step. PyTorch on one device has the threads of
 * single. */
static const compare_mode *reference_of(const compare_result *result, const compare_mode *mode) {
    if (mode->kind == COMPARE_SINGLE) return mode;
    if (mode->kind == COMPARE_TORCH_EAGER) return &result->modes[0];
    if (mode->devices > 1 && mode->kind != COMPARE_OVERLAP)
        return compare_find(result, COMPARE_OVERLAP, mode->devices);
    return result->batch_norm ? mode : &result->modes[0];
}

bool compare_is_apart(compare_kind kind) {
    return kind == COMPARE_ASYNC || kind == COMPARE_LOCAL;
}

bool compare_is_torch(compare_kind kind) {
    return kind >= COMPARE_TORCH_EAGER;
}

bool compare_pays(const compare_result *result, const compare_mode *mode) {
    bool alike = result->setup.link[0] == '\0' && !(result->setup.straggler_factor > 0);
    return alike || !compare_is_torch(mode->kind) || mode->devices == 1;
}

const char *compare_unknown(const compare_result *result) {
    return result->setup.link[0] != '\0' ? "modelled link" : "straggler";
}

static bool is_unrecorded(compare_kind kind) {
    return compare_is_apart(kind) || compare_is_torch(kind);
}

/* "async, local and torch eager": the kinds that race and that `are` says. */
static const char *list_kinds(const compare_result *result, bool (*are)(compare_kind kind),
                              char text[COMPARE_NAMES_BYTES]) {
    bool races[COMPARE_KINDS] = {false};
    int left = 0;
    for (int i = 0; i < result->mode_count; i++)
        races[result->modes[i].kind] = are(result->modes[i].kind);
    for (int kind = 0; kind < COMPARE_KINDS; kind++)
        left += races[kind];
    text[0] = '\0';
    for (int kind = 0; kind < COMPARE_KINDS; kind++) {
        if (!races[kind]) continue;
        left--;
        append(text, COMPARE_NAMES_BYTES, "%s%s", compare_kind_name((compare_kind)kind),
               left > 1    ? ", "
               : left == 1 ? " and "
                           : "");
    }
    return text;
}

const char *compare_apart_names(const compare_result *result, char text[COMPARE_NAMES_BYTES]) {
    return list_kinds(result, compare_is_apart, text);
}

const char *compare_torch_names(const compare_result *result, char text[COMPARE_NAMES_BYTES]) {
    return list_kinds(result, compare_is_torch, text);
}

const char *compare_unrecorded_names(const compare_result *result, char text[COMPARE_NAMES_BYTES]) {
    return list_kinds(result, is_unrecorded, text);
}

static double largest_difference(const double *a, const double *b, int count) {
    double largest = 0;
    for (int i = 0; i < count; i++) {
        double difference = fabs(a[i] - b[i]) / fabs(b[i]);
        if (a[i] != b[i]) largest = fmax(largest, difference);
    }
    return largest;
}

static int steps_compared(const compare_result *result, const compare_mode *mode) {
    int steps = result->learn_steps;
    bool grows = compare_is_torch(mode->kind) && result->batch_norm;
    return grows && steps > COMPARE_TORCH_STEPS ? COMPARE_TORCH_STEPS : steps;
}

void compare_judge(compare_result *result) {
    for (int i = 0; i < result->mode_count; i++) {
        compare_mode *mode = &result->modes[i];
        const compare_mode *with = reference_of(result, mode);
        mode->verdict = compare_is_apart(mode->kind) ? COMPARE_ANOTHER : COMPARE_REFERENCE;
        mode->compared_with = -1;
        mode->difference = 0;
        if (mode->verdict == COMPARE_ANOTHER) continue;
        if (with == mode) continue;
        mode->compared_with = (int)(with - result->modes);
        mode->compared_steps = steps_compared(result, mode);
        mode->difference = largest_difference(mode->losses, with->losses, mode->compared_steps);
        bool same = !compare_is_torch(mode->kind) && mode->weights_hash == with->weights_hash;
        mode->verdict = same ? COMPARE_SAME_BITS : COMPARE_ROUNDING;
        if (!(mode->difference <= result->tolerance)) mode->verdict = COMPARE_DIFFERENT;
    }
}

bool compare_all_equal(const compare_result *result) {
    for (int i = 0; i < result->mode_count; i++)
        if (result->modes[i].verdict == COMPARE_DIFFERENT) return false;
    return true;
}
