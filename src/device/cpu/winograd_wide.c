/* SPDX-License-Identifier: Apache-2.0 */
/* The points of the large form are those of winograd_points.h, of the small one 0, +-1 and
 * infinity. Pixels outside are masked, not branched around. */
#include "device/cpu/winograd_wide.h"

#include "device/cpu/winograd_points.h"

enum { EDGE = WINOGRAD_EDGE, OUTPUT = WINOGRAD_OUTPUT, TAPS = WINOGRAD_TAPS };
enum { LANES = CPU_PANEL };

void winograd_wide_filter(const winograd_form *form, float taps[][LANES], float *tile,
                          size_t stride) {
    float half[EDGE][TAPS][LANES] = {0};
    for (int row = 0; row < form->edge; row++)
        for (int tap = 0; tap < TAPS * TAPS; tap++)
            for (int lane = 0; lane < LANES; lane++)
                half[row][tap % TAPS][lane] += form->filter[row][tap / TAPS] * taps[tap][lane];
    for (int k = 0; k < form->edge * form->edge; k++)
        for (int lane = 0; lane < LANES; lane++) {
            float sum = 0;
            for (int tap = 0; tap < TAPS; tap++)
                sum += form->filter[k % form->edge][tap] * half[k / form->edge][tap][lane];
            tile[(size_t)k * stride + (size_t)lane] = sum;
        }
}

#if defined(__x86_64__)
#include <immintrin.h>

#define KERNEL __attribute__((target("avx512f")))
#define INLINE KERNEL static inline __attribute__((always_inline))

typedef __m512 lanes;

INLINE lanes times(float scale, lanes value) {
    return _mm512_mul_ps(_mm512_set1_ps(scale), value);
}

/* scale * value + to */
INLINE lanes add_times(lanes to, float scale, lanes value) {
    return _mm512_fmadd_ps(_mm512_set1_ps(scale), value, to);
}

/* One dimension. */

INLINE void line_input(lanes to[EDGE], const lanes d[EDGE], int edge) {
    if (edge == 4) {
        to[0] = _mm512_sub_ps(d[0], d[2]);
        to[1] = _mm512_add_ps(d[1], d[2]);
        to[2] = _mm512_sub_ps(d[2], d[1]);
        to[3] = _mm512_sub_ps(d[3], d[1]);
        return;
    }
    const lanes p_even = add_times(d[4], -Q2, d[2]), p_odd = add_times(d[3], -Q2, d[1]);
    const lanes q_even = add_times(d[4], -P2, d[2]), q_odd = add_times(d[3], -P2, d[1]);
    to[0] = add_times(add_times(d[4], -(P2 + Q2), d[2]), P2 * Q2, d[0]);
    to[1] = add_times(p_even, P, p_odd);
    to[2] = add_times(p_even, -P, p_odd);
    to[3] = add_times(q_even, Q, q_odd);
    to[4] = add_times(q_even, -Q, q_odd);
    to[5] = add_times(add_times(d[5], -(P2 + Q2), d[3]), P2 * Q2, d[1]);
}

INLINE void line_output(lanes to[OUTPUT], const lanes m[EDGE], int edge) {
    const lanes p_sum = _mm512_add_ps(m[1], m[2]), p_difference = _mm512_sub_ps(m[1], m[2]);
    if (edge == 4) {
        to[0] = _mm512_add_ps(m[0], p_sum);
        to[1] = _mm512_add_ps(p_difference, m[3]);
        return;
    }
    const lanes q_sum = _mm512_add_ps(m[3], m[4]), q_difference = _mm512_sub_ps(m[3], m[4]);
    to[0] = _mm512_add_ps(m[0], _mm512_add_ps(p_sum, q_sum));
    to[1] = add_times(times(P, p_difference), Q, q_difference);
    to[2] = add_times(times(P2, p_sum), Q2, q_sum);
    to[3] = add_times(add_times(m[5], P2 * P, p_difference), Q2 * Q, q_difference);
}

/* Tiles. */

/* All lanes where row and column exist, none elsewhere. */
INLINE __mmask16 mask_of(winograd_range range, int i) {
    return i >= range.first && i < range.end ? 0xffff : 0;
}

INLINE float *pixel_at(const winograd_window *window, int row, int column) {
    return (float *)(void *)window->origin + row * window->line + column * window->pixel;
}

