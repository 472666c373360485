/* SPDX-License-Identifier: Apache-2.0 */
/* Embeddings of tokens and of positions. The order of additions to a gradient is that of the
 * positions, whatever the threads. */
#include <math.h>
#include <string.h>

#include "device/cpu/cpu.h"

enum {
    LINE_FEATURES = 16, /* a cache line: two threads never write the same one */
    PARALLEL_ELEMENTS = 1 << 14
};

typedef struct embedding_plan {
    yoke_plan base;
    size_t positions, features, table;
    bool half;
} embedding_plan;

static bool is_parallel(const embedding_plan *self) {
    return self->base.device->threads > 1 &&
           self->base.rows * self->positions * self->features >= PARALLEL_ELEMENTS;
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
    yoke_plan_needs *needs = &self->base.needs;
    dnnl_data_type_t type = cpu_data_type(request->precision);
    const cpu_desc *output = NULL;
    TRY(cpu_value_desc(&output, device, request->rows, request->operation->output, type,
                       dnnl_nchw));
    cpu_layout_store(&needs->output, output);
    self->half = type == dnnl_bf16;
    if (request->frozen) needs->backward_reads_input = false;
    return YOKE_OK;
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
