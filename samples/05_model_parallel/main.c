/* SPDX-License-Identifier: Apache-2.0 */
/* One model on two devices, the first half here, the second there: values cross on the way forward,
 * their gradients on the way back. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <yoke/yoke.h>

enum { SIDE = 16, HALF = SIDE / 2, CHANNELS = 16, MIDDLE = CHANNELS * HALF * HALF, BATCH = 40 };

static void must(yoke_status status) {
    if (status == YOKE_OK) return;
    fprintf(stderr, "%s\n", yoke_last_error());
    exit(yoke_status_exit_code(status));
}

static yoke_value block(yoke_model *model, yoke_value value, const char *name) {
    yoke_conv2d_options conv = {
        .struct_size = sizeof conv, .name = name, .kernel = 3, .no_bias = true};
    yoke_pool_options half = {.struct_size = sizeof half, .kernel = 2};
    conv.out_channels = CHANNELS;
    conv.padding = 1;
    return yoke_max_pool(model, yoke_relu(model, yoke_conv2d(model, value, &conv)), &half);
}

/* conv1 | conv2, fc: one half, or both in one. */
static yoke_model *build_model(bool first, bool second) {
    yoke_shape picture = {.channels = 3, .height = SIDE, .width = SIDE};
    yoke_shape middle = {.channels = CHANNELS, .height = HALF, .width = HALF};
    yoke_linear_options fc = {.struct_size = sizeof fc, .name = "fc", .out_features = 4};
    yoke_model *model = NULL;
    must(yoke_model_create(&model, "part", first ? picture : middle));
    yoke_value value = yoke_model_input(model);
    if (first) value = block(model, value, "conv1");
    if (second) value = block(model, value, "conv2");
    value = yoke_flatten(model, value);
    if (second) value = yoke_linear(model, value, &fc);
    must(yoke_model_finish(model, value, NULL));
    return model;
}

typedef struct part {
    yoke_model *model;
    yoke_devices *devices;
    yoke_data_parallel *engine;
} part;

static part open_part(yoke_model *model, const char *list, int half) {
    part made = {.model = model};
    yoke_devices_options one = {
        .struct_size = sizeof one, .list = list, .local_rank = half, .local_world = 2};
    yoke_optimizer_options sgd = YOKE_SGD_OPTIONS_INIT;
    yoke_data_parallel_options options = {
        .struct_size = sizeof options, .batch = BATCH, .algorithm = YOKE_ALGORITHM_DIRECT};
    options.input_gradients = half == 1;
    sgd.learning_rate = 0.02;
    sgd.momentum = 0.9;
    must(yoke_devices_open(&made.devices, &one));
    must(yoke_data_parallel_create(&made.engine, model, made.devices, &sgd, &options));
    return made;
}

static void copy_weights(const part *from, const part *to) {
    static float values[CHANNELS * CHANNELS * HALF * HALF];
    yoke_tensor_info tensor = {.struct_size = sizeof tensor};
    for (int i = 0; i < yoke_model_tensor_count(to->model); i++) {
        must(yoke_model_tensor(to->model, i, &tensor));
        must(yoke_data_parallel_read(from->engine, tensor.name, values, tensor.count));
        must(yoke_data_parallel_write(to->engine, tensor.name, values, tensor.count));
    }
}

/* Inputs go to the first half, labels to the second. */
static double step(const part *first, const part *second, const yoke_batch *batch) {
    static float values[BATCH * MIDDLE], gradients[BATCH * MIDDLE];
    yoke_step_result result = {.struct_size = sizeof result};
    yoke_batch middle = {.struct_size = sizeof middle, .rows = batch->rows, .inputs = values};
    middle.labels = batch->labels;
    must(yoke_data_parallel_forward(first->engine, batch, true, values));
    must(yoke_data_parallel_step(second->engine, &middle, YOKE_OPTIMIZER_LEARNING_RATE, &result));
    must(yoke_data_parallel_read_input_gradients(second->engine, gradients));
    must(yoke_data_parallel_backward(first->engine, gradients));
    must(yoke_data_parallel_update(first->engine, YOKE_OPTIMIZER_LEARNING_RATE));
    return result.loss;
}

int main(int argc, char **argv) {
    part parts[3]; /* the halves, and the whole to compare them with */
    for (int i = 0; i < 3; i++)
        parts[i] =
            open_part(build_model(i != 1, i != 0), argc > 2 ? argv[1 + i % 2] : "cpu", i % 2);
    for (int i = 0; i < 2; i++)
        copy_weights(&parts[2], &parts[i]);
    yoke_dataset *dataset = NULL;
    yoke_loader *loader = NULL;
    yoke_loader_options loading = {.struct_size = sizeof loading, .batch = BATCH, .shuffle = true};
    must(yoke_dataset_open(&dataset, "synthetic:3x16x16,classes=4,rows=2000", YOKE_SPLIT_TRAIN));
    must(yoke_loader_create(&loader, dataset, &loading));

    double first = 0, loss = 0, farthest = 0;
    for (uint64_t epoch = 0; epoch < 8; epoch++) {
        yoke_batch batch = {.struct_size = sizeof batch};
        yoke_step_result whole = {.struct_size = sizeof whole};
        must(yoke_loader_begin(loader, epoch));
        for (size_t left = yoke_loader_batch_count(loader); left > 0; left--) {
            must(yoke_loader_next(loader, &batch, NULL));
            must(yoke_data_parallel_step(parts[2].engine, &batch, YOKE_OPTIMIZER_LEARNING_RATE,
                                         &whole));
            loss = step(&parts[0], &parts[1], &batch);
            farthest = fmax(farthest, fabs(loss - whole.loss) / whole.loss);
            if (first == 0) first = loss;
        }
        printf("last loss in two halves %.4f, in one piece %.4f\n", loss, whole.loss);
    }
    bool good = loss < first / 2 && farthest < 1e-4;
    printf("first loss %.4f; the two never differed by more than %.0e of it\n", first, farthest);

    yoke_loader_destroy(loader);
    yoke_dataset_close(dataset);
    for (int i = 0; i < 3; i++) {
        yoke_data_parallel_destroy(parts[i].engine);
        yoke_devices_close(parts[i].devices);
        yoke_model_destroy(parts[i].model);
    }
    return good ? 0 : 1;
}
