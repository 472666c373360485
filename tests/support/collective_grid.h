/* SPDX-License-Identifier: Apache-2.0 */
/* Runs every collective beside a plain loop, as a rank, over counts, elements and reductions. */
#ifndef TESTS_COLLECTIVE_GRID_H
#define TESTS_COLLECTIVE_GRID_H

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "distributed/transports.h"

/* Where buffers lie and how exact sums are. */
typedef struct grid_memory grid_memory;
struct grid_memory {
    /* Small integers: sums are the same in any order. Otherwise they are trees, to the bit. */
    bool any_order;
    /* NULL: malloc, free and memcpy. */
    yoke_status (*make)(const grid_memory *memory, size_t bytes, void **buffer);
    void (*release)(const grid_memory *memory, void *buffer);
    yoke_status (*put)(const grid_memory *memory, void *to, const void *from, size_t bytes);
    yoke_status (*take)(const grid_memory *memory, void *to, const void *from, size_t bytes);
    void *context;
};

/* One setting of the grid. */
typedef struct setting {
    size_t count;
    yoke_element element;
    yoke_reduction reduction;
    const grid_memory *memory; /* NULL: ordinary memory, trees */
} setting;

/* Values: element i of rank r, and the reduction over the ranks: neighbours first, then
 * pairs of pairs. */

static inline size_t bytes_of(yoke_element element) {
    static const size_t bytes[] = {4, 2, 8, 8};
    return bytes[element];
}

static inline float from_bfloat16(uint16_t stored) {
    uint32_t bits = (uint32_t)stored << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint16_t to_bfloat16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t low = bits & 0xffffu, high = bits >> 16;
    return (uint16_t)(high + (low > 0x8000u || (low == 0x8000u && (high & 1u))));
}

static inline bool in_any_order(const setting *s) {
    return s->memory != NULL && s->memory->any_order;
}

static inline double raw_value(const setting *s, int rank, size_t i) {
    int64_t value = (int64_t)((i * 37 + (size_t)rank * 101 + 11) % 1009) - 504;
    if (s->element == YOKE_ELEMENT_INT64) return (double)value;
    return in_any_order(s) ? (double)(value % 8) : (double)value / 7;
}

static inline void store_value(void *data, size_t i, yoke_element element, double value) {
    if (element == YOKE_ELEMENT_INT64)
        ((int64_t *)data)[i] = (int64_t)value;
    else if (element == YOKE_ELEMENT_FLOAT64)
        ((double *)data)[i] = value;
    else if (element == YOKE_ELEMENT_FLOAT32)
        ((float *)data)[i] = (float)value;
    else
        ((uint16_t *)data)[i] = to_bfloat16((float)value);
}

static inline double load_value(const void *data, size_t i, yoke_element element) {
    if (element == YOKE_ELEMENT_INT64) return (double)((const int64_t *)data)[i];
    if (element == YOKE_ELEMENT_FLOAT64) return ((const double *)data)[i];
    if (element == YOKE_ELEMENT_FLOAT32) return (double)((const float *)data)[i];
    return (double)from_bfloat16(((const uint16_t *)data)[i]);
}

static inline void fill(void *data, size_t count, const setting *s, int rank, size_t first) {
    for (size_t i = 0; i < count; i++)
        store_value(data, i, s->element, raw_value(s, rank, first + i));
}

static inline int64_t fold_integers(yoke_reduction reduction, int64_t left, int64_t right) {
    if (reduction == YOKE_MIN) return left < right ? left : right;
    if (reduction == YOKE_MAX) return left > right ? left : right;
    return left + right;
}

static inline float fold_floats(yoke_reduction reduction, float left, float right) {
    if (reduction == YOKE_MIN) return fminf(left, right);
    if (reduction == YOKE_MAX) return fmaxf(left, right);
    return left + right;
}

static inline double fold_doubles(yoke_reduction reduction, double left, double right) {
    if (reduction == YOKE_MIN) return fmin(left, right);
    if (reduction == YOKE_MAX) return fmax(left, right);
    return left + right;
}

