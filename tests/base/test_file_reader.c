/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of files: what can be opened, and what happens when a file becomes shorter. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"

static char folder[] = "/tmp/yoke-file-reader-XXXXXX", target[64];

static int make_folder(void **state) {
    (void)state;
    if (mkdtemp(folder) == NULL) return -1;
    snprintf(target, sizeof target, "%s/file", folder);
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    (void)unlink(target);
    return rmdir(folder);
}

static void write_bytes(const char *bytes) {
    FILE *file = fopen(target, "w");
    assert_non_null(file);
    assert_true(fputs(bytes, file) >= 0 && fclose(file) == 0);
}

static void expect_refused(const char *path, yoke_status expected, const char *word) {
    yoke_file_reader reader;
    assert_int_equal(yoke_file_open(&reader, path), expected);
    if (strstr(yoke_last_error(), path) == NULL || strstr(yoke_last_error(), word) == NULL)
        fail_msg("no %s and '%s' in: %s", path, word, yoke_last_error());
}

static void only_regular_files_are_opened_and_none_is_waited_for(void **state) {
    (void)state;
    expect_refused(target, YOKE_ERROR_MISSING, "No such file");
    expect_refused(folder, YOKE_ERROR_IO, "a folder");
    expect_refused("/dev/zero", YOKE_ERROR_IO, "a device");
    assert_int_equal(mkfifo(target, 0600), 0); /* no one writes to it */
    expect_refused(target, YOKE_ERROR_IO, "a pipe");
    assert_int_equal(unlink(target), 0);
}

static void what_is_no_regular_file_is_not_read_as_one(void **state) {
    (void)state;
    unsigned char *data;
    size_t bytes;
    assert_int_equal(yoke_file_read_regular("/dev/zero", 100, &data, &bytes), YOKE_ERROR_IO);
    assert_int_equal(yoke_file_read("/dev/zero", 100, &data, &bytes), YOKE_ERROR_IO);
    assert_non_null(strstr(yoke_last_error(), "is a device"));
    assert_int_equal(mkfifo(target, 0600), 0); /* no one writes to it */
    assert_int_equal(yoke_file_read_regular(target, 100, &data, &bytes), YOKE_ERROR_IO);
    assert_non_null(strstr(yoke_last_error(), "a pipe"));
    assert_int_equal(unlink(target), 0);
    write_bytes("0123456789");
    assert_int_equal(yoke_file_read_regular(target, 9, &data, &bytes), YOKE_ERROR_IO);
    assert_int_equal(yoke_file_read_regular(target, 10, &data, &bytes), YOKE_OK);
    assert_string_equal((const char *)data, "0123456789");
    assert_int_equal(bytes, 10);
    free(data);
}

static void parts_are_read_where_they_lie(void **state) {
    (void)state;
    yoke_file_reader reader;
    char part[4] = "";
    write_bytes("0123456789");
    assert_int_equal(yoke_file_open(&reader, target), YOKE_OK);
    assert_int_equal(reader.bytes, 10);
    assert_int_equal(yoke_file_read_at(&reader, target, 7, part, 3), YOKE_OK);
    assert_string_equal(part, "789");
    assert_int_equal(yoke_file_read_at(&reader, target, 0, part, 3), YOKE_OK);
    assert_string_equal(part, "012");
    yoke_file_close(&reader);
}

static void a_file_that_becomes_shorter_is_an_error_and_no_signal(void **state) {
    (void)state;
    yoke_file_reader reader;
    char part[4];
    write_bytes("0123456789");
    assert_int_equal(yoke_file_open(&reader, target), YOKE_OK);
    assert_int_equal(truncate(target, 8), 0);
    assert_int_equal(yoke_file_read_at(&reader, target, 7, part, 3), YOKE_ERROR_IO);
    assert_non_null(strstr(yoke_last_error(), "had 10 bytes and ends at byte 8 now"));
    yoke_file_close(&reader);
}

static void a_file_that_another_replaces_stays_the_one_that_was_opened(void **state) {
    (void)state;
    yoke_file_reader reader;
    char part[4] = "";
    write_bytes("old");
    assert_int_equal(yoke_file_open(&reader, target), YOKE_OK);
    assert_int_equal(unlink(target), 0);
    write_bytes("new");
    assert_int_equal(yoke_file_read_at(&reader, target, 0, part, 3), YOKE_OK);
    assert_string_equal(part, "old");
    yoke_file_close(&reader);
}

static void bytes_in_memory_are_read_as_a_file(void **state) {
    (void)state;
    static const char bytes[] = "0123456789";
    yoke_file_source source;
    yoke_file_reader reader;
    char part[4] = "";
    assert_int_equal(yoke_source_bytes(&source, NULL, 3), YOKE_ERROR_ARGUMENT);
    assert_int_equal(yoke_source_bytes(&source, bytes, 10), YOKE_OK);
    assert_int_equal(yoke_file_open_source(&reader, &source), YOKE_OK);
    assert_true(yoke_file_is_memory(&reader));
    assert_int_equal(reader.bytes, 10);
    assert_int_equal(yoke_file_read_at(&reader, source.path, 7, part, 3), YOKE_OK);
    assert_string_equal(part, "789");
    assert_int_equal(yoke_file_read_at(&reader, source.path, 10, part, 0), YOKE_OK);
    assert_int_equal(yoke_file_read_at(&reader, source.path, 8, part, 3), YOKE_ERROR_IO);
    assert_string_equal(yoke_last_error(),
                        "the bytes in memory: 3 bytes from byte 8 on: it has 10");
    assert_int_equal(yoke_file_read_at(&reader, source.path, SIZE_MAX, part, 3), YOKE_ERROR_IO);
    yoke_file_close(&reader);
    yoke_file_close(&reader);
    assert_int_equal(yoke_source_bytes(&source, bytes, 0), YOKE_OK);
    assert_int_equal(yoke_file_open_source(&reader, &source), YOKE_OK);
    assert_int_equal(yoke_file_read_at(&reader, source.path, 0, part, 1), YOKE_ERROR_IO);
    yoke_file_close(&reader);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_regular_files_are_opened_and_none_is_waited_for),
        cmocka_unit_test(what_is_no_regular_file_is_not_read_as_one),
        cmocka_unit_test(parts_are_read_where_they_lie),
        cmocka_unit_test(a_file_that_becomes_shorter_is_an_error_and_no_signal),
        cmocka_unit_test(a_file_that_another_replaces_stays_the_one_that_was_opened),
        cmocka_unit_test(bytes_in_memory_are_read_as_a_file),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
