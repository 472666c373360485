/* SPDX-License-Identifier: Apache-2.0 */
/* Inside report: what the charts of svg.h share. Lengths are units of the view box; a letter is
 * about 6.4 wide. */
#ifndef REPORT_SVG_PARTS_H
#define REPORT_SVG_PARTS_H

#include "report/svg.h"

#define SVG_LETTER 6.4
#define SVG_LEGEND_ROW 18.0

/* An axis from `low` to `high` in the model, from `begin` to `end` on paper. */
typedef struct svg_scale {
    double low, high, begin, end;
    bool log; /* low and high above 0 */
} svg_scale;
double yoke_svg_place(const svg_scale *scale, double value);

/* The step between ticks, 1, 2 or 5 times a power of ten, so that about `count` of them fit. */
double yoke_svg_tick(double range, int count);

typedef struct svg_box {
    double x, y, width, height;
} svg_box;

void yoke_svg_begin(yoke_markup *out, const yoke_svg_head *head, double width, double height);
void yoke_svg_finish(yoke_markup *out);
void yoke_svg_line(yoke_markup *out, const char *style, double x1, double y1, double x2, double y2);
/* title: shown when the pointer rests on it; NULL: none. */
void yoke_svg_rect(yoke_markup *out, const char *style, svg_box box, const char *title);
/* Its shape follows from the digit that ends the style: colour is not all that tells two series
 * apart. title NULL: none. */
void yoke_svg_marker(yoke_markup *out, const char *style, double x, double y, const char *title);
/* anchor: "start", "middle", "end". The text is cut to `letters` with an ellipsis. */
void yoke_svg_label(yoke_markup *out, const char *anchor, double x, double y, const char *text,
                    int letters);
/* The name of a group of rows that begins at y. */
void yoke_svg_group(yoke_markup *out, const char *name, double y);
/* Ticks with grid lines over `box`, and the axis's name below it. bytes: numbers are bytes. */
void yoke_svg_x_axis(yoke_markup *out, const svg_scale *scale, svg_box box, const char *name,
                     double tick, bool bytes);
/* One tick with its grid line; text NULL: no text. And the axis's line, with its name. */
void yoke_svg_x_tick(yoke_markup *out, const svg_scale *scale, svg_box box, double value,
                     const char *text);
void yoke_svg_x_line(yoke_markup *out, svg_box box, const char *name);
/* Likewise of a logarithmic scale: ticks at powers of ten, and between them where there are few. */
void yoke_svg_log_axis(yoke_markup *out, const svg_scale *scale, svg_box box, const char *name);
void yoke_svg_y_axis(yoke_markup *out, const svg_scale *scale, svg_box box, const char *name,
                     double tick);

/* Names beside samples of their colours, in as many rows as it takes. */
typedef struct svg_key {
    const char *name, *style;
    bool line, dashed, marker;
} svg_key;
double yoke_svg_legend_height(const svg_key *keys, int count, double width);
void yoke_svg_legend(yoke_markup *out, const svg_key *keys, int count, svg_box box);

/* The number of characters in a text of UTF-8. */
int yoke_svg_letters(const char *text);

#endif
