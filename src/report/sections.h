/* SPDX-License-Identifier: Apache-2.0 */
/* Inside report: the sections of the page. Each writes its title, sentences made from the numbers,
 * the place of the figure that the script draws, the data as a table, what the numbers mean and
 * source files; or nothing where the report lacks its data. */
#ifndef REPORT_SECTIONS_H
#define REPORT_SECTIONS_H

#include "report/html.h"
#include "report/report.h"

#define YOKE_LABEL_BYTES (YOKE_REPORT_NAME_BYTES + 16)
#define YOKE_TEXT_BYTES 1024
#define YOKE_LANES_MAX 96    /* of a timeline */
#define YOKE_SPANS_MAX 2000  /* of the page; the shortest are left out */
#define YOKE_DEVICES_MAX 96  /* of a figure of bars */
#define YOKE_CLASSES_MAX 100 /* of a drawn confusion matrix */
#define YOKE_SAID_MAX 6      /* modes that a figure has sentences about */

void yoke_section_runs(yoke_html *out, const yoke_report *report);
void yoke_section_scaling(yoke_html *out, const yoke_report *report, bool throughput);
void yoke_section_timeline(yoke_html *out, const yoke_report *report);
void yoke_section_stages(yoke_html *out, const yoke_report *report);
void yoke_section_devices(yoke_html *out, const yoke_report *report);
void yoke_section_amounts(yoke_html *out, const yoke_report *report);
void yoke_section_curves(yoke_html *out, const yoke_report *report);
void yoke_section_rates(yoke_html *out, const yoke_report *report);
/* Accuracy by class, confusion matrix and worst misclassified rows; or why there are none. */
void yoke_section_predictions(yoke_html *out, const yoke_report *report);

/* The page's title: the result, where the report has one; otherwise its subject. */
const char *yoke_page_title(const yoke_report *report, char text[YOKE_TEXT_BYTES]);
/* The model that the script draws: docs/report.md has its fields. */
void yoke_page_json(yoke_html *out, const yoke_report *report, const char *title);
/* The bytes of page/page.js, page.css and words.txt, with a 0 behind them. */
extern const char yoke_page_script[], yoke_page_style[], yoke_page_words[];

/* Makes room for one more and zeroes it; arrays grow when their count is a power of two. NULL: out
 * of memory, and the array is as it was. */
void *yoke_report_grow(void **array, int *count, size_t size);
#define GROW(array, count) yoke_report_grow((void **)&(array), &(count), sizeof *(array))

/* What the sections share. */

void yoke_section_begin(yoke_html *out, const char *id, const char *title, bool wide);
/* Says what the numbers mean, by the words of this key, then what this run adds, and the source
 * files; ends the section. */
void yoke_section_end(yoke_html *out, const char *words, const char *more);
/* An entry of words.txt, "SECTION.PART"; "": there is none. Returns text. */
const char *yoke_words(const char *section, const char *part, char text[YOKE_TEXT_BYTES]);
#define WORDS(section, part) yoke_words(section, part, (char[YOKE_TEXT_BYTES]){0})
/* "Only the first 96 of 120 devices are drawn."; nothing where all are. */
void yoke_say_left_out(yoke_html *out, int most, int all, const char *what);

/* A table. Columns without a cell are left out. */
#define YOKE_COLUMNS_MAX (YOKE_CLASSES_MAX + 2)
typedef struct yoke_table {
    yoke_html *out;
    const char *summary; /* it opens at a click, and print leaves it out; NULL: always open */
    char caption[YOKE_LABEL_BYTES];
    char *columns[YOKE_COLUMNS_MAX];
    char *(*rows)[YOKE_COLUMNS_MAX]; /* [row_count]: a name, then cells */
    int column_count, row_count;
} yoke_table;
/* figure: the table has its data, and its place comes before; NULL: none. */
yoke_table yoke_table_begin(yoke_html *out, const char *figure, const char *summary,
                            const char *caption, const char *first_column);
/* The data of a figure, which open at a click; their caption is in words.txt. */
yoke_table yoke_data_begin(yoke_html *out, const char *figure, const char *first_column);
int yoke_table_column(yoke_table *table, const char *name); /* a new one; returns its number */
void yoke_table_row(yoke_table *table, const char *name);
/* A cell of the last row. cell: of the first column of this name, or of a new one; none where the
 * text is empty. */
void yoke_table_put(yoke_table *table, int column, const char *text);
void yoke_table_cell(yoke_table *table, const char *column, const char *text);
void yoke_table_end(yoke_table *table); /* writes it */

/* An empty list may be NULL, to which nothing is added. */
#define FOR_LIST(type, one, list, count)                                                           \
    for (const type *one = (list); one != NULL && one < (list) + (count); one++)
#define FOR_MODES(report, mode)                                                                    \
    FOR_LIST (yoke_report_mode, mode, (report)->modes, (report)->mode_count)
