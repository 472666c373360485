/* SPDX-License-Identifier: Apache-2.0 */
/* Trees over the ranks' buffers (base/tree.h), in blocks that stay in the first-level cache. Every
 * loop is elementwise, so the bits depend neither on the instruction set nor on the blocks. */
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

enum { BLOCK = 1024 }; /* elements */

#define SUM_FLOAT(left, right) ((left) + (right))
#define SUM_INTEGER(left, right) ((int64_t)((uint64_t)(left) + (uint64_t)(right))) /* may wrap */
#define NO_NAN(value) ((value) == (value))
#define MIN_FLOAT(left, right) ((right) < (left) || !NO_NAN(right) ? (right) : (left))
#define MAX_FLOAT(left, right) ((right) > (left) || !NO_NAN(right) ? (right) : (left))
#define MIN_INTEGER(left, right) ((right) < (left) ? (right) : (left))
#define MAX_INTEGER(left, right) ((right) > (left) ? (right) : (left))

/* `to` may be either operand: element i depends on element i alone. */
#define COMBINE(name, type, operation)                                                             \
    CLONES static void name(type *to, const type *left, const type *right, size_t count) {         \
        _Pragma("omp simd") for (size_t i = 0; i < count; i++) {                                   \
            to[i] = operation(left[i], right[i]);                                                  \
        }                                                                                          \
    }

COMBINE(sum_float, float, SUM_FLOAT)
COMBINE(min_float, float, MIN_FLOAT)
COMBINE(max_float, float, MAX_FLOAT)
COMBINE(sum_double, double, SUM_FLOAT)
COMBINE(min_double, double, MIN_FLOAT)
COMBINE(max_double, double, MAX_FLOAT)
COMBINE(sum_integer, int64_t, SUM_INTEGER)
COMBINE(min_integer, int64_t, MIN_INTEGER)
COMBINE(max_integer, int64_t, MAX_INTEGER)

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

/* A subtree: `count` parts from `first` on, elements `at` and on of a block. */
typedef struct fold_part {
    int first, count;
    size_t at, elements;
} fold_part;

static int left_count(const yoke_fold_set *fold, fold_part part) {
    return yoke_tree_split(fold->sizes != NULL ? fold->sizes + part.first : NULL, part.count);
}

static fold_part left_of(const yoke_fold_set *fold, fold_part part) {
    part.count = left_count(fold, part);
    return part;
}

static fold_part right_of(const yoke_fold_set *fold, fold_part part) {
    int left = left_count(fold, part);
    part.first += left;
    part.count -= left;
    return part;
}

/* tree: a subtree's operand, its one part or the reduction in held[0]; held[1] and on are
 * scratch. The whole tree's last step alone writes to `to`, which may be a buffer not read before.
 */
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
    static const type *tree_##name(const yoke_fold_set *fold, fold_part part,                      \
                                   type(*held)[BLOCK]) {                                           \
        if (part.count == 1) return (const type *)fold->from[part.first] + part.at;                \
        const type *left = tree_##name(fold, left_of(fold, part), held);                           \
        const type *right = tree_##name(fold, right_of(fold, part), held + 1);                     \
        combine_##name(fold->reduction, held[0], left, right, part.elements);                      \
        return held[0];                                                                            \
    }                                                                                              \
    static void fold_##name(type *to, const yoke_fold_set *fold, fold_part all) {                  \
        type held[YOKE_TREE_LEVELS + 1][BLOCK];                                                    \
        size_t count = all.elements;                                                               \
        if (all.count == 1) {                                                                      \
            const type *only = tree_##name(fold, all, held);                                       \
            if (to != only) memcpy(to, only, count * sizeof *to);                                  \
        } else {                                                                                   \
            const type *left = tree_##name(fold, left_of(fold, all), held);                        \
            const type *right = tree_##name(fold, right_of(fold, all), held + 1);                  \
            combine_##name(fold->reduction, to, left, right, count);                               \
        }                                                                                          \
        if (fold->reduction == YOKE_MEAN) divide_##name(to, count, (type)fold->ranks);             \
    }

FOLD(float, float)
FOLD(double, double)
FOLD(integer, int64_t)

/* Folded as float32, from held[0] on. */
static void tree_bfloat16(const yoke_fold_set *fold, fold_part part, float (*held)[BLOCK]) {
    if (part.count == 1) {
        widen_block(held[0], (const uint16_t *)fold->from[part.first] + part.at, part.elements);
        return;
    }
    tree_bfloat16(fold, left_of(fold, part), held);
    tree_bfloat16(fold, right_of(fold, part), held + 1);
    combine_float(fold->reduction, held[0], held[0], held[1], part.elements);
}

static void fold_bfloat16(uint16_t *to, const yoke_fold_set *fold, fold_part all) {
    float held[YOKE_TREE_LEVELS + 1][BLOCK];
    tree_bfloat16(fold, all, held);
    if (fold->reduction == YOKE_MEAN) divide_float(held[0], all.elements, (float)fold->ranks);
    narrow_block(to, held[0], all.elements);
}

void yoke_fold(void *to, const yoke_fold_set *fold, size_t begin, size_t count) {
    for (size_t done = 0; done < count; done += BLOCK) {
        size_t left = count - done;
        fold_part all = {
            .count = fold->parts, .at = begin + done, .elements = left < BLOCK ? left : BLOCK};
        switch (fold->element) {
        case YOKE_ELEMENT_FLOAT32:
            fold_float((float *)to + done, fold, all);
            break;
        case YOKE_ELEMENT_BFLOAT16:
            fold_bfloat16((uint16_t *)to + done, fold, all);
            break;
        case YOKE_ELEMENT_INT64:
            fold_integer((int64_t *)to + done, fold, all);
            break;
        case YOKE_ELEMENT_FLOAT64:
            fold_double((double *)to + done, fold, all);
            break;
        case YOKE_ELEMENT_INT32: /* process groups refuse them */
        case YOKE_ELEMENT_UINT8:
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
    case YOKE_ELEMENT_INT32: /* process groups refuse them */
    case YOKE_ELEMENT_UINT8:
        break;
    }
}
