/* SPDX-License-Identifier: Apache-2.0 */
/* Reads every file of a dataset once, before training, and leaves out the rows whose file cannot be
 * read. Every rank that does so finds the same rows, so that ranks agree on every batch. */
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "data/data.h"

#define THREADS_LIMIT 64

typedef struct scan {
    const yoke_dataset *dataset;
    atomic_size_t next; /* row */
    bool *good;         /* [rows] */
    char **texts;       /* [rows]: the messages of the bad rows; each owned */
} scan;

static yoke_status scan_rows(int worker, void *context) {
    scan *own = context;
    (void)worker;
    for (;;) {
        TRY(yoke_check_cancelled());
        size_t row = atomic_fetch_add(&own->next, 1);
        if (row >= own->dataset->rows) return YOKE_OK;
        yoke_status status =
            yoke_images_check(own->dataset->images, yoke_dataset_stored(own->dataset, row));
        own->good[row] = status == YOKE_OK;
        if (status == YOKE_ERROR_MEMORY) return status;
        if (status == YOKE_OK) continue;
        own->texts[row] = yoke_strdup(yoke_last_error());
        if (own->texts[row] == NULL) return FAIL_MEMORY(100, "the name of a bad file");
    }
}

static yoke_status run_scan(scan *own, int threads) {
    yoke_workers *workers;
    yoke_workers_options options = {.count = threads, .spare_cores = -1};
    TRY(yoke_workers_create(&workers, &options));
    yoke_status status = yoke_workers_run(workers, threads, scan_rows, own, NULL);
    yoke_workers_destroy(workers);
    return status;
}

static yoke_status leave_out(yoke_dataset *dataset, const scan *found,
                             void (*on_bad)(const yoke_bad_row *bad, void *payload),
                             void *payload) {
    size_t bad = 0, first = 0;
    for (size_t row = dataset->rows; row-- > 0;) {
        bad += !found->good[row];
        if (!found->good[row]) first = row;
    }
    if (bad == dataset->rows)
        return FAIL(YOKE_ERROR_DATA, "none of the %zu files can be read; the first: %s", bad,
                    found->texts[first]);
    for (size_t row = 0; row < dataset->rows && on_bad != NULL; row++) {
        yoke_bad_row event = {.struct_size = sizeof event, .row = row, .text = found->texts[row]};
        if (!found->good[row]) on_bad(&event, payload);
    }
    return yoke_dataset_keep(dataset, found->good);
}

static int scan_threads(int wanted) {
    cpu_set_t cores;
    if (wanted > 0) return wanted;
    int count = sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
    return count > THREADS_LIMIT ? THREADS_LIMIT : count;
}

yoke_status yoke_dataset_skip_bad(yoke_dataset *dataset, int threads,
                                  void (*on_bad)(const yoke_bad_row *bad, void *payload),
                                  void *payload) {
    TRY(yoke_dataset_check_free(dataset, "yoke_dataset_skip_bad"));
    if (threads < 0 || threads > THREADS_LIMIT)
        return FAIL(YOKE_ERROR_ARGUMENT, "%d threads: expected 0 (default) to %d", threads,
                    THREADS_LIMIT);
    if (dataset->images == NULL) return YOKE_OK;
    size_t rows = dataset->rows;
    scan found = {.dataset = dataset,
                  .good = yoke_calloc(rows, sizeof *found.good),
                  .texts = yoke_calloc(rows, sizeof *found.texts)};
    yoke_status status = YOKE_OK;
    if (found.good == NULL || found.texts == NULL)
        status = FAIL_MEMORY(rows * sizeof *found.texts, "the list of bad files");
    if (status == YOKE_OK) status = run_scan(&found, scan_threads(threads));
    if (status == YOKE_OK) status = leave_out(dataset, &found, on_bad, payload);
    for (size_t row = 0; found.texts != NULL && row < rows; row++)
        yoke_free(found.texts[row]);
    yoke_free(found.texts);
    yoke_free(found.good);
    return status;
}
