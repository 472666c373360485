/* SPDX-License-Identifier: Apache-2.0 */
/* A network spelled in one line, layer behind layer: "layers:linear=10,relu,linear=10". Its tensors
 * have the names of nn.Sequential's: the layer's place in the line. "layers" alone is one linear
 * layer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/presets/preset.h"
#include "yoke/convolution.h"
#include "yoke/elementary.h"
#include "yoke/transformer.h"

enum { WORD_BYTES = 64, LAYERS_LIMIT = 1000 };

/* A layer of the line: "conv=32x3/2" has the numbers 32, 3, 2. */
typedef struct spelled {
    const char *word, *name; /* "conv"; "4": its place */
    double numbers[3];
    int count; /* of the numbers */
} spelled;

typedef struct layer_word {
    const char *word, *numbers; /* "=CHANNELS[xKERNEL[/STRIDE]]", for messages; NULL: none */
    int least, most;            /* numbers */
    yoke_value (*add)(yoke_model *model, yoke_value input, const spelled *layer);
} layer_word;

static int whole(const spelled *layer, int index, int otherwise) {
    return index < layer->count ? (int)layer->numbers[index] : otherwise;
}

/* An image becomes flat before a linear layer. */
static yoke_value add_linear(yoke_model *model, yoke_value input, const spelled *layer) {
    yoke_shape shape = yoke_value_shape(model, input.index);
    if (!shape.flat && !shape.sequence) input = yoke_flatten(model, input);
    return yoke_preset_linear(model, input, layer->name, whole(layer, 0, 0), 0);
}

static yoke_value add_conv(yoke_model *model, yoke_value input, const spelled *layer) {
    int kernel = whole(layer, 1, 3);
    yoke_conv2d_options options = YOKE_CONV2D_OPTIONS_INIT;
    options.name = layer->name;
    options.out_channels = whole(layer, 0, 0);
    options.kernel = kernel;
    options.stride = whole(layer, 2, 1);
    options.padding = kernel / 2;
    return yoke_conv2d(model, input, &options);
}

static yoke_value add_conv1d(yoke_model *model, yoke_value input, const spelled *layer) {
    yoke_conv1d_options options = YOKE_CONV1D_OPTIONS_INIT;
    options.name = layer->name;
    options.out_channels = whole(layer, 0, 0);
    options.kernel = whole(layer, 1, 3);
    options.stride = whole(layer, 2, 1);
    options.padding = options.kernel / 2;
    return yoke_conv1d(model, input, &options);
}

/* Height and width become `stride` times as large. */
static yoke_value add_conv_transpose(yoke_model *model, yoke_value input, const spelled *layer) {
    yoke_conv_transpose2d_options options = YOKE_CONV_TRANSPOSE2D_OPTIONS_INIT;
    options.name = layer->name;
    options.out_channels = whole(layer, 0, 0);
    options.kernel = whole(layer, 1, 2);
    options.stride = whole(layer, 2, 2);
    int more = options.kernel - options.stride; /* rows beyond, if nothing were taken away */
    if (more > 0) options.padding = (more + 1) / 2;
    options.output_padding = more < 0 ? -more : options.stride > 1 ? more % 2 : 0;
    return yoke_conv_transpose2d(model, input, &options);
}

static yoke_value add_pixel_shuffle(yoke_model *model, yoke_value input, const spelled *layer) {
    return yoke_pixel_shuffle(model, input, whole(layer, 0, 0));
}

static yoke_value add_pixel_unshuffle(yoke_model *model, yoke_value input, const spelled *layer) {
    return yoke_pixel_unshuffle(model, input, whole(layer, 0, 0));
}

static yoke_value add_batch_norm(yoke_model *model, yoke_value input, const spelled *layer) {
    yoke_batch_norm_options options = YOKE_BATCH_NORM_OPTIONS_INIT;
    options.name = layer->name;
    return yoke_batch_norm(model, input, &options);
}

static yoke_value add_layer_norm(yoke_model *model, yoke_value input, const spelled *layer) {
    yoke_layer_norm_options options = YOKE_LAYER_NORM_OPTIONS_INIT;
    options.name = layer->name;
    return yoke_layer_norm(model, input, &options);
}

