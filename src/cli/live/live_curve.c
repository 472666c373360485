/* SPDX-License-Identifier: Apache-2.0 */
/* A curve in cells of several dots: Braille patterns have 2 x 4, ASCII 1 x 3. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/live/live_picture.h"

#define LABEL_COLUMNS 9
#define ROWS_MAX 8
#define DOTS_WIDE (2 * LIVE_COLUMNS_MAX)
#define DOTS_HIGH (4 * ROWS_MAX)

typedef struct dot_plot {
    int columns, rows;  /* cells */
    int wide, high;     /* dots of a cell */
    double bottom, top; /* at the lowest and the highest dot */
    bool dots[DOTS_HIGH][DOTS_WIDE];
    bool marks[ROWS_MAX][LIVE_COLUMNS_MAX]; /* evaluations */
} dot_plot;

/* The loss at a column of dots: the mean of the steps that share it; NaN: none is finite. */
static double loss_at(const live_numbers *numbers, int column, int columns) {
    int64_t count = numbers->loss_count;
    int first = (int)(count * column / columns), last = (int)(count * (column + 1) / columns);
    double sum = 0;
    int finite = 0;
    for (int i = first; i < last || i == first; i++) {
        if (!isfinite(numbers->losses[i])) continue;
        sum += numbers->losses[i];
        finite++;
    }
    return finite > 0 ? sum / finite : (double)NAN;
}

static void widen(dot_plot *plot, double value) {
    if (!isfinite(value)) return;
    if (isnan(plot->bottom) || value < plot->bottom) plot->bottom = value;
    if (isnan(plot->top) || value > plot->top) plot->top = value;
}

/* The place of an evaluation among the losses; -1: it is older. */
static int place_of(const live_numbers *numbers, const live_evaluation *evaluation) {
    uint64_t before = numbers->done - evaluation->step;
    if (evaluation->step > numbers->done || before >= (uint64_t)numbers->loss_count) return -1;
    return numbers->loss_count - 1 - (int)before;
}

static void find_scale(dot_plot *plot, const live_numbers *numbers) {
    plot->bottom = plot->top = (double)NAN;
    for (int x = 0; numbers->loss_count > 0 && x < plot->columns * plot->wide; x++)
        widen(plot, loss_at(numbers, x, plot->columns * plot->wide));
    for (int i = 0; i < numbers->evaluation_count; i++)
        if (place_of(numbers, &numbers->evaluations[i]) >= 0)
            widen(plot, numbers->evaluations[i].loss);
}

/* The row of dots, 0 at the top. */
static int row_of(const dot_plot *plot, double value) {
    int last = plot->rows * plot->high - 1;
    double range = plot->top - plot->bottom;
    if (!(range > 0)) return last / 2;
    return (int)((plot->top - value) / range * last + 0.5);
}

/* Braille joins neighbours by a vertical line. */
static void put_dots(dot_plot *plot, const live_numbers *numbers) {
    int before = -1, columns = plot->columns * plot->wide;
    for (int x = 0; x < columns; x++) {
        double value = loss_at(numbers, x, columns);
        int row = isnan(value) ? -1 : row_of(plot, value);
        int from = before >= 0 && plot->high == 4 ? before : row, step = from < row ? 1 : -1;
        for (int y = from; row >= 0 && y != row; y += step)
            plot->dots[y][x] = true;
        if (row >= 0) plot->dots[row][x] = true;
        before = row;
    }
}

static void put_marks(dot_plot *plot, const live_numbers *numbers) {
    for (int i = 0; i < numbers->evaluation_count; i++) {
        int place = place_of(numbers, &numbers->evaluations[i]);
        if (place < 0 || !isfinite(numbers->evaluations[i].loss)) continue;
        int column = (int)((int64_t)place * plot->columns / numbers->loss_count);
        plot->marks[row_of(plot, numbers->evaluations[i].loss) / plot->high][column] = true;
    }
}

/* Cells. */

/* U+2800 and a bit for each dot (Unicode 15, chapter 21.1). */
static void braille(const dot_plot *plot, int row, int column, char text[8]) {
    static const unsigned char bits[4][2] = {
        {0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    unsigned pattern = 0;
    for (int y = 0; y < 4; y++)
        for (int x = 0; x < 2; x++)
            if (plot->dots[4 * row + y][2 * column + x]) pattern |= bits[y][x];
    snprintf(text, 8, "\xe2%c%c", (int)(0xa0 | pattern >> 6), (int)(0x80 | (pattern & 0x3f)));
    if (pattern == 0) snprintf(text, 8, " ");
}

static void ascii(const dot_plot *plot, int row, int column, char text[8]) {
    static const char shapes[] = {'\'', '-', '.'};
    snprintf(text, 8, " ");
    for (int y = 0; y < 3; y++)
        if (plot->dots[3 * row + y][column]) text[0] = shapes[y];
}

static void put_cells(live_line *line, const dot_plot *plot, int row) {
    char text[8];
    for (int column = 0; column < plot->columns; column++) {
        if (plot->marks[row][column]) {
            live_line_set(line, LIVE_YELLOW);
            live_line_put(line, "o");
            live_line_set(line, LIVE_PLAIN);
            continue;
        }
        (line->style.unicode ? braille : ascii)(plot, row, column, text);
        live_line_put(line, text);
    }
}

void live_curve_draw(const live_numbers *numbers, const live_canvas *canvas, int rows,
                     live_picture *picture) {
    dot_plot plot = {.rows = rows < ROWS_MAX ? rows : ROWS_MAX,
                     .wide = canvas->style.unicode ? 2 : 1,
                     .high = canvas->style.unicode ? 4 : 3};
    for (int row = 0; row < plot.rows; row++) {
        live_line line = live_picture_line(picture, canvas);
        if (row == 0) {
            plot.columns = line.left - LABEL_COLUMNS;
            find_scale(&plot, numbers);
            if (numbers->loss_count > 0) put_dots(&plot, numbers);
            if (numbers->loss_count > 0) put_marks(&plot, numbers);
        }
        char label[16] = "";
        bool is_end = row == 0 || row == plot.rows - 1;
        if (is_end && !isnan(plot.bottom))
            snprintf(label, sizeof label, "%8.3g", row == 0 ? plot.top : plot.bottom);
        live_line_field(&line, label, LABEL_COLUMNS);
        put_cells(&line, &plot, row);
        live_line_end(&line);
    }
}
