/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of several inputs, from arrays, a callback and files, reach a batch by the names that a
 * model gives its inputs. */
#include "data_folder.h"
#include "fixtures/fixture.h"
#include "yoke/elementary.h"

enum { ROWS = 7, WIDTH = 3, MASK = 4 };

static const int32_t labels[ROWS] = {0, 1, YOKE_NO_LABEL, 1, 0, 1, 0};

typedef struct arrays_of_rows {
    float inputs[ROWS * WIDTH], masks[ROWS * MASK], lengths[ROWS];
    yoke_row_input more[2];
    yoke_arrays arrays;
} arrays_of_rows;

/* Value i of the first input is i, of the mask 100 + i, of the length 200 + i. */
static void make_arrays(arrays_of_rows *made) {
    for (int i = 0; i < ROWS * WIDTH; i++)
        made->inputs[i] = (float)i;
    for (int i = 0; i < ROWS * MASK; i++)
        made->masks[i] = (float)(100 + i);
    for (int i = 0; i < ROWS; i++)
        made->lengths[i] = (float)(200 + i);
    const yoke_row_input mask = {sizeof mask, "mask", yoke_shape_image(1, 2, 2), made->masks};
    const yoke_row_input length = {sizeof length, "length", yoke_shape_vector(1), made->lengths};
    made->more[0] = mask;
    made->more[1] = length;
    made->arrays = (yoke_arrays){.struct_size = sizeof made->arrays,
                                 .rows = ROWS,
                                 .shape = yoke_shape_vector(WIDTH),
                                 .inputs = made->inputs,
                                 .classes = 2,
                                 .labels = labels,
                                 .more_inputs = made->more,
                                 .more_input_count = 2};
}

static yoke_dataset *open_rows(arrays_of_rows *made) {
    yoke_dataset *dataset = NULL;
    make_arrays(made);
    must(yoke_dataset_from_arrays(&dataset, &made->arrays));
    return dataset;
}

/* Reads the first input, then `first` and perhaps `second`. */
static yoke_model *model_of(const char *first, yoke_shape shape, const char *second) {
    yoke_model *model = NULL;
    must(yoke_model_create(&model, "reader", yoke_shape_vector(WIDTH)));
    yoke_value value = yoke_flatten(model, yoke_model_add_input(model, first, shape));
    if (second != NULL)
        value = yoke_concat_along(model, value,
                                  yoke_model_add_input(model, second, yoke_shape_vector(MASK)),
                                  YOKE_AXIS_CHANNELS);
    yoke_linear_options linear = YOKE_LINEAR_OPTIONS_INIT;
    linear.name = "fc";
    linear.out_features = 2;
    value = yoke_concat_along(model, yoke_model_input(model), value, YOKE_AXIS_CHANNELS);
    must(yoke_model_finish(model, yoke_linear(model, value, &linear), NULL));
    return model;
}

/* An epoch of shuffled batches of this rank: each row brings its own values of every input. */
static void check_epoch(const yoke_dataset *dataset, const yoke_model *model, int rank, int world,
                        int *seen) {
    yoke_loader_options options = YOKE_LOADER_OPTIONS_INIT;
    yoke_loader *loader = NULL;
    yoke_batch batch = {.struct_size = sizeof batch};
    options.batch = 3, options.shuffle = true, options.rank = rank, options.world = world;
    must(yoke_loader_create(&loader, dataset, &options));
    if (model != NULL) must(yoke_loader_select_inputs(loader, model));
    must(yoke_loader_begin(loader, 1));
    for (;;) {
        must(yoke_loader_next(loader, &batch, NULL));
        if (batch.rows == 0 && batch.whole_rows == 0) break;
        int mask = model != NULL ? 1 : 0; /* the models read the length first */
        assert_int_equal(batch.more_input_count, 2);
        assert_int_equal(batch.more_inputs_counts[mask], batch.rows * MASK);
        assert_int_equal(batch.more_inputs_counts[1 - mask], batch.rows);
        for (int i = 0; i < batch.rows; i++) {
            int row = (int)batch.inputs[i * WIDTH] / WIDTH;
            seen[row]++;
            assert_int_equal(batch.labels[i], labels[row]);
            assert_true(batch.more_inputs[1 - mask][i] == (float)(200 + row));
            for (int k = 0; k < MASK; k++)
                assert_true(batch.more_inputs[mask][i * MASK + k] == (float)(100 + row * MASK + k));
        }
    }
    yoke_loader_destroy(loader);
}

static void each_row_brings_its_inputs(void **state) {
    (void)state;
    arrays_of_rows made;
    yoke_dataset *dataset = open_rows(&made);
    yoke_model *model = model_of("length", yoke_shape_vector(1), "mask");
    for (int world = 1; world <= 2; world++)
        for (int selects = 0; selects < 2; selects++) {
            int seen[ROWS] = {0};
            for (int rank = 0; rank < world; rank++)
                check_epoch(dataset, selects ? model : NULL, rank, world, seen);
            for (int row = 0; row < ROWS; row++)
                assert_int_equal(seen[row], 1);
        }
    yoke_model_destroy(model);
    yoke_dataset_close(dataset);
}

