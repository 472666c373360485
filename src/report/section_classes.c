/* SPDX-License-Identifier: Apache-2.0 */
/* How well the model knows each class, which classes it takes for which, and the wrong rows of the
 * largest loss. */
#include <stdio.h>

#include "base/base.h"
#include "pictures/pictures.h"
#include "report/sections.h"

#define TABLE_CLASSES 20 /* with more, a table of confusions stands in the open, too */
#define CONFUSIONS 15

const char *yoke_class_name(const yoke_predictions *predictions, int index, char text[16]) {
    if (predictions->class_names != NULL) return predictions->class_names[index];
    snprintf(text, 16, "%d", index);
    return text;
}

int64_t yoke_class_count(const yoke_predictions *predictions, int label, int predicted) {
    return predictions->counts[(size_t)label * (size_t)predictions->classes + (size_t)predicted];
}

static int64_t sum_of(const yoke_predictions *predictions, int first, int stride) {
    int64_t sum = 0;
    for (int i = 0; i < predictions->classes; i++)
        sum += predictions->counts[(size_t)first + (size_t)i * (size_t)stride];
    return sum;
}

int64_t yoke_class_rows(const yoke_predictions *predictions, int label) {
    return sum_of(predictions, label * predictions->classes, 1);
}

/* "75.0"; "": of nothing. */
#define SHARE(part, whole) ((whole) > 0 ? NUMBER(100 * (double)(part) / (double)(whole)) : "")

static double accuracy_of(const yoke_predictions *predictions, int label) {
    int64_t rows = yoke_class_rows(predictions, label);
    return rows > 0 ? (double)yoke_class_count(predictions, label, label) / (double)rows : -1;
}

/* A confusion is a place among all counts: a true class and the other one that the model takes it
 * for. The one behind `last`: the largest count first, equal counts in the order of the classes.
 * -1: before the first, behind the last. */
static int next_confusion(const yoke_predictions *predictions, int last) {
    int next = -1, classes = predictions->classes;
    const int64_t *counts = predictions->counts;
    for (int i = 0; i < classes * classes; i++) {
        bool behind =
            last < 0 || counts[i] < counts[last] || (counts[i] == counts[last] && i > last);
        if (behind && i / classes != i % classes && counts[i] > (next < 0 ? 0 : counts[next]))
            next = i;
    }
    return next;
}

static void say_class(yoke_html *out, const yoke_predictions *predictions, int label,
                      const char *which) {
    int64_t right = yoke_class_count(predictions, label, label);
    int64_t rows = yoke_class_rows(predictions, label);
    SAY(out, "The class that the model knows %s is %.80s: %s %%, %s of %s rows right.", which,
        CLASS(predictions, label), SHARE(right, rows), COUNT(right), COUNT(rows));
}

static void write_classes(yoke_html *out, const yoke_predictions *predictions) {
    int64_t right = 0, rows = 0;
    int least = -1, best = -1;
    for (int i = 0; i < predictions->classes; i++) {
        double accuracy = accuracy_of(predictions, i);
        right += yoke_class_count(predictions, i, i);
        rows += yoke_class_rows(predictions, i);
        if (accuracy < 0) continue; /* a class without rows is neither */
        if (least < 0 || accuracy < accuracy_of(predictions, least)) least = i;
        if (best < 0 || accuracy >= accuracy_of(predictions, best)) best = i;
    }
    if (least < 0) least = best = 0;
    int64_t own = yoke_class_count(predictions, least, least);
    yoke_section_begin(out, "classes",
                       TEXT("%s %% of the test rows are right, of class %.80s only %s %%",
                            SHARE(right, rows), CLASS(predictions, least),
                            SHARE(own, yoke_class_rows(predictions, least))),
                       false);
    SAY(out, "After step %s the model classifies %s of %s rows of the test split correctly: %s %%.",
        COUNT(predictions->step), COUNT(right), COUNT(rows), SHARE(right, rows));
    say_class(out, predictions, least, "least");
    if (best != least) say_class(out, predictions, best, "best");
    yoke_table table = yoke_data_begin(out, "classes", "class");
    for (int i = 0; i < predictions->classes; i++) {
        int64_t of = yoke_class_rows(predictions, i),
                taken = sum_of(predictions, i, predictions->classes);
        own = yoke_class_count(predictions, i, i);
        yoke_table_row(&table, CLASS(predictions, i));
        yoke_table_cell(&table, "rows", COUNT(of));
        yoke_table_cell(&table, "right", COUNT(own));
        yoke_table_cell(&table, "accuracy %", SHARE(own, of));
        yoke_table_cell(&table, "predicted", COUNT(taken));
        yoke_table_cell(&table, "precision %", SHARE(own, taken));
    }
    yoke_table_end(&table);
    yoke_section_end(out, "classes", "");
}

/* Confusions. */

