/* SPDX-License-Identifier: Apache-2.0 */
/* In inference a convolution or a linear layer computes the batch norm, the add and the activation
 * behind it: outputs
 * equal the float64 reference, whoever reads the values between them, whatever algorithm
 * computes, and after weights and running statistics have changed. */
#include <string.h>

#include "model/program.h"
#include "networks.h"

enum { ROWS = 3 };

static yoke_value convolution(yoke_model *model, yoke_value input, const char *name, int channels,
                              int kernel, int groups, bool bias) {
    yoke_conv2d_options options = {.struct_size = sizeof options,
                                   .name = name,
                                   .out_channels = channels,
                                   .kernel = kernel,
                                   .padding = kernel / 2,
                                   .groups = groups,
                                   .no_bias = !bias};
    return yoke_conv2d(model, input, &options);
}

/* Residual blocks, with and without a ReLU behind the sum; what is added has other readers, before
 * and behind it, or is the convolution's own input; 3x3 convolutions that Winograd takes. */
static yoke_model *residual(void) {
    yoke_model *model = NULL;
    assert_ok(yoke_model_create(&model, "residual", (yoke_shape){3, 9, 11, false}));
    yoke_value a = convolution(model, yoke_model_input(model), "stem", 16, 3, 1, false);
    a = yoke_relu(model, norm(model, a, "bn1"));
    yoke_value b = yoke_relu(model, norm(model, conv(model, a, "conv2", 16, NULL), "bn2"));
    b = norm(model, convolution(model, b, "conv3", 16, 3, 1, true), "bn3");
    a = yoke_relu(model, yoke_add(model, b, a)); /* in place */
    b = norm(model, conv(model, a, "conv4", 16, NULL), "bn4");
    a = yoke_add(model, a, b); /* a is conv4's own input */
    b = norm(model, convolution(model, a, "conv5", 24, 1, 1, false), "bn5");
    yoke_value c = norm(model, convolution(model, a, "conv6", 24, 3, 1, false), "bn6");
    yoke_value d = yoke_relu(model, yoke_add(model, c, b));
    d = yoke_add(model, d, b); /* b is read behind the sum, too */
    c = conv(model, d, "conv7", 24, NULL);
    d = yoke_add(model, norm(model, c, "bn7"), c); /* conv7 has two readers */
    d = yoke_flatten(model, yoke_global_average_pool(model, d));
    assert_ok(yoke_model_finish(model, linear(model, d, "fc", 7, NULL), NULL));
    return model;
}

/* Activations of their own, biases, depthwise convolutions, channels that no block divides, one
 * output pixel. */
static yoke_model *mobile(void) {
    yoke_model *model = NULL;
    assert_ok(yoke_model_create(&model, "mobile", (yoke_shape){3, 4, 4, false}));
    yoke_value a = convolution(model, yoke_model_input(model), "conv1", 32, 3, 1, false);
    a = yoke_relu6(model, norm(model, a, "bn1"));
    a = convolution(model, a, "conv2", 32, 3, 32, true);
    a = yoke_relu6(model, norm(model, a, "bn2"));
    a = norm(model, convolution(model, a, "conv3", 20, 1, 1, false), "bn3");
    yoke_value b =
        yoke_silu(model, norm(model, convolution(model, a, "conv4", 20, 3, 1, true), "bn4"));
    a = yoke_add(model, norm(model, convolution(model, b, "conv5", 20, 1, 1, false), "bn5"), a);
    a = yoke_relu(model, convolution(model, a, "conv6", 32, 3, 1, true));
    a = yoke_sigmoid(model, norm(model, convolution(model, a, "conv7", 32, 3, 4, true), "bn7"));
    a = yoke_relu(model, norm(model, convolution(model, a, "conv8", 32, 3, 32, false), "bn8"));
    a = yoke_global_average_pool(model, a);
    b = yoke_relu6(model, norm(model, convolution(model, a, "conv9", 24, 1, 1, true), "bn9"));
    b = norm(model, convolution(model, b, "conv10", 32, 1, 1, false), "bn10");
    a = yoke_relu(model, yoke_add(model, a, b));
    assert_ok(yoke_model_finish(model, linear(model, yoke_flatten(model, a), "fc", 7, NULL), NULL));
    return model;
}

/* Linear layers: with each activation that they compute and one that they do not, sums of which one
 * addend is read behind them, and one row of channels that no vector divides. */
static yoke_model *dense(void) {
    yoke_model *model = NULL;
    assert_ok(yoke_model_create(&model, "dense", (yoke_shape){4, 3, 5, false}));
    yoke_value a = yoke_sequence(model, yoke_model_input(model));
    a = yoke_relu(model, linear(model, a, "fc1", 40, NULL));
    yoke_value b = yoke_silu(model, linear(model, a, "fc2", 36, NULL));
    b = yoke_add(model, a, linear(model, b, "fc3", 40, NULL)); /* in place */
    a = yoke_relu(model, yoke_add(model, linear(model, b, "fc4", 40, NULL), b));
    a = yoke_add(model, linear(model, a, "fc5", 40, NULL), b);
    b = yoke_add(model, yoke_gelu(model, linear(model, a, "fc6", 40, NULL)), b);
    b = yoke_relu6(model, linear(model, yoke_select(model, b, 3), "fc7", 30, NULL));
    assert_ok(yoke_model_finish(model, linear(model, b, "fc8", 7, NULL), NULL));
    return model;
}

