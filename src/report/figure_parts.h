/* SPDX-License-Identifier: Apache-2.0 */
/* Inside report: what the figures share. */
#ifndef REPORT_FIGURE_PARTS_H
#define REPORT_FIGURE_PARTS_H

#include "report/html.h"
#include "report/report.h"
#include "report/stage_facts.h"
#include "report/svg.h"

#define YOKE_LABEL_BYTES (YOKE_REPORT_NAME_BYTES + 16)
#define YOKE_TITLE_BYTES 384 /* of a figure: what it shows, or its result */

/* The mode's name, with its devices where another mode has the same name: "dp overlap on 4". */
const char *yoke_mode_label(const yoke_report *report, const yoke_report_mode *mode,
                            char text[YOKE_LABEL_BYTES]);
/* The colour of modes of this name: "m0" ... */
yoke_svg_part yoke_mode_part(const yoke_report *report, const yoke_report_mode *mode);
/* "41.3 ms"; "12 %". */
const char *yoke_text_ms(double milliseconds, char text[64]);
const char *yoke_text_percent(double part, double whole, char text[64]);

/* calloc; on failure out->failed is set. */
void *yoke_figure_memory_for(yoke_markup *out, size_t count, size_t size);

/* A drawing with rows of parts, and its table. */
void yoke_figure_bars(yoke_markup *out, const yoke_svg_bars *chart);
/* A drawing of lines, and its table: a row for each x, a column for each series. */
void yoke_figure_lines(yoke_markup *out, const yoke_svg_xy *chart);
/* "Source: a, b." count 0: nothing. */
void yoke_figure_sources(yoke_markup *out, const char *const *files, int count);
/* "Only the first 96 of 120 devices are drawn." Nothing where all are there. */
void yoke_figure_say_left_out(yoke_markup *out, int shown, int all, const char *what);
void yoke_figure_say(yoke_markup *out, const char *class_name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
