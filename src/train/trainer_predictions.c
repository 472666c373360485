/* SPDX-License-Identifier: Apache-2.0 */
/* The predictions of an evaluation: every rank tallies its rows, and all ranks add them up. */
#include <stdlib.h>

#include "data/data.h"
#include "train/run.h"

#define WRONG_WORDS (sizeof(yoke_wrong_row) / sizeof(int64_t))

yoke_status yoke_trainer_open_tallies(yoke_trainer *trainer) {
    const yoke_trainer_options *options = &trainer->options;
    int classes = trainer->test_dataset.classes;
    bool several = trainer->test_dataset.label_count > 1; /* a row has no one class then */
    if (options->mistakes == 0 || classes == 0 || several) return YOKE_OK;
    if (trainer->test_rows->images != NULL) {
        size_t bytes = (size_t)options->mistakes * yoke_dataset_values(trainer->test_rows);
        trainer->mistake_pixels = malloc(bytes);
        if (trainer->mistake_pixels == NULL) return FAIL_MEMORY(bytes, "pictures of mistakes");
    }
    TRY(yoke_tally_create(&trainer->tally, classes, options->mistakes));
    return yoke_tally_create(&trainer->predictions, classes, options->mistakes);
}

/* The worst of all ranks are among the worst of each. A rank with fewer than the others fills up
 * with rows of no class. */
static yoke_status add_worst(const yoke_trainer *trainer, yoke_tally *tally) {
    int world = yoke_process_group_world(trainer->ranks), capacity = tally->capacity;
    size_t own_count = (size_t)capacity, count = own_count * (size_t)world;
    yoke_wrong_row *all = calloc(count, sizeof *all);
    if (all == NULL) return FAIL_MEMORY(count * sizeof *all, "the ranks' predictions");
    for (int i = tally->worst_count; i < capacity; i++)
        tally->worst[i] = (yoke_wrong_row){.label = -1};
    yoke_status status = yoke_process_group_all_gather(trainer->ranks, all, tally->worst,
                                                       own_count * WRONG_WORDS, YOKE_ELEMENT_INT64);
    tally->worst_count = 0;
    for (size_t i = 0; i < count && status == YOKE_OK; i++)
        if (all[i].label >= 0) yoke_tally_add_wrong(tally, &all[i]);
    free(all);
    return status;
}

static yoke_status add_ranks(const yoke_trainer *trainer, yoke_tally *tally) {
    int64_t sums[] = {(int64_t)tally->rows, tally->among_five};
    if (tally->counts != NULL)
        TRY(yoke_process_group_all_reduce(trainer->ranks, tally->counts, tally->count_of_counts,
                                          YOKE_ELEMENT_INT64, YOKE_SUM));
    TRY(yoke_process_group_all_reduce(trainer->ranks, sums, 2, YOKE_ELEMENT_INT64, YOKE_SUM));
    tally->rows = (size_t)sums[0];
    tally->among_five = sums[1];
    return add_worst(trainer, tally);
}

yoke_status yoke_trainer_end_tally(yoke_trainer *trainer) {
    if (trainer->tally.classes == 0) return YOKE_OK;
    if (trainer->ranks != NULL) TRY(add_ranks(trainer, &trainer->tally));
    yoke_tally complete = trainer->tally;
    trainer->tally = trainer->predictions;
    trainer->predictions = complete;
    return YOKE_OK;
}

yoke_status yoke_trainer_predictions(const yoke_trainer *trainer, yoke_predictions *predictions) {
    TRY(yoke_trainer_check_idle(trainer, "yoke_trainer_predictions"));
    if (trainer->options.mistakes == 0)
        return FAIL(YOKE_ERROR_ARGUMENT, "this trainer keeps no predictions: set options.mistakes");
    const yoke_tally *tally = &trainer->predictions;
    const yoke_dataset_info *rows = &trainer->dataset;
    yoke_predictions own = {.struct_size = sizeof own,
                            .step = tally->step,
                            .rows = tally->rows,
                            .classes = rows->classes,
                            .counts = tally->rows > 0 ? tally->counts : NULL,
                            .mistakes = tally->worst_count,
                            .shape = rows->shape,
                            .class_names = rows->class_names};
    return yoke_options_store(predictions, &own, sizeof own, "yoke_predictions");
}

/* The bytes of a row, or NULL: the dataset has other values, or the file is gone. */
static const uint8_t *pixels_of(const yoke_trainer *trainer, int index, size_t row) {
    const yoke_dataset *rows = trainer->test_rows;
    size_t values = yoke_dataset_values(rows), stored = yoke_dataset_stored(rows, row);
    if (rows->images == NULL) return rows->bytes != NULL ? rows->bytes + stored * values : NULL;
    const yoke_augmentation none = {.kind = YOKE_AUGMENT_NONE};
    const yoke_image_request request = {.augmentation = &none};
    uint8_t *pixels = trainer->mistake_pixels + (size_t)index * values;
    return yoke_images_read(rows->images, stored, &request, pixels) == YOKE_OK ? pixels : NULL;
}

yoke_status yoke_trainer_mistake(const yoke_trainer *trainer, int index, yoke_mistake *mistake) {
    TRY(yoke_trainer_check_idle(trainer, "yoke_trainer_mistake"));
    const yoke_tally *tally = &trainer->predictions;
    if (index < 0 || index >= tally->worst_count)
        return FAIL(YOKE_ERROR_ARGUMENT, "mistake %d: there are %d, counted from 0", index,
                    tally->worst_count);
    const yoke_wrong_row *wrong = &tally->worst[index];
    size_t row = (size_t)wrong->row;
    yoke_mistake own = {.struct_size = sizeof own,
                        .row = row,
                        .label = (int)wrong->label,
                        .predicted = (int)wrong->predicted,
                        .probability = wrong->probability,
                        .loss = wrong->loss,
                        .pixels = pixels_of(trainer, index, row)};
    return yoke_options_store(mistake, &own, sizeof own, "yoke_mistake");
}
