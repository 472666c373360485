/* SPDX-License-Identifier: Apache-2.0 */
/* A table of text becomes rows; what is wrong with it is named with its line and column. */
#include "data_folder.h"

#include "fixtures/fixture.h"

static yoke_status open_table(yoke_dataset **dataset, const char *text, const char *settings,
                              yoke_split split) {
    char spec[1400];
    write_file("table.csv", (const uint8_t *)text, strlen(text));
    snprintf(spec, sizeof spec, "csv:%s%s", in_folder("table.csv"), settings);
    return yoke_dataset_open(dataset, spec, split);
}

#define FLOWERS                                                                                    \
    "length,kind,width\r\n1,rose,10\r\n2,\"daisy, wild\",20\r\n\r\n3,rose,30\r\n"                  \
    "4,\"daisy, wild\",40\r\n"

static void columns_of_numbers_are_features_and_words_are_classes(void **state) {
    (void)state;
    yoke_dataset *dataset;
    yoke_dataset_info info = {.struct_size = sizeof info};
    must(open_table(&dataset, "\xef\xbb\xbf" FLOWERS, ",label=kind", YOKE_SPLIT_TRAIN));
    must(yoke_dataset_describe(dataset, &info));
    assert_int_equal(info.shape.channels, 2);
    assert_true(info.shape.flat);
    assert_int_equal(info.classes, 2);
    assert_string_equal(info.class_names[0], "daisy, wild");
    assert_string_equal(info.class_names[1], "rose");
    assert_string_equal(info.feature_names[0], "length");
    assert_string_equal(info.feature_names[1], "width");
    assert_int_equal(info.rows, 2); /* one of each class tests */
    for (size_t row = 0; row < 2; row++) {
        size_t stored = yoke_dataset_stored(dataset, row);
        const float *values = yoke_dataset_row(dataset, stored).floats;
        assert_true(values[0] == (float)stored + 1 && values[1] == 10 * values[0]);
        assert_int_equal(dataset->labels[stored], stored % 2 == 0);
    }
    yoke_dataset_close(dataset);
}

/* Mean 2.5 and std sqrt(1.25), of the training file alone. */
static void features_are_normalised_with_the_training_rows(void **state) {
    (void)state;
    static const char test[] = "length,kind,width\n10,rose,100\n";
    write_file("test.csv", (const uint8_t *)test, strlen(test));
    char settings[600];
    snprintf(settings, sizeof settings, ",label=kind,test=%s", in_folder("test.csv"));
    for (int split = 0; split < 2; split++) {
        yoke_dataset *dataset;
        yoke_loader *loader;
        yoke_loader_options options = YOKE_LOADER_OPTIONS_INIT;
        yoke_batch batch = {.struct_size = sizeof batch};
        options.batch = split == 0 ? 4 : 1;
        must(open_table(&dataset, FLOWERS, settings,
                        split == 0 ? YOKE_SPLIT_TRAIN : YOKE_SPLIT_TEST));
        must(yoke_loader_create(&loader, dataset, &options));
        must(yoke_loader_begin(loader, 0));
        must(yoke_loader_next(loader, &batch, NULL));
        for (int i = 0; i < batch.rows; i++) {
            double value = split == 0 ? i + 1 : 10;
            near(batch.inputs[2 * i], (value - 2.5) / sqrt(1.25), 1e-6, 1, "length");
            near(batch.inputs[2 * i + 1], (value - 2.5) / sqrt(1.25), 1e-6, 1, "width");
        }
        assert_int_equal(batch.labels[0], 1);
        assert_int_equal(batch.inputs_count, 2 * batch.rows);
        yoke_loader_destroy(loader);
        yoke_dataset_close(dataset);
    }
}

