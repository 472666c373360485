/* SPDX-License-Identifier: Apache-2.0 */
/* From a file of weights to an engine: what the file says of itself decides, unless the user names
 * a model. */
#include "cli/trained.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/progress.h"

#define SPEC_BYTES 5000
#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

/* The model, which only names its tensors, must fit the file before rows and an engine take memory
 * for what the file claims. */
static yoke_status make_model(trained *made, const char *weights) {
    const yoke_weights_info *info = &made->info;
    bool regression = info->classes == 0;
    yoke_loss_options loss = {.struct_size = sizeof loss,
                              .kind = regression ? YOKE_LOSS_MSE : YOKE_LOSS_CROSS_ENTROPY};
    if (made->described && info->loss != NULL) loss = *info->loss;
    TRY(yoke_model_preset(&made->model, info->model, info->input,
                          regression ? info->target_count : info->classes, &loss));
    return yoke_weights_check(made->model, weights);
}

static bool is_preset(const char *model) {
    const char *name;
    size_t length = strcspn(model, ":");
    for (int i = 0; (name = yoke_model_preset_name(i)) != NULL; i++)
        if (strlen(name) == length && strncmp(name, model, length) == 0) return true;
    return false;
}

static bool is_file(const char *model) {
    size_t length = strlen(model);
    return length > 5 && strcmp(model + length - 5, ".onnx") == 0;
}

yoke_status trained_open(trained *made, const trained_flags *flags) {
    yoke_devices_options devices = {
        .struct_size = sizeof devices, .list = flags->devices, .threads = flags->threads};
    made->info.struct_size = sizeof made->info;
    TRY(yoke_weights_description_open(&made->description, flags->weights));
    TRY(yoke_weights_describe(made->description, &made->info));
    bool other = flags->model != NULL &&
                 (made->info.model == NULL || strcmp(flags->model, made->info.model) != 0);
    made->described = !other && made->info.model != NULL && made->info.input.channels > 0;
    if (flags->model != NULL) made->info.model = flags->model;
    if (made->info.model == NULL)
        return cli_refuse(YOKE_ERROR_ARGUMENT,
                          "%s does not say which model its weights are of: add --model NAME",
                          flags->weights);
    if (flags->model == NULL && is_file(made->info.model)) /* a stranger's text opens no file */
        return cli_refuse(
            YOKE_ERROR_ARGUMENT,
            "%s has the weights of a network from a file of ONNX: name that file with "
            "--model '%s'",
            flags->weights, made->info.model);
    if (flags->model == NULL && !is_preset(made->info.model))
        return cli_refuse(YOKE_ERROR_ARGUMENT,
                          "%s has the weights of a network of its own program, '%s'; the tool "
                          "builds presets only: build the network in C as that program does "
                          "(yoke_model_create), read the file with yoke_weights_load, predict with "
                          "yoke_data_parallel_forward, evaluate with yoke_evaluation_run",
                          flags->weights, made->info.model);
    if (made->described) TRY(make_model(made, flags->weights));
    return yoke_devices_open(&made->devices, &devices);
}

/* Rows. */

static bool is_kind(const char *spec, const char *kind) {
    size_t length = strlen(kind);
    return strncmp(spec, kind, length) == 0 && (spec[length] == ':' || spec[length] == '\0');
}

/* The SPEC with the sizes that the weights were trained with, where it has none of its own. */
static const char *complete(const yoke_weights_info *info, const char *spec, char *text) {
    const yoke_shape *input = &info->input;
    if (is_kind(spec, "images") && info->resize > 0 && strstr(spec, ",size=") == NULL &&
        strstr(spec, ",resize=") == NULL)
        snprintf(text, SPEC_BYTES, "%s,size=%d,resize=%d%s", spec, input->height, info->resize,
                 info->exact && strstr(spec, ",decode=") == NULL ? ",decode=exact" : "");
    else if (is_kind(spec, "text") && strstr(spec, ",context=") == NULL)
        snprintf(text, SPEC_BYTES, "%s,context=%d", spec, input->channels);
    else if (strcmp(spec, "synthetic") == 0)
        snprintf(text, SPEC_BYTES, "%s:%dx%dx%d,classes=%d", spec, input->channels, input->height,
                 input->width, info->classes);
    else
        return spec;
    return text;
}

static const char *kind_of(const yoke_shape *shape) {
    return shape->flat ? "features" : shape->sequence ? "sequences" : "images";
}

