/* A slot's memory, pinned where GPUs copy from it, and how its rows come into it. */
#include "data/slot.h"

#include <stdlib.h>
#include <string.h>

#define SLOT_ALIGNMENT 64

/* Memory. */

/* Zeroed, aligned for vectors; NULL when there is no memory. */
static void *reserve(size_t count, size_t size) {
    size_t bytes = 0;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > PTRDIFF_MAX) return NULL;
    bytes = (bytes + SLOT_ALIGNMENT - 1) / SLOT_ALIGNMENT * SLOT_ALIGNMENT;
    void *memory = aligned_alloc(SLOT_ALIGNMENT, bytes);
    return memory ? memset(memory, 0, bytes) : NULL;
}

static yoke_status reserve_rows(const yoke_slot_kind *kind, size_t row_bytes, void **memory) {
    size_t bytes = 0;
    if (kind->home && !__builtin_mul_overflow(kind->rows, row_bytes, &bytes))
        return yoke_device_allocate_host(kind->home, bytes, "a loader slot", memory);
    *memory = reserve(kind->rows, row_bytes);
    return *memory ? YOKE_OK : FAIL_MEMORY(kind->rows * row_bytes, "a loader slot");
}

static yoke_status reserve_pictures(yoke_slot *slot, const yoke_slot_kind *kind) {
    size_t values = yoke_dataset_values(kind->dataset);
    if (!kind->pixels) return reserve_rows(kind, values * sizeof(float), (void **)&slot->inputs);
    TRY(reserve_rows(kind, values, (void **)&slot->pixels));
    if (!kind->placed) return YOKE_OK;
    return reserve_rows(kind, sizeof *slot->placements, (void **)&slot->placements);
}

yoke_status yoke_slot_reserve(yoke_slot *slot, const yoke_slot_kind *kind) {
    const yoke_dataset *dataset = kind->dataset;
    size_t targets = (size_t)dataset->target_count;
    TRY(reserve_pictures(slot, kind));
    if (dataset->classes > 0)
        return reserve_rows(kind, sizeof *slot->labels, (void **)&slot->labels);
    return reserve_rows(kind, targets * sizeof *slot->targets, (void **)&slot->targets);
}

void yoke_slot_release(yoke_slot *slot, const yoke_slot_kind *kind) {
    void *const owned[] = {slot->targets, slot->labels, slot->placements, slot->pixels,
                           slot->inputs};
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++) {
        if (kind->home)
            yoke_device_free_host(kind->home, owned[i]);
        else
            free(owned[i]);
    }
}

/* Rows. */

static yoke_status read_made(const yoke_dataset *dataset, size_t row, float *made, yoke_slot *slot,
                             int i) {
    int32_t *label = slot->labels ? slot->labels + i : NULL;
    float *targets =
        slot->targets ? slot->targets + (size_t)i * (size_t)dataset->target_count : NULL;
    yoke_error_set(YOKE_OK, "%s", ""); /* so that what stands there afterwards is the source's */
    yoke_status status = dataset->source.read(dataset->source.payload, row, made, label, targets);
    if (status != YOKE_OK) {
        if (!*yoke_last_error())
            return FAIL(status, "row %zu: the row source answered %s", row,
                        yoke_status_name(status));
        yoke_error_prefix("row %zu of the row source", row);
        return status;
    }
    if (label && (*label < 0 || *label >= dataset->classes))
        return FAIL(YOKE_ERROR_ARGUMENT, "row %zu: the row source gave label %d, expected 0..%d",
                    row, (int)*label, dataset->classes - 1);
    return YOKE_OK;
}

static void copy_answer(const yoke_dataset *dataset, size_t row, yoke_slot *slot, int i) {
    size_t count = (size_t)dataset->target_count;
    if (slot->labels)
        slot->labels[i] = dataset->labels[row];
    else
        memcpy(slot->targets + (size_t)i * count, dataset->targets + row * count,
               count * sizeof(float));
}

static void copy_pixels(const yoke_slot_kind *kind, size_t row, yoke_slot *slot, int i) {
    const yoke_dataset *dataset = kind->dataset;
    size_t values = yoke_dataset_values(dataset);
    memcpy(slot->pixels + (size_t)i * values, dataset->bytes + row * values, values);
    if (kind->placed)
        slot->placements[i] = yoke_augment_place(kind->augmentation, &dataset->shape, row);
}

yoke_status yoke_slot_fill(yoke_slot *slot, int i, const yoke_slot_kind *kind, size_t row,
                           float *made) {
    const yoke_dataset *dataset = kind->dataset;
    if (made)
        TRY(read_made(dataset, row, made, slot, i));
    else
        copy_answer(dataset, row, slot, i);
    if (kind->pixels)
        copy_pixels(kind, row, slot, i);
    else
        yoke_augment_row(dataset, row, kind->augmentation, made,
                         slot->inputs + (size_t)i * yoke_dataset_values(dataset));
    return YOKE_OK;
}
