/* SPDX-License-Identifier: Apache-2.0 */
/* The model of the page as JSON, which the script draws. */
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "base/base.h"
#include "pictures/pictures.h"
#include "report/sections.h"

/* What a text of the page shows, the JSON shows, too. */
static void put_text(yoke_json *json, const char *key, const char *text) {
    yoke_html shown = {0};
    yoke_html_shown(&shown, text);
    yoke_json_text(json, key, shown.text != NULL ? shown.text : "");
    json->failed |= shown.failed;
    yoke_html_end(&shown);
}

/* Seven digits are enough for a drawing. */
static void put_number(yoke_json *json, const char *key, double value) {
    double scale = pow(10, 6 - floor(log10(fabs(value))));
    bool short_enough = value == round(value) || !isnormal(scale) || !isfinite(value * scale);
    yoke_json_real(json, key, short_enough ? value : round(value * scale) / scale);
}

/* A list: 'n' is a number, 'i' an int64_t, 't' a text; NULL is null. */
static void put_row(yoke_json *json, const char *key, const char *kinds, ...) {
    va_list values;
    va_start(values, kinds);
    yoke_json_open(json, key, '[');
    for (; *kinds != '\0'; kinds++) {
        const char *text = *kinds == 't' ? va_arg(values, const char *) : NULL;
        if (*kinds == 'n')
            put_number(json, NULL, va_arg(values, double));
        else if (*kinds == 'i')
            yoke_json_integer(json, NULL, va_arg(values, int64_t));
        else if (text != NULL)
            put_text(json, NULL, text);
        else
            yoke_json_null(json, NULL);
    }
    yoke_json_close(json, ']');
    va_end(values);
}

static void put_interval(yoke_json *json, const char *key, yoke_report_interval figure) {
    if (figure.value > 0)
        put_row(json, key, "nnn", figure.value, figure.low > 0 ? figure.low : figure.value,
                figure.high > 0 ? figure.high : figure.value);
    else
        yoke_json_null(json, key);
}

static void put_span(yoke_json *json, const yoke_report_mode *mode, const yoke_report_span *of) {
    const yoke_span_info *span = &of->span;
    char cause[160];
    yoke_cause_text(mode, of, cause);
    put_row(json, NULL, "nntiit", 1e-6 * (double)span->begin_ns, 1e-6 * (double)span->end_ns,
            yoke_account_name((int)span->stage), (int64_t)span->bucket, (int64_t)span->bytes,
            cause[0] != '\0' ? cause : NULL);
}

static void put_lane(yoke_json *json, const yoke_report_mode *mode, const yoke_report_lane *lane,
                     double shortest_ms, int *left) {
    static const char *const kinds[] = {"device", "beside", "link"};
    yoke_json_open(json, NULL, '{');
    put_text(json, "name", lane->name);
    yoke_json_text(json, "kind", kinds[lane->kind]);
    yoke_json_open(json, "stage_ms", '{');
    for (int stage = 0; stage < YOKE_ACCOUNT_STAGES; stage++)
        if (lane->stage_ms[stage] > 0)
            put_number(json, yoke_account_name(stage), lane->stage_ms[stage]);
    yoke_json_close(json, '}');
    yoke_json_open(json, "spans", '[');
    for (int i = 0; i < lane->span_count; i++) {
        if (yoke_report_span_ms(&lane->spans[i]) < shortest_ms || *left == 0) continue;
        put_span(json, mode, &lane->spans[i]);
        --*left;
    }
    yoke_json_close(json, ']');
    yoke_json_close(json, '}');
}

static void put_amounts(yoke_json *json, const char *key, const yoke_report_amounts *amounts) {
    yoke_json_open(json, key, '[');
    for (int i = 0; i < amounts->count; i++) {
        put_row(json, NULL, "ttn", amounts->rows[i].where, amounts->rows[i].what,
                amounts->rows[i].bytes);
    }
    yoke_json_close(json, ']');
}

static void put_curves(yoke_json *json, const yoke_report *report, const yoke_report_mode *mode) {
    yoke_json_open(json, "curves", '{');
    for (int kind = 0; kind < YOKE_REPORT_CURVES; kind++) {
        const yoke_report_points *curve = &mode->curves[kind];
        int shown = yoke_shown_points(report, curve);
        if (shown == 0) continue;
        yoke_json_open(json, yoke_curve_names[kind], '[');
        for (int i = 0; i < shown; i++) {
            const yoke_report_point *point = yoke_shown_point(curve, shown, i);
            put_row(json, NULL, "nn", point->step, point->value);
        }
        yoke_json_close(json, ']');
    }
    yoke_json_close(json, '}');
}

