/* SPDX-License-Identifier: Apache-2.0 */
/* Opens datasets by SPEC, from arrays or from a callback, and checks sizes and labels before the
 * first batch. */
#include "data/arrays.h"
#include "data/row_stream.h"
#include "data/text_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SPEC_BYTES 256 /* of a hint */

static yoke_status open_cifar10(yoke_dataset *dataset, const char *directory, yoke_split split) {
    return yoke_cifar_open(dataset, directory, split, 10);
}

static yoke_status open_cifar100(yoke_dataset *dataset, const char *directory, yoke_split split) {
    return yoke_cifar_open(dataset, directory, split, 100);
}

/* Written NAME:PLACE, or NAME alone where the place is in brackets. */
typedef struct dataset_format {
    const char *name, *place;
    yoke_status (*open)(yoke_dataset *dataset, const char *place, yoke_split split);
} dataset_format;

static const dataset_format formats[] = {
    {"images", "DIR", yoke_images_open},
    {"npy", "X.npy,Y.npy", yoke_npy_open},
    {"npz", "FILE.npz", yoke_npz_open},
    {"csv", "FILE,label=COLUMN", yoke_csv_open},
    {"text", "FILE", yoke_text_open},
    {"cifar10", "DIR", open_cifar10},
    {"cifar100", "DIR", open_cifar100},
    {"mnist", "DIR", yoke_mnist_open},
    {"synthetic", "[:CxHxW][,classes=N][,rows=N]", yoke_synthetic_open},
};
#define FORMATS (sizeof formats / sizeof formats[0])

size_t yoke_dataset_values(const yoke_dataset *dataset) {
    const yoke_shape *shape = &dataset->shape;
    return (size_t)shape->channels * (size_t)shape->height * (size_t)shape->width;
}

size_t yoke_dataset_labels(const yoke_dataset *dataset) {
    return dataset->label_count > 1 ? (size_t)dataset->label_count : 1;
}

bool yoke_dataset_has_crops(const yoke_dataset *dataset) {
    return dataset != NULL && dataset->images != NULL && !dataset->host_crop;
}

yoke_stored_row yoke_dataset_row(const yoke_dataset *dataset, size_t stored) {
    size_t first = stored * yoke_dataset_values(dataset);
    if (dataset->bytes) return (yoke_stored_row){.bytes = dataset->bytes + first};
    return (yoke_stored_row){.floats = dataset->floats + first};
}

yoke_status yoke_data_path(char *path, const char *directory, const char *name) {
    int length = snprintf(path, YOKE_DATA_PATH_BYTES, "%s/%s", directory, name);
    if (length < 0 || length >= YOKE_DATA_PATH_BYTES)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "the folder's path has %zu bytes, at most %d are supported", strlen(directory),
                    YOKE_DATA_PATH_BYTES - 64);
    return YOKE_OK;
}

static yoke_status check_shape(const yoke_dataset *dataset) {
    const yoke_shape *shape = &dataset->shape;
    const int limit = 1 << 20;
    bool positive = shape->channels > 0 && shape->height > 0 && shape->width > 0;
    bool small = shape->channels <= limit && shape->height <= limit && shape->width <= limit;
    size_t bytes = 0;
    if (!positive || !small ||
        __builtin_mul_overflow(yoke_dataset_values(dataset), sizeof(float), &bytes) ||
        bytes > (size_t)INT32_MAX)
        return FAIL(
            YOKE_ERROR_ARGUMENT,
            "rows of shape %dx%dx%d: channels, height and width are at least 1 and a row has "
            "at most 2 GiB",
            shape->channels, shape->height, shape->width);
    if (shape->flat && (shape->height != 1 || shape->width != 1))
        return FAIL(YOKE_ERROR_ARGUMENT, "a flat row of shape %dx%dx%d: height and width must be 1",
                    shape->channels, shape->height, shape->width);
    if (__builtin_mul_overflow(bytes, dataset->rows, &bytes) || dataset->rows > UINT32_MAX)
        return FAIL(YOKE_ERROR_ARGUMENT, "%zu rows of %dx%dx%d are more than can be addressed",
                    dataset->rows, shape->channels, shape->height, shape->width);
    return YOKE_OK;
}

yoke_status yoke_host_rows_check(const yoke_dataset *dataset) {
    if (dataset->rows == 0 && !dataset->stream)
        return FAIL(YOKE_ERROR_ARGUMENT, "a dataset of 0 rows: must have at least 1");
    TRY(check_shape(dataset));
    bool classification = dataset->classes > 0 && dataset->target_count == 0;
    bool regression = dataset->classes == 0 && dataset->target_count > 0;
    if (!classification && !regression)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "classes = %d and target_count = %d: set classes > 0 for classification or "
                    "target_count > 0 for regression, and leave the other 0",
                    dataset->classes, dataset->target_count);
    if (dataset->label_count < 0 || (regression && dataset->label_count > 0))
        return FAIL(YOKE_ERROR_ARGUMENT, "label_count = %d: at least 1 for classification, 0 else",
                    dataset->label_count);
    return YOKE_OK;
}

