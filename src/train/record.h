/* SPDX-License-Identifier: Apache-2.0 */
/* What a run tells: events to the host program and the metrics, progress to whoever asks. */
#ifndef TRAIN_RECORD_H
#define TRAIN_RECORD_H

#include "yoke/trainer.h"

/* Writes the event's metrics and calls on_event. Training continues without metrics: it warns once,
 * and tries again with every line. */
void yoke_trainer_record(yoke_trainer *trainer, yoke_event *event);
/* What yoke_trainer_progress answers from now on. */
void yoke_trainer_publish(yoke_trainer *trainer);

#endif
