/* SPDX-License-Identifier: Apache-2.0 */
/* The timeline: lanes of spans on one axis. */
#include <stdio.h>

#include "report/svg_parts.h"

#define WIDTH 960.0
#define LEFT 128.0
#define TOP 8.0
#define GROUP 26.0
#define LANE 26.0
#define BAR 20.0
#define PARTS_MAX 24
#define VISIBLE 0.25 /* narrower spans are not drawn */

static void draw_span(yoke_markup *out, const svg_scale *scale, const yoke_svg_span *span,
                      double y) {
    double begin = yoke_svg_place(scale, span->begin), end = yoke_svg_place(scale, span->end);
    char label[16];
    if (end - begin < VISIBLE) return;
    yoke_svg_rect(out, span->style, (svg_box){begin, y, end - begin, BAR}, span->title);
    snprintf(label, sizeof label, "%d", span->label);
    if (span->label < 0 || end - begin < SVG_LETTER * (yoke_svg_letters(label) + 1)) return;
    yoke_markup_open(out, "text");
    yoke_markup_attribute(out, "class", "in");
    yoke_markup_number(out, "x", (begin + end) / 2);
    yoke_markup_number(out, "y", y + 14);
    yoke_markup_attribute(out, "text-anchor", "middle");
    yoke_markup_text(out, label);
    yoke_markup_close(out);
}

void yoke_svg_draw_lanes(yoke_markup *out, const yoke_svg_lanes *chart) {
    svg_key keys[PARTS_MAX];
    int count = chart->legend_count < PARTS_MAX ? chart->legend_count : PARTS_MAX;
    for (int i = 0; i < count; i++)
        keys[i] = (svg_key){.name = chart->legend[i].name, .style = chart->legend[i].style};
    svg_box box = {LEFT, TOP, WIDTH - LEFT - 24, 4};
    for (int i = 0; i < chart->count; i++)
        box.height += LANE + (chart->lanes[i].group != NULL ? GROUP : 0);
    svg_scale scale = {0, chart->length > 0 ? chart->length : 1, box.x, box.x + box.width};
    svg_box legend = {8, TOP + box.height + 44, WIDTH - 8, 0};
    double height = legend.y + yoke_svg_legend_height(keys, count, legend.width) + 2;
    yoke_svg_begin(out, &chart->head, WIDTH, height);
    yoke_svg_x_axis(out, &scale, box, chart->x_name, yoke_svg_tick(scale.high, 10), false);
    double y = TOP;
    for (int i = 0; i < chart->count; i++) {
        const yoke_svg_lane *lane = &chart->lanes[i];
        if (lane->group != NULL) {
            yoke_svg_group(out, lane->group, y);
            y += GROUP;
        }
        yoke_svg_label(out, "end", LEFT - 8, y + (LANE + BAR) / 2 - 6, lane->name, 18);
        for (int j = 0; j < lane->count; j++)
            draw_span(out, &scale, &lane->spans[j], y + (LANE - BAR) / 2);
        y += LANE;
    }
    yoke_svg_legend(out, keys, count, legend);
    yoke_svg_finish(out);
}