static void write_confusions(yoke_html *out, const yoke_predictions *predictions,
                             const char *figure) {
    yoke_table table =
        yoke_table_begin(out, figure, NULL, "The most frequent confusions", "true class");
    int classes = predictions->classes, at = next_confusion(predictions, -1);
    for (int i = 0; i < CONFUSIONS && at >= 0; i++, at = next_confusion(predictions, at)) {
        int64_t count = predictions->counts[at];
        yoke_table_row(&table, CLASS(predictions, at / classes));
        yoke_table_cell(&table, "taken for", CLASS(predictions, at % classes));
        yoke_table_cell(&table, "rows", COUNT(count));
        yoke_table_cell(&table, "% of the class",
                        SHARE(count, yoke_class_rows(predictions, at / classes)));
    }
    yoke_table_end(&table);
}

/* Zeros stay empty. */
static void write_counts(yoke_html *out, const yoke_predictions *predictions, const char *figure) {
    yoke_table table =
        yoke_table_begin(out, figure, "Data", WORDS("confusion", "caption"), "true class");
    for (int i = 0; i < predictions->classes; i++)
        yoke_table_column(&table, CLASS(predictions, i));
    for (int label = 0; label < predictions->classes; label++) {
        yoke_table_row(&table, CLASS(predictions, label));
        for (int i = 0; i < predictions->classes; i++) {
            int64_t count = yoke_class_count(predictions, label, i);
            yoke_table_put(&table, i + 1, count > 0 ? COUNT(count) : "");
        }
    }
    yoke_table_end(&table);
}

static void write_confusion(yoke_html *out, const yoke_predictions *predictions) {
    int classes = predictions->classes, most = next_confusion(predictions, -1);
    bool any = most >= 0, drawn = classes <= YOKE_CLASSES_MAX;
    int64_t wrong = 0;
    for (int label = 0; label < classes; label++)
        wrong += yoke_class_rows(predictions, label) - yoke_class_count(predictions, label, label);
    const char *title =
        any ? TEXT("Most often the model takes %.80s for %.80s", CLASS(predictions, most / classes),
                   CLASS(predictions, most % classes))
            : "The model confuses no two classes";
    yoke_section_begin(out, "confusion", title, false);
    if (any)
        SAY(out, "%s: %s of the %s wrong rows (%s).", title, COUNT(predictions->counts[most]),
            COUNT(wrong), PERCENT((double)predictions->counts[most], (double)wrong));
    else
        SAY(out, "%s.", title);
    const char *figure = drawn ? "confusion" : NULL; /* before the first table */
    if (classes > TABLE_CLASSES) write_confusions(out, predictions, figure);
    if (drawn) write_counts(out, predictions, classes > TABLE_CLASSES ? NULL : figure);
    yoke_section_end(out, "confusion", drawn ? "" : "The matrix shows at most 100 classes.");
}

/* Misclassified rows. */

static void write_misclassified(yoke_html *out, const yoke_report *report) {
    const yoke_predictions *predictions = report->predictions;
    const yoke_misclassified *worst = report->misclassified;
    bool reduced =
        predictions->shape.height > YOKE_PNG_SIDE || predictions->shape.width > YOKE_PNG_SIDE;
    bool grey = predictions->shape.channels != 1 && predictions->shape.channels != 3;
    if (predictions->misclassified == 0) return; /* the confusions say that nothing is wrong */
    const char *title =
        TEXT("The worst misclassification is row %zu: %.80s, taken for %.80s with %s", worst->row,
             CLASS(predictions, worst->label), CLASS(predictions, worst->predicted),
             PERCENT(worst->probability, 1));
    yoke_section_begin(out, "misclassified", title, true);
    SAY(out, "%s: a loss of %s.", title, NUMBER(worst->loss));
    yoke_table table = yoke_data_begin(out, "misclassified", "row");
    for (const yoke_misclassified *wrong = worst; wrong < worst + predictions->misclassified;
         wrong++) {
        yoke_table_row(&table, COUNT(wrong->row));
        yoke_table_cell(&table, "class", CLASS(predictions, wrong->label));
        yoke_table_cell(&table, "taken for", CLASS(predictions, wrong->predicted));
        yoke_table_cell(&table, "with %", NUMBER(100 * wrong->probability));
        yoke_table_cell(&table, "loss", NUMBER(wrong->loss));
    }
    yoke_table_end(&table);
    yoke_section_end(out, "misclassified",
                     TEXT("%s%s%s", reduced ? "The pictures are reduced." : "",
                          reduced && grey ? " " : "",
                          grey ? "They show the first channel of the row in grey." : ""));
}

void yoke_section_predictions(yoke_html *out, const yoke_report *report) {
    const yoke_predictions *predictions = report->predictions;
    if (predictions == NULL) return;
    if (predictions->counts == NULL) {
        yoke_section_begin(out, "predictions", "Accuracy by class, confusions, misclassified rows",
                           true);
        yoke_section_end(out, "predictions", report->no_counts);
        return;
    }
    write_classes(out, predictions);
    write_confusion(out, predictions);
    write_misclassified(out, report);
}
