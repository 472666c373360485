/* SPDX-License-Identifier: Apache-2.0 */
#include "train/resume.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/file_work.h"
#include "train/run_options.h"

#define PASSED_TEXTS 10 /* warnings about damaged files, at most */

/* What rank 0 reads. */
typedef struct reading {
    yoke_run *run;
    yoke_saving *saving;
    yoke_facts own;
    yoke_checkpoint *checkpoint; /* NULL: the run begins from scratch */
    char *passed[PASSED_TEXTS];  /* of the first damaged files */
    size_t passed_count;         /* of all */
} reading;

/* Events come from the thread that creates the trainer. */
static void keep_passed(void *payload, const char *text) {
    reading *own = payload;
    if (own->passed_count < PASSED_TEXTS) own->passed[own->passed_count] = yoke_strdup(text);
    own->passed_count++;
}

static void report_passed(reading *own) {
    char rest[64];
    for (size_t i = 0; i < own->passed_count && i < PASSED_TEXTS; i++) {
        yoke_run_say(own->run, YOKE_EVENT_WARNING, own->passed[i]);
        yoke_free(own->passed[i]);
    }
    if (own->passed_count <= PASSED_TEXTS) return;
    size_t more = own->passed_count - PASSED_TEXTS;
    snprintf(rest, sizeof rest, "passed over %zu more damaged file%s", more, more == 1 ? "" : "s");
    yoke_run_say(own->run, YOKE_EVENT_WARNING, rest);
}

static yoke_status read_files(void *context) {
    reading *own = context;
    const yoke_run *run = own->run;
    const yoke_trainer_options *options = &run->options;
    if (options->checkpoint_dir != NULL)
        TRY(yoke_folder_open(&own->saving->folder, options->checkpoint_dir));
    if (options->resume == NULL) return YOKE_OK;
    if (strcmp(options->resume, "auto") != 0) {
        const yoke_file_source from = yoke_source_path(options->resume);
        TRY(yoke_checkpoint_open_header(&own->checkpoint, &from));
    } else {
        yoke_status status =
            yoke_folder_open_newest(&own->checkpoint, options->checkpoint_dir, keep_passed, own);
        if (status == YOKE_ERROR_MISSING) return YOKE_OK;
        TRY(status);
    }
    return yoke_checkpoint_read(own->checkpoint, run->model, &own->own, options->resume_anyway,
                                own->saving->state);
}

/* A best that this run's folder has not is none. */
static yoke_status read_best(const yoke_run *run, yoke_saving *saving,
                             const yoke_checkpoint *checkpoint) {
    yoke_best *best = &saving->best;
    const char *text = yoke_safetensors_note(&checkpoint->file, "best");
    char path[PATH_MAX] = "";
    if (run->options.checkpoint_dir != NULL)
        yoke_folder_best_path(path, run->options.checkpoint_dir);
    best->exists = text != NULL;
    if (text != NULL && !yoke_text_real(text, -DBL_MAX, DBL_MAX, &best->value))
        return FAIL(YOKE_ERROR_DATA, "%s: best is '%.40s', not a number", checkpoint->file.path,
                    text);
    best->exists = best->exists && yoke_file_exists(path);
    saving->on_disk = *best;
    return YOKE_OK;
}

/* Where the run was. Another batch size moves the position in the epoch to the batch that begins at
 * or before it. */
static yoke_status set_position(yoke_run *run, const yoke_state *state,
                                const yoke_checkpoint *checkpoint) {
    yoke_position *at = &run->at;
    uint64_t a_epoch = yoke_loader_batch_count(run->training.loader);
    uint64_t own = (uint64_t)run->options.batch, theirs = own;
    at->step = state->steps;
    at->epoch = at->step / a_epoch;
    at->batches = at->step % a_epoch;
    TRY(yoke_checkpoint_number(checkpoint, "config.batch", INT32_MAX, &theirs));
    TRY(yoke_checkpoint_number(checkpoint, "epoch", INT32_MAX, &at->epoch));
    TRY(yoke_checkpoint_number(checkpoint, "epoch_batches", INT32_MAX, &at->batches));
    at->batches = at->batches * theirs / own;
    if (at->batches > a_epoch) at->batches = a_epoch;
    return YOKE_OK;
}

/* Like another number of devices, another number of threads computes the same up to rounding. */
static yoke_status compare_threads(yoke_run *run, const yoke_checkpoint *checkpoint) {
    uint64_t own, theirs;
    char text[PATH_MAX + 200];
    TRY(yoke_run_threads(run, &own));
    theirs = own;
    TRY(yoke_checkpoint_number(checkpoint, YOKE_FACT_THREADS, INT32_MAX, &theirs));
    if (theirs == own || theirs == 0 || own == 0) return YOKE_OK;
    snprintf(text, sizeof text,
             "%s: a device has %llu threads here and had %llu there: the last bits may differ from "
             "the uninterrupted run's; --threads %llu keeps them",
             checkpoint->file.path, (unsigned long long)own, (unsigned long long)theirs,
             (unsigned long long)theirs);
    yoke_run_say(run, YOKE_EVENT_WARNING, text);
    return YOKE_OK;
}

