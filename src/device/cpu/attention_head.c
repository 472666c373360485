/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of a head's operands are matrices of float32, padded with zeros to whole tiles. A tile has
 * TILE_QUERIES positions that read and TILE_KEYS that are read; its scores fit the first-level
 * cache. */
#include "device/cpu/attention_head.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/base.h"
#include "device/cpu/clones.h"
#include "device/cpu/functions.h"

#define INLINE static inline __attribute__((always_inline))

enum {
    LANES = 16, /* the rows of a matrix are whole vectors */
    STEP = 4,   /* rows, and products of one sum, in a round of a matrix product */
    TILE_QUERIES = 32,
    TILE_KEYS = 64
};

INLINE size_t whole(size_t count, size_t unit) {
    return (count + unit - 1) / unit * unit;
}

INLINE size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

typedef struct matrix {
    float *at;
    size_t row; /* floats from one row to the next */
} matrix;

INLINE float *row_of(matrix m, size_t index) {
    return m.at + index * m.row;
}

INLINE matrix rows_from(matrix m, size_t first) {
    return (matrix){row_of(m, first), m.row};
}

INLINE matrix columns_from(matrix m, size_t first) {
    return (matrix){m.at + first, m.row};
}

/* Copies. */

INLINE float element(const cpu_head_values *values, size_t position, size_t feature) {
    size_t at = position * values->stride + feature;
    return values->half ? yoke_bfloat16_widen(((const uint16_t *)values->at)[at])
                        : ((const float *)values->at)[at];
}

INLINE size_t padded_positions(const cpu_head *head) {
    return whole(head->positions, TILE_KEYS);
}

/* to [positions, size] = scale * values */
INLINE void copy(matrix to, const cpu_head *head, const cpu_head_values *values, float scale) {
    memset(to.at, 0, padded_positions(head) * to.row * sizeof(float));
    for (size_t i = 0; i < head->positions; i++)
#pragma omp simd
        for (size_t d = 0; d < head->size; d++)
            row_of(to, i)[d] = scale * element(values, i, d);
}

/* to [size, positions] = values transposed */
INLINE void copy_transposed(matrix to, const cpu_head *head, const cpu_head_values *values) {
    memset(to.at, 0, whole(head->size, LANES) * to.row * sizeof(float));
    for (size_t i = 0; i < head->positions; i++)
        for (size_t d = 0; d < head->size; d++)
            row_of(to, d)[i] = element(values, i, d);
}

INLINE void store_row(const cpu_head *head, const cpu_head_values *values, size_t position,
                      const float *from, float scale) {
    size_t at = position * values->stride;
    if (values->half) {
#pragma omp simd
        for (size_t d = 0; d < head->size; d++)
            ((uint16_t *)values->at)[at + d] = yoke_bfloat16_round(scale * from[d]);
    } else {
#pragma omp simd
        for (size_t d = 0; d < head->size; d++)
            ((float *)values->at)[at + d] = scale * from[d];
    }
}

INLINE void store(const cpu_head *head, const cpu_head_values *values, matrix from, float scale) {
    for (size_t i = 0; i < head->positions; i++)
        store_row(head, values, i, row_of(from, i), scale);
}

/* Products. */

/* The left operand of a product: element (row, k) is at row * down + k * across. */
typedef struct factors {
    const float *at;
    size_t down, across;
} factors;

INLINE factors plain(matrix m) {
    return (factors){m.at, m.row, 1};
}

INLINE factors transposed(matrix m) {
    return (factors){m.at, 1, m.row};
}

/* STEP rows of `to` += STEP factors of each * STEP rows of `right`. */
INLINE void add_round(matrix to, factors left, matrix right, size_t columns) {
    float f[STEP][STEP];
    for (size_t i = 0; i < STEP; i++)
        for (size_t k = 0; k < STEP; k++)
            f[i][k] = left.at[i * left.down + k * left.across];
    float *c0 = row_of(to, 0), *c1 = row_of(to, 1), *c2 = row_of(to, 2), *c3 = row_of(to, 3);
    const float *b0 = row_of(right, 0), *b1 = row_of(right, 1);
    const float *b2 = row_of(right, 2), *b3 = row_of(right, 3);
#pragma omp simd
    for (size_t j = 0; j < columns; j++) {
        c0[j] = c0[j] + f[0][0] * b0[j] + f[0][1] * b1[j] + f[0][2] * b2[j] + f[0][3] * b3[j];
        c1[j] = c1[j] + f[1][0] * b0[j] + f[1][1] * b1[j] + f[1][2] * b2[j] + f[1][3] * b3[j];
        c2[j] = c2[j] + f[2][0] * b0[j] + f[2][1] * b1[j] + f[2][2] * b2[j] + f[2][3] * b3[j];
        c3[j] = c3[j] + f[3][0] * b0[j] + f[3][1] * b1[j] + f[3][2] * b2[j] + f[3][3] * b3[j];
    }
}

