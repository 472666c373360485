/* SPDX-License-Identifier: Apache-2.0 */
/* npy:X.npy,Y.npy and npz:FILE.npz. Inputs stay in the mapped file where their bytes are those that
 * a dataset needs; labels are copied. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/arrays.h"
#include "data/row_inputs.h"

#define EXTENT_LIMIT ((size_t)1 << 20)
#define NAME_BYTES (YOKE_DATA_PATH_BYTES + 128)

#define NPY_HELP "npy:X.npy,Y.npy[,validation=0.1][,test=X.npy,Y.npy][,channels=first]"
#define NPZ_HELP                                                                                   \
    "npz:FILE.npz[,x=NAME,y=NAME][,input=NAME]...[,validation=0.1][,test=FILE.npz][,channels="     \
    "first]"

/* Where the arrays of a split are. */
typedef struct array_place {
    const char *x_file, *y_file; /* alike: an .npz */
    const char *x_name, *y_name; /* inside an .npz; NULL: to be found */
} array_place;

typedef struct array_options {
    char text[YOKE_DATA_PATH_BYTES];
    const char *format, *help;
    array_place training, test; /* test.x_file NULL: none was given */
    double validation;          /* 0: not given */
    bool channels_first;
    bool unlabelled;                       /* inputs alone, to predict */
    const char *inputs[YOKE_INPUTS_LIMIT]; /* npz: names of the arrays beside x */
    int input_count;
    bool names_found; /* x_name and y_name are not the user's */
} array_options;

/* Options. */

static yoke_status set_file(array_options *options, const yoke_spec_word *word) {
    bool npz = strcmp(options->format, "npz") == 0;
    bool tested = word->name != NULL || options->test.x_file != NULL;
    array_place *place = tested ? &options->test : &options->training;
    bool second = word->name == NULL && place->x_file != NULL;
    if (second && place->y_file != NULL)
        return yoke_spec_unknown(options->format, word, NULL, 0, options->help);
    if (second)
        place->y_file = word->value;
    else
        place->x_file = word->value;
    if (npz) place->y_file = word->value;
    return YOKE_OK;
}

static yoke_status add_input(array_options *options, const char *name) {
    if (options->input_count == YOKE_INPUTS_LIMIT - 1)
        return FAIL(YOKE_ERROR_ARGUMENT, "npz: input=%s: a row has at most %d inputs", name,
                    YOKE_INPUTS_LIMIT);
    options->inputs[options->input_count++] = name;
    return YOKE_OK;
}

static yoke_status set_word(array_options *options, const yoke_spec_word *word) {
    static const char *const names[] = {"validation", "test", "channels", "x", "y", "input"};
    bool npz = strcmp(options->format, "npz") == 0;
    if (word->name == NULL || strcmp(word->name, "test") == 0) return set_file(options, word);
    if (strcmp(word->name, "validation") == 0)
        return yoke_spec_validation(options->format, word, &options->validation);
    if (strcmp(word->name, "channels") == 0) {
        options->channels_first = strcmp(word->value, "first") == 0;
        return options->channels_first
                   ? YOKE_OK
                   : FAIL(YOKE_ERROR_ARGUMENT, "%s: channels=%s: expected channels=first",
                          options->format, word->value);
    }
    bool x = strcmp(word->name, "x") == 0;
    if (npz && (x || strcmp(word->name, "y") == 0)) {
        *(x ? &options->training.x_name : &options->training.y_name) = word->value;
        return YOKE_OK;
    }
    if (npz && strcmp(word->name, "input") == 0) return add_input(options, word->value);
    return yoke_spec_unknown(options->format, word, names, npz ? 6 : 3, options->help);
}

static bool are_inputs_alone(const array_options *options) {
    const array_place *rows = &options->training;
    bool unlabelled = rows->y_file == NULL || (rows->x_name != NULL && rows->y_name == NULL);
    return unlabelled && rows->x_file != NULL && options->test.x_file == NULL &&
           options->validation == 0;
}

