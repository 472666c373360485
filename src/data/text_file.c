/* SPDX-License-Identifier: Apache-2.0 */
/* A text file: rows are windows of its tokens, bytes or those of a tokenizer, and the label of each
 * token is the next one. */
#include "data/text_file.h"

#include "data/text_tokens.h"
#include "yoke/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define CONTEXT 128
#define CONTEXT_LIMIT (1 << 16)
#define VALIDATION 0.1
#define FILE_LIMIT ((size_t)4 << 30)

/* Row i of an epoch reads tokens begin + shift + i * context and on; labels are one behind. */
struct yoke_text {
    uint8_t *bytes;  /* [tokens] where bytes are the tokens */
    int32_t *tokens; /* [tokens] of a tokenizer; NULL: bytes are */
    size_t begin;    /* of this split */
    size_t shifts;   /* an epoch draws one of 0 .. shifts - 1 */
    size_t context;
};

typedef struct text_options {
    char path[YOKE_DATA_PATH_BYTES];
    int64_t context;
    double validation;
    const char *tokenizer; /* NULL: bytes are the tokens */
} text_options;

static yoke_status read_setting(const char *text, text_options *options) {
    bool is_tokenizer = strncmp(text, "tokenizer=", 10) == 0 && text[10] != '\0';
    if (is_tokenizer) options->tokenizer = text + 10;
    if (is_tokenizer) return YOKE_OK;
    if (strncmp(text, "context=", 8) == 0 &&
        yoke_text_integer(text + 8, 1, CONTEXT_LIMIT, &options->context))
        return YOKE_OK;
    if (strncmp(text, "validation=", 11) == 0 &&
        yoke_text_real(text + 11, 0.001, 0.9, &options->validation))
        return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT,
                "text: setting '%s': expected context=1..%d, validation=0.001..0.9 or "
                "tokenizer=PATH",
                text, CONTEXT_LIMIT);
}

static yoke_status read_file(const char *path, uint8_t **data, size_t *bytes) {
    struct stat facts;
    if (stat(path, &facts) == 0 && S_ISDIR(facts.st_mode))
        return FAIL(YOKE_ERROR_DATA, "%s: a folder; text: reads one file", path);
    TRY(yoke_file_read(path, FILE_LIMIT, data, bytes));
    return *bytes > 0 ? YOKE_OK : FAIL(YOKE_ERROR_DATA, "%s: the file is empty", path);
}

/* Windows. */

/* The last part of the file validates: as many whole windows as it has, so that each of its bytes
 * is a label once. Before it, an epoch reads the file once, in windows that begin elsewhere in each
 * epoch. */
static yoke_status cut(yoke_dataset *dataset, const text_options *options, size_t tokens,
                       yoke_split split) {
    yoke_text *text = dataset->text;
    size_t context = (size_t)options->context;
    size_t tested = (size_t)(options->validation * (double)tokens) / context;
    if (tested == 0) tested = 1;
    if (tokens < (tested + 1) * context + 1)
        return FAIL(YOKE_ERROR_DATA,
                    "%s: ends at %s %zu; context=%zu and validation=%g need %zu: choose a smaller "
                    "context",
                    options->path, text->tokens != NULL ? "token" : "byte", tokens, context,
                    options->validation, (tested + 1) * context + 1);
    size_t labels = tokens - tested * context - 1; /* to train on */
    text->context = context;
    text->shifts = 1;
    text->begin = split == YOKE_SPLIT_TRAIN ? 0 : labels;
    dataset->rows = tested;
    if (split == YOKE_SPLIT_TEST) return YOKE_OK;
    size_t most = labels / context, rest = labels - most * context;
    dataset->rows = rest + 1 == context || most == 1 ? most : most - 1;
    size_t free_labels = labels - dataset->rows * context;
    text->shifts = free_labels + 1 < context ? free_labels + 1 : context;
    return YOKE_OK;
}