static yoke_pool_options pool_of(const spelled *layer) {
    yoke_pool_options options = YOKE_POOL_OPTIONS_INIT;
    options.kernel = whole(layer, 0, 2);
    options.stride = whole(layer, 1, options.kernel);
    return options;
}

static yoke_value add_max_pool(yoke_model *model, yoke_value input, const spelled *layer) {
    yoke_pool_options options = pool_of(layer);
    return yoke_max_pool(model, input, &options);
}

static yoke_value add_average_pool(yoke_model *model, yoke_value input, const spelled *layer) {
    yoke_pool_options options = pool_of(layer);
    return yoke_average_pool(model, input, &options);
}

static yoke_value add_dropout(yoke_model *model, yoke_value input, const spelled *layer) {
    return yoke_dropout(model, input, layer->count > 0 ? layer->numbers[0] : 0.5);
}

static yoke_value add_leaky_relu(yoke_model *model, yoke_value input, const spelled *layer) {
    double slope = layer->count > 0 ? layer->numbers[0] : 0.01;
    return yoke_map_with(model, YOKE_FN_LEAKY_RELU, input, slope, 0);
}

static yoke_value add_elu(yoke_model *model, yoke_value input, const spelled *layer) {
    double alpha = layer->count > 0 ? layer->numbers[0] : 1;
    return yoke_map_with(model, YOKE_FN_ELU, input, alpha, 0);
}

#define ALONE(word, call)                                                                          \
    static yoke_value add_##word(yoke_model *model, yoke_value input, const spelled *layer) {      \
        (void)layer;                                                                               \
        return call;                                                                               \
    }
ALONE(relu, yoke_relu(model, input))
ALONE(relu6, yoke_relu6(model, input))
ALONE(gelu, yoke_gelu(model, input))
ALONE(silu, yoke_silu(model, input))
ALONE(sigmoid, yoke_sigmoid(model, input))
ALONE(tanh, yoke_tanh(model, input))
ALONE(softmax, yoke_softmax(model, input))
ALONE(softplus, yoke_map_with(model, YOKE_FN_SOFTPLUS, input, 0, 0))
ALONE(flatten, yoke_flatten(model, input))
ALONE(global_pool, yoke_global_average_pool(model, input))

static const layer_word words[] = {
    {"linear", "=FEATURES", 1, 1, add_linear},
    {"conv", "=CHANNELS[xKERNEL[/STRIDE]]", 1, 3, add_conv},
    {"conv1d", "=FEATURES[xKERNEL[/STRIDE]]", 1, 3, add_conv1d},
    {"conv_transpose", "=CHANNELS[xKERNEL[/STRIDE]]", 1, 3, add_conv_transpose},
    {"pixel_shuffle", "=FACTOR", 1, 1, add_pixel_shuffle},
    {"pixel_unshuffle", "=FACTOR", 1, 1, add_pixel_unshuffle},
    {"batch_norm", NULL, 0, 0, add_batch_norm},
    {"layer_norm", NULL, 0, 0, add_layer_norm},
    {"relu", NULL, 0, 0, add_relu},
    {"relu6", NULL, 0, 0, add_relu6},
    {"leaky_relu", "[=SLOPE]", 0, 1, add_leaky_relu},
    {"elu", "[=ALPHA]", 0, 1, add_elu},
    {"gelu", NULL, 0, 0, add_gelu},
    {"silu", NULL, 0, 0, add_silu},
    {"sigmoid", NULL, 0, 0, add_sigmoid},
    {"tanh", NULL, 0, 0, add_tanh},
    {"softplus", NULL, 0, 0, add_softplus},
    {"softmax", NULL, 0, 0, add_softmax},
    {"dropout", "[=PROBABILITY]", 0, 1, add_dropout},
    {"flatten", NULL, 0, 0, add_flatten},
    {"max_pool", "[=KERNEL[/STRIDE]]", 0, 2, add_max_pool},
    {"average_pool", "[=KERNEL[/STRIDE]]", 0, 2, add_average_pool},
    {"global_pool", NULL, 0, 0, add_global_pool},
};
enum { WORDS = sizeof words / sizeof words[0] };

