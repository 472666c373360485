/* SPDX-License-Identifier: Apache-2.0 */
/* yoke compare, shared by its files: a comparison while it runs, and the reports of its result. */
#ifndef CLI_COMPARE_H
#define CLI_COMPARE_H

#include <stdio.h>

#include "cli/compare/compare_contender.h"
#include "cli/compare/compare_result.h"

typedef struct comparison {
    compare_contender contenders[RACE_CONTENDERS];
    int count; /* single first, then all cores, then those of 2 devices, of 3 ... */
    rounds race;
    compare_result result;
} comparison;

/* compare_fill.c: makes result.modes of what the contenders learned, of the race and of a step that
 * each contender recorded. */
yoke_status compare_fill(comparison *all);

void compare_print(FILE *out, const compare_result *result); /* compare_report.c */
void compare_print_sentences(FILE *out, const compare_result *result);
yoke_status compare_print_json(FILE *out, const compare_result *result);
yoke_status compare_write_page(const char *path, const compare_result *result);

#endif
