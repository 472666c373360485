/* SPDX-License-Identifier: Apache-2.0 */
/* Batches lose the padding that none of their rows needs, and rows of about one length come
 * together. */
#include "data_folder.h"
#include "fixtures/fixture.h"
#include "yoke/elementary.h"
#include "yoke/transformer.h"

enum { ROWS = 230, POSITIONS = 12, BATCH = 4 };

typedef struct rows_of_lengths {
    float inputs[ROWS * POSITIONS], extra[ROWS * POSITIONS * 2], lengths[ROWS];
    int32_t labels[ROWS * POSITIONS];
    yoke_row_input more[2];
} rows_of_lengths;

static rows_of_lengths made;

static int length_of(int row) {
    return 1 + row * 7 % POSITIONS;
}

/* Position i of row r has the input 100 r + i, the features r and i, the label (r + i) mod 5. */
static yoke_dataset *open_rows(const char *name) {
    for (int row = 0; row < ROWS; row++) {
        made.lengths[row] = (float)length_of(row);
        for (int i = 0; i < POSITIONS; i++) {
            int at = row * POSITIONS + i;
            made.inputs[at] = (float)(100 * row + i);
            made.extra[2 * at] = (float)row;
            made.extra[2 * at + 1] = (float)i;
            made.labels[at] = i < length_of(row) ? (row + i) % 5 : YOKE_NO_LABEL;
        }
    }
    const yoke_row_input extra = {sizeof extra, "extra", yoke_shape_sequence(POSITIONS, 2),
                                  made.extra};
    const yoke_row_input length = {sizeof length, name, yoke_shape_vector(1), made.lengths};
    made.more[0] = extra;
    made.more[1] = length;
    yoke_arrays arrays = {.struct_size = sizeof arrays,
                          .rows = ROWS,
                          .shape = yoke_shape_vector(POSITIONS),
                          .inputs = made.inputs,
                          .classes = 5,
                          .labels = made.labels,
                          .label_count = POSITIONS,
                          .more_inputs = made.more,
                          .more_input_count = 2};
    yoke_dataset *dataset = NULL;
    must(yoke_dataset_from_arrays(&dataset, &arrays));
    return dataset;
}

static yoke_model *model_of(int positions) {
    yoke_model *model = NULL;
    yoke_embedding_options embedding = YOKE_EMBEDDING_OPTIONS_INIT;
    yoke_linear_options linear = YOKE_LINEAR_OPTIONS_INIT;
    embedding.name = "embedding";
    embedding.count = 10;
    embedding.features = 2;
    linear.name = "fc";
    linear.out_features = 5;
    must(yoke_model_create(&model, "reader", yoke_shape_vector(positions)));
    yoke_value extra = yoke_model_add_input(model, "extra", yoke_shape_sequence(positions, 2));
    yoke_value value = yoke_embedding(model, yoke_model_input(model), &embedding);
    value = yoke_linear(model, yoke_add(model, value, extra), &linear);
    must(yoke_model_finish(model, value, NULL));
    return model;
}

static void check_batch(const yoke_batch *batch, const int *positions, int *seen) {
    size_t width = (size_t)positions[batch->model], rows = (size_t)batch->rows;
    int longest = 0;
    assert_int_equal(batch->inputs_count, rows * width);
    assert_int_equal(batch->labels_count, rows * width);
    assert_int_equal(batch->more_inputs_counts[0], rows * width * 2);
    for (size_t i = 0; i < rows; i++) {
        int row = (int)batch->inputs[i * width] / 100;
        seen[row]++;
        if (length_of(row) > longest) longest = length_of(row);
        for (size_t k = 0; k < width; k++) {
            assert_true(batch->inputs[i * width + k] == (float)(100 * row + (int)k));
            assert_true(batch->more_inputs[0][(i * width + k) * 2] == (float)row);
            assert_true(batch->more_inputs[0][(i * width + k) * 2 + 1] == (float)k);
            assert_int_equal(batch->labels[i * width + k], made.labels[row * POSITIONS + (int)k]);
        }
    }
    if (batch->whole_rows > batch->rows) return; /* another rank has the longest row, perhaps */
    for (int k = 0; k < 3; k++)                  /* no model that holds the rows is shorter */
        assert_true(positions[k] < longest || positions[k] >= (int)width);
}

static yoke_loader *open_loader(const yoke_dataset *dataset, yoke_sampling sampling, int rank,
                                int world) {
    yoke_loader_options options = YOKE_LOADER_OPTIONS_INIT;
    yoke_loader *loader = NULL;
    options.batch = BATCH, options.shuffle = true, options.sampling = sampling;
    options.rank = rank, options.world = world, options.seed = 3;
    must(yoke_loader_create(&loader, dataset, &options));
    return loader;
}

