/* SPDX-License-Identifier: Apache-2.0 */
/* Dropout. The mask of an element depends only on seed, step, layer, global row and the element's
 * index in its row, not on the layout or the number of devices. Forward saves the mask for
 * backward. */
#include <string.h>

#include "device/cpu/cpu.h"
#include "device/cpu/geometry.h"

typedef struct dropout_plan {
    yoke_plan base;
    size_t mask_stride;    /* bytes; `saved` holds [rows, mask_stride] bits, in logical order */
    size_t elements;       /* of one row, without padding */
    cpu_geometry geometry; /* a row in plain order counts as one channel */
    bool half, active;
    uint32_t threshold; /* a word below it drops its element */
    float scale;
} dropout_plan;

/* Row and step share one coordinate: below 2^24 rows and 2^40 steps no two draws are the same. */
static void draw_row(const dropout_plan *dropout, const yoke_plan_step *step, size_t row) {
    uint8_t *mask = (uint8_t *)dropout->base.binding.saved + row * dropout->mask_stride;
    uint64_t row_and_step = (step->first_row + row) << 40 ^ step->step;
    memset(mask, 0, dropout->mask_stride);
    for (size_t block = 0; block * 4 < dropout->elements; block++) {
        uint32_t words[4];
        yoke_random_words(step->seed, YOKE_RANDOM_DROPOUT, row_and_step,
                          dropout->base.operation.layer, (uint32_t)block, words);
        unsigned kept = 0;
        for (unsigned i = 0; i < 4; i++) {
            kept |= (unsigned)(words[i] >= dropout->threshold) << i;
        }
        mask[block / 2] |= (uint8_t)(kept << block % 2 * 4);
    }
}

static void mask_row(const dropout_plan *dropout, size_t row, const void *from, void *to) {
    const cpu_geometry *geometry = &dropout->geometry;
    const uint8_t *mask = (uint8_t *)dropout->base.binding.saved + row * dropout->mask_stride;
    size_t element = 0;
    for (size_t channel = 0; channel < geometry->padded_channels; channel++) {
        bool padding = channel >= geometry->channels;
        size_t at = row * geometry->row_stride +
                    channel / geometry->block * geometry->block_stride + channel % geometry->block;
        for (size_t pixel = 0; pixel < geometry->pixels; pixel++, element++) {
            bool kept = !padding && (mask[element / 8] >> element % 8 & 1) != 0;
            float value = kept ? cpu_load(from, at, dropout->half) * dropout->scale : 0;
            cpu_store(to, at, dropout->half, value);
            at += geometry->pixel_stride;
        }
    }
}

static void pass_on(const dropout_plan *dropout, void *to, const void *from) {
    if (to != from) memcpy(to, from, dropout->base.needs.output.bytes);
}

static bool is_parallel(const dropout_plan *dropout) {
    return cpu_is_parallel(dropout->base.device->threads, dropout->base.rows * dropout->elements);
}

static yoke_status dropout_forward(yoke_plan *plan, const yoke_plan_step *step) {
    const dropout_plan *dropout = (const dropout_plan *)plan;
    const yoke_plan_binding *binding = &plan->binding;
    if (!dropout->active) {
        pass_on(dropout, binding->output, binding->inputs[0]);
        return YOKE_OK;
    }
#pragma omp parallel for num_threads(plan->device->threads) if (is_parallel(dropout))
    for (size_t row = 0; row < dropout->base.rows; row++) {
        draw_row(dropout, step, row);
        mask_row(dropout, row, binding->inputs[0], binding->output);
    }
    return YOKE_OK;
}

static yoke_status dropout_backward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const dropout_plan *dropout = (const dropout_plan *)plan;
    const yoke_plan_binding *binding = &plan->binding;
    void *gradient = binding->input_gradients[0];
    if (gradient == NULL) return YOKE_OK;
    if (!dropout->active) {
        pass_on(dropout, gradient, binding->output_gradient);
        return YOKE_OK;
    }
#pragma omp parallel for num_threads(plan->device->threads) if (is_parallel(dropout))
    for (size_t row = 0; row < dropout->base.rows; row++) {
        mask_row(dropout, row, binding->output_gradient, gradient);
    }
    return YOKE_OK;
}

static yoke_status read_geometry(dropout_plan *dropout, const cpu_desc *desc) {
    cpu_geometry *geometry = &dropout->geometry;
    TRY(cpu_geometry_read(geometry, desc, "dropout"));
    if (desc->inner_count > 0 || geometry->block_stride != geometry->pixels ||
        geometry->pixel_stride != 1)
        return YOKE_OK;
    *geometry = (cpu_geometry){.row_stride = geometry->row_stride,
                               .channels = 1,
                               .padded_channels = 1,
                               .pixels = geometry->channels * geometry->pixels,
                               .block = 1,
                               .pixel_stride = 1};
    return YOKE_OK;
}

yoke_status cpu_plan_dropout(yoke_plan **plan, cpu_device *device,
                             const yoke_plan_request *request) {
    static const yoke_plan_calls calls = {NULL, dropout_forward, dropout_backward, NULL,
                                          YOKE_IN_PLACE};
    TRY(yoke_plan_allocate(plan, sizeof(dropout_plan), &device->base, request, &calls));
    dropout_plan *dropout = (dropout_plan *)*plan;
    const yoke_operation *operation = request->operation;
    const cpu_desc *value = cpu_layout_desc(&request->inputs[0]);
    TRY(read_geometry(dropout, value));
    dropout->elements = dropout->geometry.channels * dropout->geometry.pixels;
    dropout->mask_stride = (dropout->elements + 7) / 8;
    dropout->half = value->type == dnnl_bf16;
    dropout->active = request->training && operation->probability > 0;
    dropout->threshold = (uint32_t)(operation->probability * 0x1p32);
    dropout->scale = (float)(1 / (1 - operation->probability));
    yoke_plan_needs *needs = &dropout->base.needs;
    needs->output = request->inputs[0];
    if (dropout->active) needs->saved_bytes = dropout->base.rows * dropout->mask_stride;
    return YOKE_OK;
}
