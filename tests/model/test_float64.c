/* SPDX-License-Identifier: Apache-2.0 */
/* The float64 reference against finite differences of its own loss. */
#include "elementary_networks.h"

/* A central difference with step h has an error of the order of h^2 and one of 1e-16 / h. */
#define STEP 1e-5
#define TOLERANCE 1e-7

struct probe {
    yoke_float64_model *reference;
    yoke_model *model;
    float *inputs, *targets;
    int32_t *labels;
    int rows;
};

static void probe_create(struct probe *probe, yoke_model *model, int rows) {
    yoke_shape in = model->input, out = yoke_model_output_shape(model);
    size_t inputs = (size_t)rows * (size_t)(in.channels * in.height * in.width);
    size_t outputs = (size_t)rows * yoke_model_output_elements(model, 0);
    int labels = rows * (int)yoke_model_positions(model);
    *probe = (struct probe){.model = model, .rows = rows};
    assert_ok(yoke_float64_create(&probe->reference, model, rows));
    probe->inputs = malloc(inputs * sizeof(float));
    probe->targets = malloc(outputs * sizeof(float));
    probe->labels = malloc((size_t)labels * sizeof(int32_t));
    yoke_random_normal(probe->inputs, inputs, 1, 1, YOKE_RANDOM_SYNTHETIC, 0);
    rig_tokens(model, 0, probe->inputs, inputs);
    yoke_random_normal(probe->targets, outputs, 1, 1, YOKE_RANDOM_SYNTHETIC, 1);
    for (int i = 0; i < labels; i++)
        probe->labels[i] = i * 7 % out.channels;
    probe->reference->labels = probe->labels;
    probe->reference->targets = probe->targets;
    probe->reference->step = (yoke_plan_step){.seed = 11, .step = 5, .first_row = 3};
    probe->reference->loss_scale = 1.0 / labels;
    for (int i = 0; i < model->tensor_count; i++) {
        float *values = malloc(model->tensors[i].count * sizeof *values);
        yoke_random_uniform(values, model->tensors[i].count, 0.1, 0.6, 1, YOKE_RANDOM_PROBE,
                            (uint64_t)i);
        for (size_t k = 0; k < model->tensors[i].count; k++)
            probe->reference->tensors[i][k] = (double)values[k] * (k % 3 == 1 ? -1 : 1);
        free(values);
    }
}

static void probe_destroy(struct probe *probe) {
    yoke_float64_destroy(probe->reference);
    yoke_model_destroy(probe->model);
    free(probe->inputs);
    free(probe->targets);
    free(probe->labels);
}

static double loss_of(struct probe *probe) {
    yoke_float64_forward(probe->reference, (const float *const[]){probe->inputs});
    yoke_float64_loss(probe->reference);
    return probe->reference->loss_sum * probe->reference->loss_scale;
}

static void add_gradients(struct probe *probe) {
    loss_of(probe);
    yoke_float64_backward(probe->reference);
}

/* Every seventh element of every parameter. */
static void check_parameters(struct probe *probe, double *const *gradients) {
    for (int i = 0; i < probe->model->tensor_count; i++) {
        const yoke_tensor *tensor = &probe->model->tensors[i];
        for (size_t k = 0; tensor->trainable && k < tensor->count; k += 7) {
            double *weight = &probe->reference->tensors[i][k], kept = *weight;
            *weight = kept + STEP;
            double above = loss_of(probe);
            *weight = kept - STEP;
            double slope = (above - loss_of(probe)) / (2 * STEP);
            *weight = kept;
            if (!(fabs(slope - gradients[i][k]) <= TOLERANCE * (1 + fabs(slope))))
                fail_msg("%s[%zu] has the gradient %.12g, but the loss rises by %.12g",
                         tensor->name, k, gradients[i][k], slope);
        }
    }
}

static void check_model(yoke_model *model, int rows) {
    struct probe probe;
    probe_create(&probe, model, rows);
    add_gradients(&probe);
    double **gradients = calloc((size_t)model->tensor_count, sizeof *gradients);
    for (int i = 0; i < model->tensor_count; i++) {
        size_t bytes = model->tensors[i].count * sizeof(double);
        gradients[i] = malloc(bytes);
        memcpy(gradients[i], probe.reference->tensor_gradients[i], bytes);
    }
    check_parameters(&probe, gradients);
    for (int i = 0; i < model->tensor_count; i++)
        free(gradients[i]);
    free(gradients);
    probe_destroy(&probe);
}

static void gradients_are_the_slopes_of_the_loss(void **state) {
    (void)state;
    check_model(everything(NULL), 3);
    check_model(windows(NULL), 3);
    check_model(convolutions(NULL), 3);
}

static void so_are_those_of_activations(void **state) {
    (void)state;
    check_model(activations(NULL), 3);
}

static void so_are_those_of_layers_over_channels(void **state) {
    (void)state;
    check_model(over_channels(NULL), 3);
}

static void so_are_those_of_joined_images(void **state) {
    (void)state;
    check_model(joined(NULL), 3);
}

