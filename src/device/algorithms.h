/* SPDX-License-Identifier: Apache-2.0 */
/* The record of the algorithms of an engine's plans, and where it outlives a run. */
#ifndef DEVICE_ALGORITHMS_H
#define DEVICE_ALGORITHMS_H

#include <stdbool.h>

#include "base/base.h"

typedef struct yoke_algorithms yoke_algorithms;

/* The chosen algorithm for each shape and pass. The root measures once and all replicas share the
 * result. Not thread-safe: one thread makes all plans. */
yoke_status yoke_algorithms_create(yoke_algorithms **algorithms);
void yoke_algorithms_destroy(yoke_algorithms *algorithms);
/* The file in which algorithms outlive a run. */
typedef struct yoke_algorithm_cache_place {
    const char *path;
    const char *machine; /* selects the lines that count here */
    bool replace_broken; /* the program's own file: where it is broken, the run goes on */
} yoke_algorithm_cache_place;
/* Keeps algorithms in a file, so that every run takes the same ones: reads those of the machine.
 * find then looks an unknown key up again behind the file's lock, which commit releases once it has
 * written what was added. A folder or file that cannot be written is no failure but a warning, and
 * so is a broken cache, which commit replaces. DATA: another file is no record of algorithms; the
 * text names the line. */
yoke_status yoke_algorithms_keep(yoke_algorithms *algorithms,
                                 const yoke_algorithm_cache_place *place);
yoke_status yoke_algorithms_commit(yoke_algorithms *algorithms);
/* Why algorithms of this record are in no file, or not measured, or measured anew, or replaced a
 * broken cache; NULL: none of these. */
const char *yoke_algorithms_warning(yoke_algorithms *algorithms);
/* `hook` runs on the measuring thread before each plan, between two measurements, and while another
 * process has the file's lock: never during a measurement. NULL: none. When it fails, measuring
 * ends with its error. */
typedef yoke_status (*yoke_algorithms_hook)(void *context);
void yoke_algorithms_watch(yoke_algorithms *algorithms, yoke_algorithms_hook hook, void *context);
/* Runs the hook. Takes NULL. */
yoke_status yoke_algorithms_go_on(yoke_algorithms *algorithms);
/* How a record's names become candidates here. Candidates may have another order than when they
 * were measured, so it is the name that counts. */
typedef struct yoke_algorithm_names {
    const char *(*name_of)(const void *context, int candidate); /* NULL past the last */
    const void *context;
    /* For names that no table holds: sets *candidate to the number of the one that `name` means, or
     * to -1. NULL: the candidate with the name. */
    yoke_status (*take)(void *taker, const char *name, int *candidate);
    void *taker;
    bool follows; /* the plan must not measure: a device beside the root, or fewer rows */
} yoke_algorithm_names;
#define YOKE_ALGORITHM_GONE (-2)
/* `key` names shape, pass and precision, and the rows if the algorithm depends on them. *candidate
 * is -1 when unknown. An algorithm that does not exist here becomes unknown, and the warning names
 * it; to a plan that follows it is YOKE_ALGORITHM_GONE. DATA: rank 0 made it, so that this rank may
 * not measure another. `names` NULL: any name will do. */
yoke_status yoke_algorithms_find(yoke_algorithms *algorithms, const char *key,
                                 const yoke_algorithm_names *names, int *candidate);
yoke_status yoke_algorithms_add(yoke_algorithms *algorithms, const char *key, int candidate,
                                const char *candidate_name, double milliseconds);
/* For tests of one computation among several, and for counts: an unknown key one of whose
 * candidates has this name takes it unmeasured. Up to 8 names, which outlive the record. */
void yoke_algorithms_prefer(yoke_algorithms *algorithms, const char *name);
/* The first candidate with such a name, also for a fixed rule; -1: there is none. Takes no
 * record. */
int yoke_algorithms_preferred(const yoke_algorithms *algorithms, const yoke_algorithm_names *names);
/* Limits measuring to so many seconds from the first unknown key on; 0: no limit. late: they are
 * over; assume then adds what a fixed rule chooses, for this record alone: no file gets it. */
void yoke_algorithms_limit(yoke_algorithms *algorithms, double seconds);
bool yoke_algorithms_late(const yoke_algorithms *algorithms);
yoke_status yoke_algorithms_assume(yoke_algorithms *algorithms, const char *key, int candidate,
                                   const char *candidate_name);
/* Row `index` of the algorithms in use; false past the end. */
bool yoke_algorithms_at(const yoke_algorithms *algorithms, int index, const char **key,
                        const char **name, double *milliseconds);
/* The algorithms in use as text, one per line; the caller frees it. read adds the algorithms of
 * such a text, and changes the text. PEER: it is no record. */
yoke_status yoke_algorithms_write(const yoke_algorithms *algorithms, char **text);
yoke_status yoke_algorithms_read(yoke_algorithms *algorithms, char *text);

#endif
