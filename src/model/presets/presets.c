/* SPDX-License-Identifier: Apache-2.0 */
/* The list of all presets, and a model by the name of one of them. */
#include <stdio.h>
#include <string.h>

#include "model/presets/preset.h"
#include "yoke/onnx.h"

#define NAMES_LIMIT 64 /* presets that an error message can name */

static const yoke_preset_family *const families[] = {
    &yoke_mlp_family,         &yoke_resnet_family,   &yoke_vgg_family,
    &yoke_mobilenet_family,   &yoke_densenet_family, &yoke_efficientnet_family,
    &yoke_convnext_family,    &yoke_gpt2_family,     &yoke_lstm_char_family,
    &yoke_transformer_family, &yoke_vit_family,      &yoke_unet_family,
    &yoke_airbench_family,    &yoke_layers_family};

/* NULL past the last one. */
static const yoke_preset *preset_at(int index) {
    for (size_t i = 0; i < sizeof families / sizeof families[0] && index >= 0; i++) {
        if (index < families[i]->count) return &families[i]->presets[index];
        index -= families[i]->count;
    }
    return NULL;
}

const char *yoke_model_preset_name(int index) {
    const yoke_preset *preset = preset_at(index);
    return preset != NULL ? preset->name : NULL;
}

yoke_status yoke_model_preset_describe(int index, yoke_preset_info *info) {
    const yoke_preset *preset = preset_at(index);
    if (preset == NULL)
        return FAIL(YOKE_ERROR_ARGUMENT, "preset %d: there are fewer; the first is 0", index);
    yoke_preset_info own = {.struct_size = sizeof own,
                            .name = preset->name,
                            .summary = preset->summary,
                            .input = preset->input,
                            .classes = preset->classes};
    for (int i = 0; preset->options != NULL && preset->options[i].name != NULL; i++) {
        own.options[i] =
            (yoke_preset_setting){preset->options[i].name, preset->options[i].otherwise};
        own.option_count = i + 1;
    }
    return yoke_options_store(info, &own, sizeof own, "yoke_preset_info");
}

/* `name` may end with a colon and options; *options gets what follows the colon, or NULL. */
static yoke_status find_preset(const char *name, const yoke_preset **found, const char **options) {
    char word[64];
    if (name == NULL) return FAIL(YOKE_ERROR_ARGUMENT, "yoke_model_preset needs a name");
    size_t length = strcspn(name, ":");
    *options = name[length] == ':' ? name + length + 1 : NULL;
    for (int i = 0; (*found = preset_at(i)) != NULL; i++)
        if (strlen((*found)->name) == length && strncmp((*found)->name, name, length) == 0)
            return YOKE_OK;
    snprintf(word, sizeof word, "%.*s", (int)length, name);
    const char *names[NAMES_LIMIT];
    char known[YOKE_ERROR_TEXT_BYTES / 2] = "";
    int count = 0;
    for (; count < NAMES_LIMIT && preset_at(count) != NULL; count++) {
        names[count] = preset_at(count)->name;
        strncat(known, count > 0 ? ", " : "", sizeof known - strlen(known) - 1);
        strncat(known, names[count], sizeof known - strlen(known) - 1);
    }
    const char *near = yoke_text_nearest(word, names, (size_t)count);
    if (near != NULL)
        return FAIL(YOKE_ERROR_ARGUMENT, "no model is called '%s'; did you mean '%s'?", word, near);
    return FAIL(
        YOKE_ERROR_ARGUMENT,
        "no model is called '%s'; known: %s; yoke_model_create begins a network of your own in C",
        word, known);
}

/* A file is a model, too, by its own name. */
static bool names_file(const char *name) {
    size_t length = name != NULL ? strlen(name) : 0;
    return length > 5 && strcmp(name + length - 5, ".onnx") == 0;
}

yoke_status yoke_model_preset(yoke_model **model, const char *name, yoke_shape input, int classes,
                              const yoke_loss_options *loss) {
    if (names_file(name)) {
        const yoke_onnx_options file = {sizeof file, input, classes, loss, NULL};
        return yoke_model_load_onnx(model, name, &file);
    }
    yoke_preset_request request = {.classes = classes};
    const char *options = NULL;
    if (model == NULL) return FAIL(YOKE_ERROR_ARGUMENT, "yoke_model_preset: `model` is NULL");
    *model = NULL;
    TRY(find_preset(name, &request.preset, &options));
    if (request.preset->reads_text)
        request.text = options;
    else
        TRY(yoke_preset_options_read(request.preset, options, request.values));
    if (classes < 1)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: %d classes, must be at least 1", name, classes);
    if (input.flat && !request.preset->input.flat && !request.preset->reads_numbers)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "%s reads images, and these rows are vectors of %d: choose the model mlp for "
                    "numbers, gpt2 for text",
                    request.preset->name, input.channels);
    TRY(yoke_model_create(&request.model, name, input));
    yoke_status status = yoke_model_finish(request.model, request.preset->build(&request), loss);
    if (status != YOKE_OK) {
        yoke_model_destroy(request.model);
        return status;
    }
    *model = request.model;
    return YOKE_OK;
}
