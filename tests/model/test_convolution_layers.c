/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions of every form and pools as layers: shapes of values and tensors, first values, what
 * they fuse with, and what is refused with which words. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/graph.h"
#include "yoke/convolution.h"
#include "yoke/transformer.h"

static const yoke_shape image = {4, 9, 7, false};

static yoke_model *new_model(yoke_shape input) {
    yoke_model *model = NULL;
    assert_int_equal(yoke_model_create(&model, "m", input), YOKE_OK);
    return model;
}

/* Shapes. */

static void assert_shape(const yoke_model *model, yoke_value value, int channels, int height,
                         int width) {
    if (value.index < 0) fail_msg("%s", model->error.text);
    yoke_shape shape = yoke_value_shape(model, value.index);
    assert_int_equal(shape.channels, channels);
    assert_int_equal(shape.height, height);
    assert_int_equal(shape.width, width);
}

static void assert_tensor(const yoke_model *model, int index, const char *name, int ndim,
                          const int64_t *shape) {
    yoke_tensor_info info = {.struct_size = sizeof info};
    assert_int_equal(yoke_model_tensor(model, index, &info), YOKE_OK);
    assert_string_equal(info.name, name);
    assert_int_equal(info.ndim, ndim);
    for (int i = 0; i < ndim; i++)
        assert_int_equal(info.shape[i], shape[i]);
}

/* torch.nn.init.kaiming_uniform_(a = sqrt 5) of a weight, and nn's bias: U(+-1 / sqrt(fan_in)). */
static void assert_fan_in(const yoke_model *model, int tensors, int fan_in) {
    for (int i = 0; i < tensors; i++) {
        const yoke_fill *fill = &model->tensors[i].fill;
        assert_int_equal(fill->kind, YOKE_FILL_UNIFORM);
        assert_true(fabs(fill->value - 1 / sqrt((double)fan_in)) < 1e-12);
    }
}