static yoke_status parse(const char *text, array_options *options, yoke_split split) {
    yoke_spec_word word;
    char *rest = options->text;
    if (strlen(text) >= sizeof options->text)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: %zu bytes of file names, at most %zu are supported",
                    options->format, strlen(text), sizeof options->text - 1);
    strcpy(options->text, text);
    while (yoke_spec_next(&rest, &word))
        TRY(set_word(options, &word));
    array_place *training = &options->training, *test = &options->test;
    options->unlabelled = split == YOKE_SPLIT_TEST && are_inputs_alone(options);
    if (options->unlabelled) return YOKE_OK;
    if (training->x_file == NULL || training->y_file == NULL)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s:%s: a file is missing; write %s", options->format,
                    text, options->help);
    if (test->x_file != NULL && test->y_file == NULL)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: test=%s has no labels; write %s", options->format,
                    test->x_file, options->help);
    if ((training->x_name == NULL) != (training->y_name == NULL))
        return FAIL(YOKE_ERROR_ARGUMENT, "npz: x=NAME and y=NAME belong together");
    if (test->x_file != NULL && options->validation > 0)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: validation=%g and test=%s: leave one out",
                    options->format, options->validation, test->x_file);
    test->x_name = training->x_name;
    test->y_name = training->y_name;
    return YOKE_OK;
}

/* Files. */

/* The inputs or the labels of a split, while they are read. */
typedef struct array_file {
    char name[NAME_BYTES];
    yoke_file_mapping mapping;
    uint8_t *inflated;
    yoke_npy array;
} array_file;

static void array_file_close(array_file *file) {
    yoke_file_unmap(&file->mapping);
    yoke_free(file->inflated);
}

#define LOOK_BYTES ((size_t)16 << 20) /* smaller arrays are unpacked: their checksum says more */

/* Reads only the header of a packed array: arrays that do not fit each other are not unpacked. */
static yoke_status array_file_look(yoke_npy *array, const char *path, const char *member) {
    char name[NAME_BYTES];
    yoke_file_mapping zip;
    size_t bytes = 0;
    uint8_t *head = yoke_malloc(YOKE_NPZ_HEAD);
    if (head == NULL) return FAIL_MEMORY(YOKE_NPZ_HEAD, "the header of an array");
    yoke_status status = yoke_file_map(&zip, path);
    if (status == YOKE_OK) status = yoke_npz_look(head, &bytes, path, &zip, member);
    yoke_file_unmap(&zip);
    snprintf(name, sizeof name, "%s: %.100s.npy", path, member);
    *array = (yoke_npy){.dimensions = 0};
    if (status == YOKE_OK && bytes > 0) status = yoke_npy_parse(array, name, head, bytes);
    if (status == YOKE_ERROR_DATA && bytes < LOOK_BYTES) {
        (void)yoke_error_take(status);
        *array = (yoke_npy){.dimensions = 0};
        status = YOKE_OK;
    }
    array->name = NULL;
    array->values = NULL;
    yoke_free(head);
    return status;
}

/* DATA: the headers of two packed arrays contradict each other, or their files. */
static yoke_status check_headers(const array_place *place, bool labelled) {
    yoke_npy x, y;
    char text[YOKE_NPY_TEXT], other[YOKE_NPY_TEXT];
    if (place->x_name == NULL) return YOKE_OK;
    TRY(array_file_look(&x, place->x_file, place->x_name));
    if (!labelled) return YOKE_OK;
    TRY(array_file_look(&y, place->y_file, place->y_name));
    if (x.dimensions == 0 || y.dimensions == 0 || x.shape[0] == y.shape[0]) return YOKE_OK;
    return FAIL(YOKE_ERROR_DATA,
                "%s: %s.npy has shape %s, but %s.npy has shape %s: a label for each row is needed",
                place->x_file, place->y_name, yoke_npy_shape_text(&y, text), place->x_name,
                yoke_npy_shape_text(&x, other));
}

/* member NULL: an .npy file. */
static yoke_status array_file_open(array_file *file, const char *path, const char *member) {
    yoke_npz_member found;
    TRY(yoke_file_map(&file->mapping, path));
    snprintf(file->name, sizeof file->name, "%s", path);
    if (member == NULL)
        return yoke_npy_parse(&file->array, file->name, file->mapping.data, file->mapping.bytes);
    snprintf(file->name, sizeof file->name, "%s: %.100s.npy", path, member);
    TRY(yoke_npz_find(&found, path, &file->mapping, member));
    if (found.data == NULL) {
        char list[400];
        yoke_npz_list(&file->mapping, list, sizeof list);
        return FAIL(YOKE_ERROR_MISSING, "%s: has no array '%s'; its arrays are %s", path, member,
                    list);
    }
    file->inflated = found.inflated;
    return yoke_npy_parse(&file->array, file->name, found.data, found.bytes);
}

