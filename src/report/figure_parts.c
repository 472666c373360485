/* SPDX-License-Identifier: Apache-2.0 */
/* What the figures share. */
#include "report/figure_parts.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

#define SAY_BYTES 1024
#define COLUMNS_MAX 33
#define CELLS_MAX 3000 /* of the table of a drawing of lines */

const char *yoke_mode_label(const yoke_report *report, const yoke_report_mode *mode,
                            char text[YOKE_LABEL_BYTES]) {
    int namesakes = 0;
    for (int i = 0; i < report->mode_count; i++)
        namesakes += strcmp(report->modes[i].name, mode->name) == 0;
    if (mode->devices > 0 && namesakes > 1)
        snprintf(text, YOKE_LABEL_BYTES, "%s on %d", mode->name, mode->devices);
    else
        snprintf(text, YOKE_LABEL_BYTES, "%s", mode->name);
    return text;
}

yoke_svg_part yoke_mode_part(const yoke_report *report, const yoke_report_mode *mode) {
    int place = 0;
    for (const yoke_report_mode *other = report->modes; other < mode; other++) {
        if (strcmp(other->name, mode->name) == 0) break;
        bool first = true;
        for (const yoke_report_mode *before = report->modes; before < other; before++)
            first &= strcmp(before->name, other->name) != 0;
        place += first;
    }
    yoke_svg_part part = {.name = mode->name};
    snprintf(part.style, sizeof part.style, "m%d", place % 8);
    return part;
}

const char *yoke_text_ms(double milliseconds, char text[64]) {
    char number[YOKE_NUMBER_BYTES];
    snprintf(text, 64, "%s ms", yoke_number(milliseconds, number));
    return text;
}

const char *yoke_text_percent(double part, double whole, char text[64]) {
    char number[YOKE_NUMBER_BYTES];
    snprintf(text, 64, "%s %%", yoke_decimal(whole > 0 ? 100 * part / whole : 0, 0, number));
    return text;
}

void *yoke_figure_memory_for(yoke_markup *out, size_t count, size_t size) {
    void *memory = yoke_calloc(count > 0 ? count : 1, size);
    if (memory == NULL) out->failed = true;
    return memory;
}

void yoke_figure_say(yoke_markup *out, const char *class_name, const char *format, ...) {
    char text[SAY_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    yoke_markup_element(out, "p", class_name, text);
}

void yoke_figure_say_left_out(yoke_markup *out, int shown, int all, const char *what) {
    if (shown < all)
        yoke_figure_say(out, "meaning", "Only the first %d of %d %s are drawn.", shown, all, what);
}

void yoke_figure_sources(yoke_markup *out, const char *const *files, int count) {
    if (count == 0) return;
    yoke_markup_open(out, "p");
    yoke_markup_attribute(out, "class", "source");
    yoke_markup_text(out, "Source: ");
    for (int i = 0; i < count; i++) {
        if (i > 0) yoke_markup_text(out, ", ");
        yoke_markup_element(out, "code", NULL, files[i]);
    }
    yoke_markup_close(out);
}

/* Bars. */

static const char *amount_text(const yoke_svg_bars *chart, double value, char text[64]) {
    return chart->unit == YOKE_SVG_BYTES ? yoke_text_bytes(value, text, 64)
                                         : yoke_number(value, text);
}

void yoke_figure_bars(yoke_markup *out, const yoke_svg_bars *chart) {
    yoke_html_chart_begin(out, chart->head.title, false);
    yoke_svg_draw_bars(out, chart);
    yoke_html_chart_end(out);
    const char *headers[COLUMNS_MAX];
    char text[64];
    int columns = chart->part_count < COLUMNS_MAX - 2 ? chart->part_count : COLUMNS_MAX - 2;
    headers[0] = "";
    for (int i = 0; i < columns; i++)
        headers[i + 1] = chart->parts[i].name;
    headers[columns + 1] = "sum";
    yoke_html_table_begin(out, "Data", chart->x_name, headers, columns + 2);
    const char *group = NULL;
    for (int row = 0; row < chart->row_count; row++) {
        char name[2 * YOKE_LABEL_BYTES];
        double sum = 0;
        if (chart->groups != NULL && chart->groups[row] != NULL) group = chart->groups[row];
        snprintf(name, sizeof name, "%s%s%s", group != NULL ? group : "", group != NULL ? ", " : "",
                 chart->rows[row]);
        yoke_html_row_begin(out, name);
        for (int i = 0; i < columns; i++) {
            double value = chart->values[row * chart->part_count + i];
            sum += value;
            yoke_html_cell(out, amount_text(chart, value, text));
        }
        yoke_html_cell(out, amount_text(chart, sum, text));
        yoke_html_row_end(out);
    }
    yoke_html_table_end(out, "Data");
}

/* Lines. */

static void point_cell(yoke_markup *out, const yoke_svg_series *series, double x) {
    char text[128], number[3][YOKE_NUMBER_BYTES];
    const yoke_svg_point *point = NULL;
    for (int i = 0; i < series->count && point == NULL; i++)
        if (series->points[i].x >= x) point = &series->points[i];
    if (point == NULL || point->x > x) {
        yoke_html_cell(out, "");
        return;
    }
    if (point->low < point->high)
        snprintf(text, sizeof text, "%s (%s to %s)", yoke_number(point->y, number[0]),
                 yoke_number(point->low, number[1]), yoke_number(point->high, number[2]));
    else
        snprintf(text, sizeof text, "%s", yoke_number(point->y, number[0]));
    yoke_html_cell(out, text);
}

void yoke_figure_lines(yoke_markup *out, const yoke_svg_xy *chart) {
    yoke_html_chart_begin(out, chart->head.title, false);
    yoke_svg_draw_xy(out, chart);
    yoke_html_chart_end(out);
    const char *headers[COLUMNS_MAX];
    char number[YOKE_NUMBER_BYTES];
    int columns = chart->count < COLUMNS_MAX - 1 ? chart->count : COLUMNS_MAX - 1;
    headers[0] = chart->x_name;
    for (int s = 0; s < columns; s++)
        headers[s + 1] = chart->series[s].name;
    char summary[64] = "Data";
    int rows = 0, row = 0;
    for (double x = yoke_svg_next_x(chart, -INFINITY); isfinite(x); x = yoke_svg_next_x(chart, x))
        rows++;
    int stride = 1 + rows * columns / CELLS_MAX;
    if (stride > 1) snprintf(summary, sizeof summary, "Data, one row of %d", stride);
    yoke_html_table_begin(out, summary, chart->y_name, headers, columns + 1);
    for (double x = yoke_svg_next_x(chart, -INFINITY); isfinite(x); x = yoke_svg_next_x(chart, x)) {
        if (row++ % stride != 0) continue;
        yoke_html_row_begin(out,
                            chart->log_x ? yoke_scientific(x, number) : yoke_decimal(x, 2, number));
        for (int s = 0; s < columns; s++)
            point_cell(out, &chart->series[s], x);
        yoke_html_row_end(out);
    }
    yoke_html_table_end(out, summary);
}
