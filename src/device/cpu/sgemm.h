/* SPDX-License-Identifier: Apache-2.0 */
/* Products of float32 matrices by dnnl_sgemm. Rows of a matrix that lie a multiple of 512 bytes
 * apart share few lines of the first-level cache, and those a multiple of 4 KiB apart a single one
 * in each of its ways: products of such matrices take up to twice as long. Matrices of Yoke's own
 * have padded rows, and cpu_sgemm_over_rows copies those of others. */
#ifndef DEVICE_CPU_SGEMM_H
#define DEVICE_CPU_SGEMM_H

#include "device/cpu/cpu.h"

/* to [rows, columns] = scale * a [rows, depth] b [depth, columns] (+ to). a_row, b_row, to_row:
 * floats from one row in memory to the next; a transposed matrix lies in memory as its transpose.
 */
typedef struct cpu_sgemm {
    size_t rows, columns, depth;
    bool transpose_a, transpose_b, add;
    float scale; /* 0: 1 */
    const float *a, *b;
    size_t a_row, b_row;
    float *to;
    size_t to_row;
} cpu_sgemm;

dnnl_status_t cpu_sgemm_run(const cpu_sgemm *product);

/* The floats of a padded row. */
size_t cpu_sgemm_pitch(size_t columns);

/* The same where a is transposed: both matrices have `depth` rows in memory, as gradients of
 * weights have, and padded copies of some rows at a time are multiplied. scratch:
 * cpu_sgemm_scratch_floats. */
dnnl_status_t cpu_sgemm_over_rows(const cpu_sgemm *product, int threads, float *scratch);
size_t cpu_sgemm_scratch_floats(size_t rows, size_t columns);

#endif
