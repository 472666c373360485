/* SPDX-License-Identifier: Apache-2.0 */
/* yoke lesson: predict, run, compare. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/lesson/lesson_ask.h"
#include "cli/lesson/lesson_exchange.h"
#include "cli/lesson/lesson_measure.h"
#include "cli/lesson/lesson_results.h"
#include "cli/lesson/lesson_run.h"
#include "cli/lesson/lesson_text.h"
#include "cli/shared_options.h"

static const cli_option options[] = {
    {"predict", "VALUE", "your prediction, where no terminal asks for it: 2.5, yes, or a,b,c",
     CLI_FIELD(lesson_flags, predict)},
    {"answer", "VALUE", "your answer to the exercise, likewise", CLI_FIELD(lesson_flags, answer)},
    {"answers", "FILE", "both as JSON: {\"2\": {\"predict\": \"b, a\", \"exercise\": 25}}",
     CLI_FIELD(lesson_flags, answers)},
    {"results", "FILE", "add what came out to this file, for a teacher",
     CLI_FIELD(lesson_flags, results)},
    {"name", "TEXT", "your name in a new file of results", CLI_FIELD(lesson_flags, name)},
    {"collect", NULL, "make a table of the FILEs of several students",
     CLI_FIELD(lesson_flags, collect)},
    CLI_OPTION_JSON(CLI_FIELD(lesson_flags, json)),
};

static void print_lessons(FILE *out) {
    for (int i = 0; i < lesson_count; i++)
        fprintf(out, "  %2d  %-12s  %s\n", lesson_table[i].number, lesson_table[i].name,
                lesson_table[i].title);
}

const cli_verb lesson_verb = {
    .name = "lesson",
    .operands = "[NUMBER | NAME | exchange FILE | FILE...]",
    .summary = "ask for a prediction, run the lesson's commands, compare",
    .options = options,
    .option_count = CLI_OPTION_COUNT(options),
    .more =
        "Without a number it lists the lessons of docs/course. A lesson asks for a prediction,\n"
        "runs its commands, shows both and why, and asks for the answer of an exercise.\n"
        "docs/lesson.md explains the files.\n\n"
        "  yoke lesson 2\n"
        "  yoke lesson 9 --predict 2 --results ada.json --name 'Ada L.'\n"
        "  yoke lesson exchange exchange.c     grade the exchange that you wrote\n"
        "  yoke lesson --collect *.json\n\n",
    .print_more = print_lessons};

static const lesson_row *find_lesson(const char *word) {
    int64_t number;
    bool counted = yoke_text_integer(word, 1, lesson_count, &number);
    for (int i = 0; i < lesson_count; i++)
        if (strcmp(lesson_table[i].name, word) == 0 ||
            (counted && lesson_table[i].number == number))
            return &lesson_table[i];
    return NULL;
}

static yoke_status find_truth(json_t *const *results, int count, const lesson_question *question,
                              lesson_truth *truth) {
    yoke_status status;
    if (question->kind != LESSON_ORDER)
        return lesson_measure(results, count, question->measured, &truth->value);
    truth->count = lesson_measure_order(results, count, question->measured, truth->names,
                                        truth->values, &status);
    return truth->count < 0 ? status : YOKE_OK;
}

static yoke_status find_truths(json_t *const *results, const lesson_row *lesson,
                               lesson_entry *entry) {
    int count = 0;
    while (count < LESSON_COMMANDS && results[count] != NULL)
        count++;
    yoke_status status = find_truth(results, count, &lesson->predict, &entry->predict.truth);
    if (status != YOKE_OK) return status;
    return find_truth(results, count, &lesson->exercise, &entry->exercise.truth);
}

static void judge(lesson_result *result) {
    result->verdict = lesson_judge(result->question, &result->answer, &result->truth);
}

static void print_result(FILE *out, bool asked_aloud, const char *yours, const char *theirs,
                         const lesson_result *result) {
    char text[LESSON_ANSWER];
    if (!asked_aloud) fputc('\n', out);
    if (!asked_aloud) lesson_print_wrapped(out, result->question->text, 0);
    fprintf(out, "\n  %-11s ", yours);
    lesson_print_name(out, result->answer.text, 0, 64);
    fprintf(out, "\n  %-11s %s\n", theirs,
            lesson_truth_text(result->question, &result->truth, text));
    fprintf(out, "  %s%s\n\n", lesson_verdict_text(result->question, &result->verdict, text),
            result->question->clock ? "; measured by the clock of this machine" : "");
    lesson_print_wrapped(out, result->question->why, 2);
}

/* Asks one question, after its text. */
static yoke_status ask(const lesson_row *lesson, const lesson_flags *flags, bool terminal,
                       lesson_result *result) {
    bool predicts = result->question == &lesson->predict;
    if (terminal) {
        fprintf(stderr, "\n%s\n", predicts ? "Predict first." : "Exercise.");
        lesson_print_wrapped(stderr, result->question->text, 2);
    }
    return lesson_ask(lesson, result->question, flags, predicts ? "predict" : "exercise", terminal,
                      &result->answer, &result->asked);
}

/* All that can be wrong before a command runs. */
static yoke_status prepare(const lesson_row *lesson, const lesson_flags *flags, bool terminal,
                           lesson_entry *entry) {
    yoke_status status = YOKE_OK;
    if (flags->results != NULL) status = lesson_results_check(flags->results, flags->name);
    if (status == YOKE_OK) status = ask(lesson, flags, false, &entry->exercise);
    if (status == YOKE_OK) status = ask(lesson, flags, terminal, &entry->predict);
    if (status != YOKE_OK || entry->predict.asked) return status;
    return cli_refuse(YOKE_ERROR_ARGUMENT,
                      "lesson %d wants a prediction first, %s; give --predict or --answers, or run "
                      "it in a terminal",
                      lesson->number,
                      lesson->predict.kind == LESSON_NUMBER   ? "a number"
                      : lesson->predict.kind == LESSON_YES_NO ? "yes or no"
                                                              : "an order");
}