static void a_table_to_predict_has_all_rows_and_no_labels(void **state) {
    (void)state;
    static const float means[] = {1, 10}, stds[] = {2, 4};
    yoke_dataset *dataset;
    yoke_loader *loader;
    yoke_loader_options options = YOKE_LOADER_OPTIONS_INIT;
    yoke_batch batch = {.struct_size = sizeof batch};
    options.batch = 4;
    must(open_table(&dataset, FLOWERS, ",ignore=kind", YOKE_SPLIT_TEST));
    must(yoke_dataset_normalize_columns(dataset, means, stds));
    must(yoke_loader_create(&loader, dataset, &options));
    must(yoke_loader_begin(loader, 0));
    must(yoke_loader_next(loader, &batch, NULL));
    assert_int_equal(batch.rows, 4);
    assert_null(batch.labels);
    assert_null(batch.targets);
    assert_int_equal(batch.inputs_count, 8);
    assert_int_equal(batch.targets_count, 0);
    for (int i = 0; i < 4; i++) {
        near(batch.inputs[2 * i], i / 2.0, 1e-6, 1, "length");
        near(batch.inputs[2 * i + 1], 10 * i / 4.0, 1e-6, 1, "width");
    }
    yoke_loader_destroy(loader);
    const float none[] = {1, 0};
    assert_int_equal(yoke_dataset_normalize_columns(dataset, means, none), YOKE_ERROR_ARGUMENT);
    yoke_dataset_close(dataset);
}

static void whole_numbers_are_classes_in_their_order(void **state) {
    (void)state;
    yoke_dataset *dataset;
    must(open_table(&dataset, "y,x\n10,1\n9,2\n-1,3\n9.0,4\n09,5\n", ",label=y", YOKE_SPLIT_TRAIN));
    assert_int_equal(dataset->classes, 3);
    assert_string_equal(dataset->class_names[0], "-1");
    assert_string_equal(dataset->class_names[1], "9");
    assert_string_equal(dataset->class_names[2], "10");
    static const int32_t labels[] = {2, 1, 0, 1, 1};
    assert_memory_equal(dataset->labels, labels, sizeof labels);
    yoke_dataset_close(dataset);
}

static void a_target_is_a_number_to_predict(void **state) {
    (void)state;
    yoke_dataset *dataset;
    must(open_table(&dataset, "x,name,y\n1,a,0.5\n2,b,-7e1\n", ",target=y,ignore=name",
                    YOKE_SPLIT_TRAIN));
    assert_int_equal(dataset->classes, 0);
    assert_int_equal(dataset->target_count, 1);
    assert_int_equal(dataset->shape.channels, 1);
    assert_true(dataset->targets[0] == 0.5f && dataset->targets[1] == -70);
    yoke_dataset_close(dataset);
}

static void a_quoted_field_holds_commas_quotes_and_lines(void **state) {
    (void)state;
    yoke_dataset *dataset;
    must(open_table(&dataset, "\"the \"\"x\"\"\",y\n\"1\" ,\"a\nb\"\n 2 , plain \n3,plain\n",
                    ",label=y", YOKE_SPLIT_TRAIN));
    assert_string_equal(dataset->feature_names[0], "the \"x\"");
    assert_string_equal(dataset->class_names[0], "a\nb");
    assert_string_equal(dataset->class_names[1], "plain");
    assert_true(dataset->floats[0] == 1 && dataset->floats[1] == 2);
    yoke_dataset_close(dataset);
}

