/* SPDX-License-Identifier: Apache-2.0 */
/* A layer that the library does not have: Swish with a parameter, x * sigmoid(beta * x). The
 * program writes its forward and backward, checks them, and trains a network with two such layers.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <yoke/yoke.h>

enum { INPUTS = 2, WIDTH = 32, BATCH = 64, STEPS = 900 };

static void must(yoke_status status) {
    if (status == YOKE_OK) return;
    fprintf(stderr, "%s\n", yoke_last_error());
    exit(yoke_status_exit_code(status));
}

static float sigmoid(float x) {
    return 1 / (1 + expf(-x));
}

static yoke_status swish_forward(void *payload, const yoke_host_call *call) {
    size_t count = (size_t)call->rows * call->output_elements;
    const float *x = call->inputs[0].values, beta = call->parameters[0].values[0];
    (void)payload;
    for (size_t i = 0; i < count; i++)
        call->output[i] = x[i] * sigmoid(beta * x[i]);
    return YOKE_OK; /* or yoke_error_raise(YOKE_ERROR_DATA, "what happened") */
}

/* y = x s with s = sigmoid(beta x): dy/dx = s + beta y (1 - s), dy/dbeta = x y (1 - s). */
static yoke_status swish_backward(void *payload, const yoke_host_call *call) {
    size_t count = (size_t)call->rows * call->output_elements;
    const yoke_host_value *input = &call->inputs[0], *parameter = &call->parameters[0];
    const float *x = input->values, *y = call->output, beta = parameter->values[0];
    double sum = 0;
    (void)payload;
    for (size_t i = 0; i < count; i++) {
        float dy = call->output_gradient[i], s = sigmoid(beta * x[i]);
        if (input->gradient != NULL) input->gradient[i] = dy * (s + beta * y[i] * (1 - s));
        sum += (double)(dy * x[i] * y[i] * (1 - s));
    }
    if (parameter->gradient != NULL) parameter->gradient[0] = (float)sum;
    return YOKE_OK;
}

static yoke_value swish(yoke_model *model, yoke_value input, const char *name) {
    yoke_parameter_options beta = YOKE_PARAMETER_OPTIONS_INIT;
    yoke_operation_options options = YOKE_OPERATION_OPTIONS_INIT;
    const yoke_parameter_options *parameters[] = {&beta};
    beta.name = "beta";
    beta.shape = yoke_shape_vector(1);
    beta.value = 1;
    options.name = name;
    options.shape = yoke_shape_vector(WIDTH);
    options.inputs = &input;
    options.input_count = 1;
    options.parameters = parameters;
    options.parameter_count = 1;
    options.forward = swish_forward;
    options.backward = swish_backward;
    return yoke_model_add_operation(model, &options);
}

static yoke_model *build_model(void) {
    yoke_linear_options fc = YOKE_LINEAR_OPTIONS_INIT;
    yoke_loss_options loss = YOKE_LOSS_OPTIONS_INIT;
    yoke_model *model = NULL;
    loss.kind = YOKE_LOSS_MSE;
    fc.out_features = WIDTH;
    must(yoke_model_create(&model, "own", yoke_shape_vector(INPUTS)));
    fc.name = "fc1";
    yoke_value hidden = swish(model, yoke_linear(model, yoke_model_input(model), &fc), "swish1");
    fc.name = "fc2";
    hidden = swish(model, yoke_linear(model, hidden, &fc), "swish2");
    fc.name = "fc3";
    fc.out_features = 1;
    must(yoke_model_finish(model, yoke_linear(model, hidden, &fc), &loss));
    return model;
}

static void check(const yoke_model *model) {
    yoke_gradient_check found = {.struct_size = sizeof found};
    must(yoke_model_check_gradients(model, NULL, &found));
    printf("gradients of %d tensors and inputs agree with differences of the loss\n",
           found.checked);
}

/* The next of a row of pseudo-random numbers from -1 to 1. */
static float draw(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (float)(*state >> 40) / (1 << 23) - 1;
}

static void draw_batch(uint64_t *state, float *inputs, float *targets) {
    for (int row = 0; row < BATCH; row++) {
        float x = inputs[row * INPUTS] = draw(state), y = inputs[row * INPUTS + 1] = draw(state);
        targets[row] = sinf(4 * x) * cosf(3 * y);
    }
}

static void train(yoke_data_parallel *parallel) {
    float inputs[BATCH * INPUTS], targets[BATCH];
    uint64_t state = 1;
    double sum = 0;
    for (int step = 1; step <= STEPS; step++) {
        yoke_batch batch = {
            .struct_size = sizeof batch, .rows = BATCH, .inputs = inputs, .targets = targets};
        yoke_step_result result = {.struct_size = sizeof result};
        draw_batch(&state, inputs, targets);
        must(yoke_data_parallel_step(parallel, &batch, YOKE_OPTIMIZER_LEARNING_RATE, &result));
        sum += result.loss;
        if (step % 300 != 0) continue;
        printf("steps %3d to %3d  loss %.3f\n", step - 299, step, sum / 300);
        sum = 0;
    }
}

int main(void) {
    yoke_devices_options list = YOKE_DEVICES_OPTIONS_INIT;
    yoke_data_parallel_options options = YOKE_DATA_PARALLEL_OPTIONS_INIT;
    yoke_optimizer_options adam = YOKE_ADAMW_OPTIONS_INIT;
    yoke_devices *devices = NULL;
    yoke_data_parallel *parallel = NULL;
    float betas[2];
    yoke_model *model = build_model();
    check(model);
    list.list = "2xcpu";
    options.batch = BATCH;
    adam.learning_rate = 0.005;
    must(yoke_devices_open(&devices, &list));
    must(yoke_data_parallel_create(&parallel, model, devices, &adam, &options));
    train(parallel);
    must(yoke_data_parallel_read(parallel, "swish1.beta", &betas[0], 1));
    must(yoke_data_parallel_read(parallel, "swish2.beta", &betas[1], 1));
    printf("beta was 1 in both layers, is %.1f and %.1f\n", (double)betas[0], (double)betas[1]);
    yoke_data_parallel_destroy(parallel);
    yoke_devices_close(devices);
    yoke_model_destroy(model);
    return 0;
}
