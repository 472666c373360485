/* SPDX-License-Identifier: Apache-2.0 */
/* IDX files, compressed or not, become rows, or an error that names file and byte. */
#include "data_folder.h"

#include <zlib.h>

#define SIDE 28
#define DIGIT (SIDE * SIDE)

static void write_gzip(const char *name, const uint8_t *data, size_t bytes) {
    unlink(in_folder(name)); /* overwriting would be flushed to disk at once */
    gzFile file = gzopen(in_folder(name), "wb9");
    assert_non_null(file);
    assert_int_equal(gzwrite(file, data, (unsigned)bytes), (int)bytes);
    assert_int_equal(gzclose(file), Z_OK);
}

static size_t read_file(const char *name, uint8_t *data, size_t limit) {
    FILE *file = fopen(in_folder(name), "rb");
    assert_non_null(file);
    size_t bytes = fread(data, 1, limit, file);
    fclose(file);
    assert_true(bytes < limit);
    return bytes;
}

/* IDX images and labels of `rows` digits. */
typedef struct digits {
    uint8_t images[16 + 3 * DIGIT], labels[8 + 3];
    size_t image_bytes, label_bytes;
} digits;

static digits make_digits(uint8_t rows) {
    digits made = {.images = {0, 0, 8, 3, 0, 0, 0, rows, 0, 0, 0, SIDE, 0, 0, 0, SIDE},
                   .labels = {0, 0, 8, 1, 0, 0, 0, rows},
                   .image_bytes = 16 + (size_t)rows * DIGIT,
                   .label_bytes = 8 + (size_t)rows};
    for (size_t i = 16; i < made.image_bytes; i++)
        made.images[i] = (uint8_t)(i % SIDE < 9 ? 0 : i / 100);
    for (uint8_t i = 0; i < rows; i++)
        made.labels[8 + i] = (uint8_t)(9 - i);
    return made;
}

static void check_digits(const digits *made) {
    yoke_dataset *dataset = NULL;
    assert_int_equal(open_spec(&dataset, "mnist", YOKE_SPLIT_TRAIN), YOKE_OK);
    assert_int_equal(dataset->rows, made->label_bytes - 8);
    assert_int_equal(dataset->shape.channels, 1);
    assert_int_equal(dataset->shape.height, SIDE);
    assert_memory_equal(dataset->bytes, made->images + 16, dataset->rows * DIGIT);
    for (size_t row = 0; row < dataset->rows; row++)
        assert_int_equal(dataset->labels[row], 9 - row);
    yoke_dataset_close(dataset);
}

static void mnist_opens_under_every_spelling_plain_or_packed(void **state) {
    (void)state;
    digits made = make_digits(3);
    static const char *const images[] = {"train-images-idx3-ubyte", "train-images.idx3-ubyte",
                                         "train-images-idx3-ubyte.gz",
                                         "train-images.idx3-ubyte.gz"};
    static const char *const labels[] = {"train-labels-idx1-ubyte", "train-labels.idx1-ubyte",
                                         "train-labels-idx1-ubyte.gz",
                                         "train-labels.idx1-ubyte.gz"};
    for (int i = 0; i < 4; i++) {
        (i < 2 ? write_file : write_gzip)(images[i], made.images, made.image_bytes);
        (i < 2 ? write_file : write_gzip)(labels[i], made.labels, made.label_bytes);
        check_digits(&made);
        unlink(in_folder(images[i]));
        unlink(in_folder(labels[i]));
    }
}

static void check_each_truncation(const char *name, size_t bytes, const char *words) {
    while (bytes-- > 0) {
        assert_int_equal(truncate(in_folder(name), (off_t)bytes), 0);
        expect_error("mnist", YOKE_SPLIT_TRAIN, YOKE_ERROR_DATA, words);
    }
}

static void mnist_truncated_at_any_byte_is_refused(void **state) {
    (void)state;
    digits made = make_digits(2);
    write_file("train-images-idx3-ubyte", made.images, made.image_bytes);
    write_file("train-labels-idx1-ubyte", made.labels, made.label_bytes);
    check_digits(&made);
    check_each_truncation("train-labels-idx1-ubyte", made.label_bytes,
                          "train-labels-idx1-ubyte: ends at byte");
    check_each_truncation("train-images-idx3-ubyte", made.image_bytes,
                          "train-images-idx3-ubyte: ends at byte");
}

static void mnist_packed_and_truncated_at_any_byte_is_refused(void **state) {
    (void)state;
    digits made = make_digits(2);
    uint8_t packed[4096];
    write_gzip("train-images-idx3-ubyte.gz", made.images, made.image_bytes);
    write_gzip("train-labels-idx1-ubyte.gz", made.labels, made.label_bytes);
    check_digits(&made);
    check_each_truncation("train-labels-idx1-ubyte.gz",
                          read_file("train-labels-idx1-ubyte.gz", packed, sizeof packed),
                          "train-labels-idx1-ubyte.gz: ");
    check_each_truncation("train-images-idx3-ubyte.gz",
                          read_file("train-images-idx3-ubyte.gz", packed, sizeof packed),
                          "train-images-idx3-ubyte.gz: ");
}