static yoke_status check_shape(const yoke_weights_info *info, const yoke_dataset_info *rows,
                               const char *spec) {
    const yoke_shape *own = &info->input, *other = &rows->shape;
    if (own->channels == other->channels && own->height == other->height &&
        own->width == other->width && own->flat == other->flat && own->sequence == other->sequence)
        return YOKE_OK;
    if (own->flat != other->flat || own->sequence != other->sequence)
        return cli_refuse(YOKE_ERROR_ARGUMENT,
                          "rows of %s are %s, but the weights were trained on %s", spec,
                          kind_of(other), kind_of(own));
    return cli_refuse(
        YOKE_ERROR_ARGUMENT, "rows of %s are %dx%dx%d, but the weights were trained on %dx%dx%d",
        spec, other->channels, other->height, other->width, own->channels, own->height, own->width);
}

bool trained_is_name(const char *own, const char *name) {
    while (*name != '\0') {
        size_t bytes = yoke_text_utf8_bytes(name);
        const char *kept = bytes > 0 ? name : REPLACEMENT;
        size_t length = bytes > 0 ? bytes : strlen(REPLACEMENT);
        if (strncmp(own, kept, length) != 0) return false;
        own += length;
        name += bytes > 0 ? bytes : 1;
    }
    return *own == '\0';
}

static bool names_of_rows_have(const yoke_dataset_info *rows, const char *own) {
    for (int i = 0; i < rows->shape.channels; i++)
        if (trained_is_name(own, rows->feature_names[i])) return true;
    return false;
}

static bool names_of_weights_have(const yoke_weights_info *info, const char *name) {
    for (int i = 0; i < info->input.channels; i++)
        if (trained_is_name(info->feature_names[i], name)) return true;
    return false;
}

/* The features of a table are the columns that the weights were trained on, in their order. */
static yoke_status check_columns(const yoke_weights_info *info, const yoke_dataset_info *rows,
                                 const char *spec) {
    const char *const *own = info->feature_names, *const *other = rows->feature_names;
    int wanted = info->input.channels, found = rows->shape.channels;
    bool labelled = rows->classes > 0 || rows->target_count > 0;
    int alike = 0; /* of the first ones; behind them the searches cost wanted x found */
    if (own == NULL || other == NULL) return YOKE_OK;
    while (alike < wanted && alike < found && trained_is_name(own[alike], other[alike]))
        alike++;
    if (alike == wanted && alike == found) return YOKE_OK;
    for (int i = alike; i < found; i++)
        if (!names_of_weights_have(info, other[i]))
            return cli_refuse(YOKE_ERROR_ARGUMENT,
                              "%s: the weights were not trained on the column '%s': ignore=%s "
                              "leaves it out%s",
                              spec, other[i], other[i],
                              labelled ? "" : "; label= or target= names the column to learn");
    for (int i = alike; i < wanted; i++)
        if (!names_of_rows_have(rows, own[i]))
            return cli_refuse(YOKE_ERROR_ARGUMENT,
                              "%s: has no feature '%s', a column that the weights were trained on",
                              spec, own[i]);
    return cli_refuse(YOKE_ERROR_ARGUMENT,
                      "%s: feature %d is '%s', of the weights '%s': put the columns in the order "
                      "of the training",
                      spec, alike + 1, alike < found ? other[alike] : "missing",
                      alike < wanted ? own[alike] : "missing");
}

static bool says_normalization(const yoke_weights_info *info) {
    return info->std[0] > 0;
}

static yoke_status normalize(const yoke_weights_info *info, const yoke_dataset_info *rows,
                             yoke_dataset *dataset, const char *spec) {
    bool of_columns = rows->means != NULL;
    if (of_columns && info->means != NULL)
        return yoke_dataset_normalize_columns(dataset, info->means, info->stds);
    if (!of_columns && says_normalization(info))
        return yoke_dataset_normalize(dataset, info->mean, info->std);
    if (of_columns)
        fprintf(stderr,
                "yoke: warning: the weights do not say how their columns were normalized: %s is "
                "normalized by its own rows\n",
                spec);
    return YOKE_OK;
}

yoke_status trained_dataset(trained *made, const char *spec, const dataset_rows *rows,
                            yoke_dataset **dataset) {
    char text[SPEC_BYTES];
    yoke_weights_info *info = &made->info;
    yoke_dataset_info found = {.struct_size = sizeof found};
    TRY(dataset_rows_open(dataset, made->described ? complete(info, spec, text) : spec,
                          YOKE_SPLIT_TEST, rows, dataset_rows_name_bad, NULL));
    TRY(yoke_dataset_describe(*dataset, &found));
    if (made->described) {
        TRY(check_columns(info, &found, spec));
        TRY(check_shape(info, &found, spec));
        return normalize(info, &found, *dataset, spec);
    }
    info->input = found.shape;
    info->classes = found.classes;
    info->target_count = found.target_count;
    info->class_names = found.class_names;
    return YOKE_OK;
}

