/* SPDX-License-Identifier: Apache-2.0 */
/* Inside report: the figures of the page. Each writes its title, sentences made from the numbers,
 * the drawing, what the numbers mean, the data as a table and source files; or nothing where the
 * report lacks its data. */
#ifndef REPORT_FIGURES_H
#define REPORT_FIGURES_H

#include "report/figure_parts.h"

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

/* The name of a class, or its number in `text`. */
const char *yoke_class_name(const yoke_report_predictions *predictions, int index, char text[16]);
/* Rows of this true class that the model took for `predicted`. */
int64_t yoke_class_count(const yoke_report_predictions *predictions, int label, int predicted);
int64_t yoke_class_rows(const yoke_report_predictions *predictions, int label);
/* Names of all classes in one allocation, which the caller frees; NULL: out of memory. */
const char **yoke_class_names(yoke_markup *out, const yoke_report_predictions *predictions);

#endif
