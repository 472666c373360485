/* SPDX-License-Identifier: Apache-2.0 */
/* Every row comes once an epoch, whatever the threads do; an error reaches the call it belongs
 * to; nothing hangs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "data/data.h"

#define ROWS 103
#define VALUES 6

#define EXPECT_OK(call)                                                                            \
    do {                                                                                           \
        if ((call) != YOKE_OK) fail_msg("%s: %s", #call, yoke_last_error());                       \
    } while (0)

static void sleep_ms(long ms) {
    struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

/* Row r holds r in every value; its label is r % 7. */
static yoke_dataset *open_arrays(void) {
    static float floats[ROWS * VALUES];
    static int32_t labels[ROWS];
    for (size_t i = 0; i < ROWS * VALUES; i++) {
        floats[i] = (float)(i / VALUES);
        labels[i / VALUES] = (int32_t)(i / VALUES % 7);
    }
    yoke_arrays arrays = {.struct_size = sizeof arrays,
                          .rows = ROWS,
                          .shape = {1, 2, 3, false},
                          .inputs = floats,
                          .classes = 7,
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

static int next(yoke_loader *loader, yoke_batch *batch) {
    batch->struct_size = sizeof *batch;
    EXPECT_OK(yoke_loader_next(loader, batch, NULL));
    return batch->rows;
}

/* Reads an epoch to its end: the order of rows, and how many. */
static size_t read_epoch(yoke_loader *loader, size_t *order) {
    yoke_batch batch;
    size_t count = 0, batches = 0;
    while (next(loader, &batch) > 0) {
        for (int i = 0; i < batch.rows; i++) {
            size_t row = (size_t)batch.inputs[i * VALUES];
            assert_true(batch.inputs[i * VALUES + VALUES - 1] == (float)row);
            assert_int_equal(batch.labels[i], row % 7);
            assert_null(batch.targets);
            order[count++] = row;
        }
        batches++;
    }
    assert_int_equal(batches, yoke_loader_batch_count(loader));
    assert_int_equal(next(loader, &batch), 0);
    return count;
}

static void every_row_comes_once_an_epoch(void **state) {
    (void)state;
    yoke_dataset *dataset = open_arrays();
    for (int shuffle = 0; shuffle < 2; shuffle++) {
        yoke_loader *loader =
            create(dataset, (yoke_loader_options){.batch = 10, .shuffle = shuffle});
        assert_int_equal(yoke_loader_batch_count(loader), 11);
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            size_t order[ROWS];
            int seen[ROWS] = {0}, in_place = 0;
            EXPECT_OK(yoke_loader_begin(loader, epoch));
            assert_int_equal(read_epoch(loader, order), ROWS);
            for (size_t i = 0; i < ROWS; i++) {
                assert_int_equal(seen[order[i]]++, 0);
                in_place += order[i] == i;
            }
            assert_true(shuffle ? in_place < ROWS / 2 : in_place == ROWS);
        }
        yoke_loader_destroy(loader);
    }
    yoke_dataset_close(dataset);
}

static void drop_last_leaves_the_short_batch_out(void **state) {
    (void)state;
    static const struct {
        int batch;
        bool drop_last;
        size_t batches, rows;
    } rows[] = {{10, true, 10, 100},  {10, false, 11, 103},    {103, true, 1, 103},
                {103, false, 1, 103}, {104, true, 0, 0},       {104, false, 1, 103},
                {1, true, 103, 103},  {1 << 30, false, 1, 103}};
    yoke_dataset *dataset = open_arrays();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t order[ROWS];
        yoke_loader *loader = create(
            dataset, (yoke_loader_options){.batch = rows[i].batch, .drop_last = rows[i].drop_last});
        assert_int_equal(yoke_loader_batch_count(loader), rows[i].batches);
        EXPECT_OK(yoke_loader_begin(loader, 0));
        assert_int_equal(read_epoch(loader, order), rows[i].rows);
        yoke_loader_destroy(loader);
    }
    yoke_dataset_close(dataset);
}

static uint64_t digest(uint64_t sum, const void *data, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        sum = (sum ^ ((const uint8_t *)data)[i]) * UINT64_C(1099511628211);
    return sum;
}

