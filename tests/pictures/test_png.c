/* SPDX-License-Identifier: Apache-2.0 */
/* A picture as PNG decodes to the pixels that it was made of. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <png.h>
#include <sodium.h>

#include "pictures/pictures.h"

#define HEAD "data:image/png;base64,"
#define BYTES_MAX 65536

typedef struct decoded {
    uint32_t width, height, colours;
    uint8_t pixels[BYTES_MAX]; /* [height, width, colours] */
} decoded;

static void decode(const char *uri, decoded *image) {
    static uint8_t file[BYTES_MAX];
    size_t bytes;
    assert_memory_equal(uri, HEAD, strlen(HEAD));
    const char *text = uri + strlen(HEAD);
    assert_int_equal(sodium_base642bin(file, sizeof file, text, strlen(text), NULL, &bytes, NULL,
                                       sodium_base64_VARIANT_ORIGINAL),
                     0);
    png_image read = {.version = PNG_IMAGE_VERSION};
    assert_true(png_image_begin_read_from_memory(&read, file, bytes));
    assert_true(read.format == PNG_FORMAT_RGB || read.format == PNG_FORMAT_GRAY);
    image->width = read.width;
    image->height = read.height;
    image->colours = PNG_IMAGE_PIXEL_CHANNELS(read.format);
    assert_in_range(PNG_IMAGE_SIZE(read), 1, sizeof image->pixels);
    assert_true(png_image_finish_read(&read, NULL, image->pixels, 0, NULL));
}

static void decode_image(const yoke_png_image *image, decoded *result) {
    char *uri = yoke_png_uri(image);
    assert_non_null(uri);
    decode(uri, result);
    free(uri);
}

static void every_pixel_comes_back(void **state) {
    (void)state;
    static decoded result;
    static uint8_t pixels[4 * 64 * 64];
    static const struct {
        int channels, height, width, colours;
    } shapes[] = {{1, 28, 28, 1}, {3, 32, 32, 3}, {3, 1, 1, 3}, {1, 3, 64, 1},
                  {3, 5, 2, 3},   {2, 4, 4, 1},   {4, 64, 7, 1}};
    for (size_t i = 0; i < sizeof pixels; i++)
        pixels[i] = (uint8_t)(i * 2654435761u >> 13);
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        yoke_png_image image = {pixels, shapes[s].channels, shapes[s].height, shapes[s].width};
        size_t plane = (size_t)image.height * (size_t)image.width;
        decode_image(&image, &result);
        assert_int_equal(result.width, image.width);
        assert_int_equal(result.height, image.height);
        assert_int_equal(result.colours, shapes[s].colours);
        for (size_t i = 0; i < plane; i++)
            for (size_t c = 0; c < result.colours; c++)
                assert_int_equal(result.pixels[i * result.colours + c], pixels[c * plane + i]);
    }
}

/* 130 columns are three to a pixel; the last pixel has one column, and the last row two rows. */
static void a_large_image_is_reduced_to_means(void **state) {
    (void)state;
    static decoded result;
    static uint8_t pixels[5 * 130];
    yoke_png_image image = {pixels, 1, 5, 130};
    for (int y = 0; y < 5; y++)
        for (int x = 0; x < 130; x++)
            pixels[y * 130 + x] = (uint8_t)(10 * (x / 3 % 20) + 3 * (y / 3) + (x % 3 == 1 ? 9 : 0));
    decode_image(&image, &result);
    assert_int_equal(result.width, 44);
    assert_int_equal(result.height, 2);
    for (int y = 0; y < 2; y++)
        for (int x = 0; x < 44; x++)
            assert_int_equal(result.pixels[y * 44 + x], 10 * (x % 20) + 3 * y + (x < 43 ? 3 : 0));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pixel_comes_back),
        cmocka_unit_test(a_large_image_is_reduced_to_means),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
