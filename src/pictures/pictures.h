/* SPDX-License-Identifier: Apache-2.0 */
/* The door of pictures: PNG files of images, and of many on a contact sheet. */
#ifndef PICTURES_PICTURES_H
#define PICTURES_PICTURES_H

#include <stddef.h>
#include <stdint.h>

#include "base/base.h"

typedef struct yoke_png_image {
    const uint8_t *pixels; /* [channels, height, width] */
    int channels, height, width;
} yoke_png_image;

/* An image of 3 channels is red, green, blue; of any other number, the first channel in grey. */
#define YOKE_PNG_SIDE 64
/* "data:image/png;base64,...", which the caller frees; NULL: out of memory. An image with a side
 * above YOKE_PNG_SIDE is reduced by a whole factor; a pixel is then the mean of a square. */
char *yoke_png_uri(const yoke_png_image *image);

/* The file's bytes, at the image's own size; the caller frees *file. 0: out of memory. */
size_t yoke_png_file(const yoke_png_image *image, uint8_t **file);

/* By which factor YOKE_PNG_SIDE reduces the image, and the mean of the square that becomes a pixel,
 * cut at the image's edges. */
int yoke_png_factor(const yoke_png_image *image);
uint8_t yoke_png_mean(const yoke_png_image *image, int channel, int y, int x, int factor);

/* A contact sheet: pictures in rows of `columns`, on squares of 64 pixels. */
typedef struct yoke_contact_sheet {
    const uint8_t *const *pictures; /* [count]: [channels, height, width] each; NULL: left empty */
    int count, columns;
    int channels, height, width; /* 3 channels are red, green, blue; of others the first, in grey */
} yoke_contact_sheet;
/* Writes it as a PNG file. */
yoke_status yoke_contact_sheet_write(const yoke_contact_sheet *sheet, const char *path);

#endif
