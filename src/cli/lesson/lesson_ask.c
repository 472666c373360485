/* SPDX-License-Identifier: Apache-2.0 */
/* Where a student's answers come from. */
#include "cli/lesson/lesson_ask.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

#define ATTEMPTS 3
#define FILE_LIMIT ((size_t)1 << 20)

/* "2.5", 2.5, true or ["a", "b"] of a file, as the text that a student would write. */
static bool text_of(json_t *value, char text[LESSON_ANSWER]) {
    size_t index, used = 0;
    json_t *word;
    char number[32];
    text[0] = '\0';
    if (json_is_string(value)) snprintf(text, LESSON_ANSWER, "%s", json_string_value(value));
    if (json_is_boolean(value)) snprintf(text, LESSON_ANSWER, json_is_true(value) ? "yes" : "no");
    if (json_is_number(value))
        snprintf(text, LESSON_ANSWER, "%s",
                 yoke_text_of_real(json_number_value(value), number, sizeof number));
    json_array_foreach(value, index, word) {
        if (!json_is_string(word)) return false;
        int length = snprintf(text + used, LESSON_ANSWER - used, "%s%s", index > 0 ? ", " : "",
                              json_string_value(word));
        if (length < 0 || (size_t)length >= LESSON_ANSWER - used) return false;
        used += (size_t)length;
    }
    return text[0] != '\0';
}

static yoke_status parse_file(const char *path, json_t **answers) {
    unsigned char *data;
    size_t bytes;
    json_error_t error;
    *answers = NULL;
    yoke_status status = yoke_file_read(path, FILE_LIMIT, &data, &bytes);
    if (status != YOKE_OK) return status;
    *answers = json_loadb((const char *)data, bytes, JSON_REJECT_DUPLICATES, &error);
    yoke_free(data);
    if (*answers == NULL)
        return cli_refuse(YOKE_ERROR_DATA, "%s: no JSON: line %d: %s", path, error.line,
                          error.text);
    return YOKE_OK;
}

/* {"2": {"predict": "ddp, overlap, classic, python", "exercise": 25.5}} */
static yoke_status read_file(const lesson_row *lesson, const char *path, const char *key,
                             char text[LESSON_ANSWER]) {
    char number[12];
    json_t *answers;
    yoke_status status = parse_file(path, &answers);
    if (status != YOKE_OK) return status;
    snprintf(number, sizeof number, "%d", lesson->number);
    json_t *of_lesson = json_object_get(answers, number);
    if (of_lesson == NULL) of_lesson = json_object_get(answers, lesson->name);
    json_t *value = json_object_get(of_lesson, key);
    text[0] = '\0';
    if (value != NULL && !text_of(value, text))
        status = cli_refuse(YOKE_ERROR_DATA,
                            "%s: \"%s\" of lesson %d is no text, number or list of names", path,
                            key, lesson->number);
    json_decref(answers);
    return status;
}

/* A line from the terminal, or so much of it that it is too long; false: the end. */
static bool read_line(char text[LESSON_ANSWER + 1]) {
    if (fgets(text, LESSON_ANSWER + 1, stdin) == NULL) return false;
    size_t length = strcspn(text, "\r\n");
    bool whole = text[length] != '\0';
    text[length] = '\0';
    for (int other = whole ? '\n' : getchar(); other != '\n' && other != EOF;)
        other = getchar();
    return true;
}

static void prompt(const lesson_question *question) {
    char names[LESSON_NAMES][32];
    if (question->kind == LESSON_NUMBER) fprintf(stderr, "  (%s) ", question->unit);
    if (question->kind == LESSON_YES_NO) fprintf(stderr, "  (yes or no) ");
    int count = question->kind == LESSON_ORDER ? lesson_names(question, names) : 0;
    for (int i = 0; i < count; i++)
        fprintf(stderr, "%s%s%s", i > 0 ? ", " : "  (", names[i], i == count - 1 ? ") " : "");
    fprintf(stderr, "> ");
}

static yoke_status ask_terminal(const lesson_question *question, lesson_answer *answer,
                                bool *found) {
    char text[LESSON_ANSWER + 1];
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        prompt(question);
        if (!read_line(text)) return YOKE_OK;
        const char *wrong = lesson_answer_check(question, text, answer);
        *found = wrong == NULL;
        if (*found) return YOKE_OK;
        fprintf(stderr, "  %s\n", wrong);
    }
    return cli_refuse(YOKE_ERROR_ARGUMENT, "no answer in %d attempts", ATTEMPTS);
}

yoke_status lesson_ask(const lesson_row *lesson, const lesson_question *question,
                       const lesson_flags *flags, const char *key, bool terminal,
                       lesson_answer *answer, bool *found) {
    char text[LESSON_ANSWER] = "";
    const char *given = question == &lesson->predict ? flags->predict : flags->answer;
    *found = false;
    if (given == NULL && flags->answers != NULL) {
        yoke_status status = read_file(lesson, flags->answers, key, text);
        if (status != YOKE_OK) return status;
        given = text[0] != '\0' ? text : NULL;
    }
    if (given == NULL) return terminal ? ask_terminal(question, answer, found) : YOKE_OK;
    *found = true;
    return lesson_answer_read(question, given, answer);
}