/* Names of arrays: those of Keras's and MedMNIST's archives, then those that people give. */
static const char *const known_names[][4] = {
    {"x_train", "y_train", "x_test", "y_test"},
    {"train_images", "train_labels", "test_images", "test_labels"},
    {"x", "y", NULL, NULL},
    {"X", "Y", NULL, NULL},
    {"X", "y", NULL, NULL},
    {"arr_0", "arr_1", NULL, NULL},
};

/* *has: whether the archive has the arrays; a NULL name asks for none. */
static yoke_status has_arrays(const char *path, const yoke_file_mapping *zip, const char *x,
                              const char *y, bool *has) {
    const char *const names[] = {x, y};
    *has = x != NULL;
    for (int i = 0; *has && i < 2; i++)
        TRY(yoke_npz_has(path, zip, names[i], has));
    return YOKE_OK;
}

static yoke_status name_arrays(array_options *options, const yoke_file_mapping *zip) {
    array_place *training = &options->training, *test = &options->test;
    const char *path = training->x_file;
    bool has = false;
    for (size_t i = 0; !has && i < sizeof known_names / sizeof *known_names; i++) {
        const char *const *names = known_names[i];
        TRY(has_arrays(path, zip, names[0], names[1], &has));
        if (!has) continue;
        training->x_name = names[0];
        training->y_name = names[1];
        options->names_found = true;
        bool tested = false;
        if (test->x_file == NULL && options->validation == 0)
            TRY(has_arrays(path, zip, names[2], names[3], &tested));
        if (tested) test->x_file = test->y_file = path;
        test->x_name = tested ? names[2] : names[0];
        test->y_name = tested ? names[3] : names[1];
    }
    if (has) return YOKE_OK;
    char list[400];
    yoke_npz_list(zip, list, sizeof list);
    return FAIL(YOKE_ERROR_DATA,
                "%s: which arrays are inputs and labels? It has %s; write "
                "npz:FILE.npz,x=NAME,y=NAME, or name them x and y",
                path, list[0] != '\0' ? list : "none");
}

static yoke_status find_names(array_options *options) {
    yoke_file_mapping zip;
    if (strcmp(options->format, "npz") != 0 || options->training.x_name != NULL) return YOKE_OK;
    TRY(yoke_file_map(&zip, options->training.x_file));
    yoke_status status = name_arrays(options, &zip);
    yoke_file_unmap(&zip);
    return status;
}

/* Inputs. */

/* [28, 28, 3] is an image whose channels come last, unless somebody says otherwise. */
static yoke_status check_layout(const yoke_npy *images) {
    const size_t *shape = images->shape;
    char text[YOKE_NPY_TEXT];
    if (images->dimensions != 4 || shape[1] <= 4 || shape[2] <= 4) return YOKE_OK;
    if (shape[3] != 1 && shape[3] != 3 && shape[3] != 4) return YOKE_OK;
    return FAIL(YOKE_ERROR_DATA,
                "%s: shape %s seems to be [rows, height, width, channels], expected [rows, "
                "channels, height, width]; numpy.save(FILE, X.transpose(0, 3, 1, 2).copy()) "
                "converts it, channels=first takes it as it is",
                images->name, yoke_npy_shape_text(images, text));
}

static yoke_status take_shape(yoke_dataset *dataset, const yoke_npy *inputs) {
    const size_t *shape = inputs->shape;
    int dimensions = inputs->dimensions;
    char text[YOKE_NPY_TEXT];
    bool fits = dimensions >= 2 && dimensions <= 4;
    for (int i = 1; i < dimensions; i++)
        fits = fits && shape[i] >= 1 && shape[i] <= EXTENT_LIMIT;
    if (!fits || shape[0] == 0 || shape[0] > UINT32_MAX)
        return FAIL(YOKE_ERROR_DATA,
                    "%s: shape %s; expected [rows, channels, height, width], [rows, height, width] "
                    "or [rows, features], none of them 0; X.reshape(len(X), -1) makes features",
                    inputs->name, yoke_npy_shape_text(inputs, text));
    int extents[3] = {1, 1, 1};
    for (int i = 1; i < dimensions; i++)
        extents[dimensions == 3 ? i : i - 1] = (int)shape[i];
    dataset->rows = shape[0];
    dataset->shape = (yoke_shape){
        .channels = extents[0], .height = extents[1], .width = extents[2], .flat = dimensions == 2};
    return YOKE_OK;
}

