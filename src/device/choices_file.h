/* SPDX-License-Identifier: Apache-2.0 */
/* The file in which choices outlive a run. It is text: a header line, then one choice per line. A
 * line never changes once it is written, so the first run to measure a key decides for all, until
 * its algorithm does not exist any more: a later line with the same key then counts. */
#ifndef DEVICE_CHOICES_FILE_H
#define DEVICE_CHOICES_FILE_H

#include "device/device.h"

typedef struct yoke_choices_file yoke_choices_file;

typedef struct yoke_choice_line {
    int candidate;
    double milliseconds;
    const char *name, *key;
} yoke_choice_line;

/* Takes a choice of the file's machine. */
typedef yoke_status (*yoke_choice_taker)(void *context, const yoke_choice_line *line);

/* Opens nothing yet. */
yoke_status yoke_choices_file_open(yoke_choices_file **file, const yoke_choices_place *place);
/* Takes NULL; drops what was added and not committed. */
void yoke_choices_file_close(yoke_choices_file *file);

const char *yoke_choices_file_path(const yoke_choices_file *file);
/* Hands every choice of this machine to `take`; a missing file has none. DATA: file and line. A
 * cache that cannot be read is broken instead. */
yoke_status yoke_choices_file_read(yoke_choices_file *file, yoke_choice_taker take, void *context);
/* Who holds the file. `may_wait`, asked while another process has the lock, ends the wait with
 * false. */
typedef struct yoke_choices_holder {
    yoke_choice_taker take;
    bool (*may_wait)(void *context);
    void *context;
} yoke_choices_holder;
/* Locks the file against other processes and reads it again, unless it is locked already. Waits for
 * a process that is measuring. Takes NULL. Returns whether choices were read. */
bool yoke_choices_file_hold(yoke_choices_file *file, const yoke_choices_holder *holder);
/* A cache that is broken: commit replaces it by what was added since. */
bool yoke_choices_file_is_broken(const yoke_choices_file *file);
/* Adds a line, for commit to write. */
void yoke_choices_file_add(yoke_choices_file *file, const yoke_choice_line *line);
/* Replaces the file by one with the added lines, and unlocks it. DATA: what the last hold met. */
yoke_status yoke_choices_file_commit(yoke_choices_file *file);
/* Why lines are not in the file, or a broken cache was replaced; NULL: neither. Takes NULL. */
const char *yoke_choices_file_warning(const yoke_choices_file *file);

#endif
