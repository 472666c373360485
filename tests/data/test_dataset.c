/* SPDX-License-Identifier: Apache-2.0 */
/* Which datasets open, which are refused, and with which message. */
#include "data_folder.h"

static void missing_files_are_named_with_their_archive(void **state) {
    (void)state;
    expect_error("cifar10", YOKE_SPLIT_TRAIN, YOKE_ERROR_MISSING, "data_batch_1.bin");
    expect_error("cifar10", YOKE_SPLIT_TEST, YOKE_ERROR_MISSING, "cifar-10-binary.tar.gz");
    expect_error("cifar100", YOKE_SPLIT_TRAIN, YOKE_ERROR_MISSING, "train.bin");
    expect_error("mnist", YOKE_SPLIT_TEST, YOKE_ERROR_MISSING, "t10k-images-idx3-ubyte.gz");
}

static void specs_that_mean_nothing_are_refused_with_the_nearest_one(void **state) {
    (void)state;
    static const struct {
        const char *spec, *words;
    } rows[] = {
        {NULL, "NULL"},
        {"", "known: images:DIR, npy:"},
        {"cifr10:x", "did you mean 'cifar10'"},
        {"sinthetic", "did you mean 'synthetic'"},
        {"imagenet:x", "unknown dataset 'imagenet'"},
        {"cifar10", "write cifar10:DIR"},
        {"mnist:", "write mnist:DIR"},
        {"synthetic:3x32", "'3x32' is not a shape"},
        {"synthetic:3x32x32x3", "width '32x3'"},
        {"synthetic:0x32x32", "channels '0'"},
        {"synthetic:3x4x32", "height '4': expected 8..1024"},
        {"synthetic:3x32x99999", "width '99999'"},
        {"synthetic:3x32x32,", "unknown setting ''"},
        {"synthetic:3x32x32,clases=4", "did you mean classes"},
        {"synthetic:3x32x32,classes", "classes ''"},
        {"synthetic:3x32x32,classes=1", "classes '1': expected 2..100"},
        {"synthetic:3x32x32,classes=101", "classes '101': expected 2..100"},
        {"synthetic:3x32x32,rows=0", "rows '0'"},
        {"synthetic:3x32x32,rows=5,rows=6", "rows is set twice"},
        {"synthetic:3x32x32,rows=5x", "rows '5x'"},
        {"text:x,context=8,validation=0.1,context=9", "text: context is set twice"},
        {"images:x,size=32,size=64", "images: size is set twice"},
        {"synthetic:64x1024x1024,rows=1000000", "at most 16 GiB"},
        {"synthetic:rows=5,3x32x32", "unknown setting '3x32x32'"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        yoke_dataset *dataset = NULL;
        assert_int_equal(yoke_dataset_open(&dataset, rows[i].spec, YOKE_SPLIT_TRAIN),
                         YOKE_ERROR_ARGUMENT);
        assert_null(dataset);
        if (!strstr(yoke_last_error(), rows[i].words))
            fail_msg("'%s' should contain '%s'", yoke_last_error(), rows[i].words);
    }
}

static void a_path_too_long_is_refused(void **state) {
    (void)state;
    char spec[5000];
    memset(spec, 'x', sizeof spec);
    memcpy(spec, "cifar10:", 8);
    spec[sizeof spec - 1] = 0;
    yoke_dataset *dataset = NULL;
    assert_int_equal(yoke_dataset_open(&dataset, spec, YOKE_SPLIT_TRAIN), YOKE_ERROR_ARGUMENT);
}

static const uint8_t two_rows[2][2] = {{0, 255}, {255, 0}};
static const int32_t two_labels[2] = {0, 1};

static yoke_arrays good_arrays(void) {
    return (yoke_arrays){.struct_size = sizeof(yoke_arrays),
                         .rows = 2,
                         .shape = {.channels = 2, .height = 1, .width = 1, .flat = true},
                         .pixels = two_rows[0],
                         .classes = 2,
                         .labels = two_labels};
}

static void arrays_are_borrowed_and_measured(void **state) {
    (void)state;
    yoke_arrays arrays = good_arrays();
    yoke_dataset *dataset = NULL;
    assert_int_equal(yoke_dataset_from_arrays(&dataset, &arrays), YOKE_OK);
    assert_ptr_equal(dataset->bytes, two_rows);
    assert_true(dataset->mean[0] == 0.5f && dataset->std[1] == 0.5f);
    yoke_dataset_close(dataset);
}

static void expect_refused(const yoke_arrays *arrays, const char *words) {
    yoke_dataset *dataset = NULL;
    assert_int_equal(yoke_dataset_from_arrays(&dataset, arrays), YOKE_ERROR_ARGUMENT);
    assert_null(dataset);
    if (!strstr(yoke_last_error(), words))
        fail_msg("'%s' should contain '%s'", yoke_last_error(), words);
}

static void arrays_that_contradict_themselves_are_refused(void **state) {
    (void)state;
    static const int32_t labels[2] = {1, 2};
    static const float floats[4] = {0};
    yoke_arrays arrays = good_arrays();
    arrays.labels = labels;
    expect_refused(&arrays, "row 1: label 2, expected 0..1");
    arrays = good_arrays();
    arrays.inputs = floats;
    expect_refused(&arrays, "exactly one");
    arrays.pixels = NULL, arrays.inputs = NULL;
    expect_refused(&arrays, "exactly one");
    arrays = good_arrays();
    arrays.rows = 0;
    expect_refused(&arrays, "0 rows");
    arrays = good_arrays();
    arrays.shape.width = 0;
    expect_refused(&arrays, "2x1x0");
    arrays = good_arrays();
    arrays.shape = (yoke_shape){1 << 20, 1 << 20, 1 << 20, false};
    expect_refused(&arrays, "at most 2 GiB");
    arrays = good_arrays();
    arrays.classes = 0;
    expect_refused(&arrays, "classes = 0 and target_count = 0 need labels NULL");
    arrays = good_arrays();
    arrays.labels = NULL;
    expect_refused(&arrays, "need labels set");
    arrays = good_arrays();
    arrays.struct_size = 0;
    expect_refused(&arrays, "struct_size");
    expect_refused(NULL, "0 rows");
}

static void a_callback_without_a_function_is_refused(void **state) {
    (void)state;
    yoke_row_source source = {.struct_size = sizeof source, .rows = 1, .shape = {1, 1, 1, true}};
    yoke_dataset *dataset = NULL;
    assert_int_equal(yoke_dataset_from_callback(&dataset, &source), YOKE_ERROR_ARGUMENT);
    assert_null(dataset);
    yoke_dataset_close(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(missing_files_are_named_with_their_archive, empty_folder),
        cmocka_unit_test_teardown(specs_that_mean_nothing_are_refused_with_the_nearest_one,
                                  empty_folder),
        cmocka_unit_test_teardown(a_path_too_long_is_refused, empty_folder),
        cmocka_unit_test_teardown(arrays_are_borrowed_and_measured, empty_folder),
        cmocka_unit_test_teardown(arrays_that_contradict_themselves_are_refused, empty_folder),
        cmocka_unit_test_teardown(a_callback_without_a_function_is_refused, empty_folder),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
