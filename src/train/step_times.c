/* When the memory is full every second time is dropped and half as many are kept from then on. */
#include "train/step_times.h"

#include <stdlib.h>
#include <string.h>

void yoke_step_times_add(yoke_step_times *times, double milliseconds) {
    if (times->stride == 0) times->stride = 1;
    if (times->seen++ % times->stride != 0) return;
    if (times->count == YOKE_STEP_TIMES) {
        times->count /= 2;
        for (size_t i = 0; i < (size_t)times->count; i++)
            times->milliseconds[i] = times->milliseconds[2 * i];
        times->stride *= 2;
    }
    times->milliseconds[times->count++] = (float)milliseconds;
}

static int by_value(const void *left, const void *right) {
    float a = *(const float *)left, b = *(const float *)right;
    return (a > b) - (a < b);
}

double yoke_step_times_quantile(const yoke_step_times *times, double share) {
    float sorted[YOKE_STEP_TIMES];
    if (times->count == 0) return 0;
    size_t count = (size_t)times->count;
    memcpy(sorted, times->milliseconds, count * sizeof sorted[0]);
    qsort(sorted, count, sizeof sorted[0], by_value);
    double place = share * (double)(count - 1);
    size_t below = (size_t)place;
    if (below + 1 == count) return (double)sorted[below];
    double part = place - (double)below;
    return (1 - part) * (double)sorted[below] + part * (double)sorted[below + 1];
}
