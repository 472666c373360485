/* SPDX-License-Identifier: Apache-2.0 */
/* A row stream as one loader reads it. For this room only. */
#ifndef DATA_ROW_STREAM_H
#define DATA_ROW_STREAM_H

#include <stdatomic.h>

#include "data/loader_slot.h"

/* Fills a zeroed dataset; yoke_dataset_close frees what there is after a failure. */
yoke_status yoke_stream_open(yoke_dataset *dataset, const yoke_row_stream *given);
void yoke_stream_limit(yoke_stream_reader *stream, size_t rows);

/* claim: for a loader with these options; ARGUMENT: another one has the stream. release takes
 * NULL. */
yoke_status yoke_stream_claim(yoke_stream_reader *stream, const yoke_dataset *dataset,
                              const yoke_loader_options *options);
void yoke_stream_release(yoke_stream_reader *stream);

/* begin: the loader's caller says which pass the next read begins, behind how many batches, while
 * no thread reads. read: the loader's thread reads the next batch of all ranks, 0 rows behind the
 * last one; `cancelled` ends it early. deal: copies slot->part of it into the slot. */
yoke_status yoke_stream_begin(yoke_stream_reader *stream, uint64_t epoch, size_t batches);
yoke_status yoke_stream_read(yoke_stream_reader *stream, yoke_loader_slot *slot,
                             const atomic_bool *cancelled);
void yoke_stream_deal(const yoke_stream_reader *stream, yoke_loader_slot *slot);

#endif
