/* The sampler gives the indices of torch.randperm and DistributedSampler, one by one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "data/data.h"

#define LIST_LIMIT 64

static void expect_list(const int64_t *list, const int64_t *expected, size_t count) {
    for (size_t i = 0; i < count; i++)
        assert_int_equal(list[i], expected[i]);
}

static void randperm_of_ten_is_torchs(void **state) {
    (void)state;
    static const struct {
        uint64_t seed;
        int64_t order[10];
    } rows[] = {
        {0, {4, 1, 7, 5, 3, 9, 0, 8, 6, 2}},
        {1, {5, 6, 1, 2, 0, 8, 9, 3, 7, 4}},
        {42, {2, 6, 1, 8, 4, 5, 0, 9, 3, 7}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t order[10];
        yoke_randperm(order, 10, rows[i].seed);
        expect_list(order, rows[i].order, 10);
    }
}

static uint64_t digest(const int64_t *order, size_t count) {
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++)
        sum = sum * 31 + (uint64_t)order[i];
    return sum;
}

/* Made with CPython's MT19937, seeded as the reference seeds it. */
static void randperm_agrees_beyond_one_block_of_the_generator(void **state) {
    (void)state;
    static const struct {
        size_t count;
        uint64_t seed, digest;
    } rows[] = {
        {1000, 0, UINT64_C(0x3607560c6a6a212c)},
        {50000, 42, UINT64_C(0x5280240c6d0d63c2)},
        {1000, UINT64_C(4294967303), UINT64_C(0x89752f88848c5b4e)},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t *order = malloc(rows[i].count * sizeof *order);
        assert_non_null(order);
        yoke_randperm(order, rows[i].count, rows[i].seed);
        assert_int_equal(digest(order, rows[i].count), rows[i].digest);
        free(order);
    }
}

static void randperm_of_nothing_and_of_one_is_harmless(void **state) {
    (void)state;
    int64_t order[1] = {7};
    yoke_randperm(order, 0, 3);
    assert_int_equal(order[0], 7);
    yoke_randperm(order, 1, 3);
    assert_int_equal(order[0], 0);
}

static size_t indices(yoke_sampler sampler, int rank, int64_t *list) {
    sampler.struct_size = sizeof sampler;
    sampler.rank = rank;
    size_t count = yoke_sampler_count(&sampler);
    assert_true(count <= LIST_LIMIT);
    assert_int_equal(yoke_sampler_indices(&sampler, list), YOKE_OK);
    return count;
}

