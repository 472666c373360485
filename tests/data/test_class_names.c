/* SPDX-License-Identifier: Apache-2.0 */
/* Names of classes come from the archive's file, or there are none. */
#include "data_folder.h"

#define RECORD 3073
static const char ten[] = "airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n";

/* The names that a CIFAR-10 folder with this file gives; NULL: none. */
static yoke_dataset *open_with(const char *text, size_t bytes, const char *const **names) {
    static const uint8_t record[RECORD] = {3};
    yoke_dataset *dataset = NULL;
    yoke_dataset_info info = {.struct_size = sizeof info};
    write_file("test_batch.bin", record, sizeof record);
    if (text != NULL) write_file("batches.meta.txt", (const uint8_t *)text, bytes);
    assert_int_equal(open_spec(&dataset, "cifar10", YOKE_SPLIT_TEST), YOKE_OK);
    assert_int_equal(yoke_dataset_describe(dataset, &info), YOKE_OK);
    *names = info.class_names;
    return dataset;
}

static void expect_names(const char *text, size_t bytes, bool named) {
    const char *const *names;
    yoke_dataset *dataset = open_with(text, bytes, &names);
    assert_int_equal(names != NULL, named);
    if (named) {
        assert_string_equal(names[0], "airplane");
        assert_string_equal(names[3], "cat");
        assert_string_equal(names[9], "truck");
    }
    yoke_dataset_close(dataset);
}

static void a_line_for_each_class_gives_its_name(void **state) {
    (void)state;
    expect_names(ten, strlen(ten), true);
    expect_names(ten, strlen(ten) - 1, true); /* without the last newline */
    static const char windows[] =
        "airplane\r\nautomobile \r\nbird\r\ncat\r\ndeer\r\ndog\r\nfrog\r\n"
        "horse\r\nship\r\ntruck\r\n\r\n\n";
    expect_names(windows, strlen(windows), true);
}

static void a_file_of_another_number_of_names_gives_none(void **state) {
    (void)state;
    char eleven[sizeof ten + 8];
    snprintf(eleven, sizeof eleven, "%sboat\n", ten);
    expect_names(NULL, 0, false);
    expect_names(eleven, strlen(eleven), false);
    expect_names(ten, strlen(ten) - strlen("truck\n"), false);
    expect_names("", 0, false);
    expect_names("\n\n\n", 3, false);
    char cut[sizeof ten];
    memcpy(cut, ten, sizeof ten);
    cut[20] = '\0'; /* what is behind it is no text */
    expect_names(cut, strlen(ten), false);
}

static void a_file_that_cannot_be_read_is_an_error_with_its_name(void **state) {
    (void)state;
    static const uint8_t record[RECORD] = {3};
    write_file("test_batch.bin", record, sizeof record);
    write_file("batches.meta.txt", record, 1);
    assert_int_equal(truncate(in_folder("batches.meta.txt"), 2 << 20), 0);
    expect_error("cifar10", YOKE_SPLIT_TEST, YOKE_ERROR_IO, "batches.meta.txt");
}

static void the_other_formats_have_numbers_only(void **state) {
    (void)state;
    yoke_dataset *dataset = NULL;
    yoke_dataset_info info = {.struct_size = sizeof info};
    assert_int_equal(yoke_dataset_open(&dataset, "synthetic:1x8x8,rows=10", YOKE_SPLIT_TEST),
                     YOKE_OK);
    assert_int_equal(yoke_dataset_describe(dataset, &info), YOKE_OK);
    assert_null(info.class_names);
    yoke_dataset_close(dataset);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_line_for_each_class_gives_its_name, empty_folder),
        cmocka_unit_test_teardown(a_file_of_another_number_of_names_gives_none, empty_folder),
        cmocka_unit_test_teardown(a_file_that_cannot_be_read_is_an_error_with_its_name,
                                  empty_folder),
        cmocka_unit_test(the_other_formats_have_numbers_only),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
