/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the files of a tokenizer. Whatever would give other tokens than GPT-2's rules is refused by
 * its name: a file of another kind must not be read as if it were of this one. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/tokenizer.h"

#define FILE_LIMIT ((size_t)128 << 20)
#define SPECIALS_LIMIT 10000
#define END_OF_TEXT "<|endoftext|>"

static yoke_status load_json(json_t **root, const char *path) {
    unsigned char *data = NULL;
    size_t bytes = 0;
    json_error_t error;
    TRY(yoke_file_read(path, FILE_LIMIT, &data, &bytes));
    *root = json_loadb((const char *)data, bytes, JSON_REJECT_DUPLICATES, &error);
    yoke_free(data);
    if (*root == NULL)
        return FAIL(YOKE_ERROR_DATA, "%s: line %d: not JSON: %s", path, error.line, error.text);
    if (json_is_object(*root)) return YOKE_OK;
    json_decref(*root);
    *root = NULL;
    return FAIL(YOKE_ERROR_DATA, "%s: not an object, as a tokenizer is", path);
}

/* Tokens. */

static yoke_status add_vocabulary(yoke_tokenizer *t, const char *path, json_t *vocabulary) {
    const char *key;
    json_t *id;
    json_object_foreach(vocabulary, key, id) {
        size_t bytes = strlen(key);
        if (!json_is_integer(id))
            return FAIL(YOKE_ERROR_DATA, "%s: the id of token '%.40s' is no whole number", path,
                        key);
        json_int_t number = json_integer_value(id);
        bool special = number >= 0 && number < t->count && t->tokens[number].known &&
                       t->tokens[number].special && t->tokens[number].bytes == bytes &&
                       memcmp(t->texts + t->tokens[number].begin, key, bytes) == 0;
        if (special) continue; /* an added token, which is in both lists */
        char *text = yoke_strdup(key);
        if (text == NULL) return FAIL_MEMORY(bytes, "a token");
        size_t count = yoke_tokenizer_unmap(text);
        yoke_status status =
            count == SIZE_MAX
                ? FAIL(YOKE_ERROR_DATA,
                       "%s: token '%.40s' has a character that stands for no byte in GPT-2's "
                       "alphabet: this is no byte-level vocabulary",
                       path, key)
                : yoke_tokenizer_add(t, path, number, text, count, false);
        yoke_free(text);
        TRY(status);
    }
    return YOKE_OK;
}

static yoke_status add_special(yoke_tokenizer *t, const char *path, json_t *entry, size_t index) {
    static const char *const refused[] = {"single_word", "lstrip", "rstrip"};
    const char *text = json_string_value(json_object_get(entry, "content"));
    json_t *id = json_object_get(entry, "id");
    if (text == NULL || !json_is_integer(id))
        return FAIL(YOKE_ERROR_DATA, "%s: added token %zu has no id or no content", path, index);
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        if (json_is_true(json_object_get(entry, refused[i])))
            return FAIL(YOKE_ERROR_DATA, "%s: added token '%.40s' sets %s, which GPT-2's do not",
                        path, text, refused[i]);
    return yoke_tokenizer_add(t, path, json_integer_value(id), text, strlen(text), true);
}

static yoke_status add_specials(yoke_tokenizer *t, const char *path, json_t *list) {
    size_t index;
    json_t *entry;
    if (json_array_size(list) > SPECIALS_LIMIT)
        return FAIL(YOKE_ERROR_DATA, "%s: %zu added tokens, more than %d", path,
                    json_array_size(list), SPECIALS_LIMIT);
    json_array_foreach(list, index, entry) TRY(add_special(t, path, entry, index));
    return YOKE_OK;
}

/* Merges. */

typedef struct merge_text {
    const char *left, *right;
    size_t left_bytes, right_bytes;
} merge_text;

static yoke_status find_token(const char *path, json_t *vocabulary, size_t rank, const char *text,
                              int *token) {
    json_t *id = json_object_get(vocabulary, text);
    if (id == NULL)
        return FAIL(YOKE_ERROR_DATA, "%s: merge %zu has '%.40s', which is no token", path, rank,
                    text);
    *token = (int)json_integer_value(id); /* add_vocabulary has checked it */
    return YOKE_OK;
}