/* A product's size: whole rounds of rows and depth, whole vectors of columns. */
typedef struct extent {
    size_t rows, columns, depth;
} extent;

/* to [rows, columns] += left [rows, depth] * right [depth, columns] */
INLINE void add_product(matrix to, factors left, matrix right, extent size) {
    for (size_t i = 0; i < size.rows; i += STEP)
        for (size_t k = 0; k < size.depth; k += STEP) {
            factors part = {left.at + i * left.down + k * left.across, left.down, left.across};
            add_round(rows_from(to, i), part, rows_from(right, k), size.columns);
        }
}

/* Scores. */

/* The part of the scores between positions [query, +TILE_QUERIES) and [key, +TILE_KEYS). */
typedef struct tile {
    size_t query, key;
    size_t queries, keys, columns; /* queries, keys: whole rounds; columns: keys in whole vectors */
} tile;

/* Past the last key that the queries of a tile read. */
INLINE size_t keys_end(const cpu_head *head, size_t query) {
    return head->causal ? smaller(query + TILE_QUERIES, head->positions) : head->positions;
}

INLINE tile tile_at(const cpu_head *head, size_t query, size_t key) {
    size_t queries = smaller(head->positions - query, TILE_QUERIES);
    size_t keys = smaller(keys_end(head, query) - key, TILE_KEYS);
    return (tile){query, key, whole(queries, STEP), whole(keys, STEP), whole(keys, LANES)};
}

/* How many keys of the tile position `query` reads. */
INLINE size_t readable(const cpu_head *head, const tile *t, size_t query) {
    size_t end = head->causal ? smaller(query + 1, head->positions) : head->positions;
    return end <= t->key ? 0 : smaller(end - t->key, TILE_KEYS);
}

INLINE size_t first_query(const cpu_head *head, size_t key) {
    return head->causal ? key / TILE_QUERIES * TILE_QUERIES : 0;
}

/* scores = queries * keys; what a query may not read is -infinity. */
INLINE void score(const cpu_head *head, const tile *t, matrix scores, matrix queries, matrix keys) {
    memset(scores.at, 0, t->queries * scores.row * sizeof(float));
    extent size = {t->queries, t->columns, whole(head->size, STEP)};
    add_product(scores, plain(rows_from(queries, t->query)), columns_from(keys, t->key), size);
    for (size_t i = 0; i < t->queries; i++)
        for (size_t j = readable(head, t, t->query + i); j < t->columns; j++)
            row_of(scores, i)[j] = -INFINITY;
}

/* Reductions have LANES partial results, so that their order does not depend on the vectors. */

INLINE float largest_of(const float *values, size_t count) {
    float part[LANES], largest = -INFINITY;
    for (size_t l = 0; l < LANES; l++)
        part[l] = -INFINITY;
    for (size_t j = 0; j < count; j += LANES)
#pragma omp simd
        for (size_t l = 0; l < LANES; l++)
            part[l] = values[j + l] > part[l] ? values[j + l] : part[l];
    for (size_t l = 0; l < LANES; l++)
        largest = part[l] > largest ? part[l] : largest;
    return largest;
}

INLINE float sum_of(const float part[LANES]) {
    float sum = 0;
    for (size_t l = 0; l < LANES; l++)
        sum += part[l];
    return sum;
}

/* scores[j] = e^(scores[j] - subtracted); returns their sum. */
INLINE float exponentials(float *scores, size_t count, float subtracted) {
    float part[LANES] = {0};
    for (size_t j = 0; j < count; j += LANES)
#pragma omp simd
        for (size_t l = 0; l < LANES; l++) {
            scores[j + l] = cpu_exp_below_zero(scores[j + l] - subtracted);
            part[l] += scores[j + l];
        }
    return sum_of(part);
}

