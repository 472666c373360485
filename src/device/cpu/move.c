/* SPDX-License-Identifier: Apache-2.0 */
/* What only moves elements: a row in another shape, exchanged axes, a part of a row with padding;
 * and a parameter or a constant in every row. */
#include <string.h>

#include "device/cpu/plain.h"

static size_t element_bytes(const cpu_plain_plan *plain) {
    return plain->half ? sizeof(uint16_t) : sizeof(float);
}

/* A row in another shape: the same memory. */

static void copy_value(const cpu_plain_plan *plain, void *to, const void *from) {
    if (to != NULL && to != from) memcpy(to, from, plain->base.needs.output.bytes);
}

static void reshape_forward(const cpu_plain_plan *plain) {
    copy_value(plain, plain->base.binding.output, plain->base.binding.inputs[0]);
}

static void reshape_backward(const cpu_plain_plan *plain) {
    copy_value(plain, plain->base.binding.input_gradients[0], plain->base.binding.output_gradient);
}

yoke_status cpu_plan_row_shape(yoke_plan **plan, cpu_device *device,
                               const yoke_plan_request *request) {
    static const cpu_plain_operation calls = {.flags = YOKE_IN_PLACE,
                                              .bytes = sizeof(cpu_plain_plan),
                                              .forward = reshape_forward,
                                              .backward = reshape_backward};
    return cpu_plain_plan_create(plan, device, request, &calls, 1);
}

/* Moves. */

typedef struct move_plan {
    cpu_plain_plan plain;
    yoke_box box;
    size_t from_elements, to_elements;
} move_plan;

typedef struct side {
    char *row;
    size_t first;
    const size_t *steps;
} side;

/* Elements along the innermost axis. */
static void copy_line(bool half, size_t count, void *to, size_t to_step, const void *from,
                      size_t from_step) {
    if (to_step == 1 && from_step == 1)
        memcpy(to, from, count * (half ? sizeof(uint16_t) : sizeof(float)));
    else if (half)
        for (size_t k = 0; k < count; k++)
            ((uint16_t *)to)[k * to_step] = ((const uint16_t *)from)[k * from_step];
    else
        for (size_t k = 0; k < count; k++)
            ((float *)to)[k * to_step] = ((const float *)from)[k * from_step];
}

static void copy_box(const move_plan *self, side to, side from) {
    const size_t *lengths = self->box.lengths, bytes = element_bytes(&self->plain);
    for (size_t i = 0; i < lengths[0]; i++)
        for (size_t j = 0; j < lengths[1]; j++) {
            size_t t = to.first + i * to.steps[0] + j * to.steps[1];
            size_t f = from.first + i * from.steps[0] + j * from.steps[1];
            copy_line(self->plain.half, lengths[2], to.row + t * bytes, to.steps[2],
                      from.row + f * bytes, from.steps[2]);
        }
}

static void move_forward(const cpu_plain_plan *plain) {
    const move_plan *self = (const move_plan *)plain;
    const yoke_plan_binding *at = &plain->base.binding;
    const yoke_box *box = &self->box;
    size_t rows = plain->base.rows;
    int threads = plain->base.device->threads;
#pragma omp parallel for num_threads(                                                              \
    threads) if (cpu_is_parallel(threads, rows * self->to_elements))
    for (size_t row = 0; row < rows; row++) {
        side to = {cpu_plain_row(plain, at->output, row, self->to_elements), box->to_first,
                   box->to_steps};
        side from = {cpu_plain_row(plain, at->inputs[0], row, self->from_elements), box->from_first,
                     box->from_steps};
        for (size_t i = 0; box->fills && i < self->to_elements; i++)
            cpu_store(to.row, i, plain->half, plain->base.operation.move.fill);
        copy_box(self, to, from);
    }
}

static void move_backward(const cpu_plain_plan *plain) {
    const move_plan *self = (const move_plan *)plain;
    const yoke_plan_binding *at = &plain->base.binding;
    const yoke_box *box = &self->box;
    size_t rows = plain->base.rows;
    int threads = plain->base.device->threads;
    if (at->input_gradients[0] == NULL) return;
#pragma omp parallel for num_threads(                                                              \
    threads) if (cpu_is_parallel(threads, rows * self->from_elements))
    for (size_t row = 0; row < rows; row++) {
        side to = {cpu_plain_row(plain, at->input_gradients[0], row, self->from_elements),
                   box->from_first, box->from_steps};
        side from = {cpu_plain_row(plain, at->output_gradient, row, self->to_elements),
                     box->to_first, box->to_steps};
        if (box->leaves) memset(to.row, 0, self->from_elements * element_bytes(plain));
        copy_box(self, to, from);
    }
}

