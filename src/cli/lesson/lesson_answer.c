/* SPDX-License-Identifier: Apache-2.0 */
/* Answers. */
#include "cli/lesson/lesson_answer.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cli/cli.h"

/* Units that stand for each other: in the first of a group. */
static const struct {
    const char *group, *unit;
    double factor;
} units[] = {
    {"time", "us", 1e-3},   {"time", "ms", 1},     {"time", "s", 1e3},   {"bytes", "B", 1e-6},
    {"bytes", "kB", 1e-3},  {"bytes", "MB", 1},    {"bytes", "GB", 1e3}, {"part", "%", 1},
    {"part", "percent", 1}, {"ratio", "times", 1}, {"ratio", "x", 1},
};
#define UNITS (sizeof units / sizeof *units)

static int find_unit(const char *unit) {
    for (size_t i = 0; i < UNITS; i++)
        if (strcasecmp(units[i].unit, unit) == 0) return (int)i;
    return -1;
}

/* What a number in `given` is in `wanted`; 0: it cannot be that. A plural is as good. */
static double unit_factor(const char *given, const char *wanted) {
    size_t length = strlen(wanted);
    if (*given == '\0' || strcasecmp(given, wanted) == 0) return 1;
    if (length > 1 && strlen(given) == length - 1 && strncasecmp(given, wanted, length - 1) == 0)
        return 1;
    int from = find_unit(given), to = find_unit(wanted);
    bool same = from >= 0 && to >= 0 && strcmp(units[from].group, units[to].group) == 0;
    return same ? units[from].factor / units[to].factor : 0;
}

#define WRONG(...) (snprintf(wrong, sizeof wrong, __VA_ARGS__), false)
static char wrong[2 * LESSON_ANSWER + 128]; /* of the last answer */

static bool read_number(const lesson_question *question, lesson_answer *answer) {
    char *end, given[LESSON_ANSWER];
    answer->value = strtod(answer->text, &end);
    snprintf(given, sizeof given, "%s", end + strspn(end, " "));
    for (size_t length = strlen(given); length > 0 && isspace((unsigned char)given[length - 1]);)
        given[--length] = '\0';
    double factor = unit_factor(given, question->unit);
    size_t digits = strcspn(answer->text, "xX"); /* "2x" are 2 times; of "0x2" strtod reads a 2 */
    if (end == answer->text || digits < (size_t)(end - answer->text) || signbit(answer->value) ||
        !isfinite(answer->value) || factor == 0)
        return WRONG("'%s' is no answer: it is a number of %s from 0 on, as in 2.5", answer->text,
                     strcmp(question->unit, "%") == 0 ? "percent" : question->unit);
    answer->value *= factor;
    return true;
}

static bool read_yes_no(lesson_answer *answer) {
    static const char *const words[] = {"no", "n", "false", "yes", "y", "true"};
    for (int i = 0; i < 6; i++) {
        if (strcasecmp(answer->text, words[i]) != 0) continue;
        answer->value = i >= 3;
        return true;
    }
    return WRONG("'%s' is no answer: it is yes or no", answer->text);
}

int lesson_names(const lesson_question *question, char names[LESSON_NAMES][32]) {
    int count = 0;
    for (const char *at = question->measured; *at != '\0' && count < LESSON_NAMES; count++) {
        at += strspn(at, "; ");
        snprintf(names[count], 32, "%.*s", (int)strcspn(at, " ="), at);
        at += strcspn(at, ";");
    }
    return count;
}

static int index_of(char names[LESSON_NAMES][32], int count, const char *word, size_t length) {
    for (int i = 0; i < count; i++)
        if (strlen(names[i]) == length && strncasecmp(names[i], word, length) == 0) return i;
    return -1;
}

static bool read_order(const lesson_question *question, lesson_answer *answer) {
    char names[LESSON_NAMES][32], all[LESSON_ANSWER] = "";
    int count = lesson_names(question, names);
    bool seen[LESSON_NAMES] = {false}, unknown = false;
    const char *at = answer->text;
    answer->count = 0;
    while (*(at += strspn(at, " ,;<\t")) != '\0' && !unknown) {
        size_t length = strcspn(at, " ,;<\t");
        int index = index_of(names, count, at, length);
        unknown = index < 0 || seen[index];
        if (!unknown) seen[index] = true, answer->order[answer->count++] = index;
        at += length;
    }
    for (int i = 0; i < count; i++)
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", i > 0 ? ", " : "", names[i]);
    if (unknown || answer->count < count)
        return WRONG("'%s' is no answer: it has each of %s once, in order", answer->text, all);
    return true;
}

