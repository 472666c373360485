/* SPDX-License-Identifier: Apache-2.0 */
/* A text file as a dataset; for this room's files only. */
#ifndef DATA_TEXT_FILE_H
#define DATA_TEXT_FILE_H

#include "data/data.h"

/* spec: what follows "text:". */
yoke_status yoke_text_open(yoke_dataset *dataset, const char *spec, yoke_split split);
void yoke_text_close(yoke_text *text); /* takes NULL */

/* inputs, labels: [context]. The window depends on (seed, epoch, row) alone. */
void yoke_text_row(const yoke_text *text, size_t row, const yoke_augmentation *augmentation,
                   float *inputs, int32_t *labels);

#endif
