/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors files: exact bytes, round trips, and malicious files. */
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

#include "support/file_place.h"
#include "train/safetensors.h"

static char path[] = "/tmp/yoke-safetensors-XXXXXX";

static int make_path(void **state) {
    (void)state;
    int descriptor = mkstemp(path);
    return descriptor < 0 || close(descriptor) != 0;
}

static int remove_path(void **state) {
    (void)state;
    return unlink(path);
}

static unsigned char *own_bytes;

/* Frees the bytes of the last file that open_own opened. */
static void close_own(yoke_safetensors *file) {
    yoke_safetensors_close(file);
    free(own_bytes);
    own_bytes = NULL;
}

/* A file of these bytes, which a failure frees. */
static yoke_status open_own(yoke_safetensors *file, unsigned char *data, size_t bytes) {
    own_bytes = data;
    yoke_status status = yoke_safetensors_open(file, FROM_BYTES(data, bytes));
    if (status != YOKE_OK) close_own(file);
    return status;
}

/* A file of this header, padded by nothing, and `buffer_bytes` counted bytes behind it. */
static yoke_status parse(yoke_safetensors *file, const char *header, size_t header_length,
                         size_t buffer_bytes) {
    size_t bytes = 8 + header_length + buffer_bytes;
    unsigned char *data = malloc(bytes);
    assert_non_null(data);
    for (int i = 0; i < 8; i++)
        data[i] = (unsigned char)((uint64_t)header_length >> 8 * i);
    memcpy(data + 8, header, header_length);
    for (size_t i = 0; i < buffer_bytes; i++)
        data[8 + header_length + i] = (unsigned char)i;
    return open_own(file, data, bytes);
}

static void accepts(const char *header, size_t buffer_bytes) {
    yoke_safetensors file;
    yoke_status status = parse(&file, header, strlen(header), buffer_bytes);
    if (status != YOKE_OK) fail_msg("%s: %s", header, yoke_last_error());
    close_own(&file);
}

/* The message names the file and holds `word`. */
static void refuses(const char *header, size_t buffer_bytes, const char *word) {
    yoke_safetensors file;
    yoke_status status = parse(&file, header, strlen(header), buffer_bytes);
    if (status != YOKE_ERROR_DATA) fail_msg("accepted: %s", header);
    assert_non_null(strstr(yoke_last_error(), YOKE_BYTES_NAME ": "));
    if (strstr(yoke_last_error(), word) == NULL)
        fail_msg("'%s' is not in: %s", word, yoke_last_error());
    assert_null(file.header);
}

/* Reading. */

static void well_formed_headers_are_accepted(void **state) {
    (void)state;
    accepts("{}", 0);
    accepts("{\"__metadata__\":{\"format\":\"pt\",\"x\":\"y\"}}", 0);
    accepts("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8);
    accepts(" \n\t{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}   ", 1);
    accepts("{\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[2,5]},"
            "\"a\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[0,2]}}",
            5);
    accepts("{\"a\":{\"dtype\":\"F64\",\"shape\":[4,0],\"data_offsets\":[0,0]},"
            "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
            1);
    accepts("{\"a\":{\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[0,1]}}", 1);
}

static void entries_that_lie_are_refused(void **state) {
    (void)state;
    refuses("{\"a\":{\"dtype\":\"F33\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "F33");
    refuses("{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "dtype");
    refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, "need 8");
    refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, "dimension 0");
    refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}}", 4, "dimension 0");
    refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":1,\"data_offsets\":[0,4]}}", 4, "shape");
    refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4,
            "8 dimensions");
    refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4, "data_offsets");
    refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}}", 4, "data_offsets");
    refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, "data_offsets");
    refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "only");
    refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4, "only");
    refuses("{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}", 1, "tensor a");
    refuses("{\"a\":[]}", 0, "tensor a");
}

