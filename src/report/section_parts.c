/* SPDX-License-Identifier: Apache-2.0 */
/* What the sections share. */
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "report/sections.h"

void yoke_section_begin(yoke_html *out, const char *id, const char *title, bool wide) {
    yoke_html_write(out,
                    "\n<section id=\"%s\" class=\"figure%s\" aria-labelledby=\"%s-heading\">"
                    "<h2 id=\"%s-heading\">%s</h2>",
                    id, wide ? " wide" : "", id, id, title);
}

const char *yoke_words(const char *section, const char *part, char text[YOKE_TEXT_BYTES]) {
    char key[96];
    size_t length = (size_t)snprintf(key, sizeof key, "\n%s.%s\n", section, part);
    const char *entry = strstr(yoke_page_words, key);
    const char *end = entry != NULL ? strstr(entry + length, "\n\n") : NULL;
    text[0] = '\0';
    if (end == NULL) return text;
    snprintf(text, YOKE_TEXT_BYTES, "%.*s", (int)(end - entry - (ptrdiff_t)length), entry + length);
    for (char *line = text; (line = strchr(line, '\n')) != NULL;)
        *line = ' ';
    return text;
}

void yoke_section_end(yoke_html *out, const char *words, const char *more) {
    char *rest = NULL, files[YOKE_TEXT_BYTES];
    const char *meaning = WORDS(words, "meaning"), *before = "<p class=\"source\">Source: ";
    yoke_html_write(out, "<p class=\"meaning\">%s%s%s</p>", meaning,
                    meaning[0] != '\0' && more[0] != '\0' ? " " : "", more);
    yoke_words(words, "source", files);
    for (char *file = strtok_r(files, " ", &rest); file; file = strtok_r(NULL, " ", &rest)) {
        yoke_html_raw(out, before, strlen(before));
        yoke_html_write(out, "<code>%s</code>", file);
        before = ", ";
    }
    if (before[0] == ',') yoke_html_write(out, "</p>");
    yoke_html_write(out, "</section>");
}

void yoke_say_left_out(yoke_html *out, int most, int all, const char *what) {
    if (all > most) SAY(out, "Only the first %d of %d %s are drawn.", most, all, what);
}

/* Tables. */

yoke_table yoke_table_begin(yoke_html *out, const char *figure, const char *summary,
                            const char *caption, const char *first_column) {
    yoke_table table = {.out = out, .summary = summary};
    if (figure != NULL)
        yoke_html_write(out, "<div class=\"chart\" data-figure=\"%s\"></div>", figure);
    snprintf(table.caption, sizeof table.caption, "%s", caption);
    yoke_table_column(&table, first_column);
    return table;
}

yoke_table yoke_data_begin(yoke_html *out, const char *figure, const char *first_column) {
    return yoke_table_begin(out, figure, "Data", WORDS(figure, "caption"), first_column);
}

static char *copy_of(yoke_table *table, const char *text) {
    char *copy = yoke_strdup(text);
    table->out->failed |= copy == NULL;
    return copy;
}

int yoke_table_column(yoke_table *table, const char *name) {
    if (table->column_count == YOKE_COLUMNS_MAX) return -1;
    table->columns[table->column_count] = copy_of(table, name);
    return table->column_count++;
}

void yoke_table_row(yoke_table *table, const char *name) {
    table->out->failed |= GROW(table->rows, table->row_count) == NULL;
    yoke_table_put(table, 0, name);
}

void yoke_table_put(yoke_table *table, int column, const char *text) {
    if (column < 0 || table->out->failed) return;
    char **cell = &table->rows[table->row_count - 1][column];
    yoke_free(*cell);
    *cell = copy_of(table, text);
}

void yoke_table_cell(yoke_table *table, const char *column, const char *text) {
    int found = 1;
    if (table->out->failed) return;
    while (found < table->column_count && strcmp(table->columns[found], column) != 0)
        found++;
    if (found == table->column_count) found = yoke_table_column(table, column);
    if (text[0] != '\0') yoke_table_put(table, found, text);
}

static void write_row(const yoke_table *table, char *const *cells, const bool *shown, bool head) {
    yoke_html_write(table->out, "\n<tr>");
    for (int i = 0; i < table->column_count; i++) {
        const char *text = cells[i] != NULL ? cells[i] : "";
        if (!shown[i]) continue;
        if (head || i == 0)
            yoke_html_write(table->out, "<th scope=\"%s\">%s</th>", head ? "col" : "row", text);
        else
            yoke_html_write(table->out, "<td>%s</td>", text);
    }
    yoke_html_write(table->out, "</tr>");
}

void yoke_table_end(yoke_table *table) {
    yoke_html *out = table->out;
    bool shown[YOKE_COLUMNS_MAX];
    for (int i = 0; i < table->column_count; i++) {
        shown[i] = i == 0;
        for (int row = 0; row < table->row_count; row++)
            shown[i] |= table->rows[row][i] != NULL;
    }
    if (table->summary != NULL)
        yoke_html_write(out, "<details><summary>%s</summary>", table->summary);
    yoke_html_write(out,
                    "<div class=\"table scroll\" role=\"region\" tabindex=\"0\" aria-label=\"%s\">"
                    "<table><caption>%s</caption><thead>",
                    table->caption, table->caption);
    write_row(table, table->columns, shown, true);
    yoke_html_write(out, "</thead><tbody>");
    for (int row = 0; row < table->row_count; row++)
        write_row(table, table->rows[row], shown, false);
    yoke_html_write(out, "</tbody></table></div>%s", "");
    if (table->summary != NULL) yoke_html_write(out, "</details>");
    for (int i = 0; i < table->column_count; i++) {
        yoke_free(table->columns[i]);
        for (int row = 0; row < table->row_count; row++)
            yoke_free(table->rows[row][i]);
    }
    yoke_free(table->rows);
}

/* Texts. */

const char *yoke_mode_label(const yoke_report *report, const yoke_report_mode *mode,
                            char text[YOKE_LABEL_BYTES]) {
    int namesakes = 0;
    for (int i = 0; i < report->mode_count; i++)
        namesakes += strcmp(report->modes[i].name, mode->name) == 0;
    snprintf(text, YOKE_LABEL_BYTES, mode->devices > 0 && namesakes > 1 ? "%s on %d" : "%s",
             mode->name, mode->devices);
    return text;
}

const char *yoke_text(char *text, size_t bytes, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, bytes, format, arguments);
    va_end(arguments);
    return text;
}

const char *yoke_interval_text(yoke_report_interval figure, char text[YOKE_TEXT_BYTES]) {
    if (!(figure.value > 0)) return "";
    if (!(figure.low < figure.high)) return yoke_number(figure.value, text);
    return yoke_text(text, YOKE_TEXT_BYTES, "%s (%s to %s)", NUMBER(figure.value),
                     NUMBER(figure.low), NUMBER(figure.high));
}