static void a_dataset_describes_its_inputs_and_its_loss(void **state) {
    (void)state;
    arrays_of_rows made;
    yoke_dataset *dataset = open_rows(&made);
    yoke_dataset_info info = {.struct_size = sizeof info};
    yoke_value_info input = {.struct_size = sizeof input};
    yoke_loss_options loss = {.struct_size = sizeof loss};
    must(yoke_dataset_describe(dataset, &info));
    assert_int_equal(info.input_count, 3);
    assert_true(info.unlabelled);
    must(yoke_dataset_describe_input(dataset, 1, &input));
    assert_string_equal(input.name, "mask");
    assert_int_equal(input.row_count, MASK);
    must(yoke_dataset_describe_input(dataset, 0, &input));
    assert_string_equal(input.name, "input");
    assert_int_equal(yoke_dataset_describe_input(dataset, 3, &input), YOKE_ERROR_ARGUMENT);
    must(yoke_dataset_default_loss(dataset, &loss));
    assert_int_equal(loss.kind, YOKE_LOSS_CROSS_ENTROPY);
    assert_true(loss.set_ignore_index && loss.ignore_index == YOKE_NO_LABEL);
    yoke_dataset_close(dataset);
}

static void expect_words(const char *words) {
    if (strstr(yoke_last_error(), words) == NULL)
        fail_msg("'%s' should contain '%s'", yoke_last_error(), words);
}

static void a_model_that_needs_other_inputs_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *name;
        yoke_shape shape;
        const char *words;
    } cases[] = {{"masks", {MASK, 1, 1, true, false}, "reads an input 'masks' (4x1x1) of each row"},
                 {"lengths", {1, 1, 1, true, false}, "'mask' (1x2x2), 'length' (1x1x1)"},
                 {"mask", {5, 1, 1, true, false}, "is 5x1x1, that of dataset 'arrays' 1x2x2"}};
    arrays_of_rows made;
    yoke_dataset *dataset = open_rows(&made);
    yoke_loader_options options = YOKE_LOADER_OPTIONS_INIT;
    yoke_loader *loader = NULL;
    options.batch = 2;
    must(yoke_loader_create(&loader, dataset, &options));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        yoke_model *model = model_of(cases[i].name, cases[i].shape, NULL);
        assert_int_equal(yoke_loader_select_inputs(loader, model), YOKE_ERROR_ARGUMENT);
        expect_words(cases[i].words);
        yoke_model_destroy(model);
    }
    yoke_loader_destroy(loader);
    yoke_dataset_close(dataset);
}

static void inputs_that_cannot_be_are_refused(void **state) {
    (void)state;
    arrays_of_rows made;
    static const char long_name[] = "a_name_of_more_than_forty_seven_characters_is_too_long";
    static const struct {
        const char *name, *words;
    } names[] = {{NULL, "needs a name of 1 to 47"},
                 {"", "needs a name of 1 to 47"},
                 {long_name, "needs a name of 1 to 47"},
                 {"input", "which is the first one's name"},
                 {"length", "two inputs of the rows are named 'length'"}};
    yoke_dataset *dataset = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        make_arrays(&made);
        made.more[0].name = names[i].name;
        assert_int_equal(yoke_dataset_from_arrays(&dataset, &made.arrays), YOKE_ERROR_ARGUMENT);
        expect_words(names[i].words);
    }
    make_arrays(&made);
    made.more[1].values = NULL;
    assert_int_equal(yoke_dataset_from_arrays(&dataset, &made.arrays), YOKE_ERROR_ARGUMENT);
    expect_words("more_inputs[1].values is NULL");
    make_arrays(&made);
    made.more[0].shape.height = 0;
    assert_int_equal(yoke_dataset_from_arrays(&dataset, &made.arrays), YOKE_ERROR_ARGUMENT);
    expect_words("input 'mask': rows of shape 1x0x2");
    make_arrays(&made);
    made.arrays.more_inputs = NULL;
    assert_int_equal(yoke_dataset_from_arrays(&dataset, &made.arrays), YOKE_ERROR_ARGUMENT);
    expect_words("more_input_count is 2 and more_inputs is NULL");
}

/* Callbacks. */

static yoke_status read_row(void *payload, size_t row, float *const *inputs, int32_t *label,
                            float *targets) {
    const arrays_of_rows *from = payload;
    (void)targets;
    memcpy(inputs[0], from->inputs + row * WIDTH, WIDTH * sizeof **inputs);
    memcpy(inputs[1], from->masks + row * MASK, MASK * sizeof **inputs);
    inputs[2][0] = from->lengths[row];
    *label = labels[row];
    return YOKE_OK;
}

