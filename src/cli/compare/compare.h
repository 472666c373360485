/* yoke compare, shared by its files: a comparison and its reports. */
#ifndef CLI_COMPARE_H
#define CLI_COMPARE_H

#include <stdio.h>

#include "cli/compare/compare_contender.h"

typedef struct comparison {
    compare_setup setup;
    char processor[96]; /* or the model of the GPU */
    int cores;          /* shared by CPU devices; 0: GPUs */
    bool ddp_left_out;  /* where devices share a GPU */
    int learn_steps;
    double tolerance; /* of losses, relative */
    compare_contender contenders[RACE_CONTENDERS];
    int count; /* single first, then those of 2 devices, of 3 ... */
    rounds race;
} comparison;

/* NULL: no such contender. */
const compare_contender *compare_find(const comparison *all, compare_kind kind, int devices);
int compare_index(const comparison *all, const compare_contender *contender);

/* compare_equal.c: did two contenders learn the same? With batch norm only those on as many devices
 * can, because it normalizes each shard alone. */
typedef enum compare_verdict {
    COMPARE_REFERENCE, /* compared with nobody */
    COMPARE_SAME_BITS, /* all weights are equal; a loss may differ by the order of its sum */
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

/* Figures of the race; speed-up and efficiency are ratios to single within a round. */
race_ratio compare_images(const comparison *all, const compare_contender *contender);
race_ratio compare_speedup(const comparison *all, const compare_contender *contender);
race_ratio compare_efficiency(const comparison *all, const compare_contender *contender);

void compare_print(FILE *out, const comparison *all); /* compare_report.c */
yoke_status compare_print_json(FILE *out, const comparison *all);

#endif
