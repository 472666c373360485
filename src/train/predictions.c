/* SPDX-License-Identifier: Apache-2.0 */
#include "train/predictions.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "yoke/evaluation.h"

yoke_status yoke_tally_create(yoke_tally *tally, int classes, int capacity) {
    tally->capacity = capacity;
    tally->count_of_counts = classes <= YOKE_COUNTS_CLASSES ? (size_t)classes * (size_t)classes : 0;
    size_t bytes = tally->count_of_counts * sizeof *tally->counts;
    if (bytes > 0) tally->counts = yoke_malloc(bytes);
    tally->worst = yoke_calloc((size_t)capacity + 1, sizeof *tally->worst);
    if ((bytes > 0 && tally->counts == NULL) || tally->worst == NULL)
        return FAIL_MEMORY(bytes, "predictions");
    if (bytes > 0) memset(tally->counts, 0, bytes);
    tally->classes = classes; /* off until all of it exists */
    return YOKE_OK;
}

void yoke_tally_end(yoke_tally *tally) {
    yoke_free(tally->counts);
    yoke_free(tally->worst);
    *tally = (yoke_tally){0};
}

void yoke_tally_begin(yoke_tally *tally, uint64_t step) {
    tally->step = step;
    tally->rows = 0;
    tally->among_five = 0;
    tally->worst_count = 0;
    if (tally->counts != NULL)
        memset(tally->counts, 0, tally->count_of_counts * sizeof *tally->counts);
}

/* A larger loss first; of equal ones the earlier row. */
static bool is_worse(const yoke_wrong_row *one, const yoke_wrong_row *other) {
    return one->loss > other->loss || (one->loss >= other->loss && one->row < other->row);
}

void yoke_tally_add_wrong(yoke_tally *tally, const yoke_wrong_row *wrong) {
    int place = tally->worst_count;
    while (place > 0 && is_worse(wrong, &tally->worst[place - 1]))
        place--;
    if (place == tally->capacity) return;
    if (tally->worst_count < tally->capacity) tally->worst_count++;
    memmove(&tally->worst[place + 1], &tally->worst[place],
            (size_t)(tally->worst_count - 1 - place) * sizeof *wrong);
    tally->worst[place] = *wrong;
}

/* The first of the largest outputs, as the losses of all backends count correct rows. */
static int largest_of(const float *outputs, int classes) {
    int best = 0;
    for (int j = 1; j < classes; j++)
        if (outputs[j] > outputs[best]) best = j;
    return best;
}

/* The outputs before this one in torch.topk: the larger ones, and of equal ones the earlier. */
static int rank_of(const float *outputs, int classes, int label) {
    int rank = 0;
    for (int j = 0; j < classes; j++)
        rank += outputs[j] > outputs[label] || (j < label && outputs[j] >= outputs[label]);
    return rank;
}

/* Softmax, in double. A loss that is not a number counts as the largest there is. */
static yoke_wrong_row describe(const float *outputs, int classes, int label, int predicted) {
    double largest = (double)outputs[predicted], sum = 0;
    for (int j = 0; j < classes; j++)
        sum += exp((double)outputs[j] - largest);
    double loss = log(sum) - ((double)outputs[label] - largest);
    return (yoke_wrong_row){.label = label,
                            .predicted = predicted,
                            .probability = 1 / sum,
                            .loss = isnan(loss) ? (double)INFINITY : loss};
}

void yoke_tally_add(yoke_tally *tally, const yoke_tally_rows *rows) {
    const yoke_batch *batch = rows->batch;
    size_t classes = (size_t)tally->classes;
    if (classes == 0) return;
    /* With a loss of the host the outputs need not be classes. */
    if (rows->model != NULL && yoke_model_output_elements(rows->model, 0) != classes) return;
    for (int i = 0; i < batch->rows; i++) {
        const float *outputs = rows->outputs + (size_t)i * classes;
        int label = batch->labels[i], predicted = largest_of(outputs, tally->classes);
        if (label < 0 || label >= tally->classes) continue;
        if (rows->model != NULL && yoke_model_ignores(rows->model, label)) continue;
        tally->rows++;
        if (tally->counts != NULL) tally->counts[(size_t)label * classes + (size_t)predicted]++;
        tally->among_five += rank_of(outputs, tally->classes, label) < 5;
        if (predicted == label) continue;
        yoke_wrong_row wrong = describe(outputs, tally->classes, label, predicted);
        wrong.row = (int64_t)rows->first + batch->first_row + i;
        yoke_tally_add_wrong(tally, &wrong);
    }
}
