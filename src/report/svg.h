/* SPDX-License-Identifier: Apache-2.0 */
/* A small SVG writer: four kinds of charts, each drawn from a struct that its table is made of
 * too. Colours are classes of the page's style sheet. */
#ifndef REPORT_SVG_H
#define REPORT_SVG_H

#include <stdint.h>

#include "report/markup.h"

#define YOKE_CLASS_BYTES 24

/* What every chart has: the text alternative, and an id that is unique on its page. */
typedef struct yoke_svg_head {
    const char *id, *title, *description;
} yoke_svg_head;

/* Points joined by a line. */
typedef struct yoke_svg_point {
    double x, y, low, high; /* low < high: an interval */
} yoke_svg_point;

typedef struct yoke_svg_series {
    const char *name;             /* borrowed */
    char style[YOKE_CLASS_BYTES]; /* class of its colour */
    yoke_svg_point *points;       /* [count], by x; borrowed */
    int count;
    bool markers, dashed;
    bool apart;   /* no line joins the points */
    bool upright; /* a vertical line goes through each marker */
    bool guide; /* what could be: no axis grows for it, and a text says where it ends when its line
                   leaves the drawing */
} yoke_svg_series;

typedef struct yoke_svg_xy {
    yoke_svg_head head;
    const char *x_name, *y_name;
    bool counts;                   /* x counts something: ticks where a series has points */
    bool log_x;                    /* a logarithmic axis; x above 0 */
    double y_most;                 /* what is above is not drawn; 0: everything is */
    bool from_zero;                /* the y axis begins at 0 */
    const yoke_svg_series *series; /* [count] */
    int count;
} yoke_svg_xy;

/* Rows of parts laid end to end. */
typedef struct yoke_svg_part {
    const char *name;
    char style[YOKE_CLASS_BYTES];
} yoke_svg_part;

typedef enum yoke_svg_unit { YOKE_SVG_MS, YOKE_SVG_BYTES, YOKE_SVG_PERCENT } yoke_svg_unit;

typedef struct yoke_svg_bars {
    yoke_svg_head head;
    const char *x_name;
    const char *const *rows;    /* [row_count] */
    const char *const *groups;  /* [row_count]: the row begins a group of this name, or NULL; NULL:
                                   no groups */
    const yoke_svg_part *parts; /* [part_count] */
    const double *values;       /* [row_count, part_count] */
    int row_count, part_count;
    yoke_svg_unit unit; /* of the values */
} yoke_svg_bars;

/* Spans in lanes on one axis of time, in groups. */
typedef struct yoke_svg_span {
    double begin, end;
    char style[YOKE_CLASS_BYTES];
    int label;         /* in the span, if there is room; -1: none */
    const char *title; /* borrowed */
} yoke_svg_span;

typedef struct yoke_svg_lane {
    const char *group; /* the lane begins a group of this name; NULL: it does not */
    const char *name;
    const yoke_svg_span *spans; /* [count] */
    int count;
} yoke_svg_lane;

typedef struct yoke_svg_lanes {
    yoke_svg_head head;
    const char *x_name;
    double length;              /* of the axis */
    const yoke_svg_lane *lanes; /* [count] */
    int count;
    const yoke_svg_part *legend; /* [legend_count] */
    int legend_count;
} yoke_svg_lanes;

/* Counts by row and column; rows and columns have the same names. */
typedef struct yoke_svg_matrix {
    yoke_svg_head head;
    const char *axes;         /* what rows and columns are */
    const char *const *names; /* [count] */
    const int64_t *values;    /* [count, count] */
    int count;
} yoke_svg_matrix;

void yoke_svg_draw_xy(yoke_markup *out, const yoke_svg_xy *chart);
/* The smallest x above `x` of any series that is no guide; INFINITY: none. */
double yoke_svg_next_x(const yoke_svg_xy *chart, double x);
void yoke_svg_draw_bars(yoke_markup *out, const yoke_svg_bars *chart);
void yoke_svg_draw_lanes(yoke_markup *out, const yoke_svg_lanes *chart);
void yoke_svg_draw_matrix(yoke_markup *out, const yoke_svg_matrix *matrix);

#endif
