/* SPDX-License-Identifier: Apache-2.0 */
/* The model of the page as JSON, which the script draws. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "pictures/pictures.h"
#include "report/sections.h"

/* What a text of the page shows, the JSON shows, too. NULL: null. */
static void put_text(yoke_json *json, const char *key, const char *text) {
    yoke_html shown = {0};
    yoke_html_shown(&shown, text != NULL ? text : "");
    yoke_json_text(json, key, text == NULL || shown.text != NULL ? shown.text : "");
    json->failed |= shown.failed;
    yoke_html_end(&shown);
}

/* Seven digits are enough for a drawing. */
static void put_number(yoke_json *json, const char *key, double value) {
    double scale = pow(10, 6 - floor(log10(fabs(value))));
    bool short_enough = value == round(value) || !isnormal(scale) || !isfinite(value * scale);
    yoke_json_real(json, key, short_enough ? value : round(value * scale) / scale);
}

/* Writes a part of the model by its form, as "name:%s shape:[%d %d]" or "{rows:%lld": brackets open
 * and close objects and lists, and each sign is a value whose type the compiler checks as printf's:
 * %g a number, %d and %lld integers, %i true or false, %s a text. */
static void put(yoke_json *json, const char *form, ...) __attribute__((format(printf, 2, 3)));

static void put(yoke_json *json, const char *form, ...) {
    char text[32];
    va_list values;
    va_start(values, form);
    for (const char *at = form; *at != '\0';) {
        int length = (int)strspn(at, "abcdefghijklmnopqrstuvwxyz_");
        snprintf(text, sizeof text, "%.*s", length, at);
        const char *key = length > 0 ? text : NULL;
        at += length > 0 ? length + 1 : 0; /* behind the colon */
        char sign = *at == '%' ? at[1] : *at;
        if (sign == '[' || sign == '{')
            yoke_json_open(json, key, sign);
        else if (sign == ']' || sign == '}')
            yoke_json_close(json, sign);
        else if (sign == 'g')
            put_number(json, key, va_arg(values, double));
        else if (sign == 'd')
            yoke_json_integer(json, key, va_arg(values, int));
        else if (sign == 'l')
            yoke_json_integer(json, key, va_arg(values, long long));
        else if (sign == 'i')
            yoke_json_boolean(json, key, va_arg(values, int));
        else if (sign == 's')
            put_text(json, key, va_arg(values, const char *));
        at += *at == '%' ? strcspn(at, " ]}") : 1;
    }
    va_end(values);
}

static void put_numbers(yoke_json *json, const char *key, const double *numbers, int count) {
    yoke_json_open(json, key, '[');
    for (int i = 0; i < count; i++)
        put_number(json, NULL, numbers[i]);
    yoke_json_close(json, ']');
}

static void put_interval(yoke_json *json, const char *key, yoke_report_interval of) {
    double low = of.low > 0 ? of.low : of.value, high = of.high > 0 ? of.high : of.value;
    if (of.value > 0)
        put_numbers(json, key, (double[]){of.value, low, high}, 3);
    else
        yoke_json_null(json, key);
}

static void put_span(yoke_json *json, const yoke_report_mode *mode, const yoke_report_span *of) {
    const yoke_span_info *span = &of->span;
    const char *cause = CAUSE(mode, of);
    put(json, "[%g %g %s %d %lld", 1e-6 * (double)span->begin_ns, 1e-6 * (double)span->end_ns,
        yoke_account_name((int)span->stage), span->bucket, (long long)span->bytes);
    put_text(json, NULL, cause[0] != '\0' ? cause : NULL);
    put(json, "]");
}

static void put_lane(yoke_json *json, const yoke_report_mode *mode, const yoke_report_lane *lane,
                     double shortest_ms, int *left) {
    static const char *const kinds[] = {"device", "beside", "link"};
    put(json, "{name:%s kind:%s stage_ms:{", lane->name, kinds[lane->kind]);
    for (int stage = 0; stage < YOKE_ACCOUNT_STAGES; stage++)
        if (lane->stage_ms[stage] > 0)
            put_number(json, yoke_account_name(stage), lane->stage_ms[stage]);
    put(json, "} spans:[");
    FOR_SPANS (lane, span)
        if (yoke_report_span_ms(span) >= shortest_ms && --*left >= 0) put_span(json, mode, span);
    put(json, "]}");
}

static void put_amounts(yoke_json *json, const char *key, const yoke_report_amounts *of) {
    yoke_json_open(json, key, '[');
    for (const yoke_report_amount *row = of->rows; row < of->rows + of->count; row++)
        put(json, "[%s %s %g]", row->where, row->what, row->bytes);
    put(json, "]");
}

static void put_curve(yoke_json *json, const char *key, const yoke_report_points *curve,
                      int shown) {
    if (shown == 0) return;
    yoke_json_open(json, key, '[');
    for (int i = 0; i < shown; i++) {
        const yoke_report_point *point = yoke_shown_point(curve, shown, i);
        put(json, "[%g %g]", point->step, point->value);
    }
    put(json, "]");
}

