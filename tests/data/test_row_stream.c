/* SPDX-License-Identifier: Apache-2.0 */
/* A loader on a row stream: the rows of an array in its order, whatever the stream gives at a time;
 * an end that nobody knew; errors in the host's words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "data/data.h"
#include "support/array_stream.h"

enum { ROWS = 103, VALUES = 6, CLASSES = 7 };

#define EXPECT_OK(call)                                                                            \
    do {                                                                                           \
        if ((call) != YOKE_OK) fail_msg("%s: %s", #call, yoke_last_error());                       \
    } while (0)

static void expect_refusal(yoke_status status, yoke_status wanted, const char *words) {
    assert_int_equal(status, wanted);
    if (strstr(yoke_last_error(), words) == NULL)
        fail_msg("\"%s\" lacks \"%s\"", yoke_last_error(), words);
}

static float inputs[ROWS * VALUES];
static int32_t labels[ROWS];

static int make_rows(void **state) {
    (void)state;
    for (size_t i = 0; i < ROWS * VALUES; i++)
        inputs[i] = (float)i * 0.25f;
    for (size_t row = 0; row < ROWS; row++)
        labels[row] = (int32_t)(row * row % CLASSES);
    return 0;
}

static array_stream over_rows(void) {
    return (array_stream){.inputs = inputs, .labels = labels, .rows = ROWS, .values = VALUES};
}

static yoke_row_stream calls_of(array_stream *own) {
    return (yoke_row_stream){.struct_size = sizeof(yoke_row_stream),
                             .shape = {1, 2, 3, false},
                             .classes = CLASSES,
                             .next = array_stream_next,
                             .rewind = array_stream_rewind,
                             .payload = own};
}

static yoke_dataset *open_stream(const yoke_row_stream *calls) {
    yoke_dataset *dataset = NULL;
    EXPECT_OK(yoke_dataset_from_stream(&dataset, calls));
    return dataset;
}

static yoke_dataset *open_arrays(void) {
    yoke_arrays arrays = {.struct_size = sizeof arrays,
                          .rows = ROWS,
                          .shape = {1, 2, 3, false},
                          .inputs = inputs,
                          .classes = CLASSES,
                          .labels = labels};
    yoke_dataset *dataset = NULL;
    EXPECT_OK(yoke_dataset_from_arrays(&dataset, &arrays));
    return dataset;
}

static yoke_loader *create(const yoke_dataset *dataset, yoke_loader_options options) {
    options.struct_size = sizeof options;
    yoke_loader *loader = NULL;
    EXPECT_OK(yoke_loader_create(&loader, dataset, &options));
    return loader;
}

static yoke_batch next(yoke_loader *loader) {
    yoke_batch batch = {.struct_size = sizeof batch};
    EXPECT_OK(yoke_loader_next(loader, &batch, NULL));
    return batch;
}

/* Two loaders give the same batches up to the end of their epochs. */
static void expect_same_epoch(yoke_loader *streamed, yoke_loader *wanted) {
    for (;;) {
        yoke_batch own = next(streamed), their = next(wanted);
        assert_int_equal(own.rows, their.rows);
        assert_int_equal(own.first_row, their.first_row);
        assert_int_equal(own.whole_rows, their.whole_rows);
        assert_int_equal(own.labels_count, their.labels_count);
        if (own.rows == 0 && own.whole_rows == 0) break;
        size_t rows = (size_t)own.rows;
        assert_memory_equal(own.inputs, their.inputs, rows * VALUES * sizeof(float));
        assert_memory_equal(own.labels, their.labels, rows * sizeof(int32_t));
        assert_true(yoke_loader_batch_count(streamed) == SIZE_MAX);
    }
    assert_true(yoke_loader_batch_count(streamed) == yoke_loader_batch_count(wanted));
    assert_int_equal(next(streamed).rows, 0);
}

