/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays of the host program: whether they fit a model, and their values as the engine reads them.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "model/model.h"
#include "net/net.h"

#define SHAPE_BYTES 128

/* Shapes. */

/* "[64, 3, 32, 32]" */
static const char *shape_text(char *text, const int64_t *shape, int ndim) {
    int used = snprintf(text, SHAPE_BYTES, "[");
    for (int i = 0; i < ndim && used < SHAPE_BYTES; i++)
        used += snprintf(text + used, (size_t)(SHAPE_BYTES - used), "%s%" PRId64, i > 0 ? ", " : "",
                         shape[i]);
    if (used < SHAPE_BYTES) snprintf(text + used, (size_t)(SHAPE_BYTES - used), "]");
    return text;
}

/* The axes of a row that are longer than 1; returns how many. */
static int long_axes(const int64_t *shape, int ndim, int64_t axes[YOKE_ARRAY_DIMENSIONS]) {
    int count = 0;
    for (int i = 0; i < ndim; i++)
        if (shape[i] != 1) axes[count++] = shape[i];
    return count;
}

/* Axes of length 1 may come and go, and all axes of a row may be one. */
static bool row_fits(const yoke_array *array, const int64_t *row, int ndim, int64_t elements) {
    int64_t given[YOKE_ARRAY_DIMENSIONS], wanted[YOKE_ARRAY_DIMENSIONS];
    int given_count = long_axes(array->shape + 1, array->ndim - 1, given);
    int wanted_count = long_axes(row, ndim, wanted);
    if (given_count == 1 && given[0] == elements) return true;
    return given_count == wanted_count &&
           memcmp(given, wanted, (size_t)given_count * sizeof given[0]) == 0;
}

typedef struct row_kind {
    const char *what, *name;
    int64_t shape[4];
    int ndim;
    int64_t elements;
} row_kind;

static row_kind kind_of(const char *what, const char *name, yoke_shape shape) {
    row_kind kind = {.what = what, .name = name};
    int64_t image[] = {shape.channels, shape.height, shape.width};
    int64_t sequence[] = {shape.height, shape.channels};
    kind.ndim = shape.flat ? 1 : shape.sequence ? 2 : 3;
    memcpy(kind.shape, shape.sequence ? sequence : image, (size_t)kind.ndim * sizeof(int64_t));
    kind.elements = (int64_t)shape.channels * shape.height * shape.width;
    return kind;
}

static yoke_status check_shape(const yoke_array *array, const row_kind *kind) {
    char given[SHAPE_BYTES], wanted[SHAPE_BYTES];
    if (array->ndim < 1 || array->ndim > YOKE_ARRAY_DIMENSIONS)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s '%s': ndim is %d, 1 to %d are possible", kind->what,
                    kind->name, array->ndim, YOKE_ARRAY_DIMENSIONS);
    shape_text(given, array->shape, array->ndim);
    if (array->shape[0] < 1 || array->shape[0] > INT64_MAX / (kind->elements * 8))
        return FAIL(YOKE_ERROR_ARGUMENT, "%s '%s' is %s: the first number, of rows, is at least 1",
                    kind->what, kind->name, given);
    if (row_fits(array, kind->shape, kind->ndim, kind->elements)) return YOKE_OK;
    shape_text(wanted, kind->shape, kind->ndim);
    return FAIL(YOKE_ERROR_ARGUMENT, "%s '%s' is %s: a row of the model has the shape %s",
                kind->what, kind->name, given, wanted);
}

static yoke_status check_rows(const yoke_array *array, const row_kind *kind, size_t rows) {
    if ((size_t)array->shape[0] == rows) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT, "%s '%s' has %" PRId64 " rows, the first input %zu",
                kind->what, kind->name, array->shape[0], rows);
}

/* Elements and places. */

