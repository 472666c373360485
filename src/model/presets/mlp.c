/* Multilayer perceptrons: two hidden layers, and dropout behind each (of 0.5 in mlp-dropout, as in
 * Srivastava et al. 2014). */
#include "model/presets/preset.h"

enum { WIDTH, DROPOUT };

static const yoke_preset_option plain_options[] = {
    [WIDTH] = {"width", 1024, 1, 1 << 20, false}, [DROPOUT] = {"dropout", 0, 0, 0.99, true}, {0}};
static const yoke_preset_option dropout_options[] = {
    [WIDTH] = {"width", 1024, 1, 1 << 20, false}, [DROPOUT] = {"dropout", 0.5, 0, 0.99, true}, {0}};

static yoke_value add_linear_layer(yoke_model *model, yoke_value input, const char *name,
                                   int features) {
    yoke_linear_options options = {
        .struct_size = sizeof options, .name = name, .out_features = features};
    return yoke_linear(model, input, &options);
}

static yoke_value add_hidden_layer(const yoke_preset_request *request, yoke_value input,
                                   const char *name) {
    int width = (int)request->values[WIDTH];
    double dropout = request->values[DROPOUT];
    yoke_value value =
        yoke_relu(request->model, add_linear_layer(request->model, input, name, width));
    return dropout > 0 ? yoke_dropout(request->model, value, dropout) : value;
}

static yoke_value build_mlp(const yoke_preset_request *request) {
    yoke_value value = yoke_flatten(request->model, yoke_model_input(request->model));
    value = add_hidden_layer(request, value, "fc1");
    value = add_hidden_layer(request, value, "fc2");
    return add_linear_layer(request->model, value, "fc3", request->classes);
}

static const yoke_preset presets[] = {
    {"mlp", "two hidden layers; any input", build_mlp, NULL, plain_options},
    {"mlp-dropout", "mlp with dropout behind each hidden layer", build_mlp, NULL, dropout_options},
};
const yoke_preset_family yoke_mlp_family = {presets, sizeof presets / sizeof presets[0]};
