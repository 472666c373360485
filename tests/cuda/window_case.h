/* SPDX-License-Identifier: Apache-2.0 */
/* Cases of operations with windows over images, and the ways in which a case is checked. */
#ifndef WINDOW_CASE_H
#define WINDOW_CASE_H

#include "operation_parity.h"

static inline bool parity_has_gpu(void) {
    yoke_backend_info info = {.struct_size = sizeof info};
    for (int i = 0; yoke_backend_describe(i, &info); i++) {
        if (strcmp(info.name, "cuda") != 0) continue;
        if (!info.available) print_message("skipped: %s\n", info.detail);
        return info.available;
    }
    return false;
}

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static const yoke_precision precisions[] = {YOKE_FLOAT32, YOKE_TF32, YOKE_BFLOAT16, YOKE_FLOAT16};

/* A case in every precision, in training and evaluation, behind a layer and as the first one. */
static inline void check_every_way(const parity_rig *rig, parity_case c) {
    yoke_device *device = yoke_devices_at(rig->devices, 0);
    for (size_t i = 0; i < COUNT(precisions); i++) {
        c.precision = precisions[i];
        if (!yoke_device_supports(device, c.precision)) continue;
        for (int way = 0; way < 4; way++) {
            c.evaluation = way == 1;
            c.plain = c.first_layer = way == 2;
            c.in_place = way == 3;
            parity_check(rig, &c);
        }
        c.in_place = false;
    }
}

/* With every algorithm measured, in every precision. */
static inline void check_measured(const parity_rig *rig, parity_case c) {
    c.algorithm = YOKE_ALGORITHM_MEASURED;
    for (size_t i = 0; i < COUNT(precisions); i++) {
        c.precision = precisions[i];
        parity_check(rig, &c);
    }
}

typedef struct window {
    int rows, in, height, width, out, kernel, stride, padding, groups;
    bool bias;
    int dilation;
    yoke_taps across; /* kernel 0: square */
    bool transposed;
    int output_padding;
} window;

static const window convolutions[] = {
    {4, 3, 12, 12, 16, 3, 1, 1, 1, false, 1}, /* the first layer of a CIFAR network */
    {2, 3, 17, 17, 16, 7, 2, 3, 1, false, 1}, /* of an ImageNet network */
    {2, 1, 9, 9, 8, 5, 1, 2, 1, true, 1},     /* of an MNIST network */
    {3, 16, 9, 7, 24, 3, 1, 1, 1, true, 1},   /* odd sizes */
    {2, 16, 8, 8, 32, 3, 2, 1, 1, false, 1},  /* stride */
    {2, 16, 7, 7, 24, 1, 2, 0, 1, false, 1},  /* a shortcut on an odd size */
    {4, 32, 6, 6, 16, 1, 1, 0, 1, true, 1},   /* one tap */
    {2, 5, 6, 6, 7, 3, 1, 0, 1, true, 1},     /* channels that are multiples of nothing */
    {2, 16, 6, 6, 16, 3, 1, 1, 4, true, 1},   /* groups */
    {2, 8, 6, 6, 16, 3, 1, 1, 8, false, 1},   /* depthwise, two outputs a channel */
    {2, 16, 7, 7, 16, 3, 2, 1, 16, true, 1},  /* depthwise, stride */
    {1, 16, 5, 5, 16, 3, 1, 1, 1, false, 1},  /* one row */
    {4, 32, 1, 1, 32, 3, 1, 1, 1, false, 1},  /* only the centre tap meets the image */
    {4, 16, 2, 2, 24, 3, 2, 1, 1, true, 1},   /* four of nine taps do */
    {5, 24, 1, 1, 16, 1, 1, 0, 1, true, 1},   /* one pixel, one tap */
    {1, 8, 1, 1, 8, 1, 1, 0, 1, false, 1},    /* and one row */
    {3, 8, 3, 3, 12, 2, 2, 0, 1, true, 1},    /* an even kernel that leaves a rest */
    {3, 8, 5, 5, 12, 5, 1, 0, 1, true, 1},    /* one output pixel */
    {2, 8, 1, 2, 8, 5, 2, 2, 1, true, 1},     /* not square */
    {2, 16, 9, 8, 24, 3, 1, 2, 1, true, 2},   /* dilated */
    {2, 3, 12, 13, 8, 3, 2, 1, 1, false, 3},  /* dilated by stride */
    {2, 8, 7, 7, 8, 3, 1, 2, 8, true, 2},     /* dilated depthwise */
    {2, 8, 5, 5, 12, 3, 1, 0, 1, true, 2},    /* one output pixel, nine of 25 met */
    {3, 20, 6, 6, 20, 3, 1, 1, 20, false, 1}, /* depthwise */
};

static inline int window_places(const window *w, yoke_taps taps, int size) {
    int side = yoke_taps_side(taps);
    if (w->transposed)
        return (size - 1) * taps.stride - 2 * taps.padding + side + w->output_padding;
    return (size + 2 * taps.padding - side) / taps.stride + 1;
}

static inline yoke_dims window_output(const window *w) {
    yoke_taps down = {w->kernel, w->stride, w->padding, w->dilation};
    yoke_taps across = w->across.kernel > 0 ? w->across : down;
    return (yoke_dims){w->out, window_places(w, down, w->height),
                       window_places(w, across, w->width)};
}

static inline parity_case window_case(yoke_operation_kind kind, const window *w) {
    return (parity_case){.operation = {.kind = kind,
                                       .name = "layer",
                                       .input = {w->in, w->height, w->width},
                                       .output = window_output(w),
                                       .kernel = w->kernel,
                                       .stride = w->stride,
                                       .padding = w->padding,
                                       .groups = w->groups,
                                       .dilation = w->dilation,
                                       .across = w->across,
                                       .bias = w->bias},
                         .rows = w->rows,
                         .algorithm = YOKE_ALGORITHM_DIRECT};
}

#endif
