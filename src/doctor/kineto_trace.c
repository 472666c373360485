/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a trace event by event and keeps what tells of stages. */
#include "doctor/kineto_trace.h"

#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "doctor/foreign_files.h"
#include "doctor/json_pieces.h"
#include "doctor/printable.h"

#define SPANS_MOST ((size_t)6 << 20)
#define LANES_MOST 4096
#define BYTES_MOST 1e15
#define RANKS_MOST 1000000

void kineto_trace_clear(kineto_trace *trace) {
    yoke_free(trace->spans);
    yoke_free(trace->lanes);
    *trace = (kineto_trace){0};
}

/* The lane's index; -1: there are too many. Events of one lane mostly follow each other. */
static int lane_of(kineto_trace *trace, bool gpu, int64_t process, int64_t thread) {
    const kineto_lane *last = &trace->lanes[trace->last_lane];
    if (trace->lane_count > 0 && last->gpu == gpu && last->process == process &&
        last->thread == thread)
        return trace->last_lane;
    for (int i = 0; i < trace->lane_count; i++) {
        const kineto_lane *lane = &trace->lanes[i];
        if (lane->gpu != gpu || lane->process != process || lane->thread != thread) continue;
        return trace->last_lane = i;
    }
    if (trace->lane_count == LANES_MOST) return -1;
    trace->lanes[trace->lane_count] = (kineto_lane){process, thread, gpu, 0, -1};
    return trace->last_lane = trace->lane_count++;
}

static yoke_status keep(kineto_trace *trace, const kineto_span *span) {
    if (trace->count == trace->capacity) {
        size_t capacity = trace->capacity > 0 ? 2 * trace->capacity : 4096;
        kineto_span *larger = yoke_realloc(trace->spans, capacity * sizeof *larger);
        if (larger == NULL) return FAIL_MEMORY(capacity * sizeof *larger, "the spans of a trace");
        trace->spans = larger;
        trace->capacity = capacity;
    }
    trace->spans[trace->count++] = *span;
    trace->full = trace->count == SPANS_MOST;
    return YOKE_OK;
}

/* An operation inside the last one tells nothing new: events of a thread lie in order. */
static bool is_inside_last(kineto_lane *lane, const kineto_event *event) {
    if (event->begin_ns >= lane->operation_begin_ns && event->end_ns <= lane->operation_end_ns)
        return true;
    lane->operation_begin_ns = event->begin_ns;
    lane->operation_end_ns = event->end_ns;
    return false;
}

static void note_rows(kineto_rows *found, const kineto_event *event,
                      const kineto_arguments *arguments) {
    const kineto_operand *operand = &arguments->operands[0];
    if (!(operand->rows >= 1 && operand->elements >= 1)) return;
    if (found->rows > 0 && found->begin_ns <= event->begin_ns) return;
    double element = arguments->element_bytes > 0 ? arguments->element_bytes : 4;
    *found =
        (kineto_rows){event->begin_ns, operand->rows, operand->elements / operand->rows * element};
}

/* Bytes that an event carries; 0: unknown. */
static double bytes_of(kineto_trace *trace, const doctor_name *name,
                       const kineto_arguments *arguments) {
    double elements =
        arguments->elements > 0 ? (double)arguments->elements : arguments->operands[0].elements;
    double element = arguments->element_bytes, bytes = 0;
    if (arguments->bytes > 0)
        bytes = (double)arguments->bytes;
    else if (name->kind == DOCTOR_CALL)
        bytes = elements;
    else
        bytes = elements * element;
    bool tells_type = name->kind == DOCTOR_GRADIENT || name->kind == DOCTOR_COLLECTIVE;
    if (tells_type && element > 0) trace->element_bytes = element;
    return bytes > 0 && bytes <= BYTES_MOST ? bytes : 0;
}

static yoke_status read_span(kineto_trace *trace, const kineto_event *event) {
    const doctor_name *name = doctor_name_of(event);
    if (name == NULL) return YOKE_OK;
    trace->marks |= name->marks;
    if (name->kind == DOCTOR_NOTHING) return YOKE_OK;
    bool gpu = name->kind == DOCTOR_WORK;
    bool bare = name->kind == DOCTOR_SPAN && (name->marks & DOCTOR_LOSS_ROWS) == 0;
    bare = bare || name->kind == DOCTOR_STEP ||
           (name->kind == DOCTOR_OPERATION && (name->marks & DOCTOR_ROWS) == 0);
    kineto_arguments arguments = {.correlation = -1};
    if (!bare) kineto_arguments_read(&arguments, event->arguments);
    if (name->kind == DOCTOR_LAUNCH && arguments.correlation < 0) return YOKE_OK;
    if (name->marks & DOCTOR_ROWS) note_rows(&trace->input, event, &arguments);
    if (name->marks & DOCTOR_LOSS_ROWS) note_rows(&trace->loss, event, &arguments);
    bool ranks = arguments.group_size > trace->world && arguments.group_size < RANKS_MOST;
    if (name->stage == YOKE_STAGE_ALL_REDUCE && ranks) trace->world = (int)arguments.group_size;
    int lane = lane_of(trace, gpu, gpu && arguments.device >= 0 ? arguments.device : event->process,
                       event->thread);
    if (lane < 0) return YOKE_OK;
    if (name->kind == DOCTOR_OPERATION && is_inside_last(&trace->lanes[lane], event))
        return YOKE_OK;
    kineto_span span = {.begin_ns = event->begin_ns,
                        .end_ns = event->end_ns,
                        .correlation = arguments.correlation,
                        .bytes = bare ? 0 : bytes_of(trace, name, &arguments),
                        .name = name,
                        .lane = lane};
    return keep(trace, &span);
}

