/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of a replica's step, without an engine. */
#ifndef BENCH_FLOOR_KERNEL_TIME_H
#define BENCH_FLOOR_KERNEL_TIME_H

#include "bench/floor/floor.h"
#include "model/program.h"

/* Runs every plan call of a training step (forward, loss, backward) `repeat` times, as `timing`
 * says; *milliseconds gets the kernel time that `yoke bench` compares a step with. Overwrites
 * gradients and outputs. */
yoke_status bench_replica_time(yoke_replica *replica, int rows, bench_timing timing, int repeat,
                               double *milliseconds);
/* The same calls, each alone, as a list; *count gets their number, of which the first `capacity`
 * are written. repeat 0: none runs. */
yoke_status bench_replica_calls(yoke_replica *replica, int rows, int repeat,
                                bench_kernel_call *calls, int capacity, int *count);
/* The fastest of `repeat` runs of the calls that `queue` makes: by the device's clock around a
 * recording of them where the device records, by the host's clock elsewhere. */
yoke_status bench_time_calls(yoke_device *device, yoke_status (*queue)(void *), void *context,
                             int repeat, double *best_ms);

/* kernel_calls.c: which call of a step, and what it moves. */
typedef struct bench_call_subject {
    int node;                  /* YOKE_NONE: the loss */
    const yoke_action *action; /* other than BACKWARD; NULL: a plan */
    bool backward;
    yoke_direction part; /* of backward; FORWARD: the whole */
} bench_call_subject;
void bench_call_describe(const yoke_program *program, const bench_call_subject *subject,
                         bench_kernel_call *call);

#endif
