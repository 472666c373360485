/* SPDX-License-Identifier: Apache-2.0 */
/* Multilayer perceptrons: two hidden layers, and dropout behind each (of 0.5 in mlp-dropout, as in
 * Srivastava et al. 2014). */
#include "model/presets/preset.h"

enum { WIDTH, DROPOUT };

static const yoke_preset_option plain_options[] = {
    [WIDTH] = {"width", 1024, 1, 1 << 20, false}, [DROPOUT] = {"dropout", 0, 0, 0.99, true}, {0}};
static const yoke_preset_option dropout_options[] = {
    [WIDTH] = {"width", 1024, 1, 1 << 20, false}, [DROPOUT] = {"dropout", 0.5, 0, 0.99, true}, {0}};

static yoke_value add_hidden_layer(const yoke_preset_request *request, yoke_value input,
                                   const char *name) {
    int width = (int)request->values[WIDTH];
    double dropout = request->values[DROPOUT];
    yoke_value value =
        yoke_relu(request->model, yoke_preset_linear(request->model, input, name, width, 0));
    return dropout > 0 ? yoke_dropout(request->model, value, dropout) : value;
}

static yoke_value build_mlp(const yoke_preset_request *request) {
    yoke_value value = yoke_flatten(request->model, yoke_model_input(request->model));
    value = add_hidden_layer(request, value, "fc1");
    value = add_hidden_layer(request, value, "fc2");
    return yoke_preset_linear(request->model, value, "fc3", request->classes, 0);
}

#define MLP(name, summary, options)                                                                \
    {                                                                                              \
        name, summary, build_mlp, NULL, options, {.channels = 1, .height = 28, .width = 28}, 10,   \
            true                                                                                   \
    }

static const yoke_preset presets[] = {
    MLP("mlp", "two hidden layers; any input", plain_options),
    MLP("mlp-dropout", "mlp with dropout behind each hidden layer", dropout_options),
};
const yoke_preset_family yoke_mlp_family = {presets, sizeof presets / sizeof presets[0]};
