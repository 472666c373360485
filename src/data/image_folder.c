/* SPDX-License-Identifier: Apache-2.0 */
/* images:DIR. Classes are the folders of DIR in the order of their names, rows the files in them in
 * the order of their paths: torchvision's ImageFolder. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "data/images.h"

#define SIZE 224
#define DEPTH_LIMIT 16        /* of folders in a class */
#define FOLDERS_LIMIT 1000000 /* walked through: links among them multiply */
#define FILE_LIMIT ((size_t)256 << 20)

typedef struct image_options {
    char directory[YOKE_DATA_PATH_BYTES];
    int64_t size, resize; /* resize 0: size * 8 / 7, as 256 for 224 */
    double validation;    /* 0: not given */
    bool exact, host_crop;
} image_options;

typedef struct names {
    char **items; /* each owned */
    size_t count, capacity;
} names;

struct yoke_image_folder {
    names paths, classes;
    int32_t *labels; /* [paths] */
    int size, resize;
    bool exact;
};

/* Options. */

static yoke_status read_setting(char *text, image_options *options) {
    static const char *const known[] = {"size", "resize", "validation", "decode", "crop"};
    char *value = text;
    const char *name = strsep(&value, "=");
    if (value == NULL) value = "";
    if (strcmp(name, "size") == 0 && yoke_text_integer(value, 8, 4096, &options->size))
        return YOKE_OK;
    if (strcmp(name, "resize") == 0 && yoke_text_integer(value, 8, 8000, &options->resize))
        return YOKE_OK;
    if (strcmp(name, "validation") == 0 && yoke_text_real(value, 0.001, 0.9, &options->validation))
        return YOKE_OK;
    if (strcmp(name, "decode") == 0 &&
        (strcmp(value, "exact") == 0 || strcmp(value, "scaled") == 0)) {
        options->exact = value[0] == 'e';
        return YOKE_OK;
    }
    if (strcmp(name, "crop") == 0 && (strcmp(value, "gpu") == 0 || strcmp(value, "cpu") == 0)) {
        options->host_crop = value[0] == 'c';
        return YOKE_OK;
    }
    const char *near = yoke_text_nearest(name, known, sizeof known / sizeof *known);
    return FAIL(YOKE_ERROR_ARGUMENT,
                "images: setting '%s=%s'%s%s%s; possible: size=8..4096, resize=8..8000, "
                "validation=0.001..0.9, decode=scaled|exact, crop=gpu|cpu",
                name, value, near != NULL && strcmp(near, name) != 0 ? ", did you mean '" : "",
                near != NULL && strcmp(near, name) != 0 ? near : "",
                near != NULL && strcmp(near, name) != 0 ? "'" : "");
}

static yoke_status parse(const char *text, image_options *options) {
    size_t length = strlen(text);
    if (length >= sizeof options->directory)
        return FAIL(YOKE_ERROR_ARGUMENT, "images: a path of %zu bytes, at most %d are supported",
                    length, YOKE_DATA_PATH_BYTES - 1);
    memcpy(options->directory, text, length + 1);
    char *rest = options->directory;
    (void)strsep(&rest, ",");
    while (rest != NULL)
        TRY(read_setting(strsep(&rest, ","), options));
    if (options->resize == 0) options->resize = options->size * 8 / 7;
    if (options->resize < options->size)
        return FAIL(YOKE_ERROR_ARGUMENT, "images: resize=%lld is smaller than size=%lld",
                    (long long)options->resize, (long long)options->size);
    return YOKE_OK;
}

/* Names. */

static yoke_status add_name(names *list, const char *name) {
    if (list->count == list->capacity) {
        size_t capacity = list->capacity > 0 ? 2 * list->capacity : 64;
        char **larger = yoke_realloc(list->items, capacity * sizeof *larger);
        if (larger == NULL) return FAIL_MEMORY(capacity * sizeof *larger, "names of images");
        list->items = larger;
        list->capacity = capacity;
    }
    char *copy = yoke_strdup(name);
    if (copy == NULL) return FAIL_MEMORY(strlen(name) + 1, "the name of an image");
    list->items[list->count++] = copy;
    return YOKE_OK;
}

