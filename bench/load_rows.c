/* SPDX-License-Identifier: Apache-2.0 */
/* How fast a loader makes batches: reads "N" lines from stdin, and for each prints the seconds in
 * which it made N batches, behind a first one that does not count.
 *
 *   load_rows SPEC BATCH THREADS [AUGMENT]     0, none; 3, RandomResizedCrop and flip
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "yoke/yoke.h"

static int fail(void) {
    fprintf(stderr, "%s\n", yoke_last_error());
    return 1;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* The next batch; a new epoch where one ends. */
static yoke_status next_batch(yoke_loader *loader, uint64_t *epoch) {
    yoke_batch batch = {.struct_size = sizeof batch};
    yoke_status status = yoke_loader_next(loader, &batch, NULL);
    if (status != YOKE_OK || batch.rows > 0) return status;
    status = yoke_loader_begin(loader, ++*epoch);
    return status == YOKE_OK ? yoke_loader_next(loader, &batch, NULL) : status;
}

static yoke_status answer(yoke_loader *loader, long batches) {
    uint64_t epoch = 0;
    double begin = 0;
    yoke_status status = yoke_loader_begin(loader, epoch);
    for (long i = 0; i <= batches && status == YOKE_OK; i++) {
        status = next_batch(loader, &epoch);
        if (i == 0) begin = now();
    }
    if (status != YOKE_OK) return status;
    printf("%.6f\n", now() - begin);
    fflush(stdout);
    return YOKE_OK;
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "usage: load_rows SPEC BATCH THREADS [AUGMENT]\n");
        return 2;
    }
    yoke_loader_options options = YOKE_LOADER_OPTIONS_INIT;
    options.batch = atoi(argv[2]);
    options.threads = atoi(argv[3]);
    options.augment = argc > 4 ? (yoke_augment)atoi(argv[4]) : YOKE_AUGMENT_NONE;
    options.shuffle = options.drop_last = true;
    yoke_dataset *dataset = NULL;
    yoke_loader *loader = NULL;
    if (yoke_dataset_open(&dataset, argv[1], YOKE_SPLIT_TRAIN) != YOKE_OK ||
        yoke_loader_create(&loader, dataset, &options) != YOKE_OK)
        return fail();
    char line[32];
    yoke_status status = YOKE_OK;
    while (status == YOKE_OK && fgets(line, sizeof line, stdin) != NULL)
        status = answer(loader, strtol(line, NULL, 10));
    yoke_loader_destroy(loader);
    yoke_dataset_close(dataset);
    return status == YOKE_OK ? 0 : fail();
}
