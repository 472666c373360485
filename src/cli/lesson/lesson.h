/* SPDX-License-Identifier: Apache-2.0 */
/* A lesson is a row of the table in lesson_table.c: what to predict, which commands of this tool to
 * run, and where in their JSON the answer is. */
#ifndef CLI_LESSON_H
#define CLI_LESSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/base.h"

#define LESSON_COMMANDS 4 /* of a lesson */
#define LESSON_NAMES 8    /* of an order */
#define LESSON_WORDS 64   /* of a command */
#define LESSON_ANSWER 256 /* bytes of an answer, as it is kept */

typedef enum lesson_kind {
    LESSON_NUMBER, /* with a unit */
    LESSON_YES_NO,
    LESSON_ORDER /* of names, the least first */
} lesson_kind;

typedef struct lesson_question {
    const char *text;
    lesson_kind kind;
    const char *unit; /* of a number; of an order: what it is by */
    /* An expression over the JSON of the commands, lesson_measure.c. Of yes or no: 1 or 0. Of an
     * order: "NAME = EXPRESSION" with ; between them. */
    const char *measured;
    double tolerance; /* relative to what came out; values of an order that differ by less are equal
                       */
    bool clock;       /* times of this machine decide: another run gives another figure */
    const char *why;  /* one or two sentences */
} lesson_question;

typedef struct lesson_row {
    int number;
    const char *name, *title;
    const char *commands[LESSON_COMMANDS]; /* of this tool, run in a folder of their own with --json
                                              behind them; NULL behind the last */
    const char *look; /* a command to look at, where there is a terminal; NULL: none */
    lesson_question predict, exercise;
} lesson_row;

extern const lesson_row lesson_table[];
extern const int lesson_count;

#endif
