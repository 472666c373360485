/* SPDX-License-Identifier: Apache-2.0 */
/* Trains one model twice, on one device and on two, with the same batches: the losses agree. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <yoke/yoke.h>

enum { BATCH = 63, EPOCHS = 6 }; /* on two devices: 32 and 31 rows */

static void must(yoke_status status) {
    if (status == YOKE_OK) return;
    fprintf(stderr, "%s\n", yoke_last_error());
    exit(yoke_status_exit_code(status));
}

static yoke_value block(yoke_model *model, yoke_value value, const char *name, int channels) {
    yoke_conv2d_options conv = {.struct_size = sizeof conv, .name = name, .padding = 1};
    yoke_pool_options half = {.struct_size = sizeof half, .kernel = 2};
    conv.out_channels = channels;
    conv.kernel = 3;
    return yoke_max_pool(model, yoke_relu(model, yoke_conv2d(model, value, &conv)), &half);
}

/* No batch norm, which would see other rows on two devices than on one. */
static yoke_model *build_model(yoke_shape input) {
    yoke_linear_options fc = {.struct_size = sizeof fc, .name = "fc", .out_features = 4};
    yoke_model *model = NULL;
    must(yoke_model_create(&model, "small", input));
    yoke_value value = block(model, yoke_model_input(model), "conv1", 16);
    value = yoke_flatten(model, block(model, value, "conv2", 32));
    must(yoke_model_finish(model, yoke_linear(model, value, &fc), NULL));
    return model;
}

typedef struct runner {
    yoke_devices *devices;
    yoke_data_parallel *engine;
} runner;

static runner open_runner(const yoke_model *model, const char *list) {
    runner run = {0};
    yoke_devices_options devices = {.struct_size = sizeof devices, .list = list, .threads = 1};
    must(yoke_devices_open(&run.devices, &devices));
    yoke_optimizer_options sgd = YOKE_SGD_OPTIONS_INIT;
    sgd.learning_rate = 0.02;
    sgd.momentum = 0.9;
    yoke_data_parallel_options options = {
        .struct_size = sizeof options, .batch = BATCH, .algorithm = YOKE_ALGORITHM_DIRECT};
    must(yoke_data_parallel_create(&run.engine, model, run.devices, &sgd, &options));
    return run;
}

static double step(const runner *run, const yoke_batch *batch) {
    yoke_step_result result = {.struct_size = sizeof result};
    must(yoke_data_parallel_step(run->engine, batch, YOKE_OPTIMIZER_LEARNING_RATE, &result));
    return result.loss;
}

int main(int argc, char **argv) {
    yoke_dataset *dataset = NULL;
    yoke_loader *loader = NULL;
    yoke_loader_options loading = {.struct_size = sizeof loading, .batch = BATCH, .shuffle = true};
    must(yoke_dataset_open(&dataset, "synthetic:3x24x24,classes=4,rows=2000", YOKE_SPLIT_TRAIN));
    must(yoke_loader_create(&loader, dataset, &loading));
    yoke_model *model = build_model(yoke_shape_image(3, 24, 24));
    runner one = open_runner(model, argc > 2 ? argv[1] : "cpu");
    runner two = open_runner(model, argc > 2 ? argv[2] : "2xcpu");

    double alone = 0, together = 0, farthest = 0; /* apart in the first ten steps */
    for (int epoch = 0, steps = 0; epoch < EPOCHS; epoch++) {
        yoke_batch batch = {.struct_size = sizeof batch};
        must(yoke_loader_begin(loader, (uint64_t)epoch));
        while (yoke_loader_next(loader, &batch, NULL) == YOKE_OK && batch.rows > 0) {
            alone = step(&one, &batch);
            together = step(&two, &batch);
            if (++steps <= 10) farthest = fmax(farthest, fabs(alone - together) / alone);
        }
        printf("last loss on one device %.3f, on two %.3f\n", alone, together);
    }
    bool agree = farthest < 1e-6;
    puts(agree ? "ten steps: the same to six digits" : "ten steps: the losses differ");

    yoke_data_parallel_destroy(two.engine);
    yoke_data_parallel_destroy(one.engine);
    yoke_devices_close(two.devices);
    yoke_devices_close(one.devices);
    yoke_model_destroy(model);
    yoke_loader_destroy(loader);
    yoke_dataset_close(dataset);
    return agree ? 0 : 1;
}
