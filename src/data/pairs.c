/* SPDX-License-Identifier: Apache-2.0 */
/* pairs:FILE: lines SOURCE<TAB>TARGET, to train what reads one text and writes another. A token is
 * a byte. Rows are padded to one length, and each says its own. */
#include <stdlib.h>
#include <string.h>

#include "data/arrays.h"
#include "data/row_inputs.h"
#include "data/text_tokens.h"

#define CONTEXT_LIMIT (1 << 14)
#define FILE_LIMIT ((size_t)1 << 30)
#define HELP "pairs:FILE[,context=N][,validation=0.1]"

/* Tokens before those of bytes. */
enum { PADDING, BEGIN, END, RESERVED };
static const char *const reserved[RESERVED] = {"<pad>", "<begin>", "<end>"};

/* A line of the file. */
typedef struct text_pair {
    const uint8_t *source, *target;
    size_t source_length, target_length;
} text_pair;

typedef struct pairs_file {
    char words[YOKE_DATA_PATH_BYTES];
    const char *path;
    int64_t context; /* positions of a row; 0: as many as the longest line needs */
    double validation;
    uint8_t *bytes; /* owned */
    size_t size;
    text_pair *pairs; /* [rows], owned */
    size_t rows;
} pairs_file;

static yoke_status parse(pairs_file *file, const char *spec) {
    static const char *const names[] = {"context", "validation"};
    yoke_spec_word word;
    char *rest = file->words;
    if (strlen(spec) >= sizeof file->words)
        return FAIL(YOKE_ERROR_ARGUMENT, "pairs: a path of %zu bytes, at most %zu are supported",
                    strlen(spec), sizeof file->words - 1);
    strcpy(file->words, spec);
    while (yoke_spec_next(&rest, &word)) {
        bool named = word.name != NULL;
        if (!named && file->path == NULL)
            file->path = word.value;
        else if (named && strcmp(word.name, "validation") == 0)
            TRY(yoke_spec_validation("pairs", &word, &file->validation));
        else if (!named || strcmp(word.name, "context") != 0)
            return yoke_spec_unknown("pairs", &word, names, 2, HELP);
        else if (!yoke_text_integer(word.value, 2, CONTEXT_LIMIT, &file->context))
            return FAIL(YOKE_ERROR_ARGUMENT, "pairs: context=%s: expected 2..%d", word.value,
                        CONTEXT_LIMIT);
    }
    if (file->path != NULL) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT, "pairs:%s: the file is missing; write %s", spec, HELP);
}

/* Lines. */

static size_t count_lines(const pairs_file *file) {
    size_t lines = 1;
    for (size_t i = 0; i < file->size; i++)
        lines += file->bytes[i] == '\n';
    return lines;
}

/* line[length]: without its end. */
static yoke_status add_line(pairs_file *file, const uint8_t *line, size_t length, size_t number) {
    if (length > 0 && line[length - 1] == '\r') length--;
    if (length == 0) return YOKE_OK;
    const uint8_t *tab = memchr(line, '\t', length);
    if (tab == NULL || memchr(tab + 1, '\t', (size_t)(line + length - tab - 1)) != NULL)
        return FAIL(YOKE_ERROR_DATA, "%s: line %zu has %s; expected SOURCE, one tab, TARGET",
                    file->path, number, tab == NULL ? "no tab" : "more than one tab");
    size_t source = (size_t)(tab - line);
    file->pairs[file->rows++] = (text_pair){line, tab + 1, source, length - source - 1};
    return YOKE_OK;
}

static yoke_status find_lines(pairs_file *file) {
    size_t lines = count_lines(file), number = 0;
    file->pairs = yoke_calloc(lines, sizeof *file->pairs);
    if (file->pairs == NULL) return FAIL_MEMORY(lines * sizeof *file->pairs, "lines of a file");
    for (size_t begin = 0; begin < file->size; number++) {
        const uint8_t *line = file->bytes + begin;
        const uint8_t *end = memchr(line, '\n', file->size - begin);
        size_t length = end != NULL ? (size_t)(end - line) : file->size - begin;
        TRY(add_line(file, line, length, number + 1));
        begin += length + 1;
    }
    if (file->rows >= 2) return YOKE_OK;
    return FAIL(YOKE_ERROR_DATA, "%s: %zu lines of SOURCE, tab, TARGET; two are needed at least",
                file->path, file->rows);
}

/* A source takes as many positions as it has bytes, a target one more, for its begin or its end. */
static yoke_status set_context(pairs_file *file) {
    size_t longest = 2;
    for (size_t row = 0; row < file->rows; row++) {
        const text_pair *pair = &file->pairs[row];
        size_t needed = pair->target_length + 1;
        if (pair->source_length > needed) needed = pair->source_length;
        if (file->context > 0 && needed > (size_t)file->context)
            return FAIL(YOKE_ERROR_DATA,
                        "%s: pair %zu needs %zu positions, and a row has context=%lld: raise it, "
                        "or shorten the line",
                        file->path, row + 1, needed, (long long)file->context);
        if (needed > longest) longest = needed;
    }
    if (longest > CONTEXT_LIMIT)
        return FAIL(YOKE_ERROR_DATA, "%s: a line needs %zu positions, at most %d are supported",
                    file->path, longest, CONTEXT_LIMIT);
    if (file->context == 0) file->context = (int64_t)longest;
    return YOKE_OK;
}