static void put_modes(yoke_json *json, const yoke_report *report, double shortest_ms) {
    int spans = YOKE_SPANS_MAX, lanes = YOKE_LANES_MAX;
    yoke_json_open(json, "modes", '[');
    for (int m = 0; m < report->mode_count; m++) {
        const yoke_report_mode *mode = &report->modes[m];
        yoke_json_open(json, NULL, '{');
        put_text(json, "name", mode->name);
        put_text(json, "label", LABEL(report, mode));
        yoke_json_integer(json, "devices", mode->devices);
        yoke_json_boolean(json, "first", mode->first);
        put_interval(json, "step_ms", mode->step_ms);
        put_interval(json, "images_per_second", mode->images_per_second);
        put_interval(json, "speedup", mode->speedup);
        put_number(json, "mean_step_ms", mode->mean_step_ms);
        put_number(json, "median_ms", mode->median_ms);
        put_number(json, "shown_ms", mode->shown_ms);
        yoke_json_integer(json, "steps", mode->steps);
        put_text(json, "weights_hash", mode->weights_hash);
        yoke_json_open(json, "lanes", '[');
        for (int i = 0; i < mode->lane_count && lanes > 0; i++, lanes--)
            put_lane(json, mode, &mode->lanes[i], shortest_ms, &spans);
        yoke_json_close(json, ']');
        put_amounts(json, "memory", &mode->memory);
        put_amounts(json, "links", &mode->links);
        put_amounts(json, "moved", &mode->moved);
        put_curves(json, report, mode);
        yoke_json_close(json, '}');
    }
    yoke_json_close(json, ']');
}

static void put_misclassified(yoke_json *json, const yoke_report_predictions *from) {
    yoke_json_open(json, "misclassified", '[');
    for (int i = 0; i < yoke_shown_misclassified(from); i++) {
        const yoke_report_misclassified *row = &from->misclassified[i];
        yoke_png_image image = {row->pixels, from->channels, from->height, from->width};
        char *uri = row->pixels != NULL ? yoke_png_uri(&image) : NULL;
        json->failed |= row->pixels != NULL && uri == NULL;
        yoke_json_open(json, NULL, '{');
        yoke_json_integer(json, "row", (int64_t)row->row);
        yoke_json_integer(json, "label", row->label);
        yoke_json_integer(json, "predicted", row->predicted);
        put_number(json, "probability", row->probability);
        put_number(json, "loss", row->loss);
        yoke_json_text(json, "picture", uri); /* NULL: null */
        yoke_json_close(json, '}');
        yoke_free(uri);
    }
    yoke_json_close(json, ']');
}

static void put_counts(yoke_json *json, const yoke_report_predictions *from) {
    bool drawn = from->classes <= YOKE_CLASSES_MAX;
    if (drawn)
        yoke_json_open(json, "counts", '[');
    else
        yoke_json_null(json, "counts");
    for (int label = 0; label < from->classes && drawn; label++) {
        yoke_json_open(json, NULL, '[');
        for (int predicted = 0; predicted < from->classes; predicted++)
            yoke_json_integer(json, NULL, yoke_class_count(from, label, predicted));
        yoke_json_close(json, ']');
    }
    if (drawn) yoke_json_close(json, ']');
    yoke_json_open(json, "rows", '[');
    for (int i = 0; i < from->classes; i++)
        yoke_json_integer(json, NULL, yoke_class_rows(from, i));
    yoke_json_close(json, ']');
    yoke_json_open(json, "right", '[');
    for (int i = 0; i < from->classes; i++)
        yoke_json_integer(json, NULL, yoke_class_count(from, i, i));
    yoke_json_close(json, ']');
}

static void put_predictions(yoke_json *json, const yoke_report_predictions *from) {
    yoke_json_open(json, "predictions", '{');
    put_text(json, "absent", from->absent);
    if (from->absent[0] == '\0') {
        yoke_json_integer(json, "step", (int64_t)from->step);
        yoke_json_integer(json, "classes", from->classes);
        if (from->names != NULL)
            yoke_json_open(json, "names", '[');
        else
            yoke_json_null(json, "names");
        for (int i = 0; i < from->classes && from->names != NULL; i++)
            put_text(json, NULL, from->names[i]);
        if (from->names != NULL) yoke_json_close(json, ']');
        put_counts(json, from);
        put_misclassified(json, from);
    }
    yoke_json_close(json, '}');
}

static void put_list(yoke_json *json, const char *key, const double *values, int count) {
    yoke_json_open(json, key, '[');
    for (int i = 0; i < count; i++)
        put_number(json, NULL, values[i]);
    yoke_json_close(json, ']');
}

void yoke_page_json(yoke_html *out, const yoke_report *report, const char *title) {
    const yoke_report_rates *rates = report->rates;
    yoke_json json;
    yoke_json_begin(&json);
    yoke_json_open(&json, NULL, '{');
    yoke_json_integer(&json, "yoke_page", 1);
    put_text(&json, "title", title);
    put_text(&json, "subject", report->subject);
    yoke_json_boolean(&json, "simulated", report->simulated);
    yoke_json_boolean(&json, "no_verdict", report->no_verdict);
    put_text(&json, "interval", report->interval);
    put_text(&json, "link", report->link);
    put_modes(&json, report, yoke_shortest_ms(out, report));
    if (report->predictions != NULL) put_predictions(&json, report->predictions);
    if (rates != NULL) {
        yoke_json_open(&json, "rates", '{');
        put_list(&json, "rates", rates->rates, rates->count);
        put_list(&json, "losses", rates->losses, rates->count);
        put_list(&json, "smoothed", rates->smoothed, rates->count);
        yoke_json_integer(&json, "suggested", rates->suggested);
        put_number(&json, "cautious", rates->cautious);
        yoke_json_close(&json, '}');
    }
    yoke_json_close(&json, '}');
    out->failed |= json.failed;
    if (!json.failed) yoke_html_json(out, json.text);
    yoke_json_end(&json);
}