/* The head's bias is the last tensor of a model: its elements are the classes. */
static yoke_status count_classes(trained *made, const trained_flags *flags) {
    yoke_model *model = NULL;
    yoke_tensor_file *file = NULL;
    yoke_tensor_info last = {.struct_size = sizeof last};
    yoke_tensor_file_entry entry = {.struct_size = sizeof entry};
    yoke_status status =
        yoke_model_preset(&model, made->info.model, made->info.input, made->info.classes, NULL);
    if (status == YOKE_OK)
        status = yoke_model_tensor(model, yoke_model_tensor_count(model) - 1, &last);
    if (status == YOKE_OK) status = yoke_tensor_file_open(&file, flags->weights);
    if (status == YOKE_OK) status = yoke_tensor_file_find(file, last.name, &entry);
    if (status == YOKE_OK && entry.ndim > 0) made->info.classes = (int)entry.shape[0];
    yoke_tensor_file_close(file);
    yoke_model_destroy(model);
    return status;
}

yoke_status trained_guess(trained *made, const trained_flags *flags) {
    static const float mean[] = {0.485f, 0.456f, 0.406f, 0.406f};
    static const float std[] = {0.229f, 0.224f, 0.225f, 0.225f};
    yoke_weights_info *info = &made->info;
    if (made->described && says_normalization(info)) return YOKE_OK;
    if (made->described)
        return cli_refuse(YOKE_ERROR_ARGUMENT,
                          "%s does not say how its images were normalised: yoke.mean and "
                          "yoke.deviation are missing; yoke_weights_save_described writes them",
                          flags->weights);
    int named = info->classes;
    info->input = (yoke_shape){.channels = 3, .height = 224, .width = 224};
    info->resize = 256;
    info->classes = 1000;
    memcpy(info->mean, mean, sizeof mean);
    memcpy(info->std, std, sizeof std);
    TRY(count_classes(made, flags));
    if (info->classes != named) info->class_names = NULL; /* of other classes than the head's */
    return YOKE_OK;
}

/* The model. */

/* Two values at a time are the least that a forward holds. */
static double forward_bytes(const yoke_model *model) {
    size_t largest = 0;
    for (int i = 0; i < yoke_model_layer_count(model); i++) {
        yoke_layer_info layer = {.struct_size = sizeof layer};
        if (yoke_model_describe_layer(model, i, &layer) != YOKE_OK) continue;
        if (layer.activation_bytes > largest) largest = layer.activation_bytes;
    }
    return 2 * (double)largest;
}

yoke_status trained_model(trained *made, const trained_flags *flags, int batch) {
    if (made->model == NULL) TRY(make_model(made, flags->weights));
    /* A small file can name an input of any size: the machine would swap, or kill the process. */
    double row = forward_bytes(made->model);
    double half = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / 2;
    yoke_shape input = yoke_model_input_shape(made->model);
    if (row * batch <= half) return YOKE_OK;
    return cli_refuse(YOKE_ERROR_MEMORY,
                      "%d rows of %dx%dx%d need %.1f GB in %s, more than half of this machine's "
                      "memory, %.1f GB: %s",
                      batch, input.channels, input.height, input.width, row * batch / 1e9,
                      yoke_model_name(made->model), half / 1e9,
                      row <= half ? "take fewer rows with --batch" : "take smaller rows");
}

/* The engine. */

yoke_status trained_build(trained *made, const trained_flags *flags, int batch, bool pixels) {
    algorithm_cache_place algorithm_cache;
    progress view;
    algorithm_cache_find(&algorithm_cache, &flags->algorithm_cache, false);
    algorithm_cache_say_held(&algorithm_cache);
    yoke_data_parallel_options engine = {.struct_size = sizeof engine,
                                         .precision = flags->precision,
                                         .batch = batch,
                                         .pixels = pixels,
                                         .algorithm_cache = algorithm_cache.path,
                                         .replace_broken_cache = algorithm_cache.replace_broken,
                                         .measure_seconds = MEASURE_SECONDS_PREDICTING,
                                         .inference = true};
    progress_begin(&view, 0, 0, false);
    progress_note(&view, "measuring the fastest algorithms ...");
    yoke_status status =
        yoke_data_parallel_create(&made->parallel, made->model, made->devices, NULL, &engine);
    progress_clear(&view);
    TRY(status);
    const char *warning = yoke_data_parallel_algorithms_warning(made->parallel);
    if (warning != NULL) fprintf(stderr, "yoke: warning: %s\n", warning);
    return yoke_weights_load(made->parallel, made->model, flags->weights);
}

void trained_close(trained *made) {
    yoke_data_parallel_destroy(made->parallel);
    yoke_model_destroy(made->model);
    yoke_devices_close(made->devices);
    yoke_weights_description_close(made->description);
}

const char *trained_class(const trained *made, int index, char text[16]) {
    if (made->info.class_names != NULL) return made->info.class_names[index];
    snprintf(text, 16, "%d", index);
    return text;
}
