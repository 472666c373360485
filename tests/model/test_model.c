/* SPDX-License-Identifier: Apache-2.0 */
/* The builder, its sticky errors and the tensor table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/graph.h"
#include "yoke/transformer.h"

static const yoke_shape image = {3, 32, 32, false};

static yoke_model *new_model(yoke_shape input) {
    yoke_model *model = NULL;
    assert_int_equal(yoke_model_create(&model, "m", input), YOKE_OK);
    return model;
}

static yoke_value conv(yoke_model *model, yoke_value input, const char *name, int channels) {
    yoke_conv2d_options options = {.struct_size = sizeof options,
                                   .name = name,
                                   .out_channels = channels,
                                   .kernel = 3,
                                   .padding = 1,
                                   .no_bias = true};
    return yoke_conv2d(model, input, &options);
}

static yoke_value linear(yoke_model *model, yoke_value input, const char *name, int features) {
    yoke_linear_options options = {
        .struct_size = sizeof options, .name = name, .out_features = features};
    return yoke_linear(model, input, &options);
}

static void assert_says(const char *part) {
    if (strstr(yoke_last_error(), part) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", yoke_last_error(), part);
}

/* Finishing must fail, saying all of the given words; afterwards the model is destroyed. */
static void assert_refused(yoke_model *model, yoke_value output, const char *const *words) {
    assert_int_equal(yoke_model_finish(model, output, NULL), YOKE_ERROR_ARGUMENT);
    for (; *words != NULL; words++)
        assert_says(*words);
    yoke_model_destroy(model);
}
#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void first_error_sticks_until_finish(void **state) {
    (void)state;
    yoke_model *model = new_model(image);
    yoke_value value = conv(model, yoke_model_input(model), "first", 0);
    assert_int_equal(value.index, -1);
    value = conv(model, value, "second", -7);
    assert_int_equal(value.index, -1);
    assert_int_equal(yoke_relu(model, value).index, -1);
    assert_int_equal(yoke_model_input(model).index, -1);
    assert_int_equal(yoke_model_finish(model, value, NULL), YOKE_ERROR_ARGUMENT);
    assert_refused(model, value, WORDS("first", "0 output channels"));
}

