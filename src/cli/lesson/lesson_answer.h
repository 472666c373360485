/* SPDX-License-Identifier: Apache-2.0 */
/* A student's answer: read from text, and judged by what came out. */
#ifndef CLI_LESSON_ANSWER_H
#define CLI_LESSON_ANSWER_H

#include "cli/lesson/lesson.h"

/* What came out. A question for a number, or for yes (1) or no (0), has `value`; a question for an
 * order has a value for each name. */
typedef struct lesson_truth {
    double value;
    int count; /* of an order */
    char names[LESSON_NAMES][32];
    double values[LESSON_NAMES];
} lesson_truth;

typedef struct lesson_answer {
    char text[LESSON_ANSWER]; /* as the student wrote it */
    double value;
    int count, order[LESSON_NAMES]; /* indices of the question's names */
} lesson_answer;

typedef struct lesson_verdict {
    bool right;
    double off; /* of a number: answer / truth; of an order: pairs in the wrong order */
} lesson_verdict;

/* The names of an order, before anything ran. Returns how many. */
int lesson_names(const lesson_question *question, char names[LESSON_NAMES][32]);

/* Reads "10.9", "10.9 ms", "11000 us", "yes", "a, b, c" or "a < b < c". ARGUMENT: the text says
 * what an answer looks like. */
yoke_status lesson_answer_read(const lesson_question *question, const char *text,
                               lesson_answer *answer);
/* Likewise; NULL, or what is wrong, valid until the next call: a person may try again. */
const char *lesson_answer_check(const lesson_question *question, const char *text,
                                lesson_answer *answer);
lesson_verdict lesson_judge(const lesson_question *question, const lesson_answer *answer,
                            const lesson_truth *truth);

/* "10.9 ms", "yes", "overlap 12.4, ddp 12.9 ms of a step". */
const char *lesson_truth_text(const lesson_question *question, const lesson_truth *truth,
                              char text[LESSON_ANSWER]);
/* "right", "wrong: 1.8 times what came out", ... */
const char *lesson_verdict_text(const lesson_question *question, const lesson_verdict *verdict,
                                char text[LESSON_ANSWER]);

#endif
