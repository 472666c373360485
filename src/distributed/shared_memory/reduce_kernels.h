/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions over the buffers of several ranks, in one order. */
#ifndef DISTRIBUTED_REDUCE_KERNELS_H
#define DISTRIBUTED_REDUCE_KERNELS_H

#include "distributed/distributed.h"

enum { FOLD_RANKS = YOKE_PEERS_LIMIT, FOLD_PARTS = YOKE_RANK_BLOCKS };

/* One buffer per rank, or several blocks of a sum, and the reduction over them. */
typedef struct yoke_fold_set {
    yoke_element element;
    yoke_reduction reduction;
    int ranks;        /* that share the work */
    int parts;        /* of `from` */
    const int *sizes; /* [parts] contributors of each, as in base/tree.h; NULL: one each */
    char *from[FOLD_PARTS];
} yoke_fold_set;

/* to[count] = the reduction of from[parts][begin .. begin + count) by the tree of base/tree.h.
 * bfloat16 is folded as float32. MEAN divides the sum; integers round towards zero. MIN and MAX
 * keep a NaN. `to` may be one of `from`; otherwise they do not overlap. */
void yoke_fold(void *to, const yoke_fold_set *fold, size_t begin, size_t count);
/* Turns the sum over `ranks` into their mean. bfloat16: `values` are its float32 sums. */
void yoke_fold_divide(void *values, yoke_element element, size_t count, int ranks);

#endif