static void compare(yoke_loader_options options, int at_once) {
    array_stream own = over_rows();
    own.at_once = at_once;
    yoke_row_stream calls = calls_of(&own);
    yoke_dataset *stream = open_stream(&calls), *arrays = open_arrays();
    yoke_loader *streamed = create(stream, options), *wanted = create(arrays, options);
    for (uint64_t epoch = 3; epoch < 5; epoch++) {
        EXPECT_OK(yoke_loader_begin(streamed, epoch));
        EXPECT_OK(yoke_loader_begin(wanted, epoch));
        assert_true(yoke_loader_batch_count(streamed) == SIZE_MAX);
        expect_same_epoch(streamed, wanted);
        assert_true(own.epoch == epoch);
    }
    assert_int_equal(own.passes, 2);
    assert_false(own.other_thread);
    yoke_loader_destroy(streamed);
    yoke_loader_destroy(wanted);
    yoke_dataset_close(stream);
    yoke_dataset_close(arrays);
}

static void a_stream_over_an_array_gives_the_batches_of_the_array(void **state) {
    (void)state;
    const int batches[] = {1, 7, ROWS - 1, ROWS, ROWS + 40}, at_once[] = {0, 1, 5};
    for (int i = 0; i < 5 * 3 * 2; i++)
        compare((yoke_loader_options){.batch = batches[i / 6], .drop_last = i % 2, .threads = 4},
                at_once[i / 2 % 3]);
}

/* 103 rows in batches of 20: the last one, 3 rows, leaves ranks without any. */
static void every_rank_gets_its_part_of_the_same_batches(void **state) {
    (void)state;
    for (int rank = 0; rank < 4; rank++) {
        compare((yoke_loader_options){.batch = 20, .rank = rank, .world = 4}, 3);
        compare((yoke_loader_options){.batch = 20, .rank = rank % 2, .world = 2, .shards = 4}, 0);
    }
}

/* Row r has the targets r and -r, and input r in every value. */
static yoke_status count_up(void *payload, int room, float *values, int32_t *no_labels,
                            float *targets, int *count) {
    size_t *at = payload;
    assert_null(no_labels);
    for (*count = 0; *count < room && *at < ROWS; ++*count, ++*at) {
        for (int i = 0; i < VALUES; i++)
            values[*count * VALUES + i] = (float)*at;
        targets[*count * 2] = (float)*at;
        targets[*count * 2 + 1] = -(float)*at;
    }
    return YOKE_OK;
}

static void targets_of_regression_belong_to_their_rows(void **state) {
    (void)state;
    for (int rank = 0; rank < 3; rank++) {
        size_t at = 0, row = 0;
        const yoke_row_stream calls = {.struct_size = sizeof calls,
                                       .shape = {VALUES, 1, 1, true},
                                       .target_count = 2,
                                       .next = count_up,
                                       .payload = &at};
        yoke_dataset *stream = open_stream(&calls);
        int world = rank == 0 ? 1 : 2;
        yoke_loader *loader =
            create(stream, (yoke_loader_options){.batch = 20, .rank = rank / 2, .world = world});
        EXPECT_OK(yoke_loader_begin(loader, 0));
        for (; row < ROWS; row += 20) {
            yoke_batch batch = next(loader);
            assert_null(batch.labels);
            for (int i = 0; i < batch.rows; i++) {
                float wanted = (float)(row + (size_t)(batch.first_row + i));
                assert_true(batch.inputs[i * VALUES + VALUES - 1] == wanted);
                assert_true(batch.targets[2 * i] == wanted && batch.targets[2 * i + 1] == -wanted);
            }
        }
        assert_int_equal(next(loader).rows, 0);
        yoke_loader_destroy(loader);
        yoke_dataset_close(stream);
    }
}

