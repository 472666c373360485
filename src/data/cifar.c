/* SPDX-License-Identifier: Apache-2.0 */
/* CIFAR-10 and CIFAR-100 in their binary format (Krizhevsky 2009): records of one or two label
 * bytes and 3072 pixels, nothing else. A file must consist of whole records. */
#include "data/data.h"

#include <stdlib.h>
#include <string.h>

#define CIFAR_PIXELS 3072
#define CIFAR_FILE_LIMIT ((size_t)4 << 30)

typedef struct cifar_format {
    const char *title, *archive, *folder;
    const char *train[5], *test, *names;
    int classes, coarse_classes; /* coarse_classes > 0: a coarse label byte comes first */
    float mean[3], std[3];
} cifar_format;

static const cifar_format cifar10 = {
    .title = "CIFAR-10",
    .archive = "cifar-10-binary.tar.gz",
    .folder = "cifar-10-batches-bin",
    .train = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
              "data_batch_5.bin"},
    .test = "test_batch.bin",
    .names = "batches.meta.txt",
    .classes = 10,
    .mean = {0.4914f, 0.4822f, 0.4465f},
    .std = {0.2470f, 0.2435f, 0.2616f},
};

static const cifar_format cifar100 = {
    .title = "CIFAR-100",
    .archive = "cifar-100-binary.tar.gz",
    .folder = "cifar-100-binary",
    .train = {"train.bin"},
    .test = "test.bin",
    .names = "fine_label_names.txt",
    .classes = 100,
    .coarse_classes = 20,
    .mean = {0.5071f, 0.4865f, 0.4409f},
    .std = {0.2673f, 0.2564f, 0.2762f},
};

/* One file in memory. */
typedef struct cifar_file {
    const cifar_format *format;
    const char *path;
    const unsigned char *data;
    size_t bytes;
} cifar_file;

static size_t label_bytes(const cifar_format *format) {
    return format->coarse_classes > 0 ? 2 : 1;
}

static yoke_status check_label(const cifar_file *file, size_t offset, const char *what, int count) {
    int label = file->data[offset];
    if (label < count) return YOKE_OK;
    size_t record = offset / (label_bytes(file->format) + CIFAR_PIXELS);
    return FAIL(YOKE_ERROR_DATA, "%s: record %zu: %s %d at byte %zu, %s has 0..%d", file->path,
                record, what, label, offset, file->format->title, count - 1);
}

static yoke_status unpack(const cifar_file *file, uint8_t *pixels, int32_t *labels) {
    const cifar_format *format = file->format;
    size_t head = label_bytes(format), record = head + CIFAR_PIXELS;
    for (size_t row = 0; row < file->bytes / record; row++) {
        size_t offset = row * record;
        if (head == 2) TRY(check_label(file, offset, "coarse label", format->coarse_classes));
        TRY(check_label(file, offset + head - 1, "label", format->classes));
        labels[row] = file->data[offset + head - 1];
        memcpy(pixels + row * CIFAR_PIXELS, file->data + offset + head, CIFAR_PIXELS);
    }
    return YOKE_OK;
}

/* Makes room for `rows` more; `owned` always holds the current allocations. */
static yoke_status grow(yoke_dataset *dataset, size_t rows) {
    size_t total = dataset->rows + rows;
    uint8_t *pixels = yoke_realloc(dataset->owned[0], total * CIFAR_PIXELS);
    if (!pixels) return FAIL_MEMORY(total * CIFAR_PIXELS, "images");
    dataset->bytes = dataset->owned[0] = pixels;
    int32_t *labels = yoke_realloc(dataset->owned[1], total * sizeof *labels);
    if (!labels) return FAIL_MEMORY(total * sizeof *labels, "labels");
    dataset->labels = dataset->owned[1] = labels;
    return YOKE_OK;
}

static yoke_status append(yoke_dataset *dataset, const cifar_file *file) {
    size_t record = label_bytes(file->format) + CIFAR_PIXELS;
    size_t rows = file->bytes / record, rest = file->bytes % record;
    if (rest != 0 || rows == 0)
        return FAIL(YOKE_ERROR_DATA,
                    "%s: ends at byte %zu, inside record %zu which begins at byte %zu: %s records "
                    "have %zu bytes; unpack %s again",
                    file->path, file->bytes, rows, rows * record, file->format->title, record,
                    file->format->archive);
    TRY(grow(dataset, rows));
    uint8_t *pixels = (uint8_t *)dataset->owned[0] + dataset->rows * CIFAR_PIXELS;
    int32_t *labels = (int32_t *)dataset->owned[1] + dataset->rows;
    TRY(unpack(file, pixels, labels));
    dataset->rows += rows;
    return YOKE_OK;
}

static yoke_status read_one(yoke_dataset *dataset, const cifar_format *format, const char *path) {
    cifar_file file = {.format = format, .path = path};
    unsigned char *data = NULL;
    TRY(yoke_file_read(path, CIFAR_FILE_LIMIT, &data, &file.bytes));
    file.data = data;
    yoke_status status = append(dataset, &file);
    yoke_free(data);
    return status;
}

yoke_status yoke_cifar_open(yoke_dataset *dataset, const char *directory, yoke_split split,
                            int classes) {
    const cifar_format *format = classes == 100 ? &cifar100 : &cifar10;
    dataset->shape = (yoke_shape){.channels = 3, .height = 32, .width = 32};
    dataset->classes = format->classes;
    memcpy(dataset->mean, format->mean, sizeof format->mean);
    memcpy(dataset->std, format->std, sizeof format->std);
    char path[YOKE_DATA_PATH_BYTES];
    for (int i = 0; i < (split == YOKE_SPLIT_TRAIN ? 5 : 1); i++) {
        const char *name = split == YOKE_SPLIT_TRAIN ? format->train[i] : format->test;
        if (!name) break;
        TRY(yoke_data_path(path, directory, name));
        if (yoke_file_exists(path))
            TRY(read_one(dataset, format, path));
        else if (i == 0)
            return FAIL(YOKE_ERROR_MISSING,
                        "%s: no such file; unpack the official archive %s and name its folder %s",
                        path, format->archive, format->folder);
    }
    return yoke_class_names_read(dataset, directory, format->names);
}
