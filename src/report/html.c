/* SPDX-License-Identifier: Apache-2.0 */
#include "report/html.h"

#include <stdio.h>

void yoke_html_begin(yoke_markup *out, const char *title) {
    yoke_markup_raw(out, "<!DOCTYPE html>\n");
    yoke_markup_open(out, "html");
    yoke_markup_attribute(out, "lang", "en");
    yoke_markup_open(out, "head");
    yoke_markup_open(out, "meta");
    yoke_markup_attribute(out, "charset", "utf-8");
    yoke_markup_close(out);
    yoke_markup_open(out, "meta");
    yoke_markup_attribute(out, "name", "viewport");
    yoke_markup_attribute(out, "content", "width=device-width, initial-scale=1");
    yoke_markup_close(out);
    yoke_markup_open(out, "meta");
    yoke_markup_attribute(out, "name", "color-scheme");
    yoke_markup_attribute(out, "content", "light dark");
    yoke_markup_close(out);
    yoke_markup_element(out, "title", NULL, title);
    yoke_markup_open(out, "style");
    for (const char *const *part = yoke_html_style(); *part != NULL; part++)
        yoke_markup_raw(out, *part);
    yoke_markup_close(out);
    yoke_markup_close(out);
    yoke_markup_open(out, "body");
    yoke_markup_open(out, "main");
    yoke_markup_element(out, "h1", NULL, title);
}

void yoke_html_end(yoke_markup *out) {
    yoke_markup_close(out);
    yoke_markup_close(out);
    yoke_markup_close(out);
    yoke_markup_raw(out, "\n");
}

void yoke_html_figure_begin(yoke_markup *out, const char *id, const char *title, bool wide) {
    char heading[64];
    snprintf(heading, sizeof heading, "%s-heading", id);
    yoke_markup_raw(out, "\n");
    yoke_markup_open(out, "section");
    yoke_markup_attribute(out, "id", id);
    yoke_markup_attribute(out, "class", wide ? "figure wide" : "figure");
    yoke_markup_attribute(out, "aria-labelledby", heading);
    yoke_markup_open(out, "h2");
    yoke_markup_attribute(out, "id", heading);
    yoke_markup_text(out, title);
    yoke_markup_close(out);
}

void yoke_html_figure_end(yoke_markup *out) {
    yoke_markup_close(out);
}

void yoke_html_chart_begin(yoke_markup *out, const char *title, bool wide) {
    yoke_markup_open(out, "div");
    yoke_markup_attribute(out, "class", wide ? "chart scroll" : "chart");
    if (!wide) return;
    yoke_markup_attribute(out, "role", "region");
    yoke_markup_attribute(out, "tabindex", "0");
    yoke_markup_attribute(out, "aria-label", title);
}

void yoke_html_chart_end(yoke_markup *out) {
    yoke_markup_close(out);
}

void yoke_html_table_begin(yoke_markup *out, const char *summary, const char *caption,
                           const char *const *headers, int count) {
    if (summary != NULL) {
        yoke_markup_open(out, "details");
        yoke_markup_element(out, "summary", NULL, summary);
    }
    yoke_markup_open(out, "div");
    yoke_markup_attribute(out, "class", "scroll");
    yoke_markup_attribute(out, "role", "region");
    yoke_markup_attribute(out, "tabindex", "0");
    yoke_markup_attribute(out, "aria-label", caption);
    yoke_markup_open(out, "table");
    yoke_markup_element(out, "caption", NULL, caption);
    yoke_markup_open(out, "thead");
    yoke_markup_open(out, "tr");
    for (int i = 0; i < count; i++) {
        yoke_markup_open(out, "th");
        yoke_markup_attribute(out, "scope", "col");
        yoke_markup_text(out, headers[i]);
        yoke_markup_close(out);
    }
    yoke_markup_close(out);
    yoke_markup_close(out);
    yoke_markup_open(out, "tbody");
}

void yoke_html_table_end(yoke_markup *out, const char *summary) {
    yoke_markup_close(out);
    yoke_markup_close(out);
    yoke_markup_close(out);
    if (summary != NULL) yoke_markup_close(out);
}

void yoke_html_row_begin(yoke_markup *out, const char *name) {
    yoke_markup_raw(out, "\n");
    yoke_markup_open(out, "tr");
    yoke_markup_open(out, "th");
    yoke_markup_attribute(out, "scope", "row");
    yoke_markup_text(out, name);
    yoke_markup_close(out);
}

void yoke_html_cell(yoke_markup *out, const char *text) {
    yoke_markup_element(out, "td", NULL, text);
}

void yoke_html_row_end(yoke_markup *out) {
    yoke_markup_close(out);
}
