/* SPDX-License-Identifier: Apache-2.0 */
/* `yoke bench --kernels`: every kernel call of a training step alone, against what the device could
 * reach. */
#ifndef BENCH_TOOL_BENCH_KERNELS_H
#define BENCH_TOOL_BENCH_KERNELS_H

#include "bench/tool/bench_engine.h"

/* Measures each call `repeat` times and prints the table, or one JSON object. *unserved gets the
 * number of convolution passes that im2col computes because no library has an algorithm. */
yoke_status bench_kernels(const bench_setup *setup, int repeat, bool json, int *unserved);

#endif
