/* SPDX-License-Identifier: Apache-2.0 */
/* A straggler: one device or rank that computes more slowly than the others, on purpose, to show
 * which others wait for it. */
#ifndef PARALLEL_STRAGGLER_H
#define PARALLEL_STRAGGLER_H

#include "parallel/parallel.h"

/* ARGUMENT: no such device or rank, an impossible factor, or devices that queue. */
yoke_status yoke_straggler_check(const yoke_data_parallel *parallel);

/* On the lane's worker, at the end of computation that began at begin_ns: if the lane is the
 * straggler, waits until it has taken straggler_factor times as long. */
void yoke_straggle(const yoke_data_parallel *parallel, int lane, uint64_t begin_ns);

#endif
