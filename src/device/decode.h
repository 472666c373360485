/* SPDX-License-Identifier: Apache-2.0 */
/* The value of a pixel, for host loops and for kernels (C17 and C++17): the same operations give
 * the same bits. */
#ifndef DEVICE_DECODE_H
#define DEVICE_DECODE_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __CUDACC__
#define YOKE_HOST_AND_KERNEL __host__ __device__
#else
#define YOKE_HOST_AND_KERNEL
#endif

typedef struct yoke_scaling {
    float mean, std;
} yoke_scaling;

/* The pixel of a line of `size` that lies at `at`: outside of the line, or of its mirror image,
 * whose first pixel is the one beside the edge. */
static inline YOKE_HOST_AND_KERNEL int yoke_decode_source(int at, int size, bool reflect) {
    int away = at < 0 ? -at : at, back = 2 * (size - 1) - away;
    if (!reflect) return at;
    return away < back ? away : back;
}

/* torchvision's Normalize divides; multiplying by the inverse would change the last bit. */
static inline YOKE_HOST_AND_KERNEL float yoke_normalise(float value, yoke_scaling scale) {
    return (value - scale.mean) / scale.std;
}

/* ToTensor, then Normalize. */
static inline YOKE_HOST_AND_KERNEL float yoke_decode_pixel(uint8_t pixel, yoke_scaling scale) {
    return yoke_normalise((float)pixel / 255.0f, scale);
}

#endif
