/* SPDX-License-Identifier: Apache-2.0 */
#include "train/unknown_length.h"

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

yoke_status yoke_run_plan_stream(yoke_run *run, const yoke_rows *test) {
    const yoke_trainer_options *options = &run->options;
    /* An evaluation is a pass over the test rows. */
    if (options->evaluate_every > 0 && test->info.rows == 0 && !yoke_dataset_rewinds(test->rows))
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "evaluate_every is %d, and the row stream of test_rows has one pass: set its "
                    "`rewind`, or evaluate_every to 0, at the end only",
                    options->evaluate_every);
    if (run->training.info.rows > 0) return YOKE_OK;
    TRY(check_schedule(options));
    bool rewinds = yoke_dataset_rewinds(run->training.rows);
    if (!rewinds && run->ranks != NULL && run->engine.auto_shares)
        return FAIL(YOKE_ERROR_ARGUMENT, "auto_shares of ranks begins the row stream again, which "
                                         "has one pass: set its `rewind`");
    if (!rewinds && options->steps == 0 && options->epochs > 1)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "epochs is %d, and the row stream has one pass: set its `rewind`",
                    options->epochs);
    if (!rewinds)
        run->at.epochs = 1;
    else if (options->steps == 0)
        run->at.epochs = (uint64_t)options->epochs;
    if (options->steps > 0) return YOKE_OK;
    run->at.steps = UINT64_MAX;
    run->schedule.steps = 0; /* unknown */
    return YOKE_OK;
}

/* One all-reduce brings the largest of each number, and minus the smallest. Ranks that ended at
 * different steps would wait for each other in different calls. */
yoke_status yoke_run_compare_streams(const yoke_run *run, const yoke_rows *rows,
                                     const yoke_batch *batch) {
    if (run->ranks == NULL || rows->info.rows > 0) return YOKE_OK;
    int64_t digest = (int64_t)(yoke_loader_digest(rows->loader) >> 1);
    int64_t most[] = {batch->whole_rows, -(int64_t)batch->whole_rows, digest, -digest};
    TRY(yoke_process_group_all_reduce(run->ranks, most, 4, YOKE_ELEMENT_INT64, YOKE_MAX));
    if (most[0] != -most[1])
        return FAIL(YOKE_ERROR_PEER,
                    "after step %llu the row stream of one rank gives %lld rows for a batch, that "
                    "of another %lld: the streams of all ranks must give the same rows",
                    (unsigned long long)run->at.step, (long long)most[0], (long long)-most[1]);
    if (most[2] != -most[3])
        return FAIL(YOKE_ERROR_PEER,
                    "after step %llu the row streams of two ranks give other labels or targets: "
                    "they must give the same rows, of which each rank takes its part",
                    (unsigned long long)run->at.step);
    return YOKE_OK;
}
