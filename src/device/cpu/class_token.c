/* SPDX-License-Identifier: Apache-2.0 */
/* A learned token before a sequence, and one position of a sequence as a flat value. A thread adds
 * the gradient of the token in the order of the rows. */
#include <string.h>

#include "device/cpu/cpu.h"

typedef struct token_plan {
    yoke_plan base;
    size_t features;
    size_t longer; /* positions of the longer value */
    bool half;
} token_plan;

/* Bytes of `positions` positions. */
static size_t bytes_of(const token_plan *self, size_t positions) {
    return positions * self->features * (self->half ? sizeof(uint16_t) : sizeof(float));
}

/* The address of a position of the longer value, and of the row of a value with `positions`. */
static char *longer_at(const token_plan *self, void *values, size_t row, size_t position) {
    return (char *)values + bytes_of(self, row * self->longer + position);
}

static char *row_at(const token_plan *self, void *values, size_t row, size_t positions) {
    return (char *)values + bytes_of(self, row * positions);
}

static yoke_status create_token(yoke_plan **plan, cpu_device *device,
                                const yoke_plan_request *request, const yoke_plan_calls *calls) {
    TRY(yoke_plan_allocate(plan, sizeof(token_plan), &device->base, request, calls));
    token_plan *self = (token_plan *)*plan;
    const yoke_operation *operation = request->operation;
    dnnl_data_type_t type = cpu_layout_desc(&request->inputs[0])->type;
    self->features = (size_t)operation->output.channels;
    self->half = type == dnnl_bf16;
    const cpu_desc *output = NULL;
    TRY(cpu_value_desc(&output, device, request->rows, operation->output, type, dnnl_nchw));
    cpu_layout_store(&self->base.needs.output, output);
    return YOKE_OK;
}

/* Class token. */

static yoke_status class_token_forward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const token_plan *self = (const token_plan *)plan;
    const yoke_plan_binding *binding = &self->base.binding;
    size_t others = self->longer - 1;
    for (size_t row = 0; row < self->base.rows; row++) {
        void *first = longer_at(self, binding->output, row, 0);
        for (size_t k = 0; k < self->features; k++)
            cpu_store(first, k, self->half, binding->parameters[0][k]);
        memcpy(longer_at(self, binding->output, row, 1),
               row_at(self, binding->inputs[0], row, others), bytes_of(self, others));
    }
    return YOKE_OK;
}

static yoke_status class_token_backward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const token_plan *self = (const token_plan *)plan;
    const yoke_plan_binding *binding = &self->base.binding;
    size_t others = self->longer - 1;
    if (!self->base.frozen) {
        float *gradient = self->base.binding.parameter_gradients[0];
        memset(gradient, 0, self->features * sizeof *gradient);
        for (size_t row = 0; row < self->base.rows; row++) {
            const void *first = longer_at(self, self->base.binding.output_gradient, row, 0);
            for (size_t k = 0; k < self->features; k++)
                gradient[k] += cpu_load(first, k, self->half);
        }
    }
    for (size_t row = 0; binding->input_gradients[0] != NULL && row < self->base.rows; row++)
        memcpy(row_at(self, binding->input_gradients[0], row, others),
               longer_at(self, binding->output_gradient, row, 1), bytes_of(self, others));
    return YOKE_OK;
}

yoke_status cpu_plan_class_token(yoke_plan **plan, cpu_device *device,
                                 const yoke_plan_request *request) {
    static const yoke_plan_calls calls = {NULL, class_token_forward, class_token_backward};
    TRY(create_token(plan, device, request, &calls));
    token_plan *self = (token_plan *)*plan;
    self->longer = (size_t)request->operation->output.height;
    const int64_t shape[] = {1, 1, request->operation->output.channels};
    return yoke_layout_plain(&device->base, shape, 3, &self->base.needs.parameters[0]);
}

/* Select. */

static yoke_status select_forward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const token_plan *self = (const token_plan *)plan;
    for (size_t row = 0; row < self->base.rows; row++)
        memcpy(
            row_at(self, self->base.binding.output, row, 1),
            longer_at(self, self->base.binding.inputs[0], row, (size_t)self->base.operation.index),
            bytes_of(self, 1));
    return YOKE_OK;
}

static yoke_status select_backward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const token_plan *self = (const token_plan *)plan;
    const yoke_plan_binding *binding = &self->base.binding;
    if (binding->input_gradients[0] == NULL) return YOKE_OK;
    memset(binding->input_gradients[0], 0, bytes_of(self, self->base.rows * self->longer));
    for (size_t row = 0; row < self->base.rows; row++)
        memcpy(
            longer_at(self, binding->input_gradients[0], row, (size_t)self->base.operation.index),
            row_at(self, binding->output_gradient, row, 1), bytes_of(self, 1));
    return YOKE_OK;
}

yoke_status cpu_plan_select(yoke_plan **plan, cpu_device *device,
                            const yoke_plan_request *request) {
    static const yoke_plan_calls calls = {NULL, select_forward, select_backward};
    TRY(create_token(plan, device, request, &calls));
    token_plan *self = (token_plan *)*plan;
    self->longer = (size_t)request->operation->input.height;
    return YOKE_OK;
}
