/* SPDX-License-Identifier: Apache-2.0 */
/* Bilinear resampling with antialiasing in the integers of Pillow's Resample.c, for host loops and
 * for kernels (C17 and C++17): the same operations give the same bits. */
#ifndef DEVICE_RESAMPLE_H
#define DEVICE_RESAMPLE_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "device/decode.h"
#include "yoke/decoding.h"

#define YOKE_WEIGHT_BITS 22 /* 8 bits of a pixel and 2 for what rounding adds leave these */
#define YOKE_WEIGHT_HALF (1 << (YOKE_WEIGHT_BITS - 1))

/* Scales inputs begin .. end, of `inputs`, to `size` outputs and keeps `outputs` of them from
 * `first` on. */
typedef struct yoke_resampling_span {
    double begin, end;
    int32_t inputs, size, first, outputs;
} yoke_resampling_span;

/* Inputs an output takes to each side of its center. */
static inline YOKE_HOST_AND_KERNEL double
yoke_resampling_stretch(const yoke_resampling_span *span) {
    double scale = (span->end - span->begin) / span->size;
    return scale < 1 ? 1 : scale;
}

static inline YOKE_HOST_AND_KERNEL double yoke_resampling_triangle(double distance) {
    distance = fabs(distance);
    return distance < 1 ? 1 - distance : 0;
}

/* What output i is: the sum of the returned number of inputs from *first on, times weights / 2^22.
 * weights: [2 * the stretch rounded up + 1]. A triangle, as wide as the stretch to each side, and
 * of sum 1. */
static inline YOKE_HOST_AND_KERNEL int
yoke_resampling_weights(const yoke_resampling_span *span, int i, int *first, int32_t *weights) {
    double scale = (span->end - span->begin) / span->size, stretch = yoke_resampling_stretch(span);
    double center = span->begin + (span->first + i + 0.5) * scale, sum = 0;
    int begin = (int)(center - stretch + 0.5), end = (int)(center + stretch + 0.5);
    if (begin < 0) begin = 0;
    if (end > span->inputs) end = span->inputs;
    for (int k = begin; k < end; k++)
        sum += yoke_resampling_triangle((k - center + 0.5) / stretch);
    for (int k = begin; k < end; k++) {
        double weight = yoke_resampling_triangle((k - center + 0.5) / stretch);
        if (sum != 0) weight /= sum;
        weights[k - begin] = (int32_t)(0.5 + weight * (1 << YOKE_WEIGHT_BITS));
    }
    *first = begin;
    return end - begin;
}

/* The pixel of a sum that began with YOKE_WEIGHT_HALF. */
static inline YOKE_HOST_AND_KERNEL uint8_t yoke_resampling_pixel(int32_t sum) {
    int32_t value = sum >> YOKE_WEIGHT_BITS;
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

/* A part of a decoded image that a device scales to a row: [channels, height, width], from input
 * `left` of `across` and input `top` of `down` on. It has at most as many bytes as the row has as
 * floats. */
struct yoke_crop {
    size_t offset; /* of its first byte in the batch's pixels; rows follow each other */
    int32_t width, height, left, top;
    yoke_resampling_span across, down; /* outputs: the row's width and height */
};
#define YOKE_CROP_STRETCH 4 /* at most, of both spans */
#define YOKE_CROP_TAPS (2 * YOKE_CROP_STRETCH + 1)

static inline size_t yoke_crop_bytes(const yoke_crop *crop, int channels) {
    return (size_t)channels * (size_t)crop->height * (size_t)crop->width;
}

#endif