static const char *element_name(yoke_element element) {
    static const char *const names[] = {"float32", "bfloat16", "int64",
                                        "float64", "int32",    "uint8"};
    size_t count = sizeof names / sizeof names[0];
    return element >= 0 && (size_t)element < count ? names[element] : "unknown";
}

#define AS_BIT(element) (1u << (unsigned)(element))
#define FLOATS                                                                                     \
    (AS_BIT(YOKE_ELEMENT_FLOAT32) | AS_BIT(YOKE_ELEMENT_FLOAT64) | AS_BIT(YOKE_ELEMENT_BFLOAT16))
#define INTEGERS (AS_BIT(YOKE_ELEMENT_INT32) | AS_BIT(YOKE_ELEMENT_INT64))

static yoke_status check_element(const yoke_array *array, const row_kind *kind, unsigned allowed,
                                 const char *words) {
    bool known = array->element >= 0 && (int)array->element <= (int)YOKE_ELEMENT_UINT8;
    if (known && (allowed & AS_BIT(array->element)) != 0) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT, "%s '%s': elements are %s, expected %s", kind->what,
                kind->name, element_name(array->element), words);
}

/* On a GPU the engine reads arrays as they are. */
static yoke_status check_place(const yoke_array *array, const row_kind *kind, bool on_gpus,
                               yoke_element element) {
    if (array->place == YOKE_ARRAY_HOST && array->stream == NULL) return YOKE_OK;
    if (array->place != YOKE_ARRAY_CUDA)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s '%s': place %d with %s", kind->what, kind->name,
                    (int)array->place, array->stream != NULL ? "a stream" : "no stream");
    if (!on_gpus)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "%s '%s' lies on a GPU: this call reads rows on the host. yoke_net_step and "
                    "yoke_net_predict of a net with GPUs read arrays there",
                    kind->what, kind->name);
    if (array->element == element) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT, "%s '%s' lies on a GPU: elements are %s there, not %s",
                kind->what, kind->name, element_name(element), element_name(array->element));
}

/* Checks. */

static yoke_status check_pointer(const yoke_array *array, const char *what) {
    if (array != NULL && array->data != NULL) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT, "%s: the %s is NULL", what, array == NULL ? "array" : "data");
}

static yoke_status check_inputs(yoke_net_rows *rows, bool on_gpus) {
    for (int i = 0; i < yoke_model_input_count(rows->model); i++) {
        yoke_value_info info = {.struct_size = sizeof info};
        const yoke_array *array = &rows->inputs[i];
        TRY(yoke_model_describe_input(rows->model, i, &info));
        row_kind kind = kind_of("input", info.name, info.shape);
        TRY(check_pointer(array, "an input"));
        TRY(check_shape(array, &kind));
        TRY(check_element(array, &kind, FLOATS | INTEGERS | AS_BIT(YOKE_ELEMENT_UINT8),
                          "numbers, pixels (uint8) or tokens (int32, int64)"));
        TRY(check_place(array, &kind, on_gpus, YOKE_ELEMENT_FLOAT32));
        if (i == 0) rows->rows = (size_t)array->shape[0];
        TRY(check_rows(array, &kind, rows->rows));
    }
    return YOKE_OK;
}

static row_kind targets_of(const yoke_model *model) {
    row_kind kind = kind_of("targets", yoke_model_name(model), yoke_model_output_shape(model));
    if (!yoke_model_reads_labels(model)) return kind;
    kind.what = "labels";
    kind.ndim = 1;
    kind.shape[0] = kind.elements = (int64_t)yoke_model_positions(model);
    return kind;
}