static void clear_names(names *list) {
    for (size_t i = 0; i < list->count; i++)
        yoke_free(list->items[i]);
    yoke_free(list->items);
    *list = (names){0};
}

static int by_bytes(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* What a folder holds, sorted by name, hidden entries included. */
static yoke_status list_folder(names *found, const char *path) {
    DIR *folder = opendir(path);
    if (folder == NULL)
        return FAIL(YOKE_ERROR_MISSING, "%s: %s; expected a folder of images", path,
                    strerror(errno));
    yoke_status status = YOKE_OK;
    for (struct dirent *entry; status == YOKE_OK && (entry = readdir(folder)) != NULL;)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            status = add_name(found, entry->d_name);
    closedir(folder);
    if (found->count > 0) qsort(found->items, found->count, sizeof *found->items, by_bytes);
    return status;
}

static bool is_folder(const char *path) {
    struct stat facts;
    return stat(path, &facts) == 0 && S_ISDIR(facts.st_mode);
}

static bool has_image_name(const char *name) {
    static const char *const endings[] = {".jpg", ".jpeg", ".png"};
    const char *ending = strrchr(name, '.');
    for (size_t i = 0; ending != NULL && i < sizeof endings / sizeof *endings; i++)
        if (strcasecmp(ending, endings[i]) == 0) return true;
    return false;
}

/* The folders from a class to the one that is listed, and how many were. */
typedef struct walk {
    struct stat above[DEPTH_LIMIT + 1];
    int count;
} walk;

/* Whether a link leads back to a folder that it lies in. */
static bool is_ring(const walk *own, const struct stat *folder, int depth) {
    for (int i = 0; i < depth; i++)
        if (own->above[i].st_dev == folder->st_dev && own->above[i].st_ino == folder->st_ino)
            return true;
    return false;
}

/* Files before the folders beside them, as os.walk goes. */
static yoke_status add_files(names *files, const char *directory, walk *own, int depth) {
    names entries = {0};
    char path[YOKE_DATA_PATH_BYTES];
    if (depth > DEPTH_LIMIT) return YOKE_OK;
    struct stat *self = &own->above[depth];
    if (stat(directory, self) == 0 && is_ring(own, self, depth)) return YOKE_OK;
    if (++own->count > FOLDERS_LIMIT)
        return FAIL(YOKE_ERROR_DATA,
                    "%s: more than %d folders in a class; links among them multiply: remove some",
                    directory, FOLDERS_LIMIT);
    yoke_status status = list_folder(&entries, directory);
    for (int folders = 0; folders < 2; folders++)
        for (size_t i = 0; status == YOKE_OK && i < entries.count; i++) {
            status = yoke_data_path(path, directory, entries.items[i]);
            if (status != YOKE_OK || is_folder(path) != (folders == 1)) continue;
            if (folders == 1)
                status = add_files(files, path, own, depth + 1);
            else if (has_image_name(path))
                status = add_name(files, path);
        }
    clear_names(&entries);
    return status;
}

static yoke_status list_classes(names *classes, const char *directory) {
    names entries = {0};
    char path[YOKE_DATA_PATH_BYTES];
    yoke_status status = list_folder(&entries, directory);
    for (size_t i = 0; status == YOKE_OK && i < entries.count; i++) {
        status = yoke_data_path(path, directory, entries.items[i]);
        if (status == YOKE_OK && is_folder(path)) status = add_name(classes, entries.items[i]);
    }
    clear_names(&entries);
    return status;
}

/* Rows. */

/* Which of a class's files belong to which split, where the folder does not say: stratified, and
 * the same in every run. */
static yoke_status keep_split(names *files, size_t first, double validation, yoke_split split) {
    size_t count = files->count - first, kept = first;
    bool *test = yoke_calloc(count, sizeof *test);
    if (test == NULL) return FAIL_MEMORY(count, "the split of a class");
    yoke_status status = yoke_split_draw(test, count, validation);
    for (size_t i = 0; status == YOKE_OK && i < count; i++) {
        char *file = files->items[first + i];
        if (test[i] == (split == YOKE_SPLIT_TEST))
            files->items[kept++] = file;
        else
            yoke_free(file);
    }
    if (status == YOKE_OK) files->count = kept;
    yoke_free(test);
    return status;
}

/* validation 0: all files of the class are of this split. */
static yoke_status add_class(yoke_image_folder *folder, const char *directory, size_t label,
                             double validation, yoke_split split) {
    char path[YOKE_DATA_PATH_BYTES];
    size_t before = folder->paths.count;
    TRY(yoke_data_path(path, directory, folder->classes.items[label]));
    bool absent = split == YOKE_SPLIT_TEST && validation == 0 && !is_folder(path);
    if (absent) return YOKE_OK;
    TRY(add_files(&folder->paths, path, &(walk){.count = 0}, 0));
    size_t count = folder->paths.count - before;
    if (count == 0 && split == YOKE_SPLIT_TRAIN)
        return FAIL(YOKE_ERROR_DATA, "%s: no .jpg, .jpeg or .png file in the folder of this class",
                    path);
    if (count > 0 && validation > 0) TRY(keep_split(&folder->paths, before, validation, split));
    size_t rows = folder->paths.count;
    int32_t *labels = yoke_realloc(folder->labels, (rows > 0 ? rows : 1) * sizeof *labels);
    if (labels == NULL) return FAIL_MEMORY(rows * sizeof *labels, "labels of images");
    folder->labels = labels;
    for (size_t row = before; row < rows; row++)
        labels[row] = (int32_t)label;
    return YOKE_OK;
}

static yoke_status check_class_count(size_t count, const char *directory) {
    if (count >= 2 && count <= YOKE_CLASSES_LIMIT) return YOKE_OK;
    return FAIL(YOKE_ERROR_DATA,
                "%s: %zu class%s; a folder for each, 2 to %d, is possible (folders train/ and val/ "
                "with the classes in them, too)",
                directory, count, count == 1 ? "" : "es", YOKE_CLASSES_LIMIT);
}

/* A class that training does not know. */
static yoke_status check_test_classes(const yoke_image_folder *folder, const char *directory) {
    names found = {0};
    yoke_status status = list_classes(&found, directory);
    for (size_t i = 0, k = 0; status == YOKE_OK && i < found.count; i++) {
        while (k < folder->classes.count && strcmp(folder->classes.items[k], found.items[i]) < 0)
            k++;
        if (k == folder->classes.count || strcmp(folder->classes.items[k], found.items[i]) != 0)
            status = FAIL(YOKE_ERROR_DATA, "%s/%s: train/ has no class of this name", directory,
                          found.items[i]);
    }
    clear_names(&found);
    return status;
}

/* The folder of a split; *divided: the folder divides the rows itself. */
static yoke_status find_split(const char *directory, yoke_split split, char *path, bool *divided) {
    static const char *const tests[] = {"val", "test", "validation", "valid"};
    char train[YOKE_DATA_PATH_BYTES];
    TRY(yoke_data_path(train, directory, "train"));
    *divided = false;
    for (size_t i = 0; !*divided && is_folder(train) && i < sizeof tests / sizeof *tests; i++) {
        TRY(yoke_data_path(path, directory, tests[i]));
        *divided = is_folder(path);
    }
    if (*divided && split == YOKE_SPLIT_TRAIN) strcpy(path, train);
    if (!*divided) strcpy(path, directory);
    return YOKE_OK;
}

static yoke_status fill(yoke_image_folder *folder, const image_options *options, yoke_split split) {
    char path[YOKE_DATA_PATH_BYTES], train[YOKE_DATA_PATH_BYTES];
    bool divided;
    TRY(find_split(options->directory, YOKE_SPLIT_TRAIN, train, &divided));
    TRY(find_split(options->directory, split, path, &divided));
    if (divided && options->validation > 0)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "images: %s has rows for validation: validation=%g is for folders without",
                    options->directory, options->validation);
    double validation = divided                   ? 0
                        : options->validation > 0 ? options->validation
                                                  : YOKE_VALIDATION;
    TRY(list_classes(&folder->classes, train));
    TRY(check_class_count(folder->classes.count, train));
    if (divided && split == YOKE_SPLIT_TEST) TRY(check_test_classes(folder, path));
    for (size_t label = 0; label < folder->classes.count; label++)
        TRY(add_class(folder, path, label, validation, split));
    if (folder->paths.count > 0) return YOKE_OK;
    return FAIL(YOKE_ERROR_DATA, "%s: no row for this split: a class needs two files", path);
}