static yoke_status unknown_word(const char *word) {
    const char *names[WORDS];
    char known[512] = "";
    for (int i = 0; i < WORDS; i++) {
        names[i] = words[i].word;
        strncat(known, i > 0 ? ", " : "", sizeof known - strlen(known) - 1);
        strncat(known, words[i].word, sizeof known - strlen(known) - 1);
    }
    const char *near = yoke_text_nearest(word, names, WORDS);
    if (near != NULL)
        return FAIL(YOKE_ERROR_ARGUMENT, "layers: no layer '%s'; did you mean '%s'?", word, near);
    return FAIL(YOKE_ERROR_ARGUMENT, "layers: no layer '%s'; known: %s", word, known);
}

/* "32x3/2" -> 32, 3, 2. */
static bool read_numbers(const char *text, const layer_word *known, spelled *layer) {
    while (text != NULL && layer->count < known->most) {
        char number[WORD_BYTES];
        size_t length = strcspn(text, "x/");
        snprintf(number, sizeof number, "%.*s", (int)length, text);
        if (!yoke_text_real(number, 0, 1 << 24, &layer->numbers[layer->count++])) return false;
        text = text[length] != '\0' ? text + length + 1 : NULL;
    }
    return text == NULL && layer->count >= known->least;
}

/* One "word=numbers" as a layer; `place` counts the layers of the line. */
static yoke_status add_word(yoke_model *model, char *text, int place, yoke_value *value) {
    char name[16], *equal = strchr(text, '=');
    if (equal != NULL) *equal = '\0';
    const layer_word *known = words;
    while (known < words + WORDS && strcmp(known->word, text) != 0)
        known++;
    if (known == words + WORDS) return unknown_word(text);
    snprintf(name, sizeof name, "%d", place);
    spelled layer = {.word = text, .name = name};
    if (!read_numbers(equal != NULL ? equal + 1 : NULL, known, &layer))
        return FAIL(YOKE_ERROR_ARGUMENT, "layers: layer %d, '%s%s%s', must be %s%s", place, text,
                    equal != NULL ? "=" : "", equal != NULL ? equal + 1 : "", text,
                    known->numbers != NULL ? known->numbers : " alone");
    *value = known->add(model, *value, &layer);
    return YOKE_OK;
}

static yoke_status check_output(const yoke_preset_request *request, yoke_value value) {
    if (yoke_builder_stopped(request->model)) return YOKE_OK; /* finish reports it */
    yoke_shape shape = yoke_value_shape(request->model, value.index);
    if (shape.channels == request->classes) return YOKE_OK;
    return FAIL(
        YOKE_ERROR_ARGUMENT,
        "layers: the last layer writes %d values where %d are wanted, one for each class or "
        "target: end with linear=%d",
        shape.channels, request->classes, request->classes);
}

static yoke_status add_line(const yoke_preset_request *request, yoke_value *value) {
    char otherwise[32];
    const char *text = request->text;
    snprintf(otherwise, sizeof otherwise, "linear=%d", request->classes);
    if (text == NULL) text = otherwise;
    /* After an error, which finish reports, there is no value to read. */
    for (int place = 0; text != NULL && !yoke_builder_stopped(request->model); place++) {
        char word[WORD_BYTES];
        size_t length = strcspn(text, ",");
        if (length >= sizeof word || place == LAYERS_LIMIT)
            return FAIL(YOKE_ERROR_ARGUMENT, "layers: layer %d is too long, or one too many",
                        place);
        snprintf(word, sizeof word, "%.*s", (int)length, text);
        TRY(add_word(request->model, word, place, value));
        text = text[length] == ',' ? text + length + 1 : NULL;
    }
    return check_output(request, *value);
}

static yoke_value build_layers(const yoke_preset_request *request) {
    yoke_value value = yoke_model_input(request->model);
    yoke_status status = add_line(request, &value);
    return status == YOKE_OK ? value : yoke_builder_result(request->model, status);
}

static const yoke_preset presets[] = {
    {.name = "layers",
     .summary = "layers of your own in one line: layers:linear=10,relu,linear=10",
     .build = build_layers,
     .reads_text = true,
     .input = {.channels = 1, .height = 28, .width = 28},
     .classes = 10,
     .reads_numbers = true},
};
const yoke_preset_family yoke_layers_family = {presets, 1};
