/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_probe: what one GPU and its libraries do, in under a minute, for whoever decides what to
 * build next. Every result is a line on stdout, and an object of one line in the file of --json, as
 * soon as it is known. A way is timed only after its result was compared with a reference. */
#ifndef PROBE_H
#define PROBE_H

#include <stdio.h>

#include "device/cuda/weighted.h"
#include "probe/probe_kernels.h"

typedef struct gpu_probe {
    cuda_device *device;
    FILE *json; /* NULL: none */
    bool tiny;  /* shapes small enough for a simulated GPU */
    int rows;   /* of the convolutions of ResNet-50 */
    yoke_precision precision;
    uint64_t begin_ns;
    double seconds; /* what is left out begins later than this */
    int wrong;      /* results that differed from their reference */
    int left_out;   /* ways that there was no time for */
} gpu_probe;

/* One line of the result; unused fields are NULL, or negative. */
typedef struct probe_row {
    const char *section, *what, *direction, *way, *detail, *verdict;
    double milliseconds, error;
    double value;
    const char *unit;
} probe_row;
#define PROBE_ROW_INIT                                                                             \
    { .milliseconds = -1, .error = -1, .value = -1 }
void probe_print(const gpu_probe *probe, const probe_row *row);
bool probe_late(const gpu_probe *probe); /* no time for another measurement */

/* Records a few of the calls that `queue` makes, replays them, and takes the median: by the GPU's
 * clock. quick: one replay. DEVICE: it cannot be recorded, or fails. */
yoke_status probe_time(const gpu_probe *probe, yoke_status (*queue)(void *context), void *context,
                       bool quick, double *milliseconds);

/* Sections. A failure of the GPU ends the probe. */
yoke_status probe_events(gpu_probe *probe);
yoke_status probe_launches(gpu_probe *probe);
yoke_status probe_convolutions(gpu_probe *probe);
yoke_status probe_epilogues(gpu_probe *probe);

/* probe_plans.c: the plans of cuDNN's backend for one pass, by heuristics A and B, each engine
 * configuration once. *count is 0, and *reason says why, where there are none. */
#define PROBE_PLANS 8
typedef struct probe_plan probe_plan;
yoke_status probe_plans_create(const cuda_problem *problem, cuda_direction direction,
                               probe_plan *plans[PROBE_PLANS], int *count, const char **reason);
void probe_plan_destroy(probe_plan *plan);
size_t probe_plan_workspace(const probe_plan *plan);
const char *probe_plan_name(const probe_plan *plan); /* "plan A0", ... */
int64_t probe_plan_engine(const probe_plan *plan);
/* Once, before it runs: the operands of a cuda_pass, but a gradient of weights has the compute
 * type, not float32. */
yoke_status probe_plan_bind(probe_plan *plan, const cuda_operands *operands);
yoke_status probe_plan_run(const probe_plan *plan);

#endif
