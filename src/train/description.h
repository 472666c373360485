/* SPDX-License-Identifier: Apache-2.0 */
/* What files of weights say of themselves, as keys and values in __metadata__. The public interface
 * is yoke/weights.h. */
#ifndef TRAIN_DESCRIPTION_H
#define TRAIN_DESCRIPTION_H

#include "train/safetensors.h"
#include "yoke/weights.h"

#define YOKE_DESCRIPTION_NOTES 16
typedef struct yoke_notes {
    yoke_file_note items[YOKE_DESCRIPTION_NOTES]; /* keys are literals */
    char *values[YOKE_DESCRIPTION_NOTES];         /* owned: the items' values */
    int count;
} yoke_notes;

/* Takes a zeroed struct. What `info` does not say is left out, and the version, too. Clear it after
 * a failure as well. ARGUMENT: a reader of the file would refuse it. */
yoke_status yoke_notes_write(yoke_notes *notes, const yoke_weights_info *info);
void yoke_notes_clear(yoke_notes *notes);
/* Lists them and the version, for a file that is to be saved; returns how many these are. */
int yoke_notes_list(const yoke_notes *notes, yoke_file_note items[YOKE_DESCRIPTION_NOTES + 1]);

#endif
