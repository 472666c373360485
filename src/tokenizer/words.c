/* SPDX-License-Identifier: Apache-2.0 */
/* The tokens of one word: it begins as its bytes, and of all neighbours that may merge those of the
 * lowest rank do, of several the first. A heap finds them, so that a long word takes n log n. */
#include <stdlib.h>
#include <string.h>

#include "tokenizer/tokenizer.h"

/* A piece of the word; pieces are linked from left to right. */
typedef struct piece {
    int token;
    int before, behind; /* -1: none */
} piece;

/* Two neighbours that may merge, unless one of them has merged meanwhile. */
typedef struct candidate {
    int rank, at; /* of the left one */
    int left, right, to;
} candidate;

struct yoke_word {
    piece *pieces;         /* [capacity] */
    candidate *candidates; /* [3 * capacity]: a heap */
    int capacity, count;
};

yoke_status yoke_word_create(yoke_word **word) {
    *word = yoke_calloc(1, sizeof **word);
    return *word != NULL ? YOKE_OK : FAIL_MEMORY(sizeof **word, "a word");
}

void yoke_word_destroy(yoke_word *word) {
    if (word == NULL) return;
    yoke_free(word->candidates);
    yoke_free(word->pieces);
    yoke_free(word);
}

static yoke_status grow(yoke_word *w, size_t bytes) {
    if (bytes <= (size_t)w->capacity) return YOKE_OK;
    size_t capacity = 2 * bytes + 64;
    if (bytes > (size_t)1 << 28)
        return FAIL(YOKE_ERROR_DATA, "a word of %zu bytes: at most %d can be one", bytes, 1 << 28);
    yoke_free(w->candidates);
    yoke_free(w->pieces);
    w->pieces = yoke_malloc(capacity * sizeof *w->pieces);
    w->candidates = yoke_malloc(3 * capacity * sizeof *w->candidates);
    w->capacity = w->pieces != NULL && w->candidates != NULL ? (int)capacity : 0;
    return w->capacity > 0 ? YOKE_OK : FAIL_MEMORY(capacity * sizeof *w->pieces, "a long word");
}

static bool is_before(const candidate *a, const candidate *b) {
    return a->rank < b->rank || (a->rank == b->rank && a->at < b->at);
}

static void push(yoke_word *w, candidate added) {
    candidate *heap = w->candidates;
    int at = w->count++;
    for (; at > 0 && is_before(&added, &heap[(at - 1) / 2]); at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = added;
}

static candidate pop(yoke_word *w) {
    candidate *heap = w->candidates, first = heap[0], last = heap[--w->count];
    int at = 0;
    for (int child = 1; child < w->count; child = 2 * at + 1) {
        if (child + 1 < w->count && is_before(&heap[child + 1], &heap[child])) child++;
        if (!is_before(&heap[child], &last)) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = last;
    return first;
}

static void offer(yoke_word *w, const yoke_tokenizer *tokenizer, int at) {
    const piece *left = &w->pieces[at];
    if (at < 0 || left->behind < 0) return;
    int right = w->pieces[left->behind].token;
    const yoke_merge *merge = yoke_tokenizer_find_merge(tokenizer, left->token, right);
    if (merge != NULL) push(w, (candidate){merge->rank, at, left->token, right, merge->to});
}

static void merge_all(yoke_word *w, const yoke_tokenizer *tokenizer) {
    while (w->count > 0) {
        candidate next = pop(w);
        piece *left = &w->pieces[next.at];
        bool is_there = left->token == next.left && left->behind >= 0 &&
                        w->pieces[left->behind].token == next.right;
        if (!is_there) continue;
        piece *right = &w->pieces[left->behind];
        left->token = next.to;
        left->behind = right->behind;
        right->token = -1;
        if (left->behind >= 0) w->pieces[left->behind].before = next.at;
        if (left->before >= 0) offer(w, tokenizer, left->before);
        offer(w, tokenizer, next.at);
    }
}

yoke_status yoke_word_encode(yoke_word *word, const yoke_tokenizer *tokenizer, const char *text,
                             size_t bytes, int *tokens, size_t *count) {
    TRY(grow(word, bytes));
    word->count = 0;
    for (size_t i = 0; i < bytes; i++) {
        int token = tokenizer->of_byte[(unsigned char)text[i]];
        if (token < 0)
            return FAIL(YOKE_ERROR_DATA, "the vocabulary has no token for the byte 0x%02x",
                        (unsigned)(unsigned char)text[i]);
        word->pieces[i] = (piece){token, (int)i - 1, i + 1 < bytes ? (int)i + 1 : -1};
    }
    for (size_t i = 0; i + 1 < bytes; i++)
        offer(word, tokenizer, (int)i);
    merge_all(word, tokenizer);
    for (int at = 0; at >= 0 && bytes > 0; at = word->pieces[at].behind)
        tokens[(*count)++] = word->pieces[at].token;
    return YOKE_OK;
}
