/* SPDX-License-Identifier: Apache-2.0 */
#include "train/test_split.h"

#include <stdlib.h>

#include "train/splits.h"
#include "train/unknown_length.h"
#include "train/views.h"

#define WRONG_WORDS (sizeof(yoke_wrong_row) / sizeof(int64_t))

/* Opening. */

/* Rows of the host program may differ. */
static yoke_status check_alike(const yoke_dataset_info *training, const yoke_dataset_info *test) {
    const yoke_shape *one = &training->shape, *other = &test->shape;
    if (one->channels == other->channels && one->height == other->height &&
        one->width == other->width && one->flat == other->flat &&
        one->sequence == other->sequence && training->label_count == test->label_count &&
        training->classes == test->classes && training->target_count == test->target_count)
        return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT,
                "test_rows are %dx%dx%d with %d classes and %d targets, training_rows %dx%dx%d "
                "with %d and %d: they must be alike",
                other->channels, other->height, other->width, test->classes, test->target_count,
                one->channels, one->height, one->width, training->classes, training->target_count);
}

static yoke_status open_tallies(yoke_test_split *test, const yoke_run *run) {
    int classes = test->rows.info.classes, misclassified = run->options.misclassified;
    bool several = test->rows.info.label_count > 1; /* a row has no one class then */
    if (misclassified == 0 || classes == 0 || several) return YOKE_OK;
    if (test->rows.rows->images != NULL) {
        size_t bytes = (size_t)misclassified * yoke_dataset_values(test->rows.rows);
        test->misclassified_pixels = yoke_malloc(bytes);
        if (test->misclassified_pixels == NULL)
            return FAIL_MEMORY(bytes, "pictures of misclassified rows");
    }
    TRY(yoke_tally_create(&test->tally, classes, misclassified));
    return yoke_tally_create(&test->predictions, classes, misclassified);
}

yoke_status yoke_test_split_open(yoke_test_split *test, yoke_run *run) {
    const yoke_trainer_options *options = &run->options;
    if (test->rows.loader != NULL) return YOKE_OK;
    if (options->training_rows != NULL && options->test_rows == NULL)
        return FAIL(YOKE_ERROR_ARGUMENT, "no rows to evaluate on: test_rows is NULL");
    TRY(yoke_rows_open(&test->rows, run, YOKE_SPLIT_TEST, options->test_rows));
    TRY(check_alike(&run->training.info, &test->rows.info));
    TRY(yoke_rows_load(&test->rows, run, (yoke_loader_options){.struct_size = 0}));
    return open_tallies(test, run);
}

void yoke_test_split_close(yoke_test_split *test) {
    yoke_free(test->misclassified_pixels);
    yoke_tally_end(&test->predictions);
    yoke_tally_end(&test->tally);
    yoke_rows_close(&test->rows);
}

/* The pass. */

/* The other ranks do not know of an error of this rank's rows or metrics, whatever its status. */
static yoke_status end_ranks_on(const yoke_run *run, yoke_status status) {
    return yoke_process_group_abort(run->ranks, status);
}

/* The host's metrics add the rows; NULL: they end. */
static yoke_status call_metrics(const yoke_run *run, yoke_custom_metrics *metrics,
                                const yoke_outputs *rows) {
    if (metrics->count == 0) return YOKE_OK;
    yoke_outside outside = yoke_step_out(run->parallel);
    yoke_status status = rows != NULL ? yoke_custom_metrics_add(metrics, rows)
                                      : yoke_custom_metrics_end(metrics, run->ranks);
    return yoke_step_in(run->parallel, &outside, status);
}

static yoke_status evaluate_batch(yoke_test_split *test, const yoke_run *run,
                                  yoke_custom_parts *parts, const yoke_batch *batch,
                                  yoke_step_result *sum) {
    yoke_step_result result = {.struct_size = sizeof result};
    const yoke_output_rows *host = &parts->outputs;
    const yoke_custom_loss *loss = run->options.custom_loss;
    if (run->options.test_views > 1)
        TRY(yoke_views_evaluate(run, batch, &result, host));
    else
        TRY(yoke_data_parallel_evaluate_outputs(run->parallel, batch, &result, host, loss));
    yoke_outputs rows = {.struct_size = sizeof rows,
                         .batch = batch,
                         .count = loss != NULL ? yoke_model_output_count(run->model) : 1,
                         .outputs = (const float *const *)host->outputs};
    TRY(end_ranks_on(run, call_metrics(run, &parts->metrics, &rows)));
    yoke_tally_add(&test->tally,
                   &(yoke_tally_rows){batch, host->outputs[0], run->model, (size_t)sum->rows});
    sum->loss += result.loss * result.weight; /* a sum over rows until all are added */
    sum->rows += result.rows;
    sum->weight += result.weight;
    sum->labels += result.labels;
    sum->correct = result.correct < 0 ? -1 : sum->correct + result.correct;
    return YOKE_OK;
}

