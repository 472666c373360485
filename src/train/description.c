/* SPDX-License-Identifier: Apache-2.0 */
/* Writes what a file of weights says of itself, and reads it back: whoever made the file, every
 * value is checked. */
#include "train/description.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/model.h"
#include "parallel/parallel.h"
#include "train/safetensors_header.h"

#define CLASSES_LIMIT 1000000
#define SIDE_LIMIT (1 << 20)

#define MODEL "yoke.model"
#define INPUT "yoke.input"
#define CLASSES "yoke.classes"
#define CLASS_NAMES "yoke.class_names"
#define TARGETS "yoke.targets"
#define DATASET "yoke.dataset"
#define MEAN "yoke.mean"
#define STD "yoke.deviation"
#define RESIZE "yoke.resize"
#define DECODE "yoke.decode"
#define VERSION "yoke.version"
#define LOSS "yoke.loss"
#define LOSS_WEIGHTS "yoke.loss_weights"
#define HUBER_DELTA "yoke.huber_delta"
#define IGNORE_INDEX "yoke.ignore_index"
#define FEATURE_NAMES "yoke.feature_names"

static const char *const losses[] = {[YOKE_LOSS_CROSS_ENTROPY] = "cross-entropy",
                                     [YOKE_LOSS_MSE] = "mse",
                                     [YOKE_LOSS_BCE] = "bce",
                                     [YOKE_LOSS_HUBER] = "huber",
                                     [YOKE_LOSS_OUTPUT] = "output"};
#define LOSSES (int)(sizeof losses / sizeof losses[0])

/* Writing. */

/* Takes ownership of `value`; NULL: out of memory. */
static yoke_status add(yoke_notes *notes, const char *key, char *value) {
    if (value == NULL) return FAIL_MEMORY(64, "the description of weights");
    notes->values[notes->count] = value;
    notes->items[notes->count++] = (yoke_file_note){key, value};
    return YOKE_OK;
}

static yoke_status add_text(yoke_notes *notes, const char *key, const char *value) {
    return value == NULL || value[0] == '\0' ? YOKE_OK : add(notes, key, yoke_strdup(value));
}

static yoke_status add_integer(yoke_notes *notes, const char *key, int value) {
    if (value == 0) return YOKE_OK;
    return add(notes, key, yoke_format("%d", value));
}

