/* SPDX-License-Identifier: Apache-2.0 */
/* `yoke bench --profile FILE`: what a step of one device takes, for yoke simulate and yoke advise.
 */
#ifndef BENCH_TOOL_BENCH_PROFILE_H
#define BENCH_TOOL_BENCH_PROFILE_H

#include "bench/tool/bench_engine.h"

#define BENCH_PROFILE_STEPS 1000 /* at most: the trace keeps the spans of some thousand */

typedef struct bench_profile_options {
    const char *path;    /* of the file to write */
    const char *model;   /* a preset; NULL: resnet20 */
    const char *dataset; /* as yoke train takes it; NULL: random images */
    const char *device;  /* a list of one; NULL: the CPU */
    int rows;            /* 0: 32 */
    int threads;         /* of a CPU device; 0: every core */
    yoke_precision precision;
    int steps; /* up to BENCH_PROFILE_STEPS; 0: 20 */
} bench_profile_options;

/* One device; what the options leave out has its default. */
bench_setup bench_profile_setup(const bench_profile_options *options);

/* Measures, writes the file and prints one line about it. */
yoke_status bench_profile(const bench_profile_options *options);

#endif
