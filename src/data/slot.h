/* A slot of the loader: the memory of one batch, filled row by row. */
#ifndef DATA_SLOT_H
#define DATA_SLOT_H

#include "data/data.h"
#include "device/device.h"

/* Where batches lie and how their rows are made; outlives its slots. */
typedef struct yoke_slot_kind {
    const yoke_dataset *dataset;
    const yoke_augmentation *augmentation; /* of the running epoch */
    yoke_device *home;   /* slots lie where it likes to copy from; NULL: anywhere */
    size_t rows;         /* room in a slot */
    bool pixels, placed; /* rows as stored; with placements */
} yoke_slot_kind;

typedef struct yoke_slot {
    float *inputs;              /* or */
    uint8_t *pixels;            /* with */
    yoke_placement *placements; /* NULL: pictures stay as they are */
    int32_t *labels;            /* NULL for regression */
    float *targets;             /* NULL for classification */
    yoke_chunk part;            /* of the batch's rows: this rank's */
    int whole_rows;
    bool ready;
    yoke_error error;
} yoke_slot;

/* Zeroed memory; what there is after a failure is released as ever. */
yoke_status yoke_slot_reserve(yoke_slot *slot, const yoke_slot_kind *kind);
void yoke_slot_release(yoke_slot *slot, const yoke_slot_kind *kind);
/* Row `i` of the slot becomes row `row` of the dataset; `made` is room for one row of a dataset
 * made on demand, NULL for others. */
yoke_status yoke_slot_fill(yoke_slot *slot, int i, const yoke_slot_kind *kind, size_t row,
                           float *made);

#endif
