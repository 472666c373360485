/* SPDX-License-Identifier: Apache-2.0 */
/* What a dataset is, whatever its rows came from: sizes, statistics, and who reads it. */
#include "data/data.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

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

size_t yoke_dataset_stored(const yoke_dataset *dataset, size_t row) {
    return dataset->kept != NULL ? dataset->kept[row] : row;
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

yoke_status yoke_dataset_check_shape(const yoke_dataset *dataset) {
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

yoke_status yoke_dataset_default_loss(const yoke_dataset *dataset, yoke_loss_options *loss) {
    TRY(yoke_pointer_check(dataset, "dataset"));
    TRY(yoke_pointer_check(loss, "loss"));
    yoke_loss_options own = YOKE_LOSS_OPTIONS_INIT;
    own.kind = dataset->classes > 0 ? YOKE_LOSS_CROSS_ENTROPY : YOKE_LOSS_MSE;
    own.set_ignore_index = dataset->unlabelled;
    own.ignore_index = YOKE_NO_LABEL;
    return yoke_options_store(loss, &own, sizeof own, "yoke_loss_options");
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
                             .unlabelled = dataset->unlabelled,
                             .input_count = 1 + dataset->more_count,
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
