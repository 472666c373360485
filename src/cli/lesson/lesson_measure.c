/* SPDX-License-Identifier: Apache-2.0 */
/* A reader of expressions, by descent. */
#include "cli/lesson/lesson_measure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

#define MICRO_BATCHES 1024 /* that a pipeline is played with, at most */
#define STAGES 64

typedef struct reader {
    json_t *const *results;
    int count;
    const char *whole, *at;
    yoke_status status; /* the first failure */
} reader;

typedef struct value {
    double number;
    const char *text; /* NULL: a number */
    json_t *json;     /* a list or an object; NULL: one of the above */
} value;

static value fail(reader *in, const char *what) {
    if (in->status == YOKE_OK)
        in->status =
            cli_refuse(YOKE_ERROR_INTERNAL, "lesson: %s: %s at '%.40s'", in->whole, what, in->at);
    return (value){.number = (double)NAN};
}

static bool take(reader *in, const char *word) {
    in->at += strspn(in->at, " ");
    size_t length = strlen(word);
    if (strncmp(in->at, word, length) != 0) return false;
    in->at += length;
    return true;
}

/* Paths. */

static bool has_value(json_t *member, const char *text, size_t length) {
    char own[64];
    if (json_is_string(member)) {
        const char *held = json_string_value(member);
        return strlen(held) == length && strncmp(held, text, length) == 0;
    }
    if (!json_is_number(member)) return false;
    snprintf(own, sizeof own, "%.0f", json_number_value(member));
    return strlen(own) == length && strncmp(own, text, length) == 0;
}

/* Whether an object has all of "mode=ddp-ring,devices=8]". */
static bool fits(json_t *element, const char *conditions) {
    char key[32];
    for (;;) {
        size_t named = strcspn(conditions, "="), valued;
        snprintf(key, sizeof key, "%.*s", (int)named, conditions);
        conditions += named + 1;
        valued = strcspn(conditions, ",]");
        if (!has_value(json_object_get(element, key), conditions, valued)) return false;
        conditions += valued;
        if (*conditions++ == ']') return true;
    }
}

static json_t *element_of(reader *in, json_t *list) {
    const char *conditions = in->at;
    size_t length = strcspn(conditions, "]"), index;
    json_t *element;
    in->at += length + 1;
    if (strspn(conditions, "0123456789") == length)
        return json_array_get(list, strtoul(conditions, NULL, 10));
    json_array_foreach(list, index, element) if (fits(element, conditions)) return element;
    return NULL;
}

static value read_path(reader *in) {
    char *end, key[64];
    long number = strtol(in->at, &end, 10);
    if (number < 1 || number > in->count) return fail(in, "no such command");
    json_t *json = in->results[number - 1];
    for (in->at = end; json != NULL && (*in->at == '.' || *in->at == '[');) {
        bool by_name = *in->at++ == '.';
        if (by_name) {
            size_t length = strspn(in->at, "abcdefghijklmnopqrstuvwxyz_0123456789");
            snprintf(key, sizeof key, "%.*s", (int)length, in->at);
            json = json_object_get(json, key);
            if (json == NULL) break;
            in->at += length;
        } else
            json = element_of(in, json);
    }
    if (json == NULL) return fail(in, "the result has no such member");
    if (json_is_number(json)) return (value){.number = json_number_value(json)};
    if (json_is_string(json)) return (value){.text = json_string_value(json)};
    if (json_is_array(json) || json_is_object(json)) return (value){.json = json};
    return fail(in, "the result has no number there");
}

/* Functions. */

/* Forwards take 1 and backwards 2; a stage does all forwards, then all backwards, each as soon as
 * its neighbour is done. */
static double idle_share(int stages, int micro_batches) {
    static double done[MICRO_BATCHES]; /* by the stage before: when it passed each one on */
    double free_at[STAGES];
    for (int m = 0; m < micro_batches; m++)
        done[m] = 0;
    for (int s = 0; s < stages; s++) {
        free_at[s] = 0;
        for (int m = 0; m < micro_batches; m++)
            done[m] = free_at[s] = fmax(free_at[s], done[m]) + 1;
    }
    for (int s = stages - 1; s >= 0; s--)
        for (int m = 0; m < micro_batches; m++)
            done[m] = free_at[s] = fmax(free_at[s], done[m]) + 2;
    return 1 - 3 * micro_batches / free_at[0];
}

