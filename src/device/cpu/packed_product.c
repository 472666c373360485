/* SPDX-License-Identifier: Apache-2.0 */
/* Six rows of a panel at a time: their twelve sums, two vectors of the panel and one element of the
 * left matrix fill the 16 registers. */
#include "device/cpu/packed_product.h"

#include "device/cpu/cpu.h"
#include "device/cpu/processor.h"

#if defined(__x86_64__)
#include <immintrin.h>

enum { ROWS = 6, HALF = CPU_PANEL / 2 };

bool cpu_packs_products(void) {
    int isa = (int)dnnl_get_effective_cpu_isa();
    return (isa & dnnl_cpu_isa_avx2) == dnnl_cpu_isa_avx2 && !cpu_has_avx512() &&
           __builtin_cpu_supports("fma");
}

#define KERNEL __attribute__((target("avx2,fma")))

/* `count` is a constant wherever this is inlined, so that the sums are registers. */
KERNEL static inline __attribute__((always_inline)) void multiply_rows(const cpu_packed_product *p,
                                                                       size_t first, size_t count) {
    const float *left = p->left + first * p->left_row;
    __m256 low[ROWS], high[ROWS];
    for (size_t row = 0; row < count; row++)
        low[row] = high[row] = _mm256_setzero_ps();
    for (size_t k = 0; k < p->depth; k++) {
        __m256 b0 = _mm256_loadu_ps(p->panel + k * CPU_PANEL);
        __m256 b1 = _mm256_loadu_ps(p->panel + k * CPU_PANEL + HALF);
        for (size_t row = 0; row < count; row++) {
            __m256 a = _mm256_broadcast_ss(left + row * p->left_row + k);
            low[row] = _mm256_fmadd_ps(a, b0, low[row]);
            high[row] = _mm256_fmadd_ps(a, b1, high[row]);
        }
    }
    for (size_t row = 0; row < count; row++) {
        float *to = p->to + (first + row) * p->to_row;
        _mm256_storeu_ps(to, low[row]);
        _mm256_storeu_ps(to + HALF, high[row]);
    }
}

KERNEL void cpu_multiply_panel(const cpu_packed_product *p) {
    size_t first = 0;
    for (; first + ROWS <= p->rows; first += ROWS)
        multiply_rows(p, first, ROWS);
    switch (p->rows - first) {
    case 5:
        multiply_rows(p, first, 5);
        return;
    case 4:
        multiply_rows(p, first, 4);
        return;
    case 3:
        multiply_rows(p, first, 3);
        return;
    case 2:
        multiply_rows(p, first, 2);
        return;
    case 1:
        multiply_rows(p, first, 1);
        return;
    default:
        return;
    }
}

#else

bool cpu_packs_products(void) {
    return false;
}

void cpu_multiply_panel(const cpu_packed_product *product) {
    (void)product; /* nobody calls it here */
}

#endif