/* Whole numbers that are no pixels: token ids. */
static bool are_integers(const yoke_npy *array) {
    return array->kind == 'i' || (array->kind == 'u' && array->item_bytes > 1);
}

/* Other numbers, and float32 that an archive does not align, become float32 in memory. */
static yoke_status copy_floats(float **floats, const yoke_npy *inputs) {
    *floats = yoke_malloc((inputs->count > 0 ? inputs->count : 1) * sizeof **floats);
    if (*floats == NULL) return FAIL_MEMORY(inputs->count * sizeof **floats, inputs->name);
    for (size_t i = 0; i < inputs->count; i++)
        (*floats)[i] = (float)yoke_npy_value(inputs, i);
    return YOKE_OK;
}

static yoke_status take_inputs(yoke_dataset *dataset, array_file *file, bool channels_first) {
    const yoke_npy *inputs = &file->array;
    bool bytes = inputs->kind == 'u' && inputs->item_bytes == 1;
    bool floats = (inputs->kind == 'f' && inputs->item_bytes >= 4) || are_integers(inputs);
    if (!bytes && !floats)
        return FAIL(YOKE_ERROR_DATA,
                    "%s: inputs of type '%c%d', expected uint8, float32, float64, or integers of "
                    "more bits for tokens; numpy.save(FILE, X.astype('float32')), or 'uint8' for "
                    "pixels of 0 to 255, converts them",
                    inputs->name, inputs->kind, inputs->item_bytes);
    TRY(take_shape(dataset, inputs));
    if (!channels_first) TRY(check_layout(inputs));
    bool mapped = inputs->kind == 'f' && inputs->item_bytes == 4 &&
                  (uintptr_t)inputs->values % sizeof(float) == 0;
    if (floats && !mapped) {
        float *copy = NULL;
        yoke_status status = copy_floats(&copy, inputs);
        dataset->floats = dataset->owned[0] = copy;
        return status;
    }
    if (bytes)
        dataset->bytes = inputs->values;
    else
        dataset->floats = (const float *)(const void *)inputs->values;
    dataset->mapping = file->mapping;
    dataset->owned[0] = file->inflated;
    file->mapping = (yoke_file_mapping){0};
    file->inflated = NULL;
    return YOKE_OK;
}

/* An array beside x: [rows], [rows, values], [rows, height, width] or [rows, channels, height,
 * width]. */
static yoke_status take_more_input(yoke_dataset *dataset, const yoke_npy *array, const char *name) {
    yoke_dataset alone = {.rows = 0};
    char text[YOKE_NPY_TEXT];
    yoke_npy rows = *array;
    if (rows.dimensions == 1) rows.shape[rows.dimensions++] = 1;
    TRY(take_shape(&alone, &rows));
    if (alone.rows != dataset->rows)
        return FAIL(YOKE_ERROR_DATA, "%s: shape %s, but x has %zu rows: a value for each is needed",
                    array->name, yoke_npy_shape_text(array, text), dataset->rows);
    if (array->kind == 'f' && array->item_bytes < 4)
        return FAIL(YOKE_ERROR_DATA,
                    "%s: values of type float16; numpy.savez(FILE, NAME=X.astype('float32')) "
                    "converts them",
                    array->name);
    float *copy = NULL;
    TRY(copy_floats(&copy, array));
    const yoke_row_input input = {
        .struct_size = sizeof input, .name = name, .shape = alone.shape, .values = copy};
    return yoke_row_inputs_add(dataset, &input, true);
}

/* Where the labels are: the arrays of a split lie in one archive. */
static yoke_status take_more_inputs(yoke_dataset *dataset, const array_place *place,
                                    const array_options *options) {
    /* x_train and x_test have length_train and length_test beside them. */
    bool parted = options->names_found && strncmp(place->x_name, "x_", 2) == 0;
    const char *suffix = parted ? place->x_name + 1 : "";
    yoke_status status = YOKE_OK;
    for (int k = 0; k < options->input_count && status == YOKE_OK; k++) {
        char member[128];
        snprintf(member, sizeof member, "%.90s%.30s", options->inputs[k], suffix);
        array_file *file = yoke_calloc(1, sizeof *file);
        if (file == NULL) return FAIL_MEMORY(sizeof *file, "an array");
        status = array_file_open(file, place->x_file, member);
        if (status == YOKE_OK) status = take_more_input(dataset, &file->array, options->inputs[k]);
        array_file_close(file);
        yoke_free(file);
    }
    return status;
}

