/* SPDX-License-Identifier: Apache-2.0 */
/* Images as PNG by libpng's simplified API, which touches no state of the process. */
#include "pictures/pictures.h"

#include <png.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

typedef struct raster {
    uint8_t *rows; /* [height, width, colours] */
    int colours, height, width;
} raster;

int yoke_png_factor(const yoke_png_image *image) {
    int side = image->height > image->width ? image->height : image->width;
    return (side + YOKE_PNG_SIDE - 1) / YOKE_PNG_SIDE;
}

static int at_most(int value, int limit) {
    return value < limit ? value : limit;
}

uint8_t yoke_png_mean(const yoke_png_image *image, int channel, int y, int x, int factor) {
    const uint8_t *plane =
        image->pixels + (size_t)channel * (size_t)image->height * (size_t)image->width;
    int bottom = at_most((y + 1) * factor, image->height);
    int right = at_most((x + 1) * factor, image->width);
    uint64_t sum = 0, count = 0;
    for (int row = y * factor; row < bottom; row++)
        for (int column = x * factor; column < right; column++, count++)
            sum += plane[(size_t)row * (size_t)image->width + (size_t)column];
    return (uint8_t)((sum + count / 2) / count);
}

static raster make_raster(const yoke_png_image *image, int factor) {
    raster made = {.colours = image->channels == 3 ? 3 : 1,
                   .height = (image->height + factor - 1) / factor,
                   .width = (image->width + factor - 1) / factor};
    made.rows = yoke_malloc((size_t)made.height * (size_t)made.width * (size_t)made.colours);
    if (made.rows == NULL) return made;
    uint8_t *pixel = made.rows;
    for (int y = 0; y < made.height; y++)
        for (int x = 0; x < made.width; x++)
            for (int colour = 0; colour < made.colours; colour++)
                *pixel++ = yoke_png_mean(image, colour, y, x, factor);
    return made;
}

/* Returns the bytes of the file; 0: out of memory. */
static size_t encode(const raster *from, uint8_t **file) {
    png_image image = {.version = PNG_IMAGE_VERSION,
                       .width = (png_uint_32)from->width,
                       .height = (png_uint_32)from->height,
                       .format = from->colours == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY};
    png_alloc_size_t bytes = PNG_IMAGE_PNG_SIZE_MAX(image);
    *file = yoke_malloc(bytes);
    if (*file == NULL) return 0;
    return png_image_write_to_memory(&image, *file, &bytes, 0, from->rows, 0, NULL) ? bytes : 0;
}

static size_t write_file(const yoke_png_image *image, int factor, uint8_t **file) {
    raster made = make_raster(image, factor);
    *file = NULL;
    size_t bytes = made.rows != NULL ? encode(&made, file) : 0;
    yoke_free(made.rows);
    return bytes;
}

char *yoke_png_uri(const yoke_png_image *image) {
    static const char begin[] = "data:image/png;base64,";
    uint8_t *file;
    size_t bytes = write_file(image, yoke_png_factor(image), &file);
    size_t length = sodium_base64_ENCODED_LEN(bytes, sodium_base64_VARIANT_ORIGINAL);
    char *text = bytes > 0 ? yoke_malloc(sizeof begin + length) : NULL;
    if (text != NULL)
        sodium_bin2base64(stpcpy(text, begin), length, file, bytes, sodium_base64_VARIANT_ORIGINAL);
    yoke_free(file);
    return text;
}

size_t yoke_png_file(const yoke_png_image *image, uint8_t **file) {
    return write_file(image, 1, file);
}
