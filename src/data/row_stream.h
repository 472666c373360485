/* SPDX-License-Identifier: Apache-2.0 */
/* A row stream as one loader reads it. For this room only. */
#ifndef DATA_ROW_STREAM_H
#define DATA_ROW_STREAM_H

#include <stdatomic.h>

#include "data/loader_slot.h"

/* Fills a zeroed dataset; yoke_dataset_close frees what there is after a failure. */
yoke_status yoke_stream_open(yoke_dataset *dataset, const yoke_row_stream *given);
void yoke_stream_limit(yoke_stream_reader *stream, size_t rows);

/* A loader with these options claims the stream; ARGUMENT: another loader has it. release takes
 * NULL. */
yoke_status yoke_stream_claim(yoke_stream_reader *stream, const yoke_dataset *dataset,
                              const yoke_loader_options *options);
void yoke_stream_release(yoke_stream_reader *stream);

/* The loader's caller calls begin, while no thread reads, to say which pass the next read begins
 * and how many batches it skips. The loader's thread calls read for the next batch of all ranks,
 * which has 0 rows behind the last one; `cancelled` ends it early. deal copies slot->part of the
 * batch into the slot. */
yoke_status yoke_stream_begin(yoke_stream_reader *stream, uint64_t epoch, size_t batches);
yoke_status yoke_stream_read(yoke_stream_reader *stream, yoke_loader_slot *slot,
                             const atomic_bool *cancelled);
void yoke_stream_deal(const yoke_stream_reader *stream, yoke_loader_slot *slot);

#endif