static void the_vectors_of_distributed_sampler_hold(void **state) {
    (void)state;
    static const struct {
        yoke_sampler sampler;
        size_t count;
        int64_t lists[8][3];
    } rows[] = {
        {{.rows = 10, .world = 4}, 3, {{0, 4, 8}, {1, 5, 9}, {2, 6, 0}, {3, 7, 1}}},
        {{.rows = 10, .world = 4, .drop_last = true}, 2, {{0, 4}, {1, 5}, {2, 6}, {3, 7}}},
        {{.rows = 3, .world = 8}, 1, {{0}, {1}, {2}, {0}, {1}, {2}, {0}, {1}}},
        {{.rows = 3, .world = 8, .drop_last = true}, 0, {{0}}},
        {{.rows = 0, .world = 2}, 0, {{0}}},
        {{.rows = 10, .world = 4, .shuffle = true},
         3,
         {{4, 3, 6}, {1, 9, 2}, {7, 0, 4}, {5, 8, 1}}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (int rank = 0; rank < rows[i].sampler.world; rank++) {
            int64_t list[LIST_LIMIT];
            assert_int_equal(indices(rows[i].sampler, rank, list), rows[i].count);
            expect_list(list, rows[i].lists[rank], rows[i].count);
        }
    }
}

/* DistributedSampler as its source reads: build the list, pad or cut it, take every R-th. */
static size_t by_the_book(yoke_sampler sampler, int rank, int64_t *list) {
    int64_t order[LIST_LIMIT * 16];
    size_t rows = sampler.rows, replicas = (size_t)sampler.world, samples;
    for (size_t i = 0; i < rows; i++)
        order[i] = (int64_t)i;
    if (sampler.shuffle) yoke_randperm(order, rows, sampler.seed + sampler.epoch);
    if (sampler.drop_last && rows % replicas != 0)
        samples = rows < replicas ? 0 : (rows - replicas + replicas - 1) / replicas;
    else
        samples = (rows + replicas - 1) / replicas;
    size_t total = samples * replicas, length = rows;
    while (length < total) {
        order[length] = order[length - rows];
        length++;
    }
    size_t count = 0;
    for (size_t i = (size_t)rank; i < total; i += replicas)
        list[count++] = order[i];
    assert_int_equal(count, samples);
    return count;
}

static void every_small_grid_agrees_with_the_definition(void **state) {
    (void)state;
    for (int grid = 0; grid < 41 * 9 * 4; grid++) {
        yoke_sampler sampler = {.rows = (size_t)(grid / 36),
                                .world = 1 + grid / 4 % 9,
                                .shuffle = grid & 1,
                                .drop_last = grid & 2,
                                .seed = 3,
                                .epoch = (uint64_t)grid};
        for (int rank = 0; rank < sampler.world; rank++) {
            int64_t list[LIST_LIMIT], expected[LIST_LIMIT];
            size_t count = indices(sampler, rank, list);
            assert_int_equal(count, by_the_book(sampler, rank, expected));
            expect_list(list, expected, count);
        }
    }
}

static void together_the_ranks_see_every_row(void **state) {
    (void)state;
    for (int replicas = 1; replicas <= 8; replicas++) {
        int seen[37] = {0};
        yoke_sampler sampler = {.rows = 37, .world = replicas, .shuffle = true, .seed = 9};
        for (int rank = 0; rank < replicas; rank++) {
            int64_t list[LIST_LIMIT];
            size_t count = indices(sampler, rank, list);
            for (size_t i = 0; i < count; i++)
                seen[list[i]]++;
        }
        for (int row = 0; row < 37; row++)
            assert_in_range(seen[row], 1, 2);
    }
}

static void seed_and_epoch_add_up(void **state) {
    (void)state;
    int64_t a[LIST_LIMIT], b[LIST_LIMIT], c[LIST_LIMIT];
    yoke_sampler sampler = {.rows = 30, .world = 1, .shuffle = true, .seed = 0, .epoch = 5};
    indices(sampler, 0, a);
    sampler.seed = 5, sampler.epoch = 0;
    indices(sampler, 0, b);
    sampler.epoch = 1;
    indices(sampler, 0, c);
    assert_memory_equal(a, b, 30 * sizeof *a);
    assert_memory_not_equal(a, c, 30 * sizeof *a);
}

static void impossible_ranks_are_refused(void **state) {
    (void)state;
    int64_t list[4];
    yoke_sampler sampler = {.struct_size = sizeof sampler, .rows = 4, .world = 2, .rank = 2};
    assert_int_equal(yoke_sampler_indices(&sampler, list), YOKE_ERROR_ARGUMENT);
    assert_string_equal(yoke_last_error(), "sampler rank 2: expected 0..1");
    assert_int_equal(yoke_sampler_count(&sampler), 0);
    sampler.rank = -1;
    assert_int_equal(yoke_sampler_indices(&sampler, list), YOKE_ERROR_ARGUMENT);
    sampler.world = 0;
    assert_int_equal(yoke_sampler_indices(&sampler, list), YOKE_ERROR_ARGUMENT);
    sampler = (yoke_sampler){.struct_size = sizeof sampler, .rows = 4, .world = 1};
    assert_int_equal(yoke_sampler_indices(&sampler, NULL), YOKE_ERROR_ARGUMENT);
    assert_int_equal(yoke_sampler_indices(NULL, list), YOKE_ERROR_ARGUMENT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(randperm_of_ten_is_torchs),
        cmocka_unit_test(randperm_agrees_beyond_one_block_of_the_generator),
        cmocka_unit_test(randperm_of_nothing_and_of_one_is_harmless),
        cmocka_unit_test(the_vectors_of_distributed_sampler_hold),
        cmocka_unit_test(every_small_grid_agrees_with_the_definition),
        cmocka_unit_test(together_the_ranks_see_every_row),
        cmocka_unit_test(seed_and_epoch_add_up),
        cmocka_unit_test(impossible_ranks_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
