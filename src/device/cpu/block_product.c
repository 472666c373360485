/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel holds the sums of some rows of a panel, or of two panels, in registers, and goes through
 * all k. With AVX-512 24 of 32 registers are sums, with AVX2 12 of 16. */
#include "device/cpu/block_product.h"

#include "device/cpu/cpu.h"
#include "device/cpu/processor.h"

#if defined(__x86_64__)
#include <immintrin.h>

static bool has_avx2(void) {
    int isa = (int)dnnl_get_effective_cpu_isa();
    return (isa & dnnl_cpu_isa_avx2) == dnnl_cpu_isa_avx2 && __builtin_cpu_supports("fma");
}

bool cpu_has_block_products(void) {
    return cpu_has_avx512() || has_avx2();
}

#define INLINE static inline __attribute__((always_inline))
/* Only products of pairs use instructions for bfloat16. */
#define WIDE __attribute__((target("avx512f,avx512bf16")))
#define NARROW __attribute__((target("avx2,fma")))
enum { WIDE_ROWS = 12, NARROW_ROWS = 6, NARROW_LANES = 8 };

WIDE INLINE __m512 multiply_add(__m512 left, __m512 right, __m512 sum, bool pairs) {
    if (pairs) return _mm512_dpbf16_ps(sum, (__m512bh)left, (__m512bh)right);
    return _mm512_fmadd_ps(left, right, sum);
}

/* `count` and `pairs` are constants wherever these are inlined, so that the sums are registers.
 * Rows first .. first + count - 1 of a panel: */
WIDE INLINE void multiply_one(const cpu_block_product *p, size_t panel, size_t first, size_t count,
                              bool pairs) {
    const float *left = p->left + first * p->left_row, *right = p->right + panel * p->right_panel;
    __m512 sums[2 * WIDE_ROWS];
    for (size_t row = 0; row < count; row++)
        sums[row] = _mm512_setzero_ps();
    for (size_t k = 0; k < p->depth; k++) {
        __m512 b = _mm512_loadu_ps(right + k * p->right_step);
        for (size_t row = 0; row < count; row++) {
            __m512 a = _mm512_set1_ps(left[row * p->left_row + k * p->left_step]);
            sums[row] = multiply_add(a, b, sums[row], pairs);
        }
    }
    for (size_t row = 0; row < count; row++) {
        float *to = p->to + (first + row) * p->to_row + panel * CPU_PANEL;
        if (p->adds) sums[row] = _mm512_add_ps(_mm512_loadu_ps(to), sums[row]);
        _mm512_storeu_ps(to, sums[row]);
    }
}

/* The same of two panels. */
WIDE INLINE void multiply_two(const cpu_block_product *p, size_t panel, size_t first, size_t count,
                              bool pairs) {
    const float *left = p->left + first * p->left_row, *right = p->right + panel * p->right_panel;
    __m512 low[WIDE_ROWS], high[WIDE_ROWS];
    for (size_t row = 0; row < count; row++)
        low[row] = high[row] = _mm512_setzero_ps();
    for (size_t k = 0; k < p->depth; k++) {
        __m512 b0 = _mm512_loadu_ps(right + k * p->right_step);
        __m512 b1 = _mm512_loadu_ps(right + k * p->right_step + p->right_panel);
        for (size_t row = 0; row < count; row++) {
            __m512 a = _mm512_set1_ps(left[row * p->left_row + k * p->left_step]);
            low[row] = multiply_add(a, b0, low[row], pairs);
            high[row] = multiply_add(a, b1, high[row], pairs);
        }
    }
    for (size_t row = 0; row < count; row++) {
        float *to = p->to + (first + row) * p->to_row + panel * CPU_PANEL;
        if (p->adds) {
            low[row] = _mm512_add_ps(_mm512_loadu_ps(to), low[row]);
            high[row] = _mm512_add_ps(_mm512_loadu_ps(to + CPU_PANEL), high[row]);
        }
        _mm512_storeu_ps(to, low[row]);
        _mm512_storeu_ps(to + CPU_PANEL, high[row]);
    }
}

NARROW INLINE void multiply_halves(const cpu_block_product *p, size_t panel, size_t first,
                                   size_t count) {
    const float *left = p->left + first * p->left_row, *right = p->right + panel * p->right_panel;
    __m256 low[NARROW_ROWS], high[NARROW_ROWS];
    for (size_t row = 0; row < count; row++)
        low[row] = high[row] = _mm256_setzero_ps();
    for (size_t k = 0; k < p->depth; k++) {
        __m256 b0 = _mm256_loadu_ps(right + k * p->right_step);
        __m256 b1 = _mm256_loadu_ps(right + k * p->right_step + NARROW_LANES);
        for (size_t row = 0; row < count; row++) {
            __m256 a = _mm256_broadcast_ss(left + row * p->left_row + k * p->left_step);
            low[row] = _mm256_fmadd_ps(a, b0, low[row]);
            high[row] = _mm256_fmadd_ps(a, b1, high[row]);
        }
    }
    for (size_t row = 0; row < count; row++) {
        float *to = p->to + (first + row) * p->to_row + panel * CPU_PANEL;
        if (p->adds) {
            low[row] = _mm256_add_ps(_mm256_loadu_ps(to), low[row]);
            high[row] = _mm256_add_ps(_mm256_loadu_ps(to + NARROW_LANES), high[row]);
        }
        _mm256_storeu_ps(to, low[row]);
        _mm256_storeu_ps(to + NARROW_LANES, high[row]);
    }
}

/* While there are `count` rows more. */
#define TAKE_ROWS(count) for (; p->rows - row >= (count); row += (count))

WIDE INLINE void multiply_wide(const cpu_block_product *p, bool pairs) {
    size_t panel = 0;
    for (; panel + 2 <= p->panels; panel += 2) {
        size_t row = 0;
        TAKE_ROWS(WIDE_ROWS) multiply_two(p, panel, row, WIDE_ROWS, pairs);
        TAKE_ROWS(8) multiply_two(p, panel, row, 8, pairs);
        TAKE_ROWS(4) multiply_two(p, panel, row, 4, pairs);
        TAKE_ROWS(1) multiply_two(p, panel, row, 1, pairs);
    }
    for (; panel < p->panels; panel++) {
        size_t row = 0;
        TAKE_ROWS(2 * WIDE_ROWS) multiply_one(p, panel, row, 2 * WIDE_ROWS, pairs);
        TAKE_ROWS(8) multiply_one(p, panel, row, 8, pairs);
        TAKE_ROWS(1) multiply_one(p, panel, row, 1, pairs);
    }
}

WIDE static void multiply_floats(const cpu_block_product *p) {
    multiply_wide(p, false);
}

WIDE static void multiply_pairs(const cpu_block_product *p) {
    multiply_wide(p, true);
}

NARROW static void multiply_narrow(const cpu_block_product *p) {
    for (size_t panel = 0; panel < p->panels; panel++) {
        size_t row = 0;
        TAKE_ROWS(NARROW_ROWS) multiply_halves(p, panel, row, NARROW_ROWS);
        TAKE_ROWS(3) multiply_halves(p, panel, row, 3);
        TAKE_ROWS(1) multiply_halves(p, panel, row, 1);
    }
}

void cpu_multiply_block(const cpu_block_product *product) {
    if (product->pairs) {
        multiply_pairs(product);
    } else if (cpu_has_avx512()) {
        multiply_floats(product);
    } else {
        multiply_narrow(product);
    }
}

#else

bool cpu_has_block_products(void) {
    return false;
}

void cpu_multiply_block(const cpu_block_product *product) {
    (void)product; /* nobody calls it here */
}

#endif