INLINE float dot(const float *a, const float *b, size_t count) {
    float part[LANES] = {0};
    for (size_t j = 0; j < count; j += LANES)
#pragma omp simd
        for (size_t l = 0; l < LANES; l++)
            part[l] += a[j + l] * b[j + l];
    return sum_of(part);
}

INLINE float root_scale(const cpu_head *head) {
    return 1 / sqrtf((float)head->size);
}

/* Scratch: matrices one behind the other. Without a base it only counts. */

typedef struct room {
    float *base;
    size_t floats;
} room;

INLINE matrix take(room *scratch, size_t rows, size_t columns) {
    matrix m = {scratch->base == NULL ? NULL : scratch->base + scratch->floats, columns};
    scratch->floats += rows * columns;
    return m;
}

typedef struct forward_room {
    matrix queries, keys, values; /* keys: transposed */
    matrix scores, output;        /* of one tile, of its queries */
    float *largest, *sum;         /* [TILE_QUERIES]: of the scores read so far */
} forward_room;

INLINE void lay_out_forward(forward_room *to, size_t positions, size_t size, room *scratch) {
    size_t width = whole(size, LANES), length = whole(positions, TILE_KEYS);
    to->queries = take(scratch, length, width);
    to->keys = take(scratch, width, length);
    to->values = take(scratch, length, width);
    to->scores = take(scratch, TILE_QUERIES, TILE_KEYS);
    to->output = take(scratch, TILE_QUERIES, width);
    to->largest = take(scratch, 1, TILE_QUERIES).at;
    to->sum = take(scratch, 1, TILE_QUERIES).at;
}

typedef struct backward_room {
    matrix queries, keys, keys_transposed, values, output_gradient; /* values: transposed */
    matrix query_gradient, key_gradient, value_gradient;
    matrix scores, gradient;  /* of one tile */
    float *log_sum, *product; /* [positions]; product: of output and its gradient */
} backward_room;

INLINE void lay_out_backward(backward_room *to, size_t positions, size_t size, room *scratch) {
    size_t width = whole(size, LANES), length = whole(positions, TILE_KEYS);
    to->queries = take(scratch, length, width);
    to->keys = take(scratch, length, width);
    to->keys_transposed = take(scratch, width, length);
    to->values = take(scratch, width, length);
    to->output_gradient = take(scratch, length, width);
    to->query_gradient = take(scratch, length, width);
    to->key_gradient = take(scratch, length, width);
    to->value_gradient = take(scratch, length, width);
    to->scores = take(scratch, TILE_QUERIES, TILE_KEYS);
    to->gradient = take(scratch, TILE_QUERIES, TILE_KEYS);
    to->log_sum = take(scratch, 1, length).at;
    to->product = take(scratch, 1, length).at;
}

size_t cpu_head_scratch_floats(size_t positions, size_t size, bool backward) {
    room counted = {0};
    forward_room forward;
    backward_room both;
    if (backward)
        lay_out_backward(&both, positions, size, &counted);
    else
        lay_out_forward(&forward, positions, size, &counted);
    return counted.floats;
}

/* Forward. */

/* Adds the tile's keys to the sums of its queries. A larger score than before rescales them. */
INLINE void read_tile(const cpu_head *head, const tile *t, forward_room *at) {
    size_t width = whole(head->size, LANES);
    score(head, t, at->scores, at->queries, at->keys);
    for (size_t i = 0; i < t->queries; i++) {
        float *scores = row_of(at->scores, i), *output = row_of(at->output, i);
        float before = at->largest[i], now = largest_of(scores, t->columns);
        at->largest[i] = now > before ? now : before;
        float rescale = cpu_exp_below_zero(before - at->largest[i]);
        at->sum[i] = at->sum[i] * rescale + exponentials(scores, t->columns, at->largest[i]);
#pragma omp simd
        for (size_t d = 0; d < width; d++)
            output[d] *= rescale;
    }
    extent size = {t->queries, width, t->keys};
    add_product(at->output, plain(at->scores), rows_from(at->values, t->key), size);
}

