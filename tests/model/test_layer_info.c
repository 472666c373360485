/* SPDX-License-Identifier: Apache-2.0 */
/* What yoke_model_describe_layer says of a model's layers: shapes, parameters, FLOPs, bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "model/graph.h"
#include "yoke/convolution.h"
#include "yoke/transformer.h"

static yoke_layer_info layer_at(const yoke_model *model, int index) {
    yoke_layer_info info = {.struct_size = sizeof info};
    assert_int_equal(yoke_model_describe_layer(model, index, &info), YOKE_OK);
    return info;
}

static void assert_layer(const yoke_model *model, int index, const char *kind, size_t parameters,
                         double flops, size_t bytes) {
    yoke_layer_info info = layer_at(model, index);
    assert_string_equal(info.kind, kind);
    assert_int_equal(info.parameters, parameters);
    assert_true(info.flops == flops);
    assert_int_equal(info.activation_bytes, bytes);
}

/* By hand. The convolution has 6 planes of 4 x 6 places, 9 taps each over its own plane and a bias;
 * the windows of a pool from 4 to 3 have 2 pixels each, those from 6 to 4 have 2 each as well. */
static void every_kind_of_layer_counts(void **state) {
    (void)state;
    yoke_model *model = NULL;
    assert_int_equal(yoke_model_create(&model, "m", (yoke_shape){6, 4, 6, false, false}), YOKE_OK);
    yoke_conv2d_options conv = YOKE_CONV2D_OPTIONS_INIT;
    conv.name = "conv";
    conv.out_channels = conv.groups = 6;
    conv.kernel = 3;
    conv.padding = 1;
    yoke_batch_norm_options norm = YOKE_BATCH_NORM_OPTIONS_INIT;
    norm.name = "norm";
    yoke_pool_options max = {.struct_size = sizeof max, .kernel = 2, .stride = 1, .padding = 1};
    yoke_value a = yoke_relu(
        model, yoke_batch_norm(model, yoke_conv2d(model, yoke_model_input(model), &conv), &norm));
    a = yoke_dropout(model, yoke_adaptive_average_pool(model, yoke_add(model, a, a), 3, 4), 0.5);
    a = yoke_flatten(model, yoke_max_pool(model, a, &max));
    yoke_linear_options fc = {.struct_size = sizeof fc, .name = "fc", .out_features = 120};
    yoke_linear_options again = {
        .struct_size = sizeof again, .name = "again", .out_features = 120, .shared_with = "fc"};
    a = yoke_linear(model, yoke_linear(model, a, &fc), &again);
    assert_int_equal(yoke_model_finish(model, a, NULL), YOKE_OK);

    assert_int_equal(yoke_model_layer_count(model), 10);
    assert_layer(model, 0, "conv2d", 6 * 9 + 6, 144 * 9 * 2 + 144, 576);
    assert_layer(model, 1, "batch_norm", 12, 2 * 144, 576);
    assert_layer(model, 2, "relu", 0, 144, 576);
    assert_layer(model, 3, "add", 0, 144, 576);
    assert_layer(model, 4, "average_pool", 0, 6 * (3 * 2) * (4 * 2), 288);
    assert_layer(model, 5, "dropout", 0, 0, 288);
    assert_layer(model, 6, "max_pool", 0, 6 * (4 * 2) * (5 * 2), 480);
    assert_layer(model, 7, "flatten", 0, 0, 480);
    assert_layer(model, 8, "linear", 120 * 120 + 120, 2 * 120 * 120 + 120, 480);
    assert_layer(model, 9, "linear", 0, 2 * 120 * 120 + 120, 480);
    assert_string_equal(layer_at(model, 9).name, "again");
    assert_true(layer_at(model, 7).output.flat);
    yoke_model_destroy(model);
}

