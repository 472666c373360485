/* SPDX-License-Identifier: Apache-2.0 */
/* The sampler gives the indices of torch.randperm and DistributedSampler, one by one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "data/data.h"
#include "fixtures/fixture.h"

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

/* 30, 7 and 3 rows of three classes. */
static yoke_dataset *few_of_one_class(const json_t *fixture, int32_t labels[64], uint8_t *pixels) {
    const json_t *list = json_object_get(fixture, "labels");
    yoke_arrays arrays = {.struct_size = sizeof arrays,
                          .rows = json_array_size(list),
                          .shape = {.channels = 1, .height = 1, .width = 1, .flat = true},
                          .classes = 3,
                          .labels = labels,
                          .pixels = pixels};
    yoke_dataset *dataset;
    for (size_t row = 0; row < arrays.rows; row++) {
        labels[row] = (int32_t)json_integer_value(json_array_get(list, row));
        pixels[row] = (uint8_t)row;
    }
    must(yoke_dataset_from_arrays(&dataset, &arrays));
    return dataset;
}

/* tests/fixtures/make_array_fixture.py asked torch. */
static void balanced_draws_are_those_of_weighted_random_sampler(void **state) {
    (void)state;
    json_t *fixture = read_fixture("arrays/balanced"), *draw;
    int32_t labels[LIST_LIMIT];
    uint8_t pixels[LIST_LIMIT];
    double sums[LIST_LIMIT];
    int64_t order[LIST_LIMIT];
    size_t index;
    yoke_dataset *dataset = few_of_one_class(fixture, labels, pixels);
    must(yoke_balanced_weights(dataset, sums));
    json_array_foreach(json_object_get(fixture, "draws"), index, draw) {
        const json_t *wanted = json_object_get(draw, "order");
        yoke_balanced_order(order, sums, dataset->rows, (uint64_t)integer(draw, "seed"));
        for (size_t i = 0; i < dataset->rows; i++)
            assert_int_equal(order[i], json_integer_value(json_array_get(wanted, i)));
    }
    assert_int_equal(index, 3);
    yoke_dataset_close(dataset);
    json_decref(fixture);
}

/* Two ranks together read what one process reads, in every batch of the epoch that the seed and its
 * number name. */
static void balanced_batches_do_not_depend_on_ranks(void **state) {
    (void)state;
    json_t *fixture = read_fixture("arrays/balanced");
    int32_t labels[LIST_LIMIT], seen[2][LIST_LIMIT] = {{0}};
    uint8_t pixels[LIST_LIMIT];
    yoke_dataset *dataset = few_of_one_class(fixture, labels, pixels);
    size_t rows = dataset->rows;
    for (int world = 1; world <= 2; world++)
        for (int rank = 0; rank < world; rank++) {
            yoke_loader_options options = YOKE_LOADER_OPTIONS_INIT;
            yoke_loader *loader;
            options.batch = 8;
            options.shuffle = options.raw = true;
            options.sampling = YOKE_SAMPLING_BALANCED;
            options.seed = 12000;
            options.rank = rank;
            options.world = world;
            must(yoke_loader_create(&loader, dataset, &options));
            must(yoke_loader_begin(loader, 345)); /* the seed of the fixture's third draw */
            for (size_t batch = 0; batch < yoke_loader_batch_count(loader); batch++) {
                yoke_batch got = {.struct_size = sizeof got};
                must(yoke_loader_next(loader, &got, NULL));
                for (int i = 0; i < got.rows; i++)
                    seen[world - 1][batch * 8 + (size_t)(got.first_row + i)] =
                        (int32_t)lrintf(got.inputs[i] * 255);
            }
            yoke_loader_destroy(loader);
        }
    const json_t *wanted =
        json_object_get(json_array_get(json_object_get(fixture, "draws"), 2), "order");
    for (size_t i = 0; i < rows; i++)
        assert_int_equal(seen[0][i], json_integer_value(json_array_get(wanted, i)));
    assert_memory_equal(seen[0], seen[1], sizeof seen[0]);
    yoke_dataset_close(dataset);
    json_decref(fixture);
}

static void balanced_sampling_needs_classes_and_shuffling(void **state) {
    (void)state;
    static const float targets[] = {1, 2};
    static const uint8_t pixels[] = {1, 2};
    yoke_arrays arrays = {.struct_size = sizeof arrays,
                          .rows = 2,
                          .shape = {.channels = 1, .height = 1, .width = 1, .flat = true},
                          .target_count = 1,
                          .targets = targets,
                          .pixels = pixels};
    yoke_loader_options options = YOKE_LOADER_OPTIONS_INIT;
    yoke_dataset *dataset;
    yoke_loader *loader;
    options.batch = 1;
    options.sampling = YOKE_SAMPLING_BALANCED;
    must(yoke_dataset_from_arrays(&dataset, &arrays));
    assert_int_equal(yoke_loader_create(&loader, dataset, &options), YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "needs shuffle"));
    options.shuffle = true;
    assert_int_equal(yoke_loader_create(&loader, dataset, &options), YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "dataset 'arrays' has targets"));
    yoke_dataset_close(dataset);
}

static void balanced_sampling_refuses_labels_that_have_changed(void **state) {
    (void)state;
    static const uint8_t pixels[] = {1, 2};
    static const int32_t bad[] = {2, -1, 1000000000};
    for (size_t i = 0; i < 3; i++) {
        int32_t labels[] = {0, 1};
        yoke_arrays arrays = {.struct_size = sizeof arrays,
                              .rows = 2,
                              .shape = {.channels = 1, .height = 1, .width = 1, .flat = true},
                              .classes = 2,
                              .labels = labels,
                              .pixels = pixels};
        yoke_loader_options options = YOKE_LOADER_OPTIONS_INIT;
        yoke_dataset *dataset;
        yoke_loader *loader;
        options.batch = 1;
        options.shuffle = true;
        options.sampling = YOKE_SAMPLING_BALANCED;
        must(yoke_dataset_from_arrays(&dataset, &arrays));
        labels[1] = bad[i];
        assert_int_equal(yoke_loader_create(&loader, dataset, &options), YOKE_ERROR_ARGUMENT);
        assert_non_null(strstr(yoke_last_error(), "row 1 has label"));
        yoke_dataset_close(dataset);
    }
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
        cmocka_unit_test(balanced_draws_are_those_of_weighted_random_sampler),
        cmocka_unit_test(balanced_batches_do_not_depend_on_ranks),
        cmocka_unit_test(balanced_sampling_needs_classes_and_shuffling),
        cmocka_unit_test(balanced_sampling_refuses_labels_that_have_changed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