CPU_CLONES void cpu_head_forward(const cpu_head *head) {
    forward_room at;
    lay_out_forward(&at, head->positions, head->size, &(room){head->scratch, 0});
    copy(at.queries, head, &head->query, root_scale(head));
    copy_transposed(at.keys, head, &head->key);
    copy(at.values, head, &head->value, 1);
    for (size_t query = 0; query < head->positions; query += TILE_QUERIES) {
        memset(at.output.at, 0, TILE_QUERIES * at.output.row * sizeof(float));
        for (size_t i = 0; i < TILE_QUERIES; i++) {
            at.largest[i] = -INFINITY;
            at.sum[i] = 0;
        }
        for (size_t key = 0; key < keys_end(head, query); key += TILE_KEYS) {
            tile t = tile_at(head, query, key);
            read_tile(head, &t, &at);
        }
        for (size_t i = 0; i < smaller(head->positions - query, TILE_QUERIES); i++) {
            store_row(head, &head->output, query + i, row_of(at.output, i), 1 / at.sum[i]);
            if (head->log_sum != NULL) head->log_sum[query + i] = at.largest[i] + logf(at.sum[i]);
        }
    }
}

/* Backward: with P = e^(scores - log_sum) and G the gradient of the output,
 * dV = P^T G; dS = P * (G V^T - sum of output * G); dQ = scale dS K; dK = dS^T (scale Q). */

INLINE void return_tile(const cpu_head *head, const tile *t, backward_room *at) {
    size_t width = whole(head->size, LANES);
    score(head, t, at->scores, at->queries, at->keys_transposed);
    memset(at->gradient.at, 0, t->queries * at->gradient.row * sizeof(float));
    add_product(at->gradient, plain(rows_from(at->output_gradient, t->query)),
                columns_from(at->values, t->key),
                (extent){t->queries, t->columns, whole(head->size, STEP)});
    for (size_t i = 0; i < t->queries; i++) {
        float *scores = row_of(at->scores, i), *gradient = row_of(at->gradient, i);
        float log_sum = at->log_sum[t->query + i], product = at->product[t->query + i];
#pragma omp simd
        for (size_t j = 0; j < t->columns; j++) {
            scores[j] = cpu_exp_below_zero(scores[j] - log_sum);
            gradient[j] = scores[j] * (gradient[j] - product);
        }
    }
    const extent by_keys = {t->keys, width, t->queries}, by_queries = {t->queries, width, t->keys};
    add_product(rows_from(at->value_gradient, t->key), transposed(at->scores),
                rows_from(at->output_gradient, t->query), by_keys);
    add_product(rows_from(at->key_gradient, t->key), transposed(at->gradient),
                rows_from(at->queries, t->query), by_keys);
    add_product(rows_from(at->query_gradient, t->query), plain(at->gradient),
                rows_from(at->keys, t->key), by_queries);
}

INLINE void clear(const cpu_head *head, matrix m) {
    memset(m.at, 0, padded_positions(head) * m.row * sizeof(float));
}

CPU_CLONES void cpu_head_backward(const cpu_head *head) {
    backward_room at;
    lay_out_backward(&at, head->positions, head->size, &(room){head->scratch, 0});
    copy(at.query_gradient, head, &head->output, 1); /* only until the products below */
    copy(at.output_gradient, head, &head->output_gradient, 1);
    memset(at.log_sum, 0, padded_positions(head) * sizeof(float));
    memcpy(at.log_sum, head->log_sum, head->positions * sizeof(float));
    for (size_t i = 0; i < padded_positions(head); i++)
        at.product[i] = dot(row_of(at.query_gradient, i), row_of(at.output_gradient, i),
                            at.output_gradient.row);
    copy(at.queries, head, &head->query, root_scale(head));
    copy(at.keys, head, &head->key, 1);
    copy_transposed(at.keys_transposed, head, &head->key);
    copy_transposed(at.values, head, &head->value);
    clear(head, at.query_gradient);
    clear(head, at.key_gradient);
    clear(head, at.value_gradient);
    for (size_t key = 0; key < head->positions; key += TILE_KEYS)
        for (size_t query = first_query(head, key); query < head->positions;
             query += TILE_QUERIES) {
            tile t = tile_at(head, query, key);
            return_tile(head, &t, &at);
        }
    store(head, &head->query_gradient, at.query_gradient, root_scale(head));
    store(head, &head->key_gradient, at.key_gradient, 1);
    store(head, &head->value_gradient, at.value_gradient, 1);
}