static void builder_names_layer_and_values(void **state) {
    (void)state;
    yoke_model *model = new_model(image);
    yoke_conv2d_options grouped = {
        .struct_size = sizeof grouped, .name = "stem", .out_channels = 8, .kernel = 3, .groups = 2};
    assert_refused(model, yoke_conv2d(model, yoke_model_input(model), &grouped),
                   WORDS("stem", "2 groups", "3 input", "8 output"));

    model = new_model(image);
    grouped = (yoke_conv2d_options){
        .struct_size = sizeof grouped, .name = "wide", .out_channels = 8, .kernel = 33};
    assert_refused(model, yoke_conv2d(model, yoke_model_input(model), &grouped),
                   WORDS("wide", "kernel of 33", "32 x 32"));

    model = new_model(image);
    assert_refused(model, linear(model, yoke_model_input(model), "fc", 10),
                   WORDS("fc", "3 x 32 x 32", "yoke_flatten"));

    model = new_model(image);
    yoke_value a = conv(model, yoke_model_input(model), "a", 4);
    yoke_value b = conv(model, yoke_model_input(model), "b", 5);
    assert_refused(model, yoke_add(model, a, b), WORDS("add.2", "4 x 32 x 32", "5 x 32 x 32"));

    model = new_model(image);
    a = conv(model, yoke_model_input(model), "a", 4);
    assert_refused(model, conv(model, a, "a", 4), WORDS("'a'", "earlier layer"));

    model = new_model(image);
    assert_refused(model, yoke_dropout(model, yoke_model_input(model), 1.0),
                   WORDS("dropout.0", "probability of 1"));

    model = new_model(image);
    yoke_pool_options pool = {.struct_size = sizeof pool, .kernel = 2, .padding = 2};
    assert_refused(model, yoke_max_pool(model, yoke_model_input(model), &pool),
                   WORDS("max_pool.0", "padding of 2", "kernel of 2"));

    model = new_model(image);
    assert_refused(model, yoke_relu(model, (yoke_value){3}), WORDS("relu.0", "value 3"));

    model = new_model(image);
    assert_refused(model, yoke_gelu_tanh(model, (yoke_value){3}), WORDS("gelu_tanh.0", "value 3"));

    model = new_model(image);
    assert_refused(model, conv(model, yoke_sequence(model, yoke_model_input(model)), "a", 4),
                   WORDS("a:", "sequence of 1024 x 3", "needs an image"));

    yoke_attention_options heads = {.struct_size = sizeof heads, .heads = 2};
    model = new_model(image);
    assert_refused(model, yoke_attention(model, yoke_model_input(model), &heads),
                   WORDS("attention.0", "an image", "needs a sequence"));
    model = new_model(image);
    a = linear(model, yoke_sequence(model, yoke_model_input(model)), "qkv", 10);
    assert_refused(model, yoke_attention(model, a, &heads), WORDS("10 channels", "multiple of 3"));
    model = new_model(image);
    a = yoke_sequence(model, yoke_model_input(model));
    assert_refused(model, yoke_attention(model, a, &heads), WORDS("2 heads", "1 channels"));
    model = new_model(image);
    a = yoke_class_token(model, yoke_sequence(model, yoke_model_input(model)), "token");
    assert_refused(model, yoke_select(model, a, 1025), WORDS("position 1025", "0 to 1024"));
    model = new_model(image);
    assert_refused(model, yoke_class_token(model, yoke_model_input(model), "token"),
                   WORDS("token", "needs a sequence"));

    model = new_model(image);
    a = yoke_sequence(model, yoke_model_input(model));
    assert_refused(model, yoke_add(model, a, linear(model, a, "fc", 4)),
                   WORDS("add.2", "3 x 1024 x 1 (a sequence)", "4 x 1024 x 1 (a sequence)"));

    model = new_model(image);
    yoke_linear_options nameless = {.struct_size = sizeof nameless, .out_features = 3};
    a = yoke_flatten(model, yoke_model_input(model));
    assert_refused(model, yoke_linear(model, a, &nameless), WORDS("linear", "needs a name"));

    model = new_model(image);
    yoke_batch_norm_options norm = {
        .struct_size = sizeof norm, .name = "bn", .momentum = 1.5, .epsilon = 1e-5};
    assert_refused(model, yoke_batch_norm(model, yoke_model_input(model), &norm),
                   WORDS("bn", "momentum is 1.5"));

    model = new_model(image);
    norm.epsilon = 0;
    assert_refused(model, yoke_batch_norm(model, yoke_model_input(model), &norm),
                   WORDS("bn", "epsilon is 0", "YOKE_BATCH_NORM_OPTIONS_INIT"));
}

static void sharing_is_checked(void **state) {
    (void)state;
    yoke_model *model = new_model(image);
    yoke_conv2d_options options = {.struct_size = sizeof options,
                                   .name = "b",
                                   .out_channels = 3,
                                   .kernel = 3,
                                   .padding = 1,
                                   .no_bias = true};
    yoke_value value = conv(model, yoke_model_input(model), "a", 5);
    options.shared_with = "a";
    assert_refused(model, yoke_conv2d(model, value, &options), WORDS("b", "'a'", "3 x 5"));

    model = new_model(image);
    options.shared_with = "nobody";
    assert_refused(model, yoke_conv2d(model, yoke_model_input(model), &options),
                   WORDS("b", "nobody", "not an earlier layer"));

    model = new_model(image);
    options.shared_with = "a";
    value = yoke_conv2d(model, conv(model, yoke_model_input(model), "a", 3), &options);
    value = linear(model, yoke_flatten(model, value), "fc", 2);
    assert_int_equal(yoke_model_finish(model, value, NULL), YOKE_OK);
    assert_int_equal(yoke_model_parameter_count(model), 3 * 3 * 9 + 2 * 3 * 32 * 32 + 2);
    assert_int_equal(yoke_model_tensor_count(model), 3);
    yoke_model_destroy(model);
}

/* For a model of three outputs. */
static void expect_no_loss(yoke_loss_options loss, const char *words) {
    yoke_model *model = new_model(image);
    yoke_value value = linear(model, yoke_flatten(model, yoke_model_input(model)), "fc", 3);
    loss.struct_size = sizeof loss;
    assert_int_equal(yoke_model_finish(model, value, &loss), YOKE_ERROR_ARGUMENT);
    assert_says(words);
    yoke_model_destroy(model);
}

