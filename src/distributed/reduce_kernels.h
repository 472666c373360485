/* Reductions over the buffers of several ranks. */
#ifndef DISTRIBUTED_REDUCE_KERNELS_H
#define DISTRIBUTED_REDUCE_KERNELS_H

#include "base/base.h"

enum { FOLD_RANKS = 64 };

/* A set of buffers, one a rank, and the reduction of them. */
typedef struct yoke_fold_set {
    yoke_element element;
    yoke_reduction reduction;
    int ranks;
    char *from[FOLD_RANKS];
} yoke_fold_set;

/* to[count] = the left fold of from[ranks][begin .. begin + count), rank 0 first; float32 inside
 * for bfloat16; MEAN divides the sum, integers towards zero. `to` may be any of `from`; otherwise
 * they do not overlap. Minimum and maximum keep a NaN. */
void yoke_fold(void *to, const yoke_fold_set *fold, size_t begin, size_t count);
/* What is left of a mean when the sum of `ranks` is there. */
void yoke_fold_divide(void *values, yoke_element element, size_t count, int ranks);

#endif
