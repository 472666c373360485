/* SPDX-License-Identifier: Apache-2.0 */
/* The models that fixtures/make_fixtures.py and make_ddp_fixture.py trained, an engine that
 * trains them, and the comparison. Weights and inputs come from a formula that both sides share. */
#ifndef TESTS_PYTORCH_RIG_H
#define TESTS_PYTORCH_RIG_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fixtures/fill.h"
#include "fixtures/fixture.h"
#include "support/devices.h"

#define LOSS_TOLERANCE 1e-5 /* relative; ten steps of float32 */
#define VALUE_TOLERANCE 2e-5
#define MAX_ROWS 8
#define RIG_GROUPS 4

enum { INPUT_STREAM = 1000, TARGET_STREAM = 2000, EVALUATION_STREAM = 3000 };

/* The models, as make_fixtures.py has them. */

static inline yoke_value conv(yoke_model *model, yoke_value input, const char *name,
                              int out_channels, int kernel, int stride) {
    yoke_conv2d_options options = {.struct_size = sizeof options,
                                   .name = name,
                                   .out_channels = out_channels,
                                   .kernel = kernel,
                                   .stride = stride,
                                   .padding = kernel / 2,
                                   .no_bias = true};
    return yoke_conv2d(model, input, &options);
}

static inline yoke_value norm(yoke_model *model, yoke_value input, const char *name) {
    yoke_batch_norm_options options = {
        .struct_size = sizeof options, .name = name, .epsilon = 1e-5, .momentum = 0.1};
    return yoke_batch_norm(model, input, &options);
}

static inline yoke_value linear(yoke_model *model, yoke_value input, const char *name,
                                int out_features, const char *shared_with) {
    yoke_linear_options options = {.struct_size = sizeof options,
                                   .name = name,
                                   .out_features = out_features,
                                   .shared_with = shared_with};
    return yoke_linear(model, input, &options);
}

static inline yoke_value build_convnet(yoke_model *model) {
    yoke_conv2d_options first = {
        .struct_size = sizeof first, .name = "conv1", .out_channels = 8, .kernel = 3, .padding = 1};
    yoke_conv2d_options second = {.struct_size = sizeof second,
                                  .name = "conv2",
                                  .out_channels = 12,
                                  .kernel = 3,
                                  .stride = 2,
                                  .padding = 1,
                                  .groups = 2,
                                  .no_bias = true};
    yoke_pool_options half = {.struct_size = sizeof half, .kernel = 2};
    yoke_pool_options padded = {
        .struct_size = sizeof padded, .kernel = 2, .stride = 1, .padding = 1};
    yoke_value value = yoke_conv2d(model, yoke_model_input(model), &first);
    value = yoke_max_pool(model, yoke_relu(model, value), &half);
    value = yoke_relu(model, yoke_conv2d(model, value, &second));
    value = yoke_average_pool(model, value, &padded);
    return linear(model, yoke_flatten(model, value), "fc", 5, NULL);
}

static inline yoke_value build_gates(yoke_model *model) {
    yoke_conv2d_options conv1 = {
        .struct_size = sizeof conv1, .name = "conv1", .out_channels = 8, .kernel = 3, .padding = 1};
    yoke_layer_norm_options ln1 = {.struct_size = sizeof ln1, .name = "ln1", .epsilon = 1e-6};
    yoke_layer_norm_options ln2 = {.struct_size = sizeof ln2, .name = "ln2", .epsilon = 1e-5};
    yoke_value x = yoke_silu(model, yoke_conv2d(model, yoke_model_input(model), &conv1));
    x = linear(model, yoke_sequence(model, yoke_relu6(model, x)), "fc1", 12, NULL);
    x = yoke_gelu(model, yoke_layer_norm(model, x, &ln1));
    yoke_value gate = yoke_softmax(model, linear(model, x, "fc2", 12, NULL));
    gate = yoke_multiply(model, gate, yoke_sigmoid(model, linear(model, x, "fc3", 12, NULL)));
    x = yoke_concat(model, gate, yoke_gelu_tanh(model, x));
    x = yoke_flatten(model, yoke_tanh(model, linear(model, x, "fc4", 4, NULL)));
    return linear(model, yoke_layer_norm(model, x, &ln2), "fc5", 5, NULL);
}

