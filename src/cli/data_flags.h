/* SPDX-License-Identifier: Apache-2.0 */
/* What to read of a dataset, and how: --limit-rows and its neighbours. */
#ifndef CLI_DATA_FLAGS_H
#define CLI_DATA_FLAGS_H

#include "yoke/trainer.h"

typedef struct data_flags {
    uint64_t limit_rows;        /* 0: all */
    const char *loader_threads; /* NULL: auto */
    int sampling;
    bool drop_last, skip_bad;
} data_flags;

/* Rows of the option tables of verbs that read datasets. */
#define CLI_OPTION_LIMIT_ROWS(at)                                                                  \
    {                                                                                              \
        "limit-rows", "N", "read N rows of each split at most, the same ones in every run (all)",  \
            CLI_UNSIGNED, at, 1, UINT32_MAX                                                        \
    }
#define CLI_OPTION_LOADER_THREADS(at)                                                              \
    {                                                                                              \
        "loader-threads", "N|auto",                                                                \
            "threads that prepare batches; auto: 1, and for images a thread per core, at most 8 "  \
            "(auto)",                                                                              \
            CLI_TEXT, at, 0, 0                                                                     \
    }
#define CLI_OPTION_SKIP_BAD(at)                                                                    \
    {                                                                                              \
        "skip-bad", NULL,                                                                          \
            "images: read every file first, name those that are damaged, go on without", CLI_FLAG, \
            at, 0, 0                                                                               \
    }

/* -1, or the exit code of a usage error. */
int data_flags_check(const data_flags *flags, const char *verb);
/* The number of threads; 0: auto; -1: neither. */
int loader_threads_read(const char *text);
/* Prints the file on stderr. */
typedef void data_flags_on_bad(const yoke_bad_row *bad, void *payload);
data_flags_on_bad data_flags_name_bad;
/* Checked flags. open: a split with the rows that the flags leave; on_bad as for
 * yoke_dataset_skip_bad. */
yoke_status data_flags_open(yoke_dataset **dataset, const char *spec, yoke_split split,
                            const data_flags *flags, data_flags_on_bad *on_bad, void *payload);
void data_flags_fill(yoke_trainer_options *run, const data_flags *flags);

#endif