static yoke_status check_arrays(const yoke_dataset *dataset) {
    TRY(yoke_host_rows_check(dataset));
    if (!dataset->bytes == !dataset->floats)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s of pixels and inputs is set: set exactly one",
                    dataset->bytes ? "each" : "none");
    bool classification = dataset->classes > 0;
    if (classification != (dataset->labels != NULL) || classification == (dataset->targets != NULL))
        return FAIL(YOKE_ERROR_ARGUMENT, "classes = %d needs %s set and %s NULL", dataset->classes,
                    classification ? "labels" : "targets", classification ? "targets" : "labels");
    size_t labels = yoke_dataset_labels(dataset);
    for (size_t i = 0; classification && i < dataset->rows * labels; i++) {
        int32_t label = dataset->labels[i];
        if (label < 0 || label >= dataset->classes)
            return FAIL(YOKE_ERROR_ARGUMENT, "row %zu: label %d, expected 0..%d", i / labels,
                        (int)label, dataset->classes - 1);
    }
    return YOKE_OK;
}

#define MEASURED_BYTES ((size_t)1 << 30)

typedef struct channel_sums {
    uint64_t values, squares;
} channel_sums;

static void add_plane(channel_sums *sums, const uint8_t *bytes, size_t plane) {
    for (size_t i = 0; i < plane; i++) {
        sums->values += bytes[i];
        sums->squares += (uint64_t)bytes[i] * bytes[i];
    }
}

/* Sums are exact integers up to the last division. A dataset larger than MEASURED_BYTES contributes
 * rows at equal distances. */
static void measure_channels(yoke_dataset *dataset) {
    size_t plane = (size_t)dataset->shape.height * (size_t)dataset->shape.width;
    size_t channels = (size_t)dataset->shape.channels, measured = 0;
    size_t stride = 1 + dataset->rows * yoke_dataset_values(dataset) / MEASURED_BYTES;
    channel_sums sums[4] = {{0}};
    for (size_t row = 0; row < dataset->rows; row += stride, measured++) {
        const uint8_t *bytes = yoke_dataset_row(dataset, yoke_dataset_stored(dataset, row)).bytes;
        for (size_t channel = 0; channel < channels; channel++)
            add_plane(&sums[channel], bytes + channel * plane, plane);
    }
    double count = (double)plane * (double)measured;
    for (size_t channel = 0; channel < channels; channel++) {
        double mean = (double)sums[channel].values / count;
        double variance = fmax((double)sums[channel].squares / count - mean * mean, 0);
        dataset->mean[channel] = (float)(mean / 255);
        /* A constant channel may have any scale but 0. */
        dataset->std[channel] = variance > 0 ? (float)(sqrt(variance) / 255) : 1;
    }
}

void yoke_dataset_set_statistics(yoke_dataset *dataset, float mean, float std) {
    for (int i = 0; i < 4; i++) {
        dataset->mean[i] = mean;
        dataset->std[i] = std;
    }
}

void yoke_dataset_measure(yoke_dataset *dataset) {
    int channels = dataset->shape.channels;
    yoke_dataset_set_statistics(dataset, 0, 1);
    if (!dataset->bytes) return;
    if (channels > 4)
        yoke_dataset_set_statistics(dataset, 0.5f, 0.25f);
    else
        measure_channels(dataset);
}

static yoke_status build_from_arrays(yoke_dataset *dataset, const yoke_arrays *given) {
    yoke_arrays arrays = {0};
    TRY(yoke_options_load(&arrays, sizeof arrays, given, "yoke_arrays"));
    *dataset = (yoke_dataset){.name = "arrays",
                              .rows = arrays.rows,
                              .shape = arrays.shape,
                              .classes = arrays.classes,
                              .target_count = arrays.target_count,
                              .label_count = arrays.label_count,
                              .bytes = arrays.pixels,
                              .floats = arrays.inputs,
                              .labels = arrays.labels,
                              .targets = arrays.targets};
    TRY(check_arrays(dataset));
    yoke_dataset_measure(dataset);
    return YOKE_OK;
}

static yoke_status build_from_callback(yoke_dataset *dataset, const yoke_row_source *given) {
    yoke_row_source source = {0};
    TRY(yoke_options_load(&source, sizeof source, given, "yoke_row_source"));
    if (!source.read == !source.read_batch)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "%s of yoke_row_source.read and read_batch is set: set exactly one",
                    source.read ? "each" : "none");
    *dataset = (yoke_dataset){.name = "callback",
                              .rows = source.rows,
                              .shape = source.shape,
                              .classes = source.classes,
                              .target_count = source.target_count,
                              .label_count = source.label_count,
                              .source = source};
    yoke_dataset_set_statistics(dataset, 0, 1);
    return yoke_host_rows_check(dataset);
}

