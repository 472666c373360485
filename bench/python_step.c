/* SPDX-License-Identifier: Apache-2.0 */
/* The loop that bench/python_step.py times beside Python's: steps of one engine, called from C. It
 * links nothing; the caller passes the library's function. */
#include <stdint.h>
#include <time.h>

typedef int (*step_function)(void *engine, const void *batch, double learning_rate, void *result);

static uint64_t now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (uint64_t)at.tv_sec * 1000000000 + (uint64_t)at.tv_nsec;
}

/* Nanoseconds of `count` steps; 0: one failed. */
uint64_t run_steps(step_function step, void *engine, const void *batch, void *result, int count) {
    uint64_t begin = now();
    for (int i = 0; i < count; i++)
        if (step(engine, batch, -1.0, result) != 0) return 0;
    return now() - begin;
}
