/* SPDX-License-Identifier: Apache-2.0 */
/* Batch normalisation on the CPU against torch.nn.BatchNorm2d's formulas in double. */
#include "operation_check.h"

static const double epsilon = 1e-5;

/* Mean and biased variance of a channel of `input` [rows, channels, pixels]. */
static void moments(const operation_check *check, const double *input, size_t channel, double *mean,
                    double *variance) {
    size_t channels = (size_t)check->operation.input.channels, rows = (size_t)check->rows;
    size_t pixels = (size_t)(check->operation.input.height * check->operation.input.width);
    double sum = 0, squares = 0;
    for (size_t row = 0; row < rows; row++) {
        const double *x = input + (row * channels + channel) * pixels;
        for (size_t p = 0; p < pixels; p++) {
            sum += x[p];
            squares += x[p] * x[p];
        }
    }
    *mean = sum / (double)(rows * pixels);
    *variance = squares / (double)(rows * pixels) - *mean * *mean;
}

static double *running[2]; /* read by the reference in evaluation */

static void reference(const operation_check *check, double *const inputs[],
                      double *const parameters[], double *output) {
    size_t channels = (size_t)check->operation.input.channels;
    size_t pixels = (size_t)(check->operation.input.height * check->operation.input.width);
    for (size_t channel = 0; channel < channels; channel++) {
        double mean, variance;
        moments(check, inputs[0], channel, &mean, &variance);
        if (!check->training) {
            mean = running[0][channel];
            variance = running[1][channel];
        }
        for (size_t row = 0; row < (size_t)check->rows; row++) {
            size_t at = (row * channels + channel) * pixels;
            for (size_t p = at; p < at + pixels; p++) {
                double normal = (inputs[0][p] - mean) / sqrt(variance + epsilon);
                double y = parameters[0][channel] * normal + parameters[1][channel];
                if (check->operation.add) y += inputs[1][p];
                output[p] = check->operation.relu && y < 0 ? 0 : y;
            }
        }
    }
}

typedef struct shape {
    int rows, channels, height, width;
} shape;

static operation_check prepare(shape size, dnnl_format_tag_t tag, yoke_precision precision) {
    yoke_dims dims = {size.channels, size.height, size.width};
    return (operation_check){.operation = {.kind = YOKE_OP_BATCH_NORM,
                                           .input = dims,
                                           .output = dims,
                                           .epsilon = epsilon,
                                           .momentum = 0.1},
                             .rows = size.rows,
                             .precision = precision,
                             .tags = {tag}};
}

static check_values draw(const operation_check *check) {
    size_t count = check_count(&check->inputs[0]),
           channels = check_count(&check->needs->parameters[0]);
    return (check_values){
        .inputs = {check_random(count, -1, 3, 1), check_random(count, -2, 2, 7)},
        .parameters = {check_random(channels, 0.5, 2, 2), check_random(channels, -0.5, 0.5, 3)},
        .output_gradient = check_random(count, -1, 1, 4)};
}

static void run(operation_check *check, double tolerance) {
    yoke_devices *devices = check_devices(1);
    check_open(check, yoke_devices_at(devices, 0));
    check_bind(check);
    check_values values = draw(check);
    const yoke_layout *vector = &check->needs->parameters[0];
    running[0] = check_random(check_count(vector), -1, 1, 5);
    running[1] = check_random(check_count(vector), 0.5, 2, 6);
    for (int i = 0; i < 2; i++) {
        check_store(vector, check->binding.buffers[i], running[i]);
    }
    check_passes(check, reference, &values, tolerance);
    double n = (double)check->rows * check->operation.input.height * check->operation.input.width;
    for (size_t channel = 0; channel < check_count(vector) && check->training; channel++) {
        double mean, variance;
        moments(check, values.inputs[0], channel, &mean, &variance);
        running[0][channel] = 0.9 * running[0][channel] + 0.1 * mean;
        running[1][channel] = 0.9 * running[1][channel] + 0.1 * variance * n / (n - 1);
    }
    check_memory("running mean", vector, check->binding.buffers[0], running[0], 1e-5);
    check_memory("running variance", vector, check->binding.buffers[1], running[1], 1e-5);
    test_free(running[0]);
    test_free(running[1]);
    check_values_free(&values);
    check_close(check);
    yoke_devices_close(devices);
}

static const shape shapes[] = {
    {3, 16, 3, 5}, {2, 20, 4, 3}, {5, 5, 1, 1}, {1, 7, 3, 3}, {2, 32, 1, 1}};
static const dnnl_format_tag_t tags[] = {dnnl_nchw, dnnl_nChw16c};

