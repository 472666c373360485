/* SPDX-License-Identifier: Apache-2.0 */
/* Each transform is one-dimensional: first down the columns, then along the rows. */
#include "device/cpu/winograd_tile.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "device/cpu/clones.h"
#include "device/cpu/winograd_points.h"

#ifndef WINOGRAD_LANES
#define WINOGRAD_LANES 8
#define TRANSFORMS winograd_narrow
#endif

#define INLINE static inline __attribute__((always_inline))

enum { EDGE = WINOGRAD_EDGE, OUTPUT = WINOGRAD_OUTPUT, TAPS = WINOGRAD_TAPS };

typedef float lanes __attribute__((vector_size(WINOGRAD_LANES * sizeof(float))));

/* The compiler turns a memcpy of constant size into one move for any alignment. */
INLINE void load(lanes *to, const float *from) {
    memcpy(to, from, sizeof *to);
}

INLINE void store(float *to, const lanes *from) {
    memcpy(to, from, sizeof *from);
}

typedef uint32_t words __attribute__((vector_size(WINOGRAD_LANES * sizeof(uint32_t))));
typedef uint16_t halves __attribute__((vector_size(WINOGRAD_LANES * sizeof(uint16_t))));

/* The channels of one pixel. Storing bfloat16 rounds to nearest, ties to even; NaN stays NaN. */
INLINE void load_pixel(lanes *to, const char *from, bool half) {
    if (!half) {
        memcpy(to, from, sizeof *to);
        return;
    }
    halves narrow;
    memcpy(&narrow, from, sizeof narrow);
    words wide = __builtin_convertvector(narrow, words) << 16;
    memcpy(to, &wide, sizeof *to);
}

INLINE void store_pixel(char *to, const lanes *from, bool half) {
    if (!half) {
        memcpy(to, from, sizeof *from);
        return;
    }
    words wide;
    memcpy(&wide, from, sizeof wide);
    words is_nan = (words)((wide & 0x7fffffffu) > 0x7f800000u);
    words rounded = (wide + 0x7fffu + (wide >> 16 & 1u)) >> 16;
    words quiet = wide >> 16 | 0x40u;
    halves narrow = __builtin_convertvector((is_nan & quiet) | (~is_nan & rounded), halves);
    memcpy(to, &narrow, sizeof narrow);
}

INLINE char *pixel_at(const winograd_window *window, int row, int column, bool half) {
    ptrdiff_t element = row * window->line + column * window->pixel;
    return window->origin + element * (ptrdiff_t)(half ? sizeof(uint16_t) : sizeof(float));
}

/* One dimension. */

/* B^T d: row p holds the coefficients of the product of (x - q) over the other finite points q; at
 * infinity over all finite points. */
INLINE void line_input(lanes to[EDGE], const lanes d[EDGE]) {
    lanes p_even = d[4] - Q2 * d[2], p_odd = P * d[3] - P * Q2 * d[1];
    lanes q_even = d[4] - P2 * d[2], q_odd = Q * d[3] - Q * P2 * d[1];
    to[0] = P2 * Q2 * d[0] - (P2 + Q2) * d[2] + d[4];
    to[1] = p_even + p_odd;
    to[2] = p_even - p_odd;
    to[3] = q_even + q_odd;
    to[4] = q_even - q_odd;
    to[5] = P2 * Q2 * d[1] - (P2 + Q2) * d[3] + d[5];
}

/* A^T m, where A[point][i] = point^i. */
INLINE void line_output(lanes to[OUTPUT], const lanes m[EDGE]) {
    lanes p_sum = m[1] + m[2], p_difference = m[1] - m[2];
    lanes q_sum = m[3] + m[4], q_difference = m[3] - m[4];
    to[0] = m[0] + p_sum + q_sum;
    to[1] = P * p_difference + Q * q_difference;
    to[2] = P2 * p_sum + Q2 * q_sum;
    to[3] = P2 * P * p_difference + Q2 * Q * q_difference + m[5];
}

/* A y. */
INLINE void line_output_gradient(lanes to[EDGE], const lanes y[OUTPUT]) {
    lanes p_even = y[0] + P2 * y[2], p_odd = P * y[1] + P2 * P * y[3];
    lanes q_even = y[0] + Q2 * y[2], q_odd = Q * y[1] + Q2 * Q * y[3];
    to[0] = y[0];
    to[1] = p_even + p_odd;
    to[2] = p_even - p_odd;
    to[3] = q_even + q_odd;
    to[4] = q_even - q_odd;
    to[5] = y[3];
}