static yoke_status finish(const lesson_flags *flags, const lesson_entry *entry) {
    json_t *json = lesson_entry_json(entry);
    yoke_status status = YOKE_OK;
    if (json == NULL) return cli_refuse(YOKE_ERROR_MEMORY, "no memory for the result");
    if (flags->results != NULL) status = lesson_results_add(flags->results, flags->name, json);
    char *text = flags->json && status == YOKE_OK
                     ? json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(10))
                     : NULL;
    if (text != NULL) printf("%s\n", text);
    free(text);
    json_decref(json);
    return status;
}

/* Behind the run. */
static yoke_status conclude(const lesson_row *lesson, const lesson_flags *flags, bool terminal,
                            json_t *const *results, lesson_entry *entry) {
    FILE *out = flags->json ? stderr : stdout;
    yoke_status status = find_truths(results, lesson, entry);
    if (status != YOKE_OK) return status;
    judge(&entry->predict);
    if (!flags->json || terminal)
        print_result(out, terminal, "predicted", "came out", &entry->predict);
    fflush(out);
    if (!entry->exercise.asked) status = ask(lesson, flags, terminal, &entry->exercise);
    if (status != YOKE_OK) return status;
    if (entry->exercise.asked) judge(&entry->exercise);
    if (entry->exercise.asked && (!flags->json || terminal))
        print_result(out, terminal, "your answer", "it is", &entry->exercise);
    return finish(flags, entry);
}

static int teach(const lesson_row *lesson, const lesson_flags *flags) {
    json_t *results[LESSON_COMMANDS + 1] = {NULL};
    bool terminal = isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
    lesson_entry entry = {.lesson = lesson,
                          .predict.question = &lesson->predict,
                          .exercise.question = &lesson->exercise};
    if (terminal) fprintf(stderr, "Lesson %d. %s\n", lesson->number, lesson->title);
    yoke_status status = prepare(lesson, flags, terminal, &entry);
    if (status != YOKE_OK) return cli_fail(status);
    int code = terminal && lesson->look != NULL && !flags->json ? lesson_look(lesson) : -1;
    if (code < 0) code = lesson_run(lesson, results);
    if (code < 0) {
        status = conclude(lesson, flags, terminal, results, &entry);
        code = status == YOKE_OK ? 0 : cli_fail(status);
    }
    for (int i = 0; i < LESSON_COMMANDS; i++)
        json_decref(results[i]);
    return code;
}

static int list_lessons(bool as_json) {
    yoke_json json;
    if (!as_json) {
        print_lessons(stdout);
        return 0;
    }
    yoke_json_begin(&json);
    yoke_json_open(&json, NULL, '{');
    yoke_json_open(&json, "lessons", '[');
    for (int i = 0; i < lesson_count; i++) {
        const lesson_row *lesson = &lesson_table[i];
        yoke_json_open(&json, NULL, '{');
        yoke_json_integer(&json, "lesson", lesson->number);
        yoke_json_text(&json, "name", lesson->name);
        yoke_json_text(&json, "title", lesson->title);
        yoke_json_text(&json, "predict", lesson->predict.text);
        yoke_json_boolean(&json, "clock", lesson->predict.clock);
        yoke_json_text(&json, "exercise", lesson->exercise.text);
        yoke_json_open(&json, "commands", '[');
        for (int k = 0; k < LESSON_COMMANDS && lesson->commands[k] != NULL; k++)
            yoke_json_text(&json, NULL, lesson->commands[k]);
        yoke_json_close(&json, ']');
        yoke_json_close(&json, '}');
    }
    yoke_json_close(&json, ']');
    yoke_json_close(&json, '}');
    yoke_status status = cli_print_json(&json, stdout);
    return status == YOKE_OK ? 0 : cli_fail(status);
}

int lesson_main(int argc, char **argv) {
    lesson_flags flags = {0};
    int operands = 0, code = cli_parse(&lesson_verb, argc, argv, &flags, &operands);
    if (code >= 0) return code;
    bool answers = flags.predict != NULL || flags.answer != NULL || flags.answers != NULL ||
                   flags.results != NULL || flags.name != NULL;
    if (flags.collect && (operands == 0 || answers))
        return cli_usage_error("lesson", "--collect takes the FILEs of students, and nothing else");
    if (flags.collect) return lesson_collect(argv + 1, operands, flags.json);
    if (operands == 0 && answers)
        return cli_usage_error("lesson", "say which lesson: yoke lesson NUMBER");
    if (operands == 0) return list_lessons(flags.json);
    bool exchanges = strcmp(argv[1], "exchange") == 0;
    if (exchanges && (operands != 2 || flags.predict || flags.answer || flags.answers))
        return cli_usage_error("lesson", "exchange takes one FILE, and no answers");
    if (operands > 1 && !exchanges) return cli_usage_error("lesson", "one lesson at a time");
    if (flags.name != NULL && flags.results == NULL)
        return cli_usage_error("lesson", "--name is for the file of --results");
    if (exchanges) return lesson_exchange(argv[2], &flags);
    const lesson_row *lesson = find_lesson(argv[1]);
    if (lesson == NULL)
        return cli_usage_error("lesson", "there is no lesson '%s': 1 to %d, or a name", argv[1],
                               lesson_count);
    return teach(lesson, &flags);
}
