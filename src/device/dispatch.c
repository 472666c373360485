/* SPDX-License-Identifier: Apache-2.0 */
/* Forwards calls to the device's backend, after the checks that all backends share. */
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "device/backend.h"

/* Order. */

yoke_status yoke_device_synchronize(yoke_device *device) {
    return device->backend->synchronize(device);
}

yoke_status yoke_device_event_create(yoke_device_event **event, yoke_device *device) {
    *event = NULL;
    if (device->backend->shares_memory) return YOKE_OK;
    return device->backend->event_create(event, device, false);
}

yoke_status yoke_device_event_create_timed(yoke_device_event **event, yoke_device *device) {
    *event = NULL;
    if (device->backend->shares_memory) return YOKE_OK;
    return device->backend->event_create(event, device, true);
}

yoke_status yoke_device_event_elapsed(yoke_device_event *from, yoke_device_event *to,
                                      double *milliseconds) {
    *milliseconds = 0;
    if (from == NULL || to == NULL) return YOKE_OK;
    return from->device->backend->event_elapsed(from, to, milliseconds);
}

void yoke_device_event_destroy(yoke_device_event *event) {
    if (event != NULL) event->device->backend->event_destroy(event);
}

yoke_status yoke_device_event_record(yoke_device_event *event, yoke_stream stream) {
    return event == NULL ? YOKE_OK : event->device->backend->event_record(event, stream);
}

yoke_status yoke_device_event_wait(yoke_device_event *event, yoke_device *device,
                                   yoke_stream stream) {
    return event == NULL ? YOKE_OK : device->backend->event_wait(event, device, stream);
}

yoke_status yoke_device_event_synchronize(yoke_device_event *event) {
    return event == NULL ? YOKE_OK : event->device->backend->event_synchronize(event);
}

yoke_status yoke_device_event_record_host(yoke_device_event *event, yoke_device *device,
                                          void *stream) {
    if (device->backend->event_record_host == NULL)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "the batch has a stream, but %s has none: leave the field NULL", device->name);
    return device->backend->event_record_host(event, stream);
}

yoke_status yoke_device_event_wait_host(yoke_device_event *event, yoke_device *device,
                                        void *stream) {
    return device->backend->event_wait_host(event, device, stream);
}

bool yoke_device_records(const yoke_device *device) {
    return device->backend->record_begin != NULL;
}

bool yoke_device_is_recording(const yoke_device *device) {
    return device->recording;
}

yoke_status yoke_recording_begin(yoke_device *device) {
    TRY(device->backend->record_begin(device));
    device->recording = true;
    return YOKE_OK;
}

yoke_status yoke_recording_end(yoke_device *device, yoke_status status,
                               yoke_recording **recording) {
    *recording = NULL;
    device->recording = false;
    yoke_error error = yoke_error_take(status);
    yoke_status ended = device->backend->record_end(device, recording);
    if (status == YOKE_OK) return ended;
    yoke_recording_destroy(*recording);
    *recording = NULL;
    return yoke_error_restore(&error);
}

yoke_status yoke_recording_run(yoke_recording *recording) {
    return recording->device->backend->record_run(recording);
}

void yoke_recording_destroy(yoke_recording *recording) {
    if (recording != NULL) recording->device->backend->record_destroy(recording);
}

yoke_status yoke_device_begin_step(yoke_device *device, const yoke_plan_step *step) {
    if (device->backend->begin_step == NULL || device->recording) return YOKE_OK;
    return device->backend->begin_step(device, step);
}

/* Flat arithmetic. */

yoke_status yoke_device_sum(yoke_device *device, yoke_stream stream, float *to,
                            const float *const *from, int count, size_t elements) {
    if (count < 1 || count > YOKE_DEVICES_LIMIT)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: a sum of %d buffers; 1 to %d can be added",
                    device->name, count, YOKE_DEVICES_LIMIT);
    if (elements == 0 || (count == 1 && to == from[0])) return YOKE_OK;
    return device->backend->sum(device, stream, to, from, count, elements);
}

#define SQUARE_SUM_BLOCK 4096

yoke_status yoke_device_sum_subtrees(yoke_device *device, yoke_stream stream, float *to,
                                     const float *const *from, const int *sizes, int count,
                                     size_t elements) {
    if (elements == 0) return YOKE_OK;
    return device->backend->sum_subtrees(device, stream, to, from, sizes, count, elements);
}

