/* SPDX-License-Identifier: Apache-2.0 */
/* Photographs in folders: files that loader threads decode when a batch needs them. For this room
 * only. */
#ifndef DATA_IMAGES_H
#define DATA_IMAGES_H

#include "data/data.h"
#include "device/device.h"

/* A JPEG or PNG file in memory. */
typedef struct yoke_image {
    const char *name; /* begins the text of every error */
    const uint8_t *data;
    size_t bytes;
    int width, height; /* yoke_image_open sets them */
    bool jpeg;
    yoke_stops stops; /* asked before every line */
} yoke_image;

/* Reads the header. DATA: neither JPEG nor PNG, damaged, four colour components (CMYK), more pixels
 * than YOKE_IMAGE_PIXELS, or more than 2^26 that are decoded as a whole. */
#define YOKE_IMAGE_PIXELS 178956970 /* Pillow's DecompressionBombError */
yoke_status yoke_image_open(yoke_image *image);

/* What to decode: lines first <= y < end at 1 / denominator of the size. A JPEG has denominators 1,
 * 2, 4 and 8, a PNG 1; the width is then divided, too, and rounded up. */
typedef struct yoke_image_part {
    int denominator, first, end;
    void (*take)(void *context, int y, const uint8_t *rgb); /* gets each line, [width, 3] */
    void *context;
} yoke_image_part;
/* DATA: the file is damaged, ends early, or asks for too much work. CANCELLED: a flag of `stops`.
 * MEMORY. */
yoke_status yoke_image_decode(const yoke_image *image, const yoke_image_part *part);

/* One axis of a bilinear resampling, antialiased: Pillow's ImagingResample for 8 bits, bit for bit.
 * Output i is the sum of `counts[i]` inputs from firsts[i] on, times weights / 2^22. */
typedef struct yoke_resampling {
    int outputs, taps;
    int *firsts, *counts; /* [outputs] */
    int32_t *weights;     /* [outputs, taps] */
} yoke_resampling;

/* MEMORY. */
yoke_status yoke_resampling_plan(yoke_resampling *plan, const yoke_resampling_span *span);
void yoke_resampling_clear(yoke_resampling *plan);
/* [inputs, 3] to [outputs, 3]. */
void yoke_resample_line(const yoke_resampling *plan, const uint8_t *line, uint8_t *output);
/* Output i of lines that have `values` bytes each; sums: [values]. */
void yoke_resample_lines(const yoke_resampling *plan, int i, const uint8_t *lines, size_t values,
                         int32_t *sums, uint8_t *output);

/* Where the pixels of an output come from: the box of the image is scaled to width x height, of
 * which the output is a window. */
typedef struct yoke_image_view {
    int left, top, box_width, box_height;
    int width, height;
    int window_left, window_top;
} yoke_image_view;
/* torchvision's Resize(resize) and CenterCrop(size). */
yoke_image_view yoke_image_center(int width, int height, int resize, int size);
/* torchvision's RandomResizedCrop(size); the random numbers depend on (seed, epoch, row). */
yoke_image_view yoke_image_random(int width, int height, int size,
                                  const yoke_augmentation *augmentation, size_t row);
/* pixels: [3, size, size]. scaled: a JPEG that is more than twice as large as needed is decoded at
 * a half, a fourth or an eighth of its size. */
yoke_status yoke_image_render(const yoke_image *image, const yoke_image_view *view, int size,
                              bool scaled, uint8_t *pixels);
/* Does so for a device that scales: decodes the part of the image that the device needs and
 * describes all of it but the offset. A part that no crop can hold is scaled here; the crop is then
 * the whole row. pixels: space for the bytes of [3, size, size] floats. */
yoke_status yoke_image_cut(const yoke_image *image, const yoke_image_view *view, int size,
                           bool scaled, yoke_crop *crop, uint8_t *pixels);

#endif
