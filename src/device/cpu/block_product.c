/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel holds the sums of some rows of one, two or four panels in registers, and goes through
 * all k. With AVX-512 up to 24 of 32 registers are sums, with AVX2 12 of 16. Eight sums hide the
 * latency of an addition, so few rows want several panels. */
#include "device/cpu/block_product.h"

#include "device/cpu/cpu.h"
#include "device/cpu/processor.h"

enum { MOST_ROWS = 12, MOST_VECTORS = 4, FEW_ROWS = 6 };

int cpu_block_panels(size_t rows, size_t columns) {
    if (rows <= FEW_ROWS && columns % (MOST_VECTORS * CPU_PANEL) == 0) return MOST_VECTORS;
    return columns % (2 * CPU_PANEL) == 0 ? 2 : 1;
}

#if defined(__x86_64__)
#include <immintrin.h>

static bool has_avx2(void) {
    int isa = (int)dnnl_get_effective_cpu_isa();
    return (isa & dnnl_cpu_isa_avx2) == dnnl_cpu_isa_avx2 && __builtin_cpu_supports("fma");
}

#define INLINE static inline __attribute__((always_inline))
/* Only products of pairs use instructions for bfloat16. */
#define WIDE __attribute__((target("avx512f,avx512bf16")))
#define NARROW __attribute__((target("avx2,fma")))

/* AVX-512. */

/* A kernel's rows and panels; the numbers are constants wherever these are inlined, so that the
 * sums are registers. */
typedef struct wide_kernel {
    size_t first, panel;
    int rows, vectors;
    bool pairs;
    bool packed; /* left_step is 1, and the panels of a k lie side by side, those of the next behind
                  */
} wide_kernel;

/* The lines of the next product's right matrix that a pass over this one fetches: with one pass
 * all, otherwise one of each k in turn, so that memory is busy all the time. The later passes fetch
 * nothing new. */
typedef struct ahead_of {
    const float *first;
    ptrdiff_t step;
} ahead_of;

INLINE size_t rows_of(int vectors) {
    return vectors == MOST_VECTORS ? FEW_ROWS : MOST_ROWS;
}

static inline ahead_of look_ahead(const cpu_block_product *p, const wide_kernel *kernel) {
    size_t rows = rows_of(kernel->vectors), pass = (kernel->first + rows - 1) / rows;
    if (p->next == NULL || pass >= p->panels) return (ahead_of){p->right, 0};
    if (p->rows <= rows) return (ahead_of){p->next, CPU_PANEL};
    return (ahead_of){p->next + pass * CPU_PANEL, 0};
}

INLINE float *row_of(const cpu_block_product *p, const wide_kernel *kernel, int row) {
    size_t i = kernel->first + (size_t)row;
    return p->to + (p->places != NULL ? p->places[i] : i) * p->to_row + kernel->panel * CPU_PANEL;
}

WIDE INLINE __m512 multiply_add(__m512 left, __m512 right, __m512 sum, bool pairs) {
    if (pairs) return _mm512_dpbf16_ps(sum, (__m512bh)left, (__m512bh)right);
    return _mm512_fmadd_ps(left, right, sum);
}

WIDE INLINE void multiply_rows(const cpu_block_product *p, wide_kernel kernel) {
    /* One or two rows wait for memory alone: the processor fetches as fast by itself. */
    const bool fetches = p->next != NULL && kernel.rows > 2 && !kernel.pairs;
    const ahead_of ahead = look_ahead(p, &kernel);
    const float *fetched = ahead.first, *left = p->left + kernel.first * p->left_row;
    const float *right = p->right + kernel.panel * p->right_panel;
    const size_t left_step = kernel.packed ? 1 : p->left_step;
    const size_t right_panel = kernel.packed ? CPU_PANEL : p->right_panel;
    const size_t right_step = kernel.packed ? (size_t)kernel.vectors * CPU_PANEL : p->right_step;
    __m512 sums[MOST_ROWS][MOST_VECTORS];
#pragma GCC unroll 12
    for (int r = 0; r < kernel.rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < kernel.vectors; v++)
            sums[r][v] = _mm512_setzero_ps();
    for (size_t k = 0; k < p->depth; k++) {
        __m512 b[MOST_VECTORS];
#pragma GCC unroll 4
        for (int v = 0; v < kernel.vectors; v++)
            b[v] = _mm512_loadu_ps(right + (size_t)v * right_panel);
#pragma GCC unroll 12
        for (int r = 0; r < kernel.rows; r++) {
            const __m512 a = _mm512_set1_ps(left[(size_t)r * p->left_row]);
#pragma GCC unroll 4
            for (int v = 0; v < kernel.vectors; v++)
                sums[r][v] = multiply_add(a, b[v], sums[r][v], kernel.pairs);
        }
        if (fetches)
#pragma GCC unroll 4
            for (int v = 0; v < kernel.vectors; v++)
                _mm_prefetch((const char *)(fetched + v * ahead.step), _MM_HINT_T1);
        fetched += kernel.vectors * CPU_PANEL;
        left += left_step;
        right += right_step;
    }
#pragma GCC unroll 12
    for (int r = 0; r < kernel.rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < kernel.vectors; v++) {
            float *to = row_of(p, &kernel, r) + v * CPU_PANEL;
            if (p->adds) sums[r][v] = _mm512_add_ps(_mm512_loadu_ps(to), sums[r][v]);
            _mm512_storeu_ps(to, sums[r][v]);
        }
}

#define ROWS_OF(count, ...)                                                                        \
    case count:                                                                                    \
        multiply_rows(p, (wide_kernel){first, panel, count, __VA_ARGS__});                         \
        break;