/* G w, where G[point][i] = point^i over that product; at infinity the last tap alone. */
INLINE void line_filter(lanes to[EDGE], const lanes w[TAPS]) {
    lanes p_even = OVER_P * w[0] + OVER_P * P2 * w[2], p_odd = OVER_P * P * w[1];
    lanes q_even = OVER_Q * w[0] + OVER_Q * Q2 * w[2], q_odd = OVER_Q * Q * w[1];
    to[0] = OVER_0 * w[0];
    to[1] = p_even + p_odd;
    to[2] = p_even - p_odd;
    to[3] = q_even + q_odd;
    to[4] = q_even - q_odd;
    to[5] = w[2];
}

/* G^T u. */
INLINE void line_filter_gradient(lanes to[TAPS], const lanes u[EDGE]) {
    lanes p_sum = OVER_P * (u[1] + u[2]), p_difference = OVER_P * (u[1] - u[2]);
    lanes q_sum = OVER_Q * (u[3] + u[4]), q_difference = OVER_Q * (u[3] - u[4]);
    to[0] = OVER_0 * u[0] + p_sum + q_sum;
    to[1] = P * p_difference + Q * q_difference;
    to[2] = P2 * p_sum + Q2 * q_sum + u[5];
}

/* Tiles. */

INLINE bool has(winograd_range range, int i) {
    return i >= range.first && i < range.end;
}

/* Column `column` of the first `rows` rows; pixels outside are zero. */
INLINE void load_column(lanes *to, const winograd_window *from, int column, int rows, bool half) {
    static const char zeros[WINOGRAD_LANES * sizeof(float)];
    bool there = has(from->columns, column);
    for (int row = 0; row < rows; row++)
        load_pixel(&to[row],
                   there && has(from->rows, row) ? pixel_at(from, row, column, half) : zeros, half);
}

INLINE void store_tile_row(float *tile, size_t stride, int row, const lanes *values) {
    for (int column = 0; column < EDGE; column++)
        store(tile + (size_t)(row * EDGE + column) * stride, &values[column]);
}

/* A column of a transformed tile. */
INLINE void load_tile_column(lanes *to, const float *tile, size_t stride, int column) {
    for (int row = 0; row < EDGE; row++)
        load(&to[row], tile + (size_t)(row * EDGE + column) * stride);
}

INLINE void input(const winograd_window *from, float *tile, size_t stride, bool half_values) {
    lanes half[EDGE][EDGE];
    for (int column = 0; column < EDGE; column++) {
        lanes pixels[EDGE], line[EDGE];
        load_column(pixels, from, column, EDGE, half_values);
        line_input(line, pixels);
        for (int row = 0; row < EDGE; row++)
            half[row][column] = line[row];
    }
    for (int row = 0; row < EDGE; row++) {
        lanes line[EDGE];
        line_input(line, half[row]);
        store_tile_row(tile, stride, row, line);
    }
}

CPU_CLONES static void input_pass(const winograd_window *from, float *tile, size_t stride) {
    if (from->half) {
        input(from, tile, stride, true);
    } else {
        input(from, tile, stride, false);
    }
}

INLINE void output_gradient(const winograd_window *from, float *tile, size_t stride,
                            bool half_values) {
    lanes half[EDGE][OUTPUT];
    for (int column = 0; column < OUTPUT; column++) {
        lanes pixels[OUTPUT], line[EDGE];
        load_column(pixels, from, column, OUTPUT, half_values);
        line_output_gradient(line, pixels);
        for (int row = 0; row < EDGE; row++)
            half[row][column] = line[row];
    }
    for (int row = 0; row < EDGE; row++) {
        lanes line[EDGE];
        line_output_gradient(line, half[row]);
        store_tile_row(tile, stride, row, line);
    }
}

CPU_CLONES static void output_gradient_pass(const winograd_window *from, float *tile,
                                            size_t stride) {
    if (from->half) {
        output_gradient(from, tile, stride, true);
    } else {
        output_gradient(from, tile, stride, false);
    }
}

/* NaN is neither less nor more. */
INLINE void bound(lanes *value, float low, float high) {
    words bits, least, most;
    const lanes lows = (lanes){0} + low, highs = (lanes){0} + high;
    const words less = (words)(*value < lows), more = (words)(*value > highs);
    memcpy(&bits, value, sizeof bits);
    memcpy(&least, &lows, sizeof least);
    memcpy(&most, &highs, sizeof most);
    bits = (less & least) | (more & most) | (~(less | more) & bits);
    memcpy(value, &bits, sizeof bits);
}