static uint64_t digest_epoch(const yoke_dataset *dataset, yoke_loader_options options) {
    yoke_loader *loader = create(dataset, options);
    yoke_batch batch;
    uint64_t sum = 0;
    EXPECT_OK(yoke_loader_begin(loader, 3));
    while (next(loader, &batch) > 0) {
        size_t rows = (size_t)batch.rows;
        sum = digest(sum, batch.inputs, rows * yoke_dataset_values(dataset) * sizeof(float));
        sum = digest(sum, batch.labels, rows * sizeof *batch.labels);
    }
    yoke_loader_destroy(loader);
    return sum;
}

static void batches_are_the_same_for_any_threads_and_slots(void **state) {
    (void)state;
    yoke_dataset *dataset = NULL;
    EXPECT_OK(yoke_dataset_open(&dataset, "synthetic:3x16x16,rows=300", YOKE_SPLIT_TRAIN));
    yoke_loader_options options = {.batch = 7,
                                   .shuffle = true,
                                   .augment = YOKE_AUGMENT_CROP_FLIP_CUTOUT,
                                   .seed = 5,
                                   .slots = 1,
                                   .threads = 1};
    uint64_t expected = digest_epoch(dataset, options);
    for (int i = 0; i < 16; i++) {
        options.threads = 1 + i % 4;
        options.slots = 1 + i / 4;
        assert_int_equal(digest_epoch(dataset, options), expected);
    }
    options.seed = 6;
    assert_int_not_equal(digest_epoch(dataset, options), expected);
    yoke_dataset_close(dataset);
}

/* A row source with a counter, a pace, and a row that fails. */
typedef struct maker {
    atomic_int reads;
    long pause_ms;
    atomic_size_t bad_row;
    bool speaks;
    int32_t bad_label;
} maker;

static yoke_status make_row(void *payload, size_t row, float *input, int32_t *label,
                            float *targets) {
    maker *self = payload;
    atomic_fetch_add(&self->reads, 1);
    if (self->pause_ms) sleep_ms(self->pause_ms);
    if (row == atomic_load(&self->bad_row)) {
        if (self->bad_label) {
            *label = self->bad_label;
            return YOKE_OK;
        }
        return self->speaks ? yoke_dataset_open(&(yoke_dataset *){NULL}, "nowhere", YOKE_SPLIT_TEST)
                            : YOKE_ERROR_IO;
    }
    for (int i = 0; i < VALUES; i++)
        input[i] = (float)row;
    if (label) *label = (int32_t)(row % 7);
    if (targets) targets[0] = (float)row, targets[1] = -(float)row;
    return YOKE_OK;
}

static yoke_dataset *open_maker(maker *self, int classes) {
    yoke_row_source source = {.struct_size = sizeof source,
                              .rows = ROWS,
                              .shape = {1, 2, 3, false},
                              .classes = classes,
                              .target_count = classes ? 0 : 2,
                              .read = make_row,
                              .payload = self};
    yoke_dataset *dataset = NULL;
    EXPECT_OK(yoke_dataset_from_callback(&dataset, &source));
    return dataset;
}

static void rows_made_on_demand_arrive_like_stored_ones(void **state) {
    (void)state;
    maker self = {.bad_row = ROWS};
    yoke_dataset *dataset = open_maker(&self, 7);
    yoke_loader *loader =
        create(dataset, (yoke_loader_options){.batch = 9, .shuffle = true, .threads = 3});
    for (uint64_t epoch = 0; epoch < 2; epoch++) {
        size_t order[ROWS];
        EXPECT_OK(yoke_loader_begin(loader, epoch));
        assert_int_equal(read_epoch(loader, order), ROWS);
    }
    assert_int_equal(atomic_load(&self.reads), 2 * ROWS);
    yoke_loader_destroy(loader);
    yoke_dataset_close(dataset);
}