/* How to write a SPEC for a file or folder that a user named alone; "": there is none. */
static void write_spec(const char *path, char spec[SPEC_BYTES]) {
    static const struct {
        const char *end, *before, *behind;
    } files[] = {{".csv", "csv:", ",label=COLUMN"},
                 {".npz", "npz:", ""},
                 {".npy", "npy:", ",Y.npy"},
                 {".txt", "text:", ""}};
    struct stat found;
    size_t length = strlen(path);
    spec[0] = '\0';
    if (stat(path, &found) != 0) return;
    if (S_ISDIR(found.st_mode)) snprintf(spec, SPEC_BYTES, "images:%s", path);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        size_t end = strlen(files[i].end);
        if (length > end && strcmp(path + length - end, files[i].end) == 0)
            snprintf(spec, SPEC_BYTES, "%s%s%s", files[i].before, path, files[i].behind);
    }
}

/* Finds the format that the first `length` bytes of a SPEC name. */
static yoke_status find_format(const char *spec, size_t length, const dataset_format **found) {
    const char *names[FORMATS];
    char known[320] = "", word[32], written[SPEC_BYTES];
    for (size_t i = 0; i < FORMATS; i++) {
        size_t used = strlen(known);
        *found = &formats[i];
        names[i] = formats[i].name;
        if (strlen(names[i]) == length && strncmp(spec, names[i], length) == 0) return YOKE_OK;
        snprintf(known + used, sizeof known - used, "%s%s%s%s", i > 0 ? ", " : "", names[i],
                 formats[i].place[0] == '[' ? "" : ":", formats[i].place);
    }
    snprintf(word, sizeof word, "%.*s", (int)(length < 31 ? length : 31), spec);
    write_spec(spec, written);
    if (written[0] != '\0')
        return FAIL(YOKE_ERROR_ARGUMENT, "dataset '%s' does not say its format: write %s", spec,
                    written);
    const char *nearest = yoke_text_nearest(word, names, FORMATS);
    return FAIL(YOKE_ERROR_ARGUMENT, "unknown dataset '%s'%s%s%s; known: %s", word,
                nearest ? ", did you mean '" : "", nearest ? nearest : "", nearest ? "'" : "",
                known);
}

static yoke_status build_from_spec(yoke_dataset *dataset, const char *spec, yoke_split split) {
    size_t length = strcspn(spec, ":");
    const char *place = spec + length + (spec[length] == ':');
    const dataset_format *format = NULL;
    TRY(find_format(spec, length, &format));
    snprintf(dataset->name, sizeof dataset->name, "%s", format->name);
    if (!*place && format->place[0] != '[')
        return FAIL(YOKE_ERROR_ARGUMENT, "dataset '%s' is not complete: write %s:%s", spec,
                    format->name, format->place);
    TRY(yoke_spec_check_repeats(format->name, place));
    TRY(format->open(dataset, place, split));
    return check_shape(dataset);
}

/* Returns the dataset, or closes it after a failure. */
static yoke_status finish(yoke_dataset **out, yoke_dataset *dataset, yoke_status status) {
    if (status != YOKE_OK) {
        yoke_dataset_close(dataset);
        return status;
    }
    *out = dataset;
    return YOKE_OK;
}

static yoke_status allocate(yoke_dataset **out, yoke_dataset **dataset) {
    if (!out) return FAIL(YOKE_ERROR_ARGUMENT, "the dataset's out-pointer is NULL");
    *out = NULL;
    *dataset = calloc(1, sizeof **dataset);
    return *dataset ? YOKE_OK : FAIL_MEMORY(sizeof **dataset, "a dataset");
}

yoke_status yoke_dataset_open(yoke_dataset **out, const char *spec, yoke_split split) {
    yoke_dataset *dataset = NULL;
    TRY(allocate(out, &dataset));
    yoke_status status;
    if (!spec)
        status = FAIL(YOKE_ERROR_ARGUMENT, "the dataset's SPEC is NULL; one is images:DIR");
    else if (split != YOKE_SPLIT_TRAIN && split != YOKE_SPLIT_TEST)
        status = FAIL(YOKE_ERROR_ARGUMENT, "split %d: expected YOKE_SPLIT_TRAIN or YOKE_SPLIT_TEST",
                      (int)split);
    else
        status = build_from_spec(dataset, spec, split);
    return finish(out, dataset, status);
}

yoke_status yoke_dataset_from_arrays(yoke_dataset **out, const yoke_arrays *arrays) {
    yoke_dataset *dataset = NULL;
    TRY(allocate(out, &dataset));
    return finish(out, dataset, build_from_arrays(dataset, arrays));
}