static void so_are_those_of_sequences(void **state) {
    (void)state;
    check_model(sequence(NULL), 2);
    yoke_loss_options smooth = {.struct_size = sizeof smooth, .label_smoothing = 0.1};
    yoke_loss_options squares = {.struct_size = sizeof squares, .kind = YOKE_LOSS_MSE};
    check_model(tokens(NULL, false), 3);
    check_model(tokens(NULL, true), 3);
    check_model(tokens(&smooth, true), 3);
    check_model(tokens(&squares, true), 3);
}

static void so_are_those_of_attention(void **state) {
    (void)state;
    check_model(attention(NULL), 2);
}

static void so_are_those_of_elementary_operations(void **state) {
    (void)state;
    for (int function = 0; function < YOKE_FUNCTIONS; function++)
        check_model(one_function((yoke_function)function, NULL), 2);
    check_model(broadcast(NULL), 2);
    check_model(matrices(NULL), 2);
    check_model(chain(NULL), 2);
}

static void so_are_those_of_the_mean_squared_error(void **state) {
    (void)state;
    yoke_loss_options loss = YOKE_LOSS_OPTIONS_INIT;
    loss.kind = YOKE_LOSS_MSE;
    check_model(everything(&loss), 3);
}

static void so_are_those_of_every_loss(void **state) {
    (void)state;
    static const float weights[] = {0.5f, 2, 0, 1, 3, 0.25f, 1.5f};
    const yoke_loss_options losses[] = {
        {.class_weights = weights, .weight_count = 7},
        {.class_weights = weights, .weight_count = 7, .label_smoothing = 0.1},
        {.set_ignore_index = true, .ignore_index = 0},
        {.kind = YOKE_LOSS_BCE},
        {.kind = YOKE_LOSS_BCE, .positive_weights = weights, .weight_count = 7},
        {.kind = YOKE_LOSS_HUBER, .huber_delta = 0.7}};
    for (size_t i = 0; i < sizeof losses / sizeof losses[0]; i++) {
        yoke_loss_options loss = losses[i];
        loss.struct_size = sizeof loss;
        check_model(everything(&loss), 3);
    }
}

static void gradients_add_up(void **state) {
    (void)state;
    struct probe probe;
    probe_create(&probe, everything(NULL), 2);
    add_gradients(&probe);
    double *gradient = probe.reference->tensor_gradients[0], once = *gradient;
    assert_true(once != 0);
    add_gradients(&probe);
    assert_true(fabs(*gradient - 2 * once) <= 1e-12 * fabs(once));
    probe_destroy(&probe);
}

/* A ReLU or a maximum written with fmax would turn NaN into a number. */
static void nan_reaches_the_loss(void **state) {
    (void)state;
    struct probe probe;
    yoke_model *model = NULL;
    assert_ok(yoke_model_create(&model, "nan", (yoke_shape){2, 5, 5, false}));
    yoke_value value = pooled(model, yoke_relu(model, yoke_model_input(model)));
    value = linear(model, yoke_flatten(model, value), "fc", 2, NULL);
    assert_ok(yoke_model_finish(model, value, NULL));
    probe_create(&probe, model, 1);
    assert_true(isfinite(loss_of(&probe)));
    probe.inputs[7] = NAN;
    assert_true(isnan(loss_of(&probe)));
    probe_destroy(&probe);
}

/* A 3x3 convolution of 4 by 4 pixels, stride 1: 16 places with 9 taps each for 2 x 8 planes, and a
 * linear layer of 2 x 128; three products a step. */
static void work_counts_the_multiplications(void **state) {
    (void)state;
    yoke_model *model = NULL;
    assert_ok(yoke_model_create(&model, "work", (yoke_shape){2, 4, 4, false}));
    yoke_value value = conv(model, yoke_model_input(model), "conv", 8, NULL);
    value = linear(model, yoke_flatten(model, value), "fc", 2, NULL);
    assert_ok(yoke_model_finish(model, value, NULL));
    assert_true(yoke_float64_work(model, 5) == 5 * 3.0 * (16 * 9 * 2 * 8 + 2 * 128));
    yoke_model_destroy(model);
    assert_ok(yoke_model_create(&model, "work", (yoke_shape){12, 5, 1, false, true}));
    value = yoke_flatten(model, attend(model, yoke_model_input(model), 2, true));
    assert_ok(yoke_model_finish(model, linear(model, value, "fc", 3, NULL), NULL));
    assert_true(yoke_float64_work(model, 2) == 2 * 3.0 * (2 * 5 * 5 * 4 + 20 * 3));
    yoke_model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_the_slopes_of_the_loss),
        cmocka_unit_test(so_are_those_of_activations),
        cmocka_unit_test(so_are_those_of_layers_over_channels),
        cmocka_unit_test(so_are_those_of_joined_images),
        cmocka_unit_test(so_are_those_of_sequences),
        cmocka_unit_test(so_are_those_of_attention),
        cmocka_unit_test(so_are_those_of_elementary_operations),
        cmocka_unit_test(so_are_those_of_the_mean_squared_error),
        cmocka_unit_test(so_are_those_of_every_loss),
        cmocka_unit_test(gradients_add_up),
        cmocka_unit_test(nan_reaches_the_loss),
        cmocka_unit_test(work_counts_the_multiplications),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