/* Rows. */

/* The arrays of a dataset, [rows, context] and [rows]. */
typedef struct pair_rows {
    float *sources, *targets, *source_lengths, *target_lengths;
    int32_t *labels;
} pair_rows;

static void write_row(const pairs_file *file, const yoke_tokens *tokens, pair_rows *to,
                      size_t row) {
    const text_pair *pair = &file->pairs[row];
    size_t context = (size_t)file->context, first = row * context, length = pair->target_length;
    for (size_t i = 0; i < pair->source_length; i++)
        to->sources[first + i] = (float)tokens->of[pair->source[i]];
    to->targets[first] = BEGIN;
    for (size_t i = 0; i < context; i++)
        to->labels[first + i] = YOKE_NO_LABEL;
    for (size_t i = 0; i < length; i++) {
        to->labels[first + i] = tokens->of[pair->target[i]];
        to->targets[first + i + 1] = (float)tokens->of[pair->target[i]];
    }
    to->labels[first + length] = END;
    to->source_lengths[row] = (float)pair->source_length;
    to->target_lengths[row] = (float)(length + 1);
}

/* The dataset owns the arrays, also after a failure. */
static yoke_status reserve_rows(yoke_dataset *dataset, const pairs_file *file, pair_rows *to) {
    size_t count = file->rows * (size_t)file->context, bytes = count * sizeof(float);
    const yoke_shape row = yoke_shape_vector((int)file->context), one = yoke_shape_vector(1);
    to->sources = yoke_calloc(count, sizeof *to->sources); /* PADDING is 0 */
    to->labels = yoke_calloc(count, sizeof *to->labels);
    dataset->floats = dataset->owned[0] = to->sources;
    dataset->labels = dataset->owned[1] = to->labels;
    dataset->rows = file->rows;
    if (to->sources == NULL || to->labels == NULL) return FAIL_MEMORY(bytes, "pairs of texts");
    const struct {
        const char *name;
        float **values;
        yoke_shape shape;
        size_t count;
    } inputs[] = {{"source_length", &to->source_lengths, one, file->rows},
                  {"target", &to->targets, row, count},
                  {"target_length", &to->target_lengths, one, file->rows}};
    for (size_t k = 0; k < sizeof inputs / sizeof inputs[0]; k++) {
        float *values = *inputs[k].values = yoke_calloc(inputs[k].count, sizeof *values);
        if (values == NULL) return FAIL_MEMORY(bytes, "pairs of texts");
        const yoke_row_input input = {sizeof input, inputs[k].name, inputs[k].shape, values};
        TRY(yoke_row_inputs_add(dataset, &input, true));
    }
    return YOKE_OK;
}

static yoke_status fill(yoke_dataset *dataset, const pairs_file *file) {
    yoke_tokens tokens = {.occurs = {false}};
    pair_rows rows = {0};
    for (size_t i = 0; i < file->size; i++)
        tokens.occurs[file->bytes[i]] = true;
    tokens.occurs['\t'] = tokens.occurs['\n'] = tokens.occurs['\r'] = false;
    TRY(yoke_tokens_number(&tokens, dataset, reserved, RESERVED));
    TRY(reserve_rows(dataset, file, &rows));
    for (size_t row = 0; row < file->rows; row++)
        write_row(file, &tokens, &rows, row);
    dataset->shape = yoke_shape_vector((int)file->context);
    dataset->label_count = (int)file->context;
    dataset->unlabelled = true;
    return YOKE_OK;
}

static yoke_status use_plain(yoke_dataset *dataset) {
    yoke_dataset_set_statistics(dataset, 0, 1);
    return YOKE_OK;
}

static yoke_status open_file(yoke_dataset *dataset, pairs_file *file, const char *spec,
                             yoke_split split) {
    TRY(parse(file, spec));
    TRY(yoke_file_read(file->path, FILE_LIMIT, &file->bytes, &file->size));
    TRY(find_lines(file));
    TRY(set_context(file));
    TRY(fill(dataset, file));
    return yoke_dataset_take_drawn(dataset, file->validation, split, use_plain, file->path);
}

yoke_status yoke_pairs_open(yoke_dataset *dataset, const char *spec, yoke_split split) {
    pairs_file *file = yoke_calloc(1, sizeof *file);
    if (file == NULL) return FAIL_MEMORY(sizeof *file, "pairs of texts");
    yoke_status status = open_file(dataset, file, spec, split);
    yoke_free(file->pairs);
    yoke_free(file->bytes);
    yoke_free(file);
    return status;
}