static void a_callback_writes_every_input(void **state) {
    (void)state;
    arrays_of_rows from;
    make_arrays(&from);
    from.more[0].values = from.more[1].values = NULL;
    yoke_dataset *dataset = NULL;
    yoke_row_source source = {.struct_size = sizeof source,
                              .rows = ROWS,
                              .shape = yoke_shape_vector(WIDTH),
                              .classes = 2,
                              .payload = &from,
                              .more_inputs = from.more,
                              .more_input_count = 2};
    assert_int_equal(yoke_dataset_from_callback(&dataset, &source), YOKE_ERROR_ARGUMENT);
    expect_words("none of yoke_row_source.read, read_batch and read_inputs");
    source.read_inputs = read_row;
    must(yoke_dataset_from_callback(&dataset, &source));
    int seen[ROWS] = {0};
    check_epoch(dataset, NULL, 0, 1, seen);
    for (int row = 0; row < ROWS; row++)
        assert_int_equal(seen[row], 1);
    yoke_dataset_close(dataset);
}

/* Files: value i of the tokens is i mod 7, of the mask i / 4; row r has the length r mod 5 + 1. */

static yoke_status open_file(yoke_dataset **dataset, const char *file, const char *words,
                             yoke_split split) {
    char spec[512];
    snprintf(spec, sizeof spec, "npz:%s/tests/fixtures/arrays/%s%s", YOKE_SOURCE_DIR, file, words);
    return yoke_dataset_open(dataset, spec, split);
}

static void check_file(const char *file, yoke_split split, size_t rows) {
    yoke_dataset *dataset = NULL;
    must(open_file(&dataset, file, ",input=length,input=mask", split));
    assert_int_equal(dataset->rows, rows);
    assert_int_equal(dataset->classes, 3);
    assert_int_equal(dataset->label_count, 5);
    assert_int_equal(dataset->more_count, 2);
    for (size_t row = 0; row < dataset->rows; row++) {
        size_t stored = yoke_dataset_stored(dataset, row), length = stored % 5 + 1;
        assert_true(dataset->more[0].floats[stored] == (float)length);
        for (size_t i = 0; i < 6; i++)
            assert_true(dataset->more[1].floats[stored * 6 + i] == (float)(stored * 6 + i) / 4);
        for (size_t i = 0; i < 5; i++) {
            assert_true(yoke_dataset_row(dataset, stored).floats[i] ==
                        (float)((stored * 5 + i) % 7));
            int32_t label = i < length ? (int32_t)((stored * 5 + 4 - i) % 7 % 3) : YOKE_NO_LABEL;
            assert_int_equal(dataset->labels[stored * 5 + i], label);
        }
    }
    yoke_dataset_close(dataset);
}

static void arrays_of_an_archive_are_inputs(void **state) {
    (void)state;
    check_file("sequences.npz", YOKE_SPLIT_TRAIN, 18);
    check_file("sequences.npz", YOKE_SPLIT_TEST, 2);
    check_file("parted.npz", YOKE_SPLIT_TRAIN, 14);
    check_file("parted.npz", YOKE_SPLIT_TEST, 6);
}

static void arrays_that_do_not_fit_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *words, *said;
        yoke_status status;
    } cases[] = {{",input=short", "shape (19,), but x has 20 rows", YOKE_ERROR_DATA},
                 {",input=other", "has no array 'other'; its arrays are x, y,", YOKE_ERROR_MISSING},
                 {",input=length,input=length", "two inputs of the rows", YOKE_ERROR_ARGUMENT},
                 {",inpt=length", "did you mean 'input'", YOKE_ERROR_ARGUMENT}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        yoke_dataset *dataset = NULL;
        assert_int_equal(open_file(&dataset, "sequences.npz", cases[i].words, YOKE_SPLIT_TRAIN),
                         cases[i].status);
        expect_words(cases[i].said);
    }
}

static void mixup_of_several_inputs_is_refused(void **state) {
    (void)state;
    arrays_of_rows made;
    yoke_dataset *dataset = open_rows(&made);
    yoke_loader_options options = YOKE_LOADER_OPTIONS_INIT;
    yoke_loader *loader = NULL;
    options.batch = 2, options.mixup = 0.2;
    assert_int_equal(yoke_loader_create(&loader, dataset, &options), YOKE_ERROR_ARGUMENT);
    expect_words("mixup is for rows with one input");
    yoke_dataset_close(dataset);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_row_brings_its_inputs),
        cmocka_unit_test(a_dataset_describes_its_inputs_and_its_loss),
        cmocka_unit_test(a_model_that_needs_other_inputs_is_refused),
        cmocka_unit_test(inputs_that_cannot_be_are_refused),
        cmocka_unit_test(a_callback_writes_every_input),
        cmocka_unit_test(arrays_of_an_archive_are_inputs),
        cmocka_unit_test(arrays_that_do_not_fit_are_refused),
        cmocka_unit_test(mixup_of_several_inputs_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