static inline yoke_value build_windows(yoke_model *model) {
    yoke_conv2d_options first = {.struct_size = sizeof first,
                                 .name = "conv1",
                                 .out_channels = 12,
                                 .kernel = 3,
                                 .stride = 2,
                                 .padding = 3,
                                 .dilation = 3};
    yoke_conv2d_options second = {.struct_size = sizeof second,
                                  .name = "conv2",
                                  .out_channels = 12,
                                  .kernel = 3,
                                  .padding = 2,
                                  .dilation = 2,
                                  .groups = 12,
                                  .no_bias = true};
    yoke_value value = yoke_relu(model, yoke_conv2d(model, yoke_model_input(model), &first));
    value = yoke_adaptive_average_pool(model, value, 4, 7);
    value = yoke_relu(model, yoke_conv2d(model, value, &second));
    value = yoke_adaptive_average_pool(model, value, 3, 2);
    return linear(model, yoke_flatten(model, value), "fc", 5, NULL);
}

static inline yoke_value one_by_one(yoke_model *model, yoke_value value, const char *name,
                                    int channels) {
    yoke_conv2d_options options = {
        .struct_size = sizeof options, .name = name, .out_channels = channels, .kernel = 1};
    return yoke_conv2d(model, value, &options);
}

static inline yoke_value build_excitation(yoke_model *model) {
    yoke_conv2d_options conv1 = {.struct_size = sizeof conv1,
                                 .name = "conv1",
                                 .out_channels = 16,
                                 .kernel = 3,
                                 .padding = 1};
    yoke_conv2d_options conv2 = conv1;
    conv2.name = "conv2";
    conv2.out_channels = 10;
    yoke_value x = yoke_silu(model, yoke_conv2d(model, yoke_model_input(model), &conv1));
    yoke_value scale = one_by_one(model, yoke_global_average_pool(model, x), "squeeze1", 4);
    scale = yoke_sigmoid(model, one_by_one(model, yoke_relu(model, scale), "excite1", 16));
    x = yoke_relu(model, yoke_conv2d(model, yoke_multiply(model, scale, x), &conv2));
    scale = one_by_one(model, yoke_global_average_pool(model, x), "excite2", 10);
    x = yoke_multiply(model, x, yoke_sigmoid(model, scale));
    return linear(model, yoke_flatten(model, x), "fc", 5, NULL);
}

static inline yoke_value build_resnet(yoke_model *model) {
    yoke_value value = conv(model, yoke_model_input(model), "conv1", 8, 3, 1);
    yoke_value shortcut = yoke_relu(model, norm(model, value, "bn1"));
    value = conv(model, shortcut, "layer1.0.conv1", 8, 3, 1);
    value = yoke_relu(model, norm(model, value, "layer1.0.bn1"));
    value = norm(model, conv(model, value, "layer1.0.conv2", 8, 3, 1), "layer1.0.bn2");
    shortcut = yoke_relu(model, yoke_add(model, value, shortcut));
    value = conv(model, shortcut, "layer2.0.conv1", 16, 3, 2);
    value = yoke_relu(model, norm(model, value, "layer2.0.bn1"));
    value = norm(model, conv(model, value, "layer2.0.conv2", 16, 3, 1), "layer2.0.bn2");
    shortcut = norm(model, conv(model, shortcut, "layer2.0.downsample.0", 16, 1, 2),
                    "layer2.0.downsample.1");
    value = yoke_relu(model, yoke_add(model, value, shortcut));
    value = yoke_flatten(model, yoke_global_average_pool(model, value));
    return linear(model, value, "fc", 5, NULL);
}

