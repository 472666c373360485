/* SPDX-License-Identifier: Apache-2.0 */
/* Files that NumPy wrote become rows; files that Yoke does not read become errors that say what to
 * do. tests/fixtures/make_array_fixture.py made the files. */
#include "data_folder.h"

#include "fixtures/fixture.h"

#define ROWS 20

/* Writes "npy:FOLDER/x.npy,..." for "npy:@/x.npy,...". */
static const char *in_fixtures(const char *text) {
    static char spec[2048];
    size_t used = 0;
    for (; *text != '\0'; text++) {
        if (*text == '@')
            used += (size_t)snprintf(spec + used, sizeof spec - used, "%s/tests/fixtures/arrays",
                                     YOKE_SOURCE_DIR);
        else
            spec[used++] = *text;
        assert_true(used < sizeof spec - 512);
    }
    spec[used] = '\0';
    return spec;
}

static yoke_dataset *open_arrays(const char *spec, yoke_split split) {
    yoke_dataset *dataset = NULL;
    must(yoke_dataset_open(&dataset, in_fixtures(spec), split));
    return dataset;
}

static void expect_refusal(const char *spec, yoke_split split, yoke_status expected,
                           const char *words) {
    yoke_dataset *dataset;
    yoke_status status = yoke_dataset_open(&dataset, in_fixtures(spec), split);
    if (status != expected || strstr(yoke_last_error(), words) == NULL)
        fail_msg("%s: %s '%s' should contain '%s'", spec, yoke_status_name(status),
                 yoke_last_error(), words);
    assert_null(dataset);
}

static void expect_shape(const yoke_dataset *dataset, int channels, int height, int width) {
    assert_int_equal(dataset->shape.channels, channels);
    assert_int_equal(dataset->shape.height, height);
    assert_int_equal(dataset->shape.width, width);
    assert_int_equal(dataset->shape.flat, channels == 5);
}

/* Every row of the split has the values and the label of its stored row. */
static void expect_floats(const yoke_dataset *dataset) {
    expect_shape(dataset, 5, 1, 1);
    for (size_t row = 0; row < dataset->rows; row++) {
        size_t stored = yoke_dataset_stored(dataset, row);
        const float *values = yoke_dataset_row(dataset, stored).floats;
        for (size_t i = 0; i < 5; i++)
            assert_true(values[i] == (float)(stored * 5 + i) / 8);
        assert_int_equal(dataset->labels[stored], stored % 3);
    }
}

static void numpys_floats_are_the_rows(void **state) {
    (void)state;
    static const char *const specs[] = {"npy:@/floats.npy,@/labels.npy",
                                        "npy:@/doubles.npy,@/labels32.npy",
                                        "npy:@/version2.npy,@/labels_column.npy",
                                        "npy:@/version3.npy,@/labels.npy",
                                        "npz:@/stored.npz",
                                        "npz:@/named.npz,x=features,y=answers"};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        yoke_dataset *dataset = open_arrays(specs[i], YOKE_SPLIT_TRAIN);
        assert_int_equal(dataset->rows, ROWS - 3); /* one of each class tests */
        assert_int_equal(dataset->classes, 3);
        assert_true(dataset->mean[0] == 0 && dataset->std[0] == 1);
        expect_floats(dataset);
        yoke_dataset_close(dataset);
    }
}

static void numpys_bytes_are_the_pixels(void **state) {
    (void)state;
    static const char *const specs[] = {"npy:@/pixels.npy,@/labels.npy", "npz:@/packed.npz",
                                        "npz:@/keras.npz,validation=0.1"};
    for (size_t i = 0; i < 3; i++) {
        yoke_dataset *dataset = open_arrays(specs[i], YOKE_SPLIT_TRAIN);
        expect_shape(dataset, 3, 2, 2);
        for (size_t row = 0; row < dataset->rows; row++) {
            size_t stored = yoke_dataset_stored(dataset, row);
            const uint8_t *pixels = yoke_dataset_row(dataset, stored).bytes;
            for (size_t p = 0; p < 12; p++)
                assert_int_equal(pixels[p], 7 * (stored * 12 + p) % 251);
        }
        yoke_dataset_close(dataset);
    }
    yoke_dataset *gray = open_arrays("npy:@/gray.npy,@/labels.npy", YOKE_SPLIT_TRAIN);
    expect_shape(gray, 1, 2, 2);
    yoke_dataset_close(gray);
}

