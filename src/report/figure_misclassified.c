/* SPDX-License-Identifier: Apache-2.0 */
/* The wrong rows of the largest loss, with their pictures. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"
#include "report/figures.h"
#include "report/png.h"

#define MISCLASSIFIED_MAX 48

void yoke_figure_predictions(yoke_markup *out, const yoke_report *report) {
    const yoke_report_predictions *predictions = report->predictions;
    if (predictions == NULL) return;
    if (predictions->absent[0] != '\0') {
        yoke_html_figure_begin(out, "predictions",
                               "Accuracy by class, confusions, misclassified rows", true);
        yoke_figure_say(out, NULL, "%s", predictions->absent);
        yoke_html_figure_end(out);
        return;
    }
    yoke_figure_classes(out, predictions);
    yoke_figure_confusion(out, predictions);
    yoke_figure_misclassified(out, predictions);
}

/* "row 17: cat, taken for dog with 98 %". */
static void describe(const yoke_report_predictions *predictions,
                     const yoke_report_misclassified *misclassified, char text[256]) {
    char name[2][16], percent[64];
    snprintf(text, 256, "row %zu: %.80s, taken for %.80s with %s", misclassified->row,
             yoke_class_name(predictions, misclassified->label, name[0]),
             yoke_class_name(predictions, misclassified->predicted, name[1]),
             yoke_text_percent(misclassified->probability, 1, percent));
}

static void draw_picture(yoke_markup *out, const yoke_report_predictions *predictions,
                         const yoke_report_misclassified *misclassified) {
    char text[256];
    yoke_png_image image = {.pixels = misclassified->pixels,
                            .channels = predictions->channels,
                            .height = predictions->height,
                            .width = predictions->width};
    if (misclassified->pixels == NULL) return;
    char *uri = yoke_png_uri(&image);
    if (uri == NULL) {
        out->failed = true;
        return;
    }
    describe(predictions, misclassified, text);
    yoke_markup_open(out, "img");
    yoke_markup_attribute(out, "src", uri);
    yoke_markup_attribute(out, "alt", text);
    yoke_markup_close(out);
    yoke_free(uri);
}

static void draw(yoke_markup *out, const yoke_report_predictions *predictions, int count) {
    yoke_markup_open(out, "ul");
    yoke_markup_attribute(out, "class", "pictures");
    for (int i = 0; i < count; i++) {
        const yoke_report_misclassified *misclassified = &predictions->misclassified[i];
        char name[2][16], percent[64];
        yoke_markup_raw(out, "\n");
        yoke_markup_open(out, "li");
        draw_picture(out, predictions, misclassified);
        yoke_markup_element(out, "b", NULL,
                            yoke_class_name(predictions, misclassified->label, name[0]));
        yoke_markup_open(out, "br");
        yoke_markup_close(out);
        yoke_markup_format(out, "taken for %.80s, %s",
                           yoke_class_name(predictions, misclassified->predicted, name[1]),
                           yoke_text_percent(misclassified->probability, 1, percent));
        yoke_markup_open(out, "br");
        yoke_markup_close(out);
        yoke_markup_open(out, "span");
        yoke_markup_format(out, "row %zu", misclassified->row);
        yoke_markup_close(out);
        yoke_markup_close(out);
    }
    yoke_markup_close(out);
}

static void table(yoke_markup *out, const yoke_report_predictions *predictions, int count) {
    static const char *const headers[] = {"row", "class", "taken for", "with %", "loss"};
    char name[16], number[YOKE_NUMBER_BYTES];
    yoke_html_table_begin(out, "Data", "Wrong rows of the largest loss", headers, 5);
    for (int i = 0; i < count; i++) {
        const yoke_report_misclassified *misclassified = &predictions->misclassified[i];
        yoke_html_row_begin(out, yoke_decimal((double)misclassified->row, 0, number));
        yoke_html_cell(out, yoke_class_name(predictions, misclassified->label, name));
        yoke_html_cell(out, yoke_class_name(predictions, misclassified->predicted, name));
        yoke_html_cell(out, yoke_number(100 * misclassified->probability, number));
        yoke_html_cell(out, yoke_number(misclassified->loss, number));
        yoke_html_row_end(out);
    }
    yoke_html_table_end(out, "Data");
}

static void say_pictures(yoke_markup *out, const yoke_report_predictions *predictions) {
    bool reduced = predictions->height > YOKE_PNG_SIDE || predictions->width > YOKE_PNG_SIDE;
    const char *colours = predictions->channels == 1 || predictions->channels == 3
                              ? ""
                              : " They show the first channel of the row in grey.";
    yoke_figure_say(out, "meaning",
                    "Pixels as the dataset has them, before normalisation.%s%s Row: in the test "
                    "split, counted from 0. Loss: cross entropy of the row, without label "
                    "smoothing.",
                    reduced ? " The pictures are reduced." : "", colours);
}

void yoke_figure_misclassified(yoke_markup *out, const yoke_report_predictions *predictions) {
    const char *source = "src/train/predictions.c";
    int count = predictions->misclassified_count < MISCLASSIFIED_MAX
                    ? predictions->misclassified_count
                    : MISCLASSIFIED_MAX;
    char text[256], title[YOKE_TITLE_BYTES], number[YOKE_NUMBER_BYTES];
    if (count == 0) return; /* the confusion matrix says that nothing is wrong */
    describe(predictions, &predictions->misclassified[0], text);
    snprintf(title, sizeof title, "The worst misclassification is %s", text);
    yoke_html_figure_begin(out, "misclassified", title, true);
    yoke_figure_say(out, NULL,
                    "The %d wrong rows of the largest loss, the largest first: the true class in "
                    "bold, below it what the model took the row for, and how sure it was.",
                    count);
    yoke_figure_say(out, NULL, "%s: a loss of %s.", title,
                    yoke_number(predictions->misclassified[0].loss, number));
    draw(out, predictions, count);
    table(out, predictions, count);
    say_pictures(out, predictions);
    yoke_figure_sources(out, &source, 1);
    yoke_html_figure_end(out);
}
