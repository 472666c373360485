/* SPDX-License-Identifier: Apache-2.0 */
/* The plugin: a shared object that links Yoke and shows one function. It learns y = 2 a - b. */
#include <yoke/net.h>
#include <yoke/yoke.h>

enum { ROWS = 256, INPUTS = 2 };

static yoke_status build(yoke_model **model) {
    yoke_linear_options linear = YOKE_LINEAR_OPTIONS_INIT;
    yoke_loss_options loss = YOKE_LOSS_OPTIONS_INIT;
    yoke_status status = yoke_model_create(model, "line", yoke_shape_vector(INPUTS));
    if (status != YOKE_OK) return status;
    linear.name = "line";
    linear.out_features = 1;
    loss.kind = YOKE_LOSS_MSE;
    return yoke_model_finish(*model, yoke_linear(*model, yoke_model_input(*model), &linear), &loss);
}

static yoke_status fit(yoke_net *net, double *loss) {
    float inputs[ROWS][INPUTS], targets[ROWS];
    yoke_fit_options options = YOKE_FIT_OPTIONS_INIT;
    yoke_fit_result result = {.struct_size = sizeof result};
    for (int row = 0; row < ROWS; row++) {
        inputs[row][0] = (float)(row % 16) / 16;
        inputs[row][1] = (float)(row / 16) / 16;
        targets[row] = 2 * inputs[row][0] - inputs[row][1];
    }
    yoke_array x =
        yoke_array_of_rows(inputs, YOKE_ELEMENT_FLOAT32, ROWS, yoke_shape_vector(INPUTS));
    yoke_array y = yoke_array_of_numbers(targets, YOKE_ELEMENT_FLOAT32, ROWS);
    options.epochs = 40;
    yoke_status status = yoke_net_fit(net, &x, &y, &options, &result);
    *loss = result.loss;
    return status;
}

/* What the host program looks up. Returns NULL, or what went wrong: a text of this plugin. */
__attribute__((visibility("default"))) const char *train(double *loss);

const char *train(double *loss) {
    yoke_net_options options = YOKE_NET_OPTIONS_INIT;
    yoke_model *model = NULL;
    yoke_net *net = NULL;
    options.devices = "cpu";
    yoke_status status = build(&model);
    if (status == YOKE_OK) status = yoke_net_open(&net, model, &options);
    if (status == YOKE_OK) status = fit(net, loss);
    yoke_net_close(net);
    yoke_model_destroy(model);
    return status == YOKE_OK ? NULL : yoke_last_error();
}
