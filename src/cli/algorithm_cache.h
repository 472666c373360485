/* SPDX-License-Identifier: Apache-2.0 */
/* Where the tool keeps which algorithms were measured to be the fastest. */
#ifndef CLI_ALGORITHM_CACHE_H
#define CLI_ALGORITHM_CACHE_H

#include <stdbool.h>
#include <stddef.h>

#include "cli/arguments.h"

typedef struct algorithm_cache_flags {
    const char *file;
    bool no_cache;
} algorithm_cache_flags;

/* The rows of these flags in a verb's table. */
#define ALGORITHM_CACHE_OPTION_FILE(at)                                                            \
    {                                                                                              \
        "algorithm-cache", "FILE",                                                                 \
            "file that keeps what was measured, for the same bits in every run (in "               \
            "~/.cache/yoke)",                                                                      \
            at                                                                                     \
    }
#define ALGORITHM_CACHE_OPTION_NO_CACHE(at)                                                        \
    { "no-cache", NULL, "measure algorithms anew, and keep nothing in ~/.cache/yoke", at }

/* Refuses both flags together: -1, or the exit code behind a printed error. */
int algorithm_cache_check(const algorithm_cache_flags *flags, const char *verb);

/* yoke_data_parallel_options.measure_seconds of runs that may last for hours, or for one row. */
#define MEASURE_SECONDS_TRAINING 60
#define MEASURE_SECONDS_PREDICTING 10

/* Says what the fastest algorithms cost; of others nothing. */
void algorithm_note_fastest(yoke_algorithm algorithm);

/* yoke_data_parallel_options.algorithm_cache and replace_broken_cache. */
typedef struct algorithm_cache_place {
    const char *path; /* NULL: none; may point to `text` */
    bool replace_broken;
    char text[4096];
} algorithm_cache_place;

/* The file that --algorithm-cache names, or choices-1.txt in $XDG_CACHE_HOME/yoke or ~/.cache/yoke,
 * whose folders it makes. None with --no-cache, or when the environment has neither or one too long
 * for a path, which it says on stderr if `speaks`. */
void algorithm_cache_find(algorithm_cache_place *place, const algorithm_cache_flags *flags,
                          bool speaks);
/* Says on stderr, after 2 s, that another run has locked the file; find does where it speaks. */
void algorithm_cache_say_held(const algorithm_cache_place *place);

#endif