static double least_micro_batches(int stages, double share) {
    for (int m = 1; m <= MICRO_BATCHES; m++)
        if (idle_share(stages, m) <= share + 1e-12) return m;
    return (double)NAN;
}

static double histogram_mean(json_t *list) {
    double sum = 0, count = 0;
    size_t index;
    json_t *element;
    json_array_foreach(list, index, element) {
        sum += (double)index * json_number_value(element);
        count += json_number_value(element);
    }
    return sum / count;
}

static double read_sum(reader *in);
static value read_value(reader *in);

static value call_mean(reader *in) {
    value list = read_value(in);
    if (!json_is_array(list.json)) return fail(in, "no histogram");
    return (value){.number = histogram_mean(list.json)};
}

static value call_pipeline(reader *in, bool least) {
    double stages = read_sum(in);
    if (!take(in, ",")) return fail(in, "no second number");
    double other = read_sum(in);
    bool known = stages >= 1 && stages <= STAGES && other > 0 && other <= MICRO_BATCHES;
    if (!known) return fail(in, "no such pipeline");
    return (value){.number = least ? least_micro_batches((int)stages, other)
                                   : idle_share((int)stages, (int)other)};
}

static value read_value(reader *in) {
    char *end;
    value found;
    if (take(in, "$")) return read_path(in);
    if (take(in, "mean("))
        found = call_mean(in);
    else if (take(in, "idle("))
        found = call_pipeline(in, false);
    else if (take(in, "least("))
        found = call_pipeline(in, true);
    else if (take(in, "("))
        found.number = read_sum(in), found.text = NULL, found.json = NULL;
    else {
        found = (value){.number = strtod(in->at, &end)};
        if (end == in->at) return fail(in, "no number");
        in->at = end;
        return found;
    }
    return take(in, ")") ? found : fail(in, "no )");
}

static double number_of(reader *in, value found) {
    return found.text == NULL && found.json == NULL ? found.number : fail(in, "no number").number;
}

static double read_product(reader *in) {
    double product = number_of(in, read_value(in));
    for (;;) {
        if (take(in, "*"))
            product *= number_of(in, read_value(in));
        else if (take(in, "/"))
            product /= number_of(in, read_value(in));
        else
            return product;
    }
}

static double read_sum(reader *in) {
    double sum = read_product(in);
    for (;;) {
        if (take(in, "+"))
            sum += read_product(in);
        else if (take(in, "-"))
            sum -= read_product(in);
        else
            return sum;
    }
}

/* A text stands alone on each side of ==. */
static double read_whole(reader *in) {
    const char *begin = in->at;
    value left = read_value(in);
    if (left.text != NULL && take(in, "==")) {
        value right = read_value(in);
        return right.text != NULL && strcmp(left.text, right.text) == 0;
    }
    in->at = begin;
    double sum = read_sum(in);
    return take(in, "==") ? sum == read_sum(in) : sum;
}

yoke_status lesson_measure(json_t *const *results, int count, const char *expression,
                           double *number) {
    reader in = {.results = results, .count = count, .whole = expression, .at = expression};
    *number = read_whole(&in);
    in.at += strspn(in.at, " ");
    if (in.status == YOKE_OK && *in.at != '\0') (void)fail(&in, "more than an expression");
    if (in.status == YOKE_OK && !isfinite(*number)) (void)fail(&in, "no finite number");
    return in.status;
}

int lesson_measure_order(json_t *const *results, int count, const char *expressions,
                         char names[LESSON_NAMES][32], double values[LESSON_NAMES],
                         yoke_status *status) {
    char part[512];
    int found = 0;
    while (*expressions != '\0' && found < LESSON_NAMES) {
        expressions += strspn(expressions, "; ");
        size_t length = strcspn(expressions, ";"), name = strcspn(expressions, " =");
        snprintf(names[found], 32, "%.*s", (int)name, expressions);
        const char *begin = strchr(expressions, '=') + 1;
        snprintf(part, sizeof part, "%.*s", (int)(expressions + length - begin), begin);
        *status = lesson_measure(results, count, part, &values[found]);
        if (*status != YOKE_OK) return -1;
        found++;
        expressions += length;
    }
    return found;
}
