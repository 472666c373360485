/* SPDX-License-Identifier: Apache-2.0 */
/* The one way to write weights. What a save needs is there before it: the header, memory for the
 * values, the open file and its space on the disk. The save itself then only copies values and
 * writes them. */
#ifndef TRAIN_WEIGHTS_WRITER_H
#define TRAIN_WEIGHTS_WRITER_H

#include "parallel/parallel.h"
#include "train/description.h"

typedef struct yoke_weights_writer yoke_weights_writer;

typedef struct yoke_weights_writer_options {
    yoke_file_target target; /* its path is copied, its sink borrowed */
    const yoke_notes *notes; /* what the file says of itself; copied. NULL: nothing */
    bool apart;              /* write uses no engine: another thread may call it. Takes memory for
                                all weights instead of the largest tensor */
} yoke_weights_writer_options;

/* Allocates memory and formats the header; opens nothing. */
yoke_status yoke_weights_writer_create(yoke_weights_writer **writer, yoke_data_parallel *parallel,
                                       const yoke_model *model,
                                       const yoke_weights_writer_options *options);
void yoke_weights_writer_destroy(yoke_weights_writer *writer); /* takes NULL */
/* A run that goes on after a failure has another engine of the same model. */
void yoke_weights_writer_follow(yoke_weights_writer *writer, yoke_data_parallel *parallel);
/* Opens the file and reserves its space, unless it is open. It uses no engine. */
yoke_status yoke_weights_writer_open(yoke_weights_writer *writer);

/* A save is take, then write; both may be called again. take: the engine's weights, or those that
 * `best` keeps as the best (NULL: none), which must not change before write. NUMERIC: a value is
 * not finite; of writers that are not apart, write returns it. */
yoke_status yoke_weights_writer_take(yoke_weights_writer *writer, const yoke_state *best);
/* Writes the open file, or a new one at the target; after a failure it waits shortly and writes a
 * new one, twice at most, but to a sink only once. IO: the file at the path is what it was before,
 * or, where its folder could not be synced, the whole new one. */
yoke_status yoke_weights_writer_write(yoke_weights_writer *writer);
/* Writes to another file, once. */
yoke_status yoke_weights_writer_write_to(yoke_weights_writer *writer, const char *path);

#endif