static inline yoke_value build_mlp(yoke_model *model) {
    yoke_value value = yoke_flatten(model, yoke_model_input(model));
    value = yoke_relu(model, linear(model, value, "fc1", 16, NULL));
    value = yoke_relu(model, linear(model, value, "fc2", 16, NULL));
    value = yoke_relu(model, linear(model, value, "fc2_again", 16, "fc2"));
    return linear(model, value, "fc3", 3, NULL);
}

typedef struct subject_model {
    const char *name;
    yoke_shape input;
    int classes; /* 0: regression on 3 targets */
    yoke_value (*build)(yoke_model *model);
    const char *preset; /* instead of build */
} subject_model;

static const subject_model convnet = {
    "convnet", {.channels = 3, .height = 12, .width = 12}, 5, build_convnet};
static const subject_model optimizers = {
    "optimizers", {.channels = 3, .height = 12, .width = 12}, 5, build_convnet};
static const subject_model gates = {
    "gates", {.channels = 3, .height = 5, .width = 4}, 5, build_gates};
static const subject_model excitation = {
    "excitation", {.channels = 3, .height = 6, .width = 5}, 5, build_excitation};
static const subject_model windows = {
    "windows", {.channels = 3, .height = 12, .width = 12}, 5, build_windows};
static const subject_model resnet = {
    "resnet", {.channels = 3, .height = 8, .width = 8}, 5, build_resnet};
static const subject_model vit = {"vit",
                                  {.channels = 3, .height = 12, .width = 12},
                                  5,
                                  NULL,
                                  "vit_tiny:layers=2,width=24,heads=3"};
static const subject_model airbench = {
    "airbench", {.channels = 3, .height = 32, .width = 32}, 5, NULL, "airbench94:width=4"};
static const subject_model mlp = {"mlp", {.channels = 1, .height = 4, .width = 5}, 0, build_mlp};

/* One case on one engine. */

typedef struct test_rig {
    const subject_model *subject;
    yoke_model *model;
    yoke_devices *devices;
    yoke_data_parallel *parallel;
    float inputs[MAX_ROWS * 3 * 32 * 32], targets[MAX_ROWS * 3];
    int32_t labels[MAX_ROWS];
    float weights[5]; /* of the loss */
} test_rig;

/* The defaults of the case's kind, which are PyTorch's, and what the case sets. */
static inline yoke_optimizer_options optimizer_of(const json_t *test_case) {
    static const yoke_optimizer_options kinds[] = {
        YOKE_SGD_OPTIONS_INIT,     YOKE_ADAMW_OPTIONS_INIT, YOKE_ADAM_OPTIONS_INIT,
        YOKE_RMSPROP_OPTIONS_INIT, YOKE_LION_OPTIONS_INIT,  YOKE_ADAGRAD_OPTIONS_INIT,
        YOKE_LAMB_OPTIONS_INIT,    YOKE_MUON_OPTIONS_INIT,  YOKE_MUON_FILTERS_OPTIONS_INIT};
    const json_t *given = json_object_get(test_case, "optimizer");
    const char *kind = json_string_value(json_object_get(given, "kind"));
    int found = 0;
    while (strcmp(yoke_optimizer_name((yoke_optimizer_kind)found), kind) != 0)
        found++;
    yoke_optimizer_options optimizer = kinds[found];
    optimizer.learning_rate = real(given, "learning_rate");
    optimizer.momentum = real(given, "momentum");
    optimizer.nesterov = truth(given, "nesterov");
    optimizer.weight_decay = real(given, "weight_decay");
    if (json_object_get(given, "alpha") != NULL) optimizer.alpha = real(given, "alpha");
    optimizer.clip_norm = real(test_case, "clip_norm");
    return optimizer;
}