/* The door. */

static const float imagenet_mean[] = {0.485f, 0.456f, 0.406f};
static const float imagenet_std[] = {0.229f, 0.224f, 0.225f};

yoke_status yoke_images_open(yoke_dataset *dataset, const char *text, yoke_split split) {
    image_options options = {.size = SIZE};
    TRY(parse(text, &options));
    yoke_image_folder *folder = dataset->images = yoke_calloc(1, sizeof *folder);
    if (folder == NULL) return FAIL_MEMORY(sizeof *folder, "a folder of images");
    TRY(fill(folder, &options, split));
    folder->size = (int)options.size;
    folder->resize = (int)options.resize;
    folder->exact = options.exact;
    dataset->shape = (yoke_shape){.channels = 3, .height = folder->size, .width = folder->size};
    dataset->rows = folder->paths.count;
    dataset->labels = folder->labels;
    dataset->classes = (int)folder->classes.count;
    dataset->class_names = (const char **)folder->classes.items;
    dataset->resize = folder->resize;
    dataset->exact = folder->exact;
    dataset->host_crop = options.host_crop;
    memcpy(dataset->mean, imagenet_mean, sizeof imagenet_mean);
    memcpy(dataset->std, imagenet_std, sizeof imagenet_std);
    return YOKE_OK;
}