static void put_modes(yoke_json *json, const yoke_report *report, double shortest_ms) {
    int spans = YOKE_SPANS_MAX, lanes = YOKE_LANES_MAX;
    FOR_MODES (report, mode) {
        put(json, "{name:%s label:%s devices:%d first:%i", mode->name, LABEL(report, mode),
            mode->devices, mode->first);
        put_interval(json, "step_ms", mode->step_ms);
        put_interval(json, "images_per_second", mode->images_per_second);
        put_interval(json, "speedup", mode->speedup);
        put(json, "mean_step_ms:%g median_ms:%g shown_ms:%g steps:%d weights_hash:%s lanes:[",
            mode->mean_step_ms, mode->median_ms, mode->shown_ms, mode->steps, mode->weights_hash);
        FOR_LANES (mode, lane)
            if (--lanes >= 0) put_lane(json, mode, lane, shortest_ms, &spans);
        put(json, "]");
        put_amounts(json, "memory", &mode->memory);
        put_amounts(json, "links", &mode->links);
        put_amounts(json, "moved", &mode->moved);
        put(json, "curves:{");
        for (int kind = 0; kind < YOKE_REPORT_CURVES; kind++)
            put_curve(json, yoke_curve_names[kind], &mode->curves[kind],
                      yoke_shown_points(report, &mode->curves[kind]));
        put(json, "}}");
    }
}

static void put_misclassified(yoke_json *json, const yoke_predictions *of,
                              const yoke_misclassified *row) {
    yoke_png_image image = {row->pixels, of->shape.channels, of->shape.height, of->shape.width};
    char *uri = row->pixels != NULL ? yoke_png_uri(&image) : NULL;
    json->failed |= row->pixels != NULL && uri == NULL;
    put(json, "{row:%lld label:%d predicted:%d probability:%g loss:%g", (long long)row->row,
        row->label, row->predicted, row->probability, row->loss);
    put_text(json, "picture", uri);
    put(json, "}");
    yoke_free(uri);
}

static void put_counts(yoke_json *json, const char *key, const int64_t *counts, int count,
                       int stride) {
    yoke_json_open(json, key, '[');
    for (int i = 0; i < count; i++)
        yoke_json_integer(json, NULL, counts[(size_t)i * (size_t)stride]);
    yoke_json_close(json, ']');
}

static void put_predictions(yoke_json *json, const yoke_report *report) {
    const yoke_predictions *of = report->predictions;
    int classes = of->classes;
    put(json, "step:%lld classes:%d", (long long)of->step, classes);
    if (of->class_names == NULL) yoke_json_null(json, "names");
    if (of->class_names != NULL) {
        put(json, "names:[");
        for (int i = 0; i < classes; i++)
            put(json, "%s", of->class_names[i]);
        put(json, "]");
    }
    if (classes > YOKE_CLASSES_MAX) yoke_json_null(json, "counts");
    if (classes <= YOKE_CLASSES_MAX) {
        put(json, "counts:[");
        for (int i = 0; i < classes; i++)
            put_counts(json, NULL, of->counts + i * classes, classes, 1);
        put(json, "]");
    }
    put(json, "rows:[");
    for (int i = 0; i < classes; i++)
        yoke_json_integer(json, NULL, yoke_class_rows(of, i));
    put(json, "]");
    put_counts(json, "right", of->counts, classes, classes + 1);
    put(json, "misclassified:[");
    for (int i = 0; i < of->misclassified; i++)
        put_misclassified(json, of, &report->misclassified[i]);
    put(json, "]");
}

void yoke_page_json(yoke_html *out, const yoke_report *report, const char *title) {
    const yoke_lr_find_result *rates = report->rates;
    yoke_json json;
    yoke_json_begin(&json);
    put(&json,
        "{yoke_page:%d title:%s subject:%s simulated:%i no_verdict:%i interval:%s link:%s "
        "modes:[",
        1, title, report->subject, report->simulated, report->no_verdict, report->interval,
        report->link);
    put_modes(&json, report, yoke_shortest_ms(out, report));
    put(&json, "]");
    if (report->predictions != NULL) {
        put(&json, "predictions:{absent:%s",
            report->predictions->counts == NULL ? report->no_counts : "");
        if (report->predictions->counts != NULL) put_predictions(&json, report);
        put(&json, "}");
    }
    if (rates != NULL) {
        put(&json, "rates:{");
        put_numbers(&json, "rates", rates->learning_rates, rates->count);
        put_numbers(&json, "losses", rates->losses, rates->count);
        put_numbers(&json, "smoothed", rates->smoothed, rates->count);
        put(&json, "suggested:%d cautious:%g}", rates->suggested, rates->cautious);
    }
    put(&json, "}");
    out->failed |= json.failed;
    if (!json.failed) yoke_html_json(out, json.text);
    yoke_json_end(&json);
}
