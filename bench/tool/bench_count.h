/* SPDX-License-Identifier: Apache-2.0 */
/* `yoke bench --kernels --count`: what a training step moves and computes on simulated GPUs that
 * count, and what an H100 would take for it by a model. Nothing is timed. */
#ifndef BENCH_TOOL_BENCH_COUNT_H
#define BENCH_TOOL_BENCH_COUNT_H

#include "bench/tool/bench_engine.h"

/* Prints the table, or one JSON object. MISSING: this build does not count. */
yoke_status bench_count(const bench_setup *setup, bool json);

#endif
