/* SPDX-License-Identifier: Apache-2.0 */
/* The file that options.save names: prepared before the first step, so that the save after the last
 * one needs nothing new, and written elsewhere rather than lost. */
#include "train/rescue.h"
#include "train/run.h"
#include "train/weights_writer.h"

/* What rank 0 does with the file while the other ranks wait. */
typedef struct last_weights {
    yoke_trainer *trainer;
    const char *path;  /* options.save, or beside it */
    yoke_error before; /* whether rank 0 could do its part that needs the engine */
    char where[PATH_MAX];
} last_weights;

/* Before. */

static yoke_status open_file(void *context) {
    const last_weights *weights = context;
    TRY(yoke_error_restore(&weights->before));
    return yoke_weights_writer_open(weights->trainer->weights);
}

static yoke_status prepare(yoke_trainer *trainer) {
    yoke_weights_writer_options options = {.path = trainer->options.save,
                                           .notes = &trainer->description,
                                           .apart = trainer->ranks != NULL};
    return trainer->weights != NULL
               ? YOKE_OK
               : yoke_weights_writer_create(&trainer->weights, trainer->parallel, trainer->model,
                                            &options);
}

yoke_status yoke_trainer_prepare_save(yoke_trainer *trainer) {
    last_weights weights = {.trainer = trainer};
    if (trainer->options.save == NULL) return YOKE_OK;
    if (yoke_trainer_writes(trainer)) weights.before = yoke_error_take(prepare(trainer));
    return yoke_process_group_abort(trainer->ranks,
                                    yoke_trainer_file_work(trainer, open_file, &weights));
}

/* After. */

static yoke_status write_to(void *context, const char *path) {
    return yoke_weights_writer_write_to(context, path);
}

static yoke_status write_file(void *context) {
    last_weights *weights = context;
    yoke_weights_writer *writer = weights->trainer->weights;
    const char *path = weights->path;
    bool beside = path != weights->trainer->options.save;
    yoke_rescue_options rescue = {
        .what = "the weights", .path = path, .write = write_to, .context = writer};
    TRY(yoke_error_restore(&weights->before));
    yoke_status status =
        beside ? yoke_weights_writer_write_to(writer, path) : yoke_weights_writer_write(writer);
    if (status == YOKE_OK) snprintf(weights->where, sizeof weights->where, "%s", path);
    if (status == YOKE_OK || status == YOKE_ERROR_NUMERIC) return status;
    return yoke_rescue(status, &rescue, weights->where);
}

static yoke_status take_and_write(last_weights *weights, bool together) {
    yoke_trainer *trainer = weights->trainer;
    const yoke_state *best = trainer->watch.has_best ? trainer->checkpoints.state : NULL;
    if (yoke_trainer_writes(trainer))
        weights->before = yoke_error_take(yoke_weights_writer_take(trainer->weights, best));
    return together ? yoke_trainer_file_work(trainer, write_file, weights) : write_file(weights);
}

yoke_status yoke_trainer_save(yoke_trainer *trainer, const char *path, bool together) {
    last_weights weights = {.trainer = trainer, .path = path};
    bool writes = yoke_trainer_writes(trainer);
    if (trainer->options.save == NULL || (!writes && !together)) return YOKE_OK;
    bool averages = trainer->engine.ema_decay > 0 && !trainer->watch.has_best;
    if (averages) TRY(yoke_data_parallel_use_average(trainer->parallel, true));
    yoke_error error = yoke_error_take(take_and_write(&weights, together));
    yoke_status after =
        averages ? yoke_data_parallel_use_average(trainer->parallel, false) : YOKE_OK;
    if (error.status == YOKE_OK) error = yoke_error_take(after);
    if (weights.where[0] != '\0') yoke_trainer_emit_saved(trainer, weights.where);
    return yoke_error_restore(&error);
}
