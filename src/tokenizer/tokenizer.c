/* SPDX-License-Identifier: Apache-2.0 */
/* A tokenizer's life, and its two directions. */
#include "tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PATH_BYTES 4096

static yoke_status join(char *to, const char *folder, size_t length, const char *name) {
    int count = snprintf(to, PATH_BYTES, "%.*s%s%s", (int)length, folder,
                         length > 0 && folder[length - 1] != '/' ? "/" : "", name);
    if (count > 0 && count < PATH_BYTES) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT, "tokenizer: a path of more than %d bytes", PATH_BYTES - 1);
}

/* The file decides by its name, a folder by what it holds. */
static yoke_status read_path(yoke_tokenizer *tokenizer, const char *path) {
    char json[PATH_BYTES], vocabulary[PATH_BYTES], merges[PATH_BYTES];
    struct stat facts;
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    size_t folder = (size_t)(name - path);
    bool is_folder = stat(path, &facts) == 0 && S_ISDIR(facts.st_mode);
    if (is_folder) folder = strlen(path);
    TRY(join(json, path, folder, "tokenizer.json"));
    TRY(join(vocabulary, path, folder, "vocab.json"));
    TRY(join(merges, path, folder, "merges.txt"));
    bool parts = is_folder && !yoke_file_exists(json) && yoke_file_exists(vocabulary);
    if (parts || (!is_folder && strcmp(name, "vocab.json") == 0))
        return yoke_tokenizer_read_vocabulary(tokenizer, vocabulary, merges);
    if (!is_folder) return yoke_tokenizer_read_json(tokenizer, path);
    if (yoke_file_exists(json)) return yoke_tokenizer_read_json(tokenizer, json);
    return FAIL(YOKE_ERROR_MISSING, "%s: neither a tokenizer.json nor a vocab.json with merges.txt",
                path);
}

yoke_status yoke_tokenizer_open(yoke_tokenizer **tokenizer, const char *path) {
    TRY(yoke_pointer_check(tokenizer, "tokenizer"));
    *tokenizer = NULL;
    TRY(yoke_pointer_check(path, "path"));
    yoke_tokenizer *made = yoke_calloc(1, sizeof *made);
    if (made == NULL) return FAIL_MEMORY(sizeof *made, "a tokenizer");
    yoke_status status = read_path(made, path);
    if (status == YOKE_OK) status = yoke_splitter_open(&made->splitter);
    if (status != YOKE_OK) {
        yoke_tokenizer_close(made);
        return status;
    }
    *tokenizer = made;
    return YOKE_OK;
}

void yoke_tokenizer_close(yoke_tokenizer *tokenizer) {
    if (tokenizer == NULL) return;
    yoke_splitter_close(tokenizer->splitter);
    yoke_free(tokenizer->special);
    yoke_free(tokenizer->merges);
    yoke_free(tokenizer->texts);
    yoke_free(tokenizer->tokens);
    yoke_free(tokenizer);
}

int yoke_tokenizer_count(const yoke_tokenizer *tokenizer) {
    return tokenizer != NULL ? tokenizer->count : 0;
}

/* Encoding. */

/* The longest special token at the begin of a text; -1: none. */
static int special_at(const yoke_tokenizer *t, const char *text, size_t bytes) {
    for (int i = 0; i < t->special_count; i++) {
        const yoke_token *token = &t->tokens[t->special[i]];
        const char *own = t->texts + token->begin;
        if (token->bytes <= bytes && own[0] == text[0] && memcmp(own, text, token->bytes) == 0)
            return t->special[i];
    }
    return -1;
}

/* A text without special tokens. */
static yoke_status encode_words(const yoke_tokenizer *tokenizer, yoke_word *word, const char *text,
                                size_t bytes, int *tokens, size_t *count) {
    yoke_split split;
    size_t begin = 0, end = 0;
    if (bytes == 0) return YOKE_OK;
    TRY(yoke_split_begin(&split, tokenizer->splitter, text, bytes));
    yoke_status status = YOKE_OK;
    while (status == YOKE_OK && yoke_split_next(&split, &begin, &end, &status))
        status = yoke_word_encode(word, tokenizer, text + begin, end - begin, tokens, count);
    yoke_split_end(&split);
    return status;
}

static yoke_status encode(const yoke_tokenizer *tokenizer, yoke_word *word, const char *text,
                          size_t bytes, int *tokens, size_t *count) {
    bool begins[256] = {false};
    size_t done = 0;
    for (int i = 0; i < tokenizer->special_count; i++)
        begins[(unsigned char)tokenizer->texts[tokenizer->tokens[tokenizer->special[i]].begin]] =
            true;
    for (size_t at = 0; at < bytes;) {
        int special =
            begins[(unsigned char)text[at]] ? special_at(tokenizer, text + at, bytes - at) : -1;
        if (special < 0) {
            at++;
            continue;
        }
        TRY(encode_words(tokenizer, word, text + done, at - done, tokens, count));
        tokens[(*count)++] = special;
        done = at += tokenizer->tokens[special].bytes;
    }
    return encode_words(tokenizer, word, text + done, bytes - done, tokens, count);
}

yoke_status yoke_tokenizer_encode(const yoke_tokenizer *tokenizer, const char *text, size_t bytes,
                                  int *tokens, size_t *count) {
    yoke_word *word = NULL;
    TRY(yoke_pointer_check(tokenizer, "tokenizer"));
    TRY(yoke_pointer_check(text, "text"));
    TRY(yoke_pointer_check(tokens, "tokens"));
    TRY(yoke_pointer_check(count, "count"));
    *count = 0;
    TRY(yoke_word_create(&word));
    yoke_status status = encode(tokenizer, word, text, bytes, tokens, count);
    yoke_word_destroy(word);
    return status;
}

/* Decoding. */

yoke_status yoke_tokenizer_decode(const yoke_tokenizer *tokenizer, const int *tokens, size_t count,
                                  char *text, size_t room, size_t *bytes) {
    size_t written = 0;
    TRY(yoke_pointer_check(tokenizer, "tokenizer"));
    TRY(yoke_pointer_check(tokens, "tokens"));
    TRY(yoke_pointer_check(bytes, "bytes"));
    *bytes = 0;
    for (size_t i = 0; i < count; i++) {
        if (tokens[i] < 0 || tokens[i] >= tokenizer->count || !tokenizer->tokens[tokens[i]].known)
            return FAIL(YOKE_ERROR_ARGUMENT, "the vocabulary has no token %d", tokens[i]);
        const yoke_token *token = &tokenizer->tokens[tokens[i]];
        if (text != NULL && token->bytes > room - written)
            return FAIL(YOKE_ERROR_ARGUMENT, "the text has more than %zu bytes", room);
        if (text != NULL) memcpy(text + written, tokenizer->texts + token->begin, token->bytes);
        written += token->bytes;
    }
    *bytes = written;
    return YOKE_OK;
}

int yoke_tokenizer_special(const yoke_tokenizer *tokenizer, const char *text) {
    size_t bytes = text != NULL ? strlen(text) : 0;
    for (int i = 0; tokenizer != NULL && i < tokenizer->special_count; i++) {
        const yoke_token *token = &tokenizer->tokens[tokenizer->special[i]];
        if (token->bytes == bytes && memcmp(tokenizer->texts + token->begin, text, bytes) == 0)
            return tokenizer->special[i];
    }
    return -1;
}