INLINE void output(const float *tile, size_t stride, const winograd_epilogue *epilogue,
                   const winograd_window *to, bool half_values) {
    lanes half[OUTPUT][EDGE], bias = {0};
    bool bounded = epilogue->low > -INFINITY || epilogue->high < INFINITY;
    if (epilogue->bias != NULL) load(&bias, epilogue->bias);
    for (int column = 0; column < EDGE; column++) {
        lanes products[EDGE], line[OUTPUT];
        load_tile_column(products, tile, stride, column);
        line_output(line, products);
        for (int row = 0; row < OUTPUT; row++)
            half[row][column] = line[row];
    }
    for (int row = 0; row < OUTPUT; row++) {
        lanes line[OUTPUT];
        line_output(line, half[row]);
        if (!has(to->rows, row)) continue;
        for (int column = 0; column < OUTPUT; column++) {
            if (!has(to->columns, column)) continue;
            char *pixel = pixel_at(to, row, column, half_values);
            lanes sum = line[column] + bias, there;
            if (epilogue->adds) {
                load_pixel(&there, pixel, half_values);
                sum += there;
            }
            if (bounded) bound(&sum, epilogue->low, epilogue->high);
            store_pixel(pixel, &sum, half_values);
        }
    }
}

CPU_CLONES static void output_pass(const float *tile, size_t stride,
                                   const winograd_epilogue *epilogue, const winograd_window *to) {
    if (to->half) {
        output(tile, stride, epilogue, to, true);
    } else {
        output(tile, stride, epilogue, to, false);
    }
}

CPU_CLONES static void add_pixels(const winograd_window *from, float *sums) {
    lanes sum;
    load(&sum, sums);
    for (int row = from->rows.first; row < from->rows.end; row++) {
        for (int column = from->columns.first; column < from->columns.end; column++) {
            lanes pixel;
            load_pixel(&pixel, pixel_at(from, row, column, from->half), from->half);
            sum += pixel;
        }
    }
    store(sums, &sum);
}

/* Filters. */

INLINE bool together(const ptrdiff_t *offsets) {
    return offsets[WINOGRAD_LANES - 1] - offsets[0] == WINOGRAD_LANES - 1;
}

INLINE void load_tap(lanes *to, const float *tap, const ptrdiff_t *offsets, bool side_by_side) {
    if (side_by_side) {
        load(to, tap + offsets[0]);
        return;
    }
    float gathered[WINOGRAD_LANES];
    for (int lane = 0; lane < WINOGRAD_LANES; lane++)
        gathered[lane] = tap[offsets[lane]];
    load(to, gathered);
}

INLINE void store_tap(float *tap, const ptrdiff_t *offsets, const lanes *from, bool side_by_side) {
    if (side_by_side) {
        store(tap + offsets[0], from);
        return;
    }
    for (int lane = 0; lane < WINOGRAD_LANES; lane++)
        tap[offsets[lane]] = (*from)[lane];
}

CPU_CLONES static void filter_pass(const winograd_filter *from, float *tile, size_t stride) {
    bool side_by_side = together(from->lanes);
    lanes half[EDGE][TAPS];
    for (int column = 0; column < TAPS; column++) {
        lanes taps[TAPS], line[EDGE];
        for (int row = 0; row < TAPS; row++)
            load_tap(&taps[row], from->origin + row * from->line + column * from->pixel,
                     from->lanes, side_by_side);
        line_filter(line, taps);
        for (int row = 0; row < EDGE; row++)
            half[row][column] = line[row];
    }
    for (int row = 0; row < EDGE; row++) {
        lanes line[EDGE];
        line_filter(line, half[row]);
        store_tile_row(tile, stride, row, line);
    }
}

CPU_CLONES static void filter_gradient_pass(const float *tile, size_t stride,
                                            const winograd_filter *to) {
    bool side_by_side = together(to->lanes);
    lanes half[TAPS][EDGE];
    for (int column = 0; column < EDGE; column++) {
        lanes products[EDGE], line[TAPS];
        load_tile_column(products, tile, stride, column);
        line_filter_gradient(line, products);
        for (int row = 0; row < TAPS; row++)
            half[row][column] = line[row];
    }
    for (int row = 0; row < TAPS; row++) {
        lanes line[TAPS];
        line_filter_gradient(line, half[row]);
        for (int column = 0; column < TAPS; column++)
            store_tap(to->origin + row * to->line + column * to->pixel, to->lanes, &line[column],
                      side_by_side);
    }
}

const winograd_transforms TRANSFORMS = {.lanes = WINOGRAD_LANES,
                                        .input = input_pass,
                                        .output_gradient = output_gradient_pass,
                                        .output = output_pass,
                                        .add_pixels = add_pixels,
                                        .filter = filter_pass,
                                        .filter_gradient = filter_gradient_pass};
