/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of a run: the splits of its dataset, without what the options leave out. */
#ifndef TRAIN_SPLITS_H
#define TRAIN_SPLITS_H

#include "train/run.h"

/* Opens the rows of a split: `given` by the host program, or by SPEC where NULL. */
yoke_status yoke_rows_open(yoke_rows *rows, yoke_run *run, yoke_split split,
                           const yoke_dataset *given);
/* Makes their loader, of this rank's rows of each batch. */
yoke_status yoke_rows_load(yoke_rows *rows, const yoke_run *run, yoke_loader_options options);
/* The loader goes before the devices do; reload makes it again, with the same options. */
void yoke_rows_unload(yoke_rows *rows);
yoke_status yoke_rows_reload(yoke_rows *rows, const yoke_run *run);
/* Makes them bring the inputs that the model reads, and cuts them to shorter models; nothing where
 * rows or model are not open. */
yoke_status yoke_rows_select_inputs(yoke_rows *rows, const yoke_run *run);
void yoke_rows_close(yoke_rows *rows);
/* A digest of the rows' labels or targets; "none": a callback has them. */
yoke_status yoke_rows_digest(const yoke_rows *rows, char text[YOKE_DIGEST_TEXT]);

#endif