static void a_rectangular_window_has_pytorchs_shapes(void **state) {
    (void)state;
    static const struct {
        int kernel, padding, kernel_width, padding_width, stride_width, height, width;
    } cases[] = {
        {3, 1, 0, 0, 0, 9, 7}, /* square: the width's padding is the height's */
        {3, 1, 3, 0, 0, 9, 5}, /* kernel_width given: no padding */
        {3, 1, 0, 2, 0, 9, 9}, /* its own */
        {7, 3, 1, 0, 0, 9, 7}, /* PyTorch's (7, 1) padded by (3, 0) */
        {1, 0, 5, 2, 2, 9, 4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        yoke_model *model = new_model(image);
        yoke_conv2d_options conv = YOKE_CONV2D_OPTIONS_INIT;
        conv.name = "conv";
        conv.out_channels = 6;
        conv.groups = 2;
        conv.kernel = cases[i].kernel;
        conv.padding = cases[i].padding;
        conv.kernel_width = cases[i].kernel_width;
        conv.padding_width = cases[i].padding_width;
        conv.stride_width = cases[i].stride_width;
        yoke_value value = yoke_conv2d(model, yoke_model_input(model), &conv);
        assert_shape(model, value, 6, cases[i].height, cases[i].width);
        int width = cases[i].kernel_width > 0 ? cases[i].kernel_width : cases[i].kernel;
        assert_tensor(model, 0, "conv.weight", 4, (int64_t[]){6, 2, cases[i].kernel, width});
        assert_tensor(model, 1, "conv.bias", 1, (int64_t[]){6});
        assert_fan_in(model, 2, 2 * cases[i].kernel * width);
        yoke_model_destroy(model);
    }
}

/* The same numbers for both directions are a square window, and plans know it as one. */
static void equal_numbers_are_a_square_window(void **state) {
    (void)state;
    yoke_model *model = new_model(image);
    yoke_conv2d_options conv = YOKE_CONV2D_OPTIONS_INIT;
    conv.name = "conv";
    conv.out_channels = 6;
    conv.kernel = conv.kernel_width = 3;
    conv.padding = conv.padding_width = 1;
    yoke_value value = yoke_conv2d(model, yoke_model_input(model), &conv);
    assert_shape(model, value, 6, 9, 7);
    assert_int_equal(model->layers[0].operation.across.kernel, 0);
    yoke_model_destroy(model);
}

static void a_transposed_convolution_has_pytorchs_shapes(void **state) {
    (void)state;
    yoke_model *model = new_model(image);
    yoke_conv_transpose2d_options up = YOKE_CONV_TRANSPOSE2D_OPTIONS_INIT;
    up.name = "up";
    up.out_channels = 6;
    up.kernel = 3;
    up.stride = 2;
    up.padding = 1;
    up.output_padding = 1;
    up.groups = 2;
    yoke_value value = yoke_conv_transpose2d(model, yoke_model_input(model), &up);
    assert_shape(model, value, 6, 18, 14);
    assert_tensor(model, 0, "up.weight", 4, (int64_t[]){4, 3, 3, 3});
    assert_tensor(model, 1, "up.bias", 1, (int64_t[]){6});
    assert_fan_in(model, 2, 3 * 3 * 3); /* of out / groups: what PyTorch takes for fan_in */
    up.name = "wide";
    up.kernel_width = 5;
    up.stride_width = 3;
    up.dilation_width = 2;
    value = yoke_conv_transpose2d(model, value, &up);
    assert_shape(model, value, 6, 36, 13 * 3 + 9);
    yoke_model_destroy(model);
}

static void a_convolution_over_a_sequence_has_a_weight_of_three_dimensions(void **state) {
    (void)state;
    yoke_model *model = new_model(yoke_shape_sequence(10, 6));
    yoke_conv1d_options line = YOKE_CONV1D_OPTIONS_INIT;
    line.name = "line";
    line.out_channels = 9;
    line.kernel = 3;
    line.stride = 2;
    line.padding = 2;
    line.dilation = 2;
    line.groups = 3;
    yoke_value value = yoke_conv1d(model, yoke_model_input(model), &line);
    assert_shape(model, value, 9, 5, 1);
    assert_true(yoke_value_shape(model, value.index).sequence);
    assert_tensor(model, 0, "line.weight", 3, (int64_t[]){9, 2, 3});
    assert_fan_in(model, 2, 2 * 3);
    yoke_model_destroy(model);
}

static void a_rectangular_pool_has_pytorchs_shapes(void **state) {
    (void)state;
    static const struct {
        int kernel, stride, padding, kernel_width, stride_width, padding_width, height, width;
    } cases[] = {
        {2, 0, 0, 3, 0, 0, 4, 2}, /* strides are the kernels */
        {2, 1, 0, 3, 0, 0, 8, 5}, /* one stride for both */
        {3, 2, 1, 1, 1, 0, 5, 7},
        {3, 1, 1, 0, 2, 0, 9, 4}, /* square: padded on all sides */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        yoke_model *model = new_model(image);
        yoke_pool_options pool = YOKE_POOL_OPTIONS_INIT;
        pool.kernel = cases[i].kernel;
        pool.stride = cases[i].stride;
        pool.padding = cases[i].padding;
        pool.kernel_width = cases[i].kernel_width;
        pool.stride_width = cases[i].stride_width;
        pool.padding_width = cases[i].padding_width;
        yoke_value value = yoke_max_pool(model, yoke_model_input(model), &pool);
        assert_shape(model, value, 4, cases[i].height, cases[i].width);
        yoke_model_destroy(model);
    }
}

/* Behind a rectangular and behind a transposed convolution, batch norm and its ReLU are one. */
static void a_batch_norm_still_joins_its_relu(void **state) {
    (void)state;
    yoke_model *model = new_model(image);
    yoke_conv2d_options conv = YOKE_CONV2D_OPTIONS_INIT;
    conv.name = "conv";
    conv.out_channels = conv.kernel = 3;
    conv.kernel_width = 1;
    yoke_conv_transpose2d_options up = YOKE_CONV_TRANSPOSE2D_OPTIONS_INIT;
    up.name = "up";
    up.out_channels = up.kernel = 3;
    yoke_batch_norm_options norm = YOKE_BATCH_NORM_OPTIONS_INIT;
    norm.name = "norm1";
    yoke_value value = yoke_conv2d(model, yoke_model_input(model), &conv);
    value = yoke_relu(model, yoke_batch_norm(model, value, &norm));
    norm.name = "norm2";
    value = yoke_batch_norm(model, yoke_conv_transpose2d(model, value, &up), &norm);
    value = yoke_flatten(model, yoke_relu(model, value));
    assert_int_equal(yoke_model_finish(model, value, NULL), YOKE_OK);
    assert_int_equal(model->node_count, 6); /* two convolutions, two norms, flatten, the output */
    assert_true(model->nodes[1].operation.relu && model->nodes[3].operation.relu);
    yoke_model_destroy(model);
}

/* Refusals. */

static void assert_refused(yoke_model *model, const char *const *words) {
    assert_int_equal(yoke_model_finish(model, yoke_model_input(model), NULL), YOKE_ERROR_ARGUMENT);
    for (; *words != NULL; words++)
        if (strstr(yoke_last_error(), *words) == NULL)
            fail_msg("\"%s\" does not say \"%s\"", yoke_last_error(), *words);
    yoke_model_destroy(model);
}
#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void refuse_conv2d(yoke_conv2d_options conv, const char *const *words) {
    yoke_model *model = new_model(image);
    conv.struct_size = sizeof conv;
    conv.name = "conv";
    if (conv.out_channels == 0) conv.out_channels = 6;
    assert_int_equal(yoke_conv2d(model, yoke_model_input(model), &conv).index, YOKE_NONE);
    assert_refused(model, words);
}

