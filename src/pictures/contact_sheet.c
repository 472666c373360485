/* SPDX-License-Identifier: Apache-2.0 */
/* A contact sheet: small pictures side by side in one PNG file. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "pictures/pictures.h"

#define GAP 4
#define CELL (YOKE_PNG_SIDE + GAP)
#define PAPER 255

/* [3, height, width] */
typedef struct canvas {
    uint8_t *pixels;
    int height, width;
} canvas;

/* Large pictures are reduced, pictures of half a square or less enlarged, by a whole factor. */
static void draw(const canvas *paper, const yoke_png_image *picture, int top, int left) {
    int factor = yoke_png_factor(picture);
    int side = picture->height > picture->width ? picture->height : picture->width;
    int larger = factor == 1 ? YOKE_PNG_SIDE / side : 1;
    int height = (picture->height + factor - 1) / factor * larger;
    int width = (picture->width + factor - 1) / factor * larger;
    for (int colour = 0; colour < 3; colour++)
        for (int y = 0; y < height; y++) {
            uint8_t *line = paper->pixels +
                            ((size_t)colour * (size_t)paper->height + (size_t)(top + y)) *
                                (size_t)paper->width +
                            (size_t)left;
            for (int x = 0; x < width; x++)
                line[x] = yoke_png_mean(picture, picture->channels == 3 ? colour : 0, y / larger,
                                        x / larger, factor);
        }
}

static yoke_status write_canvas(const canvas *paper, const char *path) {
    yoke_png_image image = {
        .pixels = paper->pixels, .channels = 3, .height = paper->height, .width = paper->width};
    yoke_file_writer writer;
    uint8_t *file;
    size_t bytes = yoke_png_file(&image, &file);
    if (bytes == 0) {
        yoke_free(file);
        return FAIL_MEMORY(3 * (size_t)paper->height * (size_t)paper->width, "a contact sheet");
    }
    yoke_status status = yoke_file_create(&writer, path);
    if (status == YOKE_OK) status = yoke_file_write(&writer, file, bytes);
    if (status == YOKE_OK) status = yoke_file_commit(&writer);
    yoke_free(file);
    return status;
}

yoke_status yoke_contact_sheet_write(const yoke_contact_sheet *sheet, const char *path) {
    int lines = (sheet->count + sheet->columns - 1) / sheet->columns;
    canvas paper = {.height = GAP + CELL * lines, .width = GAP + CELL * sheet->columns};
    size_t bytes = 3 * (size_t)paper.height * (size_t)paper.width;
    paper.pixels = yoke_malloc(bytes);
    if (paper.pixels == NULL) return FAIL_MEMORY(bytes, "a contact sheet");
    memset(paper.pixels, PAPER, bytes);
    for (int i = 0; i < sheet->count; i++) {
        yoke_png_image picture = {.pixels = sheet->pictures[i],
                                  .channels = sheet->channels,
                                  .height = sheet->height,
                                  .width = sheet->width};
        if (picture.pixels != NULL)
            draw(&paper, &picture, GAP + CELL * (i / sheet->columns),
                 GAP + CELL * (i % sheet->columns));
    }
    yoke_status status = write_canvas(&paper, path);
    yoke_free(paper.pixels);
    return status;
}
