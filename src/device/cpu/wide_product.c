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
    size_t pass = first / rows;
    if (p->next == NULL || pass >= (size_t)p->vectors) return (ahead_of){p->panel, 0};
    if (p->rows <= rows) return (ahead_of){p->next, CPU_WIDE_LANES};
    return (ahead_of){p->next + pass * CPU_WIDE_LANES, 0};
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
            sums[r][v] = _mm512_setzero_ps();
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
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            _mm_prefetch((const char *)(fetched + v * ahead.step), _MM_HINT_T1);
        fetched += vectors * CPU_WIDE_LANES;
        left++;
        panel += vectors * CPU_WIDE_LANES;
    }
#pragma GCC unroll 12
    for (int r = 0; r < count; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            _mm512_storeu_ps(p->to + (first + (size_t)r) * p->to_row + v * CPU_WIDE_LANES,
                             sums[r][v]);
}

#define ROWS_OF(rows, vectors)                                                                     \
    case rows:                                                                                     \
        multiply_rows(p, first, rows, vectors);                                                    \
        break;

KERNEL static void multiply_1(const cpu_wide_product *p) {
    for (size_t first = 0; first < p->rows; first += 12) {
        switch (p->rows - first) {
            ROWS_OF(1, 1)
            ROWS_OF(2, 1)
            ROWS_OF(3, 1)
            ROWS_OF(4, 1)
            ROWS_OF(5, 1)
            ROWS_OF(6, 1)
            ROWS_OF(7, 1)
            ROWS_OF(8, 1)
            ROWS_OF(9, 1)
            ROWS_OF(10, 1)
            ROWS_OF(11, 1)
        default:
            multiply_rows(p, first, 12, 1);
        }
    }
}

KERNEL static void multiply_2(const cpu_wide_product *p) {
    for (size_t first = 0; first < p->rows; first += 12) {
        switch (p->rows - first) {
            ROWS_OF(1, 2)
            ROWS_OF(2, 2)
            ROWS_OF(3, 2)
            ROWS_OF(4, 2)
            ROWS_OF(5, 2)
            ROWS_OF(6, 2)
            ROWS_OF(7, 2)
            ROWS_OF(8, 2)
            ROWS_OF(9, 2)
            ROWS_OF(10, 2)
            ROWS_OF(11, 2)
        default:
            multiply_rows(p, first, 12, 2);
        }
    }
}

KERNEL static void multiply_4(const cpu_wide_product *p) {
    for (size_t first = 0; first < p->rows; first += 6) {
        switch (p->rows - first) {
            ROWS_OF(1, 4)
            ROWS_OF(2, 4)
            ROWS_OF(3, 4)
            ROWS_OF(4, 4)
            ROWS_OF(5, 4)
        default:
            multiply_rows(p, first, 6, 4);
        }
    }
}

void cpu_multiply_wide(const cpu_wide_product *p) {
    if (p->vectors == 4)
        multiply_4(p);
    else if (p->vectors == 2)
        multiply_2(p);
    else
        multiply_1(p);
}

#else

bool cpu_has_wide_products(void) {
    return false;
}

void cpu_multiply_wide(const cpu_wide_product *product) {
    (void)product; /* nobody calls it here */
}

#endif