static yoke_status move_prepare(cpu_plain_plan *plain, const yoke_plan_request *request) {
    move_plan *self = (move_plan *)plain;
    self->box = yoke_move_box(request->operation);
    self->from_elements = yoke_row_elements(request->operation->input);
    self->to_elements = yoke_row_elements(request->operation->output);
    return YOKE_OK;
}

yoke_status cpu_plan_move(yoke_plan **plan, cpu_device *device, const yoke_plan_request *request) {
    static const cpu_plain_operation calls = {.bytes = sizeof(move_plan),
                                              .prepare = move_prepare,
                                              .forward = move_forward,
                                              .backward = move_backward};
    return cpu_plain_plan_create(plan, device, request, &calls, 1);
}

/* A parameter, or a constant, in every row. */

static void repeat(const cpu_plain_plan *plain, const float *values) {
    size_t elements = yoke_row_elements(plain->base.operation.output);
    for (size_t row = 0; row < plain->base.rows; row++) {
        void *to = cpu_plain_row(plain, plain->base.binding.output, row, elements);
        for (size_t i = 0; i < elements; i++)
            cpu_store(to, i, plain->half, values[i]);
    }
}

static void parameter_forward(const cpu_plain_plan *plain) {
    repeat(plain, plain->base.binding.parameters[0]);
}

/* The sum over the rows, in double. */
static void parameter_backward(const cpu_plain_plan *plain) {
    const yoke_plan_binding *at = &plain->base.binding;
    size_t elements = yoke_row_elements(plain->base.operation.output);
    if (plain->base.frozen) return;
    for (size_t i = 0; i < elements; i++) {
        double sum = 0;
        for (size_t row = 0; row < plain->base.rows; row++)
            sum += (double)cpu_load(at->output_gradient, row * elements + i, plain->half);
        at->parameter_gradients[0][i] = (float)sum;
    }
}

static yoke_status parameter_prepare(cpu_plain_plan *plain, const yoke_plan_request *request) {
    const int64_t shape[] = {(int64_t)yoke_row_elements(request->operation->output)};
    return yoke_layout_plain(plain->base.device, shape, 1, &plain->base.needs.parameters[0]);
}

yoke_status cpu_plan_parameter(yoke_plan **plan, cpu_device *device,
                               const yoke_plan_request *request) {
    static const cpu_plain_operation calls = {.flags = YOKE_HAS_PARAMETERS,
                                              .bytes = sizeof(cpu_plain_plan),
                                              .prepare = parameter_prepare,
                                              .forward = parameter_forward,
                                              .backward = parameter_backward};
    return cpu_plain_plan_create(plan, device, request, &calls, 0);
}

/* The plan ends with a copy of the elements. */
typedef struct constant_plan {
    cpu_plain_plan plain;
    float values[];
} constant_plan;

static void constant_forward(const cpu_plain_plan *plain) {
    repeat(plain, ((const constant_plan *)plain)->values);
}

static void constant_backward(const cpu_plain_plan *plain) {
    (void)plain; /* nobody wants its gradient */
}

static yoke_status constant_prepare(cpu_plain_plan *plain, const yoke_plan_request *request) {
    size_t elements = yoke_row_elements(request->operation->output);
    memcpy(((constant_plan *)plain)->values, request->operation->weights, elements * sizeof(float));
    return YOKE_OK;
}

yoke_status cpu_plan_constant(yoke_plan **plan, cpu_device *device,
                              const yoke_plan_request *request) {
    size_t elements = yoke_row_elements(request->operation->output);
    const cpu_plain_operation calls = {.bytes = sizeof(constant_plan) + elements * sizeof(float),
                                       .prepare = constant_prepare,
                                       .forward = constant_forward,
                                       .backward = constant_backward};
    return cpu_plain_plan_create(plan, device, request, &calls, 0);
}
