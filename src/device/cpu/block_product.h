/* SPDX-License-Identifier: Apache-2.0 */
/* to = left * right, or to += left * right, for float32 matrices that the caller keeps in the
 * cache, or whose right one it has packed once. oneDNN packs both in each call; here the caller
 * lays them as the kernels read them. For x86 with AVX-512, or with AVX2 and FMA; where the
 * processor computes in bfloat16, for pairs of such, too. */
#ifndef DEVICE_CPU_BLOCK_PRODUCT_H
#define DEVICE_CPU_BLOCK_PRODUCT_H

#include <stdbool.h>
#include <stddef.h>

enum { CPU_PANEL = 16 }; /* columns of a panel of the right matrix; a vector of AVX-512 */

/* Element (row, k) of left is at left[row * left_row + k * left_step]. The columns of a panel lie
 * side by side in `right`, at right[k * right_step], and in `to`. An element is one sum in the
 * order of k; it is added to the old one where the product `adds`. */
typedef struct cpu_block_product {
    const float *left, *right;
    float *to;
    size_t rows, depth, panels;
    size_t left_row, left_step;
    size_t right_step, right_panel; /* floats to the next k, to the next panel */
    size_t to_row;
    bool adds;
    bool pairs; /* an element of left and right is two of bfloat16, for two terms of the sum */
    /* Only with AVX-512. Where each row of the product lies in `to`, in rows; NULL: in order. */
    const size_t *places;
    /* The right matrix of the next product, to fetch; its panels lie side by side. NULL: none. */
    const float *next;
} cpu_block_product;
typedef void cpu_block_multiply(const cpu_block_product *product);
cpu_block_multiply cpu_multiply_wide; /* with AVX-512 */
/* The kernels of this processor; NULL: it has none. */
cpu_block_multiply *cpu_find_block_multiply(void);

/* With AVX-512: how many panels of a right matrix to pack side by side, 1, 2 or 4, for products of
 * so many rows. They divide the columns, a multiple of CPU_PANEL. */
int cpu_block_panels(size_t rows, size_t columns);

/* With AVX-512: what becomes of the sums of a row. They get the bias, if any, and what is there, if
 * it `adds`; then they are no less than `low` and no more than `high`, but NaN stays NaN. */
typedef struct cpu_finish {
    const float *bias;
    bool adds;
    float low, high;
} cpu_finish;
void cpu_finish_sums(const cpu_finish *finish, const float *sums, float *to, size_t columns);

#endif
