/* SPDX-License-Identifier: Apache-2.0 */
/* The door of tokenizer: its public header, and what its own files share. */
#ifndef TOKENIZER_TOKENIZER_H
#define TOKENIZER_TOKENIZER_H

#include "base/base.h"
#include "yoke/tokenizer.h"

#define YOKE_TOKENS_LIMIT (1 << 24)  /* ids; float32 holds each */
#define YOKE_TOKEN_BYTES_LIMIT 65536 /* of one */

/* Two tokens that become one; a lower rank is merged first. */
typedef struct yoke_merge {
    int left, right, rank, to; /* left -1: an empty place of the table */
} yoke_merge;

typedef struct yoke_token {
    size_t begin, bytes; /* in the texts of all */
    bool known, special;
} yoke_token;

struct yoke_tokenizer {
    yoke_token *tokens; /* [count] by id */
    int count, capacity;
    char *texts;
    size_t text_bytes, text_capacity;
    int of_byte[256];   /* the token of a byte alone; -1: there is none */
    yoke_merge *merges; /* [merge_places] a hash table, at most half full */
    size_t merge_places, merge_count;
    int *special, special_count; /* ids, the longest first */
    struct yoke_splitter *splitter;
};

/* read_json.c, read_text.c: fill a zeroed tokenizer from tokenizer.json, and from vocab.json and
 * merges.txt. */
yoke_status yoke_tokenizer_read_json(yoke_tokenizer *tokenizer, const char *path);
yoke_status yoke_tokenizer_read_vocabulary(yoke_tokenizer *tokenizer, const char *vocabulary,
                                           const char *merges);

/* vocabulary.c: an id gets its bytes. DATA: it has some already, or is none. */
yoke_status yoke_tokenizer_add(yoke_tokenizer *tokenizer, const char *path, int64_t id,
                               const char *bytes, size_t count, bool special);
/* Turns a token as files write it, a printable character for each byte, into its bytes, in place,
 * and returns how many; SIZE_MAX: a character stands for no byte. */
size_t yoke_tokenizer_unmap(char *text);
/* Room for so many merges, once all tokens are there; then each, in the order of ranks. */
yoke_status yoke_tokenizer_begin_merges(yoke_tokenizer *tokenizer, size_t count);
yoke_status yoke_tokenizer_merge(yoke_tokenizer *tokenizer, const char *path,
                                 const yoke_merge *merge);
const yoke_merge *yoke_tokenizer_find_merge(const yoke_tokenizer *tokenizer, int left, int right);
/* Behind the last token and merge: what encoding looks up. */
yoke_status yoke_tokenizer_finish(yoke_tokenizer *tokenizer, const char *path);

/* split.c: cuts texts into words. */
typedef struct yoke_splitter yoke_splitter;
yoke_status yoke_splitter_open(yoke_splitter **splitter);
void yoke_splitter_close(yoke_splitter *splitter);
/* The bytes of the first word of a text that is not empty. A walk keeps what threads must not
 * share. */
typedef struct yoke_split {
    const yoke_splitter *splitter;
    const char *text;
    size_t bytes, at;            /* of the text; where the next word begins */
    size_t next_begin, next_end; /* of the next match, behind bytes that are not UTF-8 */
    void *match;
} yoke_split;
yoke_status yoke_split_begin(yoke_split *split, const yoke_splitter *splitter, const char *text,
                             size_t bytes);
/* false: the text is at its end, or *status says why it is not. */
bool yoke_split_next(yoke_split *split, size_t *begin, size_t *end, yoke_status *status);
void yoke_split_end(yoke_split *split);

/* words.c: the tokens of one word. */
typedef struct yoke_word yoke_word;
yoke_status yoke_word_create(yoke_word **word);
void yoke_word_destroy(yoke_word *word);
yoke_status yoke_word_encode(yoke_word *word, const yoke_tokenizer *tokenizer, const char *text,
                             size_t bytes, int *tokens, size_t *count);

#endif
