/* SPDX-License-Identifier: Apache-2.0 */
/* Small networks for the tests of replicas. */
#ifndef TESTS_NETWORKS_H
#define TESTS_NETWORKS_H

#include "replica_rig.h"
#include "yoke/convolution.h"
#include "yoke/transformer.h"

static inline yoke_value conv(yoke_model *model, yoke_value input, const char *name, int channels,
                              const char *shared_with) {
    yoke_conv2d_options options = {.struct_size = sizeof options,
                                   .name = name,
                                   .out_channels = channels,
                                   .kernel = 3,
                                   .padding = 1,
                                   .no_bias = true,
                                   .shared_with = shared_with};
    return yoke_conv2d(model, input, &options);
}

static inline yoke_value norm(yoke_model *model, yoke_value input, const char *name) {
    yoke_batch_norm_options options = {
        .struct_size = sizeof options, .name = name, .epsilon = 1e-5, .momentum = 0.1};
    return yoke_batch_norm(model, input, &options);
}

static inline yoke_value linear(yoke_model *model, yoke_value input, const char *name, int features,
                                const char *shared_with) {
    yoke_linear_options options = {.struct_size = sizeof options,
                                   .name = name,
                                   .out_features = features,
                                   .shared_with = shared_with};
    return yoke_linear(model, input, &options);
}

static inline yoke_value pooled(yoke_model *model, yoke_value value) {
    yoke_pool_options max = {.struct_size = sizeof max, .kernel = 3, .stride = 2, .padding = 1};
    yoke_pool_options average = {
        .struct_size = sizeof average, .kernel = 2, .stride = 1, .padding = 1};
    return yoke_average_pool(model, yoke_max_pool(model, value, &max), &average);
}

/* Every kind of layer; values with one, two and three readers; parameters with two users. */
static inline yoke_model *everything(const yoke_loss_options *loss) {
    yoke_model *model = NULL;
    assert_ok(yoke_model_create(&model, "everything", (yoke_shape){4, 9, 9, false}));
    yoke_conv2d_options stem = {.struct_size = sizeof stem,
                                .name = "stem",
                                .out_channels = 12,
                                .kernel = 3,
                                .stride = 1,
                                .padding = 1,
                                .groups = 2};
    yoke_value a =
        yoke_relu(model, norm(model, yoke_conv2d(model, yoke_model_input(model), &stem), "bn1"));
    yoke_value b = conv(model, conv(model, a, "twice", 12, NULL), "again", 12, "twice");
    b = yoke_relu(model, yoke_add(model, norm(model, b, "bn2"), a));
    yoke_value c = pooled(model, b);
    yoke_value d = yoke_dropout(model, yoke_relu(model, c), 0.3);
    yoke_value e = yoke_add(model, d, conv(model, d, "three", 12, NULL)); /* d: three readers */
    e = yoke_add(model, yoke_relu(model, e), d);
    e = yoke_add(model, e, e);
    yoke_value f = yoke_flatten(model, yoke_global_average_pool(model, e));
    f = yoke_relu(model, norm(model, linear(model, f, "fc1", 12, NULL), "bn3"));
    f = linear(model, f, "fc1b", 12, "fc1");
    f = linear(model, yoke_dropout(model, f, 0.25), "fc2", 7, NULL);
    assert_ok(yoke_model_finish(model, f, loss));
    return model;
}

static inline yoke_value layer_norm(yoke_model *model, yoke_value input, const char *name) {
    yoke_layer_norm_options options = {
        .struct_size = sizeof options, .name = name, .epsilon = 1e-5};
    return yoke_layer_norm(model, input, &options);
}

/* What works on the channels of each position: of a sequence and of a flat value. */
static inline yoke_model *over_channels(const yoke_loss_options *loss) {
    yoke_model *model = NULL;
    assert_ok(yoke_model_create(&model, "over channels", (yoke_shape){5, 4, 3, false}));
    yoke_value a = linear(model, yoke_sequence(model, yoke_model_input(model)), "fc1", 11, NULL);
    a = yoke_add(model, linear(model, layer_norm(model, a, "ln1"), "fc2", 11, NULL), a);
    yoke_value gate = yoke_softmax(model, linear(model, a, "gate", 11, NULL));
    a = yoke_concat(model, yoke_multiply(model, gate, layer_norm(model, a, "ln2")), gate);
    a = yoke_multiply(model, a, a);
    a = layer_norm(model, linear(model, yoke_flatten(model, a), "fc3", 9, NULL), "ln3");
    a = yoke_concat(model, a, yoke_softmax(model, a));
    assert_ok(yoke_model_finish(model, linear(model, a, "fc4", 7, NULL), loss));
    return model;
}