static int32_t token_at(const yoke_text *text, size_t at) {
    return text->tokens != NULL ? text->tokens[at] : text->bytes[at];
}

void yoke_text_row(const yoke_text *text, size_t row, const yoke_augmentation *augmentation,
                   float *inputs, int32_t *labels) {
    uint32_t words[4];
    yoke_random_words(augmentation->seed, YOKE_RANDOM_TEXT, augmentation->epoch, 0, 0, words);
    size_t shift = (size_t)yoke_random_below(words[0], (int)text->shifts);
    size_t at = text->begin + shift + row * text->context;
    for (size_t i = 0; i < text->context; i++) {
        inputs[i] = (float)token_at(text, at + i);
        labels[i] = token_at(text, at + i + 1);
    }
}

/* The bytes that occur are the classes. */
static yoke_status number_bytes(yoke_dataset *dataset, const text_options *options, size_t count) {
    uint8_t *bytes = dataset->text->bytes;
    yoke_tokens known = {.occurs = {false}};
    for (size_t i = 0; i < count; i++)
        known.occurs[bytes[i]] = true;
    TRY(yoke_tokens_number(&known, dataset, NULL, 0));
    if (dataset->classes < 2)
        return FAIL(YOKE_ERROR_DATA, "%s: every byte is 0x%02x; a text has at least two different",
                    options->path, (unsigned)bytes[0]);
    for (size_t i = 0; i < count; i++)
        bytes[i] = (uint8_t)known.of[bytes[i]];
    return YOKE_OK;
}

/* The tokens of a tokenizer are the classes, whether they occur or not; they have no names. */
static yoke_status encode(yoke_dataset *dataset, const text_options *options, size_t *count) {
    yoke_text *text = dataset->text;
    yoke_tokenizer *tokenizer = NULL;
    size_t room = *count + 1;
    text->tokens = yoke_malloc(room * sizeof *text->tokens);
    if (text->tokens == NULL) return FAIL_MEMORY(room * sizeof *text->tokens, "a text's tokens");
    TRY(yoke_tokenizer_open(&tokenizer, options->tokenizer));
    yoke_status status =
        yoke_tokenizer_encode(tokenizer, (const char *)text->bytes, *count, text->tokens, count);
    dataset->classes = yoke_tokenizer_count(tokenizer);
    yoke_tokenizer_close(tokenizer);
    yoke_free(text->bytes);
    text->bytes = NULL;
    return status;
}

yoke_status yoke_text_open(yoke_dataset *dataset, const char *spec, yoke_split split) {
    text_options options = {.context = CONTEXT, .validation = VALIDATION};
    size_t count = 0;
    size_t length = strlen(spec);
    if (length >= sizeof options.path)
        return FAIL(YOKE_ERROR_ARGUMENT, "text: a path of %zu bytes, at most %zu are supported",
                    length, sizeof options.path - 1);
    memcpy(options.path, spec, length + 1);
    char *rest = options.path;
    (void)strsep(&rest, ",");
    while (rest != NULL)
        TRY(read_setting(strsep(&rest, ","), &options));
    dataset->text = yoke_calloc(1, sizeof *dataset->text);
    if (dataset->text == NULL) return FAIL_MEMORY(sizeof *dataset->text, "a text");
    TRY(read_file(options.path, &dataset->text->bytes, &count));
    if (options.tokenizer != NULL) TRY(encode(dataset, &options, &count));
    TRY(cut(dataset, &options, count, split));
    if (options.tokenizer == NULL) TRY(number_bytes(dataset, &options, count));
    dataset->shape = (yoke_shape){(int)options.context, 1, 1, true, false};
    dataset->label_count = (int)options.context;
    yoke_dataset_set_statistics(dataset, 0, 1);
    return YOKE_OK;
}

void yoke_text_close(yoke_text *text) {
    if (text == NULL) return;
    yoke_free(text->tokens);
    yoke_free(text->bytes);
    yoke_free(text);
}
