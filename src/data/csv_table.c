/* SPDX-License-Identifier: Apache-2.0 */
/* csv:FILE,label=COLUMN or csv:FILE,target=COLUMN; csv:FILE alone has rows to predict. The first
 * line names the columns; every other column is a feature, a number in each line. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/arrays.h"
#include "data/csv.h"

#define IGNORED_LIMIT 64
#define HELP                                                                                       \
    "csv:FILE,label=COLUMN or csv:FILE,target=COLUMN, and [,ignore=COLUMN][,validation=0.1]"       \
    "[,test=FILE]"

typedef struct table_options {
    char text[YOKE_DATA_PATH_BYTES];
    const char *file, *test;    /* test NULL: not given */
    const char *label, *target; /* columns, one of both */
    const char *ignored[IGNORED_LIMIT];
    int ignored_count;
    double validation; /* 0: not given */
    bool predicted;    /* rows without labels: neither label nor target is given, nor needed */
} table_options;

/* A file's columns and rows. */
typedef struct table {
    yoke_csv csv;
    char **names; /* [columns]; owned */
    char *uses;   /* [columns]: FEATURE, LABEL or IGNORED; owned */
    size_t columns, features, rows, capacity;
    float *values;  /* [rows, features]; owned until a dataset takes it */
    float *targets; /* [rows], likewise; NULL: labels */
    char **labels;  /* [rows], in the text; NULL: targets; owned */
    size_t *lines;  /* [rows]; owned */
} table;
enum { FEATURE, LABEL, IGNORED };

/* Options. */

static yoke_status set_word(table_options *options, const yoke_spec_word *word) {
    static const char *const names[] = {"label", "target", "ignore", "validation", "test"};
    if (word->name == NULL && options->file != NULL)
        return yoke_spec_unknown("csv", word, names, 5, HELP);
    if (word->name == NULL)
        options->file = word->value;
    else if (strcmp(word->name, "label") == 0)
        options->label = word->value;
    else if (strcmp(word->name, "target") == 0)
        options->target = word->value;
    else if (strcmp(word->name, "test") == 0)
        options->test = word->value;
    else if (strcmp(word->name, "validation") == 0)
        return yoke_spec_validation("csv", word, &options->validation);
    else if (strcmp(word->name, "ignore") != 0)
        return yoke_spec_unknown("csv", word, names, 5, HELP);
    else if (options->ignored_count == IGNORED_LIMIT)
        return FAIL(YOKE_ERROR_ARGUMENT, "csv: more than %d columns to ignore", IGNORED_LIMIT);
    else
        options->ignored[options->ignored_count++] = word->value;
    return YOKE_OK;
}

static yoke_status parse(const char *text, table_options *options) {
    yoke_spec_word word;
    char *rest = options->text;
    if (strlen(text) >= sizeof options->text)
        return FAIL(YOKE_ERROR_ARGUMENT, "csv: a SPEC of %zu bytes, at most %zu are supported",
                    strlen(text), sizeof options->text - 1);
    strcpy(options->text, text);
    while (yoke_spec_next(&rest, &word))
        TRY(set_word(options, &word));
    if (options->file == NULL || options->file[0] == '\0')
        return FAIL(YOKE_ERROR_ARGUMENT, "csv: no file; write " HELP);
    if (options->label != NULL && options->target != NULL)
        return FAIL(YOKE_ERROR_ARGUMENT, "csv: label=%s and target=%s: leave one out",
                    options->label, options->target);
    const char *learnt = options->label != NULL ? options->label : options->target;
    for (int i = 0; learnt != NULL && i < options->ignored_count; i++)
        if (strcmp(learnt, options->ignored[i]) == 0)
            return FAIL(YOKE_ERROR_ARGUMENT,
                        "csv: the column '%s' is to be learnt and ignored: leave out ignore=%s",
                        learnt, learnt);
    if (options->test != NULL && options->validation > 0)
        return FAIL(YOKE_ERROR_ARGUMENT, "csv: validation=%g and test=%s: leave one out",
                    options->validation, options->test);
    return YOKE_OK;
}

/* Columns. */

static void table_close(table *own) {
    yoke_free(own->lines);
    yoke_free(own->labels);
    yoke_free(own->targets);
    yoke_free(own->values);
    yoke_free(own->uses);
    yoke_free(own->names);
    yoke_csv_close(&own->csv);
}

/* "a, b, c", as many as fit. */
static const char *list_columns(const table *own, char text[400]) {
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < own->columns; i++) {
        if (used + strlen(own->names[i]) + 8 > 400) {
            snprintf(text + used, 400 - used, ", ...");
            break;
        }
        used += (size_t)snprintf(text + used, 400 - used, "%s%s", i > 0 ? ", " : "", own->names[i]);
    }
    return text;
}

