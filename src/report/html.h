/* SPDX-License-Identifier: Apache-2.0 */
/* The frame of the page: head with the style sheet, figures, tables. */
#ifndef REPORT_HTML_H
#define REPORT_HTML_H

#include "report/markup.h"

/* The parts of the style sheet, static, with a NULL behind them; every colour is a variable, once
 * for light and once for dark. */
const char *const *yoke_html_style(void);

void yoke_html_begin(yoke_markup *out, const char *title);
void yoke_html_end(yoke_markup *out);

/* In this order: figure_begin, sentences, chart_begin, a drawing, chart_end, text and tables,
 * figure_end. wide: as wide as the page. */
void yoke_html_figure_begin(yoke_markup *out, const char *id, const char *title, bool wide);
void yoke_html_figure_end(yoke_markup *out);
/* A narrow screen scrolls a wide drawing sideways; `title` names that part for a reader of the
 * page aloud. */
void yoke_html_chart_begin(yoke_markup *out, const char *title, bool wide);
void yoke_html_chart_end(yoke_markup *out);

/* A table that opens at a click and that print leaves out. summary NULL: always open. */
void yoke_html_table_begin(yoke_markup *out, const char *summary, const char *caption,
                           const char *const *headers, int count);
void yoke_html_table_end(yoke_markup *out, const char *summary);
void yoke_html_row_begin(yoke_markup *out, const char *name);
void yoke_html_cell(yoke_markup *out, const char *text);
void yoke_html_row_end(yoke_markup *out);

#endif