static void regression_targets_arrive_with_their_rows(void **state) {
    (void)state;
    maker self = {.bad_row = ROWS};
    yoke_dataset *dataset = open_maker(&self, 0);
    yoke_loader *loader = create(dataset, (yoke_loader_options){.batch = 10, .shuffle = true});
    yoke_batch batch;
    EXPECT_OK(yoke_loader_begin(loader, 0));
    while (next(loader, &batch) > 0) {
        assert_null(batch.labels);
        for (int i = 0; i < batch.rows; i++) {
            assert_true(batch.targets[2 * i] == batch.inputs[i * VALUES]);
            assert_true(batch.targets[2 * i + 1] == -batch.inputs[i * VALUES]);
        }
    }
    yoke_loader_destroy(loader);
    yoke_loader_options options = {
        .struct_size = sizeof options, .batch = 1, .augment = YOKE_AUGMENT_CROP_FLIP};
    assert_int_equal(yoke_loader_create(&loader, dataset, &options), YOKE_ERROR_ARGUMENT);
    assert_null(loader);
    yoke_dataset_close(dataset);
}

/* Four good batches of ten, then the failing one, as often as it is asked for. */
static void expect_failure(maker *self, yoke_status expected, const char *words) {
    yoke_dataset *dataset = open_maker(self, 7);
    yoke_loader *loader = create(dataset, (yoke_loader_options){.batch = 10, .threads = 2});
    yoke_batch batch = {.struct_size = sizeof batch};
    EXPECT_OK(yoke_loader_begin(loader, 0));
    for (int i = 0; i < 4; i++)
        assert_int_equal(next(loader, &batch), 10);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(yoke_loader_next(loader, &batch, NULL), expected);
        if (!strstr(yoke_last_error(), words))
            fail_msg("'%s' should contain '%s'", yoke_last_error(), words);
    }
    size_t order[ROWS];
    atomic_store(&self->bad_row, ROWS);
    EXPECT_OK(yoke_loader_begin(loader, 1));
    assert_int_equal(read_epoch(loader, order), ROWS);
    yoke_loader_destroy(loader);
    yoke_dataset_close(dataset);
}

static void a_failing_row_ends_the_epoch_at_its_batch_with_its_error(void **state) {
    (void)state;
    maker silent = {.bad_row = 44}, speaking = {.bad_row = 44, .speaks = true};
    maker wrong = {.bad_row = 44, .bad_label = 7};
    expect_failure(&silent, YOKE_ERROR_IO, "row 44 of the row source returned YOKE_ERROR_IO");
    expect_failure(&speaking, YOKE_ERROR_ARGUMENT, "row 44 of the row source: unknown dataset");
    expect_failure(&wrong, YOKE_ERROR_ARGUMENT,
                   "row 44: the row source gave label 7, expected 0..6");
}

static void an_epoch_ended_at_any_batch_leaves_the_next_in_randperms_order(void **state) {
    (void)state;
    yoke_dataset *dataset = open_arrays();
    yoke_loader *loader = create(
        dataset, (yoke_loader_options){.batch = 4, .shuffle = true, .seed = 40, .threads = 3});
    for (int stop = 0; stop < 27; stop++) {
        yoke_batch batch;
        EXPECT_OK(yoke_loader_begin(loader, (uint64_t)stop));
        for (int i = 0; i < stop; i++)
            next(loader, &batch);
    }
    size_t order[ROWS];
    int64_t expected[ROWS];
    EXPECT_OK(yoke_loader_begin(loader, 2));
    assert_int_equal(read_epoch(loader, order), ROWS);
    yoke_randperm(expected, ROWS, 42);
    for (size_t i = 0; i < ROWS; i++)
        assert_int_equal(order[i], expected[i]);
    yoke_loader_destroy(loader);
    yoke_dataset_close(dataset);
}

/* A callback that counts its calls shows that no earlier row is read. */
typedef struct counted_rows {
    atomic_int calls;
} counted_rows;

static yoke_status count_row(void *payload, size_t row, float *input, int32_t *label,
                             float *targets) {
    (void)targets;
    atomic_fetch_add(&((counted_rows *)payload)->calls, 1);
    for (int i = 0; i < VALUES; i++)
        input[i] = (float)row;
    *label = 0;
    return YOKE_OK;
}