#define UP_TO_6(...)                                                                               \
    ROWS_OF(1, __VA_ARGS__)                                                                        \
    ROWS_OF(2, __VA_ARGS__)                                                                        \
    ROWS_OF(3, __VA_ARGS__)                                                                        \
    ROWS_OF(4, __VA_ARGS__)                                                                        \
    ROWS_OF(5, __VA_ARGS__)                                                                        \
    ROWS_OF(6, __VA_ARGS__)
#define UP_TO_12(...)                                                                              \
    UP_TO_6(__VA_ARGS__)                                                                           \
    ROWS_OF(7, __VA_ARGS__)                                                                        \
    ROWS_OF(8, __VA_ARGS__)                                                                        \
    ROWS_OF(9, __VA_ARGS__)                                                                        \
    ROWS_OF(10, __VA_ARGS__)                                                                       \
    ROWS_OF(11, __VA_ARGS__)                                                                       \
    ROWS_OF(12, __VA_ARGS__)

typedef void wide_multiply(const cpu_block_product *p, size_t panel, size_t first, size_t rows);

#define WIDE_MULTIPLY(name, rows_cases, vectors, pairs, packed)                                    \
    WIDE static void name(const cpu_block_product *p, size_t panel, size_t first, size_t rows) {   \
        switch (rows) { rows_cases(vectors, pairs, packed) }                                       \
    }

WIDE_MULTIPLY(multiply_1, UP_TO_12, 1, false, false)
WIDE_MULTIPLY(multiply_2, UP_TO_12, 2, false, false)
WIDE_MULTIPLY(multiply_packed_1, UP_TO_12, 1, false, true)
WIDE_MULTIPLY(multiply_packed_2, UP_TO_12, 2, false, true)
WIDE_MULTIPLY(multiply_packed_4, UP_TO_6, 4, false, true)
WIDE_MULTIPLY(multiply_pairs_1, UP_TO_12, 1, true, false)
WIDE_MULTIPLY(multiply_pairs_2, UP_TO_12, 2, true, false)

/* In passes of about as many rows. */
static void multiply_panels(const cpu_block_product *p, wide_multiply *multiply, size_t panel,
                            int vectors) {
    size_t most = rows_of(vectors), passes = (p->rows + most - 1) / most, first = 0;
    for (size_t pass = 0; pass < passes; pass++) {
        size_t end = p->rows * (pass + 1) / passes;
        multiply(p, panel, first, end - first);
        first = end;
    }
}

/* Panels that are packed side by side are one, two or four. */
static bool is_packed(const cpu_block_product *p) {
    return p->left_step == 1 && p->right_panel == CPU_PANEL &&
           p->right_step == p->panels * CPU_PANEL && p->panels <= MOST_VECTORS && p->panels != 3;
}

static void multiply_packed(const cpu_block_product *p) {
    static wide_multiply *const multiply[] = {
        [1] = multiply_packed_1, [2] = multiply_packed_2, [4] = multiply_packed_4};
    multiply_panels(p, multiply[p->panels], 0, (int)p->panels);
}

static void multiply_strided(const cpu_block_product *p) {
    size_t panel = 0;
    for (; panel + 2 <= p->panels; panel += 2)
        multiply_panels(p, p->pairs ? multiply_pairs_2 : multiply_2, panel, 2);
    if (panel < p->panels) multiply_panels(p, p->pairs ? multiply_pairs_1 : multiply_1, panel, 1);
}

void cpu_multiply_wide(const cpu_block_product *product) {
    if (!product->pairs && is_packed(product))
        multiply_packed(product);
    else
        multiply_strided(product);
}

/* Where one operand is NaN, max and min give the second. */
WIDE void cpu_finish_sums(const cpu_finish *finish, const float *sums, float *to, size_t columns) {
    const __m512 low = _mm512_set1_ps(finish->low), high = _mm512_set1_ps(finish->high);
    for (size_t i = 0; i < columns; i += CPU_PANEL) {
        const size_t left = columns - i;
        const __mmask16 mask = (__mmask16)(left < CPU_PANEL ? (1u << left) - 1 : 0xffff);
        __m512 sum = _mm512_maskz_loadu_ps(mask, sums + i);
        if (finish->bias != NULL)
            sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, finish->bias + i));
        if (finish->adds) sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, to + i));
        _mm512_mask_storeu_ps(to + i, mask, _mm512_min_ps(high, _mm512_max_ps(low, sum)));
    }
}

/* AVX2. */

enum { NARROW_ROWS = 6, NARROW_LANES = 8 };

/* `count` is a constant wherever this is inlined. Rows first .. first + count - 1 of a panel: */
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

NARROW static void multiply_narrow(const cpu_block_product *p) {
    for (size_t panel = 0; panel < p->panels; panel++) {
        size_t row = 0;
        TAKE_ROWS(NARROW_ROWS) multiply_halves(p, panel, row, NARROW_ROWS);
        TAKE_ROWS(3) multiply_halves(p, panel, row, 3);
        TAKE_ROWS(1) multiply_halves(p, panel, row, 1);
    }
}

cpu_block_multiply *cpu_find_block_multiply(void) {
    if (cpu_has_avx512()) return cpu_multiply_wide;
    return has_avx2() ? multiply_narrow : NULL;
}

#else

cpu_block_multiply *cpu_find_block_multiply(void) {
    return NULL;
}

/* Nobody calls these here. */

void cpu_multiply_wide(const cpu_block_product *product) {
    (void)product;
}

void cpu_finish_sums(const cpu_finish *finish, const float *sums, float *to, size_t columns) {
    (void)finish;
    (void)sums;
    (void)to;
    (void)columns;
}

#endif
