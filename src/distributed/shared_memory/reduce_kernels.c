/* Left folds over the ranks' buffers, in blocks that stay in the first-level cache. Every loop is
 * elementwise, so the bits depend neither on the instruction set nor on the blocks. */
#include "distributed/shared_memory/reduce_kernels.h"

#include <string.h>

/* One clone per instruction set; the loader picks it. It does so before a sanitizer's runtime is
 * ready, so sanitized builds have the plain loop only. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CLONES
#elif defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CLONES
#endif

enum { BLOCK = 2048 }; /* elements */

#define SUM_FLOAT(left, right) ((left) + (right))
#define SUM_INTEGER(left, right) ((int64_t)((uint64_t)(left) + (uint64_t)(right))) /* may wrap */
#define NO_NAN(value) ((value) == (value))
#define MIN_FLOAT(left, right) ((right) < (left) || !NO_NAN(right) ? (right) : (left))
#define MAX_FLOAT(left, right) ((right) > (left) || !NO_NAN(right) ? (right) : (left))
#define MIN_INTEGER(left, right) ((right) < (left) ? (right) : (left))
#define MAX_INTEGER(left, right) ((right) > (left) ? (right) : (left))

/* `to` may be either operand: element i depends on element i alone. */
#define COMBINE(name, type, stored, load, operation)                                               \
    CLONES static void name(type *to, const type *left, const stored *right, size_t count) {       \
        _Pragma("omp simd") for (size_t i = 0; i < count; i++) {                                   \
            to[i] = operation(left[i], load(right[i]));                                            \
        }                                                                                          \
    }

COMBINE(sum_float, float, float, , SUM_FLOAT)
COMBINE(min_float, float, float, , MIN_FLOAT)
COMBINE(max_float, float, float, , MAX_FLOAT)
COMBINE(sum_double, double, double, , SUM_FLOAT)
COMBINE(min_double, double, double, , MIN_FLOAT)
COMBINE(max_double, double, double, , MAX_FLOAT)
COMBINE(sum_integer, int64_t, int64_t, , SUM_INTEGER)
COMBINE(min_integer, int64_t, int64_t, , MIN_INTEGER)
COMBINE(max_integer, int64_t, int64_t, , MAX_INTEGER)
COMBINE(sum_bfloat16, float, uint16_t, yoke_bfloat16_widen, SUM_FLOAT)
COMBINE(min_bfloat16, float, uint16_t, yoke_bfloat16_widen, MIN_FLOAT)
COMBINE(max_bfloat16, float, uint16_t, yoke_bfloat16_widen, MAX_FLOAT)

CLONES static void divide_float(float *values, size_t count, float divisor) {
#pragma omp simd
    for (size_t i = 0; i < count; i++) {
        values[i] /= divisor;
    }
}

CLONES static void divide_double(double *values, size_t count, double divisor) {
#pragma omp simd
    for (size_t i = 0; i < count; i++) {
        values[i] /= divisor;
    }
}

static void divide_integer(int64_t *values, size_t count, int64_t divisor) {
    for (size_t i = 0; i < count; i++) {
        values[i] /= divisor;
    }
}

CLONES static void widen_block(float *to, const uint16_t *from, size_t count) {
#pragma omp simd
    for (size_t i = 0; i < count; i++) {
        to[i] = yoke_bfloat16_widen(from[i]);
    }
}

CLONES static void narrow_block(uint16_t *to, const float *from, size_t count) {
#pragma omp simd
    for (size_t i = 0; i < count; i++) {
        to[i] = yoke_bfloat16_round(from[i]);
    }
}

/* Partial results stay in `held` until the last rank: `to` may be a buffer not read yet. */
#define FOLD(name, type)                                                                           \
    static void combine_##name(yoke_reduction reduction, type *to, const type *left,               \
                               const type *right, size_t count) {                                  \
        if (reduction == YOKE_MIN)                                                                 \
            min_##name(to, left, right, count);                                                    \
        else if (reduction == YOKE_MAX)                                                            \
            max_##name(to, left, right, count);                                                    \
        else                                                                                       \
            sum_##name(to, left, right, count);                                                    \
    }                                                                                              \
    static void fold_##name(type *to, const yoke_fold_set *fold, size_t at, size_t count) {        \
        type held[BLOCK];                                                                          \
        const type *left = (const type *)fold->from[0] + at;                                       \
        for (int rank = 1; rank < fold->ranks; rank++) {                                           \
            type *sum = rank + 1 < fold->ranks ? held : to;                                        \
            combine_##name(fold->reduction, sum, left, (const type *)fold->from[rank] + at,        \
                           count);                                                                 \
            left = held;                                                                           \
        }                                                                                          \
        if (fold->ranks == 1 && to != left) memcpy(to, left, count * sizeof *to);                  \
        if (fold->reduction == YOKE_MEAN) divide_##name(to, count, (type)fold->ranks);             \
    }

FOLD(float, float)
FOLD(double, double)
FOLD(integer, int64_t)

static void combine_bfloat16(yoke_reduction reduction, float *to, const uint16_t *right,
                             size_t count) {
    if (reduction == YOKE_MIN) {
        min_bfloat16(to, to, right, count);
    } else if (reduction == YOKE_MAX) {
        max_bfloat16(to, to, right, count);
    } else {
        sum_bfloat16(to, to, right, count);
    }
}

static void fold_bfloat16(uint16_t *to, const yoke_fold_set *fold, size_t at, size_t count) {
    float held[BLOCK];
    widen_block(held, (const uint16_t *)fold->from[0] + at, count);
    for (int rank = 1; rank < fold->ranks; rank++) {
        combine_bfloat16(fold->reduction, held, (const uint16_t *)fold->from[rank] + at, count);
    }
    if (fold->reduction == YOKE_MEAN) divide_float(held, count, (float)fold->ranks);
    narrow_block(to, held, count);
}

void yoke_fold(void *to, const yoke_fold_set *fold, size_t begin, size_t count) {
    for (size_t done = 0; done < count; done += BLOCK) {
        size_t at = begin + done, block = count - done < BLOCK ? count - done : BLOCK;
        switch (fold->element) {
        case YOKE_ELEMENT_FLOAT32:
            fold_float((float *)to + done, fold, at, block);
            break;
        case YOKE_ELEMENT_BFLOAT16:
            fold_bfloat16((uint16_t *)to + done, fold, at, block);
            break;
        case YOKE_ELEMENT_INT64:
            fold_integer((int64_t *)to + done, fold, at, block);
            break;
        case YOKE_ELEMENT_FLOAT64:
            fold_double((double *)to + done, fold, at, block);
            break;
        }
    }
}

void yoke_fold_divide(void *values, yoke_element element, size_t count, int ranks) {
    switch (element) {
    case YOKE_ELEMENT_FLOAT32:
    case YOKE_ELEMENT_BFLOAT16:
        divide_float(values, count, (float)ranks);
        break;
    case YOKE_ELEMENT_INT64:
        divide_integer(values, count, ranks);
        break;
    case YOKE_ELEMENT_FLOAT64:
        divide_double(values, count, (double)ranks);
        break;
    }
}