static void make_rig(struct rig *rig, yoke_model *model, const char *algorithm) {
    *rig = (struct rig){.model = model, .rows = ROWS, .inference = true};
    rig->algorithm = algorithm == NULL ? YOKE_ALGORITHM_DIRECT : YOKE_ALGORITHM_MEASURED;
    rig_devices(rig);
    if (algorithm != NULL) yoke_algorithms_prefer(rig->algorithms, algorithm);
    rig_replica(rig, 5);
}

static void forward(struct rig *rig, uint64_t version) {
    yoke_plan_step step = rig_step(rig);
    step.weights_version = version;
    assert_ok(yoke_replica_forward(rig->replica, ROWS, false, &step));
    assert_ok(yoke_replica_loss(rig->replica, &step));
}

static void check(struct rig *rig, uint64_t version) {
    yoke_float64_model *reference = NULL;
    assert_ok(yoke_float64_create(&reference, rig->model, ROWS));
    load_reference(reference, rig->replica);
    reference->labels = rig->labels;
    reference->step = rig_step(rig);
    reference->training = false;
    yoke_float64_forward(reference, (const float *const *)rig->inputs);
    yoke_float64_loss(reference);
    forward(rig, version);
    assert_outputs_near(rig, reference, 2e-5);
    yoke_float64_destroy(reference);
}

static void check_changes(yoke_model *model, const char *algorithm) {
    struct rig rig;
    make_rig(&rig, model, algorithm);
    check(&rig, 1);
    check(&rig, 1);
    rig_stir(&rig, 6);
    check(&rig, 2);
    rig_stir(&rig, 7);
    check(&rig, 0); /* nobody says whether they have changed */
    rig_stir(&rig, 8);
    check(&rig, 0);
    check(&rig, 2); /* what was kept for 2 is gone */
    rig_destroy(&rig);
}

static void test_outputs_equal_the_reference_by_every_algorithm(void **state) {
    (void)state;
    const char *const algorithms[] = {NULL,
                                      "direct",
                                      "winograd",
                                      "depthwise",
                                      "winograd 4x4 by tiles",
                                      "winograd 4x4 by filters",
                                      "winograd 2x2 by tiles",
                                      "winograd 2x2 by filters",
                                      "few pixels",
                                      "depthwise wide"};
    for (size_t i = 0; i < sizeof algorithms / sizeof *algorithms; i++) {
        check_changes(dense(), algorithms[i]);
        check_changes(residual(), algorithms[i]);
        check_changes(mobile(), algorithms[i]);
    }
}

static int count_computed(const struct rig *rig) {
    const yoke_program *program = rig->replica->programs[0];
    int count = 0;
    for (int i = 0; i < program->model->node_count; i++)
        count += program->places[i].computed_by != YOKE_NONE;
    return count;
}

/* Which convolutions keep their kernel with an epilogue depends on oneDNN's kernels: this counts
 * those for AVX2. */
static void test_batch_norms_and_what_follows_cost_no_pass_of_their_own(void **state) {
    (void)state;
    struct rig rig;
    make_rig(&rig, residual(), NULL);
    const char *kernel = yoke_plan_algorithm(rig.replica->programs[0]->plans[0], YOKE_FORWARD);
    if (strstr(kernel, "avx2") == NULL) {
        print_message("skipped: %s is no kernel for AVX2\n", kernel);
        rig_destroy(&rig);
        skip();
    }
    assert_int_equal(count_computed(&rig), 7); /* all but conv7's, and but the sum of d and b */
    rig_destroy(&rig);
}

/* Whether another plan computes the layer. */
static bool is_computed(const struct rig *rig, const char *name) {
    const yoke_program *program = rig->replica->programs[0];
    for (int i = 0; i < program->model->node_count; i++)
        if (strcmp(program->model->nodes[i].operation.name, name) == 0)
            return program->places[i].computed_by != YOKE_NONE;
    return false;
}

static void test_what_is_made_of_weights_is_kept_while_their_version_stays(void **state) {
    (void)state;
    struct rig rig;
    make_rig(&rig, residual(), "winograd");
    const yoke_replica_memory *memory = yoke_replica_memory_of(rig.replica);
    size_t bytes = ROWS * 7 * sizeof(float);
    bool folded = is_computed(&rig, "bn2");
    forward(&rig, 3);
    float *before = device_values(rig.device, memory->outputs[0], bytes);
    float zeros[16] = {0};
    const char *near = NULL;
    int weight = yoke_model_find_tensor(rig.model, "bn2.weight", &near);
    assert_ok(yoke_replica_write(rig.replica, weight, false, zeros));
    forward(&rig, 3);
    float *kept = device_values(rig.device, memory->outputs[0], bytes);
    forward(&rig, 4);
    float *renewed = device_values(rig.device, memory->outputs[0], bytes);
    if (folded) assert_memory_equal(before, kept, bytes);
    assert_memory_not_equal(before, renewed, bytes);
    free(before);
    free(kept);
    free(renewed);
    rig_destroy(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_outputs_equal_the_reference_by_every_algorithm),
        cmocka_unit_test(test_batch_norms_and_what_follows_cost_no_pass_of_their_own),
        cmocka_unit_test(test_what_is_made_of_weights_is_kept_while_their_version_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
