/* SPDX-License-Identifier: Apache-2.0 */
/* A block has BLOCK_QUERIES positions that read, fewer where they read many: its scores fit the
 * second-level cache. bfloat16 values are copied to matrices of float32 and back. */
#include "device/cpu/attention_head.h"

#include <math.h>
#include <stdint.h>

#include "base/base.h"
#include "device/cpu/clones.h"
#include "device/cpu/functions.h"
#include "device/cpu/sgemm.h"

#define INLINE static inline __attribute__((always_inline))

enum {
    LANES = 16, /* partial results of a reduction: its order does not depend on the vectors */
    BLOCK_QUERIES = 64,
    BLOCK_CAUSAL = 32, /* fewer pairs that are computed in vain */
    LEAST_QUERIES = 16,
    BLOCK_SCORES = 32 * 1024
};

INLINE size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

/* Rows of float32. */
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

/* Blocks. */

/* Queries [first, first + queries) and the keys that any of them reads: the first `keys`. */
typedef struct block {
    size_t first, queries, keys;
} block;

/* Blocks of a head have equally many queries, as far as possible. */
static size_t block_count(size_t positions, bool causal) {
    size_t most = causal ? BLOCK_CAUSAL : BLOCK_QUERIES;
    most = smaller(most, BLOCK_SCORES / positions);
    if (most < LEAST_QUERIES) most = LEAST_QUERIES;
    /* A few queries more do not make another block. */
    return (positions + most + most / 4 - 1) / (most + most / 4);
}

static block block_at(const cpu_head *head, size_t index, size_t count) {
    size_t first = head->positions * index / count, end = head->positions * (index + 1) / count;
    return (block){first, end - first, head->causal ? end : head->positions};
}

static size_t largest_block(size_t positions, bool causal) {
    size_t count = block_count(positions, causal);
    return (positions + count - 1) / count;
}

/* How many keys query `index` of the block reads. */
INLINE size_t readable(const cpu_head *head, const block *b, size_t index) {
    return head->causal ? b->first + index + 1 : b->keys;
}

/* Scratch: matrices one behind the other. Without a base it only counts. */

typedef struct room {
    float *base;
    size_t floats;
} room;

/* A row is whole vectors, and not a power of two of bytes long: rows would share lines of the
 * cache. */
static matrix take(room *scratch, size_t rows, size_t columns) {
    size_t row = (columns + LANES - 1) / LANES * LANES + LANES;
    matrix m = {scratch->base == NULL ? NULL : scratch->base + scratch->floats, row};
    scratch->floats += rows * row;
    return m;
}

typedef struct head_room {
    matrix scores, gradient; /* of a block; gradient: of the scores */
    float *sum; /* forward: [queries], of a block's exponentials; backward: [positions] */
    matrix query, key, value, output; /* copies of bfloat16 values */
    matrix output_gradient, query_gradient, key_gradient, value_gradient;
} head_room;

static void lay_out(head_room *to, const cpu_head *head, bool backward, room *scratch) {
    size_t queries = largest_block(head->positions, head->causal);
    bool half = head->query.half || head->output.half;
    to->scores = take(scratch, queries, head->positions);
    to->sum = take(scratch, 1, head->positions).at;
    if (backward) to->gradient = take(scratch, queries, head->positions);
    matrix *const copies[] = {&to->query,           &to->key,
                              &to->value,           &to->output,
                              &to->output_gradient, &to->query_gradient,
                              &to->key_gradient,    &to->value_gradient};
    size_t count = !half ? 0 : backward ? 8 : 4;
    for (size_t i = 0; i < count; i++)
        *copies[i] = take(scratch, head->positions, head->size);
}

size_t cpu_head_scratch_floats(const cpu_head *head, bool backward) {
    room counted = {0};
    head_room unused;
    lay_out(&unused, head, backward, &counted);
    return counted.floats;
}

/* Values: where they lie, or a copy as float32. */

CPU_CLONES static void widen(const cpu_head *head, const cpu_head_values *values, matrix to) {
    for (size_t i = 0; i < head->positions; i++)
#pragma omp simd
        for (size_t d = 0; d < head->size; d++)
            row_of(to, i)[d] =
                yoke_bfloat16_widen(((const uint16_t *)values->at)[i * values->stride + d]);
}

