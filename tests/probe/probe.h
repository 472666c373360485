/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_probe: what one GPU and its libraries do, in under a minute, for whoever decides what to
 * build next. Each question runs in a process of its own with a deadline: one that hangs, or loses
 * its GPU, costs the others nothing. Every result is a line on stdout, and an object of one line in
 * the file of --json, as soon as it is known. A variant is timed only after its result was compared
 * with a reference. */
#ifndef PROBE_H
#define PROBE_H

#include <stdio.h>

#include "device/cuda/weighted.h"
#include "probe/probe_kernels.h"

/* Of the program, and handed to the process that asks one question. */
typedef struct gpu_probe {
    cuda_device *device; /* NULL: the question opens none */
    int number;          /* of the GPU */
    int json;            /* a file open for appending; -1: none */
    char *known;         /* the lines of --missing, each ends with a NUL; NULL: none */
    size_t known_bytes;
    bool tiny; /* shapes small enough for a simulated GPU */
    int rows;  /* of the convolutions of ResNet-50 */
    yoke_precision precision;
    uint64_t begin_ns;
    double seconds; /* what is left out begins later than this */
    int wrong;      /* results that differed from their reference */
    int left_out;   /* items that there was no time for */
} gpu_probe;

/* One line of the result; unused fields are NULL, or negative. */
typedef struct probe_row {
    const char *section, *what, *direction, *variant, *detail, *expected, *found, *verdict;
    double milliseconds, error;
    double value;
    const char *unit;
} probe_row;
#define PROBE_ROW_INIT                                                                             \
    { .milliseconds = -1, .error = -1, .value = -1 }
/* Verdicts of results that differ from their reference. */
#define PROBE_WRONG "WRONG"
#define PROBE_NO "NO"
void probe_print(const gpu_probe *probe, const probe_row *row);
double probe_seconds(const gpu_probe *probe); /* since it began */
bool probe_late(const gpu_probe *probe);      /* no time for another measurement */

/* An item is what a section says of one thing; its lines agree in section, what and direction
 * (which may be NULL). ask: whether to measure it; without time it prints so. answered: its lines
 * are complete, so that --missing does not ask it again. */
bool probe_ask(gpu_probe *probe, const char *section, const char *what, const char *direction);
void probe_answered(const gpu_probe *probe, const char *section, const char *what,
                    const char *direction);
bool probe_is_known(const gpu_probe *probe, const char *section, const char *what,
                    const char *direction);
/* The lines of an earlier --json; a last line that was cut off does not count. */
yoke_status probe_read_known(gpu_probe *probe, const char *path);
/* Makes the file of --json: the known lines of complete items, and nothing else. */
yoke_status probe_write_known(gpu_probe *probe, const char *path);

/* Records a few of the calls that `queue` makes, replays them, and takes the median: by the GPU's
 * clock. quick: one replay. DEVICE: it cannot be recorded, or fails. */
yoke_status probe_time(const gpu_probe *probe, yoke_status (*queue)(void *context), void *context,
                       bool quick, double *milliseconds);
yoke_status probe_warm_up(gpu_probe *probe);

/* Questions. A failure of the GPU ends the one that is asked. */
yoke_status probe_queries(gpu_probe *probe);
yoke_status probe_poison(gpu_probe *probe);
yoke_status probe_events(gpu_probe *probe);
yoke_status probe_launches(gpu_probe *probe);
yoke_status probe_stem(gpu_probe *probe);
yoke_status probe_plans(gpu_probe *probe);
yoke_status probe_epilogues(gpu_probe *probe);

/* Runs this program again with `extra` behind its own options, and kills it `seconds` from now. */
typedef enum probe_end { PROBE_EXITED, PROBE_KILLED, PROBE_DIED } probe_end;
yoke_status probe_run_child(char **argv, char *const extra[], double seconds, probe_end *end,
                            int *code);

#endif
