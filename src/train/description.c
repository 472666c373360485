/* Writes what a file of weights says of itself, and reads it back: whoever made the file, every
 * value is checked. */
#include "train/description.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "parallel/parallel.h"
#include "train/weights.h"

#define CLASSES_LIMIT 1000000
#define SIDE_LIMIT (1 << 20)

#define MODEL "yoke.model"
#define INPUT "yoke.input"
#define CLASSES "yoke.classes"
#define CLASS_NAMES "yoke.class_names"
#define TARGETS "yoke.targets"
#define DATASET "yoke.dataset"
#define MEAN "yoke.mean"
#define DEVIATION "yoke.deviation"
#define RESIZE "yoke.resize"
#define DECODE "yoke.decode"
#define VERSION "yoke.version"

/* Writing. */

/* Takes ownership of `value`; NULL: out of memory. */
static yoke_status add(yoke_notes *notes, const char *key, char *value) {
    if (value == NULL) return FAIL_MEMORY(64, "the description of weights");
    notes->values[notes->count] = value;
    notes->items[notes->count++] = (yoke_file_note){key, value};
    return YOKE_OK;
}

static yoke_status add_text(yoke_notes *notes, const char *key, const char *value) {
    return value == NULL || value[0] == '\0' ? YOKE_OK : add(notes, key, strdup(value));
}

static yoke_status add_integer(yoke_notes *notes, const char *key, int value) {
    char *text = NULL;
    if (value == 0) return YOKE_OK;
    return add(notes, key, asprintf(&text, "%d", value) < 0 ? NULL : text);
}

/* Ends the list, whose text the notes own. */
static yoke_status add_list(yoke_notes *notes, const char *key, yoke_json *json) {
    yoke_json_close(json, ']');
    yoke_status status = add(notes, key, json->failed ? NULL : strdup(json->text));
    yoke_json_end(json);
    return status;
}

static void begin_list(yoke_json *json) {
    yoke_json_begin(json);
    yoke_json_open(json, NULL, '[');
}

static yoke_status add_reals(yoke_notes *notes, const char *key, const float *values, int count) {
    yoke_json json;
    begin_list(&json);
    for (int i = 0; i < count; i++)
        yoke_json_real(&json, NULL, (double)values[i]);
    return add_list(notes, key, &json);
}

static yoke_status add_names(yoke_notes *notes, const yoke_weights_info *info) {
    yoke_json json;
    if (info->class_names == NULL) return YOKE_OK;
    begin_list(&json);
    for (int i = 0; i < info->classes; i++)
        yoke_json_text(&json, NULL, info->class_names[i]);
    return add_list(notes, CLASS_NAMES, &json);
}

/* [features], [positions, features] or [channels, height, width]. */
static yoke_status add_input(yoke_notes *notes, const yoke_shape *shape) {
    yoke_json json;
    if (shape->channels == 0) return YOKE_OK;
    begin_list(&json);
    if (shape->sequence) yoke_json_integer(&json, NULL, shape->height);
    yoke_json_integer(&json, NULL, shape->channels);
    if (!shape->flat && !shape->sequence) {
        yoke_json_integer(&json, NULL, shape->height);
        yoke_json_integer(&json, NULL, shape->width);
    }
    return add_list(notes, INPUT, &json);
}

static bool says_normalization(const yoke_weights_info *info) {
    return info->deviation[0] > 0 && info->input.channels > 0;
}

yoke_status yoke_notes_write(yoke_notes *notes, const yoke_weights_info *info) {
    TRY(add_text(notes, MODEL, info->model));
    TRY(add_input(notes, &info->input));
    TRY(add_integer(notes, CLASSES, info->classes));
    TRY(add_names(notes, info));
    TRY(add_integer(notes, TARGETS, info->target_count));
    TRY(add_text(notes, DATASET, info->dataset));
    if (says_normalization(info)) {
        int channels = info->input.channels < 4 ? info->input.channels : 4;
        TRY(add_reals(notes, MEAN, info->mean, channels));
        TRY(add_reals(notes, DEVIATION, info->deviation, channels));
    }
    TRY(add_integer(notes, RESIZE, info->resize));
    return add_text(notes, DECODE, info->exact ? "exact" : NULL);
}