/* Steps of another batch size count other rows: what is left of the epochs decides. */
static void plan_remaining(yoke_run *run) {
    yoke_position *at = &run->at;
    uint64_t a_epoch = yoke_loader_batch_count(run->training.loader);
    uint64_t all = (uint64_t)run->options.epochs * a_epoch;
    uint64_t done = at->epoch * a_epoch + at->batches;
    if (run->options.steps > 0 || at->steps == UINT64_MAX) return;
    at->steps = at->step + (all > done ? all - done : 0);
    run->schedule.steps = at->steps;
}

static yoke_status go_on(yoke_run *run, yoke_saving *saving, yoke_watch *watch,
                         const yoke_checkpoint *checkpoint) {
    char text[PATH_MAX + 80], steps[32];
    TRY(set_position(run, saving->state, checkpoint));
    TRY(yoke_watch_read(watch, run, checkpoint));
    TRY(read_best(run, saving, checkpoint));
    TRY(compare_threads(run, checkpoint));
    plan_remaining(run);
    saving->resumed = true;
    snprintf(text, sizeof text, "resumed from %s, after step %llu%s%s", checkpoint->file.path,
             (unsigned long long)run->at.step, yoke_run_of_steps(run, steps),
             yoke_run_is_over(run) ? ": the run is complete" : "");
    yoke_run_say(run, YOKE_EVENT_RESUMED, text);
    return YOKE_OK;
}

/* Only rank 0 reads. */
static yoke_status read_and_go_on(yoke_run *run, yoke_saving *saving, yoke_watch *watch) {
    const yoke_trainer_options *options = &run->options;
    reading own = {.run = run, .saving = saving};
    char text[PATH_MAX + 80];
    yoke_facts_add_table(&own.own, &yoke_engine_options, run->parallel);
    yoke_facts_add_table(&own.own, &yoke_run_options, run);
    yoke_error error = yoke_error_take(yoke_run_file_work(run, read_files, &own));
    report_passed(&own);
    yoke_status status = yoke_error_restore(&error);
    if (status == YOKE_OK && own.checkpoint != NULL)
        status = go_on(run, saving, watch, own.checkpoint);
    yoke_checkpoint_close(own.checkpoint);
    if (status == YOKE_OK && own.checkpoint == NULL && yoke_run_writes(run) &&
        options->resume != NULL) {
        snprintf(text, sizeof text, "no checkpoint in %s: training begins from %s",
                 options->checkpoint_dir, options->init != NULL ? options->init : "scratch");
        yoke_run_say(run, YOKE_EVENT_RESUMED, text);
    }
    return status;
}

static yoke_status open_and_load(yoke_run *run, yoke_saving *saving, yoke_watch *watch) {
    const yoke_trainer_options *options = &run->options;
    TRY(read_and_go_on(run, saving, watch));
    if (!yoke_run_writes(run) || options->checkpoint_dir == NULL) return YOKE_OK;
    bool automatic = options->resume != NULL && strcmp(options->resume, "auto") == 0;
    /* Files of later steps, from another course of the run, would be taken for the newest, and the
     * best of that course would be overwritten. */
    if (!automatic) TRY(yoke_folder_check_newest(options->checkpoint_dir, run->at.step));
    return yoke_checkpoint_writer_create(&saving->writer, saving->state, &saving->folder,
                                         options->keep);
}

/* The other ranks learn where rank 0 is. */
static yoke_status share_position(yoke_run *run, yoke_saving *saving) {
    yoke_position *at = &run->at;
    int64_t place[] = {saving->resumed, (int64_t)at->step, (int64_t)at->epoch,
                       (int64_t)at->batches};
    if (run->ranks == NULL) return YOKE_OK;
    TRY(yoke_process_group_broadcast(run->ranks, place, sizeof place / sizeof place[0],
                                     YOKE_ELEMENT_INT64, 0));
    saving->resumed = place[0] != 0;
    at->step = (uint64_t)place[1];
    at->epoch = (uint64_t)place[2];
    at->batches = (uint64_t)place[3];
    if (saving->resumed) plan_remaining(run);
    return YOKE_OK;
}

yoke_status yoke_resume(yoke_run *run, yoke_saving *saving, yoke_watch *watch) {
    const yoke_trainer_options *options = &run->options;
    bool saves = options->checkpoint_dir != NULL || options->resume != NULL;
    saving->watch = watch;
    if (saves || options->patience > 0)
        TRY(yoke_state_create(&saving->state, run->parallel, options->patience > 0));
    if (!saves || yoke_process_group_is_newcomer(run->ranks)) return YOKE_OK;
    TRY(open_and_load(run, saving, watch)); /* create aborts the group after a failure */
    TRY(share_position(run, saving));
    TRY(yoke_watch_share(watch, run));
    if (saving->resumed) TRY(yoke_state_give(run->parallel, saving->state));
    saving->step = run->at.step;
    saving->epoch = run->at.epoch;
    saving->time_ns = yoke_now_ns();
    return YOKE_OK;
}