static void floats_as_labels_are_targets(void **state) {
    (void)state;
    yoke_dataset *dataset = open_arrays("npy:@/pixels.npy,@/targets.npy", YOKE_SPLIT_TRAIN);
    assert_int_equal(dataset->classes, 0);
    assert_int_equal(dataset->target_count, 2);
    assert_true(dataset->targets[2] == 0.625f && dataset->targets[3] == -0.75f);
    assert_int_equal(dataset->rows, ROWS - 2);
    yoke_dataset_close(dataset);
    dataset = open_arrays("npz:@/sequences.npz,x=x,y=mask", YOKE_SPLIT_TRAIN);
    assert_int_equal(dataset->target_count, 2 * 3);
    assert_true(dataset->targets[7] == 1.75f);
    yoke_dataset_close(dataset);
}

/* The splits share no row, and each class is in both. */
static void splits_are_drawn_from_each_class(void **state) {
    (void)state;
    int seen[ROWS] = {0}, of_class[3] = {0};
    for (int split = 0; split < 2; split++) {
        yoke_dataset *dataset = open_arrays("npy:@/floats.npy,@/labels.npy,validation=0.3",
                                            split == 0 ? YOKE_SPLIT_TRAIN : YOKE_SPLIT_TEST);
        for (size_t row = 0; row < dataset->rows; row++) {
            size_t stored = yoke_dataset_stored(dataset, row);
            seen[stored]++;
            if (split == 1) of_class[dataset->labels[stored]]++;
        }
        expect_floats(dataset);
        yoke_dataset_close(dataset);
    }
    for (int row = 0; row < ROWS; row++)
        assert_int_equal(seen[row], 1);
    for (int class = 0; class < 3; class ++)
        assert_int_equal(of_class[class], 2);
}

/* Mean and std of the pixels of channel 0 of the training rows, in double. */
static void test_rows_are_normalised_as_training_rows(void **state) {
    (void)state;
    static const char *const specs[] = {
        "npy:@/pixels.npy,@/labels.npy",
        "npy:@/pixels.npy,@/labels.npy,test=@/pixels.npy,@/labels.npy", "npz:@/keras.npz"};
    for (size_t i = 0; i < 3; i++) {
        yoke_dataset *training = open_arrays(specs[i], YOKE_SPLIT_TRAIN);
        yoke_dataset *test = open_arrays(specs[i], YOKE_SPLIT_TEST);
        double sum = 0, squares = 0, count = 4.0 * (double)training->rows;
        for (size_t row = 0; row < training->rows; row++)
            for (size_t p = 0; p < 4; p++)
                sum += yoke_dataset_row(training, yoke_dataset_stored(training, row)).bytes[p];
        for (size_t row = 0; row < training->rows; row++)
            for (size_t p = 0; p < 4; p++) {
                int value = yoke_dataset_row(training, yoke_dataset_stored(training, row)).bytes[p];
                squares += (value - sum / count) * (value - sum / count);
            }
        near(training->mean[0], sum / count / 255, 1e-6, 1, "mean");
        near(training->std[0], sqrt(squares / count) / 255, 1e-6, 1, "std");
        assert_memory_equal(training->mean, test->mean, sizeof test->mean);
        assert_memory_equal(training->std, test->std, sizeof test->std);
        assert_int_equal(test->rows, i == 0 ? 3 : i == 1 ? ROWS : 6);
        yoke_dataset_close(test);
        yoke_dataset_close(training);
    }
}

