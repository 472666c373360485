/* SPDX-License-Identifier: Apache-2.0 */
/* to = left * right, or to += left * right, for float32 matrices that the caller keeps in the
 * cache. oneDNN packs both in each call; here the caller lays them as the kernels read them. For
 * x86 with AVX-512, or with AVX2 and FMA. */
#ifndef DEVICE_CPU_BLOCK_PRODUCT_H
#define DEVICE_CPU_BLOCK_PRODUCT_H

#include <stdbool.h>
#include <stddef.h>

enum { CPU_PANEL = 16 }; /* columns of a panel of the right matrix */

/* Whether this processor computes block products. */
bool cpu_has_block_products(void);

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
} cpu_block_product;
void cpu_multiply_block(const cpu_block_product *product);

#endif
