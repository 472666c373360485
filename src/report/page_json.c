/* SPDX-License-Identifier: Apache-2.0 */
/* The model of the page as JSON, which the script draws. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
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

/* Fields of the open object, "key:kind ...", or, of the kind ":kind ...", a list: 'n' is a number,
 * 'd' an int, 'i' an int64_t, 'b' a bool, 't' a text, NULL: null; 'f' an interval. */
static void put(yoke_json *json, const char *list, const char *fields, ...);

static void put_value(yoke_json *json, const char *key, char kind, va_list *values) {
    const char *text = kind == 't' ? va_arg(*values, const char *) : NULL;
    yoke_report_interval of = {0};
    if (kind == 'f') of = va_arg(*values, yoke_report_interval);
    if (kind == 'n')
        put_number(json, key, va_arg(*values, double));
    else if (kind == 'd')
        yoke_json_integer(json, key, va_arg(*values, int));
    else if (kind == 'i')
        yoke_json_integer(json, key, va_arg(*values, int64_t));
    else if (kind == 'b')
        yoke_json_boolean(json, key, va_arg(*values, int));
    else if (text != NULL)
        put_text(json, key, text);
    else if (of.value > 0)
        put(json, key, ":n :n :n", of.value, of.low > 0 ? of.low : of.value,
            of.high > 0 ? of.high : of.value);
    else
        yoke_json_null(json, key);
}

static void put(yoke_json *json, const char *list, const char *fields, ...) {
    char key[32];
    va_list values;
    va_start(values, fields);
    if (fields[0] == ':') yoke_json_open(json, list, '[');
    for (const char *at = fields, *end; *at != '\0'; at = end + strspn(end, " ")) {
        end = at + strcspn(at, " ");
        snprintf(key, sizeof key, "%.*s", (int)(end - at) - 2, at);
        put_value(json, key[0] != '\0' ? key : NULL, end[-1], &values);
    }
    if (fields[0] == ':') yoke_json_close(json, ']');
    va_end(values);
}

/* A list of `count` elements, each written by the statement from its number i. */
#define PUT_LIST(json, key, count, statement)                                                      \
    do {                                                                                           \
        yoke_json_open(json, key, '[');                                                            \
        for (int i = 0; i < (count); i++)                                                          \
            statement;                                                                             \
        yoke_json_close(json, ']');                                                                \
    } while (false)

static void put_span(yoke_json *json, const yoke_report_mode *mode, const yoke_report_span *of) {
    const yoke_span_info *span = &of->span;
    char cause[160];
    yoke_cause_text(mode, of, cause);
    put(json, NULL, ":n :n :t :d :i :t", 1e-6 * (double)span->begin_ns, 1e-6 * (double)span->end_ns,
        yoke_account_name((int)span->stage), span->bucket, (int64_t)span->bytes,
        cause[0] != '\0' ? cause : NULL);
}

static void put_lane(yoke_json *json, const yoke_report_mode *mode, const yoke_report_lane *lane,
                     double shortest_ms, int *left) {
    static const char *const kinds[] = {"device", "beside", "link"};
    yoke_json_open(json, NULL, '{');
    put(json, NULL, "name:t kind:t", lane->name, kinds[lane->kind]);
    yoke_json_open(json, "stage_ms", '{');
    for (int stage = 0; stage < YOKE_ACCOUNT_STAGES; stage++)
        if (lane->stage_ms[stage] > 0)
            put_number(json, yoke_account_name(stage), lane->stage_ms[stage]);
    yoke_json_close(json, '}');
    PUT_LIST(json, "spans", lane->span_count,
             if (yoke_report_span_ms(&lane->spans[i]) >= shortest_ms && --*left >= 0)
                 put_span(json, mode, &lane->spans[i]));
    yoke_json_close(json, '}');
}

static void put_amounts(yoke_json *json, const char *key, const yoke_report_amounts *of) {
    PUT_LIST(json, key, of->count,
             put(json, NULL, ":t :t :n", of->rows[i].where, of->rows[i].what, of->rows[i].bytes));
}

static void put_curves(yoke_json *json, const yoke_report *report, const yoke_report_mode *mode) {
    yoke_json_open(json, "curves", '{');
    for (int kind = 0; kind < YOKE_REPORT_CURVES; kind++) {
        const yoke_report_points *curve = &mode->curves[kind];
        int shown = yoke_shown_points(report, curve);
        if (shown == 0) continue;
        PUT_LIST(json, yoke_curve_names[kind], shown,
                 put(json, NULL, ":n :n", yoke_shown_point(curve, shown, i)->step,
                     yoke_shown_point(curve, shown, i)->value));
    }
    yoke_json_close(json, '}');
}

