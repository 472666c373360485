/* SPDX-License-Identifier: Apache-2.0 */
/* The loop of a run on a thread of its own. */
#ifndef TRAIN_RUN_THREAD_H
#define TRAIN_RUN_THREAD_H

#include "yoke/trainer.h"

/* Runs `loop` and returns its status. With options.survive and a deadline it runs on another
 * thread, whose callbacks then come from there: the calling thread watches it. Where it hangs in
 * the work of a device, it is left behind, and `loop` begins again on a new thread, without that
 * device. */
yoke_status yoke_run_on_thread(yoke_trainer *trainer, yoke_status (*loop)(yoke_trainer *trainer));

#endif
