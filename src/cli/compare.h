/* yoke compare, shared by its files: a comparison, and the ways to tell it. */
#ifndef CLI_COMPARE_H
#define CLI_COMPARE_H

#include <stdio.h>

#include "compare_contender.h"

typedef struct comparison {
    compare_setup setup;
    char processor[96]; /* or GPU model */
    int cores;          /* that CPU devices share; 0: GPUs */
    bool ddp_left_out;  /* for GPUs that several devices share */
    int learn_steps;
    double tolerance; /* of losses, relative */
    compare_contender contenders[RACE_CONTENDERS];
    int count; /* single is the first; then those of 2 devices, of 3 ... */
    rounds race;
} comparison;

/* NULL when there is none. */
const compare_contender *compare_find(const comparison *all, compare_kind kind, int devices);
int compare_index(const comparison *all, const compare_contender *contender);

/* compare_equal.c: have two contenders learned the same? With batch norm only those of as many
 * devices can: it normalises each shard by itself. */
typedef enum compare_verdict {
    COMPARE_REFERENCE, /* the one the others are compared with; or there is none for it */
    COMPARE_SAME_BITS, /* of all weights; a loss is a sum whose order is not theirs */
    COMPARE_ROUNDING,  /* losses within the tolerance */
    COMPARE_DIFFERENT
} compare_verdict;
typedef struct compare_equality {
    compare_verdict verdict;
    const compare_contender *with; /* NULL: a reference */
    double difference;             /* the largest of the losses, relative */
} compare_equality;
compare_equality compare_equality_of(const comparison *all, const compare_contender *contender);
const char *compare_verdict_name(compare_verdict verdict); /* "same bits" */
bool compare_all_equal(const comparison *all);

/* Figures of the race against single, each formed within a round. */
race_ratio compare_images(const comparison *all, const compare_contender *contender);
race_ratio compare_speedup(const comparison *all, const compare_contender *contender);
race_ratio compare_efficiency(const comparison *all, const compare_contender *contender);

void compare_print(FILE *out, const comparison *all);     /* compare_report.c: tables */
void compare_interpret(FILE *out, const comparison *all); /* compare_words.c: what they say */
void compare_emit(FILE *out, const comparison *all);      /* compare_json.c */

#endif
