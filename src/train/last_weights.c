/* SPDX-License-Identifier: Apache-2.0 */
#include "train/last_weights.h"

#include "train/file_work.h"
#include "train/rescue.h"

/* What rank 0 does with the file while the other ranks wait. */
typedef struct last_file {
    yoke_weights_writer *writer;
    const char *path;
    bool beside;       /* the path is not options.save */
    yoke_error before; /* whether rank 0 could do its part that needs the engine */
    char where[PATH_MAX];
} last_file;

/* Before. */

static yoke_status open_file(void *context) {
    const last_file *file = context;
    TRY(yoke_error_restore(&file->before));
    return yoke_weights_writer_open(file->writer);
}

yoke_status yoke_last_weights_prepare(yoke_weights_writer **writer, yoke_run *run) {
    last_file file = {.path = run->options.save};
    yoke_weights_writer_options options = {.target = yoke_target_path(file.path),
                                           .notes = &run->description,
                                           .apart = run->ranks != NULL};
    if (file.path == NULL) return YOKE_OK;
    if (yoke_run_writes(run) && *writer == NULL)
        file.before = yoke_error_take(
            yoke_weights_writer_create(writer, run->parallel, run->model, &options));
    file.writer = *writer;
    return yoke_process_group_abort(run->ranks, yoke_run_file_work(run, open_file, &file));
}

/* After. */

static yoke_status write_to(void *context, const char *path) {
    return yoke_weights_writer_write_to(context, path);
}

static yoke_status write_file(void *context) {
    last_file *file = context;
    yoke_rescue_options rescue = {
        .what = "the weights", .path = file->path, .write = write_to, .context = file->writer};
    TRY(yoke_error_restore(&file->before));
    yoke_status status = file->beside ? yoke_weights_writer_write_to(file->writer, file->path)
                                      : yoke_weights_writer_write(file->writer);
    if (status == YOKE_OK) snprintf(file->where, sizeof file->where, "%s", file->path);
    if (status == YOKE_OK || status == YOKE_ERROR_NUMERIC) return status;
    return yoke_rescue(status, &rescue, file->where);
}

yoke_status yoke_last_weights_save(yoke_weights_writer *writer, yoke_run *run,
                                   const yoke_last_weights *what) {
    last_file file = {
        .writer = writer, .path = what->path, .beside = what->path != run->options.save};
    bool writes = yoke_run_writes(run);
    if (run->options.save == NULL || (!writes && !what->together)) return YOKE_OK;
    bool averages = run->engine.ema_decay > 0 && what->best == NULL;
    if (writes) yoke_weights_writer_follow(writer, run->parallel);
    if (averages) TRY(yoke_data_parallel_use_average(run->parallel, true));
    if (writes) file.before = yoke_error_take(yoke_weights_writer_take(writer, what->best));
    yoke_error error = yoke_error_take(what->together ? yoke_run_file_work(run, write_file, &file)
                                                      : write_file(&file));
    yoke_status after = averages ? yoke_data_parallel_use_average(run->parallel, false) : YOKE_OK;
    if (error.status == YOKE_OK) error = yoke_error_take(after);
    if (file.where[0] != '\0') yoke_run_say(run, YOKE_EVENT_SAVED, file.where);
    return yoke_error_restore(&error);
}