CPU_CLONES static void narrow(const cpu_head *head, matrix from, const cpu_head_values *values) {
    for (size_t i = 0; i < head->positions; i++)
#pragma omp simd
        for (size_t d = 0; d < head->size; d++)
            ((uint16_t *)values->at)[i * values->stride + d] =
                yoke_bfloat16_round(row_of(from, i)[d]);
}

/* The matrix to compute in. */
static matrix place_of(const cpu_head_values *values, matrix copy) {
    return values->half ? copy : (matrix){values->at, values->stride};
}

static matrix read_values(const cpu_head *head, const cpu_head_values *values, matrix copy) {
    if (values->half) widen(head, values, copy);
    return place_of(values, copy);
}

static void write_values(const cpu_head *head, matrix from, const cpu_head_values *values) {
    if (values->half) narrow(head, from, values);
}

/* Products. */

/* to = a b; fields of cpu_sgemm say how. Returns what went wrong from the function around. */
#define MULTIPLY(to_matrix, a_matrix, b_matrix, ...)                                               \
    do {                                                                                           \
        matrix to_ = to_matrix, a_ = a_matrix, b_ = b_matrix;                                      \
        dnnl_status_t status_ = cpu_sgemm_run(&(cpu_sgemm){.a = a_.at,                             \
                                                           .a_row = a_.row,                        \
                                                           .b = b_.at,                             \
                                                           .b_row = b_.row,                        \
                                                           .to = to_.at,                           \
                                                           .to_row = to_.row,                      \
                                                           __VA_ARGS__});                          \
        if (status_ != dnnl_success) return status_;                                               \
    } while (0)

/* Reductions. */

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

CPU_CLONES static float dot(const float *a, const float *b, size_t count) {
    float part[LANES] = {0}, rest = 0;
    size_t whole = count - count % LANES;
    for (size_t j = 0; j < whole; j += LANES)
#pragma omp simd
        for (size_t l = 0; l < LANES; l++)
            part[l] += a[j + l] * b[j + l];
    for (size_t j = whole; j < count; j++)
        rest += a[j] * b[j];
    return sum_of(part) + rest;
}

static float root_scale(const cpu_head *head) {
    return 1 / sqrtf((float)head->size);
}

/* What a query may not read, and the rest of its row's last vector, is -infinity; returns the end
 * of that vector. */
INLINE size_t hide(float *scores, size_t readable_keys, size_t keys) {
    size_t end = (keys + LANES - 1) / LANES * LANES;
    for (size_t j = readable_keys; j < end; j++)
        scores[j] = -INFINITY;
    return end;
}

/* Forward. */

/* The scores become weights that lack their division by `sum`. */
CPU_CLONES static void weigh(const cpu_head *head, const block *b, matrix scores, float *sum) {
    for (size_t i = 0; i < b->queries; i++) {
        float *row = row_of(scores, i);
        size_t end = hide(row, readable(head, b, i), b->keys);
        float largest = largest_of(row, end);
        sum[i] = exponentials(row, end, largest);
        if (head->log_sum != NULL) head->log_sum[b->first + i] = largest + logf(sum[i]);
    }
}

CPU_CLONES static void divide(matrix output, const block *b, size_t size, const float *sum) {
    for (size_t i = 0; i < b->queries; i++) {
        float *row = row_of(output, i), factor = 1 / sum[i];
#pragma omp simd
        for (size_t d = 0; d < size; d++)
            row[d] *= factor;
    }
}

static head_room rooms_of(const cpu_head *head, bool backward) {
    head_room at = {0};
    lay_out(&at, head, backward, &(room){head->scratch, 0});
    return at;
}

dnnl_status_t cpu_head_forward(const cpu_head *head) {
    head_room at = rooms_of(head, false);
    matrix query = read_values(head, &head->query, at.query);
    matrix key = read_values(head, &head->key, at.key);
    matrix value = read_values(head, &head->value, at.value);
    matrix output = place_of(&head->output, at.output);
    size_t parts = head->parts > 0 ? head->parts : 1;
    size_t count = (block_count(head->positions, head->causal) + parts - 1) / parts * parts;
    for (size_t i = count * head->part / parts; i < count * (head->part + 1) / parts; i++) {
        const block b = block_at(head, i, count);
        MULTIPLY(at.scores, rows_from(query, b.first), key, .rows = b.queries, .columns = b.keys,
                 .depth = head->size, .scale = root_scale(head), .transpose_b = true);
        weigh(head, &b, at.scores, at.sum);
        matrix to = rows_from(output, b.first);
        MULTIPLY(to, at.scores, value, .rows = b.queries, .columns = head->size, .depth = b.keys);
        divide(to, &b, head->size, at.sum);
    }
    write_values(head, output, &head->output);
    return dnnl_success;
}

