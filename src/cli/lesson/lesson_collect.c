/* SPDX-License-Identifier: Apache-2.0 */
/* yoke lesson --collect: the results of a class. The first answer to a question counts: a later one
 * was given by a student who had seen what comes out. */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/lesson/lesson_results.h"
#include "cli/lesson/lesson_text.h"

typedef struct first_answers {
    json_t *prediction, *exercise; /* NULL: none */
    int attempts;
} first_answers;

static first_answers find_first(json_t *results, int number) {
    first_answers first = {0};
    size_t index;
    json_t *entry;
    json_array_foreach(json_object_get(results, "entries"), index, entry) {
        json_t *prediction = json_object_get(entry, "prediction");
        json_t *exercise = json_object_get(entry, "exercise");
        if (json_integer_value(json_object_get(entry, "lesson")) != number) continue;
        first.attempts++;
        if (first.prediction == NULL && json_is_object(prediction)) first.prediction = prediction;
        if (first.exercise == NULL && json_is_object(exercise)) first.exercise = exercise;
    }
    return first;
}

static bool is_right(json_t *question) {
    return json_is_true(json_object_get(question, "right"));
}

static char mark(json_t *question) {
    return question == NULL ? '.' : is_right(question) ? '+' : '-';
}

static const char *student_of(json_t *results) {
    return json_string_value(json_object_get(results, "student"));
}

/* The table. */

static void print_head(void) {
    printf("%-24s", "student");
    for (int i = 0; i < lesson_count; i++)
        printf(" %3d", lesson_table[i].number);
    printf("  exchange\n");
}

/* The best one counts: a program may be improved. NULL: none. */
static json_t *best_exchange(json_t *results) {
    size_t index;
    json_t *entry, *best = NULL;
    json_array_foreach(json_object_get(results, "entries"), index, entry) {
        json_t *own = json_object_get(entry, "exercise");
        if (json_integer_value(json_object_get(entry, "lesson")) != LESSON_EXCHANGE) continue;
        if (!json_is_object(own)) continue;
        double times = json_number_value(json_object_get(own, "off"));
        bool better = best == NULL || (is_right(own) && !is_right(best)) ||
                      (is_right(own) && times < json_number_value(json_object_get(best, "off")));
        if (better) best = own;
    }
    return best;
}

/* How many times as long as the ring. */
static void print_exchange(json_t *exercise) {
    if (exercise != NULL && is_right(exercise))
        printf("  %6.2f x\n", json_number_value(json_object_get(exercise, "off")));
    else
        printf("  %8c\n", mark(exercise));
}

static void print_student(json_t *results) {
    lesson_print_name(stdout, student_of(results), 24, 48);
    for (int i = 0; i < lesson_count; i++) {
        first_answers first = find_first(results, lesson_table[i].number);
        printf("  %c%c", mark(first.prediction), mark(first.exercise));
    }
    print_exchange(best_exchange(results));
}

static void print_lesson(json_t **files, int count, const lesson_row *lesson) {
    int predicted = 0, right = 0, solved = 0, tried = 0;
    for (int i = 0; i < count; i++) {
        first_answers first = find_first(files[i], lesson->number);
        predicted += first.prediction != NULL;
        right += first.prediction != NULL && is_right(first.prediction);
        tried += first.exercise != NULL;
        solved += first.exercise != NULL && is_right(first.exercise);
    }
    if (predicted + tried == 0) return;
    printf("%2d. %-28s predictions %3d of %3d right, exercises %3d of %3d\n", lesson->number,
           lesson->title, right, predicted, solved, tried);
}

static void print_table(json_t **files, int count) {
    print_head();
    for (int i = 0; i < count; i++)
        print_student(files[i]);
    printf("\nprediction, exercise: + right, - wrong, . not answered; the first answer counts\n\n");
    for (int i = 0; i < lesson_count; i++)
        print_lesson(files, count, &lesson_table[i]);
}

/* JSON. */

static void json_question(yoke_json *json, const char *key, json_t *question) {
    if (question == NULL) {
        yoke_json_null(json, key);
        return;
    }
    yoke_json_open(json, key, '{');
    yoke_json_boolean(json, "right", is_right(question));
    yoke_json_real(json, "off", json_number_value(json_object_get(question, "off")));
    yoke_json_close(json, '}');
}

static void json_lesson(yoke_json *json, json_t *results, int number, const char *name) {
    first_answers first = find_first(results, number);
    if (first.attempts == 0) return;
    yoke_json_open(json, NULL, '{');
    yoke_json_integer(json, "lesson", number);
    yoke_json_text(json, "name", name);
    yoke_json_integer(json, "attempts", first.attempts);
    json_question(json, "prediction", first.prediction);
    json_question(json, "exercise",
                  number == LESSON_EXCHANGE ? best_exchange(results) : first.exercise);
    yoke_json_close(json, '}');
}

static void json_student(yoke_json *json, const char *path, json_t *results) {
    yoke_json_open(json, NULL, '{');
    yoke_json_text(json, "student", student_of(results));
    yoke_json_text(json, "file", path);
    yoke_json_open(json, "lessons", '[');
    for (int i = 0; i < lesson_count; i++)
        json_lesson(json, results, lesson_table[i].number, lesson_table[i].name);
    json_lesson(json, results, LESSON_EXCHANGE, "exchange");
    yoke_json_close(json, ']');
    yoke_json_close(json, '}');
}

static yoke_status print_json(char **paths, json_t **files, int count) {
    yoke_json json;
    yoke_json_begin(&json);
    yoke_json_open(&json, NULL, '{');
    yoke_json_open(&json, "students", '[');
    for (int i = 0; i < count; i++)
        json_student(&json, paths[i], files[i]);
    yoke_json_close(&json, ']');
    yoke_json_close(&json, '}');
    return cli_print_json(&json, stdout);
}

int lesson_collect(char **paths, int count, bool as_json) {
    yoke_status status = YOKE_OK;
    int read = 0;
    json_t **files = calloc((size_t)count, sizeof *files);
    if (files == NULL)
        return cli_fail(cli_refuse(YOKE_ERROR_MEMORY, "no memory for %d files", count));
    for (; read < count && status == YOKE_OK; read++)
        status = lesson_results_read(paths[read], &files[read]);
    if (status == YOKE_OK && as_json)
        status = print_json(paths, files, count);
    else if (status == YOKE_OK)
        print_table(files, count);
    for (int i = 0; i < read; i++)
        json_decref(files[i]);
    free(files);
    return status == YOKE_OK ? 0 : cli_fail(status);
}
