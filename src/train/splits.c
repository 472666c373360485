/* SPDX-License-Identifier: Apache-2.0 */
#include "train/splits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct bad_files {
    yoke_run *run;
    size_t count;
} bad_files;

/* All ranks find the same files; rank 0 reports them. */
static void on_bad(const yoke_bad_row *bad, void *payload) {
    bad_files *files = payload;
    files->count++;
    if (yoke_run_writes(files->run)) yoke_run_say(files->run, YOKE_EVENT_WARNING, bad->text);
}

static yoke_status leave_out(yoke_run *run, yoke_dataset *rows, yoke_split split) {
    bad_files files = {.run = run};
    char text[160];
    size_t all = rows->rows;
    TRY(yoke_dataset_skip_bad(rows, run->options.loader_threads, on_bad, &files));
    snprintf(text, sizeof text, "%zu of %zu files of the %s split left out: they cannot be read",
             files.count, all, split == YOKE_SPLIT_TRAIN ? "training" : "test");
    if (files.count > 0 && yoke_run_writes(run)) yoke_run_say(run, YOKE_EVENT_WARNING, text);
    return YOKE_OK;
}

yoke_status yoke_rows_open(yoke_rows *rows, yoke_run *run, yoke_split split,
                           const yoke_dataset *given) {
    const yoke_trainer_options *options = &run->options;
    rows->rows = given;
    if (given == NULL) {
        if (rows->opened == NULL) {
            TRY(yoke_dataset_open(&rows->opened, options->dataset, split));
            if (options->limit_rows > 0) TRY(yoke_dataset_limit(rows->opened, options->limit_rows));
            if (options->skip_bad) TRY(leave_out(run, rows->opened, split));
        }
        rows->rows = rows->opened;
    }
    rows->info.struct_size = sizeof rows->info;
    return yoke_dataset_describe(rows->rows, &rows->info);
}

yoke_status yoke_rows_load(yoke_rows *rows, const yoke_run *run, yoke_loader_options options) {
    rows->loading = options;
    options.struct_size = sizeof options;
    options.batch = run->options.batch;
    options.seed = run->options.seed;
    options.threads = run->options.loader_threads;
    options.devices = run->devices;
    if (run->ranks != NULL) {
        options.rank = yoke_process_group_rank(run->ranks);
        options.world = yoke_process_group_world(run->ranks);
        options.shards = run->engine.shards;
        yoke_chunk own = yoke_shards_dealt(&run->engine, options.world, options.rank);
        options.first_shard = own.first;
        options.own_shards = own.rows;
    }
    TRY(yoke_loader_create(&rows->loader, rows->rows, &options));
    /* A stop ends the wait for large pictures. A rank that left the others in their step would take
     * their result along: ranks wait for the batch, and agree on the stop after it. */
    if (run->ranks == NULL) yoke_loader_stop_on(rows->loader, &run->stopping);
    return yoke_rows_select_inputs(rows, run);
}

void yoke_rows_unload(yoke_rows *rows) {
    yoke_loader_destroy(rows->loader);
    rows->loader = NULL;
}

yoke_status yoke_rows_reload(yoke_rows *rows, const yoke_run *run) {
    if (rows->rows == NULL || rows->loader != NULL) return YOKE_OK;
    return yoke_rows_load(rows, run, rows->loading);
}

yoke_status yoke_rows_select_inputs(yoke_rows *rows, const yoke_run *run) {
    bool opened = rows->loader != NULL && run->model != NULL;
    if (!opened) return YOKE_OK;
    TRY(yoke_loader_select_inputs(rows->loader, run->model));
    return run->shorter_count > 0
               ? yoke_loader_shorten(rows->loader, run->shorter, run->shorter_count)
               : YOKE_OK;
}

void yoke_rows_close(yoke_rows *rows) {
    yoke_loader_destroy(rows->loader);
    yoke_dataset_close(rows->opened);
}

yoke_status yoke_rows_digest(const yoke_rows *of, char text[YOKE_DIGEST_TEXT]) {
    const yoke_dataset *rows = of->rows;
    size_t values = rows->labels != NULL ? yoke_dataset_labels(rows) : (size_t)rows->target_count;
    const void *stored = rows->labels != NULL ? (const void *)rows->labels : rows->targets;
    snprintf(text, YOKE_DIGEST_TEXT, "none");
    if (stored == NULL) return YOKE_OK;
    size_t row_bytes = values * sizeof(float); /* as many as int32_t has */
    char *kept = yoke_malloc(rows->rows * row_bytes);
    if (kept == NULL) return FAIL_MEMORY(rows->rows * row_bytes, "labels");
    for (size_t row = 0; row < rows->rows; row++)
        memcpy(kept + row * row_bytes,
               (const char *)stored + yoke_dataset_stored(rows, row) * row_bytes, row_bytes);
    yoke_digest_text(kept, rows->rows * row_bytes, text);
    yoke_free(kept);
    return YOKE_OK;
}
