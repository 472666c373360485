/* SPDX-License-Identifier: Apache-2.0 */
/* The synthetic set: opening it draws the images, so that a first run needs no download. */
#include "data/data.h"

#include <stdlib.h>
#include <string.h>

#define OPTIONS_BYTES 128
#define BYTES_LIMIT ((size_t)16 << 30)

typedef struct synthetic_options {
    int64_t channels, height, width;
    int64_t classes, rows;
} synthetic_options;

static yoke_status read_number(const char *text, const char *name, int64_t low, int64_t high,
                               int64_t *value) {
    if (yoke_text_integer(text, low, high, value)) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT, "synthetic: %s '%s': expected %lld..%lld", name, text,
                (long long)low, (long long)high);
}

/* Reads "3x32x32"; modifies the text. */
static yoke_status read_shape(char *text, synthetic_options *options) {
    char *rest = text, whole[OPTIONS_BYTES];
    memcpy(whole, text, strlen(text) + 1);
    const char *channels = strsep(&rest, "x");
    const char *height = strsep(&rest, "x");
    const char *width = rest;
    if (!height || !width)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "synthetic: '%s' is not a shape like 3x32x32 nor "
                    "classes=N or rows=N",
                    whole);
    TRY(read_number(channels, "channels", 1, 64, &options->channels));
    TRY(read_number(height, "height", 8, 1024, &options->height));
    return read_number(width, "width", 8, 1024, &options->width);
}

static yoke_status read_setting(char *text, synthetic_options *options) {
    static const char *const names[] = {"classes", "rows"};
    char *value = text;
    const char *name = strsep(&value, "=");
    if (!value) value = "";
    bool classes = strcmp(name, names[0]) == 0, rows = strcmp(name, names[1]) == 0;
    if (!classes && !rows) {
        const char *nearest = yoke_text_nearest(name, names, 2);
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "synthetic: unknown setting '%s'%s%s; known: classes, rows", name,
                    nearest ? ", did you mean " : "", nearest ? nearest : "");
    }
    if (classes) return read_number(value, name, 2, YOKE_DRAWING_CLASSES, &options->classes);
    return read_number(value, name, 1, INT32_MAX, &options->rows);
}

static yoke_status parse(const char *text, synthetic_options *options) {
    char copy[OPTIONS_BYTES];
    size_t length = strlen(text);
    if (length >= sizeof copy)
        return FAIL(YOKE_ERROR_ARGUMENT, "synthetic: settings of %zu characters, at most %d",
                    length, OPTIONS_BYTES - 1);
    memcpy(copy, text, length + 1);
    char *rest = copy;
    for (bool first = true; rest && length > 0; first = false) {
        char *item = strsep(&rest, ",");
        if (strchr(item, '=') || !first)
            TRY(read_setting(item, options));
        else
            TRY(read_shape(item, options));
    }
    return YOKE_OK;
}

yoke_status yoke_synthetic_open(yoke_dataset *dataset, const char *text, yoke_split split) {
    synthetic_options options = {3, 32, 32, 10, 5000};
    TRY(parse(text, &options));
    int64_t rows = split == YOKE_SPLIT_TRAIN ? options.rows : options.rows / 5;
    dataset->rows = rows > 0 ? (size_t)rows : 1;
    dataset->shape = (yoke_shape){.channels = (int)options.channels,
                                  .height = (int)options.height,
                                  .width = (int)options.width};
    dataset->classes = (int)options.classes;
    /* Dark and light are equally likely, so the mean is one half; both splits share one
     * std. */
    yoke_dataset_set_statistics(dataset, 0.5f, 0.28f);
    size_t row_bytes = yoke_dataset_values(dataset);
    if (dataset->rows > BYTES_LIMIT / row_bytes)
        return FAIL(YOKE_ERROR_ARGUMENT, "synthetic: %zu rows of %zu bytes, at most 16 GiB in all",
                    dataset->rows, row_bytes);
    dataset->bytes = dataset->owned[0] = yoke_malloc(dataset->rows * row_bytes);
    dataset->labels = dataset->owned[1] = yoke_malloc(dataset->rows * sizeof(int32_t));
    if (!dataset->bytes || !dataset->labels)
        return FAIL_MEMORY(dataset->rows * row_bytes, "synthetic rows");
    /* Classes alternate, so that their sizes differ by at most 1. */
    uint8_t *pixels = dataset->owned[0];
    int32_t *labels = dataset->owned[1];
    yoke_drawing drawing = {.shape = dataset->shape, .split = split};
    for (size_t row = 0; row < dataset->rows; row++) {
        TRY(yoke_check_cancelled());
        labels[row] = (int32_t)(row % (size_t)dataset->classes);
        drawing.row = row;
        drawing.label = labels[row];
        yoke_draw_row(&drawing, pixels + row * yoke_dataset_values(dataset));
    }
    return YOKE_OK;
}
