/* SPDX-License-Identifier: Apache-2.0 */
/* Models by name: the presets and their options. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "model/graph.h"

static const yoke_shape image = {3, 32, 32, false};

static void assert_says(const char *part) {
    if (strstr(yoke_last_error(), part) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", yoke_last_error(), part);
}

typedef struct expectation {
    const char *name;
    int classes, entries, parameter_tensors;
    size_t parameters, buffers;
} expectation;

static void count_tensors(const yoke_model *model, int *trainable, size_t *buffers) {
    *trainable = 0;
    *buffers = 0;
    for (int i = 0; i < yoke_model_tensor_count(model); i++) {
        yoke_tensor_info info = {.struct_size = sizeof info};
        assert_int_equal(yoke_model_tensor(model, i, &info), YOKE_OK);
        if (info.trainable)
            (*trainable)++;
        else
            *buffers += info.count;
    }
}

/* torchvision 0.14.1's state_dict; resnet20 to 56 by hand: option A has 2,752 fewer than these, the
 * projections of two shortcuts: 16 * 32 + 2 * 32 + 32 * 64 + 2 * 64. */
static void presets_have_the_known_sizes(void **state) {
    (void)state;
    static const expectation expected[] = {
        {"resnet18", 1000, 122, 62, 11689512, 9620},
        {"resnet34", 1000, 218, 110, 21797672, 17060},
        {"resnet50", 1000, 320, 161, 25557032, 53173},
        {"resnext50", 1000, 320, 161, 25028904, 68277},
        {"resnet18-cifar", 10, 122, 62, 11173962, 9620},
        {"resnet50-cifar", 10, 320, 161, 23520842, 53173},
        {"resnet20", 10, 128, 65, 269722 + 2752, 0},
        {"resnet32", 10, 200, 101, 464154 + 2752, 0},
        {"resnet44", 10, 272, 137, 658586 + 2752, 0},
        {"resnet56", 10, 344, 173, 853018 + 2752, 0},
        {"vgg11_bn", 1000, 62, 38, 132868840, 0},
        {"mobilenet_v2", 1000, 314, 158, 3504872, 0},
        {"densenet121", 1000, 727, 364, 7978856, 83769},
        {"efficientnet_b0", 1000, 360, 213, 5288548, 42065},
        {"convnext_tiny", 1000, 182, 182, 28589128, 0},
        {"vit_tiny", 10, 152, 152, 5362762, 0},
    };
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        const expectation *want = &expected[i];
        yoke_model *model = NULL;
        int trainable;
        size_t buffers;
        assert_int_equal(yoke_model_preset(&model, want->name, image, want->classes, NULL),
                         YOKE_OK);
        count_tensors(model, &trainable, &buffers);
        assert_int_equal(yoke_model_parameter_count(model), want->parameters);
        assert_int_equal(yoke_model_tensor_count(model), want->entries);
        assert_int_equal(trainable, want->parameter_tensors);
        if (want->buffers > 0) assert_int_equal(buffers, want->buffers);
        assert_int_equal(yoke_model_output_shape(model).channels, want->classes);
        yoke_model_destroy(model);
    }
}

static void assert_tensor(const yoke_model *model, int index, const char *name,
                          const int64_t *shape, int rank) {
    yoke_tensor_info info = {.struct_size = sizeof info};
    assert_int_equal(yoke_model_find_tensor(model, name, NULL), index);
    assert_int_equal(yoke_model_tensor(model, index, &info), YOKE_OK);
    assert_string_equal(info.name, name);
    assert_int_equal(info.ndim, rank);
    for (int i = 0; i < rank; i++)
        assert_int_equal(info.shape[i], shape[i]);
}

