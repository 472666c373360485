/* SPDX-License-Identifier: Apache-2.0 */
/* Rows that callbacks of the host program make: one at a time, or a batch at a time. */
#include <stdio.h>

#include "data/data.h"

yoke_status yoke_host_rows_check(const yoke_dataset *dataset) {
    if (dataset->rows == 0 && !dataset->stream)
        return FAIL(YOKE_ERROR_ARGUMENT, "a dataset of 0 rows: must have at least 1");
    TRY(yoke_dataset_check_shape(dataset));
    bool both = dataset->classes > 0 && dataset->target_count > 0;
    if (dataset->classes < 0 || dataset->target_count < 0 || both)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "classes = %d and target_count = %d: set classes > 0 for classification, "
                    "target_count > 0 for regression, or neither for rows with inputs alone",
                    dataset->classes, dataset->target_count);
    if (dataset->label_count < 0 || (dataset->classes == 0 && dataset->label_count > 0))
        return FAIL(YOKE_ERROR_ARGUMENT, "label_count = %d: at least 1 for classification, 0 else",
                    dataset->label_count);
    return YOKE_OK;
}

yoke_status yoke_host_labels_check(const yoke_dataset *dataset, size_t row, const int32_t *labels) {
    size_t count = yoke_dataset_labels(dataset);
    for (size_t k = 0; labels && k < count; k++)
        if ((labels[k] < 0 || labels[k] >= dataset->classes) && labels[k] != YOKE_NO_LABEL)
            return FAIL(YOKE_ERROR_ARGUMENT, "row %zu: the row %s gave label %d, expected 0..%d",
                        row, dataset->stream ? "stream" : "source", (int)labels[k],
                        dataset->classes - 1);
    return YOKE_OK;
}

static yoke_status call_source(const yoke_dataset *dataset, size_t row,
                               const yoke_row_places *places) {
    const yoke_row_source *source = &dataset->source;
    if (source->read)
        return source->read(source->payload, row, places->inputs, places->labels, places->targets);
    float *inputs[YOKE_INPUTS_LIMIT] = {places->inputs};
    for (int k = 0; k < dataset->more_count; k++)
        inputs[k + 1] = places->more_inputs[k];
    return source->read_inputs(source->payload, row, inputs, places->labels, places->targets);
}

yoke_status yoke_host_row_read(const yoke_dataset *dataset, size_t row,
                               const yoke_row_places *places) {
    char who[48];
    snprintf(who, sizeof who, "row %zu of the row source", row);
    yoke_error_forget();
    TRY(yoke_error_of_host(call_source(dataset, row, places), who));
    return yoke_host_labels_check(dataset, row, places->labels);
}

yoke_status yoke_host_batch_read(const yoke_dataset *dataset, const int64_t *rows, int count,
                                 const yoke_row_places *places) {
    const yoke_row_source *source = &dataset->source;
    size_t labels = yoke_dataset_labels(dataset);
    char who[80];
    if (count == 0) return YOKE_OK;
    snprintf(who, sizeof who, "%d rows of the row source, the first %lld", count,
             (long long)rows[0]);
    yoke_error_forget();
    TRY(yoke_error_of_host(source->read_batch(source->payload, rows, count, places->inputs,
                                              places->labels, places->targets),
                           who));
    for (int i = 0; places->labels && i < count; i++)
        TRY(yoke_host_labels_check(dataset, (size_t)rows[i], places->labels + (size_t)i * labels));
    return YOKE_OK;
}