size_t yoke_square_sum_doubles(size_t elements) {
    return 1 + (elements + SQUARE_SUM_BLOCK - 1) / SQUARE_SUM_BLOCK;
}

yoke_status yoke_device_square_sum(yoke_device *device, yoke_stream stream, const float *values,
                                   size_t elements, double *sum) {
    return device->backend->square_sum(device, stream, values, elements, sum);
}

yoke_status yoke_device_check_finite(yoke_device *device, yoke_stream stream, const float *values,
                                     size_t elements, size_t offset, uint64_t *first_bad) {
    if (elements == 0) return YOKE_OK;
    return device->backend->check_finite(device, stream, values, elements, offset, first_bad);
}

yoke_status yoke_device_gate(yoke_device *device, yoke_stream stream, yoke_gate *gate,
                             const yoke_gate_request *request) {
    return device->backend->gate(device, stream, gate, request);
}

yoke_status yoke_device_undo(yoke_device *device, yoke_stream stream, const yoke_gate *gate,
                             float *values, const float *kept, size_t elements) {
    if (elements == 0) return YOKE_OK;
    return device->backend->undo(device, stream, gate, values, kept, elements);
}

yoke_status yoke_device_update(yoke_device *device, yoke_stream stream,
                               const yoke_update_step *step, float *weights, const float *gradients,
                               float *const states[YOKE_UPDATE_STATES], size_t elements) {
    if (elements == 0) return YOKE_OK;
    return device->backend->update(device, stream, step, weights, gradients, states, elements);
}

yoke_status yoke_device_rescale(yoke_device *device, yoke_stream stream, float *values,
                                size_t elements, const double *numerator, const double *denominator,
                                double epsilon) {
    return device->backend->rescale(device, stream, values, elements, numerator, denominator,
                                    epsilon);
}

yoke_status yoke_device_product(yoke_device *device, yoke_stream stream,
                                const yoke_product *product) {
    return device->backend->product(device, stream, product);
}

yoke_status yoke_device_shadow(yoke_device *device, yoke_precision precision, uint16_t *shadow,
                               const float *parameters, size_t elements) {
    if (device->backend->shadow == NULL) return YOKE_OK;
    return device->backend->shadow(device, precision, shadow, parameters, elements);
}

yoke_status yoke_device_accumulate(yoke_device *device, const yoke_layout *layout, void *to,
                                   const void *from) {
    return device->backend->accumulate(device, layout, to, from);
}

/* Images. */

yoke_status yoke_device_image_layout(yoke_device *device, const yoke_plan_request *reader,
                                     yoke_layout *layout) {
    const yoke_backend *backend = device->backend;
    *layout = (yoke_layout){0};
    return backend->image_layout != NULL ? backend->image_layout(device, reader, layout) : YOKE_OK;
}

yoke_status yoke_device_decode(yoke_device *device, const yoke_decode_request *request) {
    return device->backend->decode(device, request);
}

/* Layouts and plans. */

void yoke_dims_shape(yoke_dims dims, int rows, int64_t shape[4]) {
    const int sequence[] = {rows, dims.height, dims.channels, 1};
    const int image[] = {rows, dims.channels, dims.height, dims.width};
    for (int i = 0; i < 4; i++)
        shape[i] = dims.sequence ? sequence[i] : image[i];
}

yoke_status yoke_layout_plain(yoke_device *device, const int64_t *shape, int ndim,
                              yoke_layout *layout) {
    return device->backend->layout_plain(device, shape, ndim, layout);
}

bool yoke_layout_equal(const yoke_layout *a, const yoke_layout *b) {
    return a->bytes == b->bytes && memcmp(a->opaque, b->opaque, sizeof a->opaque) == 0;
}

uint64_t yoke_layout_digest(const yoke_layout *layout) {
    return XXH3_64bits_withSeed(layout->opaque, sizeof layout->opaque, layout->bytes);
}

yoke_status yoke_layout_convert(yoke_device *device, const yoke_layout *to_layout, void *to,
                                const yoke_layout *from_layout, const void *from) {
    return device->backend->layout_convert(device, to_layout, to, from_layout, from);
}

static void free_plan(yoke_plan *plan) {
    yoke_free(plan);
}

