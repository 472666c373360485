/* SPDX-License-Identifier: Apache-2.0 */
/* yoke model: the models by name; the layers, sizes and costs of one; trained ones for ONNX. */
#include <stddef.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/model_export.h"
#include "cli/shared_options.h"

typedef struct model_flags {
    const char *dataset, *input, *weights, *model, *onnx;
    int classes;
    bool json;
} model_flags;

#define AT(field) CLI_FIELD(model_flags, field)

static const cli_option options[] = {
    {"dataset", "SPEC", "show: rows and classes of a dataset, as in yoke train", AT(dataset)},
    {"input", "CxHxW", "shape of a row (the one that the model was published for)", AT(input)},
    {"classes", "N", "length of the output (likewise)", AT(classes), 1, 1 << 30},
    {"weights", "FILE", "export: safetensors file of the weights (required)", AT(weights)},
    {"onnx", "FILE", "export: the file to write (required)", AT(onnx)},
    {"model", "NAME", "export: of weights that do not name their model, as PyTorch's", AT(model)},
    CLI_OPTION_JSON(AT(json)),
};

const cli_verb model_verb = {
    .name = "model",
    .operands = "list | show NAME[:OPTIONS] | export",
    .summary = "list the models; show the layers and costs of one; write one for ONNX",
    .options = options,
    .option_count = CLI_OPTION_COUNT(options),
    .more =
        "show prints, for every layer, the shape of its output, its parameters, and for one row\n"
        "the FLOPs of a forward (a multiplication and an addition are two) and the bytes of the\n"
        "output in float32. NAME may be a file of ONNX.\n"
        "export writes trained weights and their network as a file of ONNX: yoke model export\n"
        "--weights model.safetensors --onnx model.onnx. --model takes such files in every verb.\n",
    .print_more = cli_print_models};

/* list. */

static const char *shape_text(yoke_shape shape, char text[48]) {
    if (shape.flat)
        snprintf(text, 48, "%d", shape.channels);
    else if (shape.sequence)
        snprintf(text, 48, "%d x %d", shape.height, shape.channels);
    else
        snprintf(text, 48, "%d x %d x %d", shape.channels, shape.height, shape.width);
    return text;
}

static void add_shape(yoke_json *json, const char *key, yoke_shape shape) {
    yoke_json_open(json, key, '[');
    if (!shape.sequence) yoke_json_integer(json, NULL, shape.channels);
    if (!shape.flat) yoke_json_integer(json, NULL, shape.height);
    if (!shape.flat && !shape.sequence) yoke_json_integer(json, NULL, shape.width);
    if (shape.sequence) yoke_json_integer(json, NULL, shape.channels);
    yoke_json_close(json, ']');
}

static void add_preset(yoke_json *json, const yoke_preset_info *preset) {
    yoke_json_open(json, NULL, '{');
    yoke_json_text(json, "name", preset->name);
    yoke_json_text(json, "summary", preset->summary);
    add_shape(json, "input", preset->input);
    yoke_json_integer(json, "classes", preset->classes);
    yoke_json_open(json, "options", '{');
    for (int i = 0; i < preset->option_count; i++)
        yoke_json_real(json, preset->options[i].name, preset->options[i].value);
    yoke_json_close(json, '}');
    yoke_json_close(json, '}');
}

static void print_preset(const yoke_preset_info *preset) {
    char shape[48];
    printf("%-16s %-14s %7d  %s", preset->name, shape_text(preset->input, shape), preset->classes,
           preset->summary);
    if (preset->option_count > 0) printf("\n%18s%s", "", preset->name);
    for (int i = 0; i < preset->option_count; i++)
        printf("%s%s=%g", i > 0 ? "," : ":", preset->options[i].name, preset->options[i].value);
    printf("\n");
}

static int list_models(bool as_json) {
    yoke_json json;
    yoke_json_begin(&json);
    yoke_json_open(&json, NULL, '[');
    if (!as_json) printf("%-16s %-14s %7s\n", "model", "input", "classes");
    for (int i = 0; yoke_model_preset_name(i) != NULL; i++) {
        yoke_preset_info preset = {.struct_size = sizeof preset};
        yoke_model_preset_describe(i, &preset);
        if (as_json)
            add_preset(&json, &preset);
        else
            print_preset(&preset);
    }
    yoke_json_close(&json, ']');
    if (as_json) return cli_print_json(&json, stdout) == YOKE_OK ? 0 : cli_fail(YOKE_ERROR_MEMORY);
    yoke_json_end(&json);
    return 0;
}

