/* SPDX-License-Identifier: Apache-2.0 */
/* When a run writes checkpoints, and what they state about it. The training thread copies the
 * state; the writer's thread writes the copy. */
#include <stdio.h>

#include "train/run.h"

#define ROUND_MS 100 /* of the ranks' wait for the writer; far below any deadline */

static bool has_folder(const yoke_trainer *trainer) {
    return trainer->options.checkpoint_dir != NULL;
}

static bool interval_is_over(const yoke_trainer *trainer) {
    const yoke_checkpoints *last = &trainer->checkpoints;
    double every = trainer->options.checkpoint_every;
    switch (trainer->options.checkpoint_unit) {
    case YOKE_CHECKPOINT_EPOCHS:
        return (double)(trainer->epoch - last->epoch) >= every;
    case YOKE_CHECKPOINT_STEPS:
        return (double)(trainer->step - last->step) >= every;
    case YOKE_CHECKPOINT_SECONDS:
        break;
    }
    return (double)(yoke_now_ns() - last->time_ns) * 1e-9 >= every;
}

bool yoke_trainer_save_is_due(const yoke_trainer *trainer) {
    const yoke_checkpoints *own = &trainer->checkpoints;
    return own->writer != NULL && trainer->step > own->step && interval_is_over(trainer) &&
           !yoke_checkpoint_writer_is_busy(own->writer);
}

/* What the next steps need beside the engine's state, and the options that decide them. */
static void describe(const yoke_trainer *trainer, yoke_facts *facts) {
    const yoke_checkpoints *own = &trainer->checkpoints;
    bool ended = trainer->batches == SIZE_MAX; /* a row stream's epoch, by an earlier run */
    yoke_facts_add(facts, "step", "%llu", (unsigned long long)own->state->steps);
    yoke_facts_add(facts, "epoch", "%llu", (unsigned long long)trainer->epoch + ended);
    yoke_facts_add(facts, "epoch_batches", "%llu",
                   (unsigned long long)(ended ? 0 : trainer->batches));
    yoke_facts_add(facts, "batches_tracked", "%llu",
                   (unsigned long long)own->state->batches_tracked);
    if (own->best.exists) yoke_facts_add_real(facts, "best", own->best.value);
    yoke_watch_describe(trainer, facts);
    yoke_facts_add_table(facts, &yoke_engine_options, trainer->parallel);
    yoke_facts_add_table(facts, &yoke_run_options, trainer);
    facts->description = &trainer->description;
}

/* Waits for the file in progress. The other ranks wait with rank 0 in one short collective after
 * another: however slow the disk is, no deadline passes, and a rank that ends is noticed. */
yoke_status yoke_trainer_await_saves(yoke_trainer *trainer) {
    yoke_checkpoint_writer *writer = trainer->checkpoints.writer;
    bool busy = true;
    while (busy) {
        busy = writer != NULL && !yoke_checkpoint_writer_wait(writer, ROUND_MS);
        TRY(yoke_trainer_any(trainer, &busy));
    }
    return YOKE_OK;
}

/* The writer is idle: nobody reads the state that is overwritten. */
static yoke_status start(yoke_trainer *trainer, yoke_save_kind kind) {
    yoke_checkpoints *own = &trainer->checkpoints;
    yoke_facts facts = {0};
    TRY(yoke_state_take(own->state, trainer->parallel));
    if (own->writer == NULL) return YOKE_OK;
    describe(trainer, &facts);
    yoke_checkpoint_writer_start(own->writer, &facts, kind);
    return YOKE_OK;
}

static yoke_status begin_save(yoke_trainer *trainer, yoke_save_kind kind) {
    yoke_checkpoints *own = &trainer->checkpoints;
    TRY(yoke_trainer_await_saves(trainer));
    yoke_trainer_collect_saves(trainer);
    TRY(start(trainer, kind));
    own->step = trainer->step;
    own->epoch = trainer->epoch;
    own->time_ns = yoke_now_ns();
    return YOKE_OK;
}

yoke_status yoke_trainer_begin_save(yoke_trainer *trainer) {
    return begin_save(trainer, YOKE_SAVE_STEP);
}

/* Rank 0 decides: it alone knows whether the last best could be written. */
yoke_status yoke_trainer_save_best(yoke_trainer *trainer) {
    yoke_checkpoints *own = &trainer->checkpoints;
    double accuracy = yoke_trainer_accuracy(&trainer->last_evaluation);
    double value = accuracy >= 0 ? accuracy : -trainer->last_evaluation.loss;
    if (!has_folder(trainer) || !trainer->options.keep_best) return YOKE_OK;
    TRY(yoke_trainer_await_saves(trainer));
    yoke_trainer_collect_saves(trainer);
    bool better = own->writer != NULL && (!own->best.exists || value > own->best.value);
    if (better) own->best = (yoke_best){.exists = true, .value = value};
    TRY(yoke_trainer_any(trainer, &better));
    return better ? start(trainer, YOKE_SAVE_BEST) : YOKE_OK;
}

/* The status of the file that was written last, or OK; reports a file that is complete. The older
 * files are still there after a failure; a best that was not written is none. */
static yoke_status collect(yoke_trainer *trainer) {
    yoke_checkpoints *own = &trainer->checkpoints;
    yoke_status status;
    const char *path;
    if (own->writer == NULL || !yoke_checkpoint_writer_collect(own->writer, &status, &path))
        return YOKE_OK;
    if (status != YOKE_OK) {
        own->best = own->on_disk;
        return status;
    }
    own->on_disk = own->best;
    yoke_trainer_emit_saved(trainer, path);
    return YOKE_OK;
}

void yoke_trainer_collect_saves(yoke_trainer *trainer) {
    if (collect(trainer) != YOKE_OK) yoke_trainer_warn(trainer); /* the next may succeed */
}

/* Writes the last checkpoint unless a file of this step is there; a failed one is tried again. Rank
 * 0 decides, as above. */
yoke_status yoke_trainer_end_saves(yoke_trainer *trainer, bool with_last) {
    if (!has_folder(trainer)) return YOKE_OK;
    TRY(yoke_trainer_await_saves(trainer));
    yoke_error failed = yoke_error_take(collect(trainer));
    bool lacks = trainer->step > trainer->checkpoints.step || failed.status != YOKE_OK;
    if (with_last) TRY(yoke_trainer_any(trainer, &lacks));
    if (!with_last || !lacks) return yoke_error_restore(&failed);
    if (yoke_error_restore(&failed) != YOKE_OK) yoke_trainer_warn(trainer);
    TRY(begin_save(trainer, YOKE_SAVE_LAST));
    TRY(yoke_trainer_await_saves(trainer));
    return collect(trainer);
}
