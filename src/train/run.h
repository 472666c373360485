/* The inside of a trainer, for the files of this room only. */
#ifndef TRAIN_RUN_H
#define TRAIN_RUN_H

#include <stdatomic.h>

#include "distributed/distributed.h"
#include "parallel/parallel.h"
#include "train/train.h"

struct yoke_trainer {
    yoke_trainer_options options; /* defaults filled in; points to `texts` and `optimizer` */
    char *texts[9];
    yoke_optimizer_options optimizer;
    yoke_devices *devices;
    yoke_process_group *ranks;               /* DDP; NULL otherwise */
    yoke_dataset *training_rows, *test_rows; /* test_rows NULL: not opened yet */
    yoke_dataset_info dataset, test_dataset;
    yoke_model *model;
    yoke_data_parallel *parallel;
    yoke_loader *loader, *test_loader;
    yoke_metrics metrics;
    bool metrics_failed; /* warned once */
    yoke_lr_schedule schedule;

    atomic_bool stopping;
    bool in_step; /* a step began and did not finish: the weights are undefined */
    uint64_t step, steps, epoch;
    uint64_t begin_ns, computed_ns, waited_ns; /* of run; sums over its steps */
    yoke_step_times times;
    yoke_step_result last_step, last_evaluation; /* rows = 0: none yet */
};

/* trainer_ranks.c. join: opens this rank's device and joins the other ranks. check_ranks: compares
 * what the ranks train on. set_shard: the loader loads this rank's rows. writes: whether this
 * process writes the files. poll_stop: whether a stop was requested on any rank. Without ranks the
 * last four are trivial. */
yoke_status yoke_trainer_join(yoke_trainer *trainer);
yoke_status yoke_trainer_check_ranks(const yoke_trainer *trainer);
void yoke_trainer_set_shard(const yoke_trainer *trainer, yoke_loader_options *loader);
bool yoke_trainer_writes(const yoke_trainer *trainer);
yoke_status yoke_trainer_poll_stop(yoke_trainer *trainer, bool *stop);

/* Opens the test split and its loader unless they are open. */
yoke_status yoke_trainer_open_test(yoke_trainer *trainer);
/* The share of rows classified correctly; -1 for regression. */
double yoke_trainer_accuracy(const yoke_step_result *result);

#endif