/* show. */

/* What a model is built for. */
typedef struct request {
    const char *name;
    yoke_shape input;
    int outputs;
    yoke_loss_options loss;
} request;

/* The shape and classes that the preset was published for; yoke_model_preset reports a name that is
 * none. */
static void published(request *to) {
    size_t length = strcspn(to->name, ":");
    for (int i = 0; yoke_model_preset_name(i) != NULL; i++) {
        yoke_preset_info preset = {.struct_size = sizeof preset};
        yoke_model_preset_describe(i, &preset);
        if (strlen(preset.name) != length || strncmp(preset.name, to->name, length) != 0) continue;
        to->input = preset.input;
        to->outputs = preset.classes;
    }
}

/* "3x32x32", or "20" for a flat row. */
static yoke_status read_shape(const char *text, yoke_shape *shape) {
    int64_t sides[3] = {1, 1, 1};
    char copy[64], *rest = copy;
    int count = 0;
    bool good = snprintf(copy, sizeof copy, "%s", text) < (int)sizeof copy;
    while (good && rest != NULL) {
        const char *side = strsep(&rest, "x");
        good = count < 3 && yoke_text_integer(side, 1, 1 << 24, &sides[count++]);
    }
    if (!good || count == 2)
        return cli_refuse(YOKE_ERROR_ARGUMENT,
                          "--input: '%s' is not channels x height x width, such as 3x224x224, nor "
                          "a number of features",
                          text);
    *shape = (yoke_shape){.channels = (int)sides[0],
                          .height = (int)sides[1],
                          .width = (int)sides[2],
                          .flat = count == 1};
    return YOKE_OK;
}

static yoke_status read_dataset(const char *spec, request *to) {
    yoke_dataset *dataset = NULL;
    yoke_dataset_info info = {.struct_size = sizeof info};
    yoke_status status = yoke_dataset_open(&dataset, spec, YOKE_SPLIT_TRAIN);
    if (status == YOKE_OK) status = yoke_dataset_describe(dataset, &info);
    yoke_dataset_close(dataset);
    if (status != YOKE_OK) return status;
    to->input = info.shape;
    to->outputs = info.classes > 0 ? info.classes : info.target_count;
    to->loss.kind = info.classes > 0 ? YOKE_LOSS_CROSS_ENTROPY : YOKE_LOSS_MSE;
    return YOKE_OK;
}

/* "1.81 G": three digits and a unit of 1,000. */
static const char *count_text(double count, char text[24]) {
    static const char *const units[] = {"", " k", " M", " G", " T"};
    int unit = 0;
    for (; count >= 999.5 && unit < 4; unit++)
        count /= 1000;
    int decimals = unit == 0 || count >= 99.95 ? 0 : count >= 9.995 ? 1 : 2;
    snprintf(text, 24, "%.*f%s", decimals, count, units[unit]);
    return text;
}

static void print_costs(size_t parameters, double flops, double bytes) {
    char flops_text[24], bytes_text[32];
    printf(" %11zu %9s %11s\n", parameters, count_text(flops, flops_text),
           yoke_text_bytes(bytes, bytes_text, sizeof bytes_text));
}

typedef struct totals {
    double flops, activation_bytes;
} totals;

static void print_layer(const yoke_layer_info *layer, int name_width) {
    char shape[48];
    printf("%-*s %-14s %-16s", name_width, layer->name, layer->kind,
           shape_text(layer->output, shape));
    print_costs(layer->parameters, layer->flops, (double)layer->activation_bytes);
}

static void add_layer(yoke_json *json, const yoke_layer_info *layer) {
    yoke_json_open(json, NULL, '{');
    yoke_json_text(json, "name", layer->name);
    yoke_json_text(json, "kind", layer->kind);
    add_shape(json, "output", layer->output);
    yoke_json_integer(json, "parameters", (int64_t)layer->parameters);
    yoke_json_real(json, "flops", layer->flops);
    yoke_json_integer(json, "activation_bytes", (int64_t)layer->activation_bytes);
    yoke_json_close(json, '}');
}

/* The longest name decides, but no column is narrower than a usual one. */
static int width_of_names(const yoke_model *model) {
    int width = 30;
    for (int i = 0; i < yoke_model_layer_count(model); i++) {
        yoke_layer_info layer = {.struct_size = sizeof layer};
        yoke_model_describe_layer(model, i, &layer);
        if ((int)strlen(layer.name) > width) width = (int)strlen(layer.name);
    }
    return width;
}

