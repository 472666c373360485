/* SPDX-License-Identifier: Apache-2.0 */
/* Going on from a checkpoint: which one, whether it fits this run, and where in the run it was. */
#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/data.h"
#include "train/run.h"

#define THREADS "run.threads" /* compute threads of rank 0's first device; 0: a GPU */

yoke_status yoke_trainer_threads(const yoke_trainer *trainer, uint64_t *threads) {
    yoke_device_info root = {.struct_size = sizeof root};
    TRY(yoke_devices_describe(trainer->devices, 0, &root));
    *threads = root.capability > 0 ? 0 : (uint64_t)root.threads;
    return YOKE_OK;
}

static void emit_text(yoke_trainer *trainer, yoke_event_kind kind, const char *text) {
    yoke_event event = {.kind = kind, .accuracy = -1, .text = text};
    yoke_trainer_emit(trainer, &event);
}

#define PASSED_TEXTS 10 /* warnings about damaged files, at most */

/* What rank 0 reads. */
typedef struct reading {
    yoke_trainer *trainer;
    yoke_facts own;
    yoke_checkpoint *checkpoint; /* NULL: the run begins from scratch */
    char *passed[PASSED_TEXTS];  /* of the first damaged files */
    size_t passed_count;         /* of all */
} reading;

/* Events come from the thread that creates the trainer. */
static void keep_passed(void *payload, const char *text) {
    reading *own = payload;
    if (own->passed_count < PASSED_TEXTS) own->passed[own->passed_count] = strdup(text);
    own->passed_count++;
}

static void report_passed(reading *own) {
    char rest[64];
    for (size_t i = 0; i < own->passed_count && i < PASSED_TEXTS; i++) {
        if (own->passed[i] != NULL) emit_text(own->trainer, YOKE_EVENT_WARNING, own->passed[i]);
        free(own->passed[i]);
    }
    if (own->passed_count <= PASSED_TEXTS) return;
    size_t more = own->passed_count - PASSED_TEXTS;
    snprintf(rest, sizeof rest, "passed over %zu more damaged file%s", more, more == 1 ? "" : "s");
    emit_text(own->trainer, YOKE_EVENT_WARNING, rest);
}

static yoke_status find_checkpoint(reading *own) {
    const yoke_trainer_options *options = &own->trainer->options;
    if (options->resume == NULL) return YOKE_OK;
    if (strcmp(options->resume, "auto") != 0)
        return yoke_checkpoint_open_header(&own->checkpoint, options->resume);
    yoke_status status =
        yoke_folder_open_newest(&own->checkpoint, options->checkpoint_dir, keep_passed, own);
    return status == YOKE_ERROR_MISSING ? YOKE_OK : status;
}

static yoke_status read_files(void *context) {
    reading *own = context;
    yoke_trainer *trainer = own->trainer;
    const yoke_trainer_options *options = &trainer->options;
    if (options->checkpoint_dir != NULL)
        TRY(yoke_folder_open(&trainer->checkpoints.folder, options->checkpoint_dir));
    TRY(find_checkpoint(own));
    if (own->checkpoint == NULL) return YOKE_OK;
    return yoke_checkpoint_read(own->checkpoint, trainer->model, &own->own, options->resume_anyway,
                                trainer->checkpoints.state);
}

/* A best that this run's folder has not is none. */
static yoke_status read_best(yoke_trainer *trainer, const yoke_checkpoint *checkpoint) {
    yoke_best *best = &trainer->checkpoints.best;
    const char *text = yoke_safetensors_note(&checkpoint->file, "best");
    char path[PATH_MAX] = "";
    if (trainer->options.checkpoint_dir != NULL)
        yoke_folder_best_path(path, trainer->options.checkpoint_dir);
    best->exists = text != NULL;
    if (text != NULL && !yoke_text_real(text, -DBL_MAX, DBL_MAX, &best->value))
        return FAIL(YOKE_ERROR_DATA, "%s: best is '%.40s', not a number", checkpoint->file.path,
                    text);
    best->exists = best->exists && yoke_file_exists(path);
    trainer->checkpoints.on_disk = *best;
    return YOKE_OK;
}

/* Where the run was. Another batch size moves the position in the epoch to the batch that begins at
 * or before it. */
static yoke_status set_position(yoke_trainer *trainer, const yoke_checkpoint *checkpoint) {
    uint64_t a_epoch = yoke_loader_batches(trainer->loader);
    uint64_t own = (uint64_t)trainer->options.batch, theirs = own;
    trainer->step = trainer->checkpoints.state->steps;
    trainer->epoch = trainer->step / a_epoch;
    trainer->batches = trainer->step % a_epoch;
    TRY(yoke_checkpoint_number(checkpoint, "config.batch", INT32_MAX, &theirs));
    TRY(yoke_checkpoint_number(checkpoint, "epoch", INT32_MAX, &trainer->epoch));
    TRY(yoke_checkpoint_number(checkpoint, "epoch_batches", INT32_MAX, &trainer->batches));
    trainer->batches = trainer->batches * theirs / own;
    if (trainer->batches > a_epoch) trainer->batches = a_epoch;
    TRY(yoke_watch_read(trainer, checkpoint));
    return read_best(trainer, checkpoint);
}

