/* SPDX-License-Identifier: Apache-2.0 */
/* Counts by row and column as a heat map. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "report/svg_parts.h"

#define TOP 34.0
#define LETTERS 12  /* of a name */
#define NUMBERED 20 /* larger matrices have no numbers in their cells */
#define FEW 12      /* larger ones need a wider drawing */
#define LEVELS 5
#define KEYS (LEVELS + 1)
#define HIT "right"  /* on the diagonal */
#define MISS "wrong" /* beside it */
#define NAME_ROOM 13 /* the distance from one name to the next */

/* The share of its row from which a cell has this colour, in percent. In the full colour a number
 * is light, in the others dark: test_report_page computes the contrast. */
static const int level_percents[LEVELS] = {0, 5, 10, 20, 50};

typedef struct matrix_plot {
    const yoke_svg_matrix *matrix;
    double left, top, cell, width;
    int stride;  /* of the rows and columns that have a name */
    bool aslant; /* names of columns */
} matrix_plot;

static int64_t value_at(const yoke_svg_matrix *matrix, int row, int column) {
    return matrix->values[(size_t)row * (size_t)matrix->count + (size_t)column];
}

static int64_t sum_of(const yoke_svg_matrix *matrix, int row) {
    int64_t sum = 0;
    for (int column = 0; column < matrix->count; column++)
        sum += value_at(matrix, row, column);
    return sum;
}

/* 1 to LEVELS; 0: the cell is empty. */
static int level_of(int64_t value, int64_t sum) {
    int level = 0;
    if (value == 0) return 0;
    while (level < LEVELS && 100 * value >= level_percents[level] * sum)
        level++;
    return level;
}

static void style_of(bool hit, int level, char style[YOKE_CLASS_BYTES]) {
    snprintf(style, YOKE_CLASS_BYTES, "%s k%d", hit ? HIT : MISS, level);
}

static int longest_name(const yoke_svg_matrix *matrix) {
    int longest = 0;
    for (int i = 0; i < matrix->count; i++) {
        int letters = yoke_svg_letters(matrix->names[i]);
        if (letters > longest) longest = letters;
    }
    return longest < LETTERS ? longest : LETTERS;
}

static matrix_plot plan(const yoke_svg_matrix *matrix) {
    double letters = longest_name(matrix) * SVG_LETTER;
    matrix_plot plot = {.matrix = matrix, .width = matrix->count <= FEW ? 480 : 640};
    plot.aslant = letters > 3 * SVG_LETTER;
    plot.left = 16 + letters;
    plot.top = TOP + (plot.aslant ? 8 + 0.75 * letters : 12);
    plot.cell = (plot.width - plot.left - 0.5 * letters) / matrix->count;
    while (plot.stride * plot.cell < NAME_ROOM)
        plot.stride++;
    return plot;
}

static void draw_names(yoke_markup *out, const matrix_plot *plot) {
    const yoke_svg_matrix *matrix = plot->matrix;
    for (int i = 0; i < matrix->count; i += plot->stride) {
        yoke_svg_label(out, "end", plot->left - 6, plot->top + (i + 0.5) * plot->cell + 4,
                       matrix->names[i], LETTERS);
        const char *name = matrix->names[i];
        char turn[80], number[2][YOKE_NUMBER_BYTES];
        double x = plot->left + (i + 0.5) * plot->cell, y = plot->top - 6;
        if (plot->aslant) {
            snprintf(turn, sizeof turn, "rotate(-45 %s %s)", yoke_decimal(x, 1, number[0]),
                     yoke_decimal(y, 1, number[1]));
            yoke_markup_open(out, "g");
            yoke_markup_attribute(out, "transform", turn);
        }
        yoke_svg_label(out, plot->aslant ? "start" : "middle", x, y, name, LETTERS);
        if (plot->aslant) yoke_markup_close(out);
    }
}

