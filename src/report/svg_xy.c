/* SPDX-License-Identifier: Apache-2.0 */
/* Lines over two axes. */
#include <math.h>
#include <stdio.h>

#include "report/svg_parts.h"

#define WIDTH 480.0
#define PLOT_HEIGHT 220.0
#define LEFT 56.0
#define TOP 30.0
#define MARGIN 24.0    /* beside the first and the last count */
#define TICK_ROOM 20.0 /* of a count's text */
#define SERIES_MAX 32  /* a page has as many files */

typedef struct svg_plot {
    svg_scale x, y;
    svg_box box;
} svg_plot;

static void stretch(svg_scale *scale, double value) {
    if (!isfinite(value)) return;
    if (value < scale->low) scale->low = value;
    if (value > scale->high) scale->high = value;
}

static void find_range(const yoke_svg_xy *chart, svg_plot *plot) {
    plot->x.low = plot->y.low = INFINITY;
    plot->x.high = plot->y.high = -INFINITY;
    for (int s = 0; s < chart->count; s++) {
        for (int i = 0; i < chart->series[s].count && !chart->series[s].guide; i++) {
            const yoke_svg_point *point = &chart->series[s].points[i];
            stretch(&plot->x, point->x);
            stretch(&plot->y, point->y);
            if (point->low < point->high) {
                stretch(&plot->y, point->low);
                stretch(&plot->y, point->high);
            }
        }
    }
    if (!(plot->x.low <= plot->x.high)) plot->x.low = plot->x.high = 0;
    if (!(plot->y.low <= plot->y.high)) plot->y.low = plot->y.high = 0;
    if (chart->y_most > 0 && plot->y.high > chart->y_most) plot->y.high = chart->y_most;
    if (chart->from_zero && plot->y.low > 0) plot->y.low = 0;
    if (plot->x.low == plot->x.high) {
        plot->x.low -= chart->counts ? 1 : 0;
        plot->x.high = chart->log_x ? 10 * plot->x.high : plot->x.high + 1;
    }
    if (plot->y.low == plot->y.high)
        plot->y.high = plot->y.low + (plot->y.low > 0 ? plot->y.low : 1);
}

static bool is_drawn(const svg_plot *plot, const yoke_svg_point *point) {
    return isfinite(point->y) && point->y <= plot->y.high;
}

/* Where the line between a point that is drawn and one that is not leaves the drawing. */
static yoke_svg_point leave(const svg_plot *plot, const yoke_svg_point *drawn,
                            const yoke_svg_point *other) {
    double share = (plot->y.high - drawn->y) / (other->y - drawn->y);
    return (yoke_svg_point){.x = drawn->x + share * (other->x - drawn->x), .y = plot->y.high};
}

static void add_to_path(yoke_markup *out, const svg_plot *plot, const yoke_svg_point *point,
                        bool pen_down) {
    char number[2][YOKE_NUMBER_BYTES], text[80];
    snprintf(text, sizeof text, "%s%s %s", pen_down ? "L" : "M",
             yoke_decimal(yoke_svg_place(&plot->x, point->x), 1, number[0]),
             yoke_decimal(yoke_svg_place(&plot->y, point->y), 1, number[1]));
    yoke_markup_path_add(out, text);
}

/* Where a guide leaves the drawing: "ideal: 4568 at 8". */
static void name_guide(yoke_markup *out, const svg_plot *plot, const yoke_svg_series *guide) {
    const yoke_svg_point *last = &guide->points[guide->count - 1];
    char text[128], number[2][YOKE_NUMBER_BYTES];
    for (int i = 1; i < guide->count; i++) {
        if (!is_drawn(plot, &guide->points[i - 1]) || is_drawn(plot, &guide->points[i])) continue;
        yoke_svg_point end = leave(plot, &guide->points[i - 1], &guide->points[i]);
        double x = yoke_svg_place(&plot->x, end.x);
        bool right = x < plot->box.x + 0.6 * plot->box.width;
        snprintf(text, sizeof text, "%s: %s at %s", guide->name, yoke_number(last->y, number[0]),
                 yoke_decimal(last->x, 2, number[1]));
        yoke_svg_label(out, right ? "start" : "end", right ? x + 6 : x - 10, plot->box.y + 12, text,
                       40);
        return;
    }
}

static void draw_path(yoke_markup *out, const svg_plot *plot, const yoke_svg_series *series) {
    char style[2 * YOKE_CLASS_BYTES];
    if (series->count < 2 || series->apart) return;
    snprintf(style, sizeof style, "line %s%s", series->style, series->dashed ? " dashed" : "");
    yoke_markup_open(out, "path");
    yoke_markup_attribute(out, "class", style);
    yoke_markup_path_begin(out);
    bool pen_down = false;
    for (int i = 0; i < series->count; i++) {
        const yoke_svg_point *point = &series->points[i], *before = point - 1;
        bool drawn = is_drawn(plot, point), crosses = i > 0 && drawn != pen_down;
        yoke_svg_point edge;
        if (crosses && isfinite(point->y) && isfinite(before->y)) {
            edge = drawn ? leave(plot, point, before) : leave(plot, before, point);
            add_to_path(out, plot, &edge, pen_down);
            pen_down = true;
        }
        if (drawn) add_to_path(out, plot, point, pen_down);
        pen_down = drawn;
    }
    yoke_markup_path_end(out);
    yoke_markup_close(out);
    if (series->guide) name_guide(out, plot, series);
}