static yoke_status add_merge(yoke_tokenizer *t, const char *path, json_t *vocabulary, size_t rank,
                             const merge_text *of) {
    yoke_merge merge = {.rank = (int)rank};
    size_t bytes = of->left_bytes + of->right_bytes;
    char *text = yoke_malloc(bytes + 1);
    if (text == NULL) return FAIL_MEMORY(bytes, "a merge");
    memcpy(text, of->left, of->left_bytes);
    text[of->left_bytes] = '\0';
    yoke_status status = find_token(path, vocabulary, rank, text, &merge.left);
    memcpy(text, of->right, of->right_bytes);
    text[of->right_bytes] = '\0';
    if (status == YOKE_OK) status = find_token(path, vocabulary, rank, text, &merge.right);
    memcpy(text, of->left, of->left_bytes);
    memcpy(text + of->left_bytes, of->right, of->right_bytes);
    text[bytes] = '\0';
    if (status == YOKE_OK) status = find_token(path, vocabulary, rank, text, &merge.to);
    yoke_free(text);
    TRY(status);
    return yoke_tokenizer_merge(t, path, &merge);
}

/* "left right" */
static yoke_status split_merge(const char *path, size_t rank, const char *line, size_t bytes,
                               merge_text *of) {
    const char *space = memchr(line, ' ', bytes);
    size_t left = space != NULL ? (size_t)(space - line) : 0, right = bytes - left - 1;
    if (space == NULL || left == 0 || right == 0 || memchr(space + 1, ' ', right) != NULL)
        return FAIL(YOKE_ERROR_DATA, "%s: merge %zu, '%.*s', is not two tokens", path, rank,
                    (int)(bytes < 40 ? bytes : 40), line);
    *of = (merge_text){line, space + 1, left, right};
    return YOKE_OK;
}

/* Each "left right", or ["left", "right"]. */
static yoke_status add_merges(yoke_tokenizer *t, const char *path, json_t *vocabulary,
                              json_t *list) {
    size_t rank;
    json_t *entry;
    if (!json_is_array(list)) return FAIL(YOKE_ERROR_DATA, "%s: no list of merges", path);
    TRY(yoke_tokenizer_begin_merges(t, json_array_size(list)));
    json_array_foreach(list, rank, entry) {
        merge_text of = {json_string_value(json_array_get(entry, 0)),
                         json_string_value(json_array_get(entry, 1)), 0, 0};
        if (json_is_string(entry))
            TRY(split_merge(path, rank, json_string_value(entry), json_string_length(entry), &of));
        else if (of.left == NULL || of.right == NULL || json_array_size(entry) != 2)
            return FAIL(YOKE_ERROR_DATA, "%s: merge %zu is not two tokens", path, rank);
        else
            of.left_bytes = strlen(of.left), of.right_bytes = strlen(of.right);
        TRY(add_merge(t, path, vocabulary, rank, &of));
    }
    return YOKE_OK;
}

/* tokenizer.json. */

static bool is_empty(json_t *value) {
    return value == NULL || json_is_null(value) || json_is_false(value) ||
           (json_is_string(value) && json_string_length(value) == 0);
}

static yoke_status refuse(const char *path, const char *what, const char *type) {
    return FAIL(YOKE_ERROR_DATA, "%s: %s%s%s: Yoke reads GPT-2's kind, byte-level BPE", path, what,
                type != NULL ? " " : "", type != NULL ? type : "");
}

/* What the model, or the file, must not have. */
static yoke_status check_model(const char *path, json_t *model) {
    static const char *const others[] = {
        "dropout",       "unk_token",    "continuing_subword_prefix", "end_of_word_suffix",
        "byte_fallback", "ignore_merges"};
    json_t *type = json_object_get(model, "type");
    if (!json_is_object(model)) return refuse(path, "no model", NULL);
    if (type != NULL && (!json_is_string(type) || strcmp(json_string_value(type), "BPE") != 0))
        return refuse(path, "the model is", json_string_value(type));
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        json_t *value = json_object_get(model, others[i]);
        bool is_special = strcmp(others[i], "unk_token") == 0; /* no byte is unknown */
        if (!is_special && !is_empty(value)) return refuse(path, "the model sets", others[i]);
    }
    return YOKE_OK;
}