void yoke_images_close(yoke_image_folder *folder) {
    if (folder == NULL) return;
    clear_names(&folder->classes);
    clear_names(&folder->paths);
    yoke_free(folder->labels);
    yoke_free(folder);
}

static void take_nothing(void *context, int y, const uint8_t *rgb) {
    (void)context;
    (void)y;
    (void)rgb;
}

yoke_status yoke_images_check(const yoke_image_folder *folder, size_t row) {
    yoke_image image = {.name = folder->paths.items[row]};
    unsigned char *data = NULL;
    TRY(yoke_file_read_regular(image.name, FILE_LIMIT, &data, &image.bytes));
    image.data = data;
    yoke_status status = yoke_image_open(&image);
    int denominator = image.jpeg ? 8 : 1;
    yoke_image_part whole = {.denominator = denominator,
                             .end = (image.height + denominator - 1) / denominator,
                             .take = take_nothing};
    if (status == YOKE_OK) status = yoke_image_decode(&image, &whole);
    yoke_free(data);
    return status;
}

const char *yoke_dataset_row_name(const yoke_dataset *dataset, size_t row) {
    if (dataset == NULL || dataset->images == NULL) return NULL;
    return dataset->images->paths.items[yoke_dataset_stored(dataset, row)];
}

yoke_status yoke_images_read(const yoke_image_folder *folder, size_t row,
                             const yoke_image_request *request, uint8_t *pixels) {
    yoke_image image = {.name = folder->paths.items[row], .stops = request->stops};
    const yoke_augmentation *augmentation = request->augmentation;
    unsigned char *data = NULL;
    TRY(yoke_file_read_regular(image.name, FILE_LIMIT, &data, &image.bytes));
    image.data = data;
    yoke_status status = yoke_image_open(&image);
    if (status == YOKE_OK) {
        bool random = augmentation->kind == YOKE_AUGMENT_RESIZED_CROP_FLIP;
        yoke_image_view view =
            random ? yoke_image_random(image.width, image.height, folder->size, augmentation, row)
                   : yoke_image_center(image.width, image.height, folder->resize, folder->size);
        status =
            request->crop != NULL
                ? yoke_image_cut(&image, &view, folder->size, !folder->exact, request->crop, pixels)
                : yoke_image_render(&image, &view, folder->size, !folder->exact, pixels);
    }
    yoke_free(data);
    if (status != YOKE_ERROR_DATA) return status;
    yoke_error cause = yoke_error_take(status);
    return FAIL(status, "%s; yoke_dataset_skip_bad leaves such rows out", cause.text);
}
