/* SPDX-License-Identifier: Apache-2.0 */
/* The arena: values that live at the same time never share memory, whatever their lifetimes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "model/program.h"

static bool lives_at(const yoke_storage *storage, int step) {
    bool rests = storage->pause < step && step < storage->resume;
    return storage->begin <= step && step <= storage->end && !rests;
}

static bool live_together(const yoke_storage *a, const yoke_storage *b) {
    int end = a->end < b->end ? a->end : b->end;
    for (int step = a->begin > b->begin ? a->begin : b->begin; step <= end; step++)
        if (lives_at(a, step) && lives_at(b, step)) return true;
    return false;
}

static void assert_apart(const yoke_arena *arena) {
    for (int i = 0; i < arena->count; i++) {
        const yoke_storage *a = &arena->storages[i];
        assert_int_equal(a->offset % 64, 0);
        assert_true(a->offset + a->bytes <= arena->bytes);
        for (int k = 0; k < i; k++) {
            const yoke_storage *b = &arena->storages[k];
            bool together = live_together(a, b);
            bool apart = a->offset + a->bytes <= b->offset || b->offset + b->bytes <= a->offset;
            assert_true(!together || apart);
        }
    }
}

/* The most that lives at any one step: no plan can do with less. */
static size_t busiest_step(const yoke_arena *arena, int steps) {
    size_t most = 0;
    for (int step = 0; step < steps; step++) {
        size_t bytes = 0;
        for (int i = 0; i < arena->count; i++) {
            const yoke_storage *storage = &arena->storages[i];
            if (lives_at(storage, step)) bytes += storage->bytes;
        }
        if (bytes > most) most = bytes;
    }
    return most;
}

static void random_lifetimes_never_overlap(void **state) {
    (void)state;
    enum { STEPS = 60 };
    for (uint32_t seed = 0; seed < 300; seed++) {
        yoke_arena arena = {0};
        int count = 1 + (int)(seed % 80);
        assert_int_equal(yoke_arena_create(&arena, count), YOKE_OK);
        for (int i = 0; i < count; i++) {
            uint32_t words[4];
            yoke_random_words(seed, YOKE_RANDOM_PROBE, (uint64_t)i, 0, 0, words);
            int storage = yoke_arena_add(&arena, words[0] % 5000, (int)(words[1] % STEPS));
            yoke_arena_use(&arena, storage, (int)(words[2] % STEPS));
            const yoke_storage *made = &arena.storages[storage];
            int length = made->end - made->begin;
            if (words[3] % 2 == 0 && length > 2) { /* half of those that can rest do */
                int pause = made->begin + (int)(words[3] / 2 % (uint32_t)(length - 1));
                yoke_arena_rest(&arena, storage, pause, pause + 2 + (made->end - pause - 2) / 2);
            }
        }
        assert_int_equal(yoke_arena_place(&arena), YOKE_OK);
        assert_apart(&arena);
        size_t least = busiest_step(&arena, STEPS);
        assert_true(arena.bytes >= least);
        assert_true(arena.bytes <= 2 * least);
        yoke_arena_destroy(&arena);
    }
}

static void a_chain_needs_no_more_than_two_neighbours(void **state) {
    (void)state;
    yoke_arena arena = {0};
    assert_int_equal(yoke_arena_create(&arena, 50), YOKE_OK);
    for (int i = 0; i < 50; i++)
        yoke_arena_use(&arena, yoke_arena_add(&arena, 1024, i), i + 1);
    assert_int_equal(yoke_arena_place(&arena), YOKE_OK);
    assert_apart(&arena);
    assert_int_equal(arena.bytes, 2 * 1024);
    yoke_arena_destroy(&arena);
}

static void a_use_before_the_beginning_changes_nothing(void **state) {
    (void)state;
    yoke_arena arena = {0};
    assert_int_equal(yoke_arena_create(&arena, 1), YOKE_OK);
    int storage = yoke_arena_add(&arena, 1, 7);
    yoke_arena_use(&arena, storage, 3);
    yoke_arena_use(&arena, YOKE_PLACE_NOWHERE, 9);
    assert_int_equal(arena.storages[storage].begin, 7);
    assert_int_equal(arena.storages[storage].end, 7);
    assert_int_equal(yoke_arena_place(&arena), YOKE_OK);
    assert_int_equal(arena.bytes, 64);
    yoke_arena_destroy(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_lifetimes_never_overlap),
        cmocka_unit_test(a_chain_needs_no_more_than_two_neighbours),
        cmocka_unit_test(a_use_before_the_beginning_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
