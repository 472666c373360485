/* SPDX-License-Identifier: Apache-2.0 */
/* Reads rows that come in a stream of unknown length: batch after batch, pass after pass. In DDP
 * every rank reads the whole batch and keeps its part, so that DDP trains on the rows of one
 * process and all ranks see the same end. */
#include "data/row_stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* The fields after `taken` belong to the loader that took the stream: to its caller while no thread
 * of it reads, to that thread otherwise. */
struct yoke_stream_reader {
    yoke_row_stream host;
    size_t limit; /* rows of a pass at most */
    atomic_bool taken;
    const yoke_dataset *dataset;
    size_t batch;
    bool drop_last;
    yoke_row_places whole; /* [batch] rows, owned; no inputs: one rank reads into its slot */
    bool begun, waiting;   /* a pass was begun; its first read is still to come */
    bool over;             /* the pass has no more rows, or failed */
    uint64_t epoch;
    size_t skipped; /* batches that the pass begins behind */
    size_t row;     /* the next one of the pass */
};

yoke_status yoke_stream_open(yoke_dataset *dataset, const yoke_row_stream *given) {
    yoke_row_stream host = {0};
    TRY(yoke_options_load(&host, sizeof host, given, "yoke_row_stream"));
    if (!host.next) return FAIL(YOKE_ERROR_ARGUMENT, "yoke_row_stream.next is NULL: set it");
    yoke_stream_reader *stream = yoke_calloc(1, sizeof *stream);
    if (!stream) return FAIL_MEMORY(sizeof *stream, "a row stream");
    *stream = (yoke_stream_reader){.host = host, .limit = SIZE_MAX};
    *dataset = (yoke_dataset){.name = "stream",
                              .shape = host.shape,
                              .classes = host.classes,
                              .target_count = host.target_count,
                              .label_count = host.label_count,
                              .stream = stream};
    yoke_dataset_set_statistics(dataset, 0, 1);
    return yoke_host_rows_check(dataset);
}

void yoke_stream_limit(yoke_stream_reader *stream, size_t rows) {
    if (rows < stream->limit) stream->limit = rows;
}

bool yoke_dataset_rewinds(const yoke_dataset *dataset) {
    return dataset->stream && dataset->stream->host.rewind;
}

/* One loader at a time. */

static yoke_status reserve_whole(yoke_stream_reader *stream) {
    const yoke_dataset *dataset = stream->dataset;
    size_t labels = yoke_dataset_labels(dataset), targets = (size_t)dataset->target_count;
    size_t values = yoke_dataset_values(dataset), bytes = stream->batch * values * sizeof(float);
    yoke_row_places *whole = &stream->whole;
    whole->inputs = yoke_calloc(stream->batch, values * sizeof *whole->inputs);
    if (dataset->classes > 0)
        whole->labels = yoke_calloc(stream->batch, labels * sizeof *whole->labels);
    else
        whole->targets = yoke_calloc(stream->batch, targets * sizeof *whole->targets);
    if (whole->inputs && (whole->labels || whole->targets)) return YOKE_OK;
    return FAIL_MEMORY(bytes, "a batch of all ranks");
}

yoke_status yoke_stream_claim(yoke_stream_reader *stream, const yoke_dataset *dataset,
                              const yoke_loader_options *options) {
    if (atomic_exchange(&stream->taken, true))
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "a loader reads this row stream already: each one needs a dataset of its own");
    stream->dataset = dataset;
    stream->batch = (size_t)options->batch;
    stream->drop_last = options->drop_last;
    yoke_status status = options->world > 1 ? reserve_whole(stream) : YOKE_OK;
    if (status != YOKE_OK) yoke_stream_release(stream);
    return status;
}

void yoke_stream_release(yoke_stream_reader *stream) {
    if (!stream) return;
    yoke_free(stream->whole.inputs);
    yoke_free(stream->whole.labels);
    yoke_free(stream->whole.targets);
    stream->whole = (yoke_row_places){0};
    atomic_store(&stream->taken, false);
}

/* Reading. */

yoke_status yoke_stream_begin(yoke_stream_reader *stream, uint64_t epoch, size_t batches) {
    if (stream->begun && !stream->host.rewind)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "the row stream has one pass, which has begun: a second one needs `rewind`");
    stream->begun = stream->waiting = true;
    stream->epoch = epoch;
    stream->skipped = batches;
    return YOKE_OK;
}

