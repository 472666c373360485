/* SPDX-License-Identifier: Apache-2.0 */
/* Where a student's answers come from: options, a file of answers, or the terminal. */
#ifndef CLI_LESSON_ASK_H
#define CLI_LESSON_ASK_H

#include "cli/lesson/lesson_answer.h"

typedef struct lesson_flags {
    const char *predict, *answer, *answers, *results, *name;
    bool collect, json;
} lesson_flags;

/* *found: whether there is an answer at all. key: "predict" or "exercise" of the file. terminal:
 * ask there if nothing else has it. ARGUMENT: an answer is none; a person may try again. */
yoke_status lesson_ask(const lesson_row *lesson, const lesson_question *question,
                       const lesson_flags *flags, const char *key, bool terminal,
                       lesson_answer *answer, bool *found);

#endif