static void finish_checks_the_whole(void **state) {
    (void)state;
    yoke_model *model = new_model(image);
    yoke_value value = conv(model, yoke_model_input(model), "a", 4);
    assert_refused(model, value, WORDS("image of 4 x 32 x 32", "yoke_flatten"));

    model = new_model(image);
    conv(model, yoke_model_input(model), "dangling", 4);
    value = yoke_flatten(model, conv(model, yoke_model_input(model), "a", 4));
    assert_refused(model, value, WORDS("dangling", "no layer reads"));

    model = new_model(image);
    assert_refused(model, yoke_flatten(model, yoke_model_input(model)), WORDS("no parameter"));

    model = new_model(image);
    value = linear(model, yoke_flatten(model, yoke_model_input(model)), "fc", 10);
    yoke_loss_options loss = {.struct_size = sizeof loss, .label_smoothing = 1};
    assert_int_equal(yoke_model_finish(model, value, &loss), YOKE_ERROR_ARGUMENT);
    assert_says("label smoothing of 1");
    yoke_model_destroy(model);

    static const float weights[] = {1, 2, 3}, negative[] = {1, -2, 3}, zeros[] = {0, 0, 0};
    expect_no_loss((yoke_loss_options){.kind = (yoke_loss_kind)5}, "loss kind 5");
    expect_no_loss((yoke_loss_options){.class_weights = weights, .weight_count = 2},
                   "2 class_weights for an output of 3");
    expect_no_loss((yoke_loss_options){.class_weights = negative, .weight_count = 3},
                   "class_weights[1] is -2");
    expect_no_loss((yoke_loss_options){.class_weights = zeros, .weight_count = 3}, "all 0");
    expect_no_loss((yoke_loss_options){.weight_count = 3}, "weight_count is 3, but");
    expect_no_loss((yoke_loss_options){.positive_weights = weights, .weight_count = 3},
                   "positive_weights have no meaning for cross-entropy");
    expect_no_loss((yoke_loss_options){.kind = YOKE_LOSS_BCE, .label_smoothing = 0.1},
                   "label smoothing of 0.1 has no meaning for BCE");
    expect_no_loss((yoke_loss_options){.kind = YOKE_LOSS_MSE, .set_ignore_index = true},
                   "ignore_index has no meaning for MSE");
    expect_no_loss((yoke_loss_options){.kind = YOKE_LOSS_HUBER, .huber_delta = -1},
                   "huber_delta is -1");

    assert_int_equal(yoke_model_finish(NULL, value, NULL), YOKE_ERROR_ARGUMENT);
    assert_int_equal(yoke_relu(NULL, value).index, -1);
    yoke_model_destroy(NULL);
}

static void inputs_are_checked(void **state) {
    (void)state;
    yoke_model *model = NULL;
    assert_int_equal(yoke_model_create(&model, "m", (yoke_shape){3, 0, 32, false}),
                     YOKE_ERROR_ARGUMENT);
    assert_says("3 x 0 x 32");
    assert_null(model);
    assert_int_equal(yoke_model_create(&model, "m", (yoke_shape){65536, 256, 256, false}),
                     YOKE_ERROR_ARGUMENT);
    assert_int_equal(yoke_model_create(&model, "m", (yoke_shape){3, 2, 1, true}),
                     YOKE_ERROR_ARGUMENT);
}

static void relu_joins_what_nobody_else_reads(void **state) {
    (void)state;
    yoke_model *model = new_model(image);
    yoke_batch_norm_options norm = {
        .struct_size = sizeof norm, .name = "bn1", .epsilon = 1e-5, .momentum = 0.1};
    yoke_value a = yoke_relu(model, yoke_batch_norm(model, yoke_model_input(model), &norm));
    norm.name = "bn2";
    yoke_value shared = yoke_batch_norm(model, a, &norm);
    yoke_value sum = yoke_relu(model, yoke_add(model, yoke_relu(model, shared), shared));
    yoke_value value = linear(model, yoke_flatten(model, sum), "fc", 2);
    assert_int_equal(yoke_model_finish(model, value, NULL), YOKE_OK);
    static const yoke_operation_kind kinds[] = {
        YOKE_OP_BATCH_NORM, YOKE_OP_BATCH_NORM, YOKE_OP_ACTIVATION, YOKE_OP_ADD,
        YOKE_OP_FLATTEN,    YOKE_OP_LINEAR,     YOKE_OP_OUTPUT};
    static const bool fused[] = {true, false, false, true, false, false, false};
    assert_int_equal(model->node_count, 7);
    for (int i = 0; i < 7; i++) {
        assert_int_equal(model->nodes[i].operation.kind, kinds[i]);
        assert_int_equal(model->nodes[i].operation.relu, fused[i]);
    }
    yoke_model_destroy(model);
}

