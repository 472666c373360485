/* SPDX-License-Identifier: Apache-2.0 */
/* A file that goes to the caller's function instead of the disk. */
#include "base/sink.h"

#include "base/error.h"
#include "base/options.h"

static yoke_status write_bytes(yoke_file_writer *writer, const void *data, size_t bytes) {
    const yoke_sink *sink = &writer->sink;
    yoke_error_forget();
    yoke_status status =
        yoke_error_of_host(sink->write(sink->payload, data, bytes), "the sink's write");
    if (status != YOKE_OK) yoke_file_abort(writer);
    return status;
}

static yoke_status commit(yoke_file_writer *writer) {
    yoke_file_abort(writer);
    return YOKE_OK;
}

static void abort_nothing(yoke_file_writer *writer) {
    (void)writer; /* what the sink has, the caller has */
}

static const yoke_writer_kind sink_kind = {NULL, write_bytes, commit, abort_nothing};

yoke_status yoke_sink_load(yoke_sink *own, const yoke_sink *given) {
    TRY(yoke_pointer_check(given, "sink"));
    TRY(yoke_options_load(own, sizeof *own, given, "yoke_sink"));
    if (own->write == NULL) return FAIL(YOKE_ERROR_ARGUMENT, "yoke_sink: write is NULL");
    return YOKE_OK;
}

yoke_status yoke_sink_open(yoke_file_writer *writer, const yoke_sink *sink) {
    *writer = (yoke_file_writer){.kind = &sink_kind, .sink = *sink, .descriptor = -1, .folder = -1};
    return YOKE_OK;
}
