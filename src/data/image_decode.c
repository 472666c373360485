/* SPDX-License-Identifier: Apache-2.0 */
/* JPEG by libjpeg, PNG by libpng, line by line, so that memory does not grow with the image. What
 * must be decoded as a whole, a progressive JPEG or an interlaced PNG, has limits of its own. Both
 * libraries report errors by longjmp: what they allocate belongs to their own structs. */
#include <setjmp.h>
#include <stdio.h> /* before jpeglib.h, which needs it; and that before jerror.h */
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#include <jerror.h>
#include <png.h>

#include "data/images.h"

#define SIDE_LIMIT (1ul << 18)        /* sizes after Resize fit into an int */
#define WHOLE_BYTES ((size_t)1 << 29) /* of an image that must be decoded as a whole */
#define WHOLE_PIXELS (1ul << 26)      /* of such an image: 8 bytes for each pixel */
#define SCANS 100                     /* of a JPEG: encoders write 10 */
#define SCANNED_PIXELS (1ull << 30)   /* of all scans: some seconds */
#define CHUNK_BYTES 8000000           /* of a PNG, unpacked */

static yoke_status damaged(const yoke_image *image, const char *text) {
    return FAIL(YOKE_ERROR_DATA, "%s: %s", image->name, text);
}

static yoke_status check_size(yoke_image *image, unsigned long width, unsigned long height) {
    if (width == 0 || height == 0) return damaged(image, "an image without pixels");
    if (width > SIDE_LIMIT || height > SIDE_LIMIT || width > YOKE_IMAGE_PIXELS / height)
        return FAIL(
            YOKE_ERROR_DATA,
            "%s: %lu x %lu pixels; at most %lu a side and %d in all (a decompression bomb?)",
            image->name, width, height, SIDE_LIMIT, YOKE_IMAGE_PIXELS);
    image->width = (int)width;
    image->height = (int)height;
    return YOKE_OK;
}

static yoke_status check_whole(const yoke_image *image, const char *kind) {
    unsigned long width = (unsigned long)image->width, height = (unsigned long)image->height;
    if (width <= WHOLE_PIXELS / height) return YOKE_OK;
    return FAIL(YOKE_ERROR_DATA,
                "%s: %lu x %lu pixels; at most %lu in all of %s, which is decoded as a whole: "
                "convert it to a plain JPEG or PNG file",
                image->name, width, height, WHOLE_PIXELS, kind);
}

/* Why a decoder left. */
static yoke_status left(const yoke_image *image, bool stopped, bool memory, const char *text) {
    if (stopped) return FAIL(YOKE_ERROR_CANCELLED, "%s: not decoded: the run stops", image->name);
    return FAIL(memory ? YOKE_ERROR_MEMORY : YOKE_ERROR_DATA, "%s: %s", image->name, text);
}

static bool is_set(const atomic_bool *flag) {
    return flag != NULL && atomic_load_explicit(flag, memory_order_relaxed);
}

static bool must_stop(const yoke_image *image) {
    return is_set(image->stops.one) || is_set(image->stops.other);
}

/* JPEG. */

typedef struct jpeg_reader {
    struct jpeg_decompress_struct info;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf leave;
    const yoke_image *image;
    bool stopped, memory; /* why it left */
    char text[JMSG_LENGTH_MAX];
} jpeg_reader;

static void jpeg_leave(j_common_ptr info) {
    jpeg_reader *reader = info->client_data;
    info->err->format_message(info, reader->text);
    reader->memory = info->err->msg_code == JERR_OUT_OF_MEMORY;
    longjmp(reader->leave, 1);
}

static void jpeg_say_nothing(j_common_ptr info) {
    (void)info;
}

/* libjpeg fills what a short file lacks with grey and warns. */
static void jpeg_warn(j_common_ptr info, int level) {
    if (level < 0 && info->err->msg_code == JWRN_JPEG_EOF) jpeg_leave(info);
}

/* libjpeg calls it before each row of blocks that it reads or writes. A scan can be a few bytes and
 * walk over the whole picture, so a small file could ask for any amount of work. */
