/* SPDX-License-Identifier: Apache-2.0 */
/* ResNet-50 on CIFAR-10 under SLURM, a rank a GPU: each reads its part of every batch, rank 0 saves
 * the weights of every epoch, and it shows whether time goes to data or to training. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <yoke/yoke.h>

typedef struct job {
    yoke_rank_info rank;
    yoke_devices *devices;
    yoke_process_group *group;
    yoke_dataset *rows[2]; /* by split */
    yoke_loader *loaders[2];
    yoke_model *model;
    yoke_data_parallel *engine;
    yoke_lr_schedule schedule;
    bool first; /* rank 0, who speaks for all */
} job;

static void must(yoke_status status) {
    if (status == YOKE_OK) return;
    fprintf(stderr, "%s\n", yoke_last_error());
    exit(yoke_status_exit_code(status));
}

static const char *look_up(const char *name, void *payload) {
    (void)payload;
    return getenv(name);
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void join(job *run, const char *list) {
    yoke_process_group_options meet = YOKE_PROCESS_GROUP_OPTIONS_INIT;
    yoke_rank_info *rank = &run->rank;
    rank->struct_size = sizeof *rank;
    must(yoke_rank_detect(rank, look_up, NULL));
    yoke_devices_options mine = {.struct_size = sizeof mine, .list = list};
    mine.local_rank = rank->local_rank;
    mine.local_world = rank->local_world;
    must(yoke_devices_open(&run->devices, &mine));
    meet.rank = rank;
    meet.token = getenv("YOKE_RDZV_TOKEN");                        /* several machines need one */
    if (strncmp(list, "cpu", 3) != 0) meet.devices = run->devices; /* GPUs speak NCCL */
    must(yoke_process_group_create(&run->group, &meet));
    run->first = rank->rank == 0;
}

static void open_rows(job *run, yoke_split split, const char *spec, int batch) {
    yoke_loader_options options = {
        .struct_size = sizeof options, .batch = batch, .devices = run->devices};
    options.rank = run->rank.rank;
    options.world = run->rank.world;
    options.shuffle = options.drop_last = split == YOKE_SPLIT_TRAIN;
    if (split == YOKE_SPLIT_TRAIN) options.augment = YOKE_AUGMENT_CROP_FLIP;
    must(yoke_dataset_open(&run->rows[split], spec, split));
    must(yoke_loader_create(&run->loaders[split], run->rows[split], &options));
}

static void build(job *run, const char *name, int batch, int epochs) {
    yoke_loader *loader = run->loaders[YOKE_SPLIT_TRAIN];
    yoke_dataset_info rows = {.struct_size = sizeof rows};
    must(yoke_dataset_describe(run->rows[YOKE_SPLIT_TRAIN], &rows));
    must(yoke_model_preset(&run->model, name, rows.shape, rows.classes, NULL));
    yoke_optimizer_options sgd = YOKE_SGD_OPTIONS_INIT;
    yoke_data_parallel_options ddp = YOKE_DATA_PARALLEL_OPTIONS_INIT;
    sgd.momentum = 0.9;
    sgd.weight_decay = 5e-4;
    ddp.batch = batch;
    ddp.process_group = run->group;
    ddp.pixels = yoke_loader_pixels(loader);
    must(yoke_data_parallel_create(&run->engine, run->model, run->devices, &sgd, &ddp));
    run->schedule.struct_size = sizeof run->schedule;
    run->schedule.kind = YOKE_LR_COSINE;
    run->schedule.learning_rate = 0.1;
    run->schedule.steps = (uint64_t)epochs * yoke_loader_batch_count(loader);
}

static void train(job *run, uint64_t epoch) {
    yoke_loader *loader = run->loaders[YOKE_SPLIT_TRAIN];
    double data = 0, training = 0;
    must(yoke_loader_begin(loader, epoch));
    for (uint64_t step = 0; step < yoke_loader_batch_count(loader); step++) {
        yoke_batch batch = {.struct_size = sizeof batch};
        yoke_step_result result = {.struct_size = sizeof result};
        double rate =
            yoke_lr_schedule_rate(&run->schedule, epoch * yoke_loader_batch_count(loader) + step);
        double begin = seconds();
        must(yoke_loader_next(loader, &batch, NULL));
        double loaded = seconds();
        must(yoke_data_parallel_step(run->engine, &batch, rate, &result));
        data += loaded - begin;
        training += seconds() - loaded;
        if (step % 10 < 9) continue;
        if (run->first)
            printf("epoch %d  step %d  loss %.3f  data %.3f s  training %.3f s\n", (int)epoch + 1,
                   (int)step + 1, result.loss, data, training);
        data = training = 0;
    }
}

/* Every row of the test split once, whatever the number of ranks. */
static void evaluate(job *run, uint64_t epoch) {
    yoke_loader *loader = run->loaders[YOKE_SPLIT_TEST];
    double loss = 0, correct = 0, rows = 0;
    must(yoke_loader_begin(loader, 0));
    for (size_t left = yoke_loader_batch_count(loader); left > 0; left--) {
        yoke_batch batch = {.struct_size = sizeof batch};
        yoke_step_result result = {.struct_size = sizeof result};
        must(yoke_loader_next(loader, &batch, NULL));
        must(yoke_data_parallel_evaluate(run->engine, &batch, &result));
        loss += result.loss * result.rows;
        correct += result.correct;
        rows += result.rows;
    }
    if (run->first)
        printf("epoch %d  %.0f test rows  loss %.3f  accuracy %.1f %%\n", (int)epoch + 1, rows,
               loss / rows, 100 * correct / rows);
}

int main(int argc, char **argv) {
    double begin = seconds();
    const char *words[] = {"synthetic", "1", "resnet50-cifar", "32", "cpu"};
    for (int i = 1; i < argc && i <= 5; i++)
        words[i - 1] = argv[i];
    int epochs = atoi(words[1]), rows = atoi(words[3]);
    if (epochs < 1 || rows < 1) {
        fprintf(stderr, "usage: %s [DATASET [EPOCHS [MODEL [ROWS [DEVICES]]]]]\n", argv[0]);
        return 2;
    }
    job run = {0};
    join(&run, words[4]);
    int batch = rows * run.rank.world;
    open_rows(&run, YOKE_SPLIT_TRAIN, words[0], batch);
    open_rows(&run, YOKE_SPLIT_TEST, words[0], batch);
    build(&run, words[2], batch, epochs);
    for (uint64_t epoch = 0; epoch < (uint64_t)epochs; epoch++) {
        train(&run, epoch);
        evaluate(&run, epoch);
        if (run.first) must(yoke_weights_save(run.engine, run.model, "weights.safetensors"));
    }
    if (run.first)
        printf("%d ranks, %s: %.1f s in all\n", run.rank.world,
               yoke_process_group_transport(run.group), seconds() - begin);

    yoke_data_parallel_destroy(run.engine);
    yoke_model_destroy(run.model);
    for (int split = 0; split < 2; split++) {
        yoke_loader_destroy(run.loaders[split]);
        yoke_dataset_close(run.rows[split]);
    }
    yoke_process_group_destroy(run.group);
    yoke_devices_close(run.devices);
    return 0;
}
