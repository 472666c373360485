/* SPDX-License-Identifier: Apache-2.0 */
/* Reads Chrome's trace format event by event, so that a file that ends early loses its end only. */
#include "trace/chrome_reader.h"

#include <ctype.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

#define NS_MOST 4e18    /* two of them fit into 64 bits */
#define BYTES_MOST 1e18 /* of a span; more are damaged */

void yoke_trace_file_clear(trace_file *file) {
    yoke_free(file->events);
    yoke_free(file->lanes);
    yoke_free(file->marks);
    *file = (trace_file){0};
}

static int stage_of(const char *name) {
    for (int stage = 0; stage < YOKE_STAGE_COUNT; stage++)
        if (strcmp(name, yoke_stage_name((yoke_stage)stage)) == 0) return stage;
    return -1;
}

/* The lane's index, a new one if need be; -1: too many, or no memory. */
static int lane_of(trace_file *file, int64_t process, int64_t thread) {
    for (int i = 0; i < file->lane_count; i++)
        if (file->lanes[i].process == process && file->lanes[i].thread == thread) return i;
    if (file->lanes == NULL) file->lanes = yoke_calloc(YOKE_TRACE_LANES, sizeof *file->lanes);
    if (file->lanes == NULL || file->lane_count == YOKE_TRACE_LANES) return -1;
    trace_lane *lane = &file->lanes[file->lane_count];
    lane->process = process;
    lane->thread = thread;
    snprintf(lane->name, sizeof lane->name, "lane %lld", (long long)thread);
    return file->lane_count++;
}

static void read_name(trace_file *file, const json_t *event) {
    int64_t process = json_integer_value(json_object_get(event, "pid"));
    const char *kind = json_string_value(json_object_get(event, "name"));
    const char *name = json_string_value(json_object_get(json_object_get(event, "args"), "name"));
    if (kind == NULL || name == NULL) return;
    if (strcmp(kind, "thread_name") != 0) return;
    int lane = lane_of(file, process, json_integer_value(json_object_get(event, "tid")));
    if (lane < 0) return;
    snprintf(file->lanes[lane].name, sizeof file->lanes[lane].name, "%s", name);
    file->lanes[lane].engine =
        json_integer_value(json_object_get(json_object_get(event, "args"), "engine"));
}

static yoke_status read_mark(trace_file *file, const json_t *event) {
    const char *category = json_string_value(json_object_get(event, "cat"));
    const char *text = json_string_value(json_object_get(event, "name"));
    if (category == NULL || strcmp(category, YOKE_TRACE_MARK) != 0 || text == NULL) return YOKE_OK;
    if (file->mark_count == YOKE_TRACE_MARKS) {
        file->more_marks++;
        return YOKE_OK;
    }
    if (file->marks == NULL) file->marks = yoke_calloc(YOKE_TRACE_MARKS, sizeof *file->marks);
    if (file->marks == NULL)
        return FAIL_MEMORY(YOKE_TRACE_MARKS * sizeof *file->marks, "the marks of a trace");
    snprintf(file->marks[file->mark_count++], sizeof *file->marks, "%s", text);
    return YOKE_OK;
}

static yoke_status add_event(trace_file *file, const yoke_caused_span *event) {
    if (file->event_count == file->event_capacity) {
        size_t capacity = file->event_capacity > 0 ? 2 * file->event_capacity : 1024;
        yoke_caused_span *larger = yoke_realloc(file->events, capacity * sizeof *larger);
        if (larger == NULL) return FAIL_MEMORY(capacity * sizeof *larger, "the spans of a trace");
        file->events = larger;
        file->event_capacity = capacity;
    }
    file->events[file->event_count++] = *event;
    return YOKE_OK;
}

/* Another engine may have a lane of this name, too. */
static int lane_named(const trace_file *file, int64_t engine, const char *name) {
    for (int i = 0; i < file->lane_count; i++)
        if (file->lanes[i].engine == engine && strcmp(file->lanes[i].name, name) == 0) return i;
    return -1;
}

/* The names of threads come before the spans. */
static void read_cause(const trace_file *file, const json_t *arguments, yoke_caused_span *event) {
    const char *lane = json_string_value(json_object_get(arguments, "cause"));
    const char *stage = json_string_value(json_object_get(arguments, "cause_stage"));
    int64_t engine = file->lanes[event->span.lane].engine;
    event->cause_lane = lane != NULL ? lane_named(file, engine, lane) : -1;
    event->cause_stage = stage != NULL ? stage_of(stage) : -1;
    if (event->cause_lane < 0 || event->cause_stage < 0)
        event->cause_lane = event->cause_stage = -1;
}

static uint64_t bytes_of(const json_t *arguments, const char *key) {
    double bytes = json_number_value(json_object_get(arguments, key));
    return bytes > 0 && bytes < BYTES_MOST ? (uint64_t)bytes : 0;
}

