/* SPDX-License-Identifier: Apache-2.0 */
/* The picture of a run: numbers become lines of text. Knows no terminal. */
#ifndef CLI_LIVE_PICTURE_H
#define CLI_LIVE_PICTURE_H

#include "cli/live/live_line.h"
#include "cli/live/live_numbers.h"

/* The smallest terminal that a picture fits on, and the most lines of one. */
#define LIVE_COLUMNS_LEAST 40
#define LIVE_ROWS_LEAST 10
#define LIVE_LINES_MAX 60

/* The terminal's. */
typedef struct live_canvas {
    int columns, rows;
    live_style style;
} live_canvas;

typedef struct live_picture {
    int count;
    char lines[LIVE_LINES_MAX][LIVE_LINE_BYTES];
} live_picture;

/* Whether the canvas is large enough. */
bool live_picture_fits(const live_canvas *canvas);
/* Fills in rows - 1 lines at most, each a column narrower than the canvas: the last column and the
 * last row stay empty, so that nothing wraps or scrolls. */
void live_picture_draw(const live_numbers *numbers, const live_canvas *canvas,
                       live_picture *picture);

/* live_curve.c: the next `rows` lines are a curve of the losses, with marks for evaluations. */
void live_curve_draw(const live_numbers *numbers, const live_canvas *canvas, int rows,
                     live_picture *picture);
/* The next line of the picture. */
live_line live_picture_line(live_picture *picture, const live_canvas *canvas);

#endif
