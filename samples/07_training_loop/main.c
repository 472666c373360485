/* SPDX-License-Identifier: Apache-2.0 */
/* PyTorch's training loop line by line, with a loss written out here; loop.py beside this file is
 * the same program in PyTorch. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <yoke/yoke.h>

enum { ROWS = 48, FEATURES = 6, HIDDEN = 24, OUTPUTS = 2, STEPS = 200 };

static void must(yoke_status status) {
    if (status == YOKE_OK) return;
    fprintf(stderr, "%s\n", yoke_last_error());
    exit(yoke_status_exit_code(status));
}

/* Data and initial weights by formula: both programs begin with the same numbers. */
static void fill(float *values, int count, int stream, double scale) {
    for (int i = 0; i < count; i++)
        values[i] = (float)(scale * sin(1.7 * i + 0.9 * i * i + stream));
}

static void fill_targets(float *targets, const float *inputs) {
    for (int row = 0; row < ROWS; row++) {
        const float *x = inputs + row * FEATURES;
        targets[row * OUTPUTS] = 2 * x[0] * x[1];
        targets[row * OUTPUTS + 1] = 3 * x[2] - x[3];
    }
}

static yoke_model *build_model(void) {
    yoke_model *model = NULL;
    yoke_linear_options fc1 = YOKE_LINEAR_OPTIONS_INIT, fc2 = YOKE_LINEAR_OPTIONS_INIT;
    fc1.name = "fc1";
    fc1.out_features = HIDDEN;
    fc2.name = "fc2";
    fc2.out_features = OUTPUTS;
    must(yoke_model_create(&model, "two layers", yoke_shape_vector(FEATURES)));
    yoke_value value = yoke_relu(model, yoke_linear(model, yoke_model_input(model), &fc1));
    must(yoke_model_finish(model, yoke_linear(model, value, &fc2), NULL));
    return model;
}

static void write_weights(yoke_data_parallel *parallel, const yoke_model *model) {
    float values[FEATURES * HIDDEN];
    yoke_tensor_info tensor = {.struct_size = sizeof tensor};
    for (int i = 0; i < yoke_model_tensor_count(model); i++) {
        must(yoke_model_tensor(model, i, &tensor));
        fill(values, (int)tensor.count, i, 0.4);
        must(yoke_data_parallel_write(parallel, tensor.name, values, tensor.count));
    }
}

/* torch.nn.functional.smooth_l1_loss: the mean over all outputs, and its gradient by each. */
static double smooth_l1_loss(const float *outputs, const float *targets, float *gradients) {
    const int count = ROWS * OUTPUTS;
    double sum = 0;
    for (int i = 0; i < count; i++) {
        double error = (double)outputs[i] - targets[i], size = fabs(error);
        sum += size < 1 ? 0.5 * error * error : size - 0.5;
        gradients[i] = (float)(fmax(-1, fmin(1, error)) / count);
    }
    return sum / count;
}

int main(int argc, char **argv) {
    static float inputs[ROWS * FEATURES], targets[ROWS * OUTPUTS];
    static float outputs[ROWS * OUTPUTS], gradients[ROWS * OUTPUTS];
    yoke_devices *devices = NULL;
    yoke_data_parallel *parallel = NULL;
    yoke_devices_options list = {.struct_size = sizeof list, .list = argc > 1 ? argv[1] : "2xcpu"};
    yoke_optimizer_options sgd = YOKE_SGD_OPTIONS_INIT;
    yoke_data_parallel_options options = YOKE_DATA_PARALLEL_OPTIONS_INIT;
    options.batch = ROWS;
    options.algorithm = YOKE_ALGORITHM_DIRECT;
    sgd.learning_rate = 0.1;
    sgd.momentum = 0.9;

    fill(inputs, ROWS * FEATURES, 100, 1);
    fill_targets(targets, inputs);
    yoke_model *model = build_model();
    must(yoke_devices_open(&devices, &list));
    must(yoke_data_parallel_create(&parallel, model, devices, &sgd, &options));
    write_weights(parallel, model);

    yoke_batch batch = {.struct_size = sizeof batch, .rows = ROWS, .inputs = inputs};
    for (int step = 1; step <= STEPS; step++) {
        must(yoke_data_parallel_forward(parallel, &batch, true, outputs));
        double loss = smooth_l1_loss(outputs, targets, gradients);
        must(yoke_data_parallel_zero_grad(parallel));
        must(yoke_data_parallel_backward(parallel, gradients));
        must(yoke_data_parallel_update(parallel, YOKE_OPTIMIZER_LEARNING_RATE));
        if (step == 1 || step % 40 == 0) printf("step %3d  loss %.5f\n", step, loss);
    }

    yoke_data_parallel_destroy(parallel);
    yoke_devices_close(devices);
    yoke_model_destroy(model);
    return 0;
}