/* json NULL: prints each layer as a line. */
static totals tell_layers(const yoke_model *model, yoke_json *json, int name_width) {
    totals sums = {0};
    for (int i = 0; i < yoke_model_layer_count(model); i++) {
        yoke_layer_info layer = {.struct_size = sizeof layer};
        yoke_model_describe_layer(model, i, &layer);
        sums.flops += layer.flops;
        sums.activation_bytes += (double)layer.activation_bytes;
        if (json != NULL)
            add_layer(json, &layer);
        else
            print_layer(&layer, name_width);
    }
    return sums;
}

static yoke_status print_json(const yoke_model *model) {
    yoke_json json;
    yoke_json_begin(&json);
    yoke_json_open(&json, NULL, '{');
    yoke_json_text(&json, "model", yoke_model_name(model));
    add_shape(&json, "input", yoke_model_input_shape(model));
    add_shape(&json, "output", yoke_model_output_shape(model));
    yoke_json_open(&json, "layers", '[');
    totals sums = tell_layers(model, &json, 0);
    yoke_json_close(&json, ']');
    yoke_json_integer(&json, "parameters", (int64_t)yoke_model_parameter_count(model));
    yoke_json_real(&json, "flops", sums.flops);
    yoke_json_integer(&json, "activation_bytes", (int64_t)sums.activation_bytes);
    yoke_json_close(&json, '}');
    return cli_print_json(&json, stdout);
}

static void print_table(const yoke_model *model) {
    int width = width_of_names(model);
    char shape[48];
    printf("%s for rows of %s, in float32; FLOPs and activation of a forward of one row\n\n",
           yoke_model_name(model), shape_text(yoke_model_input_shape(model), shape));
    printf("%-*s %-14s %-16s %11s %9s %11s\n", width, "layer", "kind", "output", "parameters",
           "FLOPs", "activation");
    totals sums = tell_layers(model, NULL, width);
    printf("%-*s", width + 32, "total");
    print_costs(yoke_model_parameter_count(model), sums.flops, sums.activation_bytes);
}

static int show_model(const char *name, const model_flags *flags) {
    request to = {.name = name, .loss = YOKE_LOSS_OPTIONS_INIT};
    yoke_model *model = NULL;
    yoke_status status = YOKE_OK;
    published(&to);
    if (flags->dataset != NULL) status = read_dataset(flags->dataset, &to);
    if (status == YOKE_OK && flags->input != NULL) status = read_shape(flags->input, &to.input);
    if (flags->classes > 0) to.outputs = flags->classes;
    if (status == YOKE_OK) status = yoke_model_preset(&model, name, to.input, to.outputs, &to.loss);
    if (status == YOKE_OK && flags->json) status = print_json(model);
    if (status == YOKE_OK && !flags->json) print_table(model);
    yoke_model_destroy(model);
    return status == YOKE_OK ? 0 : cli_fail(status);
}

static int export_model(const model_flags *flags) {
    model_export_flags to = {.weights = flags->weights,
                             .onnx = flags->onnx,
                             .model = flags->model,
                             .classes = flags->classes};
    if (flags->weights == NULL || flags->onnx == NULL)
        return cli_usage_error("model", "export needs --weights FILE and --onnx FILE");
    yoke_status status = flags->input != NULL ? read_shape(flags->input, &to.input) : YOKE_OK;
    return status == YOKE_OK ? model_export(&to) : cli_fail(status);
}

int model_main(int argc, char **argv) {
    model_flags flags = {0};
    int operands = 0, code = cli_parse(&model_verb, argc, argv, &flags, &operands);
    if (code >= 0) return code;
    const char *what = operands > 0 ? argv[1] : "";
    if (flags.dataset != NULL && flags.input != NULL)
        return cli_usage_error("model", "--dataset and --input both give the shape of a row");
    if (strcmp(what, "list") == 0 && operands == 1) return list_models(flags.json);
    if (strcmp(what, "show") == 0 && operands == 2) return show_model(argv[2], &flags);
    if (strcmp(what, "export") == 0 && operands == 1) return export_model(&flags);
    return cli_usage_error("model",
                           "model needs 'list', 'show' and the name of one model, or 'export'");
}
