/* SPDX-License-Identifier: Apache-2.0 */
/* Runs on a row stream: nobody knows how many steps an epoch has until it ends. */
#include <inttypes.h>
#include <stdio.h>

#include "data/data.h"
#include "train/run.h"

/* The rates of these depend on the end of the run, or of an epoch. */
static yoke_status check_schedule(const yoke_trainer_options *options) {
    yoke_lr_schedule_kind kind = options->lr_schedule;
    if (kind == YOKE_LR_EXPONENTIAL)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "lr_schedule exponential lowers the rate after so many steps as an epoch has, "
                    "which a row stream does not say: take plateau, or cosine with steps");
    bool needs_end = kind == YOKE_LR_STEP || kind == YOKE_LR_COSINE || kind == YOKE_LR_ONECYCLE;
    if (needs_end && options->steps == 0)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "lr_schedule %s needs the number of steps, which a row stream does not say: "
                    "set steps, or take constant or plateau",
                    kind == YOKE_LR_STEP     ? "step"
                    : kind == YOKE_LR_COSINE ? "cosine"
                                             : "onecycle");
    return YOKE_OK;
}

/* An evaluation is a pass over the test rows. */
static yoke_status check_test_rows(const yoke_trainer *trainer) {
    int every = trainer->options.evaluate_every;
    if (every <= 0 || trainer->test_dataset.rows > 0 || yoke_dataset_rewinds(trainer->test_rows))
        return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT,
                "evaluate_every is %d, and the row stream of test_rows has one pass: set its "
                "`rewind`, or evaluate_every to 0, at the end only",
                every);
}

yoke_status yoke_trainer_plan_stream(yoke_trainer *trainer) {
    const yoke_trainer_options *options = &trainer->options;
    TRY(check_test_rows(trainer));
    if (trainer->dataset.rows > 0) return YOKE_OK;
    TRY(check_schedule(options));
    bool rewinds = yoke_dataset_rewinds(trainer->training_rows);
    if (!rewinds && options->steps == 0 && options->epochs > 1)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "epochs is %d, and the row stream has one pass: set its `rewind`",
                    options->epochs);
    if (!rewinds)
        trainer->epochs = 1;
    else if (options->steps == 0)
        trainer->epochs = (uint64_t)options->epochs;
    if (options->steps > 0) return YOKE_OK;
    trainer->steps = UINT64_MAX;
    trainer->schedule.steps = 0; /* unknown */
    return YOKE_OK;
}

bool yoke_trainer_is_over(const yoke_trainer *trainer) {
    return trainer->step >= trainer->steps || trainer->epoch >= trainer->epochs;
}

const char *yoke_trainer_of_steps(const yoke_trainer *trainer, char text[32]) {
    text[0] = '\0';
    if (trainer->steps < UINT64_MAX) snprintf(text, 32, " of %" PRIu64, trainer->steps);
    return text;
}

/* One all-reduce brings the largest of each number, and minus the smallest. Ranks that ended at
 * different steps would wait for each other in different calls. */
yoke_status yoke_trainer_agree(yoke_trainer *trainer, const yoke_dataset_info *rows,
                               const yoke_loader *loader, const yoke_batch *batch) {
    if (trainer->ranks == NULL || rows->rows > 0) return YOKE_OK;
    int64_t digest = (int64_t)(yoke_loader_digest(loader) >> 1);
    int64_t most[] = {batch->whole_rows, -(int64_t)batch->whole_rows, digest, -digest};
    TRY(yoke_process_group_all_reduce(trainer->ranks, most, 4, YOKE_ELEMENT_INT64, YOKE_MAX));
    if (most[0] != -most[1])
        return FAIL(YOKE_ERROR_PEER,
                    "after step %llu the row stream of one rank gives %lld rows for a batch, that "
                    "of another %lld: the streams of all ranks must give the same rows",
                    (unsigned long long)trainer->step, (long long)most[0], (long long)-most[1]);
    if (most[2] != -most[3])
        return FAIL(YOKE_ERROR_PEER,
                    "after step %llu the row streams of two ranks give other labels or targets: "
                    "they must give the same rows, of which each rank takes its part",
                    (unsigned long long)trainer->step);
    return YOKE_OK;
}
