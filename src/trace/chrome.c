/* SPDX-License-Identifier: Apache-2.0 */
/* Writes Chrome's trace format in object form ("Trace Event Format", Google 2016): a span is a
 * complete event, a lane is a thread, a rank is a process, an arrow is a flow. docs/traces.md
 * describes the file. */
#include <stdio.h>

#include "base/base.h"
#include "trace/events.h"

#define CHUNK_BYTES 65536
#define NAME_BYTES 128

typedef struct chrome_file {
    yoke_file_writer writer;
    yoke_json json; /* not written to the file yet */
    yoke_trace_events all;
    uint64_t origin_ns;
    int64_t flows; /* written */
} chrome_file;

static yoke_status flush(chrome_file *file) {
    if (file->json.failed) return FAIL_MEMORY(CHUNK_BYTES, "a trace file's text");
    TRY(yoke_file_write(&file->writer, file->json.text, file->json.length));
    file->json.length = 0;
    return YOKE_OK;
}

static yoke_status flush_chunk(chrome_file *file) {
    return file->json.length >= CHUNK_BYTES ? flush(file) : YOKE_OK;
}

/* Processes and threads. Viewers take process 0 and thread 0 for the idle ones: both count from
 * 1. */

static int process_of(const chrome_file *file, int process) {
    int rank = file->all.processes[process].rank;
    return rank < 0 ? process + 1 : rank + 1;
}

static int thread_of(const chrome_file *file, int process, int lane, yoke_track track) {
    return 1 + lane + (int)track * file->all.processes[process].trace->lane_count;
}

/* "cpu:0", "rank 1 · cpu:0", "cuda:1 · communication". */
static void name_lane(const chrome_file *file, int process, int lane, yoke_track track,
                      char name[NAME_BYTES]) {
    static const char *const tracks[] = {"", " · copy", " · communication", " · host", " · link"};
    const yoke_trace_process *of = &file->all.processes[process];
    char rank[32] = "";
    if (of->rank >= 0) snprintf(rank, sizeof rank, "rank %d · ", of->rank);
    snprintf(name, NAME_BYTES, "%s%.64s%s", rank, of->trace->lanes[lane].name, tracks[track]);
}

/* kind: process_name, thread_sort_index ...; thread 0: of the process. text NULL: an index. number:
 * the index, or the engine of a thread. */
static void add_metadata(chrome_file *file, const char *kind, int process, int thread,
                         const char *text, int number) {
    yoke_json *json = &file->json;
    yoke_json_open(json, NULL, '{');
    yoke_json_text(json, "ph", "M");
    yoke_json_text(json, "name", kind);
    yoke_json_integer(json, "pid", process);
    if (thread > 0) yoke_json_integer(json, "tid", thread);
    yoke_json_open(json, "args", '{');
    if (text != NULL)
        yoke_json_text(json, "name", text);
    else
        yoke_json_integer(json, "sort_index", number);
    if (text != NULL && number > 0) yoke_json_integer(json, "engine", number);
    yoke_json_close(json, '}');
    yoke_json_close(json, '}');
}

static bool has_track(const yoke_trace *trace, int lane, yoke_track track) {
    if (track == YOKE_TRACK_COMPUTE) return true;
    for (uint32_t i = 0; i < yoke_lane_count(trace, lane); i++)
        if (yoke_lane_span(trace, lane, i)->track == track) return true;
    return false;
}

static void add_process(chrome_file *file, int process) {
    const yoke_trace_process *of = &file->all.processes[process];
    int number = process_of(file, process);
    char name[NAME_BYTES] = "yoke";
    if (of->rank >= 0) snprintf(name, sizeof name, "rank %d", of->rank);
    if (of->name != NULL) snprintf(name, sizeof name, "%s", of->name);
    add_metadata(file, "process_name", number, 0, name, 0);
    add_metadata(file, "process_sort_index", number, 0, NULL, number);
    for (int lane = 0; lane < of->trace->lane_count; lane++) {
        for (yoke_track track = 0; track < YOKE_TRACK_COUNT; track++) {
            if (!has_track(of->trace, lane, track)) continue;
            int thread = thread_of(file, process, lane, track);
            name_lane(file, process, lane, track, name);
            add_metadata(file, "thread_name", number, thread, name, of->engine);
            add_metadata(file, "thread_sort_index", number, thread, NULL,
                         lane * YOKE_TRACK_COUNT + (int)track);
        }
    }
}

/* A mark is an instant of the whole file; what came before its first span is at its begin. */
static void add_marks(chrome_file *file, int process) {
    const yoke_trace_process *of = &file->all.processes[process];
    yoke_json *json = &file->json;
    for (const yoke_trace_mark *mark = of->marks; mark < of->marks + of->mark_count; mark++) {
        uint64_t at_ns = mark->at_ns + (uint64_t)of->shift_ns;
        yoke_json_open(json, NULL, '{');
        yoke_json_text(json, "ph", "i");
        yoke_json_text(json, "s", "g");
        yoke_json_text(json, "cat", YOKE_TRACE_MARK);
        yoke_json_text(json, "name", mark->text);
        yoke_json_integer(json, "pid", process_of(file, process));
        yoke_json_integer(json, "tid", 1);
        yoke_json_real(json, "ts",
                       at_ns > file->origin_ns ? (double)(at_ns - file->origin_ns) / 1e3 : 0);
        yoke_json_close(json, '}');
    }
}

