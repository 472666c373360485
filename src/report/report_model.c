/* SPDX-License-Identifier: Apache-2.0 */
/* The model of a report: arrays that grow, freed as one. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "report/sections.h"

void *yoke_report_grow(void **array, int *count, size_t size) {
    size_t used = (size_t)*count;
    if ((used & (used - 1)) == 0) {
        void *larger = yoke_realloc(*array, (used == 0 ? 1 : 2 * used) * size);
        if (larger == NULL) return NULL;
        *array = larger;
    }
    void *place = (char *)*array + used * size;
    memset(place, 0, size);
    ++*count;
    return place;
}

#define COPY(target, text) snprintf((target), sizeof(target), "%s", (text))

static yoke_status no_memory(void) {
    return FAIL(YOKE_ERROR_MEMORY, "out of memory for a report");
}

void yoke_report_add_fact(yoke_report *report, const char *key, const char *format, ...) {
    yoke_report_fact *fact = GROW(report->facts, report->fact_count);
    va_list arguments;
    report->failed |= fact == NULL;
    if (fact == NULL) return;
    COPY(fact->key, key);
    va_start(arguments, format);
    if (vsnprintf(fact->value, sizeof fact->value, format, arguments) == 0) report->fact_count--;
    va_end(arguments);
}

void yoke_report_add_note(yoke_report *report, const char *format, ...) {
    char *note = (char *)GROW(report->notes, report->note_count);
    va_list arguments;
    report->failed |= note == NULL;
    if (note == NULL) return;
    va_start(arguments, format);
    vsnprintf(note, sizeof report->notes[0], format, arguments);
    va_end(arguments);
}

yoke_status yoke_report_add_mode(yoke_report *report, const char *name, yoke_report_mode **mode) {
    *mode = GROW(report->modes, report->mode_count);
    if (*mode == NULL) return no_memory();
    COPY((*mode)->name, name);
    return YOKE_OK;
}

yoke_status yoke_report_add_lane(yoke_report_mode *mode, const char *name,
                                 yoke_report_lane **lane) {
    *lane = GROW(mode->lanes, mode->lane_count);
    if (*lane == NULL) return no_memory();
    COPY((*lane)->name, name);
    return YOKE_OK;
}

double yoke_report_span_ms(const yoke_report_span *span) {
    return 1e-6 * (double)span->span.end_ns - 1e-6 * (double)span->span.begin_ns;
}

yoke_status yoke_report_add_span(yoke_report_lane *lane, const yoke_report_span *span) {
    yoke_report_span *place = GROW(lane->spans, lane->span_count);
    if (place == NULL) return no_memory();
    *place = *span;
    return YOKE_OK;
}

yoke_status yoke_report_add_amount(yoke_report_amounts *amounts, const char *where,
                                   const char *what, double bytes) {
    for (int i = 0; i < amounts->count; i++) {
        yoke_report_amount *known = &amounts->rows[i];
        if (strcmp(known->what, what) != 0 || strcmp(known->where, where) != 0) continue;
        known->bytes += bytes;
        return YOKE_OK;
    }
    yoke_report_amount *amount = GROW(amounts->rows, amounts->count);
    if (amount == NULL) return no_memory();
    COPY(amount->where, where);
    COPY(amount->what, what);
    amount->bytes = bytes;
    return YOKE_OK;
}

yoke_status yoke_report_add_link(yoke_report_mode *mode, const char *where, double sent,
                                 double received) {
    if (sent > 0) TRY(yoke_report_add_amount(&mode->links, where, "out", sent));
    if (!(received > 0)) return YOKE_OK;
    return yoke_report_add_amount(&mode->links, where, "in", received);
}

void yoke_report_clear_amounts(yoke_report_amounts *amounts) {
    yoke_free(amounts->rows);
    *amounts = (yoke_report_amounts){0};
}

yoke_status yoke_report_add_point(yoke_report_points *points, double step, double value) {
    yoke_report_point *point = GROW(points->points, points->count);
    if (point == NULL) return no_memory();
    *point = (yoke_report_point){step, value};
    return YOKE_OK;
}

void yoke_report_clear(yoke_report *report) {
    for (int m = 0; m < report->mode_count; m++) {
        yoke_report_mode *mode = &report->modes[m];
        for (int i = 0; i < mode->lane_count; i++)
            yoke_free(mode->lanes[i].spans);
        yoke_free(mode->lanes);
        yoke_report_clear_amounts(&mode->memory);
        yoke_report_clear_amounts(&mode->links);
        yoke_report_clear_amounts(&mode->moved);
        for (int i = 0; i < YOKE_REPORT_CURVES; i++)
            yoke_free(mode->curves[i].points);
    }
    yoke_free(report->modes);
    yoke_free(report->facts);
    yoke_free(report->notes);
    *report = (yoke_report){0};
}
