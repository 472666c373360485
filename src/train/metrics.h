/* A run's numbers as JSON lines: one object a step and one an evaluation, each on the disk as soon
 * as it is known. */
#ifndef TRAIN_METRICS_H
#define TRAIN_METRICS_H

#include <sys/types.h>

#include "base/base.h"
#include "yoke/trainer.h"

typedef struct yoke_metrics {
    char *path; /* NULL: none is kept, and nothing is written */
    int descriptor;
    off_t whole; /* bytes of complete lines */
    yoke_json line;
} yoke_metrics;

/* Replaces the file; NULL keeps none. IO names path and cause. */
yoke_status yoke_metrics_open(yoke_metrics *metrics, const char *path);
void yoke_metrics_close(yoke_metrics *metrics);

/* Appends the line of a STEP or EVALUATION event, whole or not at all; it allocates for the first
 * line at most. After IO the next line is tried again. */
yoke_status yoke_metrics_write(yoke_metrics *metrics, const yoke_event *event);

#endif
