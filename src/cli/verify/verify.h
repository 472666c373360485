/* SPDX-License-Identifier: Apache-2.0 */
/* yoke verify, shared by its files: the modes, the pairs to compare, and the report. */
#ifndef CLI_VERIFY_H
#define CLI_VERIFY_H

#include <stdio.h>

#include "cli/verify/verify_difference.h"

#define VERIFY_MODES 10
#define VERIFY_PAIRS 14

typedef struct verification {
    compare_setup setup;
    int steps;
    double tolerance;
    bool batch_norm;
    verify_mode modes[VERIFY_MODES];
    int mode_count;
    verify_pair pairs[VERIFY_PAIRS];
    int pair_count;
    const yoke_model *model; /* that of the mode single */
    const char *against;     /* the file's path; NULL: none */
    char left_out[2][160];   /* sentences on modes that are missing; empty: none */
} verification;

/* Whether any two modes that must agree were compared. Without that nothing passes. */
bool verify_compared(const verification *all);
bool verify_passes(const verification *all);
void verify_print(FILE *out, const verification *all); /* verify_report.c */
yoke_status verify_print_json(FILE *out, const verification *all);

#endif
