/* SPDX-License-Identifier: Apache-2.0 */
/* A text file as rows: windows of bytes whose labels are the next bytes. */
#include "data_folder.h"

enum { CONTEXT = 8, BYTES = 200, SYMBOLS = 5 };

/* Bytes of five kinds, no window like another. */
static uint8_t byte_at(size_t i) {
    static const uint8_t symbols[SYMBOLS] = {'\n', ' ', '\\', 'a', 0xc3};
    uint32_t mixed = (uint32_t)i * 2654435761u + 12345u;
    mixed = (mixed ^ mixed >> 15) * 2246822519u;
    return symbols[(mixed ^ mixed >> 13) % SYMBOLS];
}

static int token_at(size_t i) {
    static const uint8_t ascending[SYMBOLS] = {'\n', ' ', '\\', 'a', 0xc3};
    int token = 0;
    while (ascending[token] != byte_at(i))
        token++;
    return token;
}

static void write_text(size_t bytes) {
    uint8_t text[BYTES];
    for (size_t i = 0; i < bytes; i++)
        text[i] = byte_at(i);
    write_file("text", text, bytes);
}

static yoke_dataset *open_text(const char *settings, yoke_split split) {
    char spec[640];
    yoke_dataset *dataset = NULL;
    snprintf(spec, sizeof spec, "text:%s%s", in_folder("text"), settings);
    if (yoke_dataset_open(&dataset, spec, split) != YOKE_OK) fail_msg("%s", yoke_last_error());
    return dataset;
}

/* The place in the file of the window that an epoch has at `row` of its batches; checks it. */
static size_t place_of(const yoke_batch *batch, int row) {
    const float *inputs = batch->inputs + (size_t)row * CONTEXT;
    const int32_t *labels = batch->labels + (size_t)row * CONTEXT;
    for (size_t place = 0; place + CONTEXT < BYTES; place++) {
        bool same = true;
        for (size_t i = 0; i < CONTEXT && same; i++)
            same = (int)inputs[i] == token_at(place + i) && labels[i] == token_at(place + i + 1);
        if (same) return place;
    }
    fail_msg("row %d is no window of the file", row);
    return 0;
}

/* How often each byte of the file is a label in one epoch. */
static void count_labels(const yoke_dataset *dataset, uint64_t epoch, bool shuffle, int *counts) {
    yoke_loader_options options = YOKE_LOADER_OPTIONS_INIT;
    yoke_loader *loader = NULL;
    yoke_batch batch = {.struct_size = sizeof batch};
    options.batch = 4, options.shuffle = shuffle, options.seed = 5;
    memset(counts, 0, BYTES * sizeof *counts);
    assert_int_equal(yoke_loader_create(&loader, dataset, &options), YOKE_OK);
    assert_int_equal(yoke_loader_begin(loader, epoch), YOKE_OK);
    for (;;) {
        assert_int_equal(yoke_loader_next(loader, &batch, NULL), YOKE_OK);
        if (batch.rows == 0) break;
        assert_int_equal(batch.labels_count, batch.rows * CONTEXT);
        for (int row = 0; row < batch.rows; row++) {
            size_t place = place_of(&batch, row);
            for (size_t i = 0; i < CONTEXT; i++)
                counts[place + 1 + i]++;
        }
    }
    yoke_loader_destroy(loader);
}

static size_t first_counted(const int *counts) {
    size_t first = 0;
    while (counts[first] == 0)
        first++;
    return first;
}

static void validation_has_every_byte_of_the_end_as_a_label_once(void **state) {
    (void)state;
    for (size_t bytes = BYTES; bytes > BYTES - CONTEXT; bytes--) {
        write_text(bytes);
        yoke_dataset *dataset = open_text(",context=8,validation=0.2", YOKE_SPLIT_TEST);
        int counts[BYTES];
        count_labels(dataset, 0, false, counts);
        size_t tested = (size_t)(0.2 * (double)bytes) / CONTEXT * CONTEXT;
        for (size_t i = 0; i < BYTES; i++)
            assert_int_equal(counts[i], i >= bytes - tested && i < bytes);
        yoke_dataset_close(dataset);
    }
}

static void an_epoch_reads_the_rest_once_in_windows_that_begin_elsewhere_each_time(void **state) {
    (void)state;
    write_text(BYTES);
    yoke_dataset *dataset = open_text(",context=8,validation=0.2", YOKE_SPLIT_TRAIN);
    int counts[BYTES], again[BYTES];
    bool begins[CONTEXT] = {false};
    size_t different = 0, end = BYTES - 40; /* where validation begins */
    for (uint64_t epoch = 0; epoch < 30; epoch++) {
        count_labels(dataset, epoch, true, counts);
        count_labels(dataset, epoch, true, again);
        assert_memory_equal(counts, again, sizeof counts);
        size_t first = first_counted(counts), covered = 0;
        assert_in_range(first, 1, CONTEXT);
        if (!begins[first - 1]) different++;
        begins[first - 1] = true;
        for (size_t i = 0; i < BYTES; i++) {
            assert_true(counts[i] <= (i < end));
            covered += (size_t)counts[i];
        }
        assert_true(covered >= end - 2 * CONTEXT);
    }
    assert_true(different > CONTEXT / 2);
    yoke_dataset_close(dataset);
}