static void rectangular_windows_that_cannot_be_are_explained(void **state) {
    (void)state;
    refuse_conv2d((yoke_conv2d_options){.kernel = 3, .kernel_width = 8},
                  WORDS("conv: kernel of 3 x 8 does not fit an image of 9 x 7 padded by 0 x 0",
                        "take a smaller kernel, or more padding"));
    refuse_conv2d((yoke_conv2d_options){.kernel = 10},
                  WORDS("conv: kernel of 10 does not fit an image of 9 x 7 padded by 0;"));
    refuse_conv2d((yoke_conv2d_options){.kernel = 3, .dilation_width = 5},
                  WORDS("kernel of 3 x 3, dilated, does not fit an image of 9 x 7"));
    refuse_conv2d((yoke_conv2d_options){.kernel = 3, .kernel_width = -1},
                  WORDS("conv: kernel_width of -1, must be 1 to 32768"));
    refuse_conv2d((yoke_conv2d_options){.kernel = 3, .stride_width = -2},
                  WORDS("conv: stride_width of -2, must be 1 to 32768"));
    refuse_conv2d((yoke_conv2d_options){.kernel = 3, .padding_width = -2},
                  WORDS("conv: padding_width of -2, must be 0 to 32768"));
    refuse_conv2d((yoke_conv2d_options){.kernel = 3, .dilation_width = 40000},
                  WORDS("conv: dilation_width of 40000, must be 1 to 32768"));
}