static void draw_numbered_row(yoke_markup *out, const matrix_plot *plot, int row) {
    const yoke_svg_matrix *matrix = plot->matrix;
    int64_t sum = sum_of(matrix, row);
    for (int column = 0; column < matrix->count; column++) {
        char title[256], style[YOKE_CLASS_BYTES];
        int64_t value = value_at(matrix, row, column);
        int level = level_of(value, sum);
        svg_box box = {plot->left + column * plot->cell + 0.5, plot->top + row * plot->cell + 0.5,
                       plot->cell - 1, plot->cell - 1};
        if (level == 0) continue;
        snprintf(title, sizeof title, "%.80s taken for %.80s: %" PRId64 " of %" PRId64,
                 matrix->names[row], matrix->names[column], value, sum);
        style_of(row == column, level, style);
        yoke_svg_rect(out, style, box, title);
        char text[32];
        snprintf(text, sizeof text, "%" PRId64, value);
        yoke_markup_open(out, "text");
        yoke_markup_attribute(out, "class", level == LEVELS ? "in" : "cell");
        yoke_markup_number(out, "x", box.x + box.width / 2);
        yoke_markup_number(out, "y", box.y + box.height / 2 + 4);
        yoke_markup_attribute(out, "text-anchor", "middle");
        yoke_markup_text(out, text);
        yoke_markup_close(out);
    }
}

/* Draws all cells of one colour as one path, in units of a cell, so that hundreds of classes take
 * few bytes. */
static void draw_level(yoke_markup *out, const matrix_plot *plot, bool hit, int level) {
    const yoke_svg_matrix *matrix = plot->matrix;
    char style[YOKE_CLASS_BYTES], text[64];
    style_of(hit, level, style);
    yoke_markup_open(out, "path");
    yoke_markup_attribute(out, "class", style);
    yoke_markup_path_begin(out);
    for (int row = 0; row < matrix->count; row++) {
        int64_t sum = sum_of(matrix, row);
        for (int column = 0; column < matrix->count; column++) {
            if ((row == column) != hit || level_of(value_at(matrix, row, column), sum) != level)
                continue;
            snprintf(text, sizeof text, "M%d %dh1v1h-1z", column, row);
            yoke_markup_path_add(out, text);
        }
    }
    yoke_markup_path_end(out);
    yoke_markup_close(out);
}

static void draw_levels(yoke_markup *out, const matrix_plot *plot) {
    char text[128], number[3][YOKE_NUMBER_BYTES];
    snprintf(text, sizeof text, "translate(%s %s) scale(%s)",
             yoke_decimal(plot->left, 2, number[0]), yoke_decimal(plot->top, 2, number[1]),
             yoke_decimal(plot->cell, 4, number[2]));
    yoke_markup_open(out, "g");
    yoke_markup_attribute(out, "transform", text);
    for (int level = 1; level <= LEVELS; level++) {
        draw_level(out, plot, true, level);
        draw_level(out, plot, false, level);
    }
    yoke_markup_close(out);
}

/* The diagonal, then the colours beside it. */
static void fill_keys(svg_key keys[KEYS], char names[LEVELS][48], char styles[LEVELS][24]) {
    keys[0] = (svg_key){.name = "right", .style = HIT " k5"};
    for (int i = 0; i < LEVELS; i++) {
        if (i + 1 < LEVELS)
            snprintf(names[i], sizeof names[i], "%s%d %%", i == 0 ? "wrong, below " : "below ",
                     level_percents[i + 1]);
        else
            snprintf(names[i], sizeof names[i], "%d %% of the row or more", level_percents[i]);
        style_of(false, i + 1, styles[i]);
        keys[i + 1] = (svg_key){.name = names[i], .style = styles[i]};
    }
}

void yoke_svg_draw_matrix(yoke_markup *out, const yoke_svg_matrix *matrix) {
    svg_key keys[KEYS];
    char names[LEVELS][48], styles[LEVELS][YOKE_CLASS_BYTES];
    matrix_plot plot = plan(matrix);
    fill_keys(keys, names, styles);
    svg_box legend = {8, plot.top + matrix->count * plot.cell + 14, plot.width - 8, 0};
    double height = legend.y + yoke_svg_legend_height(keys, KEYS, legend.width) + 2;
    yoke_svg_begin(out, &matrix->head, plot.width, height);
    yoke_svg_label(out, "start", 4, 14, matrix->axes, 80);
    int count = plot.matrix->count;
    double side = count * plot.cell, right = plot.left + side, bottom = plot.top + side;
    for (int i = 0; i <= count; i += plot.stride) {
        double x = plot.left + i * plot.cell, y = plot.top + i * plot.cell;
        yoke_svg_line(out, "grid", x, plot.top, x, bottom);
        yoke_svg_line(out, "grid", plot.left, y, right, y);
    }
    draw_names(out, &plot);
    for (int row = 0; matrix->count <= NUMBERED && row < matrix->count; row++)
        draw_numbered_row(out, &plot, row);
    if (matrix->count > NUMBERED) draw_levels(out, &plot);
    yoke_svg_legend(out, keys, KEYS, legend);
    yoke_svg_finish(out);
}
