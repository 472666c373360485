/* A folder of checkpoints: step-00001234.safetensors for each, and best.safetensors. */
#ifndef TRAIN_CHECKPOINT_FOLDER_H
#define TRAIN_CHECKPOINT_FOLDER_H

#include <limits.h>

#include "train/checkpoint.h"

#define YOKE_BEST_NAME "best.safetensors"

/* Makes the folder unless it exists, removes what interrupted writers left, and checks that files
 * can be written there. */
yoke_status yoke_folder_open(const char *folder);
void yoke_folder_path(char path[PATH_MAX], const char *folder, uint64_t step);
void yoke_folder_best_path(char path[PATH_MAX], const char *folder);
/* The largest step of a file's name that is above `step`, or 0. */
uint64_t yoke_folder_newest_above(const char *folder, uint64_t step);
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
