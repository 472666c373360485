/* SPDX-License-Identifier: Apache-2.0 */
/* yoke train --live: the run in the terminal, a few times a second (docs/live.md). It draws behind
 * the same events as the progress bar. */
#ifndef CLI_LIVE_LIVE_H
#define CLI_LIVE_LIVE_H

#include "cli/progress.h"
#include "cli/result.h"

typedef struct live_view live_view;

/* Takes the bar's place in `view`. NULL: stderr is no terminal that can draw. */
live_view *live_open(progress *view);
/* The frame stays. Takes NULL. */
void live_close(live_view *live);

/* Training begins: what does not change in the run. The trainer must outlive the view. */
void live_ready(live_view *live, yoke_trainer *trainer, const device_view *devices);
/* Remembers a STEP or EVALUATION, before progress_step. */
void live_add(live_view *live, const yoke_event *event);

#endif