static yoke_status sum_batches(yoke_test_split *test, const yoke_run *run, yoke_custom_parts *parts,
                               yoke_step_result *sum) {
    yoke_batch batch = {.struct_size = sizeof batch};
    TRY(yoke_loader_begin(test->rows.loader, 0));
    for (;;) {
        yoke_requests asked = {.save = false};
        TRY(end_ranks_on(run, yoke_loader_next(test->rows.loader, &batch, NULL)));
        TRY(yoke_run_compare_streams(run, &test->rows, &batch));
        bool is_over = batch.rows == 0 && batch.whole_rows == 0;
        if (is_over && sum->rows == 0)
            return FAIL(YOKE_ERROR_DATA, "the row stream gave no row to evaluate on");
        if (is_over) return YOKE_OK;
        TRY(yoke_run_poll(run, &asked));
        if (asked.stop)
            return FAIL(YOKE_ERROR_CANCELLED, "stopped during evaluation, after %d rows",
                        sum->rows);
        TRY(evaluate_batch(test, run, parts, &batch, sum));
    }
}

/* The worst of all ranks are among the worst of each. A rank with fewer than the others fills up
 * with rows of no class. */
static yoke_status add_worst(const yoke_run *run, yoke_tally *tally) {
    int world = yoke_process_group_world(run->ranks), capacity = tally->capacity;
    size_t own_count = (size_t)capacity, count = own_count * (size_t)world;
    yoke_wrong_row *all = yoke_calloc(count, sizeof *all);
    if (all == NULL) return FAIL_MEMORY(count * sizeof *all, "the ranks' predictions");
    for (int i = tally->worst_count; i < capacity; i++)
        tally->worst[i] = (yoke_wrong_row){.label = -1};
    yoke_status status = yoke_process_group_all_gather(run->ranks, all, tally->worst,
                                                       own_count * WRONG_WORDS, YOKE_ELEMENT_INT64);
    tally->worst_count = 0;
    for (size_t i = 0; i < count && status == YOKE_OK; i++)
        if (all[i].label >= 0) yoke_tally_add_wrong(tally, &all[i]);
    yoke_free(all);
    return status;
}

static yoke_status add_ranks(const yoke_run *run, yoke_tally *tally) {
    int64_t sums[] = {(int64_t)tally->rows, tally->among_five};
    if (tally->counts != NULL)
        TRY(yoke_process_group_all_reduce(run->ranks, tally->counts, tally->count_of_counts,
                                          YOKE_ELEMENT_INT64, YOKE_SUM));
    TRY(yoke_process_group_all_reduce(run->ranks, sums, 2, YOKE_ELEMENT_INT64, YOKE_SUM));
    tally->rows = (size_t)sums[0];
    tally->among_five = sums[1];
    return add_worst(run, tally);
}

yoke_status yoke_test_split_evaluate(yoke_test_split *test, yoke_run *run,
                                     yoke_custom_parts *parts) {
    yoke_step_result sum = {.struct_size = sizeof sum, .gradient_norm = -1};
    TRY(yoke_test_split_open(test, run));
    yoke_tally_begin(&test->tally, run->at.step);
    yoke_custom_metrics_begin(&parts->metrics);
    TRY(sum_batches(test, run, parts, &sum));
    if (test->tally.classes > 0) {
        if (run->ranks != NULL) TRY(add_ranks(run, &test->tally));
        yoke_tally complete = test->tally;
        test->tally = test->predictions;
        test->predictions = complete;
    }
    TRY(call_metrics(run, &parts->metrics, NULL));
    sum.loss /= sum.weight > 0 ? sum.weight : 1;
    test->last = sum;
    return YOKE_OK;
}

/* The predictions. */

/* The bytes of a row, or NULL: the dataset has other values, or the file is gone. */
static const uint8_t *pixels_of(const yoke_test_split *test, int index, size_t row) {
    const yoke_dataset *rows = test->rows.rows;
    size_t values = yoke_dataset_values(rows), stored = yoke_dataset_stored(rows, row);
    if (rows->images == NULL) return rows->bytes != NULL ? rows->bytes + stored * values : NULL;
    const yoke_augmentation none = {.kind = YOKE_AUGMENT_NONE};
    const yoke_image_request request = {.augmentation = &none};
    uint8_t *pixels = test->misclassified_pixels + (size_t)index * values;
    return yoke_images_read(rows->images, stored, &request, pixels) == YOKE_OK ? pixels : NULL;
}

yoke_status yoke_test_split_misclassified(const yoke_test_split *test, int index,
                                          yoke_misclassified *misclassified) {
    const yoke_tally *tally = &test->predictions;
    if (index < 0 || index >= tally->worst_count)
        return FAIL(YOKE_ERROR_ARGUMENT, "misclassified row %d: there are %d, counted from 0",
                    index, tally->worst_count);
    const yoke_wrong_row *wrong = &tally->worst[index];
    size_t row = (size_t)wrong->row;
    yoke_misclassified own = {.struct_size = sizeof own,
                              .row = row,
                              .label = (int)wrong->label,
                              .predicted = (int)wrong->predicted,
                              .probability = wrong->probability,
                              .loss = wrong->loss,
                              .pixels = pixels_of(test, index, row)};
    return yoke_options_store(misclassified, &own, sizeof own, "yoke_misclassified");
}