static void jpeg_progress(j_common_ptr info) {
    jpeg_reader *reader = info->client_data;
    const struct jpeg_decompress_struct *own = &reader->info;
    unsigned long long pixels = (unsigned long long)own->image_width * own->image_height;
    unsigned long long scans = (unsigned long long)own->input_scan_number;
    reader->stopped = must_stop(reader->image);
    bool many = scans > SCANS || scans * pixels > SCANNED_PIXELS;
    if (many)
        snprintf(reader->text, sizeof reader->text,
                 "more than %llu scans of %u x %u pixels; at most %d scans, and %llu pixels in all",
                 scans - 1, own->image_width, own->image_height, SCANS, SCANNED_PIXELS);
    if (many || reader->stopped) longjmp(reader->leave, 1);
}

static void jpeg_begin(jpeg_reader *reader) {
    jpeg_create_decompress(&reader->info);
    reader->progress.progress_monitor = jpeg_progress;
    reader->info.progress = &reader->progress;
    reader->info.mem->max_memory_to_use = WHOLE_BYTES;
    jpeg_mem_src(&reader->info, reader->image->data, (unsigned long)reader->image->bytes);
    (void)jpeg_read_header(&reader->info, TRUE);
}

static yoke_status jpeg_check(jpeg_reader *reader, yoke_image *image) {
    j_decompress_ptr info = &reader->info;
    if (info->num_components != 1 && info->num_components != 3)
        return FAIL(YOKE_ERROR_DATA, "%s: %d colour components (CMYK?): convert it to RGB",
                    image->name, info->num_components);
    TRY(check_size(image, info->image_width, info->image_height));
    return jpeg_has_multiple_scans(info) ? check_whole(image, "a progressive JPEG") : YOKE_OK;
}

static void jpeg_lines(jpeg_reader *reader, const yoke_image_part *part) {
    j_decompress_ptr info = &reader->info;
    info->scale_num = 1;
    info->scale_denom = (unsigned)part->denominator;
    info->out_color_space = JCS_RGB;
    (void)jpeg_start_decompress(info);
    JSAMPARRAY line =
        info->mem->alloc_sarray((j_common_ptr)info, JPOOL_IMAGE, 3 * info->output_width, 1);
    while ((int)info->output_scanline < part->end) {
        int y = (int)info->output_scanline;
        (void)jpeg_read_scanlines(info, line, 1);
        if (y >= part->first) part->take(part->context, y, line[0]);
    }
}

/* part NULL: the header only, whose sizes it sets. */
static yoke_status jpeg_run(yoke_image *image, const yoke_image_part *part) {
    jpeg_reader *reader = yoke_calloc(1, sizeof *reader);
    if (reader == NULL) return FAIL_MEMORY(sizeof *reader, "a JPEG decoder");
    reader->info.err = jpeg_std_error(&reader->errors);
    reader->info.client_data = reader;
    reader->errors.error_exit = jpeg_leave;
    reader->errors.output_message = jpeg_say_nothing;
    reader->errors.emit_message = jpeg_warn;
    reader->image = image;
    yoke_status status = YOKE_OK;
    if (setjmp(reader->leave) != 0) {
        status = left(image, reader->stopped, reader->memory, reader->text);
    } else {
        jpeg_begin(reader);
        if (part != NULL)
            jpeg_lines(reader, part);
        else
            status = jpeg_check(reader, image);
    }
    jpeg_destroy_decompress(&reader->info);
    yoke_free(reader);
    return status;
}

/* PNG. */

typedef struct png_reader {
    const yoke_image *image;
    size_t position;
    png_structp png;
    png_infop info;
    uint8_t *lines; /* of the whole image, or one */
    png_bytep *rows;
    bool stopped, memory; /* why it left */
    char text[96];
} png_reader;

static void png_leave(png_structp png, png_const_charp text) {
    png_reader *reader = png_get_error_ptr(png);
    snprintf(reader->text, sizeof reader->text, "%s", text);
    png_longjmp(png, 1);
}

static void png_say_nothing(png_structp png, png_const_charp text) {
    (void)png;
    (void)text;
}

static void png_take(png_structp png, png_bytep output, size_t bytes) {
    png_reader *reader = png_get_io_ptr(png);
    if (bytes > reader->image->bytes - reader->position) png_error(png, "the file ends early");
    memcpy(output, reader->image->data + reader->position, bytes);
    reader->position += bytes;
}

