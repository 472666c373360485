/* SPDX-License-Identifier: Apache-2.0 */
/* The arena: storages share memory unless they live at the same step. */
#include <assert.h>
#include <stdlib.h>

#include "model/program.h"

#define ALIGNMENT 64

yoke_status yoke_arena_create(yoke_arena *arena, int capacity) {
    arena->storages = yoke_calloc((size_t)capacity, sizeof *arena->storages);
    if (arena->storages == NULL)
        return FAIL_MEMORY((size_t)capacity * sizeof *arena->storages, "a list of storages");
    arena->capacity = capacity;
    return YOKE_OK;
}

void yoke_arena_destroy(yoke_arena *arena) {
    yoke_free(arena->storages);
    *arena = (yoke_arena){0};
}

int yoke_arena_add(yoke_arena *arena, size_t bytes, int step) {
    assert(arena->count < arena->capacity);
    size_t whole = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    arena->storages[arena->count] = (yoke_storage){.bytes = whole, .begin = step, .end = step};
    return arena->count++;
}

void yoke_arena_use(yoke_arena *arena, int storage, int step) {
    if (storage < 0) return;
    yoke_storage *used = &arena->storages[storage];
    if (step > used->end) used->end = step;
}

/* Largest first; ties by lifetime, then by position, so that the result is always the same. */
static int larger_first(const void *left, const void *right) {
    const yoke_storage *a = *(const yoke_storage *const *)left;
    const yoke_storage *b = *(const yoke_storage *const *)right;
    if (a->bytes != b->bytes) return a->bytes > b->bytes ? -1 : 1;
    if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
    return a < b ? -1 : a > b;
}

void yoke_arena_rest(yoke_arena *arena, int storage, int pause, int resume) {
    arena->storages[storage].pause = pause;
    arena->storages[storage].resume = resume;
}

/* Whether a lives at a step from `begin` to `end`. */
static bool meets(const yoke_storage *a, int begin, int end) {
    if (a->pause >= a->resume) return a->begin <= end && begin <= a->end;
    return (a->begin <= end && begin <= a->pause) || (a->resume <= end && begin <= a->end);
}

static bool live_together(const yoke_storage *a, const yoke_storage *b) {
    if (b->pause >= b->resume) return meets(a, b->begin, b->end);
    return meets(a, b->begin, b->pause) || meets(a, b->resume, b->end);
}

/* The smallest hole between the placed storages that live at the same time, or the end of the last
 * of them. `placed` is sorted by offset. */
static size_t best_offset(const yoke_storage *storage, yoke_storage *const *placed, int count) {
    size_t top = 0, best = 0, best_bytes = SIZE_MAX;
    for (int i = 0; i < count; i++) {
        if (!live_together(storage, placed[i])) continue;
        size_t hole = placed[i]->offset > top ? placed[i]->offset - top : 0;
        if (hole >= storage->bytes && hole < best_bytes) {
            best = top;
            best_bytes = hole;
        }
        size_t end = placed[i]->offset + placed[i]->bytes;
        if (end > top) top = end;
    }
    return best_bytes < SIZE_MAX ? best : top;
}

yoke_status yoke_arena_place(yoke_arena *arena) {
    size_t count = (size_t)arena->count;
    yoke_storage **order = yoke_calloc(2 * count + 1, sizeof *order);
    if (order == NULL) return FAIL_MEMORY(2 * count * sizeof *order, "the plan of an arena");
    yoke_storage **placed = order + count;
    for (size_t i = 0; i < count; i++)
        order[i] = &arena->storages[i];
    qsort(order, count, sizeof *order, larger_first);
    arena->bytes = 0;
    for (int i = 0; i < arena->count; i++) {
        yoke_storage *storage = order[i];
        storage->offset = best_offset(storage, placed, i);
        int at = i;
        for (; at > 0 && placed[at - 1]->offset > storage->offset; at--)
            placed[at] = placed[at - 1];
        placed[at] = storage;
        if (storage->offset + storage->bytes > arena->bytes)
            arena->bytes = storage->offset + storage->bytes;
    }
    yoke_free(order);
    return YOKE_OK;
}