static void pools_that_cannot_be_are_explained(void **state) {
    (void)state;
    static const struct {
        yoke_pool_options pool;
        const char *text;
    } cases[] = {
        {{.kernel = 2, .kernel_width = 8},
         "max_pool.0: kernel of 2 x 8 does not fit an image of 9 x 7 padded by 0 x 0"},
        {{.kernel = 2, .kernel_width = 3, .padding_width = 2},
         "max_pool.0: padding_width of 2, must be at most half the kernel of 3"},
        {{.kernel = 2, .padding = 2}, "max_pool.0: padding of 2, must be at most half the kernel"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        yoke_model *model = new_model(image);
        yoke_pool_options pool = cases[i].pool;
        pool.struct_size = sizeof pool;
        yoke_max_pool(model, yoke_model_input(model), &pool);
        assert_refused(model, WORDS(cases[i].text));
    }
}

static void refuse_transposed(yoke_conv_transpose2d_options up, const char *const *words) {
    yoke_model *model = new_model(image);
    up.struct_size = sizeof up;
    up.name = "up";
    if (up.out_channels == 0) up.out_channels = 6;
    assert_int_equal(yoke_conv_transpose2d(model, yoke_model_input(model), &up).index, YOKE_NONE);
    assert_refused(model, words);
}

static void transposed_convolutions_that_cannot_be_are_explained(void **state) {
    (void)state;
    refuse_transposed(
        (yoke_conv_transpose2d_options){.kernel = 3, .stride = 2, .output_padding = 2},
        WORDS("up: output_padding of 2, must be at least 0 and below the stride of "
              "2"));
    refuse_transposed(
        (yoke_conv_transpose2d_options){
            .kernel = 3, .stride = 2, .stride_width = 1, .output_padding_width = 1},
        WORDS("up: output_padding_width of 1, must be at least 0 and below the stride of 1"));
    refuse_transposed((yoke_conv_transpose2d_options){.kernel = 3, .output_padding = -1},
                      WORDS("output_padding of -1"));
    refuse_transposed((yoke_conv_transpose2d_options){.kernel = 3, .padding = 6},
                      WORDS("up: padding of 6 leaves -1 of the 11 pixels", "an image of 9 x 7",
                            "take less padding"));
    refuse_transposed((yoke_conv_transpose2d_options){.kernel = 3, .padding = 1, .groups = 3},
                      WORDS("up: 3 groups, must divide 4 input and 6 output channels"));
    refuse_transposed((yoke_conv_transpose2d_options){.kernel = 1, .out_channels = -1},
                      WORDS("up: -1 output channels"));
    refuse_transposed((yoke_conv_transpose2d_options){.kernel = 0},
                      WORDS("up: kernel of 0, must be 1 to 32768"));
    refuse_transposed((yoke_conv_transpose2d_options){.kernel = 32768, .stride = 32768},
                      WORDS("up: an output row of 6 x 294912 x 229376 is more than"));
}

static void refuse_line(yoke_shape shape, yoke_conv1d_options line, const char *const *words) {
    yoke_model *model = new_model(shape);
    line.struct_size = sizeof line;
    line.name = "line";
    line.out_channels = 6;
    assert_int_equal(yoke_conv1d(model, yoke_model_input(model), &line).index, YOKE_NONE);
    assert_refused(model, words);
}

static void convolutions_over_sequences_that_cannot_be_are_explained(void **state) {
    (void)state;
    yoke_shape sequence = yoke_shape_sequence(5, 4);
    refuse_line(image, (yoke_conv1d_options){.kernel = 3},
                WORDS("line: reads 4 x 9 x 7, needs a sequence"));
    refuse_line(sequence, (yoke_conv1d_options){.kernel = 6},
                WORDS("line: kernel of 6 does not fit a sequence of 5 x 4 padded by 0",
                      "take a smaller kernel, or more padding"));
    refuse_line(sequence, (yoke_conv1d_options){.kernel = 3, .dilation = 3, .padding = 0},
                WORDS("kernel of 3, dilated, does not fit"));
    refuse_line(sequence, (yoke_conv1d_options){.kernel = 0},
                WORDS("line: kernel of 0, must be at least 1"));
    refuse_line(sequence, (yoke_conv1d_options){.kernel = 2, .groups = 3}, WORDS("line: 3 groups"));
    refuse_line(sequence, (yoke_conv1d_options){.kernel = 2, .padding = -1}, WORDS("padding"));
}

static void layers_share_what_has_their_shape_and_kind(void **state) {
    (void)state;
    yoke_model *model = new_model(yoke_shape_image(6, 5, 5));
    yoke_conv2d_options conv = YOKE_CONV2D_OPTIONS_INIT;
    conv.name = "conv";
    conv.out_channels = 6;
    conv.kernel = 3;
    yoke_conv_transpose2d_options up = YOKE_CONV_TRANSPOSE2D_OPTIONS_INIT;
    up.name = "up";
    up.out_channels = 6;
    up.kernel = 3;
    yoke_value value = yoke_conv_transpose2d(model, yoke_model_input(model), &up);
    up.name = "again";
    up.shared_with = "up";
    value = yoke_conv_transpose2d(model, value, &up);
    assert_shape(model, value, 6, 9, 9);
    assert_int_equal(model->tensor_count, 2);
    value = yoke_conv2d(model, value, &conv);
    up.name = "other";
    up.shared_with = "conv"; /* as large, but another kind */
    assert_int_equal(yoke_conv_transpose2d(model, value, &up).index, YOKE_NONE);
    assert_refused(model, WORDS("other: shared_with 'conv' is another kind of layer"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rectangular_window_has_pytorchs_shapes),
        cmocka_unit_test(equal_numbers_are_a_square_window),
        cmocka_unit_test(a_transposed_convolution_has_pytorchs_shapes),
        cmocka_unit_test(a_convolution_over_a_sequence_has_a_weight_of_three_dimensions),
        cmocka_unit_test(a_rectangular_pool_has_pytorchs_shapes),
        cmocka_unit_test(a_batch_norm_still_joins_its_relu),
        cmocka_unit_test(pools_that_cannot_be_are_explained),
        cmocka_unit_test(rectangular_windows_that_cannot_be_are_explained),
        cmocka_unit_test(transposed_convolutions_that_cannot_be_are_explained),
        cmocka_unit_test(convolutions_over_sequences_that_cannot_be_are_explained),
        cmocka_unit_test(layers_share_what_has_their_shape_and_kind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
