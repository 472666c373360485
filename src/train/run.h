/* A trainer's inside, for the files of this room. */
#ifndef TRAIN_RUN_H
#define TRAIN_RUN_H

#include <stdatomic.h>

#include "distributed/distributed.h"
#include "parallel/parallel.h"
#include "train/step_times.h"
#include "train/train.h"

struct yoke_trainer {
    yoke_trainer_options options; /* defaults filled in; points to `texts` and `optimizer` */
    char *texts[7];
    yoke_optimizer_options optimizer;
    yoke_devices *devices;
    yoke_process_group *ranks;               /* DDP; NULL otherwise */
    yoke_dataset *training_rows, *test_rows; /* test_rows NULL: not opened yet */
    yoke_dataset_info dataset, test_dataset;
    yoke_model *model;
    yoke_data_parallel *parallel;
    yoke_loader *loader, *test_loader;
    yoke_metrics metrics;
    bool metrics_failed; /* one warning was given */
    yoke_lr_schedule schedule;

    atomic_bool stopping;
    bool in_step; /* a step was begun and not finished: the weights are unknown */
    uint64_t step, steps, epoch;
    uint64_t begin_ns, computed_ns, waited_ns; /* of run; sums over its steps */
    yoke_step_times times;
    yoke_step_result last_step, last_evaluation; /* rows = 0: there was none */
};

/* trainer_ranks.c: opens this rank's device and meets the others; compares what they train on;
 * whether this process writes the files; whether any rank was asked to stop. Alone the last three
 * are simple. */
yoke_status yoke_trainer_join(yoke_trainer *trainer);
yoke_status yoke_trainer_agree(const yoke_trainer *trainer);
void yoke_trainer_share(const yoke_trainer *trainer, yoke_loader_options *loader);
bool yoke_trainer_writes(const yoke_trainer *trainer);
yoke_status yoke_trainer_heard_stop(yoke_trainer *trainer, bool *stop);

/* Opens the test split and its loader unless they are. */
yoke_status yoke_trainer_open_test(yoke_trainer *trainer);
/* Whether the loader answered "no more"; no rows alone may mean that other ranks have them. */
static inline bool yoke_trainer_epoch_is_over(const yoke_batch *batch) {
    return batch->rows == 0 && batch->whole_rows == 0;
}
/* Tells the host program; fills in what every event has. */
void yoke_trainer_tell(yoke_trainer *trainer, yoke_event *event);
/* Share of rows classified rightly; -1 for regression. */
double yoke_trainer_accuracy(const yoke_step_result *result);

#endif
