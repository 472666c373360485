/* SPDX-License-Identifier: Apache-2.0 */
/* Draws one token. A heap of all tokens, the likeliest on top, is made in one pass; only as many
 * are sorted as top_k and top_p ask for. */
#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "yoke/generator.h"

typedef struct heap {
    const float *values;
    int *tokens;
    int count;
} heap;

/* Where values are equal, the first token is above. */
static bool is_above(const heap *h, int a, int b) {
    float left = h->values[h->tokens[a]], right = h->values[h->tokens[b]];
    return left > right || (left == right && h->tokens[a] < h->tokens[b]);
}

static void swap(heap *h, int a, int b) {
    int token = h->tokens[a];
    h->tokens[a] = h->tokens[b];
    h->tokens[b] = token;
}

static void sink(heap *h, int at) {
    for (int child = 2 * at + 1; child < h->count; child = 2 * at + 1) {
        if (child + 1 < h->count && is_above(h, child + 1, child)) child++;
        if (!is_above(h, child, at)) return;
        swap(h, child, at);
        at = child;
    }
}

static void fill(heap *h, int classes) {
    h->count = classes;
    for (int i = 0; i < classes; i++)
        h->tokens[i] = i;
    for (int i = classes / 2 - 1; i >= 0; i--)
        sink(h, i);
}

/* The popped tokens lie behind the heap, the last popped first. */
static int pop(heap *h) {
    swap(h, 0, --h->count);
    sink(h, 0);
    return h->tokens[h->count];
}

/* What is left to draw from: shares[token], 0 of those that are out; returns their sum. */
static double keep(heap *h, const yoke_token_sampling *sampling, int classes, double *shares) {
    double best = (double)h->values[h->tokens[0]], all = 0, sum = 0;
    int kept = classes;
    if (sampling->top_k > 0 && sampling->top_k < classes) {
        float last = 0;
        for (kept = 0; kept < sampling->top_k; kept++)
            last = h->values[pop(h)];
        for (; h->count > 0 && h->values[h->tokens[0]] == last; kept++)
            pop(h);
        h->tokens += classes - kept;
        h->count = kept;
        for (int i = kept / 2 - 1; i >= 0; i--)
            sink(h, i);
    }
    for (int i = 0; i < classes; i++)
        shares[i] = 0;
    for (int i = 0; i < kept; i++) {
        int token = h->tokens[i];
        shares[token] = exp(((double)h->values[token] - best) / sampling->temperature);
        all += shares[token];
    }
    if (sampling->top_p == 0 || sampling->top_p >= 1) return all;
    while (h->count > 0 && sum < sampling->top_p * all)
        sum += shares[pop(h)];
    for (int i = 0; i < h->count; i++)
        shares[h->tokens[i]] = 0;
    return sum;
}

static int draw(const double *shares, int classes, double sum, const uint32_t words[4]) {
    double unit = (double)yoke_random_unit(words[0]) + (double)yoke_random_unit(words[1]) * 0x1p-24;
    double rest = unit * sum;
    int last = 0;
    for (int i = 0; i < classes; i++) {
        if (shares[i] <= 0) continue;
        rest -= shares[i];
        last = i;
        if (rest < 0) break;
    }
    return last;
}

static yoke_status check_options(const yoke_token_sampling *sampling) {
    if (!(sampling->temperature >= 0 && isfinite(sampling->temperature)))
        return FAIL(YOKE_ERROR_ARGUMENT, "a temperature of %g: must be finite, at least 0",
                    sampling->temperature);
    if (sampling->top_k < 0)
        return FAIL(YOKE_ERROR_ARGUMENT, "a top_k of %d: must be at least 0", sampling->top_k);
    if (!(sampling->top_p >= 0 && sampling->top_p <= 1))
        return FAIL(YOKE_ERROR_ARGUMENT, "a top_p of %g: must be between 0 and 1", sampling->top_p);
    return YOKE_OK;
}

yoke_status yoke_sample_token(const float *outputs, int classes,
                              const yoke_token_sampling *sampling, int row, uint64_t index,
                              int *token) {
    yoke_token_sampling own = YOKE_TOKEN_SAMPLING_INIT;
    TRY(yoke_options_load(&own, sizeof own, sampling, "yoke_token_sampling"));
    TRY(yoke_pointer_check(outputs, "outputs"));
    TRY(yoke_pointer_check(token, "token"));
    TRY(check_options(&own));
    if (classes < 1) return FAIL(YOKE_ERROR_ARGUMENT, "%d classes to draw from", classes);
    int best = 0;
    for (int i = 0; i < classes; i++) {
        if (isnan(outputs[i]))
            return FAIL(YOKE_ERROR_NUMERIC, "the output of token %d is not a number", i);
        if (outputs[i] > outputs[best]) best = i;
    }
    if (isinf(outputs[best]))
        return FAIL(YOKE_ERROR_NUMERIC, "the largest output, of token %d, is %g", best,
                    (double)outputs[best]);
    *token = best;
    if (own.temperature == 0 || own.top_k == 1) return YOKE_OK;
    int *tokens = yoke_malloc((size_t)classes * sizeof *tokens);
    double *shares = yoke_malloc((size_t)classes * sizeof *shares);
    yoke_status status = YOKE_OK;
    if (tokens == NULL || shares == NULL)
        status = FAIL_MEMORY((size_t)classes * sizeof *shares, "the tokens to draw from");
    if (status == YOKE_OK) {
        uint32_t words[4];
        heap all = {.values = outputs, .tokens = tokens};
        fill(&all, classes);
        double sum = keep(&all, &own, classes, shares);
        yoke_random_words(own.seed, YOKE_RANDOM_TEXT, index, UINT32_MAX - (uint32_t)row, 0, words);
        *token = draw(shares, classes, sum, words);
    }
    yoke_free(shares);
    yoke_free(tokens);
    return status;
}