void yoke_notes_clear(yoke_notes *notes) {
    for (int i = 0; i < notes->count; i++)
        free(notes->values[i]);
    *notes = (yoke_notes){0};
}

yoke_status yoke_notes_attach(const yoke_notes *notes, yoke_tensor_file *file) {
    for (int i = 0; i < notes->count; i++)
        TRY(yoke_tensor_file_note(file, notes->items[i].key, notes->items[i].value));
    return yoke_tensor_file_note(file, VERSION, yoke_version());
}

static yoke_status save(yoke_data_parallel *parallel, const yoke_model *model,
                        const yoke_notes *notes, const char *path) {
    yoke_tensor_file *file;
    yoke_status status = yoke_weights_collect(parallel, model, &file);
    if (status == YOKE_OK) status = yoke_notes_attach(notes, file);
    if (status == YOKE_OK) status = yoke_tensor_file_save(file, path);
    yoke_tensor_file_close(file);
    return status;
}

yoke_status yoke_weights_save_described(yoke_data_parallel *parallel, const yoke_model *model,
                                        const yoke_weights_info *info, const char *path) {
    yoke_weights_info own;
    yoke_notes notes = {0};
    TRY(yoke_pointer_check(parallel, "parallel"));
    TRY(yoke_pointer_check(model, "model"));
    TRY(yoke_pointer_check(path, "path"));
    TRY(yoke_options_load(&own, sizeof own, info, "yoke_weights_info"));
    yoke_status status = yoke_notes_write(&notes, &own);
    if (status == YOKE_OK) status = save(parallel, model, &notes, path);
    yoke_notes_clear(&notes);
    return status;
}

/* Reading. */

struct yoke_weights_description {
    yoke_safetensors file;
    yoke_weights_info info;
    json_t *names;            /* owns the texts of class_names */
    const char **class_names; /* [classes] */
};

static yoke_status wrong(const yoke_safetensors *file, const char *key, const char *expected) {
    return FAIL(YOKE_ERROR_DATA, "%s: __metadata__ %s is '%.60s'; expected %s", file->path, key,
                yoke_safetensors_note(file, key), expected);
}

static yoke_status read_integer(const yoke_safetensors *file, const char *key, int limit,
                                int *value) {
    int64_t number = 0;
    const char *text = yoke_safetensors_note(file, key);
    if (text == NULL) return YOKE_OK;
    if (!yoke_text_integer(text, 1, limit, &number)) return wrong(file, key, "a count");
    *value = (int)number;
    return YOKE_OK;
}

/* The caller frees *list; NULL: the file has no such note. */
static yoke_status read_list(const yoke_safetensors *file, const char *key, json_t **list) {
    const char *text = yoke_safetensors_note(file, key);
    *list = text != NULL ? json_loads(text, 0, NULL) : NULL;
    if (text == NULL || json_is_array(*list)) return YOKE_OK;
    json_decref(*list);
    *list = NULL;
    return wrong(file, key, "a list in JSON");
}

static yoke_status read_input(const yoke_safetensors *file, yoke_shape *shape) {
    int sides[3] = {0};
    json_t *list;
    TRY(read_list(file, INPUT, &list));
    if (list == NULL) return YOKE_OK;
    size_t count = json_array_size(list);
    bool right = count >= 1 && count <= 3;
    for (size_t i = 0; right && i < count; i++) {
        json_int_t side = json_integer_value(json_array_get(list, i));
        right = side >= 1 && side <= SIDE_LIMIT;
        sides[i] = (int)side;
    }
    json_decref(list);
    if (!right)
        return wrong(file, INPUT, "[features], [positions, features] or [channels, height, width]");
    if (count == 3)
        *shape = (yoke_shape){.channels = sides[0], .height = sides[1], .width = sides[2]};
    else if (count == 2)
        *shape =
            (yoke_shape){.channels = sides[1], .height = sides[0], .width = 1, .sequence = true};
    else
        *shape = (yoke_shape){.channels = sides[0], .height = 1, .width = 1, .flat = true};
    return YOKE_OK;
}

