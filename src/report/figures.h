/* SPDX-License-Identifier: Apache-2.0 */
/* Inside report: the figures of the page. Each writes its title, sentences made from the numbers,
 * the drawing, what the numbers mean, the data as a table and source files; or nothing where the
 * report lacks its data. */
#ifndef REPORT_FIGURES_H
#define REPORT_FIGURES_H

#include "report/html.h"
#include "report/report.h"
#include "report/stage_facts.h"
#include "report/svg.h"

void yoke_figure_runs(yoke_markup *out, const yoke_report *report);
void yoke_figure_throughput(yoke_markup *out, const yoke_report *report);
void yoke_figure_step_time(yoke_markup *out, const yoke_report *report);
void yoke_figure_stages(yoke_markup *out, const yoke_report *report);
void yoke_figure_timeline(yoke_markup *out, const yoke_report *report);
void yoke_figure_devices(yoke_markup *out, const yoke_report *report);
void yoke_figure_memory(yoke_markup *out, const yoke_report *report);
void yoke_figure_links(yoke_markup *out, const yoke_report *report);
void yoke_figure_moved(yoke_markup *out, const yoke_report *report);
void yoke_figure_curves(yoke_markup *out, const yoke_report *report);
void yoke_figure_rates(yoke_markup *out, const yoke_report *report);
/* Accuracy by class, confusion matrix and worst misclassified rows; or why there are none. */
void yoke_figure_predictions(yoke_markup *out, const yoke_report *report);
void yoke_figure_classes(yoke_markup *out, const yoke_report_predictions *predictions);
void yoke_figure_confusion(yoke_markup *out, const yoke_report_predictions *predictions);
void yoke_figure_misclassified(yoke_markup *out, const yoke_report_predictions *predictions);

/* What they share. */

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

/* The name of a class, or its number in `text`. */
const char *yoke_class_name(const yoke_report_predictions *predictions, int index, char text[16]);
/* Rows of this true class that the model took for `predicted`. */
int64_t yoke_class_count(const yoke_report_predictions *predictions, int label, int predicted);
int64_t yoke_class_rows(const yoke_report_predictions *predictions, int label);
/* Names of all classes in one allocation, which the caller frees; NULL: out of memory. */
const char **yoke_class_names(yoke_markup *out, const yoke_report_predictions *predictions);

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