static void an_epoch_begins_behind_batches_that_are_read_or_skipped(void **state) {
    (void)state;
    yoke_dataset *arrays = open_arrays();
    for (int skips = 0; skips < 2; skips++) {
        array_stream own = over_rows();
        yoke_row_stream calls = calls_of(&own);
        if (skips) calls.skip = array_stream_skip;
        yoke_dataset *stream = open_stream(&calls);
        yoke_loader_options options = {.batch = 20};
        yoke_loader *streamed = create(stream, options), *wanted = create(arrays, options);
        for (size_t batch = 0; batch <= 6; batch++) { /* 6: the end, behind a short batch */
            own.read = 0;
            EXPECT_OK(yoke_loader_begin_at(streamed, 0, batch));
            EXPECT_OK(yoke_loader_begin_at(wanted, 0, batch));
            expect_same_epoch(streamed, wanted);
            size_t behind = batch * 20 < ROWS ? ROWS - batch * 20 : 0;
            assert_int_equal(own.read, skips ? behind : ROWS);
        }
        assert_int_equal(own.skips, skips ? 6 : 0);
        yoke_loader_destroy(streamed);
        yoke_loader_destroy(wanted);
        yoke_dataset_close(stream);
    }
    yoke_dataset_close(arrays);
}

static void a_stream_shorter_than_before_is_an_error(void **state) {
    (void)state;
    array_stream own = over_rows();
    yoke_row_stream calls = calls_of(&own);
    yoke_dataset *stream = open_stream(&calls);
    yoke_loader *loader = create(stream, (yoke_loader_options){.batch = 20});
    yoke_batch batch = {.struct_size = sizeof batch};
    EXPECT_OK(yoke_loader_begin_at(loader, 2, 7));
    expect_refusal(yoke_loader_next(loader, &batch, NULL), YOKE_ERROR_DATA,
                   "the row stream has 103 rows in epoch 3: fewer than the 7 batches of 20");
    EXPECT_OK(yoke_loader_begin_at(loader, 3, SIZE_MAX - 1));
    expect_refusal(yoke_loader_next(loader, &batch, NULL), YOKE_ERROR_DATA,
                   "the row stream has 103 rows in epoch 4");
    yoke_loader_destroy(loader);
    yoke_dataset_close(stream);
}

static void an_error_in_mid_stream_comes_with_its_batch_and_its_words(void **state) {
    (void)state;
    array_stream own = over_rows();
    own.fails_at = 50;
    yoke_row_stream calls = calls_of(&own);
    yoke_dataset *stream = open_stream(&calls);
    yoke_loader *loader = create(stream, (yoke_loader_options){.batch = 20});
    yoke_batch batch = {.struct_size = sizeof batch};
    EXPECT_OK(yoke_loader_begin(loader, 0));
    assert_int_equal(next(loader).rows, 20);
    assert_int_equal(next(loader).rows, 20);
    for (int again = 0; again < 3; again++)
        expect_refusal(yoke_loader_next(loader, &batch, NULL), YOKE_ERROR_IO,
                       "row 50 of the row stream: the socket closed behind 50 rows");
    assert_int_equal(own.at, 50);
    own.fails_at = 0;
    EXPECT_OK(yoke_loader_begin(loader, 1));
    for (int rest = ROWS; rest > 0; rest -= 20)
        assert_int_equal(next(loader).rows, rest < 20 ? rest : 20);
    assert_int_equal(next(loader).rows, 0);
    own.cannot_rewind = true;
    EXPECT_OK(yoke_loader_begin(loader, 2));
    expect_refusal(yoke_loader_next(loader, &batch, NULL), YOKE_ERROR_IO,
                   "`rewind` of the row stream: the tape is torn");
    yoke_loader_destroy(loader);
    yoke_dataset_close(stream);
}

