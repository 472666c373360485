/* SPDX-License-Identifier: Apache-2.0 */
#include "data/shorter.h"

#include <stdlib.h>
#include <string.h>

#include "data/row_inputs.h"

#define WINDOW 50 /* batches; torchtext's BucketIterator sorts 100 */

/* Lengths. */

static bool is_length(const yoke_stored_input *input) {
    size_t bytes = strlen(input->name);
    bool named = strcmp(input->name, "length") == 0 ||
                 (bytes > 7 && strcmp(input->name + bytes - 7, "_length") == 0);
    const yoke_shape *shape = &input->shape;
    return named && input->floats != NULL && shape->channels * shape->height * shape->width == 1;
}

bool yoke_dataset_has_lengths(const yoke_dataset *dataset) {
    for (int k = 0; k < dataset->more_count; k++)
        if (is_length(&dataset->more[k])) return true;
    return false;
}

size_t yoke_dataset_length(const yoke_dataset *dataset, size_t stored) {
    float longest = 0;
    for (int k = 0; k < dataset->more_count; k++)
        if (is_length(&dataset->more[k]) && dataset->more[k].floats[stored] > longest)
            longest = dataset->more[k].floats[stored];
    return (size_t)longest;
}

/* Models. */

static size_t positions_of(const yoke_shape *shape) {
    return (size_t)(shape->flat ? shape->channels : shape->height);
}

/* An input of the model against the dataset's `whole` values a row. */
static yoke_status read_input(yoke_row_sizes *sizes, const yoke_model *model, int index,
                              size_t whole, size_t *size) {
    yoke_value_info info = {.struct_size = sizeof info};
    TRY(yoke_model_describe_input(model, index, &info));
    *size = info.row_count;
    if (info.row_count > whole)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "input '%s' of model '%s' has %zu values a row, the dataset's %zu: a shorter "
                    "model reads the first values of each",
                    info.name, yoke_model_name(model), info.row_count, whole);
    bool cut = info.row_count < whole;
    if (cut && positions_of(&info.shape) < sizes->positions)
        sizes->positions = positions_of(&info.shape);
    return YOKE_OK;
}

static yoke_status read_model(yoke_row_sizes *sizes, const yoke_dataset *dataset,
                              const yoke_model *model) {
    yoke_input_order order;
    TRY(yoke_pointer_check(model, "models"));
    yoke_shape output = yoke_model_output_shape(model);
    TRY(read_input(sizes, model, 0, sizes->input, &sizes->input));
    TRY(yoke_input_order_find_shorter(&order, dataset, model));
    for (int k = 0; k < order.count; k++) {
        size_t *size = &sizes->more[order.inputs[k]];
        TRY(read_input(sizes, model, k + 1, *size, size));
    }
    if (sizes->labels > 1 && output.sequence && (size_t)output.height < sizes->labels)
        sizes->labels = (size_t)output.height;
    if (sizes->labels > 1 && sizes->labels < sizes->positions) sizes->positions = sizes->labels;
    return YOKE_OK;
}

yoke_row_sizes yoke_row_sizes_stored(const yoke_dataset *dataset) {
    yoke_row_sizes sizes = {.input = yoke_dataset_values(dataset),
                            .labels = yoke_dataset_labels(dataset),
                            .positions = SIZE_MAX};
    for (int k = 0; k < dataset->more_count; k++)
        sizes.more[k] = yoke_row_inputs_values(dataset, k);
    return sizes;
}

yoke_status yoke_shorter_open(yoke_shorter *shorter, const yoke_dataset *dataset,
                              const yoke_model *const *models, int count) {
    if (count < 1) return YOKE_OK;
    TRY(yoke_pointer_check(models, "models"));
    if (!yoke_dataset_has_lengths(dataset) || dataset->floats == NULL)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "shorter models need the length of each row: floats with an input 'length' or "
                    "'..._length' of one number, which dataset '%s' has not",
                    dataset->name);
    shorter->models = yoke_calloc((size_t)count + 1, sizeof *shorter->models);
    if (shorter->models == NULL) return FAIL_MEMORY(sizeof *shorter->models, "shorter models");
    shorter->count = count + 1;
    for (int i = 0; i <= count; i++)
        shorter->models[i] = yoke_row_sizes_stored(dataset);
    for (int i = 0; i < count; i++)
        TRY(read_model(&shorter->models[i + 1], dataset, models[i]));
    return YOKE_OK;
}