/* Adds rows to the first `rows` of a batch, `room` at most; *rows is then their number. */
static yoke_status read_some(yoke_stream_reader *stream, const yoke_row_places *places, size_t room,
                             size_t *rows) {
    const yoke_dataset *dataset = stream->dataset;
    size_t first = *rows, labels = yoke_dataset_labels(dataset);
    int32_t *own = places->labels ? places->labels + first * labels : NULL;
    float *targets =
        places->targets ? places->targets + first * (size_t)dataset->target_count : NULL;
    char who[64];
    int count = 0;
    snprintf(who, sizeof who, "row %zu of the row stream", stream->row);
    yoke_error_forget();
    TRY(yoke_error_of_host(stream->host.next(stream->host.payload, (int)room,
                                             places->inputs + first * yoke_dataset_values(dataset),
                                             own, targets, &count),
                           who));
    if (count < 0 || (size_t)count > room)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: `next` wrote %d rows, expected 0..%zu", who, count,
                    room);
    for (size_t i = 0; own && i < (size_t)count; i++)
        TRY(yoke_host_labels_check(dataset, stream->row + i, own + i * labels));
    *rows += (size_t)count;
    stream->row += (size_t)count;
    stream->over = count == 0;
    return YOKE_OK;
}

/* A batch, short at the end of the pass. */
static yoke_status read_batch(yoke_stream_reader *stream, const yoke_row_places *places,
                              const atomic_bool *cancelled, size_t *rows) {
    *rows = 0;
    while (*rows < stream->batch && !stream->over && !atomic_load(cancelled)) {
        size_t room = stream->batch - *rows, left = stream->limit - stream->row;
        if (left == 0)
            stream->over = true;
        else
            TRY(read_some(stream, places, room < left ? room : left, rows));
    }
    return YOKE_OK;
}

static yoke_status start_pass(yoke_stream_reader *stream, const yoke_row_places *places,
                              const atomic_bool *cancelled) {
    stream->waiting = stream->over = false;
    stream->row = 0;
    if (stream->host.rewind) {
        yoke_error_forget();
        TRY(yoke_error_of_host(stream->host.rewind(stream->host.payload, stream->epoch),
                               "`rewind` of the row stream"));
    }
    bool all = stream->skipped > stream->limit / stream->batch;
    size_t rows = all ? stream->limit : stream->skipped * stream->batch;
    if (stream->host.skip && rows > 0) {
        yoke_error_forget();
        stream->row = rows;
        return yoke_error_of_host(stream->host.skip(stream->host.payload, rows),
                                  "`skip` of the row stream");
    }
    for (size_t done = 0; done < stream->skipped && !atomic_load(cancelled); done++) {
        size_t count;
        TRY(read_batch(stream, places, cancelled, &count));
        if (count == 0 && !atomic_load(cancelled))
            return FAIL(YOKE_ERROR_DATA,
                        "the row stream has %zu rows in epoch %llu: fewer than the %zu batches of "
                        "%zu that the run goes on behind; give the earlier run's rows, or begin "
                        "anew",
                        stream->row, (unsigned long long)stream->epoch + 1, stream->skipped,
                        stream->batch);
    }
    return YOKE_OK;
}

static uint64_t digest_of(const yoke_dataset *dataset, const yoke_row_places *whole, size_t rows) {
    if (whole->labels)
        return XXH3_64bits(whole->labels, rows * yoke_dataset_labels(dataset) * sizeof(int32_t));
    return XXH3_64bits(whole->targets, rows * (size_t)dataset->target_count * sizeof(float));
}

yoke_status yoke_stream_read(yoke_stream_reader *stream, yoke_loader_slot *slot,
                             const atomic_bool *cancelled) {
    yoke_row_places own = {slot->inputs, slot->labels, slot->targets};
    const yoke_row_places *places = stream->whole.inputs ? &stream->whole : &own;
    size_t rows = 0;
    slot->whole_rows = 0;
    yoke_status status = stream->waiting ? start_pass(stream, places, cancelled) : YOKE_OK;
    if (status == YOKE_OK) status = read_batch(stream, places, cancelled, &rows);
    if (status != YOKE_OK) stream->over = true;
    TRY(status);
    if (rows < stream->batch && stream->drop_last) rows = 0;
    slot->whole_rows = (int)rows;
    if (stream->whole.inputs) slot->digest = digest_of(stream->dataset, places, rows);
    return YOKE_OK;
}

void yoke_stream_deal(const yoke_stream_reader *stream, yoke_loader_slot *slot) {
    const yoke_dataset *dataset = stream->dataset;
    const yoke_row_places *whole = &stream->whole;
    size_t first = (size_t)slot->part.first, rows = (size_t)slot->part.rows;
    size_t values = yoke_dataset_values(dataset), labels = yoke_dataset_labels(dataset);
    size_t targets = (size_t)dataset->target_count;
    if (!whole->inputs) return;
    memcpy(slot->inputs, whole->inputs + first * values, rows * values * sizeof *slot->inputs);
    if (slot->labels)
        memcpy(slot->labels, whole->labels + first * labels, rows * labels * sizeof *slot->labels);
    else
        memcpy(slot->targets, whole->targets + first * targets,
               rows * targets * sizeof *slot->targets);
}