/* groups[RIG_GROUPS]; their patterns are the fixture's. Returns how many. */
static inline int groups_of(const json_t *test_case, yoke_parameter_group *groups) {
    static const yoke_parameter_group none = YOKE_PARAMETER_GROUP_INIT;
    size_t count;
    const json_t *given;
    json_array_foreach(json_object_get(test_case, "groups"), count, given) {
        assert_in_range(count, 0, RIG_GROUPS - 1);
        groups[count] = none;
        groups[count].pattern = json_string_value(json_object_get(given, "pattern"));
        groups[count].frozen = truth(given, "frozen");
        groups[count].set_weight_decay = json_object_get(given, "weight_decay") != NULL;
        groups[count].weight_decay = real(given, "weight_decay");
        groups[count].momentum = real(given, "momentum");
        groups[count].steps = (uint64_t)integer(given, "steps");
        if (json_object_get(given, "learning_rate_scale") != NULL)
            groups[count].learning_rate_scale = real(given, "learning_rate_scale");
    }
    return (int)count;
}

static inline void write_weights(const test_rig *rig, const json_t *tensors) {
    size_t index;
    const json_t *tensor;
    json_array_foreach(tensors, index, tensor) {
        const char *name = json_string_value(json_object_get(tensor, "name"));
        yoke_tensor_info info = {.struct_size = sizeof info};
        for (int i = 0; i < yoke_model_tensor_count(rig->model); i++) {
            must(yoke_model_tensor(rig->model, i, &info));
            if (strcmp(info.name, name) == 0) break;
        }
        assert_string_equal(info.name, name);
        float *values = malloc(info.count * sizeof *values);
        assert_non_null(values);
        fill(values, info.count, (uint32_t)index, real(tensor, "scale"), real(tensor, "offset"));
        must(yoke_data_parallel_write(rig->parallel, name, values, info.count));
        free(values);
    }
}

/* weights[5]; returns NULL where the case has none of this name. */
static inline const float *weights_of(const json_t *given, const char *name, float *weights,
                                      int *count) {
    const json_t *values = json_object_get(given, name);
    if (values == NULL) return NULL;
    *count = (int)json_array_size(values);
    assert_in_range(*count, 1, 5);
    for (int i = 0; i < *count; i++)
        weights[i] = (float)real_at(given, name, (size_t)i);
    return weights;
}

static inline yoke_loss_options loss_of(test_rig *rig, const json_t *test_case) {
    static const char *const kinds[] = {"cross_entropy", "mse", "bce", "huber"};
    const json_t *given = json_object_get(test_case, "loss");
    yoke_loss_options loss = YOKE_LOSS_OPTIONS_INIT;
    loss.kind = rig->subject->classes ? YOKE_LOSS_CROSS_ENTROPY : YOKE_LOSS_MSE;
    loss.label_smoothing = real(given != NULL ? given : test_case, "label_smoothing");
    if (given == NULL) return loss;
    for (int kind = 0; kind < 4; kind++)
        if (strcmp(kinds[kind], json_string_value(json_object_get(given, "kind"))) == 0)
            loss.kind = (yoke_loss_kind)kind;
    loss.class_weights = weights_of(given, "class_weights", rig->weights, &loss.weight_count);
    loss.positive_weights = weights_of(given, "positive_weights", rig->weights, &loss.weight_count);
    loss.set_ignore_index = json_object_get(given, "ignore_index") != NULL;
    if (loss.set_ignore_index) loss.ignore_index = integer(given, "ignore_index");
    loss.huber_delta = real(given, "huber_delta");
    return loss;
}

static inline void build_model(test_rig *rig, const yoke_loss_options *loss) {
    const subject_model *subject = rig->subject;
    if (subject->preset != NULL) {
        must(yoke_model_preset(&rig->model, subject->preset, subject->input, subject->classes,
                               loss));
        return;
    }
    must(yoke_model_create(&rig->model, subject->name, subject->input));
    must(yoke_model_finish(rig->model, subject->build(rig->model), loss));
}