/* Element i of the reduction over all ranks, rounded as it is stored. */
static inline double folded_value(const setting *s, size_t i, int world) {
    int64_t integers[YOKE_PEERS_LIMIT] = {0};
    float reals[YOKE_PEERS_LIMIT] = {0};
    double wides[YOKE_PEERS_LIMIT] = {0};
    for (int rank = 0; rank < world; rank++) {
        unsigned char stored[8];
        store_value(stored, 0, s->element, raw_value(s, rank, i));
        double value = load_value(stored, 0, s->element);
        integers[rank] = (int64_t)value;
        reals[rank] = (float)value;
        wides[rank] = value;
    }
    for (int apart = 1; apart < world; apart *= 2)
        for (int rank = 0; rank + apart < world; rank += 2 * apart) {
            integers[rank] = fold_integers(s->reduction, integers[rank], integers[rank + apart]);
            reals[rank] = fold_floats(s->reduction, reals[rank], reals[rank + apart]);
            wides[rank] = fold_doubles(s->reduction, wides[rank], wides[rank + apart]);
        }
    int64_t integer = integers[0];
    float real = reals[0];
    double wide = wides[0];
    if (s->reduction == YOKE_MEAN) {
        integer /= world;
        real /= (float)world;
        wide /= (double)world;
    }
    if (s->element == YOKE_ELEMENT_INT64) return (double)integer;
    if (s->element == YOKE_ELEMENT_FLOAT64) return wide;
    return s->element == YOKE_ELEMENT_FLOAT32 ? (double)real
                                              : (double)from_bfloat16(to_bfloat16(real));
}

/* Buffers. */

static inline yoke_status make_buffer(const setting *s, size_t bytes, void **buffer) {
    if (s->memory != NULL && s->memory->make != NULL)
        return s->memory->make(s->memory, bytes, buffer);
    *buffer = malloc(bytes + 1);
    return YOKE_OK;
}

static inline void release_buffer(const setting *s, void *buffer) {
    if (s->memory != NULL && s->memory->release != NULL)
        s->memory->release(s->memory, buffer);
    else
        free(buffer);
}

static inline yoke_status put_values(const setting *s, void *to, size_t count, int rank) {
    if (s->memory == NULL || s->memory->put == NULL) {
        fill(to, count, s, rank, 0);
        return YOKE_OK;
    }
    void *values = malloc(count * bytes_of(s->element) + 1);
    fill(values, count, s, rank, 0);
    yoke_status status = s->memory->put(s->memory, to, values, count * bytes_of(s->element));
    free(values);
    return status;
}

/* A mean of floats in another order may be rounded elsewhere. */
static inline double allowed_error(const setting *s) {
    if (!in_any_order(s) || s->reduction != YOKE_MEAN) return 0;
    static const double allowed[] = {1e-5, 0.1, 0, 1e-14};
    return allowed[s->element];
}

typedef double (*expected_value)(const setting *s, size_t i, int of);

static inline yoke_status expect_values(const char *what, const void *found, const setting *s,
                                        expected_value expected, int of, size_t first) {
    size_t bytes = s->count * bytes_of(s->element);
    void *values = malloc(bytes + 1);
    yoke_status status = YOKE_OK;
    if (s->memory != NULL && s->memory->take != NULL)
        status = s->memory->take(s->memory, values, found, bytes);
    else
        memcpy(values, found, bytes);
    for (size_t i = 0; i < s->count && status == YOKE_OK; i++) {
        double is = load_value(values, i, s->element), wanted = expected(s, first + i, of);
        if (!(fabs(is - wanted) <= allowed_error(s)))
            status = FAIL(YOKE_ERROR_INTERNAL, "%s: element %zu of %zu is %.17g, not %.17g", what,
                          i, s->count, is, wanted);
    }
    free(values);
    return status;
}

/* [count]: the reduction from element `first` on. */
static inline yoke_status expect_folded(const char *what, const void *found, const setting *s,
                                        int world, size_t first) {
    return expect_values(what, found, s, folded_value, world, first);
}

static inline double filled_value(const setting *s, size_t i, int rank) {
    unsigned char stored[8];
    store_value(stored, 0, s->element, raw_value(s, rank, i));
    return load_value(stored, 0, s->element);
}

/* [count]: the values of `rank` from element `first` on. */
static inline yoke_status expect_filled(const char *what, const void *found, const setting *s,
                                        int rank, size_t first) {
    return expect_values(what, found, s, filled_value, rank, first);
}

/* Collectives, on buffers of [world x count] and [count]. */

typedef struct rank_memory {
    char *whole, *part;
} rank_memory;