/* Of two batch norms before a sum the later one joins it; one that is read elsewhere joins none,
 * nor does one before a sum without a ReLU. */
static void batch_norm_joins_a_sum_with_a_relu(void **state) {
    (void)state;
    yoke_model *model = new_model(image);
    yoke_batch_norm_options norm = {
        .struct_size = sizeof norm, .name = "bn1", .epsilon = 1e-5, .momentum = 0.1};
    yoke_value input = yoke_model_input(model), first = yoke_batch_norm(model, input, &norm);
    norm.name = "bn2";
    yoke_value second = yoke_batch_norm(model, input, &norm);
    yoke_value joined = yoke_relu(model, yoke_add(model, second, first));
    norm.name = "bn3";
    yoke_value twice = yoke_batch_norm(model, joined, &norm);
    yoke_value again = yoke_relu(model, yoke_add(model, twice, twice));
    norm.name = "bn4";
    yoke_value bare = yoke_add(model, again, yoke_batch_norm(model, again, &norm));
    assert_int_equal(
        yoke_model_finish(model, linear(model, yoke_flatten(model, bare), "fc", 2), NULL), YOKE_OK);
    static const struct {
        yoke_operation_kind kind;
        bool add, relu;
    } expected[] = {{YOKE_OP_BATCH_NORM, false, false}, {YOKE_OP_BATCH_NORM, true, true},
                    {YOKE_OP_BATCH_NORM, false, false}, {YOKE_OP_ADD, false, true},
                    {YOKE_OP_BATCH_NORM, false, false}, {YOKE_OP_ADD, false, false}};
    for (int i = 0; i < 6; i++) {
        assert_int_equal(model->nodes[i].operation.kind, expected[i].kind);
        assert_int_equal(model->nodes[i].operation.add, expected[i].add);
        assert_int_equal(model->nodes[i].operation.relu, expected[i].relu);
    }
    const yoke_node *node = &model->nodes[1];
    assert_string_equal(node->operation.name, "bn2");
    assert_int_equal(node->inputs[0], input.index);
    assert_int_equal(node->inputs[1], first.index);
    assert_int_equal(node->output, joined.index);
    yoke_model_destroy(model);
}

/* Several inputs and outputs. */

static const yoke_shape vector = {7, 1, 1, true};

/* fc(flatten(image)) + side(vector); the hidden sum is an output, too. */
static yoke_value two_inputs(yoke_model *model) {
    yoke_value second = yoke_model_add_input(model, "second", vector);
    yoke_value first = linear(model, yoke_flatten(model, yoke_model_input(model)), "fc", 5);
    yoke_value sum = yoke_add(model, first, linear(model, second, "side", 5));
    yoke_model_add_output(model, "sum", sum);
    return linear(model, sum, "head", 3);
}

static void inputs_and_outputs_have_names_and_shapes(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int channels;
        size_t row_count;
    } inputs[] = {{"input", 3, 3 * 32 * 32}, {"second", 7, 7}},
      outputs[] = {{"output", 3, 3}, {"sum", 5, 5}};
    yoke_model *model = new_model(image);
    yoke_value_info info = {.struct_size = sizeof info};
    yoke_value head = two_inputs(model);
    assert_int_equal(yoke_model_describe_output(model, 0, &info), YOKE_ERROR_ARGUMENT);
    assert_says("not finished");
    assert_int_equal(yoke_model_finish(model, head, NULL), YOKE_OK);
    assert_int_equal(yoke_model_input_count(model), 2);
    assert_int_equal(yoke_model_output_count(model), 2);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(yoke_model_describe_input(model, k, &info), YOKE_OK);
        assert_string_equal(info.name, inputs[k].name);
        assert_int_equal(info.shape.channels, inputs[k].channels);
        assert_int_equal(info.row_count, inputs[k].row_count);
        assert_int_equal(yoke_model_describe_output(model, k, &info), YOKE_OK);
        assert_string_equal(info.name, outputs[k].name);
        assert_int_equal(info.shape.channels, outputs[k].channels);
        assert_int_equal(info.row_count, outputs[k].row_count);
    }
    assert_int_equal(yoke_model_describe_input(model, 2, &info), YOKE_ERROR_ARGUMENT);
    assert_says("input 2: model 'm' has 0 to 1");
    assert_int_equal(yoke_model_describe_output(model, -1, &info), YOKE_ERROR_ARGUMENT);
    assert_says("output -1");
    yoke_model_destroy(model);
}

