/* Step times of a run in fixed memory: every one of a short run, every second, fourth, ... of a
 * long one, evenly over its length. */
#ifndef TRAIN_STEP_TIMES_H
#define TRAIN_STEP_TIMES_H

#include <stdint.h>

#define YOKE_STEP_TIMES 4096

typedef struct yoke_step_times {
    uint64_t seen, stride; /* stride 0: nothing seen yet */
    int count;
    float milliseconds[YOKE_STEP_TIMES];
} yoke_step_times;

void yoke_step_times_add(yoke_step_times *times, double milliseconds);
/* The value below which `share` (0.5: the median) of the times lie; 0 when there are none. */
double yoke_step_times_quantile(const yoke_step_times *times, double share);

#endif