/* Before any step: a wrong label in a later batch would leave the fit half done. */
static yoke_status check_labels(const yoke_net_rows *rows) {
    const yoke_array *labels = rows->targets;
    size_t positions = yoke_model_positions(rows->model);
    int classes = yoke_model_output_shape(rows->model).channels;
    if (labels->place != YOKE_ARRAY_HOST) return YOKE_OK; /* the engine checks them */
    for (size_t i = 0; i < rows->rows * positions; i++) {
        int64_t label = labels->element == YOKE_ELEMENT_INT32 ? ((const int32_t *)labels->data)[i]
                                                              : ((const int64_t *)labels->data)[i];
        if (label >= 0 && label < classes) continue;
        if (label == (int32_t)label && yoke_model_ignores(rows->model, (int32_t)label)) continue;
        return FAIL(YOKE_ERROR_ARGUMENT, "row %zu has the label %" PRId64 ", expected 0 to %d",
                    i / positions, label, classes - 1);
    }
    return YOKE_OK;
}

static yoke_status check_targets(const yoke_net_rows *rows, bool on_gpus) {
    bool labels = yoke_model_reads_labels(rows->model);
    row_kind kind = targets_of(rows->model);
    TRY(check_pointer(rows->targets, kind.what));
    TRY(check_shape(rows->targets, &kind));
    TRY(check_element(rows->targets, &kind, labels ? INTEGERS : FLOATS,
                      labels ? "int32 or int64" : "float32, float64 or bfloat16"));
    TRY(check_place(rows->targets, &kind, on_gpus,
                    labels ? YOKE_ELEMENT_INT32 : YOKE_ELEMENT_FLOAT32));
    TRY(check_rows(rows->targets, &kind, rows->rows));
    return labels ? check_labels(rows) : YOKE_OK;
}

yoke_status yoke_net_rows_check(yoke_net_rows *rows, bool on_gpus, bool needs_targets) {
    bool reads = yoke_model_reads_labels(rows->model) || yoke_model_reads_targets(rows->model);
    TRY(yoke_pointer_check(rows->inputs, "inputs"));
    TRY(check_inputs(rows, on_gpus));
    if (!reads && rows->targets != NULL)
        return FAIL(YOKE_ERROR_ARGUMENT, "the loss of model '%s' reads no targets: give NULL",
                    yoke_model_name(rows->model));
    return needs_targets && reads ? check_targets(rows, on_gpus) : YOKE_OK;
}

yoke_status yoke_net_outputs_check(const yoke_model *model, const yoke_array *outputs,
                                   size_t rows) {
    TRY(yoke_pointer_check(outputs, "outputs"));
    for (int i = 0; i < yoke_model_output_count(model); i++) {
        yoke_value_info info = {.struct_size = sizeof info};
        if (outputs[i].data == NULL) continue;
        TRY(yoke_model_describe_output(model, i, &info));
        row_kind kind = kind_of("output", info.name, info.shape);
        TRY(check_shape(&outputs[i], &kind));
        TRY(check_element(&outputs[i], &kind, AS_BIT(YOKE_ELEMENT_FLOAT32), "float32"));
        TRY(check_place(&outputs[i], &kind, true, YOKE_ELEMENT_FLOAT32));
        TRY(check_rows(&outputs[i], &kind, rows));
    }
    return YOKE_OK;
}

/* Values. */

static float bfloat16_value(uint16_t bits) {
    uint32_t word = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &word, sizeof value);
    return value;
}

void yoke_array_floats(const yoke_array *array, size_t first, size_t count, size_t elements,
                       float *to) {
    size_t begin = first * elements, values = count * elements;
    const void *data = array->data;
    switch (array->element) {
    case YOKE_ELEMENT_FLOAT32:
        memcpy(to, (const float *)data + begin, values * sizeof *to);
        break;
    case YOKE_ELEMENT_FLOAT64:
        for (size_t i = 0; i < values; i++)
            to[i] = (float)((const double *)data)[begin + i];
        break;
    case YOKE_ELEMENT_BFLOAT16:
        for (size_t i = 0; i < values; i++)
            to[i] = bfloat16_value(((const uint16_t *)data)[begin + i]);
        break;
    case YOKE_ELEMENT_INT32:
        for (size_t i = 0; i < values; i++)
            to[i] = (float)((const int32_t *)data)[begin + i];
        break;
    case YOKE_ELEMENT_INT64:
        for (size_t i = 0; i < values; i++)
            to[i] = (float)((const int64_t *)data)[begin + i];
        break;
    case YOKE_ELEMENT_UINT8:
        for (size_t i = 0; i < values; i++)
            to[i] = (float)((const uint8_t *)data)[begin + i] / 255;
        break;
    }
}