static void inputs_and_outputs_that_cannot_be_are_refused(void **state) {
    (void)state;
    yoke_model *model = new_model(image);
    yoke_model_add_input(model, "unread", vector);
    yoke_value value = linear(model, yoke_flatten(model, yoke_model_input(model)), "fc", 2);
    assert_refused(model, value, WORDS("input 'unread'", "no layer reads it"));

    model = new_model(image);
    value = linear(model, yoke_model_add_input(model, "second", vector), "fc", 2);
    assert_refused(model, value, WORDS("input 'input'", "no layer reads it"));

    model = new_model(image);
    assert_int_equal(yoke_model_add_input(model, "input", vector).index, -1);
    assert_refused(model, value, WORDS("input 'input'", "input 0 has this name"));

    model = new_model(image);
    yoke_model_add_input(model, NULL, vector);
    assert_refused(model, value, WORDS("input 1 has no name"));

    model = new_model(image);
    yoke_model_add_input(model, "flat", (yoke_shape){3, 2, 1, true});
    assert_refused(model, value, WORDS("flat value", "2 x 1"));

    model = new_model(image);
    yoke_model_add_output(model, "output", yoke_model_input(model));
    assert_refused(model, value, WORDS("output 'output'", "output 0 has this name"));

    model = new_model(image);
    yoke_model_add_output(model, "far", (yoke_value){1});
    assert_refused(model, value, WORDS("output 'far'", "value 1", "0 to 0"));

    model = new_model(image);
    assert_int_equal(yoke_model_finish(model, two_inputs(model), NULL), YOKE_OK);
    yoke_model_add_output(model, "late", yoke_model_input(model));
    assert_refused(model, value, WORDS("output 'late'", "finished"));
}

static void a_model_has_so_many_inputs_and_outputs(void **state) {
    (void)state;
    for (int outputs = 0; outputs < 2; outputs++) {
        yoke_model *model = new_model(image);
        yoke_value value = yoke_model_input(model);
        for (int k = 1; k <= YOKE_INPUTS_LIMIT; k++) {
            char name[16];
            snprintf(name, sizeof name, "one%d", k);
            if (outputs == 1)
                yoke_model_add_output(model, name, value);
            else
                yoke_model_add_input(model, name, vector);
        }
        assert_refused(model, value, WORDS("'one8'", "has 8 already"));
    }
}

/* An output that no layer reads on is no unread value, and no ReLU may write over it. */
static void an_output_is_not_fused_away(void **state) {
    (void)state;
    yoke_model *model = new_model(image);
    yoke_value input = yoke_model_input(model), sum = yoke_add(model, input, input);
    yoke_model_add_output(model, "sum", sum);
    yoke_value value = linear(model, yoke_flatten(model, yoke_relu(model, sum)), "fc", 2);
    yoke_model_add_output(model, "last", yoke_relu(model, value));
    assert_int_equal(yoke_model_finish(model, value, NULL), YOKE_OK);
    static const yoke_operation_kind kinds[] = {YOKE_OP_ADD,    YOKE_OP_ACTIVATION, YOKE_OP_FLATTEN,
                                                YOKE_OP_LINEAR, YOKE_OP_ACTIVATION, YOKE_OP_OUTPUT,
                                                YOKE_OP_OUTPUT, YOKE_OP_OUTPUT};
    assert_int_equal(model->node_count, 8);
    for (int i = 0; i < 8; i++)
        assert_int_equal(model->nodes[i].operation.kind, kinds[i]);
    yoke_model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_error_sticks_until_finish),
        cmocka_unit_test(builder_names_layer_and_values),
        cmocka_unit_test(sharing_is_checked),
        cmocka_unit_test(finish_checks_the_whole),
        cmocka_unit_test(inputs_are_checked),
        cmocka_unit_test(relu_joins_what_nobody_else_reads),
        cmocka_unit_test(inputs_and_outputs_have_names_and_shapes),
        cmocka_unit_test(inputs_and_outputs_that_cannot_be_are_refused),
        cmocka_unit_test(a_model_has_so_many_inputs_and_outputs),
        cmocka_unit_test(an_output_is_not_fused_away),
        cmocka_unit_test(batch_norm_joins_a_sum_with_a_relu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
