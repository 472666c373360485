/* SPDX-License-Identifier: Apache-2.0 */
/* The training thread copies the state; the writer's thread writes the copy. */
#include "train/saving.h"

#define ROUND_MS 100 /* of the ranks' wait for the writer; far below any deadline */

bool yoke_saving_is_due(const yoke_saving *saving, const yoke_run *run) {
    double passed = 0;
    if (saving->writer == NULL || run->at.step <= saving->step) return false;
    switch (run->options.checkpoint_unit) {
    case YOKE_CHECKPOINT_EPOCHS:
        passed = (double)(run->at.epoch - saving->epoch);
        break;
    case YOKE_CHECKPOINT_STEPS:
        passed = (double)(run->at.step - saving->step);
        break;
    case YOKE_CHECKPOINT_SECONDS:
        passed = (double)(yoke_now_ns() - saving->time_ns) * 1e-9;
        break;
    }
    return passed >= run->options.checkpoint_every &&
           !yoke_checkpoint_writer_is_busy(saving->writer);
}

/* Waits for the file in progress. The other ranks wait with rank 0 in one short collective after
 * another: however slow the disk is, no deadline passes, and a rank that ends is noticed. */
static yoke_status await(const yoke_saving *saving, const yoke_run *run) {
    bool busy = true;
    while (busy) {
        busy = saving->writer != NULL && !yoke_checkpoint_writer_wait(saving->writer, ROUND_MS);
        TRY(yoke_run_any(run, &busy));
    }
    return YOKE_OK;
}

/* The writer is idle: nobody reads the state that is overwritten. The file gets what the next steps
 * need beside the engine's state, and the options that decide them. */
static yoke_status start(yoke_saving *saving, const yoke_run *run, yoke_save_kind kind) {
    yoke_facts facts = {.description = &run->description};
    bool ended = run->at.batches == SIZE_MAX; /* a row stream's epoch, by an earlier run */
    TRY(yoke_state_take(saving->state, run->parallel));
    if (saving->writer == NULL) return YOKE_OK;
    yoke_facts_add_state(&facts, saving->state);
    yoke_facts_add(&facts, "epoch", "%llu", (unsigned long long)run->at.epoch + ended);
    yoke_facts_add(&facts, "epoch_batches", "%llu",
                   (unsigned long long)(ended ? 0 : run->at.batches));
    if (saving->best.exists) yoke_facts_add_real(&facts, "best", saving->best.value);
    yoke_watch_describe(saving->watch, &facts);
    yoke_facts_add_table(&facts, &yoke_engine_options, run->parallel);
    yoke_facts_add_table(&facts, &yoke_run_options, run);
    yoke_checkpoint_writer_start(saving->writer, &facts, kind);
    return YOKE_OK;
}

static yoke_status begin(yoke_saving *saving, yoke_run *run, yoke_save_kind kind) {
    TRY(await(saving, run));
    yoke_saving_collect(saving, run);
    TRY(start(saving, run, kind));
    saving->step = run->at.step;
    saving->epoch = run->at.epoch;
    saving->time_ns = yoke_now_ns();
    return YOKE_OK;
}

yoke_status yoke_saving_begin(yoke_saving *saving, yoke_run *run) {
    return begin(saving, run, YOKE_SAVE_STEP);
}

yoke_status yoke_saving_keep_best(yoke_saving *saving, yoke_run *run) {
    TRY(await(saving, run));
    return yoke_state_keep_best(saving->state, run->parallel);
}

/* Rank 0 decides: it alone knows whether the last best could be written. */
yoke_status yoke_saving_add(yoke_saving *saving, yoke_run *run,
                            const yoke_step_result *evaluation) {
    double accuracy = yoke_step_accuracy(evaluation);
    double value = accuracy >= 0 ? accuracy : -evaluation->loss;
    if (run->options.checkpoint_dir == NULL || !run->options.keep_best) return YOKE_OK;
    TRY(await(saving, run));
    yoke_saving_collect(saving, run);
    bool better = saving->writer != NULL && (!saving->best.exists || value > saving->best.value);
    TRY(yoke_run_any(run, &better));
    if (better) saving->best = (yoke_best){.exists = true, .value = value};
    return better ? start(saving, run, YOKE_SAVE_BEST) : YOKE_OK;
}

/* The status of the file that was written last, or OK; reports a file that is complete. The older
 * files are still there after a failure; a best that was not written is none. */
static yoke_status collect(yoke_saving *saving, yoke_run *run) {
    yoke_status status;
    const char *path;
    if (saving->writer == NULL || !yoke_checkpoint_writer_collect(saving->writer, &status, &path))
        return YOKE_OK;
    if (status != YOKE_OK) {
        saving->best = saving->on_disk;
        return status;
    }
    saving->on_disk = saving->best;
    yoke_run_say(run, YOKE_EVENT_SAVED, path);
    return YOKE_OK;
}

void yoke_saving_collect(yoke_saving *saving, yoke_run *run) {
    if (collect(saving, run) != YOKE_OK) yoke_run_warn(run); /* the next may succeed */
}

/* Writes the last checkpoint unless a file of this step is there; a failed one is tried again. Rank
 * 0 decides, as above. */
yoke_status yoke_saving_end(yoke_saving *saving, yoke_run *run, bool with_last) {
    if (run->options.checkpoint_dir == NULL) return YOKE_OK;
    TRY(await(saving, run));
    yoke_error failed = yoke_error_take(collect(saving, run));
    bool lacks = run->at.step > saving->step || failed.status != YOKE_OK;
    if (with_last) TRY(yoke_run_any(run, &lacks));
    if (!with_last || !lacks) return yoke_error_restore(&failed);
    if (yoke_error_restore(&failed) != YOKE_OK) yoke_run_warn(run);
    TRY(begin(saving, run, YOKE_SAVE_LAST));
    TRY(await(saving, run));
    return collect(saving, run);
}

void yoke_saving_close(yoke_saving *saving) {
    yoke_checkpoint_writer_destroy(saving->writer);
    yoke_folder_close(&saving->folder);
    yoke_state_destroy(saving->state);
}
