/* SPDX-License-Identifier: Apache-2.0 */
/* The loop of PyTorch's DistributedDataParallel tutorial: every rank trains on rows of its own, and
 * all end with the same weights. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <yoke/yoke.h>

enum { ROWS = 20, INPUTS = 10, OUTPUTS = 5, STEPS = 2000 };

static void must(yoke_status status) {
    if (status == YOKE_OK) return;
    fprintf(stderr, "%s\n", yoke_last_error());
    exit(yoke_status_exit_code(status));
}

static const char *look_up(const char *name, void *payload) {
    (void)payload;
    return getenv(name);
}

/* class ToyModel(nn.Module): net2(relu(net1(x))) */
static yoke_model *toy_model(void) {
    yoke_shape input = {.channels = INPUTS, .height = 1, .width = 1, .flat = true};
    yoke_linear_options net1 = {.struct_size = sizeof net1, .name = "net1", .out_features = 10};
    yoke_linear_options net2 = {.struct_size = sizeof net2, .name = "net2"};
    yoke_loss_options mse = {.struct_size = sizeof mse, .kind = YOKE_LOSS_MSE};
    yoke_model *model = NULL;
    net2.out_features = OUTPUTS;
    must(yoke_model_create(&model, "ToyModel", input));
    yoke_value hidden = yoke_relu(model, yoke_linear(model, yoke_model_input(model), &net1));
    must(yoke_model_finish(model, yoke_linear(model, hidden, &net2), &mse));
    return model;
}

static void draw(float *values, int count) {
    for (int i = 0; i < count; i++)
        values[i] = 2 * (float)rand() / (float)RAND_MAX - 1;
}

/* The smallest and the largest hash of all ranks are one. */
static bool agree(yoke_data_parallel *engine, yoke_process_group *group, uint64_t *hash) {
    must(yoke_data_parallel_hash(engine, hash));
    int64_t least = (int64_t)*hash, most = least;
    must(yoke_process_group_all_reduce(group, &least, 1, YOKE_ELEMENT_INT64, YOKE_MIN));
    must(yoke_process_group_all_reduce(group, &most, 1, YOKE_ELEMENT_INT64, YOKE_MAX));
    return least == most;
}

int main(int argc, char **argv) {
    yoke_rank_info rank = {.struct_size = sizeof rank};
    must(yoke_rank_detect(&rank, look_up, NULL));
    yoke_devices_options mine = {.struct_size = sizeof mine, .list = argc > 1 ? argv[1] : "cpu"};
    mine.local_rank = rank.local_rank;
    mine.local_world = rank.local_world;
    yoke_devices *devices = NULL;
    must(yoke_devices_open(&devices, &mine));
    yoke_process_group_options meet = YOKE_PROCESS_GROUP_OPTIONS_INIT;
    meet.rank = &rank;
    if (argc > 1) meet.devices = devices; /* GPUs speak NCCL */
    yoke_process_group *group = NULL;
    must(yoke_process_group_create(&group, &meet));

    yoke_model *model = toy_model();
    yoke_data_parallel *engine = NULL;
    yoke_optimizer_options sgd = YOKE_SGD_OPTIONS_INIT;
    yoke_data_parallel_options ddp = YOKE_DATA_PARALLEL_OPTIONS_INIT;
    sgd.learning_rate = 0.001;
    ddp.process_group = group;
    ddp.batch = ROWS * rank.world;
    must(yoke_data_parallel_create(&engine, model, devices, &sgd, &ddp));

    float inputs[ROWS * INPUTS], labels[ROWS * OUTPUTS];
    srand((unsigned)rank.rank + 1);
    draw(inputs, ROWS * INPUTS);
    draw(labels, ROWS * OUTPUTS);
    yoke_batch batch = {.struct_size = sizeof batch, .rows = ROWS, .inputs = inputs};
    batch.targets = labels;
    for (int step = 0; step < STEPS; step++) {
        yoke_step_result result = {.struct_size = sizeof result};
        must(yoke_data_parallel_step(engine, &batch, YOKE_OPTIMIZER_LEARNING_RATE, &result));
        if (rank.rank == 0 && (step + 1) % (STEPS / 4) == 0)
            printf("step %4d  loss %.4f\n", step + 1, result.loss);
    }
    uint64_t hash = 0;
    bool same = agree(engine, group, &hash);
    if (rank.rank == 0)
        printf("%d ranks: %s weights %016" PRIx64 "\n", rank.world, same ? "the same" : "different",
               hash);

    yoke_data_parallel_destroy(engine);
    yoke_model_destroy(model);
    yoke_process_group_destroy(group);
    yoke_devices_close(devices);
    return same ? 0 : 1;
}