void yoke_shorter_close(yoke_shorter *shorter) {
    yoke_free(shorter->models);
    *shorter = (yoke_shorter){0};
}

/* Batches. */

int yoke_shorter_choose(const yoke_shorter *shorter, const yoke_dataset *dataset,
                        const int64_t *order, int rows) {
    size_t longest = 0;
    int chosen = 0;
    for (int i = 0; i < rows; i++) {
        size_t length =
            yoke_dataset_length(dataset, yoke_dataset_stored(dataset, (size_t)order[i]));
        if (length > longest) longest = length;
    }
    for (int k = 1; k < shorter->count; k++) {
        size_t positions = shorter->models[k].positions;
        if (positions >= longest && positions < shorter->models[chosen].positions) chosen = k;
    }
    return chosen;
}

/* Rows of `from` values become rows of their first `to`; both have 4 bytes a value. */
static void cut_rows(void *values, int rows, size_t from, size_t to) {
    char *bytes = values;
    if (values == NULL || from == to) return;
    for (int i = 1; i < rows; i++)
        memmove(bytes + (size_t)i * to * 4, bytes + (size_t)i * from * 4, to * 4);
}

void yoke_shorter_cut(const yoke_shorter *shorter, const yoke_dataset *dataset,
                      yoke_loader_slot *slot) {
    const yoke_row_sizes *from = &shorter->models[0], *to = &shorter->models[slot->model];
    int rows = slot->part.rows;
    cut_rows(slot->inputs, rows, from->input, to->input);
    cut_rows(slot->labels, rows, from->labels, to->labels);
    for (int k = 0; k < dataset->more_count; k++)
        cut_rows(slot->more_inputs[k], rows, from->more[k], to->more[k]);
}

/* Order. */

typedef struct row_of_length {
    size_t length;
    int64_t row;
} row_of_length;

static int by_length(const void *left, const void *right) {
    const row_of_length *a = left, *b = right;
    if (a->length != b->length) return a->length < b->length ? -1 : 1;
    return a->row < b->row ? -1 : a->row > b->row;
}

/* Sorts windows of `rows`, each into the same places. */
static void sort_windows(row_of_length *rows, size_t count, size_t window) {
    for (size_t first = 0; first < count; first += window) {
        size_t rest = count - first;
        qsort(rows + first, rest < window ? rest : window, sizeof *rows, by_length);
    }
}

yoke_status yoke_order_by_length(int64_t *order, const yoke_dataset *dataset, int batch,
                                 uint64_t seed) {
    size_t count = dataset->rows, size = (size_t)batch, batches = count / size;
    row_of_length *rows = yoke_calloc(count, sizeof *rows);
    int64_t *places = yoke_calloc(batches + 1, sizeof *places);
    yoke_status status = YOKE_OK;
    if (rows == NULL || places == NULL) status = FAIL_MEMORY(count * sizeof *rows, "an order");
    for (size_t i = 0; i < count && status == YOKE_OK; i++) {
        size_t stored = yoke_dataset_stored(dataset, (size_t)order[i]);
        rows[i] = (row_of_length){yoke_dataset_length(dataset, stored), order[i]};
    }
    if (status == YOKE_OK) {
        sort_windows(rows, count, WINDOW * size);
        yoke_randperm(places, batches, seed);
        for (size_t i = 0; i < count; i++) {
            size_t whole = i / size;
            size_t from = whole < batches ? (size_t)places[whole] * size + i % size : i;
            order[i] = rows[from].row;
        }
    }
    yoke_free(places);
    yoke_free(rows);
    return status;
}