static void every_size_has_rows_that_lie_in_their_part(void **state) {
    (void)state;
    for (size_t bytes = 2 * CONTEXT + 1; bytes < 6 * CONTEXT; bytes++) {
        write_text(bytes);
        yoke_dataset *dataset = open_text(",context=8", YOKE_SPLIT_TRAIN);
        for (uint64_t epoch = 0; epoch < 10; epoch++) {
            int counts[BYTES];
            count_labels(dataset, epoch, true, counts);
            for (size_t i = bytes - CONTEXT; i < BYTES; i++)
                assert_int_equal(counts[i], 0);
        }
        yoke_dataset_close(dataset);
    }
}

static void the_tokens_are_the_bytes_that_occur_and_have_names(void **state) {
    (void)state;
    static const char *const names[SYMBOLS] = {"\\x0a", " ", "\\\\", "a", "\\xc3"};
    write_text(BYTES);
    for (int split = 0; split < 2; split++) {
        yoke_dataset *dataset = open_text(",context=8", (yoke_split)split);
        yoke_dataset_info info = {.struct_size = sizeof info};
        assert_int_equal(yoke_dataset_describe(dataset, &info), YOKE_OK);
        assert_int_equal(info.classes, SYMBOLS);
        assert_int_equal(info.label_count, CONTEXT);
        assert_int_equal(info.shape.channels, CONTEXT);
        assert_true(info.shape.flat);
        for (int i = 0; i < SYMBOLS; i++)
            assert_string_equal(info.class_names[i], names[i]);
        yoke_dataset_close(dataset);
    }
}

static void expect_refused(const char *settings, yoke_status expected, const char *words) {
    char spec[640];
    yoke_dataset *dataset = NULL;
    snprintf(spec, sizeof spec, "text:%s%s", in_folder("text"), settings);
    assert_int_equal(yoke_dataset_open(&dataset, spec, YOKE_SPLIT_TRAIN), expected);
    if (strstr(yoke_last_error(), words) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", yoke_last_error(), words);
}

static void files_that_are_no_text_to_train_on_are_refused(void **state) {
    (void)state;
    expect_refused("", YOKE_ERROR_MISSING, "text: cannot open");
    write_text(0);
    expect_refused("", YOKE_ERROR_DATA, "text: the file is empty");
    write_text(2 * CONTEXT);
    expect_refused(",context=8", YOKE_ERROR_DATA,
                   "ends at byte 16; context=8 and validation=0.1 "
                   "need 17");
    write_text(BYTES);
    expect_refused("", YOKE_ERROR_DATA, "need 257: choose a smaller context");
    write_file("text", (const uint8_t *)"aaaaaaaaaaaaaaaaaaaaaaaa", 24);
    expect_refused(",context=8", YOKE_ERROR_DATA, "every byte is 0x61");
    expect_error("text", YOKE_SPLIT_TRAIN, YOKE_ERROR_DATA, "a folder; text: reads one file");
}

static void settings_that_cannot_be_are_refused(void **state) {
    (void)state;
    write_text(BYTES);
    expect_refused(",context=0", YOKE_ERROR_ARGUMENT, "setting 'context=0'");
    expect_refused(",context=99999", YOKE_ERROR_ARGUMENT, "expected context=1..65536");
    expect_refused(",validation=1", YOKE_ERROR_ARGUMENT, "validation=0.001..0.9");
    expect_refused(",vocabulary=9", YOKE_ERROR_ARGUMENT, "setting 'vocabulary=9'");
    yoke_dataset *dataset = NULL;
    assert_int_equal(yoke_dataset_open(&dataset, "text:", YOKE_SPLIT_TRAIN), YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "write text:FILE"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(validation_has_every_byte_of_the_end_as_a_label_once),
        cmocka_unit_test(an_epoch_reads_the_rest_once_in_windows_that_begin_elsewhere_each_time),
        cmocka_unit_test(every_size_has_rows_that_lie_in_their_part),
        cmocka_unit_test(the_tokens_are_the_bytes_that_occur_and_have_names),
        cmocka_unit_test_setup(files_that_are_no_text_to_train_on_are_refused, empty_folder),
        cmocka_unit_test_setup(settings_that_cannot_be_are_refused, empty_folder),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