static void every_case(bool training, bool relu, yoke_precision precision, double tolerance) {
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        for (size_t t = 0; t < sizeof tags / sizeof tags[0]; t++) {
            operation_check check = prepare(shapes[s], tags[t], precision);
            check.training = training;
            check.operation.relu = relu;
            check.in_place = t == 1;
            run(&check, tolerance);
        }
    }
}

static void normalises_and_follows_running_statistics_in_training(void **state) {
    (void)state;
    every_case(true, false, YOKE_FLOAT32, 2e-5);
}

static void fuses_relu_in_training(void **state) {
    (void)state;
    every_case(true, true, YOKE_FLOAT32, 2e-5);
}

static void uses_running_statistics_in_evaluation_and_leaves_them(void **state) {
    (void)state;
    every_case(false, false, YOKE_FLOAT32, 1e-5);
    every_case(false, true, YOKE_FLOAT32, 1e-5);
}

static void computes_in_bfloat16(void **state) {
    (void)state;
    if (check_no_bfloat16()) skip();
    every_case(true, false, YOKE_BFLOAT16, 2e-2);
    every_case(true, true, YOKE_BFLOAT16, 2e-2);
    every_case(false, true, YOKE_BFLOAT16, 2e-2);
}

/* In one layout and in two, in place and not. */
static void joins_a_sum_and_its_relu(void **state) {
    (void)state;
    bool half = !check_no_bfloat16();
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0] * 16; i++) {
        bool in_bfloat16 = i % 16 / 8 != 0;
        if (in_bfloat16 && !half) continue;
        operation_check check =
            prepare(shapes[i / 16], tags[i % 2], in_bfloat16 ? YOKE_BFLOAT16 : YOKE_FLOAT32);
        check.operation.relu = check.operation.add = true;
        check.input_count = 2;
        check.tags[1] = tags[i % 4 / 2];
        check.training = i % 8 < 4;
        check.in_place = i % 2 == 1;
        run(&check, in_bfloat16 ? 2e-2 : 2e-5);
    }
}

static void trains_without_an_input_gradient(void **state) {
    (void)state;
    operation_check check = prepare((shape){3, 16, 3, 5}, dnnl_nChw16c, YOKE_FLOAT32);
    check.training = true;
    check.operation.relu = true;
    check.no_input_gradient = true;
    run(&check, 2e-5);
    for (size_t t = 0; t < sizeof tags / sizeof tags[0]; t++) {
        check = prepare((shape){3, 16, 3, 5}, dnnl_nChw16c, YOKE_FLOAT32);
        check.training = check.operation.relu = check.operation.add = true;
        check.input_count = 2;
        check.tags[1] = tags[t];
        check.no_input_gradient = true;
        run(&check, 2e-5);
    }
}

/* The group's other participants have no rows. */
static yoke_status gather_alone(void *context, const double *own, size_t count,
                                const double **all) {
    double *gathered = context;
    memset(gathered, 0, 3 * count * sizeof *gathered);
    memcpy(gathered + count, own, count * sizeof *gathered);
    *all = gathered;
    return YOKE_OK;
}

/* In every layout and precision, with what is fused, in place and not, with and without the
 * gradient of the input. */
static void normalises_with_the_statistics_of_a_group(void **state) {
    (void)state;
    double gathered[3 * (1 + 2 * 32)];
    yoke_norm_group group = {.participants = 3, .all_gather = gather_alone, .context = gathered};
    const dnnl_format_tag_t layouts[] = {dnnl_nchw, dnnl_nChw16c, dnnl_nhwc};
    bool half = !check_no_bfloat16();
    for (unsigned i = 0; i < sizeof shapes / sizeof shapes[0] * 96; i++) {
        bool in_bfloat16 = i / 48 % 2 != 0;
        dnnl_format_tag_t layout = layouts[i % 3];
        operation_check check =
            prepare(shapes[i / 96], layout, in_bfloat16 ? YOKE_BFLOAT16 : YOKE_FLOAT32);
        check.training = true;
        check.norm_group = &group;
        check.operation.relu = i / 3 % 2 != 0;
        check.operation.add = check.operation.relu && i / 6 % 2 != 0;
        check.in_place = i / 12 % 2 != 0;
        check.no_input_gradient = i / 24 % 2 != 0;
        check.input_count = check.operation.add ? 2 : 1;
        check.tags[1] = layout;
        /* Of two values a channel little is left of the gradient's first term, which bfloat16 has
         * rounded. */
        if (in_bfloat16 && (!half || i / 96 == 4)) continue;
        run(&check, in_bfloat16 ? 2e-2 : 2e-5);
        assert_false(group.found_nonfinite);
    }
}

