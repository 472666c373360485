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
    yoke_stops stops;    /* of decoders: the loader's, and the run's */
} yoke_slot_kind;

typedef struct yoke_loader_slot {
    float *inputs;              /* or */
    uint8_t *pixels;            /* with */
    yoke_crop *crops;           /* NULL: pixels have the size of rows */
    yoke_placement *placements; /* NULL: images are not moved */
    int32_t *labels;            /* NULL for regression */
    float *targets;             /* NULL for classification */
    yoke_label_mix *mixes;      /* NULL: no mixup, or regression */
    yoke_chunk part;            /* this rank's rows of the batch */
    int whole_rows;             /* 0: the row stream's pass is over */
    uint64_t digest;            /* of a row stream, in DDP */
    bool ready;
    yoke_error error;
} yoke_loader_slot;

/* Memory of a thread for one row. */
typedef struct yoke_row_buffer {
    float *generated; /* of a dataset that generates rows on demand, or */
    uint8_t *decoded; /* of one that decodes files or changes colours, or none */
    int64_t *rows;    /* of a slot, for one that generates a batch at a time */
} yoke_row_buffer;

/* reserve: after a failure, release frees what there is. fill: writes stored row `row` into place
 * i. MEMORY, or the error of a file or of a row source. */
yoke_status yoke_slot_reserve(yoke_loader_slot *slot, const yoke_slot_kind *kind);
void yoke_slot_release(yoke_loader_slot *slot, const yoke_slot_kind *kind);
yoke_status yoke_slot_fill(yoke_loader_slot *slot, int i, const yoke_slot_kind *kind, size_t row,
                           const yoke_row_buffer *buffer);
/* All rows of the slot by one call of a dataset's `read_batch`: order[part.rows], as the loader
 * orders them. */
yoke_status yoke_slot_fill_whole(yoke_loader_slot *slot, const yoke_slot_kind *kind,
                                 const int64_t *order, const yoke_row_buffer *buffer);
/* mixup.c: mixes the filled rows of the slot, each with the row before it in the whole batch, which
 * it reads for the first. order[whole_rows]: of that batch, as the loader orders it. */
yoke_status yoke_slot_mix(yoke_loader_slot *slot, const yoke_slot_kind *kind, const int64_t *order,
                          const yoke_row_buffer *buffer);
/* What fill needs; the loader frees it. */
yoke_status yoke_row_reserve(yoke_row_buffer *buffer, const yoke_slot_kind *kind);

#endif
