/* SPDX-License-Identifier: Apache-2.0 */
/* A batch of a loader: rows of files, arrays, texts or callbacks become inputs, or pixels for a
 * GPU, with their labels. */
#include "data/loader_slot.h"

#include <stdlib.h>
#include <string.h>

#include "data/row_inputs.h"
#include "data/text_file.h"

#define SLOT_ALIGNMENT 64

/* Zeroed memory, pinned or aligned for vectors. */
static yoke_status reserve_rows(const yoke_slot_kind *kind, size_t row_bytes, void **memory) {
    size_t bytes = 0;
    if (__builtin_mul_overflow(kind->rows, row_bytes, &bytes) || bytes > PTRDIFF_MAX)
        return FAIL_MEMORY(bytes, "a loader slot");
    if (kind->device)
        return yoke_device_allocate_host(kind->device, bytes, "a loader slot", memory);
    bytes = (bytes + SLOT_ALIGNMENT - 1) / SLOT_ALIGNMENT * SLOT_ALIGNMENT;
    *memory = yoke_aligned_alloc(SLOT_ALIGNMENT, bytes);
    if (!*memory) return FAIL_MEMORY(bytes, "a loader slot");
    memset(*memory, 0, bytes);
    return YOKE_OK;
}

yoke_status yoke_slot_reserve(yoke_loader_slot *slot, const yoke_slot_kind *kind) {
    const yoke_dataset *dataset = kind->dataset;
    size_t values = yoke_dataset_values(dataset), targets = (size_t)dataset->target_count;
    if (!kind->pixels)
        TRY(reserve_rows(kind, values * sizeof(float), (void **)&slot->inputs));
    else
        TRY(reserve_rows(kind, kind->cropped ? values * sizeof(float) : values,
                         (void **)&slot->pixels));
    for (int k = 0; k < dataset->more_count; k++)
        TRY(reserve_rows(kind, yoke_row_inputs_values(dataset, k) * sizeof(float),
                         (void **)&slot->more_inputs[k]));
    if (kind->cropped) TRY(reserve_rows(kind, sizeof *slot->crops, (void **)&slot->crops));
    if (kind->placed) TRY(reserve_rows(kind, sizeof *slot->placements, (void **)&slot->placements));
    if (kind->augmentation->mixup > 0 && dataset->classes > 0)
        TRY(reserve_rows(kind, sizeof *slot->mixes, (void **)&slot->mixes));
    if (dataset->classes > 0)
        return reserve_rows(kind, yoke_dataset_labels(dataset) * sizeof *slot->labels,
                            (void **)&slot->labels);
    if (targets == 0) return YOKE_OK; /* rows to predict */
    return reserve_rows(kind, targets * sizeof *slot->targets, (void **)&slot->targets);
}

static void release_rows(const yoke_slot_kind *kind, void *rows) {
    if (kind->device)
        yoke_device_free_host(kind->device, rows);
    else
        yoke_free(rows);
}

void yoke_slot_release(yoke_loader_slot *slot, const yoke_slot_kind *kind) {
    void *const owned[] = {slot->mixes, slot->targets, slot->labels, slot->placements,
                           slot->crops, slot->pixels,  slot->inputs};
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++)
        release_rows(kind, owned[i]);
    for (int k = 0; k < YOKE_INPUTS_LIMIT - 1; k++)
        release_rows(kind, slot->more_inputs[k]);
}

/* Where row i of the slot goes; `generated`: its input; more_inputs[YOKE_INPUTS_LIMIT - 1]: memory
 * for the places of the others. */
static yoke_row_places places_of(const yoke_dataset *dataset, const yoke_loader_slot *slot, int i,
                                 float *generated, float **more_inputs) {
    size_t row = (size_t)i, labels = yoke_dataset_labels(dataset);
    for (int k = 0; k < dataset->more_count; k++)
        more_inputs[k] = slot->more_inputs[k] + row * yoke_row_inputs_values(dataset, k);
    return (yoke_row_places){
        generated, slot->labels ? slot->labels + row * labels : NULL,
        slot->targets ? slot->targets + row * (size_t)dataset->target_count : NULL, more_inputs};
}

static yoke_stored_row stored_row(const yoke_dataset *dataset, size_t row,
                                  const yoke_row_buffer *buffer) {
    if (!buffer->decoded && !buffer->generated) return yoke_dataset_row(dataset, row);
    return (yoke_stored_row){.bytes = buffer->decoded, .floats = buffer->generated};
}