static yoke_status read_event(kineto_trace *trace, const json_piece *piece) {
    kineto_event event;
    trace->events++;
    if (piece->bytes == 0) return YOKE_OK; /* too long: no event of a stage is */
    if (!kineto_event_read(&event, piece->text, piece->bytes)) {
        snprintf(trace->end, sizeof trace->end, "event %llu is damaged",
                 (unsigned long long)trace->events);
        return YOKE_OK;
    }
    trace->profiler = trace->profiler || json_slice_begins(event.name, "PyTorch Profiler") ||
                      json_slice_begins(event.name, "ProfilerStep#") ||
                      json_slice_is(event.category, "cpu_op");
    return json_slice_is(event.phase, "X") ? read_span(trace, &event) : YOKE_OK;
}

/* Members beside the events: {"rank": 0, "world_size": 2, "backend": "gloo"}. */
static const char *find_value(const json_piece *piece, const char *key) {
    char quoted[32];
    int length = snprintf(quoted, sizeof quoted, "\"%s\"", key);
    const char *found = memmem(piece->text, piece->bytes, quoted, (size_t)length);
    if (found == NULL) return NULL;
    const char *end = piece->text + piece->bytes;
    for (found += length; found < end && (*found == ' ' || *found == ':');)
        found++;
    return found < end ? found : NULL;
}

static int read_number(const json_piece *piece, const char *key) {
    const char *found = find_value(piece, key), *end = piece->text + piece->bytes;
    int value = 0;
    if (found == NULL || *found < '0' || *found > '9') return -1;
    for (; found < end && *found >= '0' && *found <= '9' && value < RANKS_MOST; found++)
        value = 10 * value + (*found - '0');
    return value;
}

static void read_text(const json_piece *piece, const char *key, char *to, size_t size) {
    const char *found = find_value(piece, key), *text;
    if (found == NULL || *found != '"') return;
    yoke_json_scan scan = {.text = piece->text, .bytes = piece->bytes};
    scan.next = (size_t)(found - piece->text);
    if (yoke_json_scan_text(&scan, &text)) doctor_copy_printable(to, size, text);
}

static yoke_status read_member(kineto_trace *trace, const json_piece *piece, const char *name) {
    TRY(foreign_member_check(name, piece->key, piece->text, piece->bytes));
    trace->profiler = trace->profiler || strcmp(piece->key, "schemaVersion") == 0;
    if (piece->bytes == 0) return YOKE_OK;
    if (strcmp(piece->key, "distributedInfo") == 0) {
        int world = read_number(piece, "world_size");
        if (world > trace->world) trace->world = world;
        trace->rank = read_number(piece, "rank");
        read_text(piece, "backend", trace->backend, sizeof trace->backend);
    }
    if (strcmp(piece->key, "deviceProperties") == 0)
        read_text(piece, "name", trace->device, sizeof trace->device);
    return YOKE_OK;
}

static void end_at(kineto_trace *trace, const json_pieces *pieces, json_piece_kind kind) {
    static const char *const why[] = {[JSON_PIECE_END] = "",
                                      [JSON_PIECE_CUT] = "it is cut short",
                                      [JSON_PIECE_BROKEN] = "it is damaged"};
    if (kind == JSON_PIECE_END) return;
    snprintf(trace->end, sizeof trace->end, "%s at byte %llu", why[kind],
             (unsigned long long)pieces->offset);
}

/* A DOCTOR_CALL names elements, not bytes. */
static void finish_calls(kineto_trace *trace) {
    double element = trace->element_bytes > 0 ? trace->element_bytes : 4;
    for (size_t i = 0; i < trace->count; i++)
        if (trace->spans[i].name->kind == DOCTOR_CALL) trace->spans[i].bytes *= element;
}

static yoke_status read_pieces(kineto_trace *trace, json_pieces *pieces, const char *name) {
    json_piece piece;
    while (!trace->full && trace->end[0] == '\0') {
        TRY(json_pieces_next(pieces, &piece));
        if (piece.kind == JSON_PIECE_EVENT) {
            TRY(read_event(trace, &piece));
        } else if (piece.kind == JSON_PIECE_MEMBER) {
            TRY(read_member(trace, &piece, name));
        } else {
            end_at(trace, pieces, piece.kind);
            break;
        }
    }
    if (trace->full)
        snprintf(trace->end, sizeof trace->end,
                 "it has more than %zu spans; profile fewer steps for a shorter file", SPANS_MOST);
    return YOKE_OK;
}

yoke_status kineto_trace_read(kineto_trace *trace, json_pieces *pieces, const char *name) {
    const char *text;
    size_t bytes = json_pieces_peek(pieces, &text);
    *trace = (kineto_trace){.world = -1, .rank = -1};
    TRY(foreign_bytes_check(name, text, bytes));
    trace->lanes = yoke_calloc(LANES_MOST, sizeof *trace->lanes);
    if (trace->lanes == NULL)
        return FAIL_MEMORY(LANES_MOST * sizeof *trace->lanes, "the threads of a trace");
    TRY(read_pieces(trace, pieces, name));
    if (trace->events == 0)
        return FAIL(YOKE_ERROR_DATA,
                    "%s has no events%s%s; export_chrome_trace of torch.profiler writes them after "
                    "the profiler has stopped",
                    name, trace->end[0] != '\0' ? ": " : "", trace->end);
    if (!trace->profiler)
        return FAIL(YOKE_ERROR_DATA,
                    "%s has %llu events, none of PyTorch's profiler: it is another tool's trace; "
                    "yoke doctor reads what torch.profiler's export_chrome_trace writes, and "
                    "'yoke report' what Yoke writes",
                    name, (unsigned long long)trace->events);
    finish_calls(trace);
    return YOKE_OK;
}