INLINE void input(const winograd_window *from, float *tile, size_t stride, int edge) {
    lanes half[EDGE][EDGE];
    __mmask16 rows[EDGE];
#pragma GCC unroll 6
    for (int row = 0; row < edge; row++)
        rows[row] = mask_of(from->rows, row);
#pragma GCC unroll 6
    for (int column = 0; column < edge; column++) {
        const __mmask16 there = mask_of(from->columns, column);
        lanes pixels[EDGE], line[EDGE];
#pragma GCC unroll 6
        for (int row = 0; row < edge; row++)
            pixels[row] =
                _mm512_maskz_loadu_ps((__mmask16)(rows[row] & there), pixel_at(from, row, column));
        line_input(line, pixels, edge);
#pragma GCC unroll 6
        for (int row = 0; row < edge; row++)
            half[row][column] = line[row];
    }
#pragma GCC unroll 6
    for (int row = 0; row < edge; row++) {
        lanes line[EDGE];
        line_input(line, half[row], edge);
#pragma GCC unroll 6
        for (int column = 0; column < edge; column++)
            _mm512_storeu_ps(tile + (size_t)(row * edge + column) * stride, line[column]);
    }
}

/* NaN stays NaN: where one operand is, max and min give the second. */
INLINE void output(const float *tile, size_t stride, const winograd_epilogue *epilogue,
                   const winograd_window *to, int edge, int width) {
    lanes half[OUTPUT][EDGE];
    const lanes low = _mm512_set1_ps(epilogue->low), high = _mm512_set1_ps(epilogue->high);
    const lanes bias =
        epilogue->bias != NULL ? _mm512_loadu_ps(epilogue->bias) : _mm512_setzero_ps();
#pragma GCC unroll 6
    for (int column = 0; column < edge; column++) {
        lanes products[EDGE], line[OUTPUT];
#pragma GCC unroll 6
        for (int row = 0; row < edge; row++)
            products[row] = _mm512_loadu_ps(tile + (size_t)(row * edge + column) * stride);
        line_output(line, products, edge);
#pragma GCC unroll 4
        for (int row = 0; row < width; row++)
            half[row][column] = line[row];
    }
#pragma GCC unroll 4
    for (int row = 0; row < width; row++) {
        lanes line[OUTPUT];
        line_output(line, half[row], edge);
#pragma GCC unroll 4
        for (int column = 0; column < width; column++) {
            const __mmask16 mask =
                (__mmask16)(mask_of(to->rows, row) & mask_of(to->columns, column));
            float *pixel = pixel_at(to, row, column);
            lanes sum = _mm512_add_ps(line[column], bias);
            if (epilogue->adds) sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, pixel));
            sum = _mm512_min_ps(high, _mm512_max_ps(low, sum));
            _mm512_mask_storeu_ps(pixel, mask, sum);
        }
    }
}

KERNEL static void large_input(const winograd_window *from, float *tile, size_t stride) {
    input(from, tile, stride, EDGE);
}

KERNEL static void small_input(const winograd_window *from, float *tile, size_t stride) {
    input(from, tile, stride, 4);
}

KERNEL static void large_output(const float *tile, size_t stride, const winograd_epilogue *epilogue,
                                const winograd_window *to) {
    output(tile, stride, epilogue, to, EDGE, OUTPUT);
}

KERNEL static void small_output(const float *tile, size_t stride, const winograd_epilogue *epilogue,
                                const winograd_window *to) {
    output(tile, stride, epilogue, to, 4, 2);
}

#define TRANSFORMS(size) .transform_input = size##_input, .transform_output = size##_output
#else
#define TRANSFORMS(size) .transform_input = NULL /* nobody calls it here */
#endif

const winograd_form winograd_large = {.output = 4,
                                      .edge = 6,
                                      .filter = {{OVER_0, 0, 0},
                                                 {OVER_P, OVER_P *P, OVER_P *P2},
                                                 {OVER_P, -OVER_P *P, OVER_P *P2},
                                                 {OVER_Q, OVER_Q *Q, OVER_Q *Q2},
                                                 {OVER_Q, -OVER_Q *Q, OVER_Q *Q2},
                                                 {0, 0, 1}},
                                      TRANSFORMS(large)};
const winograd_form winograd_small = {
    .output = 2,
    .edge = 4,
    .filter = {{1, 0, 0}, {0.5f, 0.5f, 0.5f}, {0.5f, -0.5f, 0.5f}, {0, 0, 1}},
    TRANSFORMS(small)};