/* Every activation: of an image, of a sequence and of a flat value. */
static inline yoke_model *activations(const yoke_loss_options *loss) {
    yoke_model *model = NULL;
    assert_ok(yoke_model_create(&model, "activations", (yoke_shape){5, 4, 3, false}));
    yoke_value a = conv(model, yoke_model_input(model), "conv1", 6, NULL);
    a = yoke_relu6(model, conv(model, yoke_silu(model, a), "conv2", 6, NULL));
    a = yoke_sigmoid(model, conv(model, a, "conv3", 6, NULL));
    yoke_value b = yoke_gelu(model, linear(model, yoke_sequence(model, a), "token1", 9, NULL));
    b = yoke_gelu_tanh(model, linear(model, b, "token2", 9, NULL));
    b = yoke_tanh(model, linear(model, yoke_flatten(model, b), "fc1", 8, NULL));
    b = yoke_gelu(model, linear(model, yoke_relu(model, b), "fc2", 8, NULL));
    assert_ok(yoke_model_finish(model, linear(model, b, "fc3", 7, NULL), loss));
    return model;
}

/* Images of channels that blocks divide and of others, joined and multiplied. */
static inline yoke_model *joined(const yoke_loss_options *loss) {
    yoke_model *model = NULL;
    assert_ok(yoke_model_create(&model, "joined", (yoke_shape){3, 5, 4, false}));
    yoke_value input = yoke_model_input(model);
    yoke_value a = conv(model, input, "conv1", 16, NULL), b = conv(model, input, "conv2", 32, NULL);
    a = yoke_concat(model, yoke_concat(model, a, b), yoke_concat(model, input, a));
    a = yoke_multiply(model, conv(model, a, "conv3", 3, NULL), input);
    a = yoke_multiply(model, input, yoke_relu(model, a));
    yoke_value pool = yoke_global_average_pool(model, input);
    yoke_value factors = yoke_sigmoid(model, conv(model, pool, "excite1", 3, NULL));
    a = yoke_multiply(model, factors, a); /* a factor for each channel, on the left */
    factors = yoke_sigmoid(model, conv(model, pool, "excite2", 32, NULL));
    a = yoke_concat(model, a, yoke_multiply(model, b, factors));
    a = linear(model, yoke_flatten(model, yoke_concat(model, a, a)), "fc", 7, NULL);
    assert_ok(yoke_model_finish(model, a, loss));
    return model;
}

/* An image as a sequence: products at its positions, joins, dropout, then flat. */
static inline yoke_model *sequence(const yoke_loss_options *loss) {
    yoke_model *model = NULL;
    assert_ok(yoke_model_create(&model, "sequence", (yoke_shape){6, 3, 5, false}));
    yoke_value image = yoke_model_input(model);
    yoke_value a = yoke_sequence(model, conv(model, image, "stem", 12, NULL));
    yoke_value b = yoke_relu(model, linear(model, a, "first", 12, NULL));
    b = yoke_dropout(model, yoke_add(model, b, a), 0.3);
    b = yoke_relu(model, yoke_add(model, a, linear(model, b, "again", 12, "first")));
    b = linear(model, b, "narrow", 6, NULL);
    b = yoke_add(model, b, yoke_sequence(model, image));
    b = linear(model, yoke_flatten(model, b), "head", 7, NULL);
    assert_ok(yoke_model_finish(model, b, loss));
    return model;
}

/* Embeddings, weights that are stored [in, out], and a head that is tied to an embedding; with a
 * loss at every position, or of the whole. */
