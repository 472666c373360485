/* SPDX-License-Identifier: Apache-2.0 */
/* Where the tool keeps the choices of measured algorithms. */
#ifndef CLI_CHOICES_PLACE_H
#define CLI_CHOICES_PLACE_H

#include <stdbool.h>
#include <stddef.h>

#include "cli/arguments.h"

typedef struct choices_flags {
    const char *file;
    bool no_cache;
} choices_flags;

/* The rows of these flags in a verb's table. */
#define CHOICES_OPTION_FILE(at)                                                                    \
    {                                                                                              \
        "choices", "FILE",                                                                         \
            "file that keeps what was measured, for the same bits in every run (in "               \
            "~/.cache/yoke)",                                                                      \
            at                                                                                     \
    }
#define CHOICES_OPTION_NO_CACHE(at)                                                                \
    { "no-cache", NULL, "measure algorithms anew, and keep nothing in ~/.cache/yoke", at }

/* Refuses both flags together: -1, or the exit code behind a printed error. */
int choices_flags_check(const choices_flags *flags, const char *verb);

/* yoke_data_parallel_options.measure_seconds of runs that may last for hours, or for one row. */
#define CHOICES_SECONDS_TRAINING 60
#define CHOICES_SECONDS_PREDICTING 10

/* Says what the fastest algorithms cost; of others nothing. */
void choices_note_fastest(yoke_algorithm algorithm);

/* yoke_data_parallel_options.choices and cache_choices. */
typedef struct choices_place {
    const char *path; /* NULL: none; may point to `text` */
    bool cache;
    char text[4096];
} choices_place;

/* The file that --choices names, or choices-1.txt in $XDG_CACHE_HOME/yoke or ~/.cache/yoke, whose
 * folders it makes. None with --no-cache, or when the environment has neither or one
 * too long for a path, which it says on stderr if `speaks`. */
void choices_place_find(choices_place *place, const choices_flags *flags, bool speaks);
/* Says on stderr, after 2 s, that another run has locked the file; find does where it speaks. */
void choices_place_say_held(const choices_place *place);

#endif
