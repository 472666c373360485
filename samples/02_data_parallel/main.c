/* Trains one model twice, on one device and on two, with the same batches: the losses agree. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <yoke/yoke.h>

enum { BATCH = 63, STEPS = 20, SHOW = 5 }; /* 63 rows on two devices: 32 and 31 */

static void must(yoke_status status) {
    if (status == YOKE_OK) return;
    fprintf(stderr, "%s\n", yoke_last_error());
    exit(yoke_status_exit_code(status));
}

typedef struct runner {
    yoke_devices *devices;
    yoke_data_parallel *engine;
} runner;

static runner open_runner(const yoke_model *model, const char *list) {
    runner run = {0};
    yoke_devices_options devices = {.struct_size = sizeof devices, .list = list, .threads = 1};
    must(yoke_devices_open(&run.devices, &devices));
    yoke_optimizer_options sgd = {
        .struct_size = sizeof sgd, .learning_rate = 0.02, .momentum = 0.9};
    yoke_data_parallel_options options = {.struct_size = sizeof options, .batch = BATCH};
    must(yoke_data_parallel_create(&run.engine, model, run.devices, &sgd, &options));
    return run;
}

static double step(const runner *run, const yoke_batch *batch) {
    yoke_step_result result = {.struct_size = sizeof result};
    must(yoke_data_parallel_step(run->engine, batch, 0, &result));
    return result.loss;
}

static void close_runner(const runner *run) {
    yoke_data_parallel_destroy(run->engine);
    yoke_devices_close(run->devices);
}

int main(void) {
    yoke_dataset *dataset = NULL;
    yoke_loader *loader = NULL;
    yoke_model *model = NULL;
    yoke_shape input = {.channels = 3, .height = 16, .width = 16};
    yoke_loader_options loading = {.struct_size = sizeof loading, .batch = BATCH, .shuffle = true};
    must(yoke_dataset_open(&dataset, "synthetic:3x16x16,classes=4,rows=2000", YOKE_SPLIT_TRAIN));
    must(yoke_loader_create(&loader, dataset, &loading));
    must(yoke_model_preset(&model, "mlp", input, 4, NULL)); /* no batch norm: see README.md */
    runner one = open_runner(model, "cpu"), two = open_runner(model, "2xcpu");

    for (int device = 0; device < yoke_data_parallel_device_count(two.engine); device++)
        printf("device %d of 2 gets %d of %d rows\n", device, yoke_shard_rows(BATCH, 2, device),
               BATCH);
    must(yoke_loader_begin(loader, 0));
    double farthest = 0;
    for (int number = 1; number <= STEPS; number++) {
        yoke_batch batch = {.struct_size = sizeof batch};
        must(yoke_loader_next(loader, &batch, NULL));
        double alone = step(&one, &batch), together = step(&two, &batch);
        farthest = fmax(farthest, fabs(alone - together) / alone);
        if (number % SHOW == 0)
            printf("step %2d  loss on one device %.4f  on two %.4f\n", number, alone, together);
    }
    printf("farthest apart: %s\n", farthest < 1e-4 ? "less than 0.01 %" : "too far");

    close_runner(&two);
    close_runner(&one);
    yoke_model_destroy(model);
    yoke_loader_destroy(loader);
    yoke_dataset_close(dataset);
    return farthest < 1e-4 ? 0 : 1;
}
