/* SPDX-License-Identifier: Apache-2.0 */
/* CIFAR files become rows, or an error that names file and byte. */
#include "data_folder.h"

#define PIXELS 3072

static uint8_t pixel_of(size_t row, size_t i) {
    return (uint8_t)(row * 31 + i * 7 + i / 256);
}

/* `head` label bytes (the last one is the label), then pixels. */
static uint8_t *make_cifar(size_t rows, size_t head) {
    size_t record = head + PIXELS;
    uint8_t *data = malloc(rows * record);
    assert_non_null(data);
    for (size_t row = 0; row < rows; row++) {
        data[row * record] = (uint8_t)(row % 10);
        data[row * record + head - 1] = (uint8_t)(row % 10);
        for (size_t i = 0; i < PIXELS; i++)
            data[row * record + head + i] = pixel_of(row, i);
    }
    return data;
}

static void write_cifar(const char *name, size_t rows, size_t head) {
    uint8_t *data = make_cifar(rows, head);
    write_file(name, data, rows * (head + PIXELS));
    free(data);
}

static void check_cifar_rows(const yoke_dataset *dataset, size_t first, size_t rows) {
    for (size_t row = 0; row < rows; row++) {
        assert_int_equal(dataset->labels[first + row], row % 10);
        for (size_t i = 0; i < PIXELS; i++)
            assert_int_equal(dataset->bytes[(first + row) * PIXELS + i], pixel_of(row, i));
    }
}

static void cifar_training_reads_the_files_present_in_order(void **state) {
    (void)state;
    write_cifar("data_batch_1.bin", 3, 1);
    write_cifar("data_batch_3.bin", 2, 1);
    yoke_dataset *dataset = NULL;
    assert_int_equal(open_spec(&dataset, "cifar10", YOKE_SPLIT_TRAIN), YOKE_OK);
    yoke_dataset_info info = {.struct_size = sizeof info};
    assert_int_equal(yoke_dataset_describe(dataset, &info), YOKE_OK);
    assert_string_equal(info.name, "cifar10");
    assert_int_equal(info.rows, 5);
    assert_int_equal(info.shape.channels, 3);
    assert_int_equal(info.shape.height, 32);
    assert_int_equal(info.shape.width, 32);
    assert_int_equal(info.classes, 10);
    assert_true(info.mean[0] == 0.4914f && info.std[2] == 0.2616f);
    check_cifar_rows(dataset, 0, 3);
    check_cifar_rows(dataset, 3, 2);
    yoke_dataset_close(dataset);
}

static void cifar100_takes_the_fine_label(void **state) {
    (void)state;
    uint8_t *data = make_cifar(2, 2);
    data[0] = 19, data[1] = 99;
    write_file("test.bin", data, 2 * (2 + PIXELS));
    free(data);
    yoke_dataset *dataset = NULL;
    assert_int_equal(open_spec(&dataset, "cifar100", YOKE_SPLIT_TEST), YOKE_OK);
    assert_int_equal(dataset->classes, 100);
    assert_int_equal(dataset->labels[0], 99);
    assert_int_equal(dataset->bytes[0], pixel_of(0, 0));
    yoke_dataset_close(dataset);
}

/* A file of whole records is whole: how many there should be is not written in it. */
static void check_truncations(const char *format, const char *name, size_t head) {
    size_t record = head + PIXELS;
    write_cifar(name, 2, head);
    for (size_t bytes = 2 * record; bytes-- > 0;) {
        assert_int_equal(truncate(in_folder(name), (off_t)bytes), 0);
        if (bytes == record) {
            yoke_dataset *dataset = NULL;
            assert_int_equal(open_spec(&dataset, format, YOKE_SPLIT_TEST), YOKE_OK);
            assert_int_equal(dataset->rows, 1);
            yoke_dataset_close(dataset);
            continue;
        }
        char words[64];
        snprintf(words, sizeof words, "%s: ends at byte %zu,", name, bytes);
        expect_error(format, YOKE_SPLIT_TEST, YOKE_ERROR_DATA, words);
    }
}

static void cifar_truncated_inside_a_record_is_refused_at_every_byte(void **state) {
    (void)state;
    check_truncations("cifar10", "test_batch.bin", 1);
    check_truncations("cifar100", "test.bin", 2);
}

static void cifar_labels_out_of_range_name_record_and_byte(void **state) {
    (void)state;
    uint8_t *data = make_cifar(3, 1);
    data[2 * 3073] = 10;
    write_file("test_batch.bin", data, 3 * 3073);
    expect_error("cifar10", YOKE_SPLIT_TEST, YOKE_ERROR_DATA,
                 "test_batch.bin: record 2: label 10 at byte 6146");
    free(data);
    data = make_cifar(2, 2);
    data[3075] = 100;
    write_file("test.bin", data, 2 * 3074);
    expect_error("cifar100", YOKE_SPLIT_TEST, YOKE_ERROR_DATA, "record 1: label 100 at byte 3075");
    data[3075] = 0, data[3074] = 20;
    write_file("test.bin", data, 2 * 3074);
    expect_error("cifar100", YOKE_SPLIT_TEST, YOKE_ERROR_DATA,
                 "record 1: coarse label 20 at byte 3074");
    free(data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(cifar_training_reads_the_files_present_in_order, empty_folder),
        cmocka_unit_test_teardown(cifar100_takes_the_fine_label, empty_folder),
        cmocka_unit_test_teardown(cifar_truncated_inside_a_record_is_refused_at_every_byte,
                                  empty_folder),
        cmocka_unit_test_teardown(cifar_labels_out_of_range_name_record_and_byte, empty_folder),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
