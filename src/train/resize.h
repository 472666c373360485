/* SPDX-License-Identifier: Apache-2.0 */
/* A run that goes on with other devices because the host program, or `yoke resize`, asks for them:
 * between two steps an engine of these devices takes the state of the one before. */
#ifndef TRAIN_RESIZE_H
#define TRAIN_RESIZE_H

#include <stdatomic.h>

#include "train/run.h"

typedef struct yoke_resize {
    _Atomic(yoke_devices *) asked; /* open, for the next step; NULL: none */
} yoke_resize;

bool yoke_resize_is_asked(const yoke_resize *resize);
/* Between two steps; the caller then begins the epoch's loader again. Devices that the run cannot
 * use are a WARNING: it goes on with those that it had. */
yoke_status yoke_resize_run(yoke_trainer *trainer);
/* Between two steps, on all ranks together: another engine, of the run's options now, with the
 * state of the present one; and loaders for it. */
yoke_status yoke_resize_engine(yoke_trainer *trainer);
void yoke_resize_close(yoke_resize *resize);

#endif
