/* SPDX-License-Identifier: Apache-2.0 */
/* Writes checkpoints on a thread of its own while training goes on. One at a time: the state that
 * is being written must not change. */
#ifndef TRAIN_CHECKPOINT_WRITER_H
#define TRAIN_CHECKPOINT_WRITER_H

#include "train/checkpoint_folder.h"

typedef struct yoke_checkpoint_writer yoke_checkpoint_writer;

/* Starts the thread. `state` and `folder` outlive the writer. */
yoke_status yoke_checkpoint_writer_create(yoke_checkpoint_writer **writer, const yoke_state *state,
                                          yoke_folder *folder, int keep);
/* Waits for the file in progress. Takes NULL. */
void yoke_checkpoint_writer_destroy(yoke_checkpoint_writer *writer);

bool yoke_checkpoint_writer_is_busy(yoke_checkpoint_writer *writer);
/* Waits for the file in progress, at most so long; whether the writer is idle. */
bool yoke_checkpoint_writer_wait(yoke_checkpoint_writer *writer, int timeout_ms);
/* Writes the state as it is now. Only when idle. BEST: to best.safetensors; otherwise to the file
 * of its step, after which older files are removed. LAST: no other follows; if it cannot be
 * written, it goes elsewhere, and the error says where. */
typedef enum yoke_save_kind { YOKE_SAVE_STEP, YOKE_SAVE_BEST, YOKE_SAVE_LAST } yoke_save_kind;
void yoke_checkpoint_writer_start(yoke_checkpoint_writer *writer, const yoke_facts *facts,
                                  yoke_save_kind kind);
/* True once for each finished file: its path, and its status with the error's text. */
bool yoke_checkpoint_writer_collect(yoke_checkpoint_writer *writer, yoke_status *status,
                                    const char **path);

#endif
