/* SPDX-License-Identifier: Apache-2.0 */
/* The engine of a run, with its weights; and one of fewer or other devices. */
#ifndef TRAIN_RUN_ENGINE_H
#define TRAIN_RUN_ENGINE_H

#include "train/run.h"

/* The first engine, with the weights of options.init. */
yoke_status yoke_run_build_engine(yoke_run *run);
/* Destroys the engine, or leaves it behind where a thread hangs in it, leaves the device out, and
 * makes an engine of those that are left, with weights of its own. After a failure the run has no
 * engine. */
yoke_status yoke_run_leave_out(yoke_run *run, int device);
void yoke_run_drop_engine(yoke_run *run);
/* Drops the engine, keeps its trace, and gives the run other devices. Those that it had stay open:
 * the caller closes them. */
void yoke_run_change_devices(yoke_run *run, yoke_devices *devices);
/* Another engine of the same options, for the devices or ranks that the run has now. */
yoke_status yoke_run_rebuild_engine(yoke_run *run);
void yoke_run_close_engine(yoke_run *run);

#endif