static void wrong_numbers_of_the_host_are_refused(void **state) {
    (void)state;
    static int32_t strange[ROWS];
    memcpy(strange, labels, sizeof strange);
    strange[45] = CLASSES;
    const int counts[] = {-1, 21};
    for (int i = 0; i < 3; i++) {
        array_stream own = over_rows();
        if (i < 2) own.wrong_count = counts[i];
        if (i == 2) own.labels = strange;
        yoke_row_stream calls = calls_of(&own);
        yoke_dataset *stream = open_stream(&calls);
        yoke_loader *loader = create(stream, (yoke_loader_options){.batch = 20});
        yoke_batch batch = {.struct_size = sizeof batch};
        EXPECT_OK(yoke_loader_begin(loader, 0));
        for (int before = 0; i == 2 && before < 2; before++)
            assert_int_equal(next(loader).rows, 20);
        expect_refusal(yoke_loader_next(loader, &batch, NULL), YOKE_ERROR_ARGUMENT,
                       i == 0   ? "`next` wrote -1 rows, expected 0..20"
                       : i == 1 ? "`next` wrote 21 rows, expected 0..20"
                                : "row 45: the row stream gave label 7, expected 0..6");
        yoke_loader_destroy(loader);
        yoke_dataset_close(stream);
    }
}

static void without_rewind_there_is_one_pass(void **state) {
    (void)state;
    array_stream own = over_rows();
    yoke_row_stream calls = calls_of(&own);
    calls.rewind = NULL;
    yoke_dataset *stream = open_stream(&calls);
    yoke_loader *loader = create(stream, (yoke_loader_options){.batch = 60});
    EXPECT_OK(yoke_loader_begin(loader, 0));
    assert_int_equal(next(loader).rows, 60);
    assert_int_equal(next(loader).rows, ROWS - 60);
    assert_int_equal(next(loader).rows, 0);
    expect_refusal(yoke_loader_begin(loader, 1), YOKE_ERROR_ARGUMENT,
                   "a second one needs `rewind`");
    assert_int_equal(yoke_loader_batch_count(loader), 2); /* of the pass that has ended */
    yoke_loader_destroy(loader);
    yoke_dataset_close(stream);
}

static void one_loader_at_a_time_reads_a_stream(void **state) {
    (void)state;
    array_stream own = over_rows();
    yoke_row_stream calls = calls_of(&own);
    yoke_dataset *stream = open_stream(&calls);
    yoke_loader_options options = {.struct_size = sizeof options, .batch = 8};
    yoke_loader *first = create(stream, options), *second = NULL;
    for (int again = 0; again < 2; again++) /* a refused loader gives nothing back */
        expect_refusal(yoke_loader_create(&second, stream, &options), YOKE_ERROR_ARGUMENT,
                       "a loader reads this row stream already");
    yoke_loader_destroy(first);
    second = create(stream, options);
    EXPECT_OK(yoke_loader_begin(second, 0));
    assert_int_equal(next(second).rows, 8);
    yoke_loader_destroy(second);
    yoke_dataset_close(stream);
}

static void what_needs_rows_in_another_order_is_refused(void **state) {
    (void)state;
    array_stream own = over_rows();
    yoke_row_stream calls = calls_of(&own);
    yoke_dataset *stream = open_stream(&calls);
    yoke_loader *loader = NULL;
    yoke_loader_options options = {.struct_size = sizeof options, .batch = 8, .shuffle = true};
    expect_refusal(yoke_loader_create(&loader, stream, &options), YOKE_ERROR_ARGUMENT,
                   "a row stream has one order, its own");
    options.sampling = YOKE_SAMPLING_BALANCED;
    expect_refusal(yoke_loader_create(&loader, stream, &options), YOKE_ERROR_ARGUMENT,
                   "a row stream has one order, its own");
    options = (yoke_loader_options){
        .struct_size = sizeof options, .batch = 8, .augment = YOKE_AUGMENT_CROP_FLIP};
    expect_refusal(yoke_loader_create(&loader, stream, &options), YOKE_ERROR_ARGUMENT,
                   "augmentation is not for a row stream");
    yoke_dataset_close(stream);
    calls.next = NULL;
    expect_refusal(yoke_dataset_from_stream(&stream, &calls), YOKE_ERROR_ARGUMENT,
                   "yoke_row_stream.next is NULL");
    calls = calls_of(&own);
    calls.target_count = 2;
    expect_refusal(yoke_dataset_from_stream(&stream, &calls), YOKE_ERROR_ARGUMENT,
                   "classes = 7 and target_count = 2");
    assert_null(stream);
}

