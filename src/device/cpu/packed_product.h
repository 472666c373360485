/* SPDX-License-Identifier: Apache-2.0 */
/* to = left * right for small float32 matrices whose right one is packed once and used often:
 * oneDNN packs it in each call. For AVX2 with FMA; with AVX-512 oneDNN is faster. */
#ifndef DEVICE_CPU_PACKED_PRODUCT_H
#define DEVICE_CPU_PACKED_PRODUCT_H

#include <stdbool.h>
#include <stddef.h>

enum { CPU_PANEL = 16 }; /* columns of a panel of the right matrix: [depth, CPU_PANEL] */

/* Whether this processor does it. */
bool cpu_packs_products(void);

/* A panel's columns of the product, row by row. An element is one sum, in the order of depth. */
typedef struct cpu_packed_product {
    const float *left, *panel;
    float *to;
    size_t rows, depth;
    size_t left_row, to_row; /* floats from row to row; columns lie side by side */
} cpu_packed_product;
void cpu_multiply_panel(const cpu_packed_product *product);

#endif