static void mnist_header_with_any_bit_flipped_is_refused(void **state) {
    (void)state;
    digits made = make_digits(2);
    write_file("train-labels-idx1-ubyte", made.labels, made.label_bytes);
    for (int bit = 0; bit < 16 * 8; bit++) {
        digits bent = made;
        bent.images[bit / 8] ^= (uint8_t)(1 << bit % 8);
        write_file("train-images-idx3-ubyte", bent.images, bent.image_bytes);
        expect_error("mnist", YOKE_SPLIT_TRAIN, YOKE_ERROR_DATA, "train-images-idx3-ubyte: ");
    }
    write_file("train-images-idx3-ubyte", made.images, made.image_bytes);
    for (int bit = 0; bit < 8 * 8; bit++) {
        digits bent = made;
        bent.labels[bit / 8] ^= (uint8_t)(1 << bit % 8);
        write_file("train-labels-idx1-ubyte", bent.labels, bent.label_bytes);
        expect_error("mnist", YOKE_SPLIT_TRAIN, YOKE_ERROR_DATA, "train-labels-idx1-ubyte: ");
    }
}

/* Some bits of a gzip header (time, system) mean nothing; a flip may pass only if the pictures are
 * the same. */
static void mnist_packed_with_any_bit_flipped_never_changes_a_pixel(void **state) {
    (void)state;
    digits made = make_digits(1);
    uint8_t packed[4096];
    write_file("train-labels-idx1-ubyte", made.labels, made.label_bytes);
    write_gzip("train-images-idx3-ubyte.gz", made.images, made.image_bytes);
    size_t bytes = read_file("train-images-idx3-ubyte.gz", packed, sizeof packed), refused = 0;
    for (size_t bit = 0; bit < bytes * 8; bit++) {
        packed[bit / 8] ^= (uint8_t)(1 << bit % 8);
        write_file("train-images-idx3-ubyte.gz", packed, bytes);
        packed[bit / 8] ^= (uint8_t)(1 << bit % 8);
        yoke_dataset *dataset = NULL;
        if (open_spec(&dataset, "mnist", YOKE_SPLIT_TRAIN) == YOKE_OK) {
            assert_memory_equal(dataset->bytes, made.images + 16, DIGIT);
        } else {
            assert_non_null(strstr(yoke_last_error(), "train-images-idx3-ubyte.gz: "));
            refused++;
        }
        yoke_dataset_close(dataset);
    }
    assert_true(refused >= (bytes - 10) * 8);
}

static void mnist_images_of_another_size_and_labels_out_of_range_are_refused(void **state) {
    (void)state;
    digits made = make_digits(2);
    digits bent = made;
    bent.images[11] = 20;
    write_file("train-images-idx3-ubyte", bent.images, bent.image_bytes);
    write_file("train-labels-idx1-ubyte", made.labels, made.label_bytes);
    expect_error("mnist", YOKE_SPLIT_TRAIN, YOKE_ERROR_DATA, "20 pixels high at byte 8");
    write_file("train-images-idx3-ubyte", made.images, made.image_bytes);
    bent.labels[9] = 10;
    write_file("train-labels-idx1-ubyte", bent.labels, bent.label_bytes);
    expect_error("mnist", YOKE_SPLIT_TRAIN, YOKE_ERROR_DATA, "record 1: label 10 at byte 9");
    bent = make_digits(3);
    write_file("train-labels-idx1-ubyte", bent.labels, bent.label_bytes);
    expect_error("mnist", YOKE_SPLIT_TRAIN, YOKE_ERROR_DATA, "3 labels at byte 4");
    unlink(in_folder("train-labels-idx1-ubyte"));
    expect_error("mnist", YOKE_SPLIT_TRAIN, YOKE_ERROR_MISSING, "train-labels-idx1-ubyte");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(mnist_opens_under_every_spelling_plain_or_packed, empty_folder),
        cmocka_unit_test_teardown(mnist_truncated_at_any_byte_is_refused, empty_folder),
        cmocka_unit_test_teardown(mnist_packed_and_truncated_at_any_byte_is_refused, empty_folder),
        cmocka_unit_test_teardown(mnist_header_with_any_bit_flipped_is_refused, empty_folder),
        cmocka_unit_test_teardown(mnist_packed_with_any_bit_flipped_never_changes_a_pixel,
                                  empty_folder),
        cmocka_unit_test_teardown(mnist_images_of_another_size_and_labels_out_of_range_are_refused,
                                  empty_folder),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
