/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that make, lengthen and shorten sequences: embeddings of tokens and of positions, a
 * learned token before a sequence, and one position of a sequence as a flat value. The order of
 * additions to a gradient is that of the positions and rows, whatever the threads. */
#include <math.h>
#include <string.h>

#include "device/cpu/cpu.h"

enum { LINE_FEATURES = 16 }; /* a cache line: two threads never write the same one */

typedef struct embedding_plan {
    yoke_plan base;
    size_t positions, features, table;
    bool half;
} embedding_plan;

static bool is_parallel(const embedding_plan *self) {
    return cpu_is_parallel(self->base.device->threads,
                           self->base.rows * self->positions * self->features);
}

static yoke_status create_embedding(yoke_plan **plan, cpu_device *device,
                                    const yoke_plan_request *request,
                                    const yoke_plan_calls *calls) {
    TRY(yoke_plan_allocate(plan, sizeof(embedding_plan), &device->base, request, calls));
    embedding_plan *self = (embedding_plan *)*plan;
    const yoke_operation *operation = request->operation;
    self->positions = (size_t)operation->output.height;
    self->features = (size_t)operation->output.channels;
    self->table = (size_t)operation->table;
    const int64_t shape[] = {operation->table, operation->output.channels};
    return yoke_layout_plain(&device->base, shape, 2, &self->base.needs.parameters[0]);
}

/* Tokens. */

/* false: no row of the table. */
static bool find_token(const embedding_plan *self, size_t position, size_t *token) {
    float id = ((const float *)self->base.binding.inputs[0])[position];
    if (!(id >= 0 && id < (float)self->table && id == floorf(id))) return false;
    *token = (size_t)id;
    return true;
}

static yoke_status embedding_forward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const embedding_plan *self = (const embedding_plan *)plan;
    const float *weight = self->base.binding.parameters[0];
    size_t count = self->base.rows * self->positions, features = self->features;
#pragma omp parallel for num_threads(plan->device->threads) if (is_parallel(self))
    for (size_t i = 0; i < count; i++) {
        size_t token = 0;
        bool known = find_token(self, i, &token);
        for (size_t k = 0; k < features; k++)
            cpu_store(self->base.binding.output, i * features + k, self->half,
                      known ? weight[token * features + k] : NAN);
    }
    return YOKE_OK;
}

/* The gradient of features begin .. end - 1 of every token. */
static void add_features(const embedding_plan *self, float *gradient, size_t begin, size_t end) {
    for (size_t token = 0; token < self->table; token++)
        memset(gradient + token * self->features + begin, 0, (end - begin) * sizeof *gradient);
    for (size_t i = 0; i < self->base.rows * self->positions; i++) {
        size_t token = 0;
        if (!find_token(self, i, &token)) continue;
        float *to = gradient + token * self->features;
        for (size_t k = begin; k < end; k++)
            to[k] +=
                cpu_load(self->base.binding.output_gradient, i * self->features + k, self->half);
    }
}

/* Token ids have no gradient: a program that reads one gets 0. */
static yoke_status embedding_backward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const embedding_plan *self = (const embedding_plan *)plan;
    size_t lines = (self->features + LINE_FEATURES - 1) / LINE_FEATURES;
    float *gradient = self->base.binding.parameter_gradients[0];
    void *ids_gradient = self->base.binding.input_gradients[0];
    if (ids_gradient != NULL)
        memset(ids_gradient, 0, self->base.rows * self->positions * sizeof(float));
    if (self->base.frozen) return YOKE_OK;
#pragma omp parallel for num_threads(plan->device->threads) if (is_parallel(self))
    for (size_t line = 0; line < lines; line++) {
        size_t end = (line + 1) * LINE_FEATURES;
        add_features(self, gradient, line * LINE_FEATURES,
                     end < self->features ? end : self->features);
    }
    return YOKE_OK;
}

yoke_status cpu_plan_embedding(yoke_plan **plan, cpu_device *device,
                               const yoke_plan_request *request) {
    static const yoke_plan_calls calls = {NULL, embedding_forward, embedding_backward, NULL,
                                          YOKE_READS_INPUT | YOKE_HAS_PARAMETERS};
    TRY(create_embedding(plan, device, request, &calls));
    embedding_plan *self = (embedding_plan *)*plan;
    dnnl_data_type_t type = cpu_data_type(request->precision);
    self->half = type == dnnl_bf16;
    if (request->frozen) self->base.needs.backward_reads[0] = false;
    return cpu_plan_plain_output(*plan, request, type);
}

/* Positions. */

static yoke_status positions_forward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const embedding_plan *self = (const embedding_plan *)plan;
    const float *weight = self->base.binding.parameters[0];
    size_t row = self->positions * self->features;
#pragma omp parallel for num_threads(plan->device->threads) if (is_parallel(self))
    for (size_t i = 0; i < self->base.rows; i++)
        for (size_t k = 0; k < row; k++)
            cpu_store(self->base.binding.output, i * row + k, self->half,
                      cpu_load(self->base.binding.inputs[0], i * row + k, self->half) + weight[k]);
    return YOKE_OK;
}

/* The input's gradient is the output's. Positions past the sequence have none. */
static yoke_status positions_backward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const embedding_plan *self = (const embedding_plan *)plan;
    const yoke_plan_binding *binding = &self->base.binding;
    size_t row = self->positions * self->features, features = self->features;
    if (!self->base.frozen) {
#pragma omp parallel for num_threads(plan->device->threads) if (is_parallel(self))
        for (size_t position = 0; position < self->table; position++) {
            float *gradient = binding->parameter_gradients[0] + position * features;
            size_t rows = position < self->positions ? self->base.rows : 0;
            memset(gradient, 0, features * sizeof *gradient);
            for (size_t i = 0; i < rows; i++)
                for (size_t k = 0; k < features; k++)
                    gradient[k] += cpu_load(binding->output_gradient,
                                            i * row + position * features + k, self->half);
        }
    }
    if (binding->input_gradients[0] != NULL &&
        binding->input_gradients[0] != binding->output_gradient)
        memcpy(binding->input_gradients[0], binding->output_gradient, plan->needs.output.bytes);
    return YOKE_OK;
}

yoke_status cpu_plan_positions(yoke_plan **plan, cpu_device *device,
                               const yoke_plan_request *request) {
    static const yoke_plan_calls calls = {NULL, positions_forward, positions_backward, NULL,
                                          YOKE_IN_PLACE | YOKE_HAS_PARAMETERS};
    TRY(create_embedding(plan, device, request, &calls));
    embedding_plan *self = (embedding_plan *)*plan;
    yoke_plan_needs *needs = &self->base.needs;
    needs->output = request->inputs[0];
    self->half = cpu_layout_desc(&needs->output)->type == dnnl_bf16;
    return YOKE_OK;
}

/* Positions of a sequence. */

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
    return cpu_plan_plain_output(*plan, request, type);
}

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
