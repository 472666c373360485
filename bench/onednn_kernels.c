/* SPDX-License-Identifier: Apache-2.0 */
/* The loop's own arithmetic: what oneDNN does not fuse. `narrow` means bfloat16; each kernel is
 * compiled for both because its helpers are inlined with the constant. */
#include "onednn_loop_parts.h"

#include <math.h>
#include <string.h>

static inline __attribute__((always_inline)) float load(const void *data, size_t i, bool narrow) {
    if (!narrow) return ((const float *)data)[i];
    uint32_t bits = (uint32_t)((const uint16_t *)data)[i] << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* bfloat16 rounds to nearest even. */
static inline __attribute__((always_inline)) void store(void *data, size_t i, float value,
                                                        bool narrow) {
    if (!narrow) {
        ((float *)data)[i] = value;
        return;
    }
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    ((uint16_t *)data)[i] = (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

static inline __attribute__((always_inline)) void add_relu(void *out, const void *other,
                                                           size_t count, bool narrow) {
#pragma omp parallel for simd schedule(static)
    for (size_t i = 0; i < count; i++) {
        float sum = load(out, i, narrow) + load(other, i, narrow);
        store(out, i, sum > 0 ? sum : 0, narrow);
    }
}

void loop_add_relu(void *out, const void *other, size_t count, bool narrow) {
    if (narrow)
        add_relu(out, other, count, true);
    else
        add_relu(out, other, count, false);
}

static inline __attribute__((always_inline)) void
relu_gradient(void *gradient, const void *extra, const void *out, size_t count, bool narrow) {
#pragma omp parallel for simd schedule(static)
    for (size_t i = 0; i < count; i++) {
        float sum = load(gradient, i, narrow) + (extra ? load(extra, i, narrow) : 0);
        store(gradient, i, load(out, i, narrow) > 0 ? sum : 0, narrow);
    }
}

void loop_relu_gradient(void *gradient, const void *extra, const void *out, size_t count,
                        bool narrow) {
    if (narrow && extra)
        relu_gradient(gradient, extra, out, count, true);
    else if (narrow)
        relu_gradient(gradient, NULL, out, count, true);
    else if (extra)
        relu_gradient(gradient, extra, out, count, false);
    else
        relu_gradient(gradient, NULL, out, count, false);
}

static inline __attribute__((always_inline)) void accumulate(void *to, const void *from,
                                                             size_t count, bool narrow) {
#pragma omp parallel for simd schedule(static)
    for (size_t i = 0; i < count; i++)
        store(to, i, load(to, i, narrow) + load(from, i, narrow), narrow);
}

void loop_accumulate(void *to, const void *from, size_t count, bool narrow) {
    if (narrow)
        accumulate(to, from, count, true);
    else
        accumulate(to, from, count, false);
}

/* nChw16c: [rows, channels / 16, pixels, 16]. */
static void average_image(float *pooled, const loop_value *value, size_t groups, bool narrow) {
    size_t pixels = (size_t)value->size * (size_t)value->size;
#pragma omp parallel for schedule(static)
    for (size_t group = 0; group < groups; group++)
        for (size_t lane = 0; lane < 16; lane++) {
            float sum = 0;
            for (size_t pixel = 0; pixel < pixels; pixel++)
                sum += load(value->data, (group * pixels + pixel) * 16 + lane, narrow);
            pooled[group * 16 + lane] = sum / (float)pixels;
        }
}

static void spread_gradient(void *gradient, const float *pooled, const loop_value *value,
                            size_t groups, bool narrow) {
    size_t pixels = (size_t)value->size * (size_t)value->size;
#pragma omp parallel for schedule(static)
    for (size_t group = 0; group < groups; group++)
        for (size_t i = 0; i < pixels * 16; i++)
            store(gradient, group * pixels * 16 + i, pooled[group * 16 + i % 16] / (float)pixels,
                  narrow);
}

/* Softmax in place; becomes d loss / d logits, scaled by the whole batch. The row's loss is
 * returned. */
static double row_loss(float *logits, int label, int whole_rows) {
    float largest = logits[0], sum = 0;
    for (int k = 1; k < LOOP_CLASSES; k++)
        largest = fmaxf(largest, logits[k]);
    for (int k = 0; k < LOOP_CLASSES; k++)
        sum += expf(logits[k] - largest);
    double loss = log((double)sum) - (double)(logits[label] - largest);
    for (int k = 0; k < LOOP_CLASSES; k++) {
        float probability = expf(logits[k] - largest) / sum;
        logits[k] = (probability - (k == label ? 1.0f : 0.0f)) / (float)whole_rows;
    }
    return loss;
}

static float dot(const float *a, const float *b, size_t count) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

static void add_scaled(float *to, const float *from, float factor, size_t count) {
#pragma omp simd
    for (size_t i = 0; i < count; i++)
        to[i] += factor * from[i];
}

void loop_head(loop_device *device, const loop_op *op, int whole_rows) {
    const loop_value *value = &device->values[op->input];
    size_t rows = (size_t)device->options->rows, channels = (size_t)value->channels;
    size_t at = device->parameters[op->parameter].offset / sizeof(float);
    size_t bias_at = device->parameters[op->parameter + 1].offset / sizeof(float);
    const float *weights = device->weights + at, *bias = device->weights + bias_at;
    float *weights_gradient = device->gradients + at, *bias_gradient = device->gradients + bias_at;
    bool narrow = device->options->bfloat16;
    average_image(device->pooled, value, rows * channels / 16, narrow);
    memset(weights_gradient, 0, LOOP_CLASSES * channels * sizeof(float));
    memset(bias_gradient, 0, LOOP_CLASSES * sizeof(float));
    memset(device->pooled_gradient, 0, rows * channels * sizeof(float));
    device->loss = 0;
    for (size_t row = 0; row < rows; row++) {
        const float *pooled = device->pooled + row * channels;
        float *logits = device->logits + row * LOOP_CLASSES;
        for (size_t k = 0; k < LOOP_CLASSES; k++)
            logits[k] = bias[k] + dot(pooled, weights + k * channels, channels);
        device->loss += row_loss(logits, device->labels[row], whole_rows);
        for (size_t k = 0; k < LOOP_CLASSES; k++) {
            add_scaled(weights_gradient + k * channels, pooled, logits[k], channels);
            add_scaled(device->pooled_gradient + row * channels, weights + k * channels, logits[k],
                       channels);
            bias_gradient[k] += logits[k];
        }
    }
    spread_gradient(device->buffers[value->gradients[0]].data, device->pooled_gradient, value,
                    rows * channels / 16, narrow);
}

/* torch.nn.BatchNorm2d's: momentum 0.1, unbiased variance. */
void loop_running_statistics(const loop_device *device, const loop_op *op) {
    const loop_value *value = &device->values[op->input];
    size_t channels = (size_t)value->channels;
    float count = (float)(device->options->rows * value->size * value->size);
    float unbiased = count / fmaxf(count - 1, 1);
    for (size_t i = 0; i < channels; i++) {
        op->running[i] += 0.1f * (op->mean[i] - op->running[i]);
        float *variance = &op->running[channels + i];
        *variance += 0.1f * (op->variance[i] * unbiased - *variance);
    }
}

static inline __attribute__((always_inline)) void exchange(const loop_update *update, size_t begin,
                                                           size_t end, bool pair) {
    float *first = update->weights[0], *second = update->weights[1], *velocity = update->velocity;
    const float *gradient = update->gradients[0], *other = update->gradients[1];
    float rate = update->learning_rate, momentum = update->momentum, decay = update->weight_decay;
#pragma omp parallel for simd schedule(static)
    for (size_t i = begin; i < end; i++) {
        float sum = gradient[i] + (pair ? other[i] : 0) + decay * first[i];
        velocity[i] = momentum * velocity[i] + sum;
        first[i] -= rate * velocity[i];
        if (pair) second[i] = first[i];
    }
}

void loop_exchange(const loop_update *update, size_t begin, size_t end) {
    if (update->devices == 2)
        exchange(update, begin, end, true);
    else
        exchange(update, begin, end, false);
}