static void names_and_order_are_torchvisions(void **state) {
    (void)state;
    yoke_model *model = NULL;
    yoke_shape large = {3, 224, 224, false};
    assert_int_equal(yoke_model_preset(&model, "resnet50", large, 1000, NULL), YOKE_OK);
    assert_tensor(model, 0, "conv1.weight", (int64_t[]){64, 3, 7, 7}, 4);
    assert_tensor(model, 1, "bn1.weight", (int64_t[]){64}, 1);
    assert_tensor(model, 2, "bn1.bias", (int64_t[]){64}, 1);
    assert_tensor(model, 3, "bn1.running_mean", (int64_t[]){64}, 1);
    assert_tensor(model, 4, "bn1.running_var", (int64_t[]){64}, 1);
    assert_tensor(model, 5, "bn1.num_batches_tracked", NULL, 0);
    assert_tensor(model, 6, "layer1.0.conv1.weight", (int64_t[]){64, 64, 1, 1}, 4);
    assert_tensor(model, 12, "layer1.0.conv2.weight", (int64_t[]){64, 64, 3, 3}, 4);
    assert_tensor(model, 18, "layer1.0.conv3.weight", (int64_t[]){256, 64, 1, 1}, 4);
    assert_tensor(model, 24, "layer1.0.downsample.0.weight", (int64_t[]){256, 64, 1, 1}, 4);
    assert_tensor(model, 25, "layer1.0.downsample.1.weight", (int64_t[]){256}, 1);
    assert_tensor(model, 30, "layer1.1.conv1.weight", (int64_t[]){64, 256, 1, 1}, 4);
    assert_tensor(model, 318, "fc.weight", (int64_t[]){1000, 2048}, 2);
    assert_tensor(model, 319, "fc.bias", (int64_t[]){1000}, 1);
    const char *near = NULL;
    assert_int_equal(yoke_model_find_tensor(model, "fc.wieght", &near), -1);
    assert_string_equal(near, "fc.weight");
    yoke_model_destroy(model);
}

/* 224 x 224 must arrive as 7 x 7 before pooling, with the v1.5 bottleneck's stride at its 3 x 3. */
static void resnet_shapes_shrink_as_published(void **state) {
    (void)state;
    yoke_model *model = NULL;
    yoke_shape large = {3, 224, 224, false};
    assert_int_equal(yoke_model_preset(&model, "resnet50", large, 1000, NULL), YOKE_OK);
    int strided_3x3 = 0;
    for (int i = 0; i < model->node_count; i++) {
        const yoke_operation *operation = &model->nodes[i].operation;
        if (operation->kind == YOKE_OP_AVERAGE_POOL) {
            assert_int_equal(operation->input.channels, 2048);
            assert_int_equal(operation->input.height, 7);
        }
        strided_3x3 +=
            operation->kind == YOKE_OP_CONV2D && operation->kernel == 3 && operation->stride == 2;
    }
    assert_int_equal(strided_3x3, 3);
    yoke_model_destroy(model);
}

static void mlp_takes_any_input(void **state) {
    (void)state;
    yoke_model *model = NULL;
    assert_int_equal(yoke_model_preset(&model, "mlp", (yoke_shape){1, 28, 28, false}, 10, NULL),
                     YOKE_OK);
    assert_int_equal(yoke_model_parameter_count(model),
                     784 * 1024 + 1024 + 1024 * 1024 + 1024 + 1024 * 10 + 10);
    yoke_model_destroy(model);
    assert_int_equal(yoke_model_preset(&model, "mlp", (yoke_shape){20, 1, 1, true}, 3, NULL),
                     YOKE_OK);
    yoke_model_destroy(model);
}

static void mlp_dropout_drops_half_of_each_hidden_layer(void **state) {
    (void)state;
    yoke_model *model = NULL, *plain = NULL;
    yoke_shape digits = {1, 28, 28, false};
    int dropouts = 0;
    assert_int_equal(yoke_model_preset(&model, "mlp-dropout", digits, 10, NULL), YOKE_OK);
    assert_int_equal(yoke_model_preset(&plain, "mlp", digits, 10, NULL), YOKE_OK);
    assert_int_equal(yoke_model_tensor_count(model), yoke_model_tensor_count(plain));
    assert_int_equal(yoke_model_parameter_count(model), yoke_model_parameter_count(plain));
    for (int i = 0; i < model->node_count; i++) {
        const yoke_operation *operation = &model->nodes[i].operation;
        if (operation->kind != YOKE_OP_DROPOUT) continue;
        assert_int_equal(model->nodes[i - 1].operation.kind, YOKE_OP_ACTIVATION);
        assert_true(operation->probability == 0.5);
        dropouts++;
    }
    assert_int_equal(dropouts, 2);
    yoke_model_destroy(plain);
    yoke_model_destroy(model);
}