/* A transposed convolution's weight meets each pixel that it reads. */
static void convolutions_of_every_form_have_pytorchs_flops(void **state) {
    (void)state;
    yoke_model *model = NULL;
    assert_int_equal(yoke_model_create(&model, "m", yoke_shape_image(4, 6, 5)), YOKE_OK);
    yoke_conv2d_options conv = YOKE_CONV2D_OPTIONS_INIT;
    conv.name = "conv";
    conv.out_channels = 8;
    conv.kernel = 3;
    conv.kernel_width = 5;
    conv.padding = 1;
    conv.groups = 2;
    yoke_conv_transpose2d_options up = YOKE_CONV_TRANSPOSE2D_OPTIONS_INIT;
    up.name = "up";
    up.out_channels = 6;
    up.kernel = 3;
    up.stride = 2;
    up.no_bias = true;
    yoke_conv1d_options line = YOKE_CONV1D_OPTIONS_INIT;
    line.name = "line";
    line.out_channels = 5;
    line.kernel = 4;
    yoke_value a = yoke_conv2d(model, yoke_model_input(model), &conv); /* 8 x 6 x 1 */
    a = yoke_conv_transpose2d(model, a, &up);                          /* 6 x 13 x 3 */
    a = yoke_conv1d(model, yoke_sequence(model, a), &line);            /* 36 x 5 */
    assert_int_equal(yoke_model_finish(model, yoke_flatten(model, a), NULL), YOKE_OK);
    assert_layer(model, 0, "conv2d", 8 * 2 * 15 + 8, 2 * 6 * 8 * 2 * 15 + 48, 4 * 48);
    assert_layer(model, 1, "conv_transpose2d", 8 * 6 * 9, 2 * 6 * 8 * 6 * 9, 4 * 234);
    assert_layer(model, 4, "conv1d", 5 * 6 * 4 + 5, 2 * 36 * 5 * 6 * 4 + 180, 4 * 180);
    yoke_model_destroy(model);
}

/* torch.utils.flop_counter on torchvision's models counts the products alone. */
static void products_are_those_that_pytorch_counts(void **state) {
    (void)state;
    static const struct {
        const char *name;
        double flops;
    } models[] = {{"resnet18", 3628146688},      {"resnet50", 8178368512},
                  {"resnext50", 8460959744},     {"mobilenet_v2", 601548544},
                  {"densenet121", 5668323328},   {"efficientnet_b0", 771629504},
                  {"convnext_tiny", 8911062528}, {"vit_tiny", 2507366400}};
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        yoke_model *model = NULL;
        yoke_shape input = {.channels = 3, .height = 224, .width = 224};
        double flops = 0;
        size_t parameters = 0;
        assert_int_equal(yoke_model_preset(&model, models[i].name, input, 1000, NULL), YOKE_OK);
        for (int k = 0; k < yoke_model_layer_count(model); k++) {
            yoke_layer_info info = layer_at(model, k);
            parameters += info.parameters;
            bool weighted = strcmp(info.kind, "conv2d") == 0 || strcmp(info.kind, "linear") == 0;
            if (weighted || strcmp(info.kind, "attention") == 0) flops += info.flops;
            double elements = (double)info.output.channels * info.output.height * info.output.width;
            if (weighted && model->layers[k].operation.bias) flops -= elements;
        }
        assert_true(flops == models[i].flops);
        assert_int_equal(parameters, yoke_model_parameter_count(model));
        yoke_model_destroy(model);
    }
}

static void what_is_no_layer_is_refused(void **state) {
    (void)state;
    yoke_model *model = NULL;
    yoke_layer_info info = {.struct_size = sizeof info};
    assert_int_equal(yoke_model_create(&model, "m", (yoke_shape){3, 8, 8, false, false}), YOKE_OK);
    assert_int_equal(yoke_model_describe_layer(model, 0, &info), YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "not finished"));
    yoke_model_destroy(model);
    assert_int_equal(yoke_model_preset(&model, "mlp", (yoke_shape){3, 8, 8, false, false}, 4, NULL),
                     YOKE_OK);
    assert_int_equal(yoke_model_describe_layer(model, 6, &info), YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "has 0 to 5"));
    assert_int_equal(yoke_model_describe_layer(model, -1, &info), YOKE_ERROR_ARGUMENT);
    info.struct_size = 0;
    assert_int_equal(yoke_model_describe_layer(model, 0, &info), YOKE_ERROR_ARGUMENT);
    yoke_model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_of_layer_counts),
        cmocka_unit_test(convolutions_of_every_form_have_pytorchs_flops),
        cmocka_unit_test(products_are_those_that_pytorch_counts),
        cmocka_unit_test(what_is_no_layer_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