static void draw_marker(yoke_markup *out, const svg_plot *plot, const yoke_svg_series *series,
                        const yoke_svg_point *point) {
    char title[256], style[2 * YOKE_CLASS_BYTES], number[2][YOKE_NUMBER_BYTES];
    double x = yoke_svg_place(&plot->x, point->x), y = yoke_svg_place(&plot->y, point->y);
    if (!is_drawn(plot, point)) return;
    snprintf(style, sizeof style, "line %s", series->style);
    if (series->upright)
        yoke_svg_line(out, style, x, plot->box.y, x, plot->box.y + plot->box.height);
    if (point->low < point->high) {
        double low = yoke_svg_place(&plot->y, point->low);
        double high = yoke_svg_place(&plot->y, point->high);
        yoke_svg_line(out, style, x, low, x, high);
        yoke_svg_line(out, style, x - 4, low, x + 4, low);
        yoke_svg_line(out, style, x - 4, high, x + 4, high);
    }
    snprintf(title, sizeof title, "%s: %s at %s", series->name, yoke_number(point->y, number[0]),
             plot->x.log ? yoke_scientific(point->x, number[1])
                         : yoke_decimal(point->x, 2, number[1]));
    yoke_svg_marker(out, series->style, x, y, title);
}

/* Draws the points of the series that a line joins, or of those that none joins. */
static void draw_markers(yoke_markup *out, const svg_plot *plot, const yoke_svg_xy *chart,
                         bool apart) {
    for (int s = 0; s < chart->count && s < SERIES_MAX; s++) {
        const yoke_svg_series *series = &chart->series[s];
        for (int i = 0; series->markers && series->apart == apart && i < series->count; i++)
            draw_marker(out, plot, series, &series->points[i]);
    }
}

double yoke_svg_next_x(const yoke_svg_xy *chart, double x) {
    double next = INFINITY;
    for (int s = 0; s < chart->count; s++) {
        const yoke_svg_series *series = &chart->series[s];
        for (int i = 0; i < series->count && !series->guide; i++)
            if (series->points[i].x > x) next = fmin(next, series->points[i].x);
    }
    return next;
}

/* A tick at each count, with a text where there is room; the last count has one. */
static void count_axis(yoke_markup *out, const yoke_svg_xy *chart, const svg_plot *plot) {
    char text[YOKE_NUMBER_BYTES];
    double free = 0, last = yoke_svg_place(&plot->x, plot->x.high);
    for (double x = yoke_svg_next_x(chart, -INFINITY), next; isfinite(x); x = next) {
        double place = yoke_svg_place(&plot->x, x);
        next = yoke_svg_next_x(chart, x);
        bool room = place >= free && (place <= last - TICK_ROOM || !isfinite(next));
        yoke_svg_x_tick(out, &plot->x, plot->box, x, room ? yoke_decimal(x, 2, text) : NULL);
        if (room) free = place + TICK_ROOM;
    }
    yoke_svg_x_line(out, plot->box, chart->x_name);
}

void yoke_svg_draw_xy(yoke_markup *out, const yoke_svg_xy *chart) {
    svg_key keys[SERIES_MAX];
    int count = chart->count < SERIES_MAX ? chart->count : SERIES_MAX;
    for (int i = 0; i < count; i++)
        keys[i] = (svg_key){.name = chart->series[i].name,
                            .style = chart->series[i].style,
                            .line = !chart->series[i].apart,
                            .dashed = chart->series[i].dashed,
                            .marker = chart->series[i].markers};
    svg_plot plot = {.box = {LEFT, TOP, WIDTH - LEFT - 16, PLOT_HEIGHT}};
    find_range(chart, &plot);
    plot.x.log = chart->log_x;
    /* Both ends of the y axis become ticks. */
    svg_scale *y = &plot.y;
    double y_tick = yoke_svg_tick(y->high - y->low, 5);
    y->low = y_tick * floor(y->low / y_tick + 1e-9);
    y->high = y_tick * ceil(y->high / y_tick - 1e-9);
    double margin = chart->counts ? MARGIN : 0;
    plot.x.begin = plot.box.x + margin;
    plot.x.end = plot.box.x + plot.box.width - margin;
    plot.y.begin = plot.box.y + plot.box.height;
    plot.y.end = plot.box.y;
    svg_box legend = {LEFT, TOP + PLOT_HEIGHT + 44, WIDTH - LEFT, 0};
    double height = legend.y + yoke_svg_legend_height(keys, count, legend.width) + 2;
    yoke_svg_begin(out, &chart->head, WIDTH, height);
    yoke_svg_y_axis(out, &plot.y, plot.box, chart->y_name, y_tick);
    if (chart->counts)
        count_axis(out, chart, &plot);
    else if (chart->log_x)
        yoke_svg_log_axis(out, &plot.x, plot.box, chart->x_name);
    else
        yoke_svg_x_axis(out, &plot.x, plot.box, chart->x_name,
                        yoke_svg_tick(plot.x.high - plot.x.low, 7), false);
    draw_markers(out, &plot, chart, true); /* lines lie over points that have none */
    for (int s = 0; s < count; s++)
        draw_path(out, &plot, &chart->series[s]);
    draw_markers(out, &plot, chart, false);
    yoke_svg_legend(out, keys, count, legend);
    yoke_svg_finish(out);
}
