/* SPDX-License-Identifier: Apache-2.0 */
/* Which of the stored rows a dataset has: the rows of a split, a smaller number, those that are not
 * damaged. All draws are the same in every run and on every rank. */
#include <stdlib.h>

#include "data/row_stream.h"

yoke_status yoke_dataset_keep(yoke_dataset *dataset, const bool *keep) {
    size_t count = 0, next = 0;
    for (size_t row = 0; row < dataset->rows; row++)
        count += keep[row];
    if (count == dataset->rows) return YOKE_OK;
    uint32_t *kept = yoke_malloc((count > 0 ? count : 1) * sizeof *kept);
    if (kept == NULL) return FAIL_MEMORY(count * sizeof *kept, "the rows of a split");
    for (size_t row = 0; row < dataset->rows; row++)
        if (keep[row]) kept[next++] = (uint32_t)yoke_dataset_stored(dataset, row);
    yoke_free(dataset->kept);
    dataset->kept = kept;
    dataset->rows = count;
    return YOKE_OK;
}

yoke_status yoke_split_draw(bool *test, size_t count, double part) {
    size_t tested = (size_t)(part * (double)count + 0.5);
    if (tested == 0 && count > 1) tested = 1;
    if (tested == count && count > 0) tested = count - 1;
    int64_t *order = yoke_malloc((count > 0 ? count : 1) * sizeof *order);
    if (order == NULL) return FAIL_MEMORY(count * sizeof *order, "the split of a class");
    yoke_randperm(order, count, 0);
    for (size_t i = 0; i < count; i++)
        test[order[i]] = i < tested;
    yoke_free(order);
    return YOKE_OK;
}

/* A dataset's rows class by class, each class in its order. */
typedef struct class_rows {
    size_t *first;  /* [classes + 1]: where each class begins in */
    uint32_t *rows; /* [rows] */
    bool *drawn;    /* [rows]: the rows' numbers in that order */
} class_rows;

/* Whether each row has a class of its own. */
static bool has_classes(const yoke_dataset *dataset) {
    return dataset->labels != NULL && yoke_dataset_labels(dataset) == 1 && !dataset->unlabelled;
}

static void sort_rows(class_rows *sorted, const yoke_dataset *dataset, size_t classes) {
    for (size_t row = 0; row < dataset->rows; row++)
        sorted->first[dataset->labels[yoke_dataset_stored(dataset, row)]]++;
    for (size_t class = 0, before = 0; class <= classes; class ++) {
        size_t count = sorted->first[class];
        sorted->first[class] = before;
        before += count;
    }
    for (size_t row = 0; row < dataset->rows; row++)
        sorted->rows[sorted->first[dataset->labels[yoke_dataset_stored(dataset, row)]]++] =
            (uint32_t)row;
    for (size_t class = classes; class > 0; class --)
        sorted->first[class] = sorted->first[class - 1];
    sorted->first[0] = 0;
}

/* Turns keep[rows] into the rows of the split. */
static yoke_status draw_classes(class_rows *sorted, const yoke_dataset *dataset, double part,
                                yoke_split split, bool *keep) {
    size_t classes = has_classes(dataset) ? (size_t)dataset->classes : 1;
    if (has_classes(dataset))
        sort_rows(sorted, dataset, classes);
    else
        sorted->first[1] = dataset->rows;
    for (size_t class = 0; class < classes; class ++) {
        size_t first = sorted->first[class], count = sorted->first[class + 1] - first;
        TRY(yoke_split_draw(sorted->drawn + first, count, part));
    }
    for (size_t i = 0; i < dataset->rows; i++) {
        size_t row = has_classes(dataset) ? sorted->rows[i] : i;
        keep[row] = sorted->drawn[i] == (split == YOKE_SPLIT_TEST);
    }
    return YOKE_OK;
}

yoke_status yoke_dataset_split(yoke_dataset *dataset, double part, yoke_split split) {
    size_t classes = dataset->classes > 0 ? (size_t)dataset->classes : 1;
    class_rows sorted = {.first = yoke_calloc(classes + 1, sizeof *sorted.first),
                         .rows = yoke_calloc(dataset->rows, sizeof *sorted.rows),
                         .drawn = yoke_calloc(dataset->rows, sizeof *sorted.drawn)};
    bool *keep = yoke_calloc(dataset->rows, sizeof *keep);
    yoke_status status = YOKE_OK;
    if (sorted.first == NULL || sorted.rows == NULL || sorted.drawn == NULL || keep == NULL)
        status = FAIL_MEMORY(dataset->rows * sizeof *sorted.rows, "the rows of each class");
    if (status == YOKE_OK) status = draw_classes(&sorted, dataset, part, split, keep);
    if (status == YOKE_OK) status = yoke_dataset_keep(dataset, keep);
    yoke_free(keep);
    yoke_free(sorted.drawn);
    yoke_free(sorted.rows);
    yoke_free(sorted.first);
    return status;
}

yoke_status yoke_dataset_take_drawn(yoke_dataset *dataset, double validation, yoke_split split,
                                    yoke_status (*measure)(yoke_dataset *dataset),
                                    const char *file) {
    double part = validation > 0 ? validation : YOKE_VALIDATION;
    size_t rows = dataset->rows;
    TRY(yoke_dataset_split(dataset, part, YOKE_SPLIT_TRAIN));
    TRY(measure(dataset));
    if (split == YOKE_SPLIT_TRAIN) return YOKE_OK;
    yoke_free(dataset->kept);
    dataset->kept = NULL;
    dataset->rows = rows;
    TRY(yoke_dataset_split(dataset, part, YOKE_SPLIT_TEST));
    if (dataset->rows > 0) return YOKE_OK;
    return FAIL(YOKE_ERROR_DATA, "%s: no row for the test split: %s two rows", file,
                has_classes(dataset) ? "a class needs" : "the file needs");
}

yoke_status yoke_dataset_limit(yoke_dataset *dataset, size_t rows) {
    TRY(yoke_dataset_check_free(dataset, "yoke_dataset_limit"));
    if (rows == 0) return FAIL(YOKE_ERROR_ARGUMENT, "a limit of 0 rows: at least 1");
    if (dataset->stream) yoke_stream_limit(dataset->stream, rows);
    if (rows >= dataset->rows) return YOKE_OK;
    int64_t *order = yoke_malloc(dataset->rows * sizeof *order);
    bool *keep = yoke_calloc(dataset->rows, sizeof *keep);
    yoke_status status = YOKE_OK;
    if (order == NULL || keep == NULL)
        status = FAIL_MEMORY(dataset->rows * sizeof *order, "the order of a dataset");
    if (status == YOKE_OK) {
        yoke_randperm(order, dataset->rows, 0);
        for (size_t i = 0; i < rows; i++)
            keep[order[i]] = true;
        status = yoke_dataset_keep(dataset, keep);
    }
    yoke_free(keep);
    yoke_free(order);
    return status;
}