static void what_is_not_read_says_which_call_converts_it(void **state) {
    (void)state;
    static const struct {
        const char *spec, *words;
    } cases[] = {
        {"npy:@/fortran.npy,@/labels.npy", "fortran.npy: the array is in Fortran order; "
                                           "numpy.save(FILE, numpy.ascontiguousarray(X))"},
        {"npy:@/big_endian.npy,@/labels.npy",
         "type '>f4' is big-endian; numpy.save(FILE, X.astype('<f4'))"},
        {"npy:@/objects.npy,@/labels.npy", "Python objects"},
        {"npy:@/records.npy,@/labels.npy", "records; save one field"},
        {"npy:@/halves.npy,@/labels.npy", "type 'f2', expected uint8, float32, float64"},
        {"npy:@/channels_last.npy,@/labels.npy", "X.transpose(0, 3, 1, 2)"},
        {"npy:@/floats.npy,@/targets_last.npy", "X.transpose(0, 3, 1, 2)"},
        {"npy:@/line.npy,@/labels.npy", "shape (20,); expected [rows, channels, height, width]"},
        {"npy:@/empty.npy,@/labels.npy", "shape (0, 5)"},
        {"npy:@/floats.npy,@/one_hot.npy", "Y.argmax(1) makes classes"},
        {"npy:@/floats.npy,@/short_labels.npy", "shape (19,), but"},
        {"npy:@/floats.npy,@/negative.npy", "row 0 has label -1, expected 0.."},
        {"npy:@/floats.npy,@/one_class.npy", "every label is 0"},
        {"npy:@/stored.npz,@/labels.npy", "no .npy file"},
        {"npz:@/floats.npy", "no directory of a ZIP archive"},
        {"npz:@/named.npz", "It has features, answers; write npz:FILE.npz,x=NAME,y=NAME"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_refusal(cases[i].spec, YOKE_SPLIT_TRAIN, YOKE_ERROR_DATA, cases[i].words);
    expect_refusal("npz:@/named.npz,x=features,y=labels", YOKE_SPLIT_TRAIN, YOKE_ERROR_MISSING,
                   "has no array 'labels'; its arrays are features, answers");
    expect_refusal("npy:@/floats.npy,@/labels.npy,test=@/pixels.npy,@/labels.npy", YOKE_SPLIT_TEST,
                   YOKE_ERROR_DATA, "they must be alike");
    yoke_dataset *taken =
        open_arrays("npy:@/channels_last.npy,@/labels.npy,channels=first", YOKE_SPLIT_TRAIN);
    expect_shape(taken, 6, 6, 3);
    yoke_dataset_close(taken);
}

static void settings_are_checked(void **state) {
    (void)state;
    static const struct {
        const char *spec, *words;
    } cases[] = {{"npy:@/floats.npy", "a file is missing; write npy:X.npy,Y.npy"},
                 {"npy:a,b,c", "'c' is one file too many"},
                 {"npy:a,b,validaton=0.1", "did you mean 'validation'"},
                 {"npy:a,b,validation=1", "expected 0.001..0.9"},
                 {"npy:a,b,test=c", "test=c has no labels"},
                 {"npy:a,b,test=c,d,validation=0.1", "leave one out"},
                 {"npy:a,b,x=c", "unknown setting 'x'; write"},
                 {"npy:a,b,channels=last", "channels=last: expected channels=first"},
                 {"npy:a,b,test=c,d,test=e,f", "test is set twice"},
                 {"npz:a,x=c", "belong together"},
                 {"npz:a,x=b,y=d,x=c", "x is set twice"},
                 {"npz:a,b", "one file too many"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_refusal(cases[i].spec, YOKE_SPLIT_TRAIN, YOKE_ERROR_ARGUMENT, cases[i].words);
    expect_refusal("npy:/nowhere/x.npy,/nowhere/y.npy", YOKE_SPLIT_TRAIN, YOKE_ERROR_MISSING,
                   "/nowhere/x.npy: cannot open");
}

/* A cut at any byte, of an .npy and of both kinds of .npz, is noticed. */
static void a_file_that_ends_early_is_an_error(void **state) {
    (void)state;
    static const char *const names[] = {"pixels.npy", "packed.npz", "stored.npz"};
    for (size_t i = 0; i < 3; i++) {
        char path[1024], spec[1400];
        unsigned char *data;
        size_t bytes;
        snprintf(path, sizeof path, "%.900s%s", in_fixtures("@/"), names[i]);
        must(yoke_file_read(path, 1 << 20, &data, &bytes));
        snprintf(spec, sizeof spec, i == 0 ? "npy:%s,@/labels.npy" : "npz:%s", in_folder("cut"));
        for (size_t cut = 0; cut < bytes; cut++) {
            write_file("cut", data, cut);
            expect_refusal(spec, YOKE_SPLIT_TRAIN, YOKE_ERROR_DATA, "/cut: ");
        }
        free(data);
    }
}

static void a_flipped_bit_in_an_archive_is_noticed(void **state) {
    (void)state;
    static const struct {
        const char *name;
        size_t byte; /* in the values of an array */
        const char *words;
    } files[] = {{"packed.npz", 120, "arr_0.npy is damaged"},
                 {"stored.npz", 400, "is damaged: its checksum differs"}};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char path[1024], spec[1400];
        unsigned char *data;
        size_t bytes;
        snprintf(path, sizeof path, "%.900s%s", in_fixtures("@/"), files[i].name);
        must(yoke_file_read(path, 1 << 20, &data, &bytes));
        data[files[i].byte] ^= 4;
        write_file("bad", data, bytes);
        free(data);
        snprintf(spec, sizeof spec, "npz:%s", in_folder("bad"));
        expect_refusal(spec, YOKE_SPLIT_TRAIN, YOKE_ERROR_DATA, files[i].words);
    }
}

/* A file with holes, which takes no room on the disk. */
static void write_header(const char *name, const char *type, const char *shape, off_t bytes) {
    char header[128] = "\x93NUMPY\1";
    header[8] = 118;
    snprintf(header + 10, 118, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }", type,
             shape);
    write_file(name, (const uint8_t *)header, sizeof header);
    assert_int_equal(truncate(in_folder(name), (off_t)sizeof header + bytes), 0);
}

static void a_row_larger_than_an_operation_can_take_is_refused(void **state) {
    (void)state;
    char spec[1400], inputs[512];
    write_header("x.npy", "|u1", "(1, 1048576, 600)", (off_t)1048576 * 600);
    write_header("y.npy", "<f4", "(1,)", 4);
    snprintf(inputs, sizeof inputs, "%s", in_folder("x.npy"));
    snprintf(spec, sizeof spec, "npy:%s,%s", inputs, in_folder("y.npy"));
    expect_refusal(spec, YOKE_SPLIT_TRAIN, YOKE_ERROR_ARGUMENT, "a row has at most 2 GiB");
}

static void a_limit_keeps_the_same_rows_in_their_order(void **state) {
    (void)state;
    uint32_t kept[2][7];
    for (int run = 0; run < 2; run++) {
        yoke_dataset *dataset = open_arrays("npy:@/floats.npy,@/labels.npy", YOKE_SPLIT_TRAIN);
        must(yoke_dataset_limit(dataset, 1000));
        assert_int_equal(dataset->rows, ROWS - 3);
        must(yoke_dataset_limit(dataset, 7));
        assert_int_equal(dataset->rows, 7);
        memcpy(kept[run], dataset->kept, sizeof kept[run]);
        for (int i = 1; i < 7; i++)
            assert_true(kept[run][i] > kept[run][i - 1]);
        expect_floats(dataset);
        assert_int_equal(yoke_dataset_limit(dataset, 0), YOKE_ERROR_ARGUMENT);
        yoke_dataset_close(dataset);
    }
    assert_memory_equal(kept[0], kept[1], sizeof kept[0]);
}

/* The loader sees the rows that were kept, labels and all. */
static void batches_have_the_kept_rows(void **state) {
    (void)state;
    yoke_dataset *dataset = open_arrays("npy:@/floats.npy,@/labels.npy", YOKE_SPLIT_TEST);
    yoke_loader *loader;
    yoke_loader_options options = YOKE_LOADER_OPTIONS_INIT;
    yoke_batch batch = {.struct_size = sizeof batch};
    options.batch = 3;
    must(yoke_loader_create(&loader, dataset, &options));
    must(yoke_loader_begin(loader, 0));
    must(yoke_loader_next(loader, &batch, NULL));
    assert_int_equal(batch.rows, 3);
    for (int i = 0; i < 3; i++) {
        size_t stored = dataset->kept[i];
        assert_int_equal(batch.labels[i], stored % 3);
        assert_true(batch.inputs[i * 5] == (float)(stored * 5) / 8);
    }
    yoke_loader_destroy(loader);
    yoke_dataset_close(dataset);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numpys_floats_are_the_rows),
        cmocka_unit_test(numpys_bytes_are_the_pixels),
        cmocka_unit_test(floats_as_labels_are_targets),
        cmocka_unit_test(splits_are_drawn_from_each_class),
        cmocka_unit_test(test_rows_are_normalised_as_training_rows),
        cmocka_unit_test(what_is_not_read_says_which_call_converts_it),
        cmocka_unit_test(settings_are_checked),
        IN_FOLDER(a_file_that_ends_early_is_an_error),
        IN_FOLDER(a_flipped_bit_in_an_archive_is_noticed),
        IN_FOLDER(a_row_larger_than_an_operation_can_take_is_refused),
        cmocka_unit_test(a_limit_keeps_the_same_rows_in_their_order),
        cmocka_unit_test(batches_have_the_kept_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
