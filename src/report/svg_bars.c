/* SPDX-License-Identifier: Apache-2.0 */
/* Bars of parts. */
#include <math.h>
#include <stdio.h>

#include "base/base.h"
#include "report/svg_parts.h"

#define WIDTH 480.0
#define LEFT 128.0
#define RIGHT 74.0
#define TOP 8.0
#define ROW 30.0
#define BAR 20.0
#define GROUP 26.0
#define PARTS_MAX 24

static const char *text_of(const yoke_svg_bars *chart, double value, char text[64]) {
    char number[YOKE_NUMBER_BYTES];
    if (chart->unit == YOKE_SVG_BYTES) return yoke_text_bytes(value, text, 64);
    snprintf(text, 64, "%s %s", yoke_number(value, number),
             chart->unit == YOKE_SVG_PERCENT ? "%" : "ms");
    return text;
}

static double sum_of(const yoke_svg_bars *chart, int row) {
    double sum = 0;
    for (int i = 0; i < chart->part_count; i++)
        sum += chart->values[row * chart->part_count + i];
    return sum;
}

static const char *group_of(const yoke_svg_bars *chart, int row) {
    return chart->groups != NULL ? chart->groups[row] : NULL;
}

static void draw_row(yoke_markup *out, const yoke_svg_bars *chart, const svg_scale *scale, int row,
                     double y) {
    char title[256], amount[64];
    double sum = 0;
    yoke_svg_label(out, "end", LEFT - 8, y + 14, chart->rows[row], 18);
    for (int i = 0; i < chart->part_count; i++) {
        double value = chart->values[row * chart->part_count + i];
        if (!(value > 0)) continue;
        double begin = yoke_svg_place(scale, sum), end = yoke_svg_place(scale, sum + value);
        sum += value;
        snprintf(title, sizeof title, "%s, %s: %s", chart->rows[row], chart->parts[i].name,
                 text_of(chart, value, amount));
        yoke_svg_rect(out, chart->parts[i].style, (svg_box){begin, y, end - begin, BAR}, title);
    }
    yoke_svg_label(out, "start", yoke_svg_place(scale, sum) + 6, y + 14,
                   text_of(chart, sum, amount), 12);
}

void yoke_svg_draw_bars(yoke_markup *out, const yoke_svg_bars *chart) {
    svg_key keys[PARTS_MAX];
    int count = chart->part_count < PARTS_MAX ? chart->part_count : PARTS_MAX;
    for (int i = 0; i < count; i++)
        keys[i] = (svg_key){.name = chart->parts[i].name, .style = chart->parts[i].style};
    svg_box box = {LEFT, TOP, WIDTH - LEFT - RIGHT, ROW * chart->row_count};
    svg_scale scale = {.begin = box.x, .end = box.x + box.width};
    for (int row = 0; row < chart->row_count; row++) {
        scale.high = fmax(scale.high, sum_of(chart, row));
        if (group_of(chart, row) != NULL) box.height += GROUP;
    }
    if (chart->unit == YOKE_SVG_PERCENT) scale.high = 100;
    if (!(scale.high > 0)) scale.high = 1;
    svg_box legend = {8, TOP + box.height + 44, WIDTH - 8, 0};
    double height = legend.y + yoke_svg_legend_height(keys, count, legend.width) + 2;
    yoke_svg_begin(out, &chart->head, WIDTH, height);
    yoke_svg_x_axis(out, &scale, box, chart->x_name, yoke_svg_tick(scale.high, 5),
                    chart->unit == YOKE_SVG_BYTES);
    double y = TOP;
    for (int row = 0; row < chart->row_count; row++, y += ROW) {
        if (group_of(chart, row) != NULL) {
            yoke_svg_group(out, group_of(chart, row), y);
            y += GROUP;
        }
        draw_row(out, chart, &scale, row, y + (ROW - BAR) / 2);
    }
    yoke_svg_legend(out, keys, count, legend);
    yoke_svg_finish(out);
}