static inline yoke_status check_reductions(yoke_process_group *group, const setting *s,
                                           rank_memory memory) {
    int world = group->world, rank = group->rank, root = (world - 1) / 2;
    yoke_reduce_call call = {s->count, s->element, s->reduction, -1};
    TRY(put_values(s, memory.part, s->count, rank));
    TRY(group->reduce(group, memory.part, &call));
    TRY(expect_folded("all_reduce", memory.part, s, world, 0));

    call.root = root;
    TRY(put_values(s, memory.part, s->count, rank));
    TRY(group->reduce(group, memory.part, &call));
    TRY(rank == root ? expect_folded("reduce", memory.part, s, world, 0)
                     : expect_filled("reduce elsewhere", memory.part, s, rank, 0));

    call.root = -1;
    TRY(put_values(s, memory.whole, s->count * (size_t)world, rank));
    TRY(group->reduce_scatter(group, memory.part, memory.whole, &call));
    return expect_folded("reduce_scatter", memory.part, s, world, s->count * (size_t)rank);
}

static inline yoke_status check_gathers(yoke_process_group *group, const setting *s,
                                        rank_memory memory, int root) {
    size_t bytes = s->count * bytes_of(s->element);
    const yoke_reduce_call call = {s->count, s->element, YOKE_SUM, root};
    TRY(put_values(s, memory.whole, s->count * (size_t)group->world, group->world));
    TRY(put_values(s, memory.part, s->count, group->rank));
    TRY(group->all_gather(group, memory.whole, memory.part, &call));
    for (int other = 0; other < group->world && (root < 0 || root == group->rank); other++)
        TRY(expect_filled("all_gather", memory.whole + (size_t)other * bytes, s, other, 0));
    return YOKE_OK;
}

static inline yoke_status check_moves(yoke_process_group *group, const setting *s,
                                      rank_memory memory) {
    int world = group->world, rank = group->rank, root = (world - 1) / 2;
    const yoke_reduce_call call = {s->count, s->element, YOKE_SUM, root};
    TRY(put_values(s, memory.part, s->count, rank));
    TRY(group->broadcast(group, memory.part, &call));
    TRY(expect_filled("broadcast", memory.part, s, root, 0));
    TRY(check_gathers(group, s, memory, -1));
    TRY(check_gathers(group, s, memory, root));
    TRY(put_values(s, memory.whole, s->count * (size_t)world, rank));
    TRY(group->scatter(group, memory.part, rank == root ? memory.whole : NULL, &call));
    return expect_filled("scatter", memory.part, s, root, s->count * (size_t)rank);
}

static inline yoke_status check_buffers(yoke_process_group *group, const setting *s,
                                        rank_memory memory) {
    TRY(check_reductions(group, s, memory));
    return s->reduction == YOKE_SUM ? check_moves(group, s, memory) : YOKE_OK;
}

/* `shared`: in memory of the group. */
static inline yoke_status check_setting(yoke_process_group *group, const setting *s, bool shared) {
    size_t bytes = s->count * bytes_of(s->element), world = (size_t)group->world;
    void *whole = NULL, *part = NULL;
    if (shared) {
        TRY(group->allocate(group, bytes * world, &whole));
        TRY(group->allocate(group, bytes, &part));
        return check_buffers(group, s, (rank_memory){.whole = whole, .part = part});
    }
    yoke_status status = make_buffer(s, bytes * world, &whole);
    if (status == YOKE_OK) status = make_buffer(s, bytes, &part);
    if (status == YOKE_OK)
        status = check_buffers(group, s, (rank_memory){.whole = whole, .part = part});
    release_buffer(s, whole);
    release_buffer(s, part);
    return status;
}

/* All of them, and in memory of the group some. */
static inline yoke_status check_all(yoke_process_group *group, const grid_memory *memory) {
    static const size_t counts[] = {0, 1, 4, 64, 100, 1000, 10000};
    bool ordinary = memory == NULL || memory->make == NULL;
    TRY(group->barrier(group));
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        for (int kind = 0; kind < 16; kind++) {
            setting s = {counts[i], (yoke_element)(kind % 4), (yoke_reduction)(kind / 4), memory};
            TRY(check_setting(group, &s, false));
        }
        for (int element = 0; ordinary && element < 4; element++) {
            setting s = {counts[i], (yoke_element)element, YOKE_SUM, memory};
            TRY(check_setting(group, &s, true));
        }
    }
    return YOKE_OK;
}

#endif
