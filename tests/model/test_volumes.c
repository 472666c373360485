/* SPDX-License-Identifier: Apache-2.0 */
/* Layers over volumes: shapes, parameters, and what they refuse; test_graphs compares their numbers
 * with PyTorch's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "model/graph.h"
#include "yoke/transformer.h"
#include "yoke/volume.h"

enum { CHANNELS = 2, DEPTH = 6, HEIGHT = 5, WIDTH = 7 };

static yoke_model *begin(void) {
    yoke_model *model = NULL;
    assert_int_equal(
        yoke_model_create(&model, "film", yoke_shape_image(CHANNELS, DEPTH * HEIGHT, WIDTH)),
        YOKE_OK);
    return model;
}

static yoke_conv3d_options conv_of(int depth, int kernel, int stride, int padding) {
    yoke_conv3d_options conv = YOKE_CONV3D_OPTIONS_INIT;
    conv.name = "conv";
    conv.depth = depth;
    conv.out_channels = 4;
    for (int axis = 0; axis < 3; axis++)
        conv.kernel[axis] = conv.stride[axis] = 1;
    conv.kernel[0] = kernel, conv.stride[0] = stride, conv.padding[0] = padding;
    return conv;
}

static void depth_follows_pytorchs_rule(void **state) {
    (void)state;
    assert_int_equal(yoke_volume_depth(6, 3, 1, 1), 6);
    assert_int_equal(yoke_volume_depth(6, 3, 2, 0), 2);
    assert_int_equal(yoke_volume_depth(6, 6, 5, 0), 1);
    assert_int_equal(yoke_volume_depth(6, 7, 1, 0), 0);
    assert_int_equal(yoke_volume_depth(0, 1, 1, 0), 0);
    assert_int_equal(yoke_volume_depth(6, 1, 0, 0), 0);
    for (int kernel = 1; kernel <= DEPTH; kernel++)
        for (int stride = 1; stride <= 3; stride++) {
            yoke_model *model = begin();
            yoke_conv3d_options conv = conv_of(DEPTH, kernel, stride, kernel / 2);
            yoke_value made = yoke_conv3d(model, yoke_model_input(model), &conv);
            yoke_shape shape = yoke_shape_of(model, made);
            assert_int_equal(shape.height,
                             HEIGHT * yoke_volume_depth(DEPTH, kernel, stride, kernel / 2));
            assert_int_equal(shape.channels, 4);
            yoke_model_destroy(model);
        }
}

/* However many planes it computes; and a second layer may share them. */
static void a_convolution_has_one_weight_and_one_bias(void **state) {
    (void)state;
    yoke_model *model = begin();
    yoke_conv3d_options conv = conv_of(DEPTH, 3, 1, 1), twin = conv;
    twin.name = "twin", twin.shared_with = "conv";
    yoke_value a = yoke_conv3d(model, yoke_model_input(model), &conv);
    yoke_value b = yoke_conv3d(model, yoke_model_input(model), &twin);
    assert_int_equal(yoke_model_finish(model, yoke_flatten(model, yoke_add(model, a, b)), NULL),
                     YOKE_OK);
    assert_int_equal(yoke_model_tensor_count(model), 2);
    yoke_tensor_info info = {.struct_size = sizeof info};
    assert_int_equal(yoke_model_tensor(model, 0, &info), YOKE_OK);
    assert_string_equal(info.name, "conv.weight");
    assert_int_equal(info.shape[0], 4);
    assert_int_equal(info.shape[1], CHANNELS * 3);
    yoke_model_destroy(model);
}

static void refuse(yoke_value (*add)(yoke_model *, yoke_value, const void *), const void *options,
                   const char *words) {
    yoke_model *model = begin();
    assert_int_equal(add(model, yoke_model_input(model), options).index, -1);
    if (strstr(yoke_last_error(), words) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", words, yoke_last_error());
    yoke_model_destroy(model);
}

static yoke_value add_conv(yoke_model *model, yoke_value value, const void *options) {
    return yoke_conv3d(model, value, options);
}

static yoke_value add_conv_of_sequence(yoke_model *model, yoke_value value, const void *options) {
    return yoke_conv3d(model, yoke_sequence(model, value), options);
}

static yoke_value add_max(yoke_model *model, yoke_value value, const void *options) {
    return yoke_max_pool3d(model, value, options);
}

static yoke_value add_average(yoke_model *model, yoke_value value, const void *options) {
    return yoke_average_pool3d(model, value, options);
}

static void mistakes_are_named(void **state) {
    (void)state;
    const yoke_conv3d_options fits = conv_of(DEPTH, 3, 1, 1);
    yoke_conv3d_options conv = fits;
    refuse(add_conv_of_sequence, &conv, "conv: reads");
    conv.depth = 4;
    refuse(add_conv, &conv, "conv: depth 4, must divide the height 30");
    conv = conv_of(DEPTH, 7, 1, 0);
    refuse(add_conv, &conv, "a kernel of 7 planes does not fit into 6");
    conv = conv_of(DEPTH, 2, 1, 2);
    refuse(add_conv, &conv, "padding 2 in depth, must be less than the kernel 2");
    conv = conv_of(DEPTH, 0, 1, 0);
    refuse(add_conv, &conv, "kernel 0");
    conv = fits, conv.kernel[1] = 9;
    refuse(add_conv, &conv, "conv: ");
    conv = fits, conv.name = NULL;
    refuse(add_conv, &conv, "has no name");
    yoke_pool3d_options pool = YOKE_POOL3D_OPTIONS_INIT;
    pool.depth = 7;
    pool.kernel[0] = pool.kernel[1] = pool.kernel[2] = 2;
    refuse(add_max, &pool, "max_pool3d: depth 7");
    pool.depth = DEPTH, pool.padding[0] = 2;
    refuse(add_average, &pool, "average_pool3d: padding 2");
    pool.padding[0] = 0, pool.kernel[1] = 9;
    refuse(add_average, &pool, "9");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(depth_follows_pytorchs_rule),
        cmocka_unit_test(a_convolution_has_one_weight_and_one_bias),
        cmocka_unit_test(mistakes_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