/* Eight bits of red, green and blue, whatever the file has. */
static void png_begin(png_reader *reader) {
    png_set_read_fn(reader->png, reader, png_take);
    png_set_user_limits(reader->png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
    png_set_chunk_malloc_max(reader->png, CHUNK_BYTES);
    /* Texts and profiles are skipped unread: a thousand of them may unpack to that much each. */
    png_set_keep_unknown_chunks(reader->png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
    png_read_info(reader->png, reader->info);
    png_set_expand(reader->png);
    png_set_scale_16(reader->png);
    png_set_gray_to_rgb(reader->png);
    png_set_strip_alpha(reader->png);
}

static bool is_interlaced(const png_reader *reader) {
    return png_get_interlace_type(reader->png, reader->info) != PNG_INTERLACE_NONE;
}

static void png_line(png_reader *reader, png_bytep row) {
    reader->stopped = must_stop(reader->image);
    if (reader->stopped) png_error(reader->png, "stopped");
    png_read_row(reader->png, row, NULL);
}

static void png_lines(png_reader *reader, const yoke_image_part *part) {
    bool interlaced = is_interlaced(reader);
    int height = reader->image->height;
    int passes = interlaced ? png_set_interlace_handling(reader->png) : 0;
    png_read_update_info(reader->png, reader->info);
    size_t lines = interlaced ? (size_t)height : 1;
    size_t bytes = 3 * (size_t)reader->image->width;
    reader->lines = yoke_malloc(lines * bytes);
    reader->rows = yoke_malloc(lines * sizeof *reader->rows);
    reader->memory = reader->lines == NULL || reader->rows == NULL;
    if (reader->memory) png_error(reader->png, "not enough memory for its lines");
    for (size_t y = 0; y < lines; y++)
        reader->rows[y] = reader->lines + y * bytes;
    for (int line = 0; line < passes * height; line++)
        png_line(reader, reader->rows[line % height]);
    for (int y = 0; y < part->end; y++) {
        if (!interlaced) png_line(reader, reader->rows[0]);
        if (y >= part->first) part->take(part->context, y, reader->rows[interlaced ? y : 0]);
    }
}

static yoke_status png_check(const png_reader *reader, yoke_image *image) {
    TRY(check_size(image, png_get_image_width(reader->png, reader->info),
                   png_get_image_height(reader->png, reader->info)));
    return is_interlaced(reader) ? check_whole(image, "an interlaced PNG") : YOKE_OK;
}

static yoke_status png_run(yoke_image *image, const yoke_image_part *part) {
    png_reader *reader = yoke_calloc(1, sizeof *reader);
    if (reader == NULL) return FAIL_MEMORY(sizeof *reader, "a PNG decoder");
    reader->image = image;
    reader->png = png_create_read_struct(PNG_LIBPNG_VER_STRING, reader, png_leave, png_say_nothing);
    if (reader->png != NULL) reader->info = png_create_info_struct(reader->png);
    yoke_status status = YOKE_OK;
    if (reader->info == NULL) {
        status = FAIL_MEMORY(sizeof *reader, "a PNG decoder");
    } else if (setjmp(png_jmpbuf(reader->png)) != 0) {
        status = left(image, reader->stopped, reader->memory, reader->text);
    } else {
        png_begin(reader);
        if (part != NULL)
            png_lines(reader, part);
        else
            status = png_check(reader, image);
    }
    png_destroy_read_struct(&reader->png, &reader->info, NULL);
    yoke_free(reader->rows);
    yoke_free(reader->lines);
    yoke_free(reader);
    return status;
}

/* Both. */

yoke_status yoke_image_open(yoke_image *image) {
    static const uint8_t jpeg[] = {0xff, 0xd8, 0xff};
    static const uint8_t png[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    if (image->bytes == 0) return damaged(image, "an empty file");
    image->jpeg = image->bytes > sizeof jpeg && memcmp(image->data, jpeg, sizeof jpeg) == 0;
    if (image->jpeg) return jpeg_run(image, NULL);
    if (image->bytes > sizeof png && memcmp(image->data, png, sizeof png) == 0)
        return png_run(image, NULL);
    return FAIL(YOKE_ERROR_DATA, "%s: neither a JPEG nor a PNG file: it begins with byte 0x%02x",
                image->name, image->data[0]);
}

yoke_status yoke_image_decode(const yoke_image *image, const yoke_image_part *part) {
    yoke_image copy = *image;
    return image->jpeg ? jpeg_run(&copy, part) : png_run(&copy, part);
}