static bool read_answer(const lesson_question *question, const char *text, lesson_answer *answer) {
    *answer = (lesson_answer){0};
    text += strspn(text, " \t");
    if (strlen(text) >= sizeof answer->text)
        return WRONG("an answer has at most %d bytes", LESSON_ANSWER - 1);
    snprintf(answer->text, sizeof answer->text, "%s", text);
    switch (question->kind) {
    case LESSON_NUMBER:
        return read_number(question, answer);
    case LESSON_YES_NO:
        return read_yes_no(answer);
    default:
        return read_order(question, answer);
    }
}

const char *lesson_answer_check(const lesson_question *question, const char *text,
                                lesson_answer *answer) {
    return read_answer(question, text, answer) ? NULL : wrong;
}

yoke_status lesson_answer_read(const lesson_question *question, const char *text,
                               lesson_answer *answer) {
    if (read_answer(question, text, answer)) return YOKE_OK;
    return cli_refuse(YOKE_ERROR_ARGUMENT, "%s", wrong);
}

lesson_verdict lesson_judge(const lesson_question *question, const lesson_answer *answer,
                            const lesson_truth *truth) {
    lesson_verdict verdict = {0};
    if (question->kind != LESSON_ORDER) {
        double allowed = question->tolerance * fabs(truth->value) + 1e-9;
        verdict.right = fabs(answer->value - truth->value) <= allowed;
        verdict.off = truth->value != 0 ? answer->value / truth->value : answer->value;
        return verdict;
    }
    for (int i = 0; i < truth->count; i++)
        for (int j = i + 1; j < truth->count; j++)
            verdict.off += truth->values[answer->order[i]] >
                           truth->values[answer->order[j]] * (1 + question->tolerance);
    verdict.right = verdict.off == 0;
    return verdict;
}

static void write_order(const lesson_question *question, const lesson_truth *truth, char *text) {
    bool written[LESSON_NAMES] = {false};
    size_t used = 0;
    for (int i = 0; i < truth->count; i++) {
        int least = -1;
        for (int k = 0; k < truth->count; k++)
            if (!written[k] && (least < 0 || truth->values[k] < truth->values[least])) least = k;
        written[least] = true;
        int length = snprintf(text + used, LESSON_ANSWER - used, "%s%s %.4g", i > 0 ? ", " : "",
                              truth->names[least], truth->values[least]);
        used += (size_t)length < LESSON_ANSWER - used ? (size_t)length : LESSON_ANSWER - used - 1;
    }
    snprintf(text + used, LESSON_ANSWER - used, " %s", question->unit);
}

const char *lesson_truth_text(const lesson_question *question, const lesson_truth *truth,
                              char text[LESSON_ANSWER]) {
    if (question->kind == LESSON_NUMBER)
        snprintf(text, LESSON_ANSWER, "%.4g %s", truth->value, question->unit);
    else if (question->kind == LESSON_YES_NO)
        snprintf(text, LESSON_ANSWER, "%s", truth->value != 0 ? "yes" : "no");
    else
        write_order(question, truth, text);
    return text;
}

const char *lesson_verdict_text(const lesson_question *question, const lesson_verdict *verdict,
                                char text[LESSON_ANSWER]) {
    if (verdict->right && question->kind == LESSON_NUMBER && question->tolerance > 0)
        snprintf(text, LESSON_ANSWER, "right, within %.0f %%", 100 * question->tolerance);
    else if (verdict->right)
        snprintf(text, LESSON_ANSWER, "right");
    else if (question->kind == LESSON_NUMBER)
        snprintf(text, LESSON_ANSWER, "wrong: %.3g times what it is", verdict->off);
    else if (question->kind == LESSON_ORDER)
        snprintf(text, LESSON_ANSWER, "wrong: %.0f %s the other way round", verdict->off,
                 verdict->off > 1 ? "pairs are" : "pair is");
    else
        snprintf(text, LESSON_ANSWER, "wrong");
    return text;
}