/* Labels. */

/* Targets of a row may have axes: the pixels of an image. Of labels there is one, or, where rows
 * are tokens, one for each: columns of integers beside other rows are one-hot. */
static bool labels_fit(const yoke_npy *labels, const yoke_npy *inputs) {
    bool targets = labels->kind == 'f';
    size_t each = 1, most = targets || are_integers(inputs) ? EXTENT_LIMIT : 1;
    bool fits = labels->dimensions >= 1 && labels->dimensions <= (targets ? 4 : 2);
    for (int i = 1; fits && i < labels->dimensions; i++) {
        fits = labels->shape[i] >= 1 && labels->shape[i] <= most / each;
        if (fits) each *= labels->shape[i];
    }
    return fits;
}

static yoke_status check_label_shape(const yoke_dataset *dataset, const yoke_npy *labels,
                                     const yoke_npy *inputs) {
    char text[YOKE_NPY_TEXT], of_inputs[YOKE_NPY_TEXT];
    if (!labels_fit(labels, inputs))
        return FAIL(YOKE_ERROR_DATA,
                    "%s: shape %s; expected [rows] of integer classes, or floats, [rows], [rows, "
                    "targets] or [rows, channels, height, width]; Y.argmax(1) makes classes of "
                    "one-hot rows",
                    labels->name, yoke_npy_shape_text(labels, text));
    if (labels->shape[0] == dataset->rows) return YOKE_OK;
    return FAIL(YOKE_ERROR_DATA,
                "%s: shape %s, but %s has shape %s: a label for each row is needed", labels->name,
                yoke_npy_shape_text(labels, text), inputs->name,
                yoke_npy_shape_text(inputs, of_inputs));
}

/* classes 0: they are counted. */
static yoke_status take_classes(yoke_dataset *dataset, const yoke_npy *labels, int classes) {
    int32_t *own = yoke_malloc(labels->count * sizeof *own);
    if (own == NULL) return FAIL_MEMORY(labels->count * sizeof *own, "labels");
    dataset->labels = dataset->owned[1] = own;
    int32_t most = classes > 0 ? classes : YOKE_CLASSES_LIMIT, highest = 0;
    size_t each = labels->count / dataset->rows;
    for (size_t i = 0; i < labels->count; i++) {
        int64_t label = yoke_npy_integer(labels, i);
        if ((label < 0 || label >= most) && label != YOKE_NO_LABEL)
            return FAIL(YOKE_ERROR_DATA,
                        "%s: row %zu has label %lld, expected 0..%d%s, or %d, none", labels->name,
                        i / each, (long long)label, (int)most - 1,
                        classes > 0 ? ", the classes of the training rows" : "", YOKE_NO_LABEL);
        own[i] = (int32_t)label;
        dataset->unlabelled = dataset->unlabelled || label == YOKE_NO_LABEL;
        if (own[i] > highest) highest = own[i];
    }
    if (each > 1) dataset->label_count = (int)each;
    dataset->classes = classes > 0 ? classes : highest + 1;
    if (dataset->classes >= 2) return YOKE_OK;
    return FAIL(YOKE_ERROR_DATA,
                "%s: every label is 0; integers are classes, of which two are needed; "
                "numpy.save(FILE, Y.astype('float32')) makes targets of them",
                labels->name);
}

static yoke_status take_targets(yoke_dataset *dataset, const yoke_npy *labels) {
    float *own = yoke_malloc(labels->count * sizeof *own);
    if (own == NULL) return FAIL_MEMORY(labels->count * sizeof *own, "targets");
    dataset->targets = dataset->owned[1] = own;
    dataset->target_count = (int)(labels->count / dataset->rows);
    for (size_t i = 0; i < labels->count; i++)
        own[i] = (float)yoke_npy_value(labels, i);
    return YOKE_OK;
}