/* Spans. */

static void add_place(chrome_file *file, const yoke_trace_event *event, uint64_t at_ns) {
    yoke_json *json = &file->json;
    yoke_json_integer(json, "pid", process_of(file, event->process));
    yoke_json_integer(json, "tid", thread_of(file, event->process, event->lane, event->span.track));
    yoke_json_real(json, "ts", (double)(at_ns - file->origin_ns) / 1e3);
}

static void add_span(chrome_file *file, const yoke_trace_event *event) {
    const yoke_span *span = &event->span;
    yoke_json *json = &file->json;
    yoke_json_open(json, NULL, '{');
    yoke_json_text(json, "ph", "X");
    yoke_json_text(json, "name", yoke_stage_name(span->stage));
    add_place(file, event, span->begin_ns);
    yoke_json_real(json, "dur", (double)(span->end_ns - span->begin_ns) / 1e3);
    yoke_json_open(json, "args", '{');
    yoke_json_integer(json, "step", (int64_t)span->step);
    if (span->bucket != YOKE_NO_BUCKET) yoke_json_integer(json, "bucket", span->bucket);
    bool of_link = span->track == YOKE_TRACK_LINK;
    yoke_json_integer(json, "bytes", of_link ? 0 : (int64_t)span->bytes);
    if (of_link) yoke_json_integer(json, "carried", (int64_t)span->bytes);
    if (span->sent + span->received > 0) {
        yoke_json_integer(json, "sent", (int64_t)span->sent);
        yoke_json_integer(json, "received", (int64_t)span->received);
    }
    const yoke_trace_event *cause = event->cause;
    if (cause != NULL) {
        char name[NAME_BYTES];
        name_lane(file, cause->process, cause->lane, cause->span.track, name);
        yoke_json_text(json, "cause", name);
        yoke_json_text(json, "cause_stage", yoke_stage_name(cause->span.stage));
        if (cause->span.bucket != YOKE_NO_BUCKET)
            yoke_json_integer(json, "cause_bucket", cause->span.bucket);
    }
    yoke_json_close(json, '}');
    yoke_json_close(json, '}');
}

/* Flows: "s" starts at the first span, "t" goes on through the next ones, "f" ends at the last. All
 * bind to the span that encloses them. */
static yoke_status add_flow(void *context, const yoke_flow *flow) {
    chrome_file *file = context;
    yoke_json *json = &file->json;
    char name[32];
    snprintf(name, sizeof name, "%s", flow->category);
    if (flow->bucket >= 0) snprintf(name, sizeof name, "%s %d", flow->category, flow->bucket);
    file->flows++;
    for (int i = 0; i < flow->count; i++) {
        yoke_json_open(json, NULL, '{');
        yoke_json_text(json, "ph", i == 0 ? "s" : i == flow->count - 1 ? "f" : "t");
        yoke_json_text(json, "name", name);
        yoke_json_text(json, "cat", flow->category);
        yoke_json_integer(json, "id", file->flows);
        add_place(file, flow->points[i], flow->at_ns[i]);
        if (i > 0) yoke_json_text(json, "bp", "e");
        yoke_json_close(json, '}');
    }
    return flush_chunk(file);
}

static yoke_status write_all(chrome_file *file) {
    yoke_json *json = &file->json;
    file->origin_ns = file->all.count > 0 ? UINT64_MAX : 0;
    for (size_t i = 0; i < file->all.count; i++)
        if (file->all.list[i].span.begin_ns < file->origin_ns)
            file->origin_ns = file->all.list[i].span.begin_ns;
    yoke_json_open(json, NULL, '{');
    yoke_json_text(json, "displayTimeUnit", "ms");
    yoke_json_open(json, "otherData", '{');
    yoke_json_text(json, "program", "yoke");
    yoke_json_text(json, "version", yoke_version());
    yoke_json_integer(json, "processes", file->all.process_count);
    yoke_json_integer(json, "origin_ns", (int64_t)file->origin_ns);
    yoke_json_close(json, '}');
    yoke_json_open(json, "traceEvents", '[');
    for (int process = 0; process < file->all.process_count; process++)
        add_process(file, process);
    for (int process = 0; process < file->all.process_count; process++)
        add_marks(file, process);
    for (size_t i = 0; i < file->all.count; i++) {
        add_span(file, &file->all.list[i]);
        TRY(flush_chunk(file));
    }
    TRY(yoke_trace_flows(&file->all, add_flow, file));
    yoke_json_close(json, ']');
    yoke_json_close(json, '}');
    TRY(flush(file));
    return yoke_file_commit(&file->writer);
}

yoke_status yoke_trace_write_processes(const yoke_trace_process *processes, int count,
                                       const char *path) {
    chrome_file file = {0};
    TRY(yoke_pointer_check(path, "path"));
    TRY(yoke_file_create(&file.writer, path));
    yoke_status status = yoke_trace_events_open(&file.all, processes, count);
    if (status == YOKE_OK) {
        yoke_json_begin(&file.json);
        status = write_all(&file);
        yoke_json_end(&file.json);
    }
    yoke_trace_events_close(&file.all);
    yoke_file_abort(&file.writer);
    return status;
}

yoke_status yoke_trace_save(const yoke_trace *trace, const char *path) {
    TRY(yoke_pointer_check(trace, "trace"));
    return yoke_trace_write_processes(&(yoke_trace_process){.rank = -1, .trace = trace}, 1, path);
}