/* More values than oneDNN sums itself. */
static void trains_on_many_values(void **state) {
    (void)state;
    const dnnl_format_tag_t layouts[] = {dnnl_nchw, dnnl_nChw16c, dnnl_nChw8c, dnnl_nhwc};
    for (unsigned i = 0; i < 16; i++) {
        operation_check check = prepare((shape){130, 2, 2, 2}, layouts[i % 4], YOKE_FLOAT32);
        check.training = true;
        check.operation.relu = i / 4 % 2 != 0;
        check.in_place = i / 8 != 0;
        run(&check, 2e-5);
    }
}

/* As exactly as float32 stores them, or nearly so: networks of many batch norms multiply these
 * errors. */
static void check_statistics(operation_check *check) {
    yoke_devices *devices = check_devices(2);
    check->training = true;
    check->operation.momentum = 1; /* running statistics are those of the batch */
    check_open(check, yoke_devices_at(devices, 0));
    check_bind(check);
    check_values values = draw(check);
    check_store(&check->inputs[0], check->binding.inputs[0], values.inputs[0]);
    for (int i = 0; i < 2; i++) {
        check_store(&check->needs->parameters[i], check->binding.parameters[i],
                    values.parameters[i]);
        memset(check->binding.buffers[i], 0, check->needs->parameters[i].bytes);
    }
    yoke_plan_step step = {.loss_scale = 1};
    CHECK(yoke_plan_forward(check->plan, &step));
    double n = (double)check->rows * check->operation.input.height * check->operation.input.width;
    double mean[20], variance[20];
    for (size_t channel = 0; channel < 20; channel++) {
        moments(check, values.inputs[0], channel, &mean[channel], &variance[channel]);
        variance[channel] *= n / (n - 1);
    }
    const yoke_layout *vector = &check->needs->parameters[0];
    check_memory("mean", vector, check->binding.buffers[0], mean, 6e-7);
    check_memory("variance", vector, check->binding.buffers[1], variance, 6e-7);
    check_values_free(&values);
    check_close(check);
    yoke_devices_close(devices);
}

/* With and without a group; in blocks, of which one is partly padding, in planes, side by side. */
static void computes_statistics_of_many_values_exactly(void **state) {
    (void)state;
    double gathered[3 * (1 + 2 * 20)];
    yoke_norm_group group = {.participants = 3, .all_gather = gather_alone, .context = gathered};
    const dnnl_format_tag_t layouts[] = {dnnl_nchw, dnnl_nChw16c, dnnl_nChw8c, dnnl_nhwc};
    const shape sizes[] = {{64, 20, 32, 32}, {37, 20, 9, 7}, {600, 20, 1, 1}};
    for (unsigned i = 0; i < 24; i++) {
        operation_check check = prepare(sizes[i / 8], layouts[i % 4], YOKE_FLOAT32);
        check.norm_group = i / 4 % 2 != 0 ? &group : NULL;
        check_statistics(&check);
    }
}

static void refuses_to_train_on_one_value_per_channel(void **state) {
    (void)state;
    yoke_devices *devices = check_devices(1);
    operation_check check = prepare((shape){1, 7, 1, 1}, dnnl_nchw, YOKE_FLOAT32);
    check.training = true;
    check.operation.name = "layer4.1.bn2";
    check.device = yoke_devices_at(devices, 0);
    yoke_plan_request request = check_request(&check);
    yoke_plan *plan = NULL;
    assert_int_equal(yoke_plan_create(&plan, yoke_devices_at(devices, 0), &request),
                     YOKE_ERROR_ARGUMENT);
    assert_null(plan);
    assert_non_null(strstr(yoke_last_error(), "layer4.1.bn2"));
    assert_non_null(strstr(yoke_last_error(), "more than 1 value per channel"));
    yoke_devices_close(devices);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(normalises_and_follows_running_statistics_in_training),
        cmocka_unit_test(fuses_relu_in_training),
        cmocka_unit_test(uses_running_statistics_in_evaluation_and_leaves_them),
        cmocka_unit_test(computes_in_bfloat16),
        cmocka_unit_test(joins_a_sum_and_its_relu),
        cmocka_unit_test(trains_without_an_input_gradient),
        cmocka_unit_test(normalises_with_the_statistics_of_a_group),
        cmocka_unit_test(trains_on_many_values),
        cmocka_unit_test(computes_statistics_of_many_values_exactly),
        cmocka_unit_test(refuses_to_train_on_one_value_per_channel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