static void unknown_preset_names_the_nearest(void **state) {
    (void)state;
    yoke_model *model = NULL;
    assert_int_equal(yoke_model_preset(&model, "resnet81", image, 10, NULL), YOKE_ERROR_ARGUMENT);
    assert_says("resnet81");
    assert_says("did you mean 'resnet");
    assert_null(model);
    assert_int_equal(yoke_model_preset(&model, "resnet18", image, 0, NULL), YOKE_ERROR_ARGUMENT);
    assert_says("0 classes");
}

static void every_preset_builds_for_its_own_rows_and_has_its_defaults(void **state) {
    (void)state;
    int count = 0;
    for (; yoke_model_preset_name(count) != NULL; count++) {
        yoke_preset_info info = {.struct_size = sizeof info};
        assert_int_equal(yoke_model_preset_describe(count, &info), YOKE_OK);
        assert_string_equal(info.name, yoke_model_preset_name(count));
        char name[256];
        int used = snprintf(name, sizeof name, "%s", info.name);
        for (int i = 0; i < info.option_count; i++)
            used += snprintf(name + used, sizeof name - (size_t)used, "%c%s=%g", i > 0 ? ',' : ':',
                             info.options[i].name, info.options[i].value);
        yoke_model *plain = NULL, *spelled = NULL;
        assert_int_equal(yoke_model_preset(&plain, info.name, info.input, info.classes, NULL),
                         YOKE_OK);
        assert_int_equal(yoke_model_preset(&spelled, name, info.input, info.classes, NULL),
                         YOKE_OK);
        assert_int_equal(yoke_model_parameter_count(plain), yoke_model_parameter_count(spelled));
        assert_int_equal(yoke_model_layer_count(plain), yoke_model_layer_count(spelled));
        yoke_model_destroy(spelled);
        yoke_model_destroy(plain);
    }
    assert_true(count >= 14);
    yoke_preset_info none = {.struct_size = sizeof none};
    assert_int_equal(yoke_model_preset_describe(count, &none), YOKE_ERROR_ARGUMENT);
    assert_int_equal(yoke_model_preset_describe(-1, &none), YOKE_ERROR_ARGUMENT);
}

/* The two toy networks of PyTorch's tutorials, with the names of nn.Sequential's tensors. */
static void layers_are_spelled_in_one_line(void **state) {
    (void)state;
    yoke_model *model = NULL;
    yoke_tensor_info tensor = {.struct_size = sizeof tensor};
    assert_int_equal(yoke_model_preset(&model, "layers:linear=10", yoke_shape_vector(10), 10, NULL),
                     YOKE_OK);
    assert_int_equal(yoke_model_parameter_count(model), 110);
    yoke_model_destroy(model);
    assert_int_equal(
        yoke_model_preset(&model, "layers:linear=10,relu,linear=5", yoke_shape_vector(10), 5, NULL),
        YOKE_OK);
    assert_int_equal(yoke_model_parameter_count(model), 110 + 55);
    assert_int_equal(yoke_model_tensor(model, 2, &tensor), YOKE_OK);
    assert_string_equal(tensor.name, "2.weight");
    yoke_model_destroy(model);
    assert_int_equal(
        yoke_model_preset(&model,
                          "layers:conv=8x5/2,batch_norm,leaky_relu=0.1,max_pool=2,dropout=0.2,"
                          "conv=4,softplus,global_pool,linear=10",
                          image, 10, NULL),
        YOKE_OK);
    yoke_model_destroy(model);
}

/* The height and width that these layers make of an image of 12 x 10. */
static void assert_line_shape(const char *layers, int height, int width) {
    yoke_model *model = NULL;
    yoke_layer_info last = {.struct_size = sizeof last};
    char line[128];
    snprintf(line, sizeof line, "layers:%s,global_pool,linear=10", layers);
    assert_int_equal(yoke_model_preset(&model, line, yoke_shape_image(4, 12, 10), 10, NULL),
                     YOKE_OK);
    int count = yoke_model_layer_count(model); /* behind them: a pool, flatten, linear */
    assert_int_equal(yoke_model_describe_layer(model, count - 4, &last), YOKE_OK);
    assert_int_equal(last.output.height, height);
    assert_int_equal(last.output.width, width);
    yoke_model_destroy(model);
}

