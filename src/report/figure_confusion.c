/* SPDX-License-Identifier: Apache-2.0 */
/* Which classes the model takes for which. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"
#include "report/figures.h"

#define DRAWN_CLASSES 100 /* with more, the table of confusions is all there is */
#define TABLE_CLASSES 20  /* with more, a table of confusions stands in the open, too */
#define CONFUSIONS 15

typedef struct confusion {
    int label, predicted;
    int64_t count;
} confusion;

/* Finds the most frequent confusions: the largest count first, equal counts in the order of the
 * classes. Returns how many there are, CONFUSIONS at most. */
static int find_confusions(const yoke_report_predictions *predictions, confusion most[CONFUSIONS]) {
    int found = 0, classes = predictions->classes;
    for (int label = 0; label < classes; label++) {
        for (int predicted = 0; predicted < classes; predicted++) {
            int64_t count = yoke_class_count(predictions, label, predicted);
            int place = found;
            if (label == predicted || count == 0) continue;
            while (place > 0 && most[place - 1].count < count)
                place--;
            if (place == CONFUSIONS) continue;
            if (found < CONFUSIONS) found++;
            for (int i = found - 1; i > place; i--)
                most[i] = most[i - 1];
            most[place] = (confusion){label, predicted, count};
        }
    }
    return found;
}

static void write_title(const yoke_report_predictions *predictions, const confusion *most,
                        int found, char text[YOKE_TITLE_BYTES]) {
    char name[2][16];
    if (found > 0)
        snprintf(text, YOKE_TITLE_BYTES, "Most often the model takes %.80s for %.80s",
                 yoke_class_name(predictions, most->label, name[0]),
                 yoke_class_name(predictions, most->predicted, name[1]));
    else
        snprintf(text, YOKE_TITLE_BYTES, "The model confuses no two classes");
}

static void say(yoke_markup *out, const yoke_report_predictions *predictions, const confusion *most,
                const char *title, int found) {
    char back[256] = "", percent[64];
    if (found == 0) {
        yoke_figure_say(out, NULL, "%s.", title);
        return;
    }
    int64_t wrong = 0;
    for (int label = 0; label < predictions->classes; label++)
        wrong += yoke_class_rows(predictions, label) - yoke_class_count(predictions, label, label);
    int64_t reverse = yoke_class_count(predictions, most->predicted, most->label);
    if (reverse > 0) snprintf(back, sizeof back, "; the other way round, %" PRId64, reverse);
    yoke_figure_say(out, NULL, "%s: %" PRId64 " of the %" PRId64 " wrong rows (%s)%s.", title,
                    most->count, wrong,
                    yoke_text_percent((double)most->count, (double)wrong, percent), back);
}

static void draw(yoke_markup *out, const yoke_report_predictions *predictions,
                 const char *const *names) {
    yoke_svg_matrix matrix = {
        .head = {"confusion-chart", "Confusion matrix",
                 "A cell for each true class and each predicted class: the darker, the larger the "
                 "share of the rows of the true class. The data follow as a table."},
        .axes = "row: true class; column: predicted class",
        .names = names,
        .values = predictions->counts,
        .count = predictions->classes};
    yoke_html_chart_begin(out, matrix.head.title, false);
    yoke_svg_draw_matrix(out, &matrix);
    yoke_html_chart_end(out);
}

static void confusion_table(yoke_markup *out, const yoke_report_predictions *predictions,
                            const confusion *most, int found) {
    static const char *const headers[] = {"true class", "taken for", "rows", "% of the class"};
    char name[16], number[YOKE_NUMBER_BYTES];
    yoke_html_table_begin(out, NULL, "The most frequent confusions", headers, 4);
    for (int i = 0; i < found; i++) {
        double rows = (double)yoke_class_rows(predictions, most[i].label);
        yoke_html_row_begin(out, yoke_class_name(predictions, most[i].label, name));
        yoke_html_cell(out, yoke_class_name(predictions, most[i].predicted, name));
        yoke_html_cell(out, yoke_decimal((double)most[i].count, 0, number));
        yoke_html_cell(out, yoke_number(100 * (double)most[i].count / rows, number));
        yoke_html_row_end(out);
    }
    yoke_html_table_end(out, NULL);
}

/* Zeros stay empty. */
static void data_table(yoke_markup *out, const yoke_report_predictions *predictions,
                       const char *const *names) {
    const char *headers[DRAWN_CLASSES + 1] = {"true class"};
    char number[YOKE_NUMBER_BYTES];
    int classes = predictions->classes;
    for (int i = 0; i < classes; i++)
        headers[i + 1] = names[i];
    yoke_html_table_begin(out, "Data", "Rows of the test split by true and predicted class",
                          headers, classes + 1);
    for (int label = 0; label < classes; label++) {
        yoke_html_row_begin(out, names[label]);
        for (int predicted = 0; predicted < classes; predicted++) {
            int64_t count = yoke_class_count(predictions, label, predicted);
            yoke_html_cell(out, count > 0 ? yoke_decimal((double)count, 0, number) : "");
        }
        yoke_html_row_end(out);
    }
    yoke_html_table_end(out, "Data");
}

void yoke_figure_confusion(yoke_markup *out, const yoke_report_predictions *predictions) {
    const char *source = "src/train/predictions.c";
    confusion most[CONFUSIONS];
    int found = find_confusions(predictions, most);
    bool drawn = predictions->classes <= DRAWN_CLASSES;
    const char **names = yoke_class_names(out, predictions);
    if (names == NULL) return;
    char title[YOKE_TITLE_BYTES];
    write_title(predictions, most, found, title);
    yoke_html_figure_begin(out, "confusion", title, false);
    say(out, predictions, most, title, found);
    if (drawn) draw(out, predictions, names);
    if (predictions->classes > TABLE_CLASSES) confusion_table(out, predictions, most, found);
    if (drawn) data_table(out, predictions, names);
    yoke_figure_say(out, "meaning",
                    "Counts of rows of the test split. The colour is the share of the rows of the "
                    "true class%s.",
                    drawn ? "" : "; more classes than 100 are not drawn");
    yoke_figure_sources(out, &source, 1);
    yoke_html_figure_end(out);
    yoke_free(names);
}