void yoke_array_labels(const yoke_array *array, size_t first, size_t count, size_t elements,
                       int32_t *to) {
    size_t begin = first * elements, values = count * elements;
    if (array->element == YOKE_ELEMENT_INT32) {
        memcpy(to, (const int32_t *)array->data + begin, values * sizeof *to);
        return;
    }
    for (size_t i = 0; i < values; i++)
        to[i] = (int32_t)((const int64_t *)array->data)[begin + i];
}

yoke_status yoke_array_take_floats(const yoke_array *array, size_t elements, void **copy,
                                   const float **taken) {
    size_t rows = (size_t)array->shape[0];
    *taken = array->data;
    if (array->element == YOKE_ELEMENT_FLOAT32) return YOKE_OK;
    float *floats = yoke_malloc(rows * elements * sizeof *floats);
    if (floats == NULL) return FAIL_MEMORY(rows * elements * sizeof *floats, "rows as floats");
    yoke_array_floats(array, 0, rows, elements, floats);
    *taken = *copy = floats;
    return YOKE_OK;
}

/* A call waits for one stream. */
yoke_status yoke_array_take_stream(const yoke_array *array, void **stream) {
    if (array->stream == NULL || array->stream == *stream) return YOKE_OK;
    if (*stream != NULL)
        return FAIL(YOKE_ERROR_ARGUMENT, "the arrays of one call have different streams");
    *stream = array->stream;
    return YOKE_OK;
}

/* Rows as a dataset. */

static yoke_status read_row(void *payload, size_t row, float *const *inputs, int32_t *labels,
                            float *targets) {
    const yoke_net_rows *rows = payload;
    const yoke_model *model = rows->model;
    for (int i = 0; i < yoke_model_input_count(model); i++)
        yoke_array_floats(&rows->inputs[i], row, 1, yoke_model_input_elements(model, i), inputs[i]);
    if (rows->targets == NULL) return YOKE_OK;
    if (yoke_model_reads_labels(model))
        yoke_array_labels(rows->targets, row, 1, yoke_model_positions(model), labels);
    else
        yoke_array_floats(rows->targets, row, 1, yoke_model_output_elements(model, 0), targets);
    return YOKE_OK;
}

yoke_status yoke_net_rows_open(yoke_dataset **dataset, const yoke_net_rows *rows) {
    const yoke_model *model = rows->model;
    yoke_row_input more[YOKE_INPUTS_LIMIT];
    bool labels = yoke_model_reads_labels(model), targets = yoke_model_reads_targets(model);
    yoke_row_source source = {.struct_size = sizeof source,
                              .rows = rows->rows,
                              .shape = yoke_model_input_shape(model),
                              .read_inputs = read_row,
                              .payload = (void *)(uintptr_t)rows,
                              .more_input_count = yoke_model_input_count(model) - 1};
    if (source.more_input_count > 0) source.more_inputs = more;
    if (labels) source.classes = yoke_model_output_shape(model).channels;
    if (labels) source.label_count = (int)yoke_model_positions(model);
    if (targets) source.target_count = (int)yoke_model_output_elements(model, 0);
    for (int i = 1; i < yoke_model_input_count(model); i++) {
        yoke_value_info info = {.struct_size = sizeof info};
        TRY(yoke_model_describe_input(model, i, &info));
        more[i - 1] =
            (yoke_row_input){.struct_size = sizeof more[0], .name = info.name, .shape = info.shape};
    }
    return yoke_dataset_from_callback(dataset, &source);
}