/* The pixels of a row that is stored as bytes or as a file. */
static yoke_status copy_pixels(const yoke_slot_kind *kind, size_t row, uint8_t *pixels) {
    const yoke_dataset *dataset = kind->dataset;
    size_t values = yoke_dataset_values(dataset);
    const yoke_image_request request = {.augmentation = kind->augmentation, .stops = kind->stops};
    if (dataset->images)
        TRY(yoke_images_read(dataset->images, row, &request, pixels));
    else
        memcpy(pixels, dataset->bytes + row * values, values);
    yoke_color_jitter_row(pixels, values / 3, kind->augmentation, row);
    return YOKE_OK;
}

/* A thread fills the rows of a slot in their order: each crop begins where the last one ends. */
static yoke_status cut(yoke_loader_slot *slot, int i, const yoke_slot_kind *kind, size_t row) {
    yoke_crop *crop = &slot->crops[i];
    crop->offset = i > 0 ? crop[-1].offset + yoke_crop_bytes(&crop[-1], 3) : 0;
    const yoke_image_request request = {kind->augmentation, crop, kind->stops};
    return yoke_images_read(kind->dataset->images, row, &request, slot->pixels + crop->offset);
}

yoke_status yoke_slot_fill(yoke_loader_slot *slot, int i, const yoke_slot_kind *kind, size_t row,
                           const yoke_row_buffer *buffer) {
    const yoke_dataset *dataset = kind->dataset;
    size_t values = yoke_dataset_values(dataset), targets = (size_t)dataset->target_count;
    size_t labels = yoke_dataset_labels(dataset);
    if (dataset->text) {
        yoke_text_row(dataset->text, row, kind->augmentation, slot->inputs + (size_t)i * values,
                      slot->labels + (size_t)i * labels);
        return YOKE_OK;
    }
    if (buffer->generated) {
        float *more_inputs[YOKE_INPUTS_LIMIT - 1];
        yoke_row_places places = places_of(dataset, slot, i, buffer->generated, more_inputs);
        TRY(yoke_host_row_read(dataset, row, &places));
    } else if (slot->labels) {
        memcpy(slot->labels + (size_t)i * labels, dataset->labels + row * labels,
               labels * sizeof *slot->labels);
    } else if (slot->targets) {
        memcpy(slot->targets + (size_t)i * targets, dataset->targets + row * targets,
               targets * sizeof(float));
    }
    if (!buffer->generated) yoke_row_inputs_copy(dataset, row, slot, i);
    uint8_t *pixels = kind->pixels ? slot->pixels + (size_t)i * values : buffer->decoded;
    if (kind->cropped)
        TRY(cut(slot, i, kind, row));
    else if (pixels)
        TRY(copy_pixels(kind, row, pixels));
    if (!kind->pixels) {
        yoke_stored_row stored = stored_row(dataset, row, buffer);
        yoke_augment_row(dataset, row, &stored, kind->augmentation,
                         slot->inputs + (size_t)i * values);
        return YOKE_OK;
    }
    if (kind->placed)
        slot->placements[i] = yoke_augment_place(kind->augmentation, &dataset->shape, row);
    return YOKE_OK;
}

yoke_status yoke_slot_fill_whole(yoke_loader_slot *slot, const yoke_slot_kind *kind,
                                 const int64_t *order, const yoke_row_buffer *buffer) {
    yoke_row_places places = places_of(kind->dataset, slot, 0, slot->inputs, NULL);
    for (int i = 0; i < slot->part.rows; i++)
        buffer->rows[i] = (int64_t)yoke_dataset_stored(kind->dataset, (size_t)order[i]);
    return yoke_host_batch_read(kind->dataset, buffer->rows, slot->part.rows, &places);
}

yoke_status yoke_row_reserve(yoke_row_buffer *buffer, const yoke_slot_kind *kind) {
    const yoke_dataset *dataset = kind->dataset;
    size_t values = yoke_dataset_values(dataset);
    bool decodes = dataset->images || yoke_color_jitter_on(&kind->augmentation->color_jitter);
    bool reads = dataset->source.read || dataset->source.read_inputs;
    if (reads) buffer->generated = yoke_calloc(values, sizeof *buffer->generated);
    if (decodes) buffer->decoded = yoke_calloc(values, sizeof *buffer->decoded);
    if (dataset->source.read_batch) buffer->rows = yoke_calloc(kind->rows, sizeof *buffer->rows);
    bool missing = (reads && !buffer->generated) || (dataset->source.read_batch && !buffer->rows);
    missing = missing || (decodes && !buffer->decoded);
    return missing ? FAIL_MEMORY(values * sizeof(float), "a row") : YOKE_OK;
}
