/* SPDX-License-Identifier: Apache-2.0 */
/* One step of DataParallel by hand, stage by stage, and the time each stage took. */
#include <stdio.h>
#include <stdlib.h>
#include <yoke/yoke.h>

enum { BATCH = 64, STEPS = 10 };

static void must(yoke_status status) {
    if (status == YOKE_OK) return;
    fprintf(stderr, "%s\n", yoke_last_error());
    exit(yoke_status_exit_code(status));
}

/* What yoke_data_parallel_step does, in the order the data travels. */
static double step_by_hand(yoke_data_parallel *parallel, const yoke_batch *batch) {
    yoke_step_result result = {.struct_size = sizeof result};
    must(yoke_data_parallel_scatter(parallel, batch));
    must(yoke_data_parallel_replicate(parallel));
    must(yoke_data_parallel_forward_replicas(parallel, true));
    must(yoke_data_parallel_loss_replicas(parallel));
    must(yoke_data_parallel_backward_replicas(parallel));
    must(yoke_data_parallel_reduce(parallel));
    must(yoke_data_parallel_update(parallel, 0.05));
    must(yoke_data_parallel_gather(parallel, &result));
    return result.loss;
}

static void print_stages(yoke_data_parallel *parallel) {
    yoke_stage_summary rows[YOKE_STAGE_COUNT] = {{.struct_size = sizeof rows[0]}};
    int count = yoke_trace_summarize(yoke_data_parallel_trace(parallel), rows, YOKE_STAGE_COUNT);
    for (int i = 0; i < count; i++)
        printf("%-10s %8.3f ms\n", yoke_stage_name(rows[i].stage), rows[i].median_ms);
}

int main(int argc, char **argv) {
    yoke_dataset *dataset = NULL;
    yoke_loader *loader = NULL;
    yoke_model *model = NULL;
    yoke_devices *devices = NULL;
    yoke_data_parallel *parallel = NULL;
    yoke_shape input = {.channels = 3, .height = 16, .width = 16};
    yoke_loader_options loading = {.struct_size = sizeof loading, .batch = BATCH, .shuffle = true};
    yoke_devices_options list = {.struct_size = sizeof list, .list = argc > 1 ? argv[1] : "2xcpu"};
    yoke_data_parallel_options options = {
        .struct_size = sizeof options, .batch = BATCH, .schedule = YOKE_SCHEDULE_CLASSIC};
    must(yoke_dataset_open(&dataset, "synthetic:3x16x16,classes=4,rows=2000", YOKE_SPLIT_TRAIN));
    must(yoke_loader_create(&loader, dataset, &loading));
    must(yoke_model_preset(&model, "resnet20", input, 4, NULL));
    must(yoke_devices_open(&devices, &list));
    must(yoke_data_parallel_create(&parallel, model, devices, NULL, &options));

    must(yoke_loader_begin(loader, 0));
    double first = 0, last = 0;
    for (int number = 0; number < STEPS; number++) {
        yoke_batch batch = {.struct_size = sizeof batch};
        must(yoke_loader_next(loader, &batch, NULL));
        last = step_by_hand(parallel, &batch);
        if (number == 0) first = last;
    }
    printf("the loss %s\n", last < first ? "fell" : "did not fall");
    print_stages(parallel);

    yoke_data_parallel_destroy(parallel);
    yoke_devices_close(devices);
    yoke_model_destroy(model);
    yoke_loader_destroy(loader);
    yoke_dataset_close(dataset);
    return last < first ? 0 : 1;
}