static void an_epoch_begun_at_any_batch_gives_the_rest_and_reads_no_more(void **state) {
    (void)state;
    counted_rows counted = {0};
    yoke_row_source source = {.struct_size = sizeof source,
                              .rows = ROWS,
                              .shape = {1, 2, 3, false},
                              .classes = 7,
                              .read = count_row,
                              .payload = &counted};
    yoke_dataset *dataset = NULL;
    EXPECT_OK(yoke_dataset_from_callback(&dataset, &source));
    yoke_loader *loader =
        create(dataset, (yoke_loader_options){.batch = 10, .shuffle = true, .seed = 5});
    float rows[ROWS];
    yoke_batch batch;
    for (size_t first = 0; first <= 11; first++) {
        EXPECT_OK(yoke_loader_begin_at(loader, 3, first));
        if (first > 0) atomic_store(&counted.calls, 0);
        size_t row = 10 * first;
        for (int count; (count = next(loader, &batch)) > 0;)
            for (int i = 0; i < count; i++, row++) {
                if (first == 0) rows[row] = batch.inputs[i * VALUES];
                assert_true(batch.inputs[i * VALUES] == rows[row]);
            }
        assert_true(row >= ROWS);
        assert_true(atomic_load(&counted.calls) <= ROWS - (first < 11 ? (int)(10 * first) : ROWS));
    }
    assert_int_equal(yoke_loader_begin_at(loader, 0, 12), YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "batch 12 of an epoch: it has 11"));
    yoke_loader_destroy(loader);
    yoke_dataset_close(dataset);
}

static void destroying_a_running_loader_neither_hangs_nor_reads_on(void **state) {
    (void)state;
    yoke_loader_destroy(NULL);
    for (int taken = 0; taken < 4; taken++) {
        maker self = {.bad_row = ROWS, .pause_ms = 2};
        yoke_dataset *dataset = open_maker(&self, 7);
        yoke_loader *loader = create(dataset, (yoke_loader_options){.batch = 5, .threads = 2});
        yoke_batch batch;
        if (taken > 0) EXPECT_OK(yoke_loader_begin(loader, 0));
        for (int i = 1; i < taken; i++)
            next(loader, &batch);
        yoke_loader_destroy(loader);
        int reads = atomic_load(&self.reads);
        assert_true(reads < ROWS);
        sleep_ms(10);
        assert_int_equal(atomic_load(&self.reads), reads);
        yoke_dataset_close(dataset);
    }
}

static void waiting_is_nothing_when_ahead_and_something_when_not(void **state) {
    (void)state;
    maker self = {.bad_row = ROWS, .pause_ms = 25};
    yoke_dataset *dataset = open_maker(&self, 7);
    yoke_loader *loader = create(dataset, (yoke_loader_options){.batch = 2, .slots = 3});
    yoke_batch batch = {.struct_size = sizeof batch};
    uint64_t waited_ns = 0;
    EXPECT_OK(yoke_loader_begin(loader, 0));
    EXPECT_OK(yoke_loader_next(loader, &batch, &waited_ns));
    assert_in_range(waited_ns, 1000000, UINT64_C(10000000000));
    while (atomic_load(&self.reads) < 8)
        sleep_ms(5);
    sleep_ms(100);
    assert_int_equal(atomic_load(&self.reads), 8); /* three ahead of the one in hand */
    for (int i = 0; i < 3; i++) {
        EXPECT_OK(yoke_loader_next(loader, &batch, &waited_ns));
        assert_int_equal(waited_ns, 0);
    }
    yoke_loader_destroy(loader);
    yoke_dataset_close(dataset);
}

static void a_batch_stays_untouched_until_the_next_call(void **state) {
    (void)state;
    yoke_dataset *dataset = open_arrays();
    yoke_loader *loader = create(dataset, (yoke_loader_options){.batch = 3, .slots = 1});
    yoke_batch batch;
    EXPECT_OK(yoke_loader_begin(loader, 0));
    for (int first = 0; next(loader, &batch) > 0; first += 3) {
        if (first % 30 == 0) sleep_ms(2);
        for (int i = 0; i < batch.rows; i++)
            assert_true(batch.inputs[i * VALUES] == (float)(first + i));
    }
    yoke_loader_destroy(loader);
    yoke_dataset_close(dataset);
}

