/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a file of either kind into a mode of its own. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "report/sections.h"
#include "report/trace_sums.h"

#define FILE_BYTES_MAX ((size_t)1 << 30)
#define FIRST_MAX 4 /* traces that the first picture compares */

static const char *last_part(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

/* Traces. */

static void note_cut(yoke_report *report, const char *name, size_t end, size_t bytes) {
    yoke_report_add_note(report, "%s is cut short or damaged: read up to byte %zu of %zu.", name,
                         end, bytes);
}

static void note_left_out(yoke_report *report, const char *name, size_t spans, const char *why) {
    if (spans > 0) yoke_report_add_note(report, "%s: left out %zu spans%s.", name, spans, why);
}

/* What happened to the run, and which of its steps the page shows then. */
static void note_changes(yoke_report *report, const char *name, const trace_file *file,
                         const yoke_report_mode *mode) {
    char last[32] = "";
    for (int i = 0; i < file->mark_count; i++)
        yoke_report_add_note(report, "%s: %s.", name, file->marks[i]);
    if (file->more_marks > 0)
        yoke_report_add_note(report, "%s: %zu more such changes.", name, file->more_marks);
    if (!file->went_on && file->mark_count == 0) return;
    if (mode->steps > 1)
        snprintf(last, sizeof last, " to %llu", (unsigned long long)file->last_step);
    yoke_report_add_note(report, "%s: figures show step%s %llu%s, counted from 0, of %d device%s.",
                         name, mode->steps == 1 ? "" : "s", (unsigned long long)file->first_step,
                         last, mode->devices, mode->devices == 1 ? "" : "s");
}

static yoke_status read_trace(yoke_report *report, const char *name, const char *text,
                              size_t bytes) {
    trace_file file = {0};
    yoke_report_mode *mode;
    yoke_status status = yoke_report_add_mode(report, name, &mode);
    if (status == YOKE_OK) status = yoke_trace_file_read(&file, text, bytes);
    if (status == YOKE_OK) status = yoke_trace_file_sum(&file, mode);
    if (status == YOKE_OK) {
        note_changes(report, name, &file, mode);
        if (file.cut_short) note_cut(report, name, file.end, bytes);
        note_left_out(report, name, file.unknown, " that this version of Yoke does not know");
        note_left_out(report, name, file.no_lane,
                      TEXT(": a page reads the first %d threads", YOKE_TRACE_LANES));
        note_left_out(report, name, file.crowded,
                      TEXT(": a lane shows %d of a step at most", YOKE_TRACE_STEP_SPANS));
        mode->first = report->mode_count <= FIRST_MAX;
    }
    yoke_trace_file_clear(&file);
    return status;
}

/* Metrics. */

/* Older files call both losses "loss": there a line with a learning rate is a step's, one without
 * an evaluation's. */
static yoke_status add_line(yoke_report_mode *mode, const json_t *line) {
    bool training = json_object_get(line, "lr") != NULL;
    const struct {
        const char *key;
        int curve, factor;
    } values[] = {{"loss", training ? YOKE_REPORT_LOSS : YOKE_REPORT_TEST_LOSS, 1},
                  {"train_loss", YOKE_REPORT_LOSS, 1},
                  {"test_loss", YOKE_REPORT_TEST_LOSS, 1},
                  {"accuracy", YOKE_REPORT_ACCURACY, 100},
                  {"test_accuracy", YOKE_REPORT_ACCURACY, 100},
                  {"lr", YOKE_REPORT_LEARNING_RATE, 1},
                  {"step_ms", YOKE_REPORT_STEP_MS, 1}};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        const json_t *value = json_object_get(line, values[i].key);
        if (json_is_number(value))
            TRY(yoke_report_add_point(&mode->curves[values[i].curve],
                                      json_number_value(json_object_get(line, "step")),
                                      values[i].factor * json_number_value(value)));
    }
    return YOKE_OK;
}

static json_t *parse_line(const char *text, size_t bytes) {
    json_error_t error;
    json_t *line = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (line != NULL && json_is_number(json_object_get(line, "step"))) return line;
    json_decref(line);
    return NULL;
}

static size_t line_bytes(const char *text, size_t bytes) {
    const char *end = memchr(text, '\n', bytes);
    return end != NULL ? (size_t)(end - text) : bytes;
}

static yoke_status read_metrics(yoke_report *report, const char *name, const char *text,
                                size_t bytes) {
    yoke_report_mode *mode;
    TRY(yoke_report_add_mode(report, name, &mode));
    for (size_t at = 0, length; at < bytes; at += length + 1) {
        length = line_bytes(text + at, bytes - at);
        json_t *line = parse_line(text + at, length);
        if (line == NULL) {
            note_cut(report, name, at, bytes);
            return YOKE_OK;
        }
        yoke_status status = add_line(mode, line);
        json_decref(line);
        TRY(status);
    }
    return YOKE_OK;
}

static bool are_metrics(const char *text, size_t bytes) {
    json_t *line = parse_line(text, line_bytes(text, bytes));
    json_decref(line);
    return line != NULL;
}

static bool is_trace(const char *text, size_t bytes) {
    static const char key[] = "\"traceEvents\"";
    size_t head = bytes < 4096 ? bytes : 4096;
    return bytes > 0 &&
           (text[0] == '[' || (text[0] == '{' && memmem(text, head, key, sizeof key - 1) != NULL));
}

yoke_status yoke_report_read(yoke_report *report, const char *name, const char *text,
                             size_t bytes) {
    yoke_status status;
    if (are_metrics(text, bytes))
        status = read_metrics(report, last_part(name), text, bytes);
    else if (is_trace(text, bytes))
        status = read_trace(report, last_part(name), text, bytes);
    else
        return FAIL(YOKE_ERROR_DATA,
                    "%s: neither a trace nor metrics; give files that --trace or --metrics of "
                    "yoke train wrote",
                    name);
    if (status != YOKE_OK) yoke_error_prefix("%s", name);
    return status;
}

yoke_status yoke_report_read_file(yoke_report *report, const char *path) {
    unsigned char *text;
    size_t bytes;
    TRY(yoke_file_read(path, FILE_BYTES_MAX, &text, &bytes));
    yoke_status status = yoke_report_read(report, path, (const char *)text, bytes);
    yoke_free(text);
    return status;
}
