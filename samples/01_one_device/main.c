/* SPDX-License-Identifier: Apache-2.0 */
/* Trains a small convolutional network on one device: open, build, loop, evaluate. */
#include <stdio.h>
#include <stdlib.h>
#include <yoke/yoke.h>

enum { BATCH = 32, EPOCHS = 5 };

static void must(yoke_status status) {
    if (status == YOKE_OK) return;
    fprintf(stderr, "%s\n", yoke_last_error());
    exit(yoke_status_exit_code(status));
}

static yoke_loader *open_loader(yoke_dataset **dataset, yoke_split split) {
    must(yoke_dataset_open(dataset, "synthetic:3x24x24,classes=4,rows=2000", split));
    yoke_loader_options options = {
        .struct_size = sizeof options, .batch = BATCH, .shuffle = split == YOKE_SPLIT_TRAIN};
    yoke_loader *loader = NULL;
    must(yoke_loader_create(&loader, *dataset, &options));
    return loader;
}

/* Convolution, batch norm, ReLU and pooling: half the picture, `channels` features of it. */
static yoke_value block(yoke_model *model, yoke_value value, const char *names[2], int channels) {
    yoke_conv2d_options conv = {
        .struct_size = sizeof conv, .name = names[0], .kernel = 3, .no_bias = true};
    yoke_batch_norm_options norm = YOKE_BATCH_NORM_OPTIONS_INIT;
    yoke_pool_options half = {.struct_size = sizeof half, .kernel = 2};
    norm.name = names[1];
    conv.out_channels = channels;
    conv.padding = 1;
    value = yoke_batch_norm(model, yoke_conv2d(model, value, &conv), &norm);
    return yoke_max_pool(model, yoke_relu(model, value), &half);
}

static yoke_model *build_model(yoke_shape input) {
    yoke_linear_options fc = {.struct_size = sizeof fc, .name = "fc", .out_features = 4};
    yoke_model *model = NULL;
    must(yoke_model_create(&model, "small", input));
    yoke_value value = yoke_model_input(model);
    value = block(model, value, (const char *[2]){"conv1", "norm1"}, 16);
    value = block(model, value, (const char *[2]){"conv2", "norm2"}, 32);
    value = yoke_flatten(model, value);
    must(yoke_model_finish(model, yoke_linear(model, value, &fc), NULL)); /* reports any error */
    return model;
}

static void run_epoch(yoke_data_parallel *engine, yoke_loader *loader, int epoch, bool training) {
    yoke_step_result result = {.struct_size = sizeof result};
    yoke_batch batch = {.struct_size = sizeof batch};
    double loss = 0, correct = 0, rows = 0;
    must(yoke_loader_begin(loader, (uint64_t)epoch));
    for (;;) {
        must(yoke_loader_next(loader, &batch, NULL));
        if (batch.rows == 0) break;
        must(training
                 ? yoke_data_parallel_step(engine, &batch, YOKE_OPTIMIZER_LEARNING_RATE, &result)
                 : yoke_data_parallel_evaluate(engine, &batch, &result));
        loss += result.loss * result.rows;
        correct += result.correct;
        rows += result.rows;
    }
    printf("%s  loss %.3f  accuracy %.1f %%\n", training ? "train" : "test ", loss / rows,
           100 * correct / rows);
}

int main(int argc, char **argv) {
    yoke_dataset *datasets[2] = {NULL};
    yoke_loader *train = open_loader(&datasets[0], YOKE_SPLIT_TRAIN);
    yoke_loader *test = open_loader(&datasets[1], YOKE_SPLIT_TEST);
    yoke_model *model = build_model(yoke_shape_image(3, 24, 24));
    yoke_devices *devices = NULL;
    yoke_data_parallel *engine = NULL;
    yoke_devices_options list = {.struct_size = sizeof list, .list = argc > 1 ? argv[1] : "cpu"};
    yoke_optimizer_options sgd = YOKE_SGD_OPTIONS_INIT;
    yoke_data_parallel_options options = {.struct_size = sizeof options, .batch = BATCH};
    sgd.learning_rate = 0.01;
    sgd.momentum = 0.9;
    must(yoke_devices_open(&devices, &list));
    must(yoke_data_parallel_create(&engine, model, devices, &sgd, &options));

    for (int epoch = 0; epoch < EPOCHS; epoch++)
        run_epoch(engine, train, epoch, true);
    run_epoch(engine, test, 0, false);

    yoke_data_parallel_destroy(engine);
    yoke_devices_close(devices);
    yoke_model_destroy(model);
    yoke_loader_destroy(test);
    yoke_loader_destroy(train);
    for (int i = 0; i < 2; i++)
        yoke_dataset_close(datasets[i]);
    return 0;
}
