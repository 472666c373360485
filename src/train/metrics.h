/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers of a run: metrics as JSON lines, written at once, one for each step and evaluation;
 * and step times. */
#ifndef TRAIN_METRICS_H
#define TRAIN_METRICS_H

#include <sys/types.h>

#include "base/base.h"
#include "yoke/trainer.h"

typedef struct yoke_metrics {
    char *path; /* NULL: metrics are off */
    int descriptor;
    bool is_file; /* no pipe and no device */
    bool begun;   /* the first line was written, or tried */
    bool warned;  /* the run has said that lines are missing */
    off_t whole;  /* bytes of complete lines that stay */
    yoke_json line;
} yoke_metrics;

/* Where a resumed run goes on: behind `step`, and evaluates it again or has its evaluation behind
 * it. */
typedef struct yoke_metrics_place {
    uint64_t step;
    bool evaluates;
} yoke_metrics_place;

/* Opens the file and leaves its content alone: the first line replaces it, so that a run which ends
 * before that takes no earlier metrics along. It does not wait for the reader of a pipe. A NULL
 * path turns metrics off. IO names path and cause. */
yoke_status yoke_metrics_open(yoke_metrics *metrics, const char *path);
/* The first line replaces only the lines that a resumed run writes again. */
yoke_status yoke_metrics_go_on(yoke_metrics *metrics, const yoke_metrics_place *place);
void yoke_metrics_close(yoke_metrics *metrics);

/* Appends the line of a STEP or EVALUATION event, whole or not at all. Only the first line
 * allocates. After a failure (IO) the next call tries again. */
yoke_status yoke_metrics_write(yoke_metrics *metrics, const yoke_event *event);

/* Step times of a run in fixed memory: of a short run every one, of a longer one every second,
 * fourth, ...; when the memory is full, every second time is dropped. */
#define YOKE_STEP_TIMES 4096

typedef struct yoke_step_times {
    uint64_t seen, stride; /* stride 0: nothing seen yet */
    int count;
    float milliseconds[YOKE_STEP_TIMES];
} yoke_step_times;

void yoke_step_times_add(yoke_step_times *times, double milliseconds);
/* The value below which `share` (0.5: the median) of the times lie; 0 if there are none. */
double yoke_step_times_quantile(const yoke_step_times *times, double share);

#endif