static yoke_status read_span(trace_file *file, const json_t *event) {
    const json_t *arguments = json_object_get(event, "args");
    const json_t *step = json_object_get(arguments, "step");
    const json_t *bucket = json_object_get(arguments, "bucket");
    const char *name = json_string_value(json_object_get(event, "name"));
    int stage = name != NULL ? stage_of(name) : -1;
    double begin = json_number_value(json_object_get(event, "ts")) * 1e3;
    double duration = json_number_value(json_object_get(event, "dur")) * 1e3;
    if (stage < 0 || !json_is_integer(step) || !(begin >= 0 && begin < NS_MOST) ||
        !(duration >= 0 && duration < NS_MOST)) {
        file->unknown++;
        return YOKE_OK;
    }
    int lane = lane_of(file, json_integer_value(json_object_get(event, "pid")),
                       json_integer_value(json_object_get(event, "tid")));
    if (lane < 0) {
        file->no_lane++;
        return YOKE_OK;
    }
    yoke_caused_span read = {
        .span = {.lane = lane,
                 .stage = (yoke_stage)stage,
                 .bucket = json_is_integer(bucket) ? (int)json_integer_value(bucket) : -1,
                 .step = (uint64_t)json_integer_value(step),
                 .begin_ns = (uint64_t)llround(begin),
                 .end_ns = (uint64_t)llround(begin) + (uint64_t)llround(duration),
                 .bytes = bytes_of(arguments, "bytes") + bytes_of(arguments, "carried"),
                 .sent_bytes = bytes_of(arguments, "sent"),
                 .received_bytes = bytes_of(arguments, "received")}};
    read_cause(file, arguments, &read);
    return add_event(file, &read);
}

static size_t skip_space(const char *text, size_t bytes, size_t at) {
    while (at < bytes && isspace((unsigned char)text[at]))
        at++;
    return at;
}

/* Where the list of events begins, behind its bracket; 0: nowhere. */
static size_t find_events(const char *text, size_t bytes) {
    static const char key[] = "\"traceEvents\"";
    size_t at = skip_space(text, bytes, 0);
    if (at < bytes && text[at] == '[') return at + 1;
    const char *found = memmem(text, bytes, key, sizeof key - 1);
    if (found == NULL) return 0;
    at = skip_space(text, bytes, (size_t)(found - text) + sizeof key - 1);
    if (at == bytes || text[at] != ':') return 0;
    at = skip_space(text, bytes, at + 1);
    return at < bytes && text[at] == '[' ? at + 1 : 0;
}

yoke_status yoke_trace_file_read(trace_file *file, const char *text, size_t bytes) {
    size_t at = find_events(text, bytes);
    file->end = at;
    file->cut_short = true;
    while (at > 0) {
        at = skip_space(text, bytes, at);
        if (at < bytes && text[at] == ']') {
            file->cut_short = false;
            break;
        }
        json_error_t error;
        json_t *event = json_loadb(text + at, bytes - at, JSON_DISABLE_EOF_CHECK, &error);
        if (event == NULL) break;
        const char *phase = json_string_value(json_object_get(event, "ph"));
        if (phase != NULL && strcmp(phase, "M") == 0) read_name(file, event);
        yoke_status status = YOKE_OK;
        if (phase != NULL && strcmp(phase, "X") == 0) status = read_span(file, event);
        if (phase != NULL && strcmp(phase, "i") == 0) status = read_mark(file, event);
        json_decref(event);
        TRY(status);
        file->end = at + (size_t)error.position;
        at = skip_space(text, bytes, file->end);
        if (at < bytes && text[at] == ',')
            at++;
        else if (at == bytes || text[at] != ']')
            break;
    }
    return YOKE_OK;
}

/* Spans lie in the file by engine. */
static int64_t last_engine(const trace_file *file) {
    for (size_t i = file->event_count; i-- > 0;)
        if (file->events[i].span.stage == YOKE_STAGE_STEP)
            return file->lanes[file->events[i].span.lane].engine;
    return 0;
}

void yoke_trace_file_keep_engine(trace_file *file) {
    int places[YOKE_TRACE_LANES], lanes = 0; /* where a lane goes; -1: nowhere */
    int64_t engine = last_engine(file);
    size_t events = 0;
    for (int i = 0; i < file->lane_count; i++) {
        places[i] = file->lanes[i].engine == engine ? lanes++ : -1;
        if (places[i] >= 0) file->lanes[places[i]] = file->lanes[i];
    }
    file->went_on = lanes < file->lane_count;
    file->lane_count = lanes;
    for (size_t i = 0; i < file->event_count; i++) {
        yoke_caused_span event = file->events[i];
        if (places[event.span.lane] < 0) continue;
        event.span.lane = places[event.span.lane];
        if (event.cause_lane >= 0) event.cause_lane = places[event.cause_lane];
        file->events[events++] = event;
    }
    file->event_count = events;
}
