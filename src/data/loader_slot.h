/* SPDX-License-Identifier: Apache-2.0 */
/* A batch of a loader: its memory, and how rows get into it. For this room only. */
#ifndef DATA_LOADER_SLOT_H
#define DATA_LOADER_SLOT_H

#include "data/data.h"
#include "device/device.h"

/* What all slots of a loader share. */
typedef struct yoke_slot_kind {
    const yoke_dataset *dataset;
    const yoke_augmentation *augmentation; /* of the running epoch */
    yoke_device *device; /* slots lie in memory pinned for it; NULL: in ordinary memory */
    size_t rows;         /* rows that a slot has room for: with mixup one more than its part */
    bool pixels, placed; /* slots hold stored pixels; and placements */
    bool cropped;        /* the pixels are crops, which GPUs scale */
    yoke_stops stops;    /* the loader's flag and the run's flag, which end decoders */
} yoke_slot_kind;

typedef struct yoke_loader_slot {
    float *inputs;                             /* or */
    uint8_t *pixels;                           /* with */
    yoke_crop *crops;                          /* NULL: pixels have the size of rows */
    yoke_placement *placements;                /* NULL: images are not moved */
    float *more_inputs[YOKE_INPUTS_LIMIT - 1]; /* in the dataset's order */
    int32_t *labels;                           /* NULL for regression */
    float *targets;                            /* NULL for classification */
    yoke_label_mix *mixes;                     /* NULL: no mixup, or regression */
    yoke_chunk part;                           /* this rank's rows of the batch */
    int whole_rows;                            /* 0: the row stream's pass is over */
    int model;                                 /* yoke_shorter's; 0: rows as they are stored */
    uint64_t digest;                           /* of a row stream, in DDP */
    bool ready;
    yoke_error error;
} yoke_loader_slot;

/* A thread's memory for one row. */
typedef struct yoke_row_buffer {
    float *generated; /* for a row that the dataset generates on demand, or */
    uint8_t *decoded; /* for one whose file it decodes or whose colours it changes, or NULL */
    int64_t *rows;    /* of a slot, for one that generates a batch at a time */
} yoke_row_buffer;

/* reserve: after a failure, release frees what there is. fill: writes stored row `row` into place
 * i. MEMORY, or the error of a file or of a row source. */
yoke_status yoke_slot_reserve(yoke_loader_slot *slot, const yoke_slot_kind *kind);
void yoke_slot_release(yoke_loader_slot *slot, const yoke_slot_kind *kind);
yoke_status yoke_slot_fill(yoke_loader_slot *slot, int i, const yoke_slot_kind *kind, size_t row,
                           const yoke_row_buffer *buffer);
/* Fills all rows of the slot by one call of the dataset's `read_batch`. order[part.rows]: the rows
 * in the loader's order. */
yoke_status yoke_slot_fill_whole(yoke_loader_slot *slot, const yoke_slot_kind *kind,
                                 const int64_t *order, const yoke_row_buffer *buffer);
/* mixup.c: mixes each filled row of the slot with the row before it in the whole batch; it reads
 * the one before the first. order[whole_rows]: the batch's rows in the loader's order. */
yoke_status yoke_slot_mix(yoke_loader_slot *slot, const yoke_slot_kind *kind, const int64_t *order,
                          const yoke_row_buffer *buffer);
/* What fill needs; the loader frees it. */
yoke_status yoke_row_reserve(yoke_row_buffer *buffer, const yoke_slot_kind *kind);

#endif
