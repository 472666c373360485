/* SPDX-License-Identifier: Apache-2.0 */
/* What DDP does, by hand: after backward every gradient becomes the mean of all ranks' gradients,
 * then every rank updates itself. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <yoke/yoke.h>

enum { ROWS = 25, EPOCHS = 4 }; /* a rank's rows of a batch */

static void must(yoke_status status) {
    if (status == YOKE_OK) return;
    fprintf(stderr, "%s\n", yoke_last_error());
    exit(yoke_status_exit_code(status));
}

static const char *look_up(const char *name, void *payload) {
    (void)payload;
    return getenv(name);
}

/* drop_last: with equal parts the mean of the ranks' means is the mean of all rows. */
static yoke_loader *open_loader(yoke_dataset **dataset, const yoke_rank_info *rank) {
    yoke_loader_options options = {.struct_size = sizeof options,
                                   .batch = ROWS * rank->world,
                                   .shuffle = true,
                                   .drop_last = true,
                                   .rank = rank->rank,
                                   .world = rank->world};
    yoke_loader *loader = NULL;
    must(yoke_dataset_open(dataset, "synthetic:3x16x16,classes=4,rows=2000", YOKE_SPLIT_TRAIN));
    must(yoke_loader_create(&loader, *dataset, &options));
    return loader;
}

/* for p in model.parameters(): dist.all_reduce(p.grad); p.grad /= world */
static void average_gradients(yoke_data_parallel *engine, const yoke_model *model,
                              yoke_process_group *group, float *gradient) {
    yoke_tensor_info tensor = {.struct_size = sizeof tensor};
    for (int i = 0; i < yoke_model_tensor_count(model); i++) {
        must(yoke_model_tensor(model, i, &tensor));
        must(yoke_data_parallel_read_gradient(engine, tensor.name, gradient, tensor.count));
        must(yoke_process_group_all_reduce(group, gradient, tensor.count, YOKE_ELEMENT_FLOAT32,
                                           YOKE_MEAN));
        must(yoke_data_parallel_write_gradient(engine, tensor.name, gradient, tensor.count));
    }
}

static double train_epoch(yoke_data_parallel *engine, const yoke_model *model, yoke_loader *loader,
                          yoke_process_group *group, float *gradient) {
    double loss = 0;
    for (size_t i = 0; i < yoke_loader_batch_count(loader); i++) {
        yoke_batch batch = {.struct_size = sizeof batch};
        yoke_step_result result = {.struct_size = sizeof result};
        must(yoke_loader_next(loader, &batch, NULL));
        batch.first_row = batch.whole_rows = 0; /* for this engine its part is all there is */
        must(yoke_data_parallel_forward(engine, &batch, true, NULL));
        must(yoke_data_parallel_backward(engine, NULL));
        average_gradients(engine, model, group, gradient);
        must(yoke_data_parallel_update(engine, YOKE_OPTIMIZER_LEARNING_RATE));
        must(yoke_data_parallel_gather(engine, &result));
        loss += result.loss / (double)yoke_loader_batch_count(loader);
    }
    return loss;
}

typedef struct told {
    double loss;
    uint64_t hash;
} told; /* two words of 64 bits */

/* The loss is each rank's own, the weights are all ranks'. */
static bool compare(const told *all, int world, bool print) {
    int alike = 0;
    for (int rank = 0; rank < world; rank++) {
        alike += all[rank].hash == all[0].hash;
        if (print)
            printf("rank %d  loss %.3f  weights %016" PRIx64 "\n", rank, all[rank].loss,
                   all[rank].hash);
    }
    return alike == world;
}

int main(int argc, char **argv) {
    yoke_process_group_options meet = YOKE_PROCESS_GROUP_OPTIONS_INIT;
    yoke_rank_info rank = {.struct_size = sizeof rank};
    must(yoke_rank_detect(&rank, look_up, NULL));
    meet.rank = &rank;
    yoke_process_group *group = NULL;
    must(yoke_process_group_create(&group, &meet));
    yoke_devices_options mine = {.struct_size = sizeof mine,
                                 .list = argc > 1 ? argv[1] : "cpu",
                                 .local_rank = rank.local_rank,
                                 .local_world = rank.local_world};
    yoke_devices *devices = NULL;
    must(yoke_devices_open(&devices, &mine));

    yoke_dataset *dataset = NULL;
    yoke_loader *loader = open_loader(&dataset, &rank);
    yoke_shape picture = {.channels = 3, .height = 16, .width = 16};
    yoke_model *model = NULL;
    must(yoke_model_preset(&model, "mlp", picture, 4, NULL));
    yoke_optimizer_options sgd = YOKE_SGD_OPTIONS_INIT;
    sgd.learning_rate = 0.02;
    sgd.momentum = 0.9;
    yoke_data_parallel_options options = {.struct_size = sizeof options, .batch = ROWS};
    yoke_data_parallel *engine = NULL; /* of this rank alone; the same seed, so the same weights */
    must(yoke_data_parallel_create(&engine, model, devices, &sgd, &options));

    void *gradient = NULL, *all = NULL; /* ranks share this memory, which makes sums cheap */
    size_t bytes = yoke_model_parameter_count(model) * sizeof(float);
    must(yoke_process_group_allocate(group, bytes, &gradient));
    must(yoke_process_group_allocate(group, (size_t)rank.world * sizeof(told), &all));
    bool same = true;
    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
        must(yoke_loader_begin(loader, epoch));
        told own = {.loss = train_epoch(engine, model, loader, group, gradient)};
        must(yoke_data_parallel_hash(engine, &own.hash));
        must(yoke_process_group_all_gather(group, all, &own, 2, YOKE_ELEMENT_INT64));
        same = compare(all, rank.world, rank.rank == 0) && same;
    }

    yoke_data_parallel_destroy(engine);
    yoke_model_destroy(model);
    yoke_loader_destroy(loader);
    yoke_dataset_close(dataset);
    yoke_devices_close(devices);
    yoke_process_group_destroy(group);
    return same ? 0 : 1;
}
