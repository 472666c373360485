/* SPDX-License-Identifier: Apache-2.0 */
/* MNIST and other sets in its format, IDX (LeCun), plain or .gz: a big-endian header, which must
 * match the file's size exactly, then pixels or labels. */
#include "data/data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define MNIST_SIDE 28
#define MNIST_CLASSES 10
#define MNIST_FILE_LIMIT ((size_t)1 << 30)
/* Deflate reaches at most 1032:1, so a gzip trailer that claims more is wrong. */
#define DEFLATE_RATIO_LIMIT 1032

/* One IDX file, unpacked. */
typedef struct idx_file {
    char path[YOKE_DATA_PATH_BYTES];
    unsigned char *data;
    size_t bytes;
} idx_file;

static size_t big_endian(const unsigned char *data) {
    return (size_t)data[0] << 24 | (size_t)data[1] << 16 | (size_t)data[2] << 8 | data[3];
}

/* Inflates the whole stream in one call, into a buffer of the size that the trailer claims; zlib
 * checks CRC and length. */
static yoke_status inflate_whole(idx_file *file, unsigned char *unpacked, size_t size) {
    z_stream stream = {.next_in = file->data,
                       .avail_in = (uInt)file->bytes,
                       .next_out = unpacked,
                       .avail_out = (uInt)size};
    if (inflateInit2(&stream, 16 + MAX_WBITS) != Z_OK) return FAIL_MEMORY(size, "inflating");
    int code = inflate(&stream, Z_FINISH);
    yoke_status status = YOKE_OK;
    if (code != Z_STREAM_END || stream.avail_in != 0 || stream.avail_out != 0)
        status = FAIL(YOKE_ERROR_DATA,
                      "%s: the gzip stream breaks at byte %lu of %zu (%s), expected it to end with "
                      "the file; fetch the file again",
                      file->path, stream.total_in, file->bytes,
                      stream.msg ? stream.msg : "its end and the file's differ");
    inflateEnd(&stream);
    return status;
}

/* The header: 0 0 08 (bytes), the number of dimensions, then each dimension in 32 bits. The rest of
 * the file must have the size of their product. */
static yoke_status check_header(const idx_file *file, int dimensions) {
    size_t head = 4 + 4 * (size_t)dimensions;
    if (file->bytes < head)
        return FAIL(YOKE_ERROR_DATA, "%s: ends at byte %zu, expected a header of %zu bytes",
                    file->path, file->bytes, head);
    const unsigned char magic[4] = {0, 0, 8, (unsigned char)dimensions};
    for (size_t i = 0; i < 4; i++)
        if (file->data[i] != magic[i])
            return FAIL(YOKE_ERROR_DATA,
                        "%s: byte %zu is %02x, IDX with %d dimensions of bytes has "
                        "%02x there",
                        file->path, i, file->data[i], dimensions, magic[i]);
    for (size_t i = 8; i < head; i += 4)
        if (big_endian(file->data + i) != MNIST_SIDE)
            return FAIL(YOKE_ERROR_DATA, "%s: images are %zu pixels %s at byte %zu, expected %d",
                        file->path, big_endian(file->data + i), i == 8 ? "high" : "wide", i,
                        MNIST_SIDE);
    size_t item = dimensions == 3 ? MNIST_SIDE * MNIST_SIDE : 1;
    size_t rows = big_endian(file->data + 4), expected = head + rows * item;
    if (rows == 0 || file->bytes != expected)
        return FAIL(YOKE_ERROR_DATA,
                    "%s: ends at byte %zu, expected %zu for the %zu rows announced at byte 4%s",
                    file->path, file->bytes, expected, rows,
                    rows ? "" : "; at least one is needed");
    return YOKE_OK;
}

/* The header comes first: a file that lies is not unpacked. */
static yoke_status check_packed_header(const idx_file *file, size_t size, int dimensions) {
    unsigned char first[16] = {0};
    idx_file head = {.data = first, .bytes = size};
    z_stream stream = {.next_in = file->data,
                       .avail_in = (uInt)file->bytes,
                       .next_out = first,
                       .avail_out = sizeof first};
    if (inflateInit2(&stream, 16 + MAX_WBITS) != Z_OK) return FAIL_MEMORY(size, "inflating");
    int code = inflate(&stream, Z_SYNC_FLUSH);
    inflateEnd(&stream);
    if (code != Z_OK && code != Z_STREAM_END) return YOKE_OK; /* inflate_whole says where */
    memcpy(head.path, file->path, sizeof head.path);
    return check_header(&head, dimensions);
}