static inline yoke_model *tokens(const yoke_loss_options *loss, bool at_positions) {
    yoke_model *model = NULL;
    assert_ok(yoke_model_create(&model, "tokens", (yoke_shape){9, 1, 1, true}));
    yoke_embedding_options words = YOKE_EMBEDDING_OPTIONS_INIT, places = words;
    words.name = "wte", words.count = 11, words.features = 20;
    places.name = "wpe", places.count = 12;
    yoke_linear_options wide = YOKE_LINEAR_OPTIONS_INIT, narrow = wide, tied = wide;
    wide.name = "wide", wide.out_features = 24, wide.transposed = true, wide.std = 0.2;
    narrow.name = "narrow", narrow.out_features = 20, narrow.transposed = true;
    tied.name = "lm_head", tied.out_features = 11, tied.shared_with = "wte", tied.no_bias = true;
    yoke_value a = yoke_embedding(model, yoke_model_input(model), &words);
    a = yoke_positional_embedding(model, a, &places);
    yoke_value b = yoke_linear(model, yoke_relu(model, yoke_linear(model, a, &wide)), &narrow);
    b = yoke_linear(model, yoke_add(model, a, b), &tied);
    if (!at_positions) b = linear(model, yoke_flatten(model, b), "fc", 7, NULL);
    assert_ok(yoke_model_finish(model, b, loss));
    return model;
}

/* Dilated, strided and depthwise convolutions, and adaptive windows of several sizes. */
static inline yoke_model *windows(const yoke_loss_options *loss) {
    yoke_model *model = NULL;
    assert_ok(yoke_model_create(&model, "windows", (yoke_shape){4, 9, 9, false}));
    yoke_conv2d_options stem = {.struct_size = sizeof stem,
                                .name = "stem",
                                .out_channels = 12,
                                .kernel = 3,
                                .stride = 2,
                                .padding = 3,
                                .dilation = 3};
    yoke_conv2d_options depthwise = {.struct_size = sizeof depthwise,
                                     .name = "depthwise",
                                     .out_channels = 12,
                                     .kernel = 3,
                                     .padding = 2,
                                     .groups = 12,
                                     .no_bias = true,
                                     .dilation = 2};
    yoke_value value = yoke_conv2d(model, yoke_model_input(model), &stem);
    value = yoke_adaptive_average_pool(model, yoke_relu(model, value), 4, 7);
    value = yoke_adaptive_average_pool(model, yoke_conv2d(model, value, &depthwise), 3, 2);
    value = linear(model, yoke_flatten(model, value), "fc", 7, NULL);
    assert_ok(yoke_model_finish(model, value, loss));
    return model;
}

/* Rectangular windows before a batch norm and its ReLU, transposed ones, pixels from channels and
 * back, then the positions of a sequence. */
static inline yoke_model *convolutions(const yoke_loss_options *loss) {
    yoke_model *model = NULL;
    assert_ok(yoke_model_create(&model, "convolutions", (yoke_shape){4, 5, 6, false}));
    yoke_conv2d_options wide = {.struct_size = sizeof wide,
                                .name = "wide",
                                .out_channels = 12,
                                .kernel = 3,
                                .padding = 1,
                                .groups = 2,
                                .kernel_width = 5,
                                .stride_width = 2,
                                .padding_width = 3,
                                .no_bias = true};
    yoke_conv_transpose2d_options up = {.struct_size = sizeof up,
                                        .name = "up",
                                        .out_channels = 8,
                                        .kernel = 3,
                                        .stride = 2,
                                        .padding = 1,
                                        .output_padding = 1,
                                        .groups = 2,
                                        .kernel_width = 2,
                                        .stride_width = 1};
    yoke_conv1d_options line = {
        .struct_size = sizeof line, .name = "line", .out_channels = 6, .kernel = 3, .padding = 1};
    yoke_value value = yoke_conv2d(model, yoke_model_input(model), &wide); /* 12 x 5 x 4 */
    value = yoke_relu(model, norm(model, value, "norm"));
    value = yoke_conv_transpose2d(model, value, &up); /* 8 x 10 x 5 */
    value = yoke_pixel_shuffle(model, value, 2);      /* 2 x 20 x 10 */
    up.name = "up2", up.groups = 1, up.out_channels = 3;
    value = yoke_conv_transpose2d(model, yoke_pixel_unshuffle(model, value, 10), &up);
    value = yoke_sequence(model, yoke_tanh(model, value)); /* 4 * 2 positions of 3 */
    value = yoke_conv1d(model, value, &line);
    line.name = "again", line.stride = 3, line.dilation = 2, line.groups = 3;
    value = yoke_conv1d(model, value, &line);
    value = linear(model, yoke_flatten(model, value), "fc", 7, NULL);
    assert_ok(yoke_model_finish(model, value, loss));
    return model;
}

