/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes: in each device's memory by category, over each device's link, and moved in memory. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "report/sections.h"

#define ALIKE 0.02 /* a difference below this share is not worth a word */

/* What one of the figures is about. */
typedef struct subject {
    const char *id, *owner, *verb; /* "the link of " a device "carries" */
    size_t offset;                 /* of the amounts in a mode */
} subject;

static const yoke_report_amounts *amounts_of(const subject *of, const yoke_report_mode *mode) {
    return (const yoke_report_amounts *)(const void *)((const char *)mode + of->offset);
}

double yoke_bytes_at(const yoke_report_amounts *amounts, const char *where, const char *what) {
    double sum = 0;
    for (int i = 0; i < amounts->count; i++)
        if (strcmp(amounts->rows[i].where, where) == 0 &&
            (what == NULL || strcmp(amounts->rows[i].what, what) == 0))
            sum += amounts->rows[i].bytes;
    return sum;
}

static bool is_first_of_place(const yoke_report_amounts *amounts, int row) {
    for (int i = 0; i < row; i++)
        if (strcmp(amounts->rows[i].where, amounts->rows[row].where) == 0) return false;
    return true;
}

yoke_extremes yoke_find_extremes(const yoke_report_amounts *amounts) {
    yoke_extremes found = {.most = {NULL, 0}};
    for (int i = 0; i < amounts->count; i++) {
        if (!is_first_of_place(amounts, i)) continue;
        const char *where = amounts->rows[i].where;
        yoke_place place = {where, yoke_bytes_at(amounts, where, NULL)};
        bool more = found.most.where == NULL || place.bytes > found.most.bytes;
        if (more) found.next = found.most;
        if (more) found.most = place;
        if (!more && (found.next.where == NULL || place.bytes > found.next.bytes))
            found.next = place;
        if (found.least.where == NULL || place.bytes < found.least.bytes) found.least = place;
    }
    return found;
}

/* Where there are several places. Of links the busiest is compared with the next one: the root's
 * may be alone. In DDP no rank is a root, and then all links carry the same. */
static void say_extremes(yoke_html *out, const subject *of, const char *label,
                         const yoke_extremes *found, const char *first) {
    bool links = of->owner[0] != '\0';
    double high = found->most.bytes;
    yoke_place other = links ? found->next : found->least;
    if (high - found->least.bytes < ALIKE * high)
        SAY(out, "%s: every %s %s about %s.", label, links ? "link" : "device", of->verb,
            BYTES(high));
    else
        SAY(out, "%s: %s%s%s %s most, %s: %s times as much as %s%s.", label, of->owner,
            found->most.where, links && found->most.where == first ? ", the root," : "", of->verb,
            BYTES(high), DECIMAL(high / other.bytes, 1), links ? "that of " : "", other.where);
}

/* The mode whose devices differ most, "In dp classic cpu:0 holds 2.1 times as much as cpu:1";
 * where all are alike, the subject. */
static void write_title(const yoke_report *report, const subject *of, char text[YOKE_TEXT_BYTES]) {
    double most = 1 + ALIKE;
    snprintf(text, YOKE_TEXT_BYTES, "%s", WORDS(of->id, "title"));
    FOR_MODES (report, mode) {
        yoke_extremes found = yoke_find_extremes(amounts_of(of, mode));
        double ratio = found.most.bytes / found.least.bytes;
        if (!isfinite(ratio) || ratio <= most) continue;
        most = ratio;
        snprintf(text, YOKE_TEXT_BYTES, "In %s %s%s %s %s times as much as %s%s",
                 LABEL(report, mode), of->owner, found.most.where, of->verb, DECIMAL(ratio, 2),
                 of->owner[0] != '\0' ? "that of " : "", found.least.where);
    }
}

/* A row for each place of each mode, a column for each kind. Returns the number of places. */
static int fill_table(yoke_table *table, const yoke_report *report, const subject *of) {
    int places = 0;
    FOR_MODES (report, mode) /* columns in the order of kinds */
        for (int i = 0; i < amounts_of(of, mode)->count; i++)
            yoke_table_cell(table, amounts_of(of, mode)->rows[i].what, "");
    int kinds = table->column_count;
    FOR_MODES (report, mode) {
        const yoke_report_amounts *amounts = amounts_of(of, mode);
        for (int i = 0; i < amounts->count; i++) {
            const char *where = amounts->rows[i].where;
            if (!is_first_of_place(amounts, i) || places++ >= YOKE_DEVICES_MAX) continue;
            yoke_table_row(table, TEXT("%s, %s", LABEL(report, mode), where));
            for (int k = 1; k < kinds && table->columns[k] != NULL; k++)
                yoke_table_put(table, k, BYTES(yoke_bytes_at(amounts, where, table->columns[k])));
            yoke_table_cell(table, "sum", BYTES(yoke_bytes_at(amounts, where, NULL)));
        }
    }
    return places;
}

static void write_section(yoke_html *out, const yoke_report *report, const subject *of) {
    char title[YOKE_TEXT_BYTES];
    int any = 0, said = 0;
    FOR_MODES (report, mode)
        any += amounts_of(of, mode)->count;
    if (any == 0) return;
    write_title(report, of, title);
    yoke_section_begin(out, of->id, title, false);
    FOR_MODES (report, mode) {
        yoke_extremes found = yoke_find_extremes(amounts_of(of, mode));
        if (found.next.where != NULL && said++ < YOKE_SAID_MAX)
            say_extremes(out, of, LABEL(report, mode), &found, amounts_of(of, mode)->rows[0].where);
    }
    yoke_table table = yoke_data_begin(out, of->id, "");
    int places = fill_table(&table, report, of);
    yoke_table_end(&table);
    yoke_say_left_out(out, YOKE_DEVICES_MAX, places, "devices");
    if (of->owner[0] != '\0' && report->link[0] != '\0')
        SAY(out, "The link of each device: %s, modelled.", report->link);
    yoke_section_end(out, of->id, "");
}

void yoke_section_amounts(yoke_html *out, const yoke_report *report) {
    static const subject subjects[] = {
        {"memory", "", "holds", offsetof(yoke_report_mode, memory)},
        {"links", "the link of ", "carries", offsetof(yoke_report_mode, links)},
        {"moved", "", "moves", offsetof(yoke_report_mode, moved)}};
    for (size_t i = 0; i < sizeof subjects / sizeof subjects[0]; i++)
        write_section(out, report, &subjects[i]);
}