static yoke_status gunzip(idx_file *file, int dimensions) {
    if (file->bytes < 18 || file->data[0] != 0x1f || file->data[1] != 0x8b)
        return FAIL(YOKE_ERROR_DATA,
                    "%s: not a gzip file at byte 0 of %zu, expected 1f 8b and at "
                    "least 18 bytes; fetch the file again",
                    file->path, file->bytes);
    const unsigned char *tail = file->data + file->bytes - 4;
    size_t size = (size_t)tail[3] << 24 | (size_t)tail[2] << 16 | (size_t)tail[1] << 8 | tail[0];
    if (size > MNIST_FILE_LIMIT || size / DEFLATE_RATIO_LIMIT > file->bytes)
        return FAIL(YOKE_ERROR_DATA,
                    "%s: the trailer at byte %zu claims %zu unpacked bytes, impossible for %zu "
                    "packed ones; fetch the file again",
                    file->path, file->bytes - 4, size, file->bytes);
    TRY(check_packed_header(file, size, dimensions));
    unsigned char *unpacked = yoke_malloc(size + 1);
    if (!unpacked) return FAIL_MEMORY(size, file->path);
    yoke_status status = inflate_whole(file, unpacked, size);
    yoke_free(file->data);
    file->data = unpacked;
    file->bytes = size;
    return status;
}

/* Finds and reads "train-images-idx3-ubyte", also spelled "train-images.idx3-ubyte" and with
 * .gz. */
static yoke_status read_idx(idx_file *file, const char *directory, const char *stem,
                            const char *suffix) {
    char name[64];
    for (int i = 0; i < 4; i++) {
        bool packed = i >= 2;
        snprintf(name, sizeof name, "%s%c%s%s", stem, i % 2 ? '.' : '-', suffix,
                 packed ? ".gz" : "");
        TRY(yoke_data_path(file->path, directory, name));
        if (!yoke_file_exists(file->path)) continue;
        TRY(yoke_file_read(file->path, MNIST_FILE_LIMIT, &file->data, &file->bytes));
        return packed ? gunzip(file, suffix[3] - '0') : YOKE_OK; /* "idx3-ubyte" */
    }
    return FAIL(YOKE_ERROR_MISSING,
                "%s/%s-%s: no such file, nor with .gz; put the official %s-%s.gz there", directory,
                stem, suffix, stem, suffix);
}

static yoke_status open_images(yoke_dataset *dataset, const idx_file *file) {
    TRY(check_header(file, 3));
    dataset->rows = big_endian(file->data + 4);
    dataset->bytes = file->data + 16;
    return YOKE_OK;
}

static yoke_status open_labels(yoke_dataset *dataset, const idx_file *file) {
    TRY(check_header(file, 1));
    size_t rows = big_endian(file->data + 4);
    if (rows != dataset->rows)
        return FAIL(YOKE_ERROR_DATA, "%s: %zu labels at byte 4, but there are %zu images",
                    file->path, rows, dataset->rows);
    int32_t *labels = yoke_malloc(rows * sizeof *labels);
    if (!labels) return FAIL_MEMORY(rows * sizeof *labels, "labels");
    dataset->labels = dataset->owned[1] = labels;
    for (size_t row = 0; row < rows; row++) {
        labels[row] = file->data[8 + row];
        if (labels[row] >= MNIST_CLASSES)
            return FAIL(YOKE_ERROR_DATA, "%s: record %zu: label %d at byte %zu, expected 0..%d",
                        file->path, row, (int)labels[row], 8 + row, MNIST_CLASSES - 1);
    }
    return YOKE_OK;
}

yoke_status yoke_mnist_open(yoke_dataset *dataset, const char *directory, yoke_split split) {
    bool train = split == YOKE_SPLIT_TRAIN;
    dataset->shape = (yoke_shape){.channels = 1, .height = MNIST_SIDE, .width = MNIST_SIDE};
    dataset->classes = MNIST_CLASSES;
    yoke_dataset_set_statistics(dataset, 0.1307f, 0.3081f);
    idx_file images = {0}, labels = {0};
    yoke_status status =
        read_idx(&images, directory, train ? "train-images" : "t10k-images", "idx3-ubyte");
    dataset->owned[0] = images.data;
    if (status == YOKE_OK) status = open_images(dataset, &images);
    if (status == YOKE_OK)
        status = read_idx(&labels, directory, train ? "train-labels" : "t10k-labels", "idx1-ubyte");
    if (status == YOKE_OK) status = open_labels(dataset, &labels);
    yoke_free(labels.data);
    return status;
}
