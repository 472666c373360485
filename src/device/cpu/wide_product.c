/* SPDX-License-Identifier: Apache-2.0 */
/* Up to 24 sums of 16 columns fill the 32 registers with the vectors of the panel; an element of
 * the left matrix comes from memory with each multiplication. Eight sums hide the latency of an
 * addition, so few rows want panels of many vectors. */
#include "device/cpu/wide_product.h"

#include "device/cpu/cpu.h"

enum { MOST_ROWS = 12, MOST_VECTORS = 4, FEW_ROWS = 6 };

int cpu_wide_vectors(size_t rows, size_t columns) {
    if (rows <= FEW_ROWS && columns % (MOST_VECTORS * CPU_WIDE_LANES) == 0) return MOST_VECTORS;
    return columns % (2 * CPU_WIDE_LANES) == 0 ? 2 : 1;
}

#if defined(__x86_64__)
#include <immintrin.h>

bool cpu_has_wide_products(void) {
    int isa = (int)dnnl_get_effective_cpu_isa();
    return (isa & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core;
}

#define KERNEL __attribute__((target("avx512f")))

#define MOST_ROWS_OF(vectors) ((vectors) == MOST_VECTORS ? FEW_ROWS : MOST_ROWS)

/* The lines of the next panel that a pass over this one fetches: with one pass all, otherwise one
 * of each row in turn, so that memory is busy all the time. The later passes fetch nothing new. */
typedef struct ahead_of {
    const float *first;
    ptrdiff_t step;
} ahead_of;

static inline ahead_of look_ahead(const cpu_wide_product *p, size_t first, size_t rows) {
    size_t pass = (first + rows - 1) / rows;
    if (p->next == NULL || pass >= (size_t)p->vectors) return (ahead_of){p->panel, 0};
    if (p->rows <= rows) return (ahead_of){p->next, CPU_WIDE_LANES};
    return (ahead_of){p->next + pass * CPU_WIDE_LANES, 0};
}

static inline float *row_of(const cpu_wide_product *p, size_t first, int row) {
    size_t i = first + (size_t)row;
    return p->to + (p->places != NULL ? p->places[i] : i) * p->to_row;
}

/* `count` and `vectors` are constants wherever this is inlined, so that the sums are registers. */
KERNEL static inline __attribute__((always_inline)) void
multiply_rows(const cpu_wide_product *p, size_t first, int count, int vectors) {
    const ahead_of ahead = look_ahead(p, first, MOST_ROWS_OF(vectors));
    const float *fetched = ahead.first;
    const float *left = p->left + first * p->left_row, *panel = p->panel;
    const size_t row = p->left_row;
    __m512 sums[MOST_ROWS][MOST_VECTORS];
#pragma GCC unroll 12
    for (int r = 0; r < count; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            sums[r][v] = p->adds ? _mm512_loadu_ps(row_of(p, first, r) + v * CPU_WIDE_LANES)
                                 : _mm512_setzero_ps();
    for (size_t k = 0; k < p->depth; k++) {
        __m512 b[MOST_VECTORS];
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            b[v] = _mm512_loadu_ps(panel + v * CPU_WIDE_LANES);
#pragma GCC unroll 12
        for (int r = 0; r < count; r++) {
            const __m512 a = _mm512_set1_ps(left[(size_t)r * row]);
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++)
                sums[r][v] = _mm512_fmadd_ps(a, b[v], sums[r][v]);
        }
        /* One or two rows wait for memory alone: the processor fetches as fast by itself. */
#pragma GCC unroll 4
        for (int v = 0; v < vectors && count > 2; v++)
            _mm_prefetch((const char *)(fetched + v * ahead.step), _MM_HINT_T1);
        fetched += vectors * CPU_WIDE_LANES;
        left++;
        panel += vectors * CPU_WIDE_LANES;
    }
#pragma GCC unroll 12
    for (int r = 0; r < count; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            _mm512_storeu_ps(row_of(p, first, r) + v * CPU_WIDE_LANES, sums[r][v]);
}

#define ROWS_OF(rows, vectors)                                                                     \
    case rows:                                                                                     \
        multiply_rows(p, first, rows, vectors);                                                    \
        break;
#define UP_TO_6(vectors)                                                                           \
    ROWS_OF(1, vectors)                                                                            \
    ROWS_OF(2, vectors)                                                                            \
    ROWS_OF(3, vectors)                                                                            \
    ROWS_OF(4, vectors)                                                                            \
    ROWS_OF(5, vectors)                                                                            \
    ROWS_OF(6, vectors)
#define UP_TO_12(vectors)                                                                          \
    UP_TO_6(vectors)                                                                               \
    ROWS_OF(7, vectors)                                                                            \
    ROWS_OF(8, vectors)                                                                            \
    ROWS_OF(9, vectors)                                                                            \
    ROWS_OF(10, vectors)                                                                           \
    ROWS_OF(11, vectors)                                                                           \
    ROWS_OF(12, vectors)

KERNEL static void multiply_1(const cpu_wide_product *p, size_t first, size_t rows) {
    switch (rows) { UP_TO_12(1) }
}

KERNEL static void multiply_2(const cpu_wide_product *p, size_t first, size_t rows) {
    switch (rows) { UP_TO_12(2) }
}

KERNEL static void multiply_4(const cpu_wide_product *p, size_t first, size_t rows) {
    switch (rows) { UP_TO_6(4) }
}

/* In passes of about as many rows. */
void cpu_multiply_wide(const cpu_wide_product *p) {
    size_t most = MOST_ROWS_OF(p->vectors), passes = (p->rows + most - 1) / most, first = 0;
    for (size_t pass = 0; pass < passes; pass++) {
        size_t end = p->rows * (pass + 1) / passes, rows = end - first;
        if (p->vectors == 4)
            multiply_4(p, first, rows);
        else if (p->vectors == 2)
            multiply_2(p, first, rows);
        else
            multiply_1(p, first, rows);
        first = end;
    }
}

/* Where one operand is NaN, max and min give the second. */
KERNEL void cpu_finish_wide(const cpu_wide_finish *finish, const float *sums, float *to,
                            size_t columns) {
    const __m512 low = _mm512_set1_ps(finish->low), high = _mm512_set1_ps(finish->high);
    for (size_t i = 0; i < columns; i += CPU_WIDE_LANES) {
        const size_t left = columns - i;
        const __mmask16 mask = (__mmask16)(left < CPU_WIDE_LANES ? (1u << left) - 1 : 0xffff);
        __m512 sum = _mm512_maskz_loadu_ps(mask, sums + i);
        if (finish->bias != NULL)
            sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, finish->bias + i));
        if (finish->adds) sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, to + i));
        _mm512_mask_storeu_ps(to + i, mask, _mm512_min_ps(high, _mm512_max_ps(low, sum)));
    }
}

#else

bool cpu_has_wide_products(void) {
    return false;
}

void cpu_multiply_wide(const cpu_wide_product *product) {
    (void)product; /* nobody calls it here */
}

void cpu_finish_wide(const cpu_wide_finish *finish, const float *sums, float *to, size_t columns) {
    (void)finish;
    (void)sums;
    (void)to;
    (void)columns;
}

#endif