static yoke_status take_labels(yoke_dataset *dataset, const yoke_npy *labels,
                               const yoke_npy *inputs, const array_options *options, int classes) {
    if (labels->kind == 'f' && labels->item_bytes < 4)
        return FAIL(YOKE_ERROR_DATA,
                    "%s: labels of type float16; numpy.save(FILE, Y.astype('float32')) makes "
                    "targets, 'int64' classes",
                    labels->name);
    TRY(check_label_shape(dataset, labels, inputs));
    if (!options->channels_first) TRY(check_layout(labels));
    return labels->kind == 'f' ? take_targets(dataset, labels)
                               : take_classes(dataset, labels, classes);
}

/* Splits. */

static yoke_status take_place(yoke_dataset *dataset, const array_place *place,
                              const array_options *options, int classes) {
    bool labelled = !options->unlabelled;
    TRY(check_headers(place, labelled));
    array_file *files = yoke_calloc(2, sizeof *files);
    if (files == NULL) return FAIL_MEMORY(2 * sizeof *files, "two arrays");
    const yoke_npy *inputs = &files[0].array;
    yoke_npy whole;
    yoke_status status = array_file_open(&files[0], place->x_file, place->x_name);
    if (status == YOKE_OK && labelled)
        status = array_file_open(&files[1], place->y_file, place->y_name);
    if (status == YOKE_OK) whole = *inputs;
    if (status == YOKE_OK) status = take_inputs(dataset, &files[0], options->channels_first);
    if (status == YOKE_OK && labelled)
        status = take_labels(dataset, &files[1].array, &whole, options, classes);
    if (status == YOKE_OK) status = take_more_inputs(dataset, place, options);
    array_file_close(&files[0]);
    array_file_close(&files[1]);
    yoke_free(files);
    return status;
}

static yoke_status check_alike(const yoke_dataset *test, const yoke_dataset *training,
                               const array_options *options) {
    const yoke_shape *one = &test->shape, *other = &training->shape;
    if (one->channels == other->channels && one->height == other->height &&
        one->width == other->width && one->flat == other->flat &&
        test->classes == training->classes && test->target_count == training->target_count &&
        !test->bytes == !training->bytes)
        return YOKE_OK;
    return FAIL(YOKE_ERROR_DATA,
                "%s: rows of %dx%dx%d %s with %d classes and %d targets, but %s has %dx%dx%d %s "
                "with %d and %d: they must be alike",
                options->test.x_file, one->channels, one->height, one->width,
                test->bytes ? "bytes" : "floats", test->classes, test->target_count,
                options->training.x_file, other->channels, other->height, other->width,
                training->bytes ? "bytes" : "floats", training->classes, training->target_count);
}

/* Test rows in files of their own are normalised as the training rows are. */
static yoke_status take_test(yoke_dataset *dataset, const array_options *options) {
    yoke_dataset *training = yoke_calloc(1, sizeof *training);
    if (training == NULL) return FAIL_MEMORY(sizeof *training, "a dataset");
    yoke_status status = take_place(training, &options->training, options, 0);
    if (status == YOKE_OK) status = take_place(dataset, &options->test, options, training->classes);
    if (status == YOKE_OK) status = check_alike(dataset, training, options);
    if (status == YOKE_OK) {
        yoke_dataset_measure(training);
        memcpy(dataset->mean, training->mean, sizeof dataset->mean);
        memcpy(dataset->std, training->std, sizeof dataset->std);
    }
    yoke_dataset_close(training);
    return status;
}

static yoke_status measure(yoke_dataset *dataset) {
    yoke_dataset_measure(dataset);
    return YOKE_OK;
}

static yoke_status open_arrays(yoke_dataset *dataset, const char *text, array_options *options,
                               yoke_split split) {
    TRY(parse(text, options, split));
    TRY(find_names(options));
    bool divided = options->test.x_file != NULL;
    if (divided && split == YOKE_SPLIT_TEST) return take_test(dataset, options);
    TRY(take_place(dataset, &options->training, options, 0));
    if (!divided && !options->unlabelled)
        return yoke_dataset_take_drawn(dataset, options->validation, split, measure,
                                       options->training.x_file);
    yoke_dataset_measure(dataset);
    return YOKE_OK;
}

yoke_status yoke_npy_open(yoke_dataset *dataset, const char *text, yoke_split split) {
    array_options options = {.format = "npy", .help = NPY_HELP};
    return open_arrays(dataset, text, &options, split);
}

yoke_status yoke_npz_open(yoke_dataset *dataset, const char *text, yoke_split split) {
    array_options options = {.format = "npz", .help = NPZ_HELP};
    return open_arrays(dataset, text, &options, split);
}