static void put_modes(yoke_json *json, const yoke_report *report, double shortest_ms) {
    int spans = YOKE_SPANS_MAX, lanes = YOKE_LANES_MAX;
    yoke_json_open(json, "modes", '[');
    FOR_MODES (report, mode) {
        yoke_json_open(json, NULL, '{');
        put(json, NULL,
            "name:t label:t devices:d first:b step_ms:f images_per_second:f speedup:f "
            "mean_step_ms:n median_ms:n shown_ms:n steps:d weights_hash:t",
            mode->name, LABEL(report, mode), mode->devices, mode->first, mode->step_ms,
            mode->images_per_second, mode->speedup, mode->mean_step_ms, mode->median_ms,
            mode->shown_ms, mode->steps, mode->weights_hash);
        int count = mode->lane_count < lanes ? mode->lane_count : lanes;
        PUT_LIST(json, "lanes", count, put_lane(json, mode, &mode->lanes[i], shortest_ms, &spans));
        lanes -= count;
        put_amounts(json, "memory", &mode->memory);
        put_amounts(json, "links", &mode->links);
        put_amounts(json, "moved", &mode->moved);
        put_curves(json, report, mode);
        yoke_json_close(json, '}');
    }
    yoke_json_close(json, ']');
}

static void put_misclassified(yoke_json *json, const yoke_report_predictions *from,
                              const yoke_report_misclassified *row) {
    yoke_png_image image = {row->pixels, from->channels, from->height, from->width};
    char *uri = row->pixels != NULL ? yoke_png_uri(&image) : NULL;
    json->failed |= row->pixels != NULL && uri == NULL;
    yoke_json_open(json, NULL, '{');
    put(json, NULL, "row:i label:d predicted:d probability:n loss:n picture:t", (int64_t)row->row,
        row->label, row->predicted, row->probability, row->loss, uri);
    yoke_json_close(json, '}');
    yoke_free(uri);
}

static void put_counts(yoke_json *json, const yoke_report_predictions *from, int label) {
    PUT_LIST(json, NULL, from->classes,
             yoke_json_integer(json, NULL, yoke_class_count(from, label, i)));
}

static void put_predictions(yoke_json *json, const yoke_report_predictions *from) {
    put(json, NULL, "absent:t", from->absent);
    if (from->absent[0] != '\0') return;
    put(json, NULL, "step:i classes:d", (int64_t)from->step, from->classes);
    if (from->names != NULL)
        PUT_LIST(json, "names", from->classes, put_text(json, NULL, from->names[i]));
    else
        yoke_json_null(json, "names");
    if (from->classes <= YOKE_CLASSES_MAX)
        PUT_LIST(json, "counts", from->classes, put_counts(json, from, i));
    else
        yoke_json_null(json, "counts");
    PUT_LIST(json, "rows", from->classes, yoke_json_integer(json, NULL, yoke_class_rows(from, i)));
    PUT_LIST(json, "right", from->classes,
             yoke_json_integer(json, NULL, yoke_class_count(from, i, i)));
    PUT_LIST(json, "misclassified", yoke_shown_misclassified(from),
             put_misclassified(json, from, &from->misclassified[i]));
}

void yoke_page_json(yoke_html *out, const yoke_report *report, const char *title) {
    const yoke_report_rates *rates = report->rates;
    yoke_json json;
    yoke_json_begin(&json);
    yoke_json_open(&json, NULL, '{');
    put(&json, NULL, "yoke_page:d title:t subject:t simulated:b no_verdict:b interval:t link:t", 1,
        title, report->subject, report->simulated, report->no_verdict, report->interval,
        report->link);
    put_modes(&json, report, yoke_shortest_ms(out, report));
    if (report->predictions != NULL) {
        yoke_json_open(&json, "predictions", '{');
        put_predictions(&json, report->predictions);
        yoke_json_close(&json, '}');
    }
    if (rates != NULL) {
        yoke_json_open(&json, "rates", '{');
        PUT_LIST(&json, "rates", rates->count, put_number(&json, NULL, rates->rates[i]));
        PUT_LIST(&json, "losses", rates->count, put_number(&json, NULL, rates->losses[i]));
        PUT_LIST(&json, "smoothed", rates->count, put_number(&json, NULL, rates->smoothed[i]));
        put(&json, NULL, "suggested:d cautious:n", rates->suggested, rates->cautious);
        yoke_json_close(&json, '}');
    }
    yoke_json_close(&json, '}');
    out->failed |= json.failed;
    if (!json.failed) yoke_html_json(out, json.text);
    yoke_json_end(&json);
}
