/* SPDX-License-Identifier: Apache-2.0 */
/* What PyTorch gets of Yoke: a folder with the program that its ranks run, their work, the weights
 * and the next batch. */
#ifndef CLI_COMPARE_TORCH_WORK_H
#define CLI_COMPARE_TORCH_WORK_H

#include "cli/compare/compare_way.h"

#define COMPARE_TORCH_FOLDER (LAUNCH_FOLDER_BYTES + 16)
#define COMPARE_TORCH_PATH (COMPARE_TORCH_FOLDER + 32)
#define COMPARE_TORCH_PROGRAM "torch_worker.py"

/* Whether the devices of a setup are GPUs. */
bool compare_torch_has_cuda(const compare_setup *setup);
/* "FOLDER/NAME" */
void compare_torch_path(char path[COMPARE_TORCH_PATH], const char *folder, const char *name);

typedef struct compare_torch_work {
    char folder[COMPARE_TORCH_FOLDER]; /* in the meeting's, with which it ends */
    compare_engine *source;            /* of weights and batches; NULL: all are written */
} compare_torch_work;

/* The caller closes it, also after a failure. */
yoke_status compare_torch_work_open(compare_torch_work *work, const compare_entry *entry,
                                    int ranks);
void compare_torch_work_close(compare_torch_work *work);
/* Writes the next batch of the dataset in place of the last one. */
yoke_status compare_torch_work_next(compare_torch_work *work);

#endif