/* Like another number of devices, another number of threads computes the same up to rounding. */
static yoke_status compare_threads(yoke_trainer *trainer, const yoke_checkpoint *checkpoint) {
    uint64_t own, theirs;
    char text[PATH_MAX + 200];
    TRY(yoke_trainer_threads(trainer, &own));
    theirs = own;
    TRY(yoke_checkpoint_number(checkpoint, THREADS, INT32_MAX, &theirs));
    if (theirs == own || theirs == 0 || own == 0) return YOKE_OK;
    snprintf(text, sizeof text,
             "%s: a device has %llu threads here and had %llu there: the last bits may differ from "
             "the uninterrupted run's; --threads %llu keeps them",
             checkpoint->file.path, (unsigned long long)own, (unsigned long long)theirs,
             (unsigned long long)theirs);
    emit_text(trainer, YOKE_EVENT_WARNING, text);
    return YOKE_OK;
}

/* Steps of another batch size count other rows: what is left of the epochs decides. */
static void plan_remaining(yoke_trainer *trainer) {
    uint64_t a_epoch = yoke_loader_batches(trainer->loader);
    uint64_t all = (uint64_t)trainer->options.epochs * a_epoch;
    uint64_t done = trainer->epoch * a_epoch + trainer->batches;
    if (trainer->options.steps > 0 || trainer->steps == UINT64_MAX) return;
    trainer->steps = trainer->step + (all > done ? all - done : 0);
    trainer->schedule.steps = trainer->steps;
}

static yoke_status go_on(yoke_trainer *trainer, const yoke_checkpoint *checkpoint) {
    char text[PATH_MAX + 80], steps[32];
    TRY(set_position(trainer, checkpoint));
    TRY(compare_threads(trainer, checkpoint));
    plan_remaining(trainer);
    trainer->checkpoints.resumed = true;
    snprintf(text, sizeof text, "resumed from %s, after step %llu%s%s", checkpoint->file.path,
             (unsigned long long)trainer->step, yoke_trainer_of_steps(trainer, steps),
             yoke_trainer_is_over(trainer) ? ": the run is complete" : "");
    emit_text(trainer, YOKE_EVENT_RESUMED, text);
    return YOKE_OK;
}

/* Files of later steps, from another course of the run, would be taken for the newest, and the best
 * of that course would be overwritten. */
static yoke_status check_folder(const yoke_trainer *trainer) {
    const char *folder = trainer->options.checkpoint_dir;
    bool automatic =
        trainer->options.resume != NULL && strcmp(trainer->options.resume, "auto") == 0;
    if (folder == NULL || automatic) return YOKE_OK;
    return yoke_folder_check_newest(folder, trainer->step);
}

static void report_no_checkpoint(yoke_trainer *trainer) {
    const yoke_trainer_options *options = &trainer->options;
    char text[PATH_MAX + 80];
    if (options->resume == NULL) return;
    snprintf(text, sizeof text, "no checkpoint in %s: training begins from %s",
             options->checkpoint_dir, options->init != NULL ? options->init : "scratch");
    emit_text(trainer, YOKE_EVENT_RESUMED, text);
}

/* By all ranks together; only rank 0 reads. */
static yoke_status read_and_go_on(yoke_trainer *trainer) {
    reading own = {.trainer = trainer};
    yoke_facts_add_table(&own.own, &yoke_engine_options, trainer->parallel);
    yoke_facts_add_table(&own.own, &yoke_run_options, trainer);
    yoke_error error = yoke_error_take(yoke_trainer_file_work(trainer, read_files, &own));
    report_passed(&own);
    yoke_status status = yoke_error_restore(&error);
    if (status == YOKE_OK && own.checkpoint != NULL) status = go_on(trainer, own.checkpoint);
    yoke_checkpoint_close(own.checkpoint);
    if (status == YOKE_OK && own.checkpoint == NULL && yoke_trainer_writes(trainer))
        report_no_checkpoint(trainer);
    return status;
}

static yoke_status open_and_load(yoke_trainer *trainer) {
    const yoke_trainer_options *options = &trainer->options;
    TRY(read_and_go_on(trainer));
    if (!yoke_trainer_writes(trainer)) return YOKE_OK;
    TRY(check_folder(trainer));
    if (options->checkpoint_dir == NULL) return YOKE_OK;
    return yoke_checkpoint_writer_create(&trainer->checkpoints.writer, trainer->checkpoints.state,
                                         &trainer->checkpoints.folder, options->keep);
}

/* The other ranks learn where rank 0 is. */
static yoke_status share_position(yoke_trainer *trainer) {
    yoke_checkpoints *own = &trainer->checkpoints;
    int64_t place[] = {own->resumed, (int64_t)trainer->step, (int64_t)trainer->epoch,
                       (int64_t)trainer->batches};
    if (trainer->ranks == NULL) return yoke_watch_share(trainer);
    TRY(yoke_process_group_broadcast(trainer->ranks, place, sizeof place / sizeof place[0],
                                     YOKE_ELEMENT_INT64, 0));
    own->resumed = place[0] != 0;
    trainer->step = (uint64_t)place[1];
    trainer->epoch = (uint64_t)place[2];
    trainer->batches = (uint64_t)place[3];
    if (own->resumed) plan_remaining(trainer);
    return yoke_watch_share(trainer);
}

yoke_status yoke_trainer_resume(yoke_trainer *trainer) {
    yoke_checkpoints *own = &trainer->checkpoints;
    const yoke_trainer_options *options = &trainer->options;
    bool saves = options->checkpoint_dir != NULL || options->resume != NULL;
    if (saves || options->patience > 0)
        TRY(yoke_state_create(&own->state, trainer->parallel, options->patience > 0));
    if (!saves) return YOKE_OK;
    TRY(open_and_load(trainer)); /* create aborts the group after a failure */
    TRY(share_position(trainer));
    if (own->resumed) TRY(yoke_state_give(trainer->parallel, own->state));
    own->step = trainer->step;
    own->epoch = trainer->epoch;
    own->time_ns = yoke_now_ns();
    return YOKE_OK;
}