/* One number for each channel; those past the last have the last's. */
static yoke_status read_reals(const yoke_safetensors *file, const char *key, bool positive,
                              float *values) {
    json_t *list;
    TRY(read_list(file, key, &list));
    if (list == NULL) return YOKE_OK;
    size_t count = json_array_size(list);
    bool right = count >= 1 && count <= 4;
    for (size_t i = 0; right && i < 4; i++) {
        const json_t *value = json_array_get(list, i < count ? i : count - 1);
        values[i] = (float)json_number_value(value);
        right = json_is_number(value) && isfinite(values[i]) && (!positive || values[i] > 0);
    }
    json_decref(list);
    return right ? YOKE_OK : wrong(file, key, "1 to 4 finite numbers, deviations above 0");
}

static yoke_status read_names(yoke_weights_description *made) {
    const yoke_safetensors *file = &made->file;
    size_t classes = (size_t)made->info.classes;
    TRY(read_list(file, CLASS_NAMES, &made->names));
    if (made->names == NULL) return YOKE_OK;
    if (json_array_size(made->names) != classes)
        return FAIL(YOKE_ERROR_DATA, "%s: __metadata__ %s has %zu names for %zu classes",
                    file->path, CLASS_NAMES, json_array_size(made->names), classes);
    made->class_names = calloc(classes + 1, sizeof *made->class_names);
    if (made->class_names == NULL)
        return FAIL_MEMORY(classes * sizeof *made->class_names, "the names of classes");
    for (size_t i = 0; i < classes; i++) {
        made->class_names[i] = json_string_value(json_array_get(made->names, i));
        if (made->class_names[i] == NULL) return wrong(file, CLASS_NAMES, "a list of texts");
    }
    made->info.class_names = made->class_names;
    return YOKE_OK;
}

static yoke_status read_info(yoke_weights_description *made) {
    const yoke_safetensors *file = &made->file;
    yoke_weights_info *info = &made->info;
    const char *decode = yoke_safetensors_note(file, DECODE);
    info->struct_size = sizeof *info;
    info->model = yoke_safetensors_note(file, MODEL);
    info->dataset = yoke_safetensors_note(file, DATASET);
    info->version = yoke_safetensors_note(file, VERSION);
    info->exact = decode != NULL && strcmp(decode, "exact") == 0;
    TRY(read_integer(file, CLASSES, CLASSES_LIMIT, &info->classes));
    TRY(read_integer(file, TARGETS, CLASSES_LIMIT, &info->target_count));
    TRY(read_integer(file, RESIZE, SIDE_LIMIT, &info->resize));
    TRY(read_input(file, &info->input));
    TRY(read_reals(file, MEAN, false, info->mean));
    TRY(read_reals(file, DEVIATION, true, info->deviation));
    return read_names(made);
}

yoke_status yoke_weights_description_open(yoke_weights_description **description,
                                          const char *path) {
    TRY(yoke_pointer_check(description, "description"));
    *description = NULL;
    TRY(yoke_pointer_check(path, "path"));
    yoke_weights_description *made = calloc(1, sizeof *made);
    if (made == NULL) return FAIL_MEMORY(sizeof *made, "the description of weights");
    yoke_status status = yoke_safetensors_open(&made->file, path);
    if (status == YOKE_OK) status = read_info(made);
    if (status != YOKE_OK) {
        yoke_weights_description_close(made);
        return status;
    }
    *description = made;
    return YOKE_OK;
}

void yoke_weights_description_close(yoke_weights_description *description) {
    if (description == NULL) return;
    free(description->class_names);
    json_decref(description->names);
    yoke_safetensors_close(&description->file);
    free(description);
}

yoke_status yoke_weights_describe(const yoke_weights_description *description,
                                  yoke_weights_info *info) {
    TRY(yoke_pointer_check(description, "description"));
    return yoke_options_store(info, &description->info, sizeof description->info,
                              "yoke_weights_info");
}
