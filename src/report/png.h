/* Inside report: a small image as a PNG inside the page. */
#ifndef REPORT_PNG_H
#define REPORT_PNG_H

#include <stdint.h>

typedef struct yoke_png_image {
    const uint8_t *pixels; /* [channels, height, width] */
    int channels, height, width;
} yoke_png_image;

/* An image of 3 channels is red, green, blue; of any other number, the first channel in grey. */
#define YOKE_PNG_SIDE 64
/* "data:image/png;base64,...", which the caller frees; NULL: out of memory. An image with a side
 * above YOKE_PNG_SIDE is reduced by a whole factor; a pixel is then the mean of a square. */
char *yoke_png_uri(const yoke_png_image *image);

#endif
