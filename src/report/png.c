/* PNG (ISO/IEC 15948): signature, then chunks IHDR, IDAT and IEND, each with its length, name, data
 * and CRC-32. IDAT has the rows, each behind a byte 0 (no filter), as one zlib stream. */
#include "report/png.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define SIGNATURE_BYTES 8
#define HEADER_BYTES 13
#define CHUNK_BYTES 12 /* around its data */

typedef struct raster {
    uint8_t *rows; /* [height, 1 + width * colours]; the first byte of a row is its filter */
    int colours, height, width;
    size_t row_bytes, bytes;
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
    made.row_bytes = 1 + (size_t)made.width * (size_t)made.colours;
    made.bytes = (size_t)made.height * made.row_bytes;
    made.rows = calloc(made.bytes, 1);
    if (made.rows == NULL) return made;
    for (int y = 0; y < made.height; y++) {
        uint8_t *pixel = made.rows + (size_t)y * made.row_bytes + 1;
        for (int x = 0; x < made.width; x++)
            for (int colour = 0; colour < made.colours; colour++)
                *pixel++ = yoke_png_mean(image, colour, y, x, factor);
    }
    return made;
}

static uint8_t *put_number(uint8_t *to, uint32_t number) {
    for (int shift = 24; shift >= 0; shift -= 8)
        *to++ = (uint8_t)(number >> shift);
    return to;
}

/* `to` has `bytes` of data behind room for length and name. Returns the end of the chunk. */
static uint8_t *put_chunk(uint8_t *to, const char *name, size_t bytes) {
    put_number(to, (uint32_t)bytes);
    memcpy(to + 4, name, 4);
    return put_number(to + 8 + bytes, (uint32_t)crc32(0, to + 4, (uInt)(4 + bytes)));
}

static uint8_t *put_header(uint8_t *to, const raster *from) {
    uint8_t *data = put_number(to + 8, (uint32_t)from->width);
    data = put_number(data, (uint32_t)from->height);
    const uint8_t rest[] = {8 /* bits */, from->colours == 3 ? 2 : 0 /* RGB, grey */, 0, 0, 0};
    memcpy(data, rest, sizeof rest);
    return put_chunk(to, "IHDR", HEADER_BYTES);
}

/* Returns the bytes of the file; 0: out of memory. */
static size_t encode(const raster *from, uint8_t **file) {
    static const uint8_t signature[SIGNATURE_BYTES] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    uLongf packed = compressBound((uLong)from->bytes);
    *file = malloc(SIGNATURE_BYTES + 3 * CHUNK_BYTES + HEADER_BYTES + packed);
    if (*file == NULL) return 0;
    memcpy(*file, signature, sizeof signature);
    uint8_t *end = put_header(*file + SIGNATURE_BYTES, from);
    if (compress2(end + 8, &packed, from->rows, (uLong)from->bytes, Z_BEST_COMPRESSION) != Z_OK)
        return 0;
    end = put_chunk(end, "IDAT", packed);
    return (size_t)(put_chunk(end, "IEND", 0) - *file);
}

static char *uri_of(const uint8_t *file, size_t bytes) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    static const char begin[] = "data:image/png;base64,";
    char *text = malloc(sizeof begin + (bytes + 2) / 3 * 4);
    if (text == NULL) return NULL;
    char *to = stpcpy(text, begin);
    for (size_t i = 0; i < bytes; i += 3) {
        size_t left = bytes - i;
        uint32_t three = (uint32_t)file[i] << 16 | (left > 1 ? (uint32_t)file[i + 1] << 8 : 0) |
                         (left > 2 ? file[i + 2] : 0);
        *to++ = digits[three >> 18];
        *to++ = digits[three >> 12 & 63];
        *to++ = left > 1 ? digits[three >> 6 & 63] : '=';
        *to++ = left > 2 ? digits[three & 63] : '=';
    }
    *to = '\0';
    return text;
}

static size_t write_file(const yoke_png_image *image, int factor, uint8_t **file) {
    raster made = make_raster(image, factor);
    *file = NULL;
    size_t bytes = made.rows != NULL ? encode(&made, file) : 0;
    free(made.rows);
    return bytes;
}

char *yoke_png_uri(const yoke_png_image *image) {
    uint8_t *file;
    size_t bytes = write_file(image, yoke_png_factor(image), &file);
    char *text = bytes > 0 ? uri_of(file, bytes) : NULL;
    free(file);
    return text;
}

size_t yoke_png_file(const yoke_png_image *image, uint8_t **file) {
    return write_file(image, 1, file);
}