static inline yoke_value attend(yoke_model *model, yoke_value input, int heads, bool causal) {
    yoke_attention_options options = {
        .struct_size = sizeof options, .heads = heads, .causal = causal};
    return yoke_attention(model, input, &options);
}

/* Attention over more positions than one tile has, causal and not, of an image's pixels; then a
 * class token, and two positions. */
static inline yoke_model *attention(const yoke_loss_options *loss) {
    yoke_model *model = NULL;
    assert_ok(yoke_model_create(&model, "attention", (yoke_shape){4, 7, 10, false}));
    yoke_value a = yoke_sequence(model, yoke_model_input(model)); /* chained, scores are steep */
    yoke_value b = attend(model, linear(model, a, "first", 18, NULL), 2, true);
    yoke_value c = attend(model, linear(model, a, "second", 18, NULL), 1, false);
    yoke_value d = attend(model, linear(model, a, "third", 9, NULL), 3, true);
    b = yoke_add(model, yoke_add(model, b, c), linear(model, d, "wide", 6, NULL));
    b = yoke_class_token(model, b, "token");
    c = yoke_add(model, yoke_select(model, b, 0), yoke_select(model, b, 70));
    b = linear(model, yoke_flatten(model, b), "head", 5, NULL);
    b = yoke_add(model, b, linear(model, c, "side", 5, NULL));
    assert_ok(yoke_model_finish(model, b, loss));
    return model;
}

static inline yoke_model *resnet20(int size) {
    yoke_model *model = NULL;
    assert_ok(yoke_model_preset(&model, "resnet20", (yoke_shape){3, size, size, false}, 10, NULL));
    return model;
}

/* A random list of layers over one shape: each reads any earlier value, so values get any number of
 * readers in any order; the last layer sums up all that nobody has read. Value 0 is a convolution,
 * or the model's own input. `several`: two more inputs are among the values, and every third value
 * is an output, whether layers read it or not. */
static inline yoke_model *random_graph(uint32_t seed, bool from_input, bool several) {
    yoke_model *model = NULL;
    assert_ok(yoke_model_create(&model, "random", (yoke_shape){8, 4, 4, false}));
    yoke_value values[32];
    bool read[32] = {false};
    int count = 1, layers = 6 + (int)(seed % 15);
    values[0] = conv(model, yoke_model_input(model), "first", 8, NULL);
    if (from_input) {
        values[count++] = values[0];
        values[0] = yoke_model_input(model);
        read[0] = true;
    }
    for (int k = 0; several && k < 2; k++)
        values[count++] =
            yoke_model_add_input(model, k == 0 ? "second" : "third", (yoke_shape){8, 4, 4, false});
    for (int i = 0; i < layers; i++) {
        uint32_t words[4];
        char name[32];
        snprintf(name, sizeof name, "layer%d", i);
        yoke_random_words(seed, YOKE_RANDOM_PROBE, (uint64_t)i, 0, 0, words);
        int left = (int)(words[1] % (uint32_t)count), right = (int)(words[2] % (uint32_t)count);
        yoke_value input = values[left];
        read[left] = true;
        switch (words[0] % 9) {
        case 0:
            values[count] = conv(model, input, name, 8, NULL);
            break;
        case 1:
            values[count] = conv(model, input, name, 8, "first");
            break;
        case 2:
            values[count] = norm(model, input, name);
            break;
        case 3:
            values[count] = yoke_relu(model, input);
            break;
        case 4:
            values[count] = yoke_dropout(model, input, 0.2);
            break;
        default:
            values[count] = yoke_add(model, input, values[right]);
            read[right] = true;
        }
        count++;
        if (!several || i % 3 != 0) continue;
        yoke_model_add_output(model, name, values[count - 1]);
        read[count - 1] = words[3] % 2 == 0; /* perhaps by no other layer */
    }
    yoke_value sum = values[count - 1];
    for (int i = 0; i < count - 1; i++)
        if (!read[i]) sum = yoke_add(model, sum, values[i]);
    sum = yoke_flatten(model, sum);
    assert_ok(yoke_model_finish(model, linear(model, sum, "fc", 3, NULL), NULL));
    return model;
}

#endif
