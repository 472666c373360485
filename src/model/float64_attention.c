/* SPDX-License-Identifier: Apache-2.0 */
/* The float64 reference of multi-head attention. */
#include <math.h>

#include "model/float64.h"

/* One head of one row, over values [rows, positions, channels]: the features of a position begin
 * `channels` behind those of the position before. */
typedef struct head {
    size_t positions, size, channels;
    bool causal;
    const double *query, *key, *value; /* of position 0 in the input, [positions, 3 * channels] */
} head;

static double dot(const double *a, const double *b, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

static void add_scaled(double *to, const double *from, double scale, size_t count) {
    for (size_t i = 0; i < count; i++)
        to[i] += scale * from[i];
}

static size_t keys_of(const head *h, size_t query) {
    return h->causal ? query + 1 : h->positions;
}

static double score(const head *h, size_t query, size_t key) {
    const double *q = h->query + query * 3 * h->channels, *k = h->key + key * 3 * h->channels;
    return dot(q, k, h->size) / sqrt((double)h->size);
}

/* What normalises the scores of one query. */
typedef struct softmax {
    double largest, sum;
} softmax;

static softmax softmax_of(const head *h, size_t query) {
    softmax s = {-INFINITY, 0};
    for (size_t j = 0; j < keys_of(h, query); j++)
        s.largest = fmax(s.largest, score(h, query, j));
    for (size_t j = 0; j < keys_of(h, query); j++)
        s.sum += exp(score(h, query, j) - s.largest);
    return s;
}

/* How much the query takes of the key's value. */
static double weight(const head *h, size_t query, size_t key, softmax s) {
    return exp(score(h, query, key) - s.largest) / s.sum;
}

static void head_forward(const head *h, double *output) {
    for (size_t i = 0; i < h->positions; i++) {
        softmax s = softmax_of(h, i);
        for (size_t j = 0; j < keys_of(h, i); j++)
            add_scaled(output + i * h->channels, h->value + j * 3 * h->channels, weight(h, i, j, s),
                       h->size);
    }
}

/* gradient: of the head's query at position 0; those of key and value lie behind, as in the
 * input. */
static void head_backward(const head *h, const double *output_gradient, double *gradient) {
    for (size_t i = 0; i < h->positions; i++) {
        const double *g = output_gradient + i * h->channels;
        softmax s = softmax_of(h, i);
        double mean = 0; /* of the weights' gradients, weighted */
        for (size_t j = 0; j < keys_of(h, i); j++)
            mean += weight(h, i, j, s) * dot(g, h->value + j * 3 * h->channels, h->size);
        for (size_t j = 0; j < keys_of(h, i); j++) {
            size_t key = j * 3 * h->channels, query = i * 3 * h->channels;
            double w = weight(h, i, j, s);
            double slope = w * (dot(g, h->value + key, h->size) - mean) / sqrt((double)h->size);
            add_scaled(gradient + query, h->key + key, slope, h->size);
            add_scaled(gradient + h->channels + key, h->query + query, slope, h->size);
            add_scaled(gradient + 2 * h->channels + key, g, w, h->size);
        }
    }
}

void yoke_float64_attention(yoke_float64_model *r, const yoke_node *layer, bool backwards) {
    size_t heads = (size_t)layer->operation.heads, channels = (size_t)layer->shape.channels;
    head h = {.positions = (size_t)layer->shape.height,
              .size = channels / heads,
              .channels = channels,
              .causal = layer->operation.causal};
    for (size_t i = 0; i < (size_t)r->rows * heads; i++) {
        size_t row = i / heads * h.positions, first = i % heads * h.size;
        size_t in = row * 3 * channels + first, out = row * channels + first;
        h.query = r->values[layer->inputs[0]] + in;
        h.key = h.query + channels;
        h.value = h.key + channels;
        if (backwards)
            head_backward(&h, r->gradients[layer->output] + out,
                          r->gradients[layer->inputs[0]] + in);
        else
            head_forward(&h, r->values[layer->output] + out);
    }
}
