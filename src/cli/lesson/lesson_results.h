/* SPDX-License-Identifier: Apache-2.0 */
/* The file of a student's results, which a teacher collects: docs/lesson.md. */
#ifndef CLI_LESSON_RESULTS_H
#define CLI_LESSON_RESULTS_H

#include "cli/lesson/lesson_answer.h"

/* A question, the student's answer, and what came out. */
typedef struct lesson_result {
    const lesson_question *question;
    lesson_answer answer;
    lesson_truth truth;
    lesson_verdict verdict;
    bool asked;
} lesson_result;

typedef struct lesson_entry {
    const lesson_row *lesson;
    lesson_result predict, exercise;
} lesson_entry;

/* What --json prints and the file holds. NULL: no memory. */
json_t *lesson_entry_json(const lesson_entry *entry);

/* Likewise of the exchange that a student wrote. times: that of the ring. */
json_t *lesson_exchange_json(bool right, double times);
#define LESSON_EXCHANGE 0 /* its number in files */

/* Reads a file of results and checks it. DATA, MISSING or IO names the file. The caller frees
 * *results with json_decref. */
yoke_status lesson_results_read(const char *path, json_t **results);
/* Whether the file can take the student's results, before anything runs. name NULL: the file's
 * own. */
yoke_status lesson_results_check(const char *path, const char *name);
/* Adds the entry to the file, which is complete or unchanged. */
yoke_status lesson_results_add(const char *path, const char *name, json_t *entry);

/* A table of several files, or JSON. Returns the exit code. */
int lesson_collect(char **paths, int count, bool as_json);

#endif
