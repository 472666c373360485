/* SPDX-License-Identifier: Apache-2.0 */
/* to = left * right for float32 matrices with AVX-512, where the right one is packed once and used
 * often: oneDNN packs it in each call. */
#ifndef DEVICE_CPU_WIDE_PRODUCT_H
#define DEVICE_CPU_WIDE_PRODUCT_H

#include <stdbool.h>
#include <stddef.h>

enum { CPU_WIDE_LANES = 16 }; /* of a vector */

/* Whether this processor does it. */
bool cpu_has_wide_products(void);

/* The columns of one panel of the right matrix, [depth, vectors * CPU_WIDE_LANES], in every row of
 * the product. An element is one sum, in the order of depth. */
typedef struct cpu_wide_product {
    const float *left, *panel;
    const float *next; /* the panel of the next product, to fetch; NULL: unknown */
    float *to;
    size_t rows, depth;
    size_t left_row, to_row; /* floats from row to row; columns lie side by side */
    const size_t *places;    /* where each row of the product lies, in rows; NULL: in order */
    bool adds;               /* to what is there */
    int vectors;             /* 1, 2 or 4 */
} cpu_wide_product;
void cpu_multiply_wide(const cpu_wide_product *product);

/* What becomes of the sums of a row: they get the bias, if any, and what is there, if it `adds`;
 * then they are no less than `low` and no more than `high`, but NaN stays NaN. */
typedef struct cpu_wide_finish {
    const float *bias;
    bool adds;
    float low, high;
} cpu_wide_finish;
void cpu_finish_wide(const cpu_wide_finish *finish, const float *sums, float *to, size_t columns);

/* The widest panel that divides so many columns, a multiple of CPU_WIDE_LANES, and that keeps the
 * processor busy where the product has so many rows: the vectors of a panel. */
int cpu_wide_vectors(size_t rows, size_t columns);

#endif