/* Of every kernel a transposed convolution makes the image STRIDE times as large. */
static void a_line_of_layers_grows_images(void **state) {
    (void)state;
    assert_line_shape("conv_transpose=10", 24, 20);
    assert_line_shape("conv_transpose=8x4/2", 24, 20);
    assert_line_shape("conv_transpose=10x3/2", 24, 20);
    assert_line_shape("conv_transpose=10x1/3", 36, 30);
    assert_line_shape("conv_transpose=10x5/1", 12, 10);
    assert_line_shape("conv=40,pixel_shuffle=2", 24, 20);
    assert_line_shape("pixel_unshuffle=2", 6, 5);
}

static void a_line_of_layers_that_is_wrong_is_explained(void **state) {
    (void)state;
    static const struct {
        const char *line, *text;
    } cases[] = {
        {"layers:linear=10,rellu", "no layer 'rellu'; did you mean 'relu'?"},
        {"layers:", "no layer ''; known: linear, conv"},
        {"layers:linear", "layer 0, 'linear', must be linear=FEATURES"},
        {"layers:linear=ten", "layer 0, 'linear=ten', must be linear=FEATURES"},
        {"layers:relu=3,linear=10", "layer 0, 'relu=3', must be relu alone"},
        {"layers:conv=4x3/1/1,linear=10", "must be conv=CHANNELS[xKERNEL[/STRIDE]]"},
        {"layers:linear=0", "0 output features"},
        {"layers:linear=10,relu,linear=7", "writes 7 values where 10 are wanted, one for each "
                                           "class or target: end with linear=10"},
        {"layers:linear=10,conv=10", "reads a flat value of 10 features, needs an image"},
        {"layers:max_pool=99,linear=10", "kernel of 99 does not fit an image of"},
        {"layers:conv1d=8,linear=10", "0: reads 3 x 32 x 32, needs a sequence"},
        {"layers:pixel_shuffle=2", "pixel_shuffle: an image of 3 x 32 x 32: 4, the square of the "
                                   "factor, must divide its channels"},
        {"layers:pixel_unshuffle=3", "the factor 3 must divide its height and width"},
        {"layers:conv_transpose=4x3/2/1", "must be conv_transpose=CHANNELS[xKERNEL[/STRIDE]]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        yoke_model *model = NULL;
        assert_int_equal(yoke_model_preset(&model, cases[i].line, image, 10, NULL),
                         YOKE_ERROR_ARGUMENT);
        assert_says(cases[i].text);
        assert_null(model);
    }
}

static void vgg_needs_32_pixels(void **state) {
    (void)state;
    yoke_model *model = NULL;
    yoke_shape small = {.channels = 3, .height = 31, .width = 40};
    assert_int_equal(yoke_model_preset(&model, "vgg11_bn", image, 10, NULL), YOKE_OK);
    yoke_model_destroy(model);
    assert_int_equal(yoke_model_preset(&model, "vgg11_bn", small, 10, NULL), YOKE_ERROR_ARGUMENT);
    assert_says("does not fit an image of 1 x 2");
}

static void an_unknown_preset_without_a_neighbour_lists_all(void **state) {
    (void)state;
    yoke_model *model = NULL;
    assert_int_equal(yoke_model_preset(&model, "zzzzzzzz", image, 10, NULL), YOKE_ERROR_ARGUMENT);
    for (int i = 0; yoke_model_preset_name(i) != NULL; i++)
        assert_says(yoke_model_preset_name(i));
}

static void options_follow_the_name_of_a_preset(void **state) {
    (void)state;
    yoke_model *model = NULL;
    yoke_shape digits = {1, 28, 28, false};
    assert_int_equal(yoke_model_preset(&model, "mlp:dropout=0.25,width=32", digits, 10, NULL),
                     YOKE_OK);
    assert_string_equal(yoke_model_name(model), "mlp:dropout=0.25,width=32");
    assert_int_equal(yoke_model_parameter_count(model),
                     784 * 32 + 32 + 32 * 32 + 32 + 32 * 10 + 10);
    int dropouts = 0;
    for (int i = 0; i < model->node_count; i++) {
        const yoke_operation *operation = &model->nodes[i].operation;
        if (operation->kind != YOKE_OP_DROPOUT) continue;
        assert_true(operation->probability == 0.25);
        dropouts++;
    }
    assert_int_equal(dropouts, 2);
    yoke_model_destroy(model);
}

/* torchvision's VisionTransformer(224, 16, 12, 3, 192, 768), and for 32 x 32 one with patches of 4.
 */
static void vit_tiny_has_patches_that_suit_the_image(void **state) {
    (void)state;
    yoke_model *model = NULL;
    yoke_shape large = {3, 224, 224, false};
    assert_int_equal(yoke_model_preset(&model, "vit_tiny", large, 1000, NULL), YOKE_OK);
    assert_int_equal(yoke_model_parameter_count(model), 5717416);
    yoke_model_destroy(model);
    assert_int_equal(yoke_model_preset(&model, "vit_tiny:patch=8", image, 10, NULL), YOKE_OK);
    yoke_tensor_info info = {.struct_size = sizeof info};
    int index = yoke_model_find_tensor(model, "encoder.pos_embedding", NULL);
    assert_int_equal(yoke_model_tensor(model, index, &info), YOKE_OK);
    assert_int_equal(info.ndim, 3);
    assert_int_equal(info.shape[0], 1);
    assert_int_equal(info.shape[1], 17);
    assert_int_equal(info.shape[2], 192);
    index = yoke_model_find_tensor(model, "class_token", NULL);
    assert_int_equal(yoke_model_tensor(model, index, &info), YOKE_OK);
    assert_int_equal(info.ndim, 3);
    assert_true(yoke_model_find_tensor(
                    model, "encoder.layers.encoder_layer_11.self_attention.in_proj_weight", NULL) >=
                0);
    yoke_model_destroy(model);
}

static void options_that_cannot_be_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *name, *says;
    } refused[] = {
        {"resnet20:width=4", "resnet20 has no options, but got 'width'"},
        {"mlp:", "mlp has no option ''; known: width, dropout"},
        {"mlp:widht=4", "mlp has no option 'widht'; did you mean 'width'?"},
        {"mlp:width", "mlp: option 'width' needs a value: width=1024"},
        {"mlp:width=4,width=5", "mlp: option 'width' is given twice"},
        {"mlp:width=4,", "mlp has no option ''"},
        {"mlp:width=0", "mlp: width=0, must be a whole number from 1 to 1048576"},
        {"mlp:width=1.5", "mlp: width=1.5, must be a whole number"},
        {"mlp:dropout=1", "mlp: dropout=1, must be a number from 0 to 0.99"},
        {"mlp:dropout=nan", "mlp: dropout=nan, must be a number"},
        {"mlpx:width=4", "no model is called 'mlpx'; did you mean 'mlp'?"},
        {":width=4", "no model is called ''"},
        {"vit_tiny:patch=5", "an image of 32 x 32 is no whole number of patches of 5 x 5"},
        {"vit_tiny:heads=5", "5 heads, must divide 192 channels"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        yoke_model *model = NULL;
        assert_int_equal(yoke_model_preset(&model, refused[i].name, image, 10, NULL),
                         YOKE_ERROR_ARGUMENT);
        assert_says(refused[i].says);
        assert_null(model);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(presets_have_the_known_sizes),
        cmocka_unit_test(names_and_order_are_torchvisions),
        cmocka_unit_test(resnet_shapes_shrink_as_published),
        cmocka_unit_test(mlp_takes_any_input),
        cmocka_unit_test(mlp_dropout_drops_half_of_each_hidden_layer),
        cmocka_unit_test(unknown_preset_names_the_nearest),
        cmocka_unit_test(layers_are_spelled_in_one_line),
        cmocka_unit_test(a_line_of_layers_grows_images),
        cmocka_unit_test(a_line_of_layers_that_is_wrong_is_explained),
        cmocka_unit_test(every_preset_builds_for_its_own_rows_and_has_its_defaults),
        cmocka_unit_test(vgg_needs_32_pixels),
        cmocka_unit_test(an_unknown_preset_without_a_neighbour_lists_all),
        cmocka_unit_test(options_follow_the_name_of_a_preset),
        cmocka_unit_test(options_that_cannot_be_are_refused),
        cmocka_unit_test(vit_tiny_has_patches_that_suit_the_image),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