static void overflowing_shapes_are_refused(void **state) {
    (void)state;
    refuses("{\"a\":{\"dtype\":\"U8\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}",
            0, "too large");
    refuses("{\"a\":{\"dtype\":\"F64\",\"shape\":[2305843009213693952],\"data_offsets\":[0,0]}}", 0,
            "too large");
    refuses("{\"a\":{\"dtype\":\"U8\",\"shape\":[99999999999999999999],\"data_offsets\":[0,0]}}", 0,
            "JSON");
}

static void holes_overlaps_and_leftovers_are_refused(void **state) {
    (void)state;
    refuses("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}", 2, "begins");
    refuses("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
            "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}",
            3, "before");
    refuses("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
            "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[2,3]}}",
            3, "behind");
    refuses("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 2,
            "belong to no tensor");
    refuses("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 1, "only 1");
    refuses("{\"a\":{\"dtype\":\"U8\",\"shape\":[4611686018427387904],"
            "\"data_offsets\":[0,4611686018427387904]}}",
            1, "tensor a");
}

static void duplicate_names_are_refused(void **state) {
    (void)state;
    refuses("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
            "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
            2, "duplicate");
    refuses("{\"a\":{\"dtype\":\"U8\",\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
            "duplicate");
}

static void headers_that_are_no_object_are_refused(void **state) {
    (void)state;
    refuses("", 0, "JSON");
    refuses("[]", 0, "object");
    refuses("{\"a\":", 0, "JSON");
    refuses("{} {}", 0, "JSON");
    refuses("{\"\xff\":1}", 0, "JSON");
    refuses("{\"__metadata__\":[]}", 0, "__metadata__");
    refuses("{\"__metadata__\":{\"step\":5}}", 0, "step");
}

static void a_deep_header_is_refused_not_followed(void **state) {
    (void)state;
    char header[20000];
    memset(header, '[', sizeof header);
    yoke_safetensors file;
    assert_int_equal(parse(&file, header, sizeof header, 0), YOKE_ERROR_DATA);
}

static void a_huge_header_length_is_refused_before_it_is_believed(void **state) {
    (void)state;
    static const unsigned char lengths[][8] = {
        {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, /* overflows 8 + N */
        {0, 0, 0, 0, 0, 0, 0, 0x80},
        {0x01, 0xe1, 0xf5, 0x05, 0, 0, 0, 0}, /* 100,000,001 */
        {3, 0, 0, 0, 0, 0, 0, 0},             /* one more than there are */
    };
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        unsigned char *data = malloc(10);
        assert_non_null(data);
        memcpy(data, lengths[i], 8);
        memcpy(data + 8, "{}", 2);
        yoke_safetensors file;
        assert_int_equal(open_own(&file, data, 10), YOKE_ERROR_DATA);
        assert_non_null(strstr(yoke_last_error(), "declares a header"));
    }
}

/* Values. */

static void every_float_type_reads_as_the_same_numbers(void **state) {
    (void)state;
    static const char header[] =
        "{\"half\":{\"dtype\":\"F16\",\"shape\":[6],\"data_offsets\":[0,12]},"
        "\"brain\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[12,16]},"
        "\"single\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[16,20]},"
        "\"double\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[20,28]},"
        "\"count\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[28,36]}}";
    static const uint16_t halves[6] = {0x3c00, 0xc000, 0x0001, 0x03ff, 0x7bff, 0xfc00};
    static const float expected[6] = {1, -2, 0x1p-24f, 1023 * 0x1p-24f, 65504, -(float)INFINITY};
    static const uint16_t brains[2] = {0x3f80, 0xc049};
    unsigned char *data = calloc(1, 8 + sizeof header - 1 + 36);
    assert_non_null(data);
    float single = 0.1f, values[6];
    double twice = 0.25;
    int64_t count = -7, read = 0;
    data[0] = (unsigned char)((sizeof header - 1) & 0xff);
    data[1] = (unsigned char)((sizeof header - 1) >> 8);
    memcpy(data + 8, header, sizeof header - 1);
    unsigned char *buffer = data + 8 + sizeof header - 1;
    memcpy(buffer, halves, 12);
    memcpy(buffer + 12, brains, 4);
    memcpy(buffer + 16, &single, 4);
    memcpy(buffer + 20, &twice, 8);
    memcpy(buffer + 28, &count, 8);
    yoke_safetensors file;
    assert_int_equal(open_own(&file, data, 8 + sizeof header - 1 + 36), YOKE_OK);
    assert_int_equal(yoke_safetensors_floats(&file, yoke_safetensors_find(&file, "half"), values),
                     YOKE_OK);
    assert_memory_equal(values, expected, sizeof expected);
    assert_int_equal(yoke_safetensors_floats(&file, yoke_safetensors_find(&file, "brain"), values),
                     YOKE_OK);
    assert_true(values[0] == 1 && values[1] == -3.140625f);
    assert_int_equal(yoke_safetensors_floats(&file, yoke_safetensors_find(&file, "single"), values),
                     YOKE_OK);
    assert_true(values[0] == 0.1f);
    assert_int_equal(yoke_safetensors_floats(&file, yoke_safetensors_find(&file, "double"), values),
                     YOKE_OK);
    assert_true(values[0] == 0.25f);
    assert_int_equal(yoke_safetensors_integer(&file, yoke_safetensors_find(&file, "count"), &read),
                     YOKE_OK);
    assert_int_equal(read, -7);
    assert_int_equal(yoke_safetensors_floats(&file, yoke_safetensors_find(&file, "count"), values),
                     YOKE_ERROR_DATA);
    assert_null(yoke_safetensors_find(&file, "nothing"));
    close_own(&file);
}

/* Writing. */

static void write_small_file(void) {
    yoke_file_tensor tensors[] = {
        {.name = "b.weight", .dtype = YOKE_DTYPE_F32, .ndim = 2, .shape = {1, 2}},
        {.name = "a.weight", .dtype = YOKE_DTYPE_F32, .ndim = 1, .shape = {1}},
        {.name = "n", .dtype = YOKE_DTYPE_I64},
    };
    static const int64_t steps = 300;
    static const float values[3] = {1, 2, 3};
    yoke_file_writer writer;
    assert_int_equal(yoke_safetensors_arrange(tensors, 3), YOKE_OK);
    assert_int_equal(yoke_safetensors_create(&writer, TO(path), tensors, 3, NULL, 0), YOKE_OK);
    assert_string_equal(tensors[0].name, "n");
    assert_string_equal(tensors[1].name, "a.weight");
    assert_int_equal(yoke_file_write(&writer, &steps, sizeof steps), YOKE_OK);
    assert_int_equal(yoke_file_write(&writer, values, sizeof values), YOKE_OK);
    assert_int_equal(yoke_file_commit(&writer), YOKE_OK);
}

static void a_file_has_exactly_the_reference_writers_bytes(void **state) {
    (void)state;
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"n\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},"
        "\"a.weight\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]},"
        "\"b.weight\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[12,20]}}";
    static const unsigned char buffer[] = {0x2c, 1,    0, 0, 0, 0,    0, 0, 0,    0,
                                           0x80, 0x3f, 0, 0, 0, 0x40, 0, 0, 0x40, 0x40};
    size_t padded = (sizeof header - 1 + 7) / 8 * 8, bytes;
    unsigned char *data;
    write_small_file();
    assert_int_equal(yoke_file_read(path, 4096, &data, &bytes), YOKE_OK);
    assert_int_equal(bytes, 8 + padded + sizeof buffer);
    assert_int_equal(data[0] + 256 * data[1], padded);
    assert_memory_equal(data + 2, "\0\0\0\0\0\0", 6);
    assert_memory_equal(data + 8, header, sizeof header - 1);
    for (size_t i = sizeof header - 1; i < padded; i++)
        assert_int_equal(data[8 + i], ' ');
    assert_memory_equal(data + 8 + padded, buffer, sizeof buffer);
    free(data);
}

static void a_written_file_reads_back(void **state) {
    (void)state;
    yoke_safetensors file;
    float values[2];
    int64_t steps;
    write_small_file();
    assert_int_equal(yoke_safetensors_open(&file, FROM(path)), YOKE_OK);
    assert_int_equal(file.count, 3);
    const yoke_file_tensor *b = yoke_safetensors_find(&file, "b.weight");
    assert_int_equal(b->ndim, 2);
    assert_int_equal(b->shape[1], 2);
    assert_int_equal(yoke_safetensors_floats(&file, b, values), YOKE_OK);
    assert_true(values[0] == 2 && values[1] == 3);
    assert_int_equal(yoke_safetensors_integer(&file, yoke_safetensors_find(&file, "n"), &steps),
                     YOKE_OK);
    assert_int_equal(steps, 300);
    yoke_safetensors_close(&file);
}

static void a_file_cut_off_at_any_byte_is_refused(void **state) {
    (void)state;
    unsigned char *whole;
    size_t bytes;
    write_small_file();
    assert_int_equal(yoke_file_read(path, 4096, &whole, &bytes), YOKE_OK);
    for (size_t length = 0; length < bytes; length++) {
        yoke_safetensors file;
        unsigned char *data = malloc(length + 1);
        assert_non_null(data);
        memcpy(data, whole, length);
        assert_int_equal(open_own(&file, data, length), YOKE_ERROR_DATA);
        assert_non_null(strstr(yoke_last_error(), YOKE_BYTES_NAME ": "));
    }
    free(whole);
}

/* Whatever a byte is changed to, the answer is a file or an error, never a crash. */
static void a_file_with_any_byte_flipped_is_survived(void **state) {
    (void)state;
    unsigned char *whole;
    size_t bytes;
    write_small_file();
    assert_int_equal(yoke_file_read(path, 4096, &whole, &bytes), YOKE_OK);
    for (size_t i = 0; i < 8 * bytes; i++) {
        yoke_safetensors file;
        unsigned char *data = malloc(bytes);
        assert_non_null(data);
        memcpy(data, whole, bytes);
        data[i / 8] ^= (unsigned char)(1u << i % 8);
        yoke_status status = open_own(&file, data, bytes);
        assert_true(status == YOKE_OK || status == YOKE_ERROR_DATA);
        if (status == YOKE_OK) close_own(&file);
    }
    free(whole);
}

static void a_missing_file_is_missing_not_bad(void **state) {
    (void)state;
    yoke_safetensors file;
    assert_int_equal(yoke_safetensors_open(&file, FROM("/tmp/no-such-yoke-file")),
                     YOKE_ERROR_MISSING);
    assert_non_null(strstr(yoke_last_error(), "/tmp/no-such-yoke-file"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(well_formed_headers_are_accepted),
        cmocka_unit_test(entries_that_lie_are_refused),
        cmocka_unit_test(overflowing_shapes_are_refused),
        cmocka_unit_test(holes_overlaps_and_leftovers_are_refused),
        cmocka_unit_test(duplicate_names_are_refused),
        cmocka_unit_test(headers_that_are_no_object_are_refused),
        cmocka_unit_test(a_deep_header_is_refused_not_followed),
        cmocka_unit_test(a_huge_header_length_is_refused_before_it_is_believed),
        cmocka_unit_test(every_float_type_reads_as_the_same_numbers),
        cmocka_unit_test(a_file_has_exactly_the_reference_writers_bytes),
        cmocka_unit_test(a_written_file_reads_back),
        cmocka_unit_test(a_file_cut_off_at_any_byte_is_refused),
        cmocka_unit_test(a_file_with_any_byte_flipped_is_survived),
        cmocka_unit_test(a_missing_file_is_missing_not_bad),
    };
    return cmocka_run_group_tests(tests, make_path, remove_path);
}