static yoke_status mark_column(table *own, const char *name, char use) {
    char list[400];
    size_t found = 0;
    for (size_t i = 0; i < own->columns; i++) {
        if (strcmp(own->names[i], name) != 0) continue;
        own->uses[i] = use;
        found++;
    }
    if (found == 1 || (found > 1 && use == IGNORED)) return YOKE_OK;
    if (found > 1)
        return FAIL(YOKE_ERROR_DATA, "%s: %zu columns are called '%s': rename all but one",
                    own->csv.path, found, name);
    return FAIL(YOKE_ERROR_DATA, "%s: has no column '%s'; its columns are %s", own->csv.path, name,
                list_columns(own, list));
}

static yoke_status check_header(const table *own) {
    double number;
    size_t numbers = 0;
    for (size_t i = 0; i < own->columns; i++)
        numbers += yoke_text_real(own->names[i], -DBL_MAX, DBL_MAX, &number);
    if (numbers == own->columns)
        return FAIL(YOKE_ERROR_DATA,
                    "%s: line %zu has numbers only, expected the names of the columns; add a first "
                    "line with them",
                    own->csv.path, own->csv.line);
    if (own->columns == 1 && strpbrk(own->names[0], ";\t|") != NULL)
        return FAIL(YOKE_ERROR_DATA,
                    "%s: line %zu has no comma: fields must be separated by commas, not by '%c'",
                    own->csv.path, own->csv.line, *strpbrk(own->names[0], ";\t|"));
    return YOKE_OK;
}

static yoke_status read_header(table *own, const table_options *options) {
    char list[400];
    bool more;
    TRY(yoke_csv_next(&own->csv, &more));
    if (!more) return FAIL(YOKE_ERROR_DATA, "%s: an empty file", own->csv.path);
    own->columns = own->csv.count;
    own->names = yoke_malloc(own->columns * sizeof *own->names);
    own->uses = yoke_calloc(own->columns, 1);
    if (own->names == NULL || own->uses == NULL)
        return FAIL_MEMORY(own->columns * sizeof *own->names, "names of columns");
    memcpy(own->names, own->csv.fields, own->columns * sizeof *own->names);
    TRY(check_header(own));
    const char *learnt = options->label != NULL ? options->label : options->target;
    if (learnt == NULL && !options->predicted)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "csv: which column of %s is to be learnt? Write label=COLUMN for classes or "
                    "target=COLUMN for numbers; its columns are %s",
                    own->csv.path, list_columns(own, list));
    for (int i = 0; i < options->ignored_count; i++)
        TRY(mark_column(own, options->ignored[i], IGNORED));
    if (learnt != NULL) TRY(mark_column(own, learnt, LABEL));
    for (size_t i = 0; i < own->columns; i++)
        own->features += own->uses[i] == FEATURE;
    if (own->features > 0) return YOKE_OK;
    return FAIL(YOKE_ERROR_DATA, "%s: no column is left for the features; its columns are %s",
                own->csv.path, list_columns(own, list));
}

/* Rows. */

/* `bytes` of an item each, for `capacity` rows. */
static yoke_status grow(void *array, size_t item_bytes, size_t capacity) {
    void **memory = array;
    size_t bytes;
    if (__builtin_mul_overflow(item_bytes, capacity, &bytes))
        return FAIL_MEMORY(SIZE_MAX, "a table");
    void *larger = yoke_realloc(*memory, bytes);
    if (larger == NULL) return FAIL_MEMORY(bytes, "a table");
    *memory = larger;
    return YOKE_OK;
}

static yoke_status reserve_row(table *own, const table_options *options) {
    if (own->rows < own->capacity) return YOKE_OK;
    own->capacity = own->capacity > 0 ? 2 * own->capacity : 256;
    TRY(grow(&own->values, own->features * sizeof *own->values, own->capacity));
    TRY(grow(&own->lines, sizeof *own->lines, own->capacity));
    if (options->predicted) return YOKE_OK;
    return options->label != NULL ? grow(&own->labels, sizeof *own->labels, own->capacity)
                                  : grow(&own->targets, sizeof *own->targets, own->capacity);
}

