/* SPDX-License-Identifier: Apache-2.0 */
/* The file in which algorithms outlive a run. It is text: a header line, then one algorithm per
 * line. A line never changes once it is written, so the first run to measure a key decides for all,
 * until its algorithm does not exist any more: a later line with the same key then counts. */
#ifndef DEVICE_ALGORITHM_CACHE_FILE_H
#define DEVICE_ALGORITHM_CACHE_FILE_H

#include "device/algorithms.h"

typedef struct yoke_algorithm_cache_file yoke_algorithm_cache_file;

typedef struct yoke_algorithm_line {
    int candidate;
    double milliseconds;
    const char *name, *key;
} yoke_algorithm_line;

/* Takes an algorithm of the file's machine. */
typedef yoke_status (*yoke_algorithm_taker)(void *context, const yoke_algorithm_line *line);

/* Opens nothing yet. */
yoke_status yoke_algorithm_cache_file_open(yoke_algorithm_cache_file **file,
                                           const yoke_algorithm_cache_place *place);
/* Takes NULL; drops what was added and not committed. */
void yoke_algorithm_cache_file_close(yoke_algorithm_cache_file *file);

const char *yoke_algorithm_cache_file_path(const yoke_algorithm_cache_file *file);
/* Hands every algorithm of this machine to `take`; a missing file has none. DATA: file and line. A
 * cache that cannot be read is broken instead. */
yoke_status yoke_algorithm_cache_file_read(yoke_algorithm_cache_file *file,
                                           yoke_algorithm_taker take, void *context);
/* Who holds the file. `may_wait`, asked while another process has the lock, ends the wait with
 * false. */
typedef struct yoke_algorithm_cache_holder {
    yoke_algorithm_taker take;
    bool (*may_wait)(void *context);
    void *context;
} yoke_algorithm_cache_holder;
/* Locks the file against other processes and reads it again, unless it is locked already. Waits for
 * a process that is measuring. Takes NULL. Returns whether algorithms were read. */
bool yoke_algorithm_cache_file_hold(yoke_algorithm_cache_file *file,
                                    const yoke_algorithm_cache_holder *holder);
/* A cache that is broken: commit replaces it by what was added since. */
bool yoke_algorithm_cache_file_is_broken(const yoke_algorithm_cache_file *file);
/* Adds a line, for commit to write. */
void yoke_algorithm_cache_file_add(yoke_algorithm_cache_file *file,
                                   const yoke_algorithm_line *line);
/* Replaces the file by one with the added lines, and unlocks it. DATA: what the last hold met. */
yoke_status yoke_algorithm_cache_file_commit(yoke_algorithm_cache_file *file);
/* Why lines are not in the file, or a broken cache was replaced; NULL: neither. Takes NULL. */
const char *yoke_algorithm_cache_file_warning(const yoke_algorithm_cache_file *file);

#endif
