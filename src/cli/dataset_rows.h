/* SPDX-License-Identifier: Apache-2.0 */
/* Which rows of a dataset a command reads, and how. */
#ifndef CLI_DATASET_ROWS_H
#define CLI_DATASET_ROWS_H

#include "cli/option_values.h"

typedef struct dataset_rows {
    size_t limit; /* 0: all */
    thread_count loader_threads;
    bool skip_bad;
} dataset_rows;

/* Prints the file on stderr. */
typedef void dataset_rows_on_bad(const yoke_bad_row *bad, void *payload);
dataset_rows_on_bad dataset_rows_name_bad;
/* Opens a split with the rows that are left; on_bad as for yoke_dataset_skip_bad. */
yoke_status dataset_rows_open(yoke_dataset **dataset, const char *spec, yoke_split split,
                              const dataset_rows *rows, dataset_rows_on_bad *on_bad, void *payload);

#endif