/* Ends the list; the notes own its text. */
static yoke_status add_list(yoke_notes *notes, const char *key, yoke_json *json) {
    yoke_json_close(json, ']');
    yoke_status status = add(notes, key, json->failed ? NULL : yoke_strdup(json->text));
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

static yoke_status add_names(yoke_notes *notes, const char *key, const char *const *names,
                             int count) {
    yoke_json json;
    if (names == NULL) return YOKE_OK;
    begin_list(&json);
    for (int i = 0; i < count; i++)
        yoke_json_text(&json, NULL, names[i]);
    return add_list(notes, key, &json);
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

static yoke_status add_statistics(yoke_notes *notes, const yoke_weights_info *info) {
    bool of_columns = info->means != NULL;
    int channels = info->input.channels < 4 || of_columns ? info->input.channels : 4;
    if (of_columns != (info->stds != NULL))
        return FAIL(YOKE_ERROR_ARGUMENT, "%s is NULL and %s is not: set both or none",
                    of_columns ? "stds" : "means", of_columns ? "means" : "stds");
    if (info->input.channels == 0 || !(of_columns || info->std[0] > 0)) return YOKE_OK;
    TRY(add_reals(notes, MEAN, of_columns ? info->means : info->mean, channels));
    return add_reals(notes, STD, of_columns ? info->stds : info->std, channels);
}

/* What it takes to compute the loss of other rows. */
static yoke_status add_loss(yoke_notes *notes, const yoke_loss_options *given) {
    yoke_loss_options loss;
    char text[32];
    if (given == NULL) return YOKE_OK;
    TRY(yoke_options_load(&loss, sizeof loss, given, "yoke_loss_options"));
    if ((int)loss.kind < 0 || (int)loss.kind >= LOSSES)
        return FAIL(YOKE_ERROR_ARGUMENT, "loss kind %d: expected 0 to %d", (int)loss.kind,
                    LOSSES - 1);
    const float *weights = loss.class_weights != NULL ? loss.class_weights : loss.positive_weights;
    TRY(add_text(notes, LOSS, losses[loss.kind]));
    if (weights != NULL) TRY(add_reals(notes, LOSS_WEIGHTS, weights, loss.weight_count));
    if (loss.set_ignore_index) {
        snprintf(text, sizeof text, "%d", loss.ignore_index);
        TRY(add_text(notes, IGNORE_INDEX, text));
    }
    if (loss.kind != YOKE_LOSS_HUBER) return YOKE_OK;
    double delta = loss.huber_delta == 0 ? 1 : loss.huber_delta;
    return add_text(notes, HUBER_DELTA, yoke_text_of_real(delta, text, sizeof text));
}

/* What a reader would refuse is not written: the caller's mistake, where it can still be mended. */
static yoke_status check_readable(const yoke_notes *notes);

yoke_status yoke_notes_write(yoke_notes *notes, const yoke_weights_info *info) {
    TRY(add_text(notes, MODEL, info->model));
    TRY(add_input(notes, &info->input));
    TRY(add_integer(notes, CLASSES, info->classes));
    TRY(add_names(notes, CLASS_NAMES, info->class_names, info->classes));
    TRY(add_integer(notes, TARGETS, info->target_count));
    TRY(add_text(notes, DATASET, info->dataset));
    TRY(add_names(notes, FEATURE_NAMES, info->feature_names, info->input.channels));
    TRY(add_statistics(notes, info));
    TRY(add_loss(notes, info->loss));
    TRY(add_integer(notes, RESIZE, info->resize));
    TRY(add_text(notes, DECODE, info->exact ? "exact" : NULL));
    return check_readable(notes);
}

void yoke_notes_clear(yoke_notes *notes) {
    for (int i = 0; i < notes->count; i++)
        yoke_free(notes->values[i]);
    *notes = (yoke_notes){0};
}

int yoke_notes_list(const yoke_notes *notes, yoke_file_note items[YOKE_DESCRIPTION_NOTES + 1]) {
    memcpy(items, notes->items, sizeof notes->items);
    items[notes->count] = (yoke_file_note){VERSION, yoke_version()};
    return notes->count + 1;
}

/* Reading. */

struct yoke_weights_description {
    yoke_safetensors file;
    yoke_weights_info info;
    yoke_loss_options loss;
    char *name_lists[2];        /* own the texts of class_names and feature_names */
    const char **class_names;   /* [classes] */
    const char **feature_names; /* [channels] */
    float *means, *stds;        /* as many as the file has */
    float *loss_weights;
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

/* A note's list in JSON, read element by element. */
typedef struct list {
    char *text; /* the caller frees it; NULL: the file has no such note */
    yoke_json_scan scan;
    int count, capacity;
} list;

static yoke_status open_list(const yoke_safetensors *file, const char *key, list *opened) {
    const char *text = yoke_safetensors_note(file, key);
    *opened = (list){0};
    if (text == NULL) return YOKE_OK;
    opened->text = yoke_strdup(text);
    if (opened->text == NULL) return FAIL_MEMORY(strlen(text) + 1, key);
    opened->scan = (yoke_json_scan){.text = opened->text, .bytes = strlen(text)};
    if (yoke_json_scan_mark(&opened->scan, '[')) return YOKE_OK;
    yoke_free(opened->text);
    opened->text = NULL;
    return wrong(file, key, "a list in JSON");
}

static bool has_more(list *of) {
    return yoke_json_scan_more(&of->scan, (size_t)of->count, ']');
}

/* Behind the last element. */
static bool ended_well(list *of) {
    return of->scan.error == NULL && yoke_json_scan_is_over(&of->scan);
}

static yoke_status read_input(const yoke_safetensors *file, yoke_shape *shape) {
    int sides[3] = {0};
    list of;
    bool right = true;
    TRY(open_list(file, INPUT, &of));
    if (of.text == NULL) return YOKE_OK;
    for (; right && has_more(&of); of.count++) {
        int64_t side;
        double real;
        right = of.count < 3 &&
                yoke_json_scan_number(&of.scan, &side, &real) == YOKE_JSON_INTEGER && side >= 1 &&
                side <= SIDE_LIMIT;
        if (right) sides[of.count] = (int)side;
    }
    right = right && of.count >= 1 && ended_well(&of);
    yoke_free(of.text);
    if (!right)
        return wrong(file, INPUT, "[features], [positions, features] or [channels, height, width]");
    if (of.count == 3)
        *shape = (yoke_shape){.channels = sides[0], .height = sides[1], .width = sides[2]};
    else if (of.count == 2)
        *shape =
            (yoke_shape){.channels = sides[1], .height = sides[0], .width = 1, .sequence = true};
    else
        *shape = (yoke_shape){.channels = sides[0], .height = 1, .width = 1, .flat = true};
    return YOKE_OK;
}

/* The caller frees *values; NULL: the file has no such note. */
static yoke_status read_reals(const yoke_safetensors *file, const char *key, float least,
                              float **values, size_t *count) {
    list of;
    bool right = true;
    yoke_status status = open_list(file, key, &of);
    if (of.text == NULL) return status;
    while (status == YOKE_OK && right && has_more(&of)) {
        int64_t integer;
        double real = 0;
        status = yoke_table_grow((void **)values, of.count, &of.capacity, sizeof **values,
                                 "a list in a weight file");
        if (status != YOKE_OK) break;
        right = yoke_json_scan_number(&of.scan, &integer, &real) != YOKE_JSON_NO_NUMBER;
        float value = (float)real;
        right = right && isfinite(value) && value >= least;
        (*values)[of.count++] = value;
    }
    right = right && of.count >= 1 && ended_well(&of);
    yoke_free(of.text);
    *count = (size_t)of.count;
    TRY(status);
    return right ? YOKE_OK : wrong(file, key, "finite numbers; stds above 0, weights at least 0");
}

/* A number for each channel, in *all; channels past the last of the four have the last's. */
static yoke_status read_statistic(const yoke_weights_description *made, const char *key,
                                  float least, float **all, float four[4]) {
    size_t count = 0;
    TRY(read_reals(&made->file, key, least, all, &count));
    if (*all == NULL) return YOKE_OK;
    if (count > 4 && count != (size_t)made->info.input.channels)
        return wrong(&made->file, key, "1 to 4 numbers, or one for each channel");
    for (size_t i = 0; i < 4; i++)
        four[i] = (*all)[i < count ? i : count - 1];
    if (count == (size_t)made->info.input.channels) return YOKE_OK;
    yoke_free(*all);
    *all = NULL;
    return YOKE_OK;
}

static yoke_status read_loss(yoke_weights_description *made) {
    const yoke_safetensors *file = &made->file;
    yoke_loss_options *loss = &made->loss;
    const char *word = yoke_safetensors_note(file, LOSS);
    const char *delta = yoke_safetensors_note(file, HUBER_DELTA);
    const char *ignored = yoke_safetensors_note(file, IGNORE_INDEX);
    int kind = 0, outputs = made->info.classes + made->info.target_count;
    size_t count = 0;
    int64_t index = 0;
    if (word == NULL) return YOKE_OK;
    while (kind < LOSSES && strcmp(word, losses[kind]) != 0)
        kind++;
    bool labels = kind == YOKE_LOSS_CROSS_ENTROPY;
    if (kind == LOSSES || (labels ? made->info.target_count : made->info.classes) > 0)
        return wrong(file, LOSS, "cross-entropy for classes; mse, bce, huber or output");
    *loss = (yoke_loss_options)YOKE_LOSS_OPTIONS_INIT;
    loss->kind = (yoke_loss_kind)kind;
    if (delta != NULL && !yoke_text_real(delta, DBL_TRUE_MIN, DBL_MAX, &loss->huber_delta))
        return wrong(file, HUBER_DELTA, "a number above 0");
    if (ignored != NULL && !labels)
        return wrong(file, IGNORE_INDEX, "no such entry: the loss reads no labels");
    if (ignored != NULL && !yoke_text_integer(ignored, INT32_MIN, INT32_MAX, &index))
        return wrong(file, IGNORE_INDEX, "a label");
    if (yoke_safetensors_note(file, LOSS_WEIGHTS) != NULL && !labels && kind != YOKE_LOSS_BCE)
        return wrong(file, LOSS_WEIGHTS, "no such entry: only cross-entropy and bce have weights");
    TRY(read_reals(file, LOSS_WEIGHTS, 0, &made->loss_weights, &count));
    if (made->loss_weights != NULL && outputs > 0 && count != (size_t)outputs)
        return wrong(file, LOSS_WEIGHTS, "a number for each class or target");
    loss->set_ignore_index = ignored != NULL;
    if (ignored != NULL) loss->ignore_index = (int)index;
    loss->weight_count = (int)count;
    *(kind == YOKE_LOSS_BCE ? &loss->positive_weights : &loss->class_weights) = made->loss_weights;
    made->info.loss = loss;
    return YOKE_OK;
}

/* Texts for `count` of what; the caller frees *names and *text, which has the texts. */
static yoke_status read_names(const yoke_safetensors *file, const char *key, int count, char **text,
                              const char ***names) {
    list of;
    TRY(open_list(file, key, &of));
    *text = of.text;
    if (of.text == NULL) return YOKE_OK;
    for (; has_more(&of); of.count++) {
        TRY(yoke_table_grow((void **)names, of.count, &of.capacity, sizeof **names,
                            "a list in a weight file"));
        if (!yoke_json_scan_text(&of.scan, &(*names)[of.count]))
            return wrong(file, key, "a list of texts");
    }
    if (!ended_well(&of)) return wrong(file, key, "a list in JSON");
    if (of.count == count) return YOKE_OK;
    return FAIL(YOKE_ERROR_DATA, "%s: __metadata__ %s has %d names for %d %s", file->path, key,
                of.count, count, strcmp(key, CLASS_NAMES) == 0 ? "classes" : "channels");
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
    TRY(read_statistic(made, MEAN, -FLT_MAX, &made->means, info->mean));
    TRY(read_statistic(made, STD, FLT_TRUE_MIN, &made->stds, info->std));
    if (made->means != NULL && made->stds != NULL) {
        info->means = made->means;
        info->stds = made->stds;
    }
    TRY(read_loss(made));
    TRY(read_names(file, CLASS_NAMES, info->classes, &made->name_lists[0], &made->class_names));
    TRY(read_names(file, FEATURE_NAMES, info->input.channels, &made->name_lists[1],
                   &made->feature_names));
    info->class_names = made->class_names;
    info->feature_names = made->feature_names;
    return YOKE_OK;
}

static void free_info(yoke_weights_description *description) {
    yoke_free(description->loss_weights);
    yoke_free(description->stds);
    yoke_free(description->means);
    yoke_free(description->feature_names);
    yoke_free(description->class_names);
    yoke_free(description->name_lists[1]);
    yoke_free(description->name_lists[0]);
}

static yoke_status check_readable(const yoke_notes *notes) {
    int order[YOKE_DESCRIPTION_NOTES];
    char path[] = "the description of the weights";
    yoke_file_note items[YOKE_DESCRIPTION_NOTES];
    memcpy(items, notes->items, sizeof items);
    yoke_weights_description read = {.file = {.path = path, .notes = items, .by_key = order}};
    for (int i = 0; i < notes->count; i++) { /* sorts by key */
        int place = i;
        for (; place > 0 && strcmp(items[order[place - 1]].key, items[i].key) > 0; place--)
            order[place] = order[place - 1];
        order[place] = i;
    }
    read.file.note_count = notes->count;
    yoke_error error = yoke_error_take(read_info(&read));
    free_info(&read);
    if (error.status == YOKE_ERROR_DATA) error.status = YOKE_ERROR_ARGUMENT;
    return yoke_error_restore(&error);
}

static yoke_status open_from(yoke_weights_description **description, const yoke_file_source *from) {
    yoke_weights_description *made = yoke_calloc(1, sizeof *made);
    if (made == NULL) return FAIL_MEMORY(sizeof *made, "the description of weights");
    yoke_status status = yoke_safetensors_open(&made->file, from);
    if (status == YOKE_OK) status = read_info(made);
    if (status != YOKE_OK) {
        yoke_weights_description_close(made);
        return status;
    }
    *description = made;
    return YOKE_OK;
}

yoke_status yoke_weights_description_open(yoke_weights_description **description,
                                          const char *path) {
    const yoke_file_source from = yoke_source_path(path);
    TRY(yoke_pointer_check(description, "description"));
    *description = NULL;
    TRY(yoke_pointer_check(path, "path"));
    return open_from(description, &from);
}

yoke_status yoke_weights_description_read(yoke_weights_description **description, const void *bytes,
                                          size_t count) {
    yoke_file_source from;
    TRY(yoke_pointer_check(description, "description"));
    *description = NULL;
    TRY(yoke_source_bytes(&from, bytes, count));
    return open_from(description, &from); /* of the bytes it keeps what it has copied */
}

void yoke_weights_description_close(yoke_weights_description *description) {
    if (description == NULL) return;
    free_info(description);
    yoke_safetensors_close(&description->file);
    yoke_free(description);
}

yoke_status yoke_weights_describe(const yoke_weights_description *description,
                                  yoke_weights_info *info) {
    TRY(yoke_pointer_check(description, "description"));
    return yoke_options_store(info, &description->info, sizeof description->info,
                              "yoke_weights_info");
}