static yoke_status check_step(const char *path, json_t *root, const char *key, bool needed) {
    json_t *step = json_object_get(root, key);
    const char *type = json_string_value(json_object_get(step, "type"));
    char what[40];
    snprintf(what, sizeof what, "the %s is", key);
    if (is_empty(step)) return needed ? refuse(path, "it has no", key) : YOKE_OK;
    return type != NULL && strcmp(type, "ByteLevel") == 0 ? YOKE_OK : refuse(path, what, type);
}

static yoke_status check_steps(const char *path, json_t *root) {
    json_t *words = json_object_get(root, "pre_tokenizer");
    TRY(check_step(path, root, "pre_tokenizer", true));
    TRY(check_step(path, root, "post_processor", false));
    TRY(check_step(path, root, "decoder", true));
    if (!is_empty(json_object_get(root, "normalizer")))
        return refuse(path, "it has a", "normalizer");
    if (json_is_true(json_object_get(words, "add_prefix_space")))
        return refuse(path, "the pre_tokenizer sets", "add_prefix_space");
    if (json_is_false(json_object_get(words, "use_regex")))
        return refuse(path, "the pre_tokenizer does not", "use_regex");
    return YOKE_OK;
}

static yoke_status read_root(yoke_tokenizer *t, const char *path, json_t *root) {
    json_t *model = json_object_get(root, "model");
    json_t *vocabulary = json_object_get(model, "vocab");
    TRY(check_model(path, model));
    TRY(check_steps(path, root));
    if (!json_is_object(vocabulary)) return refuse(path, "the model has no", "vocab");
    TRY(add_specials(t, path, json_object_get(root, "added_tokens")));
    TRY(add_vocabulary(t, path, vocabulary));
    TRY(add_merges(t, path, vocabulary, json_object_get(model, "merges")));
    return yoke_tokenizer_finish(t, path);
}

yoke_status yoke_tokenizer_read_json(yoke_tokenizer *tokenizer, const char *path) {
    json_t *root = NULL;
    TRY(load_json(&root, path));
    yoke_status status = read_root(tokenizer, path, root);
    json_decref(root);
    return status;
}

/* vocab.json and merges.txt. */

/* Lines that are not empty, or more. */
static size_t count_lines(const char *data, size_t bytes) {
    size_t lines = 1;
    for (size_t i = 1; i < bytes; i++)
        lines += data[i] == '\n' && data[i - 1] != '\n';
    return lines;
}

static yoke_status add_lines(yoke_tokenizer *t, const char *path, json_t *vocabulary,
                             const char *data, size_t bytes) {
    size_t rank = 0;
    TRY(yoke_tokenizer_begin_merges(t, count_lines(data, bytes)));
    for (size_t at = 0; at < bytes;) {
        const char *line = data + at, *end = memchr(line, '\n', bytes - at);
        size_t length = end != NULL ? (size_t)(end - line) : bytes - at;
        bool is_head = at == 0 && length >= 8 && memcmp(line, "#version", 8) == 0;
        at += length + 1;
        if (length > 0 && line[length - 1] == '\r') length--;
        merge_text of;
        if (is_head || length == 0) continue;
        TRY(split_merge(path, rank, line, length, &of));
        TRY(add_merge(t, path, vocabulary, rank++, &of));
    }
    return YOKE_OK;
}

static yoke_status read_parts(yoke_tokenizer *t, const char *vocabulary_path,
                              const char *merges_path, json_t *vocabulary) {
    unsigned char *data = NULL;
    size_t bytes = 0;
    json_t *end = json_object_get(vocabulary, END_OF_TEXT);
    if (json_is_integer(end))
        TRY(yoke_tokenizer_add(t, vocabulary_path, json_integer_value(end), END_OF_TEXT,
                               strlen(END_OF_TEXT), true));
    TRY(add_vocabulary(t, vocabulary_path, vocabulary));
    TRY(yoke_file_read(merges_path, FILE_LIMIT, &data, &bytes));
    yoke_status status = add_lines(t, merges_path, vocabulary, (const char *)data, bytes);
    yoke_free(data);
    TRY(status);
    return yoke_tokenizer_finish(t, vocabulary_path);
}

yoke_status yoke_tokenizer_read_vocabulary(yoke_tokenizer *tokenizer, const char *vocabulary,
                                           const char *merges) {
    json_t *root = NULL;
    TRY(load_json(&root, vocabulary));
    yoke_status status = read_parts(tokenizer, vocabulary, merges, root);
    json_decref(root);
    return status;
}
