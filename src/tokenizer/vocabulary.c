/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens by id, and merges by pair. */
#include <stdlib.h>
#include <string.h>

#include "tokenizer/tokenizer.h"

/* Tokens. */

static yoke_status grow_tokens(yoke_tokenizer *t, int id) {
    if (id < t->capacity) return YOKE_OK;
    int capacity = id < 1024 ? 2048 : 2 * id;
    yoke_token *tokens = yoke_realloc(t->tokens, (size_t)capacity * sizeof *tokens);
    if (tokens == NULL) return FAIL_MEMORY((size_t)capacity * sizeof *tokens, "a vocabulary");
    memset(tokens + t->capacity, 0, (size_t)(capacity - t->capacity) * sizeof *tokens);
    t->tokens = tokens;
    t->capacity = capacity;
    return YOKE_OK;
}

static yoke_status grow_texts(yoke_tokenizer *t, size_t count) {
    size_t needed = t->text_bytes + count;
    if (needed <= t->text_capacity) return YOKE_OK;
    size_t capacity = 2 * needed + 4096;
    char *texts = yoke_realloc(t->texts, capacity);
    if (texts == NULL) return FAIL_MEMORY(capacity, "a vocabulary");
    t->texts = texts;
    t->text_capacity = capacity;
    return YOKE_OK;
}

yoke_status yoke_tokenizer_add(yoke_tokenizer *tokenizer, const char *path, int64_t id,
                               const char *bytes, size_t count, bool special) {
    if (id < 0 || id >= YOKE_TOKENS_LIMIT)
        return FAIL(YOKE_ERROR_DATA, "%s: token '%.40s' has the id %lld, not one of 0 to %d", path,
                    bytes, (long long)id, YOKE_TOKENS_LIMIT - 1);
    if (count == 0 || count > YOKE_TOKEN_BYTES_LIMIT)
        return FAIL(YOKE_ERROR_DATA, "%s: token %lld has %zu bytes, not 1 to %d", path,
                    (long long)id, count, YOKE_TOKEN_BYTES_LIMIT);
    TRY(grow_tokens(tokenizer, (int)id));
    TRY(grow_texts(tokenizer, count));
    yoke_token *token = &tokenizer->tokens[id];
    if (token->known)
        return FAIL(YOKE_ERROR_DATA, "%s: two tokens have the id %lld, '%.*s' and '%.40s'", path,
                    (long long)id, (int)(token->bytes < 40 ? token->bytes : 40),
                    tokenizer->texts + token->begin, bytes);
    *token = (yoke_token){tokenizer->text_bytes, count, true, special};
    memcpy(tokenizer->texts + token->begin, bytes, count);
    tokenizer->text_bytes += count;
    tokenizer->special_count += special;
    if ((int)id >= tokenizer->count) tokenizer->count = (int)id + 1;
    return YOKE_OK;
}

/* GPT-2's alphabet: bytes that Latin-1 prints stand for themselves, the others, in their order, for
 * the characters from U+0100 on. */
static bool is_printed(int byte) {
    return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

static int byte_of(unsigned character) {
    if (character < 0x100) return is_printed((int)character) ? (int)character : -1;
    unsigned other = 0x100;
    for (int byte = 0; byte < 256; byte++)
        if (!is_printed(byte) && other++ == character) return byte;
    return -1;
}

/* Characters of one or two bytes of UTF-8, as all of the alphabet are. */
size_t yoke_tokenizer_unmap(char *text) {
    size_t count = 0;
    for (const unsigned char *s = (const unsigned char *)text; *s != '\0';) {
        bool two = *s >= 0xc2 && *s < 0xe0 && (s[1] & 0xc0) == 0x80;
        int byte = two ? byte_of((*s & 0x1fu) << 6 | (s[1] & 0x3fu)) : *s < 0x80 ? byte_of(*s) : -1;
        if (byte < 0) return SIZE_MAX;
        text[count++] = (char)byte;
        s += two ? 2 : 1;
    }
    return count;
}

/* Merges. */

yoke_status yoke_tokenizer_begin_merges(yoke_tokenizer *tokenizer, size_t count) {
    size_t places = 16;
    while (places < 2 * count)
        places *= 2;
    tokenizer->merges = yoke_malloc(places * sizeof *tokenizer->merges);
    if (tokenizer->merges == NULL) return FAIL_MEMORY(places * sizeof *tokenizer->merges, "merges");
    tokenizer->merge_places = places;
    for (size_t i = 0; i < places; i++)
        tokenizer->merges[i].left = -1;
    return YOKE_OK;
}

/* Where this pair is, or would be. */
static yoke_merge *place_of(const yoke_tokenizer *t, int left, int right) {
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    key = (key ^ key >> 29) * 0x9e3779b97f4a7c15u;
    size_t at = (size_t)(key >> 20) & (t->merge_places - 1);
    while (t->merges[at].left >= 0 && (t->merges[at].left != left || t->merges[at].right != right))
        at = (at + 1) & (t->merge_places - 1);
    return &t->merges[at];
}

yoke_status yoke_tokenizer_merge(yoke_tokenizer *tokenizer, const char *path,
                                 const yoke_merge *merge) {
    yoke_merge *place = place_of(tokenizer, merge->left, merge->right);
    if (place->left >= 0)
        return FAIL(YOKE_ERROR_DATA, "%s: merge %d is merge %d again", path, merge->rank,
                    place->rank);
    *place = *merge;
    tokenizer->merge_count++;
    return YOKE_OK;
}

const yoke_merge *yoke_tokenizer_find_merge(const yoke_tokenizer *tokenizer, int left, int right) {
    const yoke_merge *place = place_of(tokenizer, left, right);
    return place->left >= 0 ? place : NULL;
}

/* Finishing. */

yoke_status yoke_tokenizer_finish(yoke_tokenizer *tokenizer, const char *path) {
    if (tokenizer->count == 0) return FAIL(YOKE_ERROR_DATA, "%s: no token", path);
    for (int byte = 0; byte < 256; byte++)
        tokenizer->of_byte[byte] = -1;
    size_t specials = (size_t)tokenizer->special_count;
    tokenizer->special = yoke_calloc(specials + 1, sizeof *tokenizer->special);
    if (tokenizer->special == NULL) return FAIL_MEMORY(specials * sizeof(int), "special tokens");
    int found = 0;
    for (int id = 0; id < tokenizer->count; id++) {
        const yoke_token *token = &tokenizer->tokens[id];
        if (!token->known) continue;
        if (!token->special && token->bytes == 1)
            tokenizer->of_byte[(unsigned char)tokenizer->texts[token->begin]] = id;
        if (!token->special) continue;
        int at = found++;
        for (; at > 0 && tokenizer->tokens[tokenizer->special[at - 1]].bytes < token->bytes; at--)
            tokenizer->special[at] = tokenizer->special[at - 1];
        tokenizer->special[at] = id;
    }
    return YOKE_OK;
}
