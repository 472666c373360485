/* Writes Chrome's trace format in object form ("Trace Event Format", Google 2016): a span is a
 * complete event, a lane is a thread. */
#include <stdlib.h>

#include "base/base.h"
#include "trace/spans.h"

#define CHUNK_BYTES 65536

typedef struct chrome_file {
    yoke_file_writer writer;
    yoke_json json; /* not written to the file yet */
    uint64_t origin_ns;
} chrome_file;

/* Outer spans first: viewers nest events that begin together in file order, and a lane records an
 * inner span before the outer one. */
static int compare_spans(const void *left, const void *right) {
    const yoke_span *a = left, *b = right;
    if (a->begin_ns != b->begin_ns) return a->begin_ns < b->begin_ns ? -1 : 1;
    return (a->end_ns < b->end_ns) - (a->end_ns > b->end_ns);
}

static uint64_t first_begin(const yoke_trace *trace) {
    uint64_t first = UINT64_MAX;
    for (int lane = 0; lane < trace->lane_count; lane++) {
        for (uint32_t i = 0; i < yoke_lane_count(trace, lane); i++) {
            uint64_t begin = yoke_lane_span(trace, lane, i)->begin_ns;
            if (begin < first) first = begin;
        }
    }
    return first;
}

static yoke_status flush(chrome_file *file) {
    if (file->json.failed) return FAIL_MEMORY(CHUNK_BYTES, "a trace file's text");
    TRY(yoke_file_write(&file->writer, file->json.text, file->json.length));
    file->json.length = 0;
    return YOKE_OK;
}

/* kind: process_name or thread_name. */
static void add_name(yoke_json *json, const char *kind, int lane, const char *name) {
    yoke_json_open(json, NULL, '{');
    yoke_json_text(json, "ph", "M");
    yoke_json_text(json, "name", kind);
    yoke_json_integer(json, "pid", 1);
    yoke_json_integer(json, "tid", lane);
    yoke_json_open(json, "args", '{');
    yoke_json_text(json, "name", name);
    yoke_json_close(json, '}');
    yoke_json_close(json, '}');
}

static void add_span(chrome_file *file, int lane, const yoke_span *span) {
    yoke_json *json = &file->json;
    yoke_json_open(json, NULL, '{');
    yoke_json_text(json, "ph", "X");
    yoke_json_text(json, "name", yoke_stage_name(span->stage));
    yoke_json_integer(json, "pid", 1);
    yoke_json_integer(json, "tid", lane);
    yoke_json_real(json, "ts", (double)(span->begin_ns - file->origin_ns) / 1e3);
    yoke_json_real(json, "dur", (double)(span->end_ns - span->begin_ns) / 1e3);
    yoke_json_open(json, "args", '{');
    yoke_json_integer(json, "step", (int64_t)span->step);
    yoke_json_integer(json, "bytes", (int64_t)span->bytes);
    yoke_json_close(json, '}');
    yoke_json_close(json, '}');
}

static yoke_status add_sorted_spans(chrome_file *file, const yoke_trace *trace, int lane,
                                    yoke_span *sorted) {
    uint32_t count = yoke_lane_count(trace, lane);
    for (uint32_t i = 0; i < count; i++)
        sorted[i] = *yoke_lane_span(trace, lane, i);
    qsort(sorted, count, sizeof *sorted, compare_spans);
    for (uint32_t i = 0; i < count; i++) {
        add_span(file, lane, &sorted[i]);
        if (file->json.length >= CHUNK_BYTES) TRY(flush(file));
    }
    return YOKE_OK;
}

static yoke_status add_spans(chrome_file *file, const yoke_trace *trace) {
    file->origin_ns = first_begin(trace);
    size_t bytes = trace->capacity * sizeof(yoke_span);
    yoke_span *sorted = malloc(bytes);
    if (sorted == NULL) return FAIL_MEMORY(bytes, "sorting a trace");
    yoke_status status = YOKE_OK;
    for (int lane = 0; lane < trace->lane_count && status == YOKE_OK; lane++)
        status = add_sorted_spans(file, trace, lane, sorted);
    free(sorted);
    return status;
}

static yoke_status write_all(chrome_file *file, const yoke_trace *trace) {
    yoke_json *json = &file->json;
    yoke_json_open(json, NULL, '{');
    yoke_json_text(json, "displayTimeUnit", "ms");
    yoke_json_open(json, "traceEvents", '[');
    add_name(json, "process_name", 0, "yoke");
    for (int lane = 0; lane < trace->lane_count; lane++)
        add_name(json, "thread_name", lane, trace->lanes[lane].name);
    TRY(add_spans(file, trace));
    yoke_json_close(json, ']');
    yoke_json_close(json, '}');
    TRY(flush(file));
    return yoke_file_commit(&file->writer);
}

yoke_status yoke_trace_write(const yoke_trace *trace, const char *path) {
    TRY(yoke_pointer_check(trace, "trace"));
    TRY(yoke_pointer_check(path, "path"));
    chrome_file file = {0};
    TRY(yoke_file_create(&file.writer, path));
    yoke_json_begin(&file.json);
    yoke_status status = write_all(&file, trace);
    yoke_json_end(&file.json);
    yoke_file_abort(&file.writer);
    return status;
}