static void a_batch_goes_to_the_shortest_model_that_holds_it(void **state) {
    (void)state;
    static const int positions[] = {POSITIONS, 4, 8};
    yoke_dataset *dataset = open_rows("target_length");
    yoke_model *model = model_of(POSITIONS), *four = model_of(4), *eight = model_of(8);
    const yoke_model *const shorter[] = {four, eight};
    for (int sampling = 0; sampling < 2; sampling++) {
        int seen[ROWS] = {0}, models[3] = {0}, of_ranks[2][ROWS] = {{0}};
        for (int rank = 0; rank < 2; rank++) {
            yoke_batch batch = {.struct_size = sizeof batch};
            yoke_loader *loader = open_loader(
                dataset, sampling ? YOKE_SAMPLING_BY_LENGTH : YOKE_SAMPLING_EACH, rank, 2);
            must(yoke_loader_select_inputs(loader, model));
            must(yoke_loader_shorten(loader, shorter, 2));
            must(yoke_loader_begin(loader, 1));
            for (int i = 0;; i++) {
                must(yoke_loader_next(loader, &batch, NULL));
                if (batch.whole_rows == 0) break;
                models[batch.model]++;
                of_ranks[rank][i] = batch.model;
                check_batch(&batch, positions, seen);
            }
            yoke_loader_destroy(loader);
        }
        for (int row = 0; row < ROWS; row++)
            assert_int_equal(seen[row], 1);
        assert_memory_equal(of_ranks[0], of_ranks[1], sizeof of_ranks[0]);
        if (sampling) assert_true(models[0] > 20 && models[1] > 20 && models[2] > 20);
    }
    yoke_model_destroy(model);
    yoke_model_destroy(four);
    yoke_model_destroy(eight);
    yoke_dataset_close(dataset);
}

/* 230 rows are one window of batches and 30 rows: in the first, a batch has one or two lengths. */
static void batches_by_length_have_few_lengths_in_a_random_order(void **state) {
    (void)state;
    yoke_dataset *dataset = open_rows("length");
    yoke_loader *loader = open_loader(dataset, YOKE_SAMPLING_BY_LENGTH, 0, 1);
    yoke_batch batch = {.struct_size = sizeof batch};
    int spread = 0, ascending = 0, last = 0, count = 0;
    must(yoke_loader_begin(loader, 0));
    for (;; count++) {
        must(yoke_loader_next(loader, &batch, NULL));
        if (batch.rows == 0) break;
        int least = POSITIONS, most = 0;
        for (int i = 0; i < batch.rows; i++) {
            int length = length_of((int)batch.inputs[i * POSITIONS] / 100);
            if (length < least) least = length;
            if (length > most) most = length;
        }
        spread += most - least;
        ascending += most >= last;
        last = most;
        if (count == ROWS / BATCH) assert_int_equal(batch.rows, ROWS % BATCH);
    }
    assert_int_equal(count, ROWS / BATCH + 1);
    assert_true(spread <= count); /* of random batches it is about 7 each */
    assert_true(ascending < 3 * count / 4);
    yoke_loader_destroy(loader);
    yoke_dataset_close(dataset);
}

static void expect_refused(yoke_status status, const char *words) {
    assert_int_equal(status, YOKE_ERROR_ARGUMENT);
    if (strstr(yoke_last_error(), words) == NULL)
        fail_msg("'%s' should contain '%s'", yoke_last_error(), words);
}

static void rows_without_lengths_are_refused(void **state) {
    (void)state;
    yoke_dataset *dataset = open_rows("size");
    yoke_loader *loader = open_loader(dataset, YOKE_SAMPLING_EACH, 0, 1), *other = NULL;
    yoke_model *four = model_of(4), *more = model_of(POSITIONS + 1);
    const yoke_model *const shorter[] = {four}, *const longer[] = {more};
    yoke_loader_options options = YOKE_LOADER_OPTIONS_INIT;
    expect_refused(yoke_loader_shorten(loader, shorter, 1), "shorter models need the length");
    options.batch = BATCH, options.sampling = YOKE_SAMPLING_BY_LENGTH;
    expect_refused(yoke_loader_create(&other, dataset, &options), "it needs shuffle");
    options.shuffle = true;
    expect_refused(yoke_loader_create(&other, dataset, &options), "has no input 'length'");
    yoke_loader_destroy(loader);
    yoke_dataset_close(dataset);
    dataset = open_rows("length");
    loader = open_loader(dataset, YOKE_SAMPLING_EACH, 0, 1);
    expect_refused(yoke_loader_shorten(loader, longer, 1), "has 13 values a row, the dataset's 12");
    yoke_loader_destroy(loader);
    yoke_dataset_close(dataset);
    yoke_model_destroy(four);
    yoke_model_destroy(more);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_batch_goes_to_the_shortest_model_that_holds_it),
        cmocka_unit_test(batches_by_length_have_few_lengths_in_a_random_order),
        cmocka_unit_test(rows_without_lengths_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
