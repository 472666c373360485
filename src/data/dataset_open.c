/* SPDX-License-Identifier: Apache-2.0 */
/* Opens datasets by SPEC, from arrays or from a callback, and checks sizes and labels before the
 * first batch. */
#include "data/arrays.h"
#include "data/row_inputs.h"
#include "data/row_stream.h"
#include "data/text_file.h"

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
    {"pairs", "FILE", yoke_pairs_open},
    {"cifar10", "DIR", open_cifar10},
    {"cifar100", "DIR", open_cifar100},
    {"mnist", "DIR", yoke_mnist_open},
    {"synthetic", "[:CxHxW][,classes=N][,rows=N]", yoke_synthetic_open},
};
#define FORMATS (sizeof formats / sizeof formats[0])

static yoke_status check_arrays(yoke_dataset *dataset) {
    TRY(yoke_host_rows_check(dataset));
    if (!dataset->bytes == !dataset->floats)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s of pixels and inputs is set: set exactly one",
                    dataset->bytes ? "each" : "none");
    bool classification = dataset->classes > 0, regression = dataset->target_count > 0;
    if (classification != (dataset->labels != NULL) || regression != (dataset->targets != NULL))
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "classes = %d and target_count = %d need labels %s and targets %s",
                    dataset->classes, dataset->target_count, classification ? "set" : "NULL",
                    regression ? "set" : "NULL");
    size_t labels = yoke_dataset_labels(dataset);
    for (size_t i = 0; classification && i < dataset->rows * labels; i++) {
        int32_t label = dataset->labels[i];
        dataset->unlabelled = dataset->unlabelled || label == YOKE_NO_LABEL;
        if ((label < 0 || label >= dataset->classes) && label != YOKE_NO_LABEL)
            return FAIL(YOKE_ERROR_ARGUMENT, "row %zu: label %d, expected 0..%d or %d, no label",
                        i / labels, (int)label, dataset->classes - 1, YOKE_NO_LABEL);
    }
    return YOKE_OK;
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
    TRY(yoke_row_inputs_load(dataset, arrays.more_inputs, arrays.more_input_count, true));
    yoke_dataset_measure(dataset);
    return YOKE_OK;
}

static yoke_status build_from_callback(yoke_dataset *dataset, const yoke_row_source *given) {
    yoke_row_source source = {0};
    TRY(yoke_options_load(&source, sizeof source, given, "yoke_row_source"));
    int readers = !!source.read + !!source.read_batch + !!source.read_inputs;
    if (readers != 1)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "%s of yoke_row_source.read, read_batch and read_inputs is set: set exactly "
                    "one",
                    readers > 1 ? "more than one" : "none");
    if (source.more_input_count > 0 && !source.read_inputs)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "yoke_row_source has more_inputs: read_inputs writes them, set it instead of "
                    "read and read_batch");
    *dataset = (yoke_dataset){.name = "callback",
                              .rows = source.rows,
                              .shape = source.shape,
                              .classes = source.classes,
                              .target_count = source.target_count,
                              .label_count = source.label_count,
                              .source = source};
    yoke_dataset_set_statistics(dataset, 0, 1);
    TRY(yoke_host_rows_check(dataset));
    return yoke_row_inputs_load(dataset, source.more_inputs, source.more_input_count, false);
}

/* How to write a SPEC for a file or folder that a user named alone; "": there is none. */
static void write_spec(const char *path, char spec[SPEC_BYTES]) {
    static const struct {
        const char *end, *before, *behind;
    } files[] = {{".csv", "csv:", ",label=COLUMN"},
                 {".npz", "npz:", ""},
                 {".npy", "npy:", ",Y.npy"},
                 {".txt", "text:", ""},
                 {".tsv", "pairs:", ""}};
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
    return yoke_dataset_check_shape(dataset);
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
    *dataset = yoke_calloc(1, sizeof **dataset);
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
    yoke_row_inputs_close(dataset);
    yoke_images_close(dataset->images);
    yoke_text_close(dataset->text);
    yoke_free(dataset->stream);
    yoke_file_unmap(&dataset->mapping);
    yoke_free(dataset->feature_names);
    yoke_free(dataset->feature_text);
    yoke_free(dataset->stds);
    yoke_free(dataset->means);
    yoke_free(dataset->kept);
    for (size_t i = 0; i < sizeof dataset->owned / sizeof dataset->owned[0]; i++)
        yoke_free(dataset->owned[i]);
    yoke_free(dataset);
}