yoke_status yoke_plan_allocate(yoke_plan **plan, size_t bytes, yoke_device *device,
                               const yoke_plan_request *request, const yoke_plan_calls *calls) {
    yoke_plan *made = yoke_calloc(1, bytes);
    if (made == NULL) return FAIL_MEMORY(bytes, request->operation->name);
    bool gradient = request->input_gradient || (calls->flags & YOKE_HAS_PARAMETERS) != 0;
    unsigned backward = request->training && gradient ? calls->flags : 0;
    made->needs = (yoke_plan_needs){
        .forward_in_place = (calls->flags & YOKE_FORWARD_IN_PLACE) != 0,
        .backward_in_place = (backward & YOKE_BACKWARD_IN_PLACE) != 0,
        .backward_reads_output = (backward & YOKE_READS_OUTPUT) != 0,
    };
    for (int k = 0; k < YOKE_PLAN_INPUTS; k++) {
        unsigned own = k == 0 ? YOKE_READS_INPUT : k == 1 ? YOKE_READS_SECOND : 0;
        made->needs.backward_reads[k] = (backward & (own | YOKE_READS_INPUTS)) != 0;
    }
    made->device = device;
    made->operation = *request->operation;
    made->rows = (size_t)request->rows;
    made->frozen = request->frozen;
    made->bind = calls->bind;
    made->forward = calls->forward;
    made->backward = request->training ? calls->backward : NULL;
    made->destroy = calls->destroy != NULL ? calls->destroy : free_plan;
    made->backward_part = calls->backward_part;
    made->pack = calls->pack;
    *plan = made;
    return YOKE_OK;
}

/* What no backend can do. */
static yoke_status check_request(const yoke_plan_request *request) {
    const yoke_operation *operation = request->operation;
    yoke_dims input = operation->input;
    bool one_value = request->rows == 1 && input.height == 1 && input.width == 1;
    /* Otherwise the group counts in each step, or nobody does. */
    bool alone = request->norm_group == NULL && !request->fixed_statistics;
    if (operation->kind == YOKE_OP_BATCH_NORM && request->training && one_value && alone)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "batch norm in training needs more than 1 value per channel, got 1 row of "
                    "[%d, 1, 1]; give every device at least 2 rows",
                    input.channels);
    return YOKE_OK;
}

yoke_status yoke_plan_create(yoke_plan **plan, yoke_device *device,
                             const yoke_plan_request *request) {
    *plan = NULL;
    yoke_status status = check_request(request);
    if (status == YOKE_OK) status = device->backend->plan(plan, device, request);
    if (status == YOKE_OK) return YOKE_OK;
    yoke_plan_destroy(*plan);
    *plan = NULL;
    yoke_error_prefix("%s", request->operation->name != NULL ? request->operation->name : "?");
    return status;
}

yoke_status yoke_device_choose(yoke_device *device, const yoke_contest *contest, int *best) {
    *best = 0;
    if (device->backend->choose == NULL) return YOKE_OK;
    return device->backend->choose(device, contest, best);
}

void yoke_plan_destroy(yoke_plan *plan) {
    if (plan != NULL) plan->destroy(plan);
}

const yoke_plan_needs *yoke_plan_describe(const yoke_plan *plan) {
    return &plan->needs;
}

yoke_status yoke_plan_bind(yoke_plan *plan, const yoke_plan_binding *binding) {
    plan->binding = *binding;
    return plan->bind != NULL ? plan->bind(plan, binding) : YOKE_OK;
}

yoke_status yoke_plan_pack(const yoke_plan *plan, const yoke_plan_binding *from, void *packed) {
    return plan->pack(plan, from, packed);
}

yoke_status yoke_plan_forward(yoke_plan *plan, const yoke_plan_step *step) {
    return plan->forward(plan, step);
}

yoke_status yoke_plan_backward(yoke_plan *plan, const yoke_plan_step *step) {
    return plan->backward(plan, step);
}

const yoke_factors *yoke_plan_factors(const yoke_plan *plan) {
    return plan->factors;
}

yoke_status yoke_device_sum_factors(yoke_device *device, const yoke_factors *const *factors,
                                    int count, size_t first, size_t elements, float *to) {
    return device->backend->sum_factors(device, factors, count, first, elements, to);
}

const char *yoke_plan_algorithm(const yoke_plan *plan, yoke_direction direction) {
    return plan->algorithms[direction];
}

bool yoke_plan_has_parts(const yoke_plan *plan) {
    return plan->backward_part != NULL;
}

yoke_status yoke_plan_backward_part(yoke_plan *plan, yoke_direction direction) {
    return plan->backward_part(plan, direction);
}
