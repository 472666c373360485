/* SPDX-License-Identifier: Apache-2.0 */
/* A folder of checkpoints: step-00001234.safetensors for each, and best.safetensors. */
#ifndef TRAIN_CHECKPOINT_FOLDER_H
#define TRAIN_CHECKPOINT_FOLDER_H

#include <limits.h>

#include "train/checkpoint.h"

#define YOKE_BEST_NAME "best.safetensors"

/* The folder of one run. The lock keeps other runs out; it ends with the process. */
typedef struct yoke_folder {
    const char *path; /* of the caller; NULL: not open */
    int place;        /* the folder itself, by which it is known again; -1: is_lost, or closed */
    int lock;         /* a file in it, for this user alone; -1: no locks there, or is_lost */
    bool is_lost;     /* the folder of this name is not this run's any more */
} yoke_folder;

/* Makes the folder unless it exists, removes what killed writers left, and checks that files can be
 * written there. ARGUMENT: another run has the folder, or it is a file. */
yoke_status yoke_folder_open(yoke_folder *folder, const char *path);
void yoke_folder_close(yoke_folder *folder); /* takes a zeroed struct */
/* Makes and locks the folder again if somebody removed it. ARGUMENT, as often as it is called: the
 * folder of this name is another run's by now. */
yoke_status yoke_folder_restore(yoke_folder *folder);
void yoke_folder_path(char path[PATH_MAX], const char *folder, uint64_t step);
void yoke_folder_best_path(char path[PATH_MAX], const char *folder);
/* ARGUMENT when the folder has a checkpoint of a step above `step`, also as best.safetensors. */
yoke_status yoke_folder_check_newest(const char *folder, uint64_t step);
/* Removes all but the `keep` newest of the files up to `step`, which was just written; files of
 * later steps stay. */
void yoke_folder_prune(const char *folder, uint64_t step, int keep);
/* Opens the newest checkpoint that verifies: by step, then best. MISSING: the folder has none.
 * DATA: all are damaged, or one has a format that this library does not read. Reports every damaged
 * file that it passes over, with the reason, to `passed`; a file that cannot be read is a failure.
 */
yoke_status yoke_folder_open_newest(yoke_checkpoint **checkpoint, const char *folder,
                                    void (*passed)(void *payload, const char *text), void *payload);

#endif