static void what_is_wrong_is_named_with_line_and_column(void **state) {
    (void)state;
    static const struct {
        const char *text, *settings, *words;
    } cases[] = {
        {"a,b\n1,2\n3\n", ",label=b", "table.csv: line 3 has 1 fields, the header 2"},
        {"a,b\n1,x\n3,y,4\n", ",label=b", "line 3 has 3 fields"},
        {"a,b\n\"1\",\"x\ny\"\nred,x\n", ",label=b", "line 4, column 'a': 'red' is no number"},
        {"a,b\n1,x\n,y\n", ",label=b", "line 3, column 'a': an empty field"},
        {"a,b\n1,x\n2,\n", ",label=b", "line 3, column 'b': an empty label"},
        {"a,b\n1,2\nnan,3\n", ",target=b", "'nan' is no number"},
        {"a,b\n1,x\n1e99,y\n", ",label=b", "'1e99' is no number"},
        {"a,b\n1,x\n2,\"y\n", ",label=b", "line 3: a quote that is never closed"},
        {"a,b\n1,\"x\"y\n", ",label=b", "line 2: 'y' behind a closing quote"},
        {"a,b\n1,x\n", ",label=c", "has no column 'c'; its columns are a, b"},
        {"a,b\n1,x\n", ",label=b,ignore=d", "has no column 'd'"},
        {"a,b\n1,x\n", ",label=b,ignore=a", "no column is left for the features"},
        {"b,a,b\n1,1,x\n", ",label=b", "2 columns are called 'b'"},
        {"a,b\n1,x\n2,x\n", ",label=b", "1 different value, expected 2"},
        {"a;b\n1;x\n", ",label=b", "separated by commas, not by ';'"},
        {"1,2\n3,4\n", ",label=b", "line 1 has numbers only"},
        {"a,b\n", ",label=b", "0 lines behind the header"},
        {"a,b\r1,x\r2,y\r", ",label=b", "its lines end in CR"},
        {"", ",label=b", "an empty file"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        yoke_dataset *dataset;
        yoke_status status =
            open_table(&dataset, cases[i].text, cases[i].settings, YOKE_SPLIT_TRAIN);
        if (status != YOKE_ERROR_DATA || strstr(yoke_last_error(), cases[i].words) == NULL)
            fail_msg("case %zu: %s '%s' should contain '%s'", i, yoke_status_name(status),
                     yoke_last_error(), cases[i].words);
    }
}

static void settings_are_checked(void **state) {
    (void)state;
    static const struct {
        const char *settings, *words;
    } cases[] = {{"", "Write label=COLUMN for classes or target=COLUMN"},
                 {",label=b,target=a", "leave one out"},
                 {",label=b,label=a", "label is set twice"},
                 {",lable=b", "did you mean 'label'"},
                 {",other.csv", "one file too many"},
                 {",label=b,validation=0", "expected 0.001..0.9"},
                 {",label=b,validation=0.2,validation=0.5", "validation is set twice"},
                 {",label=b,ignore=a,ignore=b", "'b' is to be learnt and ignored"},
                 {",label=b,validation=0.1,test=x", "leave one out"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        yoke_dataset *dataset;
        yoke_status status =
            open_table(&dataset, "a,b\n1,x\n", cases[i].settings, YOKE_SPLIT_TRAIN);
        if (status != YOKE_ERROR_ARGUMENT || strstr(yoke_last_error(), cases[i].words) == NULL)
            fail_msg("%s: %s '%s' should contain '%s'", cases[i].settings, yoke_status_name(status),
                     yoke_last_error(), cases[i].words);
    }
}

/* One row of numbers leaves none to test. */
static void a_split_without_rows_is_refused(void **state) {
    (void)state;
    yoke_dataset *dataset;
    assert_int_equal(open_table(&dataset, "x,y\n1,2\n", ",target=y", YOKE_SPLIT_TEST),
                     YOKE_ERROR_DATA);
    if (strstr(yoke_last_error(), "no row for the test split: the file needs two") == NULL)
        fail_msg("%s", yoke_last_error());
}

static void a_test_file_has_the_columns_and_classes_of_the_training_file(void **state) {
    (void)state;
    static const struct {
        const char *text, *words;
    } cases[] = {{"length,kind\n1,rose\n", "2 columns, but"},
                 {"width,kind,length\n1,rose,1\n", "column 1 is 'width', in"},
                 {"length,kind,width\n1,rose,1\n1,fern,1\n", "line 3: class 'fern' is not in"}};
    char settings[600];
    snprintf(settings, sizeof settings, ",label=kind,test=%s", in_folder("test.csv"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        yoke_dataset *dataset;
        write_file("test.csv", (const uint8_t *)cases[i].text, strlen(cases[i].text));
        assert_int_equal(open_table(&dataset, FLOWERS, settings, YOKE_SPLIT_TEST), YOKE_ERROR_DATA);
        if (strstr(yoke_last_error(), cases[i].words) == NULL)
            fail_msg("'%s' should contain '%s'", yoke_last_error(), cases[i].words);
    }
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(columns_of_numbers_are_features_and_words_are_classes),
        IN_FOLDER(features_are_normalised_with_the_training_rows),
        IN_FOLDER(a_table_to_predict_has_all_rows_and_no_labels),
        IN_FOLDER(whole_numbers_are_classes_in_their_order),
        IN_FOLDER(a_target_is_a_number_to_predict),
        IN_FOLDER(a_quoted_field_holds_commas_quotes_and_lines),
        IN_FOLDER(what_is_wrong_is_named_with_line_and_column),
        IN_FOLDER(settings_are_checked),
        IN_FOLDER(a_split_without_rows_is_refused),
        IN_FOLDER(a_test_file_has_the_columns_and_classes_of_the_training_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