static inline void open_engine(test_rig *rig, const json_t *tensors, const json_t *test_case,
                               const char *list, yoke_data_parallel_options options) {
    yoke_devices_options devices = {
        .struct_size = sizeof devices, .list = list, .threads = 1, .unbound = true};
    must(yoke_devices_open(&rig->devices, &devices));
    yoke_loss_options loss = loss_of(rig, test_case);
    build_model(rig, &loss);
    yoke_optimizer_options optimizer = optimizer_of(test_case);
    options.struct_size = sizeof options;
    options.algorithm = YOKE_ALGORITHM_DIRECT;
    options.batch = MAX_ROWS;
    options.first_bucket_bytes = 4096;
    options.bucket_bytes = 8192;
    yoke_parameter_group groups[RIG_GROUPS];
    options.groups = groups;
    options.group_count = groups_of(test_case, groups);
    must(yoke_data_parallel_create(&rig->parallel, rig->model, rig->devices, &optimizer, &options));
    write_weights(rig, tensors);
}

static inline void close_engine(test_rig *rig) {
    yoke_data_parallel_destroy(rig->parallel);
    yoke_devices_close(rig->devices);
    yoke_model_destroy(rig->model);
}

static inline yoke_batch make_batch(test_rig *rig, int rows, uint32_t stream) {
    const subject_model *subject = rig->subject;
    size_t pixels =
        (size_t)(subject->input.channels * subject->input.height * subject->input.width);
    fill(rig->inputs, (size_t)rows * pixels, INPUT_STREAM + stream, 1, 0);
    fill(rig->targets, (size_t)rows * 3, TARGET_STREAM + stream, 1, 0);
    for (int row = 0; row < rows && subject->classes > 0; row++)
        rig->labels[row] = (7 * row + (int)stream) % subject->classes;
    return (yoke_batch){.struct_size = sizeof(yoke_batch),
                        .rows = rows,
                        .inputs = rig->inputs,
                        .labels = subject->classes > 0 ? rig->labels : NULL,
                        .targets = subject->classes > 0 ? NULL : rig->targets};
}

typedef yoke_status (*reader)(yoke_data_parallel *parallel, const char *name, float *values,
                              size_t count);

/* values[count] at the entries of the fixture; the tolerance is relative to the largest value, or
 * to `floor` if that is larger. */
static inline void compare_values(const float *values, size_t count, const json_t *entries,
                                  double tolerance, double floor, const char *name) {
    for (size_t i = 0; i < count; i++)
        floor = fmax(floor, fabs((double)values[i]));
    size_t i;
    const json_t *entry;
    json_array_foreach(entries, i, entry) {
        size_t at = (size_t)json_integer_value(json_array_get(entry, 0));
        assert_in_range(at, 0, count - 1);
        near((double)values[at], json_number_value(json_array_get(entry, 1)), tolerance, floor,
             name);
    }
}

/* Every tensor of `wanted`, at the entries it has, against what `read` gives. */
static inline void compare_tensors_within(const test_rig *rig, json_t *wanted, reader read,
                                          double tolerance, double floor) {
    for (int i = 0; i < yoke_model_tensor_count(rig->model); i++) {
        yoke_tensor_info info = {.struct_size = sizeof info};
        must(yoke_model_tensor(rig->model, i, &info));
        const json_t *entries = json_object_get(wanted, info.name);
        if (entries == NULL) continue;
        float *values = malloc(info.count * sizeof *values);
        assert_non_null(values);
        must(read(rig->parallel, info.name, values, info.count));
        compare_values(values, info.count, entries, tolerance, floor, info.name);
        free(values);
    }
}

static inline void compare_tensors(const test_rig *rig, json_t *wanted, reader read) {
    compare_tensors_within(rig, wanted, read, VALUE_TOLERANCE, 0);
}

/* torch.chunk's part of a batch; the engine counts the whole by itself. */
static inline yoke_batch pytorch_part_of(const test_rig *rig, yoke_batch batch, int world,
                                         int rank) {
    const yoke_shape *shape = &rig->subject->input;
    yoke_chunk part = yoke_chunk_of(batch.rows, world, rank);
    batch.rows = part.rows;
    batch.inputs += part.first * shape->channels * shape->height * shape->width;
    if (batch.labels != NULL) batch.labels += part.first;
    if (batch.mixes != NULL) batch.mixes += part.first;
    if (batch.targets != NULL) batch.targets += 3 * part.first;
    return batch;
}

#endif