/* Backward: with P = e^(scores - log_sum) and G the gradient of the output,
 * dV = P^T G; dS = P * (G V^T - sum of output * G); dQ = scale dS K; dK = scale dS^T Q. */

/* scores: P; gradient: G V^T, then dS. sum: of output * G. */
CPU_CLONES static void differentiate(const cpu_head *head, const block *b, const head_room *at) {
    for (size_t i = 0; i < b->queries; i++) {
        float *scores = row_of(at->scores, i), *gradient = row_of(at->gradient, i);
        float log_sum = head->log_sum[b->first + i], sum = at->sum[b->first + i];
        hide(scores, readable(head, b, i), b->keys);
#pragma omp simd
        for (size_t j = 0; j < b->keys; j++) {
            scores[j] = cpu_exp_below_zero(scores[j] - log_sum);
            gradient[j] = scores[j] * (gradient[j] - sum);
        }
    }
}

typedef struct head_matrices {
    matrix query, key, value, output, output_gradient;
    matrix query_gradient, key_gradient, value_gradient;
} head_matrices;

/* `add`: to the gradients of keys and values that are there. */
static dnnl_status_t return_block(const cpu_head *head, const block *b, const head_room *at,
                                  const head_matrices *of, bool add) {
    size_t size = head->size;
    float scale = root_scale(head);
    matrix query = rows_from(of->query, b->first);
    matrix output_gradient = rows_from(of->output_gradient, b->first);
    MULTIPLY(at->scores, query, of->key, .rows = b->queries, .columns = b->keys, .depth = size,
             .scale = scale, .transpose_b = true);
    MULTIPLY(at->gradient, output_gradient, of->value, .rows = b->queries, .columns = b->keys,
             .depth = size, .transpose_b = true);
    differentiate(head, b, at);
    MULTIPLY(of->value_gradient, at->scores, output_gradient, .rows = b->keys, .columns = size,
             .depth = b->queries, .transpose_a = true, .add = add);
    MULTIPLY(of->key_gradient, at->gradient, query, .rows = b->keys, .columns = size,
             .depth = b->queries, .scale = scale, .transpose_a = true, .add = add);
    MULTIPLY(rows_from(of->query_gradient, b->first), at->gradient, of->key, .rows = b->queries,
             .columns = size, .depth = b->keys, .scale = scale);
    return dnnl_success;
}

/* The last block comes first: its queries read all keys, so it writes their gradients. */
static dnnl_status_t return_blocks(const cpu_head *head, const head_room *at,
                                   const head_matrices *of) {
    size_t count = block_count(head->positions, head->causal);
    for (size_t i = count; i-- > 0;) {
        const block b = block_at(head, i, count);
        dnnl_status_t status = return_block(head, &b, at, of, i + 1 < count);
        if (status != dnnl_success) return status;
    }
    return dnnl_success;
}

dnnl_status_t cpu_head_backward(const cpu_head *head) {
    head_room at = rooms_of(head, true);
    const head_matrices of = {
        .query = read_values(head, &head->query, at.query),
        .key = read_values(head, &head->key, at.key),
        .value = read_values(head, &head->value, at.value),
        .output = read_values(head, &head->output, at.output),
        .output_gradient = read_values(head, &head->output_gradient, at.output_gradient),
        .query_gradient = place_of(&head->query_gradient, at.query_gradient),
        .key_gradient = place_of(&head->key_gradient, at.key_gradient),
        .value_gradient = place_of(&head->value_gradient, at.value_gradient),
    };
    for (size_t i = 0; i < head->positions; i++)
        at.sum[i] = dot(row_of(of.output, i), row_of(of.output_gradient, i), head->size);
    dnnl_status_t status = return_blocks(head, &at, &of);
    if (status != dnnl_success) return status;
    write_values(head, of.query_gradient, &head->query_gradient);
    write_values(head, of.key_gradient, &head->key_gradient);
    write_values(head, of.value_gradient, &head->value_gradient);
    return dnnl_success;
}
