/* SPDX-License-Identifier: Apache-2.0 */
/* Files of tensors: what is added comes back, and mistakes are named. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "yoke/yoke.h"

static char path[] = "/tmp/yoke-tensor-file-XXXXXX";

static int make_path(void **state) {
    (void)state;
    int descriptor = mkstemp(path);
    return descriptor < 0 || close(descriptor) != 0;
}

static int remove_path(void **state) {
    (void)state;
    return unlink(path);
}

static yoke_tensor_file_entry entry_of(const char *name, yoke_tensor_type type, int64_t rows,
                                       int64_t columns) {
    return (yoke_tensor_file_entry){.struct_size = sizeof(yoke_tensor_file_entry),
                                    .name = name,
                                    .type = type,
                                    .ndim = 2,
                                    .shape = {rows, columns}};
}

static void tensors_and_texts_come_back(void **state) {
    (void)state;
    yoke_tensor_file *file = NULL;
    float single[6] = {1, -2.5f, 0x1p-149f, 3e38f, -0.0f, INFINITY};
    double wide[2] = {0.1, -1e300}, values[6];
    int32_t labels[3] = {4, 5, 6};
    yoke_tensor_file_entry a = entry_of("step_000001/a.weight", YOKE_TENSOR_FLOAT32, 2, 3);
    yoke_tensor_file_entry b = entry_of("b", YOKE_TENSOR_FLOAT64, 2, 1);
    yoke_tensor_file_entry c = entry_of("c", YOKE_TENSOR_INT32, 1, 3);
    yoke_tensor_file_entry found = {.struct_size = sizeof found};
    assert_int_equal(yoke_tensor_file_create(&file), YOKE_OK);
    assert_int_equal(yoke_tensor_file_add(file, &a, single), YOKE_OK);
    assert_int_equal(yoke_tensor_file_add(file, &b, wide), YOKE_OK);
    assert_int_equal(yoke_tensor_file_add(file, &c, labels), YOKE_OK);
    assert_int_equal(yoke_tensor_file_note(file, "model", "a \"quoted\" name"), YOKE_OK);
    assert_int_equal(yoke_tensor_file_save(file, path), YOKE_OK);
    yoke_tensor_file_close(file);

    assert_int_equal(yoke_tensor_file_open(&file, path), YOKE_OK);
    assert_string_equal(yoke_tensor_file_noted(file, "model"), "a \"quoted\" name");
    assert_null(yoke_tensor_file_noted(file, "seed"));
    assert_int_equal(yoke_tensor_file_find(file, "step_000001/a.weight", &found), YOKE_OK);
    assert_int_equal(found.type, YOKE_TENSOR_FLOAT32);
    assert_int_equal(found.ndim, 2);
    assert_int_equal(found.shape[1], 3);
    assert_int_equal(yoke_tensor_file_read(file, "step_000001/a.weight", values, 6), YOKE_OK);
    for (int i = 0; i < 6; i++)
        assert_true(values[i] == (double)single[i] && !signbit(values[i]) == !signbit(single[i]));
    assert_int_equal(yoke_tensor_file_read(file, "b", values, 2), YOKE_OK);
    assert_memory_equal(values, wide, sizeof wide);
    yoke_tensor_file_close(file);
}

static void expect(yoke_status status, yoke_status expected, const char *word) {
    assert_int_equal(status, expected);
    if (strstr(yoke_last_error(), word) == NULL)
        fail_msg("'%s' is not in: %s", word, yoke_last_error());
}

static void mistakes_are_named(void **state) {
    (void)state;
    yoke_tensor_file *file = NULL;
    int32_t labels[3] = {4, 5, 6};
    double values[3];
    yoke_tensor_file_entry entry = entry_of("c", YOKE_TENSOR_INT32, 1, 3);
    assert_int_equal(yoke_tensor_file_create(&file), YOKE_OK);
    assert_int_equal(yoke_tensor_file_add(file, &entry, labels), YOKE_OK);
    entry.shape[0] = -1;
    expect(yoke_tensor_file_add(file, &entry, labels), YOKE_ERROR_ARGUMENT, "shape[0] is -1");
    entry.type = YOKE_TENSOR_OTHER;
    expect(yoke_tensor_file_add(file, &entry, labels), YOKE_ERROR_ARGUMENT, "type is 4");
    entry.ndim = 9;
    entry.type = YOKE_TENSOR_INT32;
    expect(yoke_tensor_file_add(file, &entry, labels), YOKE_ERROR_ARGUMENT, "ndim is 9");
    expect(yoke_tensor_file_save(file, "/nonexistent/a"), YOKE_ERROR_IO, "/nonexistent/a");
    assert_int_equal(yoke_tensor_file_save(file, path), YOKE_OK);
    yoke_tensor_file_close(file);

    expect(yoke_tensor_file_open(&file, "/nonexistent/a"), YOKE_ERROR_MISSING, "/nonexistent/a");
    assert_null(file);
    assert_int_equal(yoke_tensor_file_open(&file, path), YOKE_OK);
    expect(yoke_tensor_file_read(file, "d", values, 3), YOKE_ERROR_MISSING, "no tensor d");
    expect(yoke_tensor_file_read(file, "c", values, 2), YOKE_ERROR_ARGUMENT, "3 elements, not 2");
    expect(yoke_tensor_file_read(file, "c", values, 3), YOKE_ERROR_DATA, "I32");
    expect(yoke_tensor_file_note(file, "a", "b"), YOKE_ERROR_ARGUMENT, "was read");
    yoke_tensor_file_close(file);
}

static void names_that_a_reader_would_refuse_are_not_written(void **state) {
    (void)state;
    static const struct {
        const char *tensors[2], *texts[2], *word;
    } cases[] = {
        {{"a", "a"}, {"x", "y"}, "two tensors have the name 'a'"},
        {{"a", "__metadata__"}, {"x", "y"}, "tensor '__metadata__': safetensors needs"},
        {{"a", "b"}, {"x", "x"}, "two texts have the name 'x'"},
        {{"a", "b"}, {"x", "format"}, "text 'format': safetensors needs"},
    };
    float value = 1;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        yoke_tensor_file *file = NULL;
        assert_int_equal(yoke_tensor_file_create(&file), YOKE_OK);
        for (int k = 0; k < 2; k++) {
            yoke_tensor_file_entry entry = entry_of(cases[i].tensors[k], YOKE_TENSOR_FLOAT32, 1, 1);
            assert_int_equal(yoke_tensor_file_add(file, &entry, &value), YOKE_OK);
            assert_int_equal(yoke_tensor_file_note(file, cases[i].texts[k], ""), YOKE_OK);
        }
        expect(yoke_tensor_file_save(file, path), YOKE_ERROR_ARGUMENT, cases[i].word);
        yoke_tensor_file_close(file);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_and_texts_come_back),
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(names_that_a_reader_would_refuse_are_not_written),
    };
    return cmocka_run_group_tests(tests, make_path, remove_path);
}