static void a_limit_ends_each_pass(void **state) {
    (void)state;
    array_stream own = over_rows();
    own.endless = true;
    yoke_row_stream calls = calls_of(&own);
    yoke_dataset *stream = open_stream(&calls);
    yoke_dataset_info info = {.struct_size = sizeof info};
    EXPECT_OK(yoke_dataset_limit(stream, 250));
    EXPECT_OK(yoke_dataset_describe(stream, &info));
    assert_string_equal(info.name, "stream");
    assert_int_equal(info.rows, 0);
    yoke_loader *loader = create(stream, (yoke_loader_options){.batch = 100});
    for (uint64_t epoch = 0; epoch < 2; epoch++) {
        EXPECT_OK(yoke_loader_begin(loader, epoch));
        assert_int_equal(next(loader).rows, 100);
        yoke_batch batch = next(loader);
        assert_true(batch.rows == 100 && batch.inputs[3 * VALUES] == inputs[0]); /* row 103 */
        assert_int_equal(next(loader).rows, 50);
        assert_int_equal(next(loader).rows, 0);
        assert_int_equal(yoke_loader_batch_count(loader), 3);
    }
    assert_int_equal(own.read, 500);
    yoke_loader_destroy(loader);
    yoke_dataset_close(stream);
}

static void an_empty_stream_is_over_at_once(void **state) {
    (void)state;
    array_stream own = over_rows();
    own.rows = 0;
    yoke_row_stream calls = calls_of(&own);
    yoke_dataset *stream = open_stream(&calls);
    yoke_loader *loader = create(stream, (yoke_loader_options){.batch = 8});
    EXPECT_OK(yoke_loader_begin(loader, 0));
    assert_int_equal(next(loader).rows, 0);
    assert_int_equal(yoke_loader_batch_count(loader), 0);
    yoke_loader_destroy(loader);
    yoke_dataset_close(stream);
}

/* The loader reads ahead of a caller that stops, but no more than its slots. */
static void an_endless_stream_can_be_left_and_begun_again(void **state) {
    (void)state;
    array_stream own = over_rows();
    own.endless = true;
    own.at_once = 1;
    yoke_row_stream calls = calls_of(&own);
    yoke_dataset *stream = open_stream(&calls);
    yoke_loader *loader = create(stream, (yoke_loader_options){.batch = 10, .slots = 2});
    for (uint64_t epoch = 0; epoch < 20; epoch++) {
        EXPECT_OK(yoke_loader_begin(loader, epoch));
        for (uint64_t batch = 0; batch < epoch; batch++)
            assert_true(next(loader).inputs[0] == inputs[batch * 10 % ROWS * VALUES]);
    }
    yoke_loader_destroy(loader);
    assert_true(own.at >= 190 && own.at <= 190 + 30);
    yoke_dataset_close(stream);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_over_an_array_gives_the_batches_of_the_array),
        cmocka_unit_test(every_rank_gets_its_part_of_the_same_batches),
        cmocka_unit_test(targets_of_regression_belong_to_their_rows),
        cmocka_unit_test(an_epoch_begins_behind_batches_that_are_read_or_skipped),
        cmocka_unit_test(a_stream_shorter_than_before_is_an_error),
        cmocka_unit_test(an_error_in_mid_stream_comes_with_its_batch_and_its_words),
        cmocka_unit_test(wrong_numbers_of_the_host_are_refused),
        cmocka_unit_test(without_rewind_there_is_one_pass),
        cmocka_unit_test(one_loader_at_a_time_reads_a_stream),
        cmocka_unit_test(what_needs_rows_in_another_order_is_refused),
        cmocka_unit_test(a_limit_ends_each_pass),
        cmocka_unit_test(an_empty_stream_is_over_at_once),
        cmocka_unit_test(an_endless_stream_can_be_left_and_begun_again),
    };
    return cmocka_run_group_tests(tests, make_rows, NULL);
}