#define FOR_LANES(mode, lane) FOR_LIST (yoke_report_lane, lane, (mode)->lanes, (mode)->lane_count)
#define FOR_DEVICES(mode, lane)                                                                    \
    FOR_LANES (mode, lane)                                                                         \
        if (lane->kind == YOKE_LANE_DEVICE)
#define FOR_SPANS(lane, span) FOR_LIST (yoke_report_span, span, (lane)->spans, (lane)->span_count)

/* Short-lived texts. */
#define NUMBER(value) yoke_number(value, (char[YOKE_NUMBER_BYTES]){0})
#define DECIMAL(value, places) yoke_decimal(value, places, (char[YOKE_NUMBER_BYTES]){0})
#define SCIENTIFIC(value) yoke_scientific(value, (char[YOKE_NUMBER_BYTES]){0})
#define COUNT(value) DECIMAL((double)(value), 0)
#define BYTES(value) yoke_text_bytes(value, (char[64]){0}, 64)
#define SAY(out, ...) yoke_html_write(out, "<p>%s</p>", TEXT(__VA_ARGS__))
#define TEXT(...) yoke_text((char[YOKE_TEXT_BYTES]){0}, YOKE_TEXT_BYTES, __VA_ARGS__)
#define MS(value) TEXT("%s ms", NUMBER(value))
#define PERCENT(part, whole) TEXT("%s %%", COUNT((whole) > 0 ? 100 * (part) / (whole) : 0))
#define CAUSE(mode, span) yoke_cause_text(mode, span, (char[YOKE_TEXT_BYTES]){0})
#define INTERVAL(figure) yoke_interval_text(figure, (char[YOKE_TEXT_BYTES]){0})
#define COMPUTED(mode) /* "41 %": of the step, by a device */                                      \
    PERCENT(yoke_mode_activity_ms(mode, YOKE_COMPUTES), (mode)->mean_step_ms)
#define LABEL(report, mode) yoke_mode_label(report, mode, (char[YOKE_LABEL_BYTES]){0})
#define CLASS(predictions, index) yoke_class_name(predictions, index, (char[16]){0})
/* As snprintf; returns text. */
const char *yoke_text(char *text, size_t bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
const char *yoke_interval_text(yoke_report_interval figure, char text[YOKE_TEXT_BYTES]);
/* "while cpu:0 runs update"; "": no cause is known. */
const char *yoke_cause_text(const yoke_report_mode *mode, const yoke_report_span *span,
                            char text[YOKE_TEXT_BYTES]);
/* The mode's name, with its devices where another mode has the same name: "dp overlap on 4". */
const char *yoke_mode_label(const yoke_report *report, const yoke_report_mode *mode,
                            char text[YOKE_LABEL_BYTES]);
/* The name of a class, or its number. */
const char *yoke_class_name(const yoke_predictions *predictions, int index, char text[16]);

/* Facts of a report. */

/* The shortest and the longest step on the largest number of devices; NULL: none. True: they are
 * apart. */
bool yoke_find_ends(const yoke_report *report, bool first_only, const yoke_report_mode **fast,
                    const yoke_report_mode **slow);
double yoke_mode_step_ms(const yoke_report_mode *mode);
/* Whether the intervals say that one of them is faster. */
bool yoke_are_apart(const yoke_report *report, const yoke_report_mode *fast,
                    const yoke_report_mode *slow);
/* The mean over the mode's devices. */
double yoke_mode_stage_ms(const yoke_report_mode *mode, int stage);
double yoke_mode_activity_ms(const yoke_report_mode *mode, yoke_activity activity);
/* At one place; what NULL: of every kind. */
double yoke_bytes_at(const yoke_report_amounts *amounts, const char *where, const char *what);
typedef struct yoke_place {
    const char *where; /* NULL: there is none */
    double bytes;
} yoke_place;
typedef struct yoke_extremes {
    yoke_place most, next, least; /* next: after the most */
} yoke_extremes;
yoke_extremes yoke_find_extremes(const yoke_report_amounts *amounts);
/* Spans shorter than this are left out; 0: none. */
double yoke_shortest_ms(yoke_html *out, const yoke_report *report);
extern const char *const yoke_curve_names[YOKE_REPORT_CURVES]; /* "test-loss" */
/* At most so many of the points of a curve are shown; `at` is their place among all. */
int yoke_shown_points(const yoke_report *report, const yoke_report_points *points);
const yoke_report_point *yoke_shown_point(const yoke_report_points *points, int shown, int i);
const yoke_report_point *yoke_last_point(const yoke_report_points *points); /* NULL: none */
/* Rows of this true class that the model took for `predicted`; all of the class. */
int64_t yoke_class_count(const yoke_predictions *predictions, int label, int predicted);
int64_t yoke_class_rows(const yoke_predictions *predictions, int label);

#endif