yoke_status yoke_dataset_from_callback(yoke_dataset **out, const yoke_row_source *source) {
    yoke_dataset *dataset = NULL;
    TRY(allocate(out, &dataset));
    return finish(out, dataset, build_from_callback(dataset, source));
}

yoke_status yoke_dataset_from_stream(yoke_dataset **out, const yoke_row_stream *stream) {
    yoke_dataset *dataset = NULL;
    TRY(allocate(out, &dataset));
    return finish(out, dataset, yoke_stream_open(dataset, stream));
}

void yoke_dataset_close(yoke_dataset *dataset) {
    if (!dataset) return;
    yoke_images_close(dataset->images);
    yoke_text_close(dataset->text);
    free(dataset->stream);
    yoke_file_unmap(&dataset->mapping);
    free(dataset->feature_names);
    free(dataset->feature_text);
    free(dataset->stds);
    free(dataset->means);
    free(dataset->kept);
    for (size_t i = 0; i < sizeof dataset->owned / sizeof dataset->owned[0]; i++)
        free(dataset->owned[i]);
    free(dataset);
}

void yoke_dataset_hold(const yoke_dataset *dataset, int change) {
    atomic_fetch_add(&((yoke_dataset *)dataset)->loaders, change); /* no dataset is made const */
}

yoke_status yoke_dataset_check_free(const yoke_dataset *dataset, const char *call) {
    TRY(yoke_pointer_check(dataset, "dataset"));
    int loaders = atomic_load(&dataset->loaders);
    if (loaders == 0) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT,
                "%s: %d loader%s of %s read%s its rows; call it before yoke_loader_create", call,
                loaders, loaders > 1 ? "s" : "", dataset->name, loaders > 1 ? "" : "s");
}

yoke_status yoke_dataset_normalize(yoke_dataset *dataset, const float mean[4], const float std[4]) {
    TRY(yoke_dataset_check_free(dataset, "yoke_dataset_normalize"));
    TRY(yoke_pointer_check(mean, "mean"));
    TRY(yoke_pointer_check(std, "std"));
    for (int i = 0; i < 4; i++)
        if (!(std[i] > 0))
            return FAIL(YOKE_ERROR_ARGUMENT, "std[%d] is %g: it must be above 0", i,
                        (double)std[i]);
    memcpy(dataset->mean, mean, sizeof dataset->mean);
    memcpy(dataset->std, std, sizeof dataset->std);
    return YOKE_OK;
}

yoke_status yoke_dataset_normalize_columns(yoke_dataset *dataset, const float *means,
                                           const float *stds) {
    TRY(yoke_dataset_check_free(dataset, "yoke_dataset_normalize_columns"));
    TRY(yoke_pointer_check(means, "means"));
    TRY(yoke_pointer_check(stds, "stds"));
    size_t channels = (size_t)dataset->shape.channels;
    if (dataset->means == NULL)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "rows of %s are no table's, whose columns have a mean each: "
                    "yoke_dataset_normalize takes theirs",
                    dataset->name);
    for (size_t i = 0; i < channels; i++)
        if (!isfinite(means[i]) || !isfinite(stds[i]) || stds[i] <= 0)
            return FAIL(YOKE_ERROR_ARGUMENT,
                        "means[%zu] is %g and stds[%zu] %g: they must be finite, and a "
                        "std above 0",
                        i, (double)means[i], i, (double)stds[i]);
    memcpy(dataset->means, means, channels * sizeof *means);
    memcpy(dataset->stds, stds, channels * sizeof *stds);
    return YOKE_OK;
}

const char *yoke_dataset_row_name(const yoke_dataset *dataset, size_t row) {
    if (dataset == NULL || dataset->images == NULL) return NULL;
    return yoke_images_path(dataset->images, yoke_dataset_stored(dataset, row));
}

yoke_status yoke_dataset_describe(const yoke_dataset *dataset, yoke_dataset_info *info) {
    if (!dataset || !info)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s is NULL", dataset ? "info" : "dataset");
    yoke_dataset_info own = {.struct_size = sizeof own,
                             .name = dataset->name,
                             .rows = dataset->rows,
                             .shape = dataset->shape,
                             .classes = dataset->classes,
                             .target_count = dataset->target_count,
                             .label_count =
                                 dataset->classes > 0 ? (int)yoke_dataset_labels(dataset) : 0,
                             .class_names = dataset->class_names,
                             .feature_names = dataset->feature_names,
                             .resize = dataset->resize,
                             .exact = dataset->exact,
                             .means = dataset->means,
                             .stds = dataset->stds};
    memcpy(own.mean, dataset->mean, sizeof own.mean);
    memcpy(own.std, dataset->std, sizeof own.std);
    return yoke_options_store(info, &own, sizeof own, "yoke_dataset_info");
}