static yoke_status read_number(const table *own, size_t column, float *value) {
    const char *field = own->csv.fields[column];
    double number;
    if (yoke_text_real(field, -(double)FLT_MAX, (double)FLT_MAX, &number)) {
        *value = (float)number;
        return YOKE_OK;
    }
    if (field[0] == '\0')
        return FAIL(YOKE_ERROR_DATA,
                    "%s: line %zu, column '%s': an empty field; fill it in, or delete the line",
                    own->csv.path, own->csv.line, own->names[column]);
    return FAIL(YOKE_ERROR_DATA,
                "%s: line %zu, column '%s': '%.60s' is no number; ignore=%s leaves the column out",
                own->csv.path, own->csv.line, own->names[column], field, own->names[column]);
}

static yoke_status read_row(table *own, const table_options *options) {
    bool labels = options->label != NULL;
    size_t feature = 0;
    if (own->csv.count != own->columns)
        return FAIL(YOKE_ERROR_DATA, "%s: line %zu has %zu fields, the header %zu", own->csv.path,
                    own->csv.line, own->csv.count, own->columns);
    TRY(reserve_row(own, options));
    float *values = own->values + own->rows * own->features;
    for (size_t i = 0; i < own->columns; i++) {
        bool label = own->uses[i] == LABEL;
        if (own->uses[i] == FEATURE) TRY(read_number(own, i, &values[feature++]));
        if (label && !labels) TRY(read_number(own, i, &own->targets[own->rows]));
        if (!label || !labels) continue;
        own->labels[own->rows] = yoke_label_clean(own->csv.fields[i]);
        if (own->csv.fields[i][0] == '\0')
            return FAIL(YOKE_ERROR_DATA,
                        "%s: line %zu, column '%s': an empty label; fill it in, or delete the line",
                        own->csv.path, own->csv.line, own->names[i]);
    }
    own->lines[own->rows++] = own->csv.line;
    return YOKE_OK;
}

static yoke_status table_read(table *own, const char *path, const table_options *options) {
    TRY(yoke_csv_read(&own->csv, path));
    TRY(read_header(own, options));
    for (bool more = true; more;) {
        TRY(yoke_check_cancelled());
        TRY(yoke_csv_next(&own->csv, &more));
        if (more) TRY(read_row(own, options));
    }
    if (own->rows > 0 && own->rows <= UINT32_MAX) return YOKE_OK;
    return FAIL(YOKE_ERROR_DATA, "%s: %zu lines behind the header, expected 1 to %u", path,
                own->rows, UINT32_MAX);
}

/* The dataset. */

/* Copies `count` names, because the table's text ends with the table; they take two places of
 * `owned`. */
static yoke_status keep_names(char *const *names, size_t count, void **text, const char ***list) {
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += strlen(names[i]) + 1;
    char *next = *text = yoke_malloc(bytes);
    const char **kept = *list = yoke_malloc(count * sizeof *kept);
    if (next == NULL || kept == NULL) return FAIL_MEMORY(bytes, "names");
    for (size_t i = 0; i < count; i++) {
        kept[i] = next;
        next = stpcpy(next, names[i]) + 1;
    }
    return YOKE_OK;
}

static yoke_status name_features(yoke_dataset *dataset, const table *own) {
    size_t count = 0;
    char **names = yoke_malloc(own->features * sizeof *names);
    if (names == NULL) return FAIL_MEMORY(own->features * sizeof *names, "names of columns");
    for (size_t i = 0; i < own->columns; i++)
        if (own->uses[i] == FEATURE) names[count++] = own->names[i];
    yoke_status status = keep_names(names, count, &dataset->feature_text, &dataset->feature_names);
    yoke_free(names);
    return status;
}

static yoke_status name_classes(yoke_dataset *dataset, const table *training,
                                const yoke_label_names *names) {
    if (names->count < 2 || names->count > YOKE_CLASSES_LIMIT)
        return FAIL(YOKE_ERROR_DATA,
                    "%s: the label column has %zu different value%s, expected 2 to %d; "
                    "target=COLUMN learns numbers",
                    training->csv.path, names->count, names->count == 1 ? "" : "s",
                    YOKE_CLASSES_LIMIT);
    const char **list = NULL;
    yoke_status status = keep_names(names->names, names->count, &dataset->owned[2], &list);
    dataset->owned[3] = list;
    dataset->class_names = list;
    dataset->classes = (int)names->count;
    return status;
}

