/* SPDX-License-Identifier: Apache-2.0 */
/* For a small model with each operation: n devices learn what one does, and as many ranks what n
 * devices do. Bits may differ: the shards differ. */
#include "support/ddp_check.h"

static yoke_value connect(yoke_model *model, yoke_value value, const char *name, int features) {
    yoke_linear_options options = {
        .struct_size = sizeof options, .name = name, .out_features = features};
    return yoke_linear(model, value, &options);
}

static yoke_value convolve(yoke_model *model, yoke_value value, const char *name, int kernel) {
    yoke_conv2d_options options = {.struct_size = sizeof options,
                                   .name = name,
                                   .out_channels = 8,
                                   .kernel = kernel,
                                   .padding = kernel / 2,
                                   .no_bias = true};
    return yoke_conv2d(model, value, &options);
}

/* Squeeze-and-excitation. */
static yoke_value excited(yoke_model *model, yoke_value image) {
    yoke_value factors = convolve(model, yoke_global_average_pool(model, image), "excite", 1);
    return yoke_multiply(model, yoke_sigmoid(model, factors), image);
}

static yoke_value layer_norm(yoke_model *model, yoke_value value) {
    yoke_layer_norm_options options = YOKE_LAYER_NORM_OPTIONS_INIT;
    options.name = "norm";
    return yoke_layer_norm(model, value, &options);
}

static yoke_value gated(yoke_model *model, yoke_value value) {
    return yoke_multiply(model, value, connect(model, value, "gate", 8));
}

static yoke_value widened(yoke_model *model, yoke_value value) {
    return yoke_concat(model, value, connect(model, value, "more", 5));
}

/* Each stands between two layers with weights, on a sequence or on an image. */
static const struct {
    const char *name;
    yoke_value (*add)(yoke_model *model, yoke_value value);
    bool image;
} operations[] = {{"relu6", yoke_relu6},
                  {"gelu", yoke_gelu},
                  {"gelu_tanh", yoke_gelu_tanh},
                  {"silu", yoke_silu},
                  {"sigmoid", yoke_sigmoid},
                  {"tanh", yoke_tanh},
                  {"softmax", yoke_softmax},
                  {"layer_norm", layer_norm},
                  {"multiply", gated},
                  {"concat", widened},
                  {"squeeze_excitation", excited, true}};
#define OPERATIONS (sizeof operations / sizeof operations[0])

static yoke_model *make_model(size_t operation) {
    yoke_model *model = NULL;
    EXPECT_OK(yoke_model_create(&model, operations[operation].name,
                                (yoke_shape){CHECK_CHANNELS, CHECK_SIDE, CHECK_SIDE, false}));
    bool image = operations[operation].image;
    yoke_value value = convolve(model, yoke_model_input(model), "conv", 3);
    if (image) value = operations[operation].add(model, value);
    value = yoke_sequence(model, value);
    if (!image) value = operations[operation].add(model, value);
    value = yoke_flatten(model, connect(model, value, "narrow", 2));
    EXPECT_OK(yoke_model_finish(model, connect(model, value, "fc", CHECK_CLASSES), NULL));
    return model;
}

/* 9 and 6 rows on 4 devices leave some with fewer rows. */
static const ddp_setting setting = {.batch = 9, .steps = 6};

static void any_number_of_devices_learns_what_one_does(void **state) {
    (void)state;
    for (size_t i = 0; i < OPERATIONS; i++) {
        print_message("%s\n", operations[i].name);
        yoke_model *model = make_model(i);
        record one = run_devices(&setting, model, 1);
        for (int devices = 2; devices <= 4; devices++) {
            record several = run_devices(&setting, model, devices);
            expect_near(&several, &one, 2e-5, setting.steps);
            free_records(&several, 1);
        }
        free_records(&one, 1);
        yoke_model_destroy(model);
    }
}

static void ranks_learn_what_as_many_devices_do(void **state) {
    (void)state;
    for (size_t i = 0; i < OPERATIONS; i++) {
        print_message("%s\n", operations[i].name);
        yoke_model *model = make_model(i);
        record devices = run_devices(&setting, model, 3), ranks[3] = {0};
        run_ranks(&setting, model, 3, ranks);
        for (int rank = 0; rank < 3; rank++)
            expect_near(&ranks[rank], &devices, 2e-5, setting.steps);
        free_records(ranks, 3);
        free_records(&devices, 1);
        yoke_model_destroy(model);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_devices_learns_what_one_does),
        cmocka_unit_test(ranks_learn_what_as_many_devices_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
