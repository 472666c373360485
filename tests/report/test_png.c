/* A picture of the page decodes to the pixels that it was made of. zlib inflates it; the checks of
 * the file's form are this test's own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <zlib.h>

#include "report/png.h"

#define HEAD "data:image/png;base64,"
#define BYTES_MAX 65536

typedef struct decoded {
    uint32_t width, height, colours;
    uint8_t pixels[BYTES_MAX]; /* [height, width, colours] */
} decoded;

static int digit_of(char c) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *place = strchr(digits, c);
    assert_true(place != NULL && c != '\0');
    return (int)(place - digits);
}

static size_t unpack_base64(const char *text, uint8_t *bytes) {
    size_t length = strlen(text), count = 0;
    assert_int_equal(length % 4, 0);
    for (size_t i = 0; i < length; i += 4) {
        int known = text[i + 2] == '=' ? 2 : text[i + 3] == '=' ? 3 : 4;
        uint32_t bits = 0;
        assert_true(known == 4 || i + 4 == length);
        for (size_t k = 0; k < 4; k++)
            bits = bits << 6 | (k < (size_t)known ? (uint32_t)digit_of(text[i + k]) : 0);
        for (int k = 0; k < known - 1; k++)
            bytes[count++] = (uint8_t)(bits >> (16 - 8 * k));
    }
    return count;
}

static uint32_t number_at(const uint8_t *bytes) {
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

/* CRC-32 bit by bit, as the PNG standard defines it. */
static uint32_t crc_of(const uint8_t *bytes, size_t count) {
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < count; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
    }
    return ~crc;
}

/* The data of the chunk at *place, which must have this name; moves *place behind it. */
static const uint8_t *take_chunk(const uint8_t **place, const char *name, uint32_t *bytes) {
    const uint8_t *chunk = *place;
    *bytes = number_at(chunk);
    assert_memory_equal(chunk + 4, name, 4);
    assert_int_equal(number_at(chunk + 8 + *bytes), crc_of(chunk + 4, 4 + *bytes));
    *place = chunk + 12 + *bytes;
    return chunk + 8;
}

static void decode(const char *uri, decoded *image) {
    static uint8_t file[BYTES_MAX], rows[BYTES_MAX];
    assert_memory_equal(uri, HEAD, strlen(HEAD));
    size_t count = unpack_base64(uri + strlen(HEAD), file);
    const uint8_t *place = file + 8;
    uint32_t bytes;
    assert_memory_equal(file, "\x89PNG\r\n\x1a\n", 8);
    const uint8_t *header = take_chunk(&place, "IHDR", &bytes);
    assert_int_equal(bytes, 13);
    image->width = number_at(header);
    image->height = number_at(header + 4);
    assert_int_equal(header[8], 8);
    assert_true(header[9] == 0 || header[9] == 2);
    image->colours = header[9] == 2 ? 3 : 1;
    assert_int_equal(header[10] + header[11] + header[12], 0);
    const uint8_t *data = take_chunk(&place, "IDAT", &bytes);
    uLongf size = sizeof rows;
    assert_int_equal(uncompress(rows, &size, data, bytes), Z_OK);
    take_chunk(&place, "IEND", &bytes);
    assert_int_equal(bytes, 0);
    assert_int_equal(place - file, count);
    size_t row = image->width * image->colours;
    assert_int_equal(size, image->height * (1 + row));
    for (uint32_t y = 0; y < image->height; y++) {
        assert_int_equal(rows[y * (1 + row)], 0);
        memcpy(image->pixels + y * row, rows + y * (1 + row) + 1, row);
    }
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