static void misuse_is_refused_with_an_explanation(void **state) {
    (void)state;
    yoke_dataset *dataset = open_arrays();
    static const struct {
        yoke_loader_options options;
        const char *words;
    } rows[] = {
        {{.batch = 0}, "a batch of 0 rows"},
        {{.batch = 1, .slots = 65}, "65 loader slots"},
        {{.batch = 1, .threads = -1}, "-1 loader threads"},
        {{.batch = 1, .augment = (yoke_augment)9}, "augmentation 9"},
        {{.batch = 1, .crop_flip = {.padding = 2}}, "set augment to one that crops"},
        {{.batch = 1, .crop_flip = {.reflect = true}}, "set augment to one that crops"},
        {{.batch = 1, .crop_flip = {.alternate = true}}, "set augment to one that mirrors"},
        {{.batch = 1, .augment = YOKE_AUGMENT_CROP_FLIP, .crop_flip = {-1, false, false}},
         "a padding of -1"},
        {{.batch = 1, .augment = YOKE_AUGMENT_CROP_FLIP, .crop_flip = {2, true, false}},
         "a padding of 2 for images of 2 x 3"},
        {{.batch = 1, .world = 2, .shards = 8, .first_shard = 6, .own_shards = 3}, "there are 8"},
        {{.batch = 1, .world = 2, .shards = 8, .first_shard = -1, .own_shards = 3}, "there are 8"},
        {{.batch = 1, .world = 2, .shards = 8, .own_shards = -1}, "own_shards -1"},
    };
    yoke_loader *loader = NULL;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        yoke_loader_options options = rows[i].options;
        options.struct_size = sizeof options;
        assert_int_equal(yoke_loader_create(&loader, dataset, &options), YOKE_ERROR_ARGUMENT);
        assert_null(loader);
        assert_non_null(strstr(yoke_last_error(), rows[i].words));
    }
    loader = create(dataset, (yoke_loader_options){.batch = 2});
    yoke_batch batch = {.struct_size = sizeof batch};
    assert_int_equal(yoke_loader_next(loader, &batch, NULL), YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "yoke_loader_begin"));
    assert_int_equal(yoke_loader_begin(NULL, 0), YOKE_ERROR_ARGUMENT);
    yoke_loader_destroy(loader);
    yoke_dataset_close(dataset);
}

/* A loader's thread may be reading: what changes the rows must come before it. */
static void a_dataset_stays_as_it_is_while_a_loader_reads_it(void **state) {
    (void)state;
    static const float ones[4] = {1, 1, 1, 1};
    yoke_dataset *dataset = NULL;
    yoke_loader *loader = NULL;
    yoke_loader_options options = {.struct_size = sizeof options, .batch = 4};
    assert_int_equal(yoke_dataset_open(&dataset, "synthetic:1x8x8,rows=20", YOKE_SPLIT_TRAIN), 0);
    assert_int_equal(yoke_loader_create(&loader, dataset, &options), YOKE_OK);
    assert_int_equal(yoke_dataset_limit(dataset, 5), YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "1 loader of synthetic reads its rows"));
    assert_int_equal(yoke_dataset_skip_bad(dataset, 1, NULL, NULL), YOKE_ERROR_ARGUMENT);
    assert_int_equal(yoke_dataset_normalize(dataset, ones, ones), YOKE_ERROR_ARGUMENT);
    yoke_loader_destroy(loader);
    assert_int_equal(yoke_dataset_limit(dataset, 5), YOKE_OK);
    yoke_dataset_close(dataset);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_comes_once_an_epoch),
        cmocka_unit_test(drop_last_leaves_the_short_batch_out),
        cmocka_unit_test(batches_are_the_same_for_any_threads_and_slots),
        cmocka_unit_test(rows_made_on_demand_arrive_like_stored_ones),
        cmocka_unit_test(regression_targets_arrive_with_their_rows),
        cmocka_unit_test(a_failing_row_ends_the_epoch_at_its_batch_with_its_error),
        cmocka_unit_test(an_epoch_ended_at_any_batch_leaves_the_next_in_randperms_order),
        cmocka_unit_test(an_epoch_begun_at_any_batch_gives_the_rest_and_reads_no_more),
        cmocka_unit_test(destroying_a_running_loader_neither_hangs_nor_reads_on),
        cmocka_unit_test(waiting_is_nothing_when_ahead_and_something_when_not),
        cmocka_unit_test(a_batch_stays_untouched_until_the_next_call),
        cmocka_unit_test(misuse_is_refused_with_an_explanation),
        cmocka_unit_test(a_dataset_stays_as_it_is_while_a_loader_reads_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
