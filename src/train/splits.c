/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of a run: opens the splits of its dataset and leaves out what the options say. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/data.h"
#include "train/run.h"

typedef struct bad_files {
    yoke_trainer *trainer;
    size_t count;
} bad_files;

/* All ranks find the same files; rank 0 reports them. */
static void warn(yoke_trainer *trainer, const char *text) {
    yoke_event event = {.kind = YOKE_EVENT_WARNING, .accuracy = -1, .text = text};
    if (yoke_trainer_writes(trainer)) yoke_trainer_emit(trainer, &event);
}

static void on_bad(const yoke_bad_row *bad, void *payload) {
    bad_files *files = payload;
    files->count++;
    warn(files->trainer, bad->text);
}

static yoke_status leave_out(yoke_trainer *trainer, yoke_dataset *rows, yoke_split split) {
    bad_files files = {.trainer = trainer};
    char text[160];
    size_t all = rows->rows;
    TRY(yoke_dataset_skip_bad(rows, trainer->options.loader_threads, on_bad, &files));
    snprintf(text, sizeof text, "%zu of %zu files of the %s split left out: they cannot be read",
             files.count, all, split == YOKE_SPLIT_TRAIN ? "training" : "test");
    if (files.count > 0) warn(trainer, text);
    return YOKE_OK;
}

yoke_status yoke_trainer_open_split(yoke_trainer *trainer, yoke_split split) {
    const yoke_trainer_options *options = &trainer->options;
    yoke_dataset **rows = &trainer->opened[split == YOKE_SPLIT_TEST];
    TRY(yoke_dataset_open(rows, options->dataset, split));
    if (options->limit_rows > 0) TRY(yoke_dataset_limit(*rows, options->limit_rows));
    return options->skip_bad ? leave_out(trainer, *rows, split) : YOKE_OK;
}

yoke_status yoke_trainer_labels_text(const yoke_dataset *rows, char text[YOKE_DIGEST_TEXT]) {
    size_t values = rows->labels != NULL ? yoke_dataset_labels(rows) : (size_t)rows->target_count;
    const void *stored = rows->labels != NULL ? (const void *)rows->labels : rows->targets;
    snprintf(text, YOKE_DIGEST_TEXT, "none");
    if (stored == NULL) return YOKE_OK;
    size_t row_bytes = values * sizeof(float); /* as many as int32_t has */
    char *kept = malloc(rows->rows * row_bytes);
    if (kept == NULL) return FAIL_MEMORY(rows->rows * row_bytes, "labels");
    for (size_t row = 0; row < rows->rows; row++)
        memcpy(kept + row * row_bytes,
               (const char *)stored + yoke_dataset_stored(rows, row) * row_bytes, row_bytes);
    yoke_digest_text(kept, rows->rows * row_bytes, text);
    free(kept);
    return YOKE_OK;
}