/* The classes are those of the training file. */
static yoke_status take_classes(yoke_dataset *dataset, const table *own, const table *training) {
    yoke_label_names names;
    yoke_status status = yoke_label_names_collect(&names, training->labels, training->rows);
    if (status == YOKE_OK) status = name_classes(dataset, training, &names);
    int32_t *labels = status == YOKE_OK ? yoke_malloc(own->rows * sizeof *labels) : NULL;
    if (status == YOKE_OK && labels == NULL)
        status = FAIL_MEMORY(own->rows * sizeof *labels, "labels");
    dataset->labels = dataset->owned[1] = labels;
    for (size_t row = 0; status == YOKE_OK && row < own->rows; row++) {
        labels[row] = yoke_label_names_find(&names, own->labels[row]);
        if (labels[row] < 0)
            status = FAIL(YOKE_ERROR_DATA, "%s: line %zu: class '%.60s' is not in %s",
                          own->csv.path, own->lines[row], own->labels[row], training->csv.path);
    }
    yoke_free(names.names);
    return status;
}

static yoke_status take_rows(yoke_dataset *dataset, table *own, const table *training) {
    if (own->features > (size_t)1 << 20)
        return FAIL(YOKE_ERROR_DATA, "%s: %zu features, at most %d are supported", own->csv.path,
                    own->features, 1 << 20);
    dataset->rows = own->rows;
    dataset->shape =
        (yoke_shape){.channels = (int)own->features, .height = 1, .width = 1, .flat = true};
    TRY(name_features(dataset, own));
    if (own->labels != NULL) TRY(take_classes(dataset, own, training));
    dataset->floats = dataset->owned[0] = own->values;
    own->values = NULL;
    if (own->targets == NULL) return YOKE_OK;
    dataset->targets = dataset->owned[1] = own->targets;
    dataset->target_count = 1;
    own->targets = NULL;
    return YOKE_OK;
}

/* Computes mean and std of each column over the dataset's rows, as scikit-learn's
 * StandardScaler does; a constant column may have any scale but 0. floats: the stored rows. */
static yoke_status measure(yoke_dataset *dataset, const yoke_dataset *rows) {
    size_t features = (size_t)dataset->shape.channels;
    dataset->means = yoke_malloc(features * sizeof *dataset->means);
    dataset->stds = yoke_malloc(features * sizeof *dataset->stds);
    if (dataset->means == NULL || dataset->stds == NULL)
        return FAIL_MEMORY(features * sizeof(float), "means of columns");
    for (size_t i = 0; i < features; i++) {
        double sum = 0, squares = 0, count = (double)rows->rows;
        for (size_t row = 0; row < rows->rows; row++)
            sum += (double)rows->floats[yoke_dataset_stored(rows, row) * features + i];
        for (size_t row = 0; row < rows->rows; row++) {
            double value = (double)rows->floats[yoke_dataset_stored(rows, row) * features + i];
            squares += (value - sum / count) * (value - sum / count);
        }
        double std = sqrt(squares / count);
        dataset->means[i] = (float)(sum / count);
        dataset->stds[i] = (float)std > 0 ? (float)std : 1;
    }
    return YOKE_OK;
}

static yoke_status measure_itself(yoke_dataset *dataset) {
    return measure(dataset, dataset);
}

static yoke_status take_tables(yoke_dataset *dataset, const table_options *options,
                               yoke_split split, table *training, table *test) {
    yoke_dataset_set_statistics(dataset, 0, 1);
    TRY(table_read(training, options->file, options));
    if (options->test == NULL) {
        TRY(take_rows(dataset, training, training));
        return options->predicted ? measure_itself(dataset)
                                  : yoke_dataset_take_drawn(dataset, options->validation, split,
                                                            measure_itself, options->file);
    }
    if (split == YOKE_SPLIT_TRAIN) {
        TRY(take_rows(dataset, training, training));
        return measure(dataset, dataset);
    }
    TRY(table_read(test, options->test, options));
    if (test->columns != training->columns)
        return FAIL(YOKE_ERROR_DATA, "%s: %zu columns, but %s has %zu", test->csv.path,
                    test->columns, training->csv.path, training->columns);
    for (size_t i = 0; i < test->columns; i++)
        if (strcmp(test->names[i], training->names[i]) != 0)
            return FAIL(YOKE_ERROR_DATA, "%s: column %zu is '%s', in %s it is '%s'", test->csv.path,
                        i + 1, test->names[i], training->csv.path, training->names[i]);
    TRY(take_rows(dataset, test, training));
    return measure(dataset, &(yoke_dataset){.rows = training->rows, .floats = training->values});
}

yoke_status yoke_csv_open(yoke_dataset *dataset, const char *text, yoke_split split) {
    table_options options = {0};
    table training = {0}, test = {0};
    TRY(parse(text, &options));
    options.predicted = split == YOKE_SPLIT_TEST && options.label == NULL &&
                        options.target == NULL && options.test == NULL && options.validation == 0;
    yoke_status status = take_tables(dataset, &options, split, &training, &test);
    table_close(&test);
    table_close(&training);
    return status;
}
