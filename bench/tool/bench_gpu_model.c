/* SPDX-License-Identifier: Apache-2.0 */
/* The model of an H100: a launch takes as long as the slowest of the memories that it uses or its
 * arithmetic, stretched by its last wave, and a gap before it. */
#include "bench/tool/bench_gpu_model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* An H100 SXM: 3.35 TB/s, 5.5 TB/s, 132 x 128 bytes at 1.755 GHz, 989 TFLOP/s at the most. */
#define MEMORY_BYTES_PER_S 2.5e12
#define L2_BYTES_PER_S 5.5e12
#define L1_BYTES_PER_S 25e12
#define LAUNCH_MS 2e-3 /* from a kernel's end to the next one's start in a graph, and its ramp */
#define MULTIPROCESSORS 132
#define SHARES 2.5 /* a block can draw so many times its share of the memory's rate */

static const struct {
    double product, convolution; /* operations per second */
} rates[] = {[BENCH_FLOAT32_CORES] = {40e12, 25e12},
             [BENCH_TF32] = {250e12, 120e12},
             [BENCH_BFLOAT16] = {500e12, 300e12},
             [BENCH_OWN_CORES] = {12e12, 12e12},
             [BENCH_OWN_TENSOR] = {250e12, 250e12}};

/* Blocks that a multiprocessor holds at once (tests/cuda/kernel_limits.txt), where their threads do
 * not say it: a kernel takes 48 registers a thread. */
static double resident(const bench_work *work) {
    if (strstr(work->what, "_chunk") != NULL) return 2;
    if (strstr(work->what, "tensor_") != NULL) return 2;
    if (strcmp(work->operation, "attention") == 0) return 4;
    return fmax(1, fmin(32, floor(65536.0 / 48 / work->threads)));
}

double bench_model_tail(const bench_work *work) {
    if (work->library || work->blocks == 0) return 1;
    double together = resident(work) * MULTIPROCESSORS, waves = work->blocks / together;
    if (waves <= 1) return fmax(1, MULTIPROCESSORS / (SHARES * work->blocks));
    /* Blocks of the last wave have more of the memory's rate each, up to SHARES times. */
    double full = floor(waves), rest = waves - full;
    return (full + (rest > 0 ? fmax(rest, 1 / SHARES) : 0)) / waves;
}

static double arithmetic_s(double operations, bench_arithmetic arithmetic, bool convolution) {
    return operations / (convolution ? rates[arithmetic].convolution : rates[arithmetic].product);
}

double bench_model_ms(const bench_work *work) {
    double seconds = fmax(work->memory_bytes / MEMORY_BYTES_PER_S, work->l2_bytes / L2_BYTES_PER_S);
    seconds = fmax(seconds, work->l1_bytes / L1_BYTES_PER_S);
    seconds = fmax(seconds, arithmetic_s(work->operations, work->arithmetic, work->convolution));
    return seconds * bench_model_tail(work) * 1e3 + LAUNCH_MS;
}

double bench_model_floor_ms(double bytes, double operations, bench_arithmetic arithmetic,
                            bool convolution) {
    return 1e3 *
           fmax(bytes / MEMORY_BYTES_PER_S, arithmetic_s(operations, arithmetic, convolution));
}

void bench_model_print(void) {
    printf("the model of an H100: memory %.2f TB/s, second-level cache %.1f TB/s, first-level and "
           "shared %.0f TB/s, %.1f us a launch;\n",
           MEMORY_BYTES_PER_S * 1e-12, L2_BYTES_PER_S * 1e-12, L1_BYTES_PER_S * 1e-12,
           LAUNCH_MS * 1e3);
    printf("TFLOP/s of a library's product (convolution): bfloat16 %.0f (%.0f), tf32 %.0f (%.0f), "
           "float32 %.0f (%.0f); of attention without tensor cores %.0f, with them %.0f\n",
           rates[BENCH_BFLOAT16].product * 1e-12, rates[BENCH_BFLOAT16].convolution * 1e-12,
           rates[BENCH_TF32].product * 1e-12, rates[BENCH_TF32].convolution * 1e-12,
           rates[BENCH_FLOAT32_CORES].product * 1e-12,
           rates[BENCH_FLOAT32_CORES].convolution * 1e-12, rates[BENCH_OWN_CORES].product * 1e-12,
           rates[BENCH_OWN_TENSOR].product * 1e-12);
}
