/* SPDX-License-Identifier: Apache-2.0 */
/* oneDNN has no float16 for most processors. So each operation computes in float32, as tensor cores
 * add in float32, and what it writes is rounded to float16. */
#include "device/cpu/rounded.h"

#include <stdlib.h>
#include <string.h>

#include "device/cpu/clones.h"
#include "device/cpu/functions.h"

#define MARK 1 /* of yoke_layout.opaque[1] */

bool cpu_is_float16(const yoke_layout *layout) {
    return layout->opaque[1] == MARK;
}

/* Rounding. */

CPU_CLONES static void round_range(float *to, const float *from, size_t count) {
#pragma omp simd
    for (size_t i = 0; i < count; i++)
        to[i] = yoke_float16_nearest(from[i]);
}

#define PIECE ((size_t)1 << 14)

static void round_to(const yoke_device *device, float *to, const float *from, size_t elements) {
    size_t pieces = (elements + PIECE - 1) / PIECE;
#pragma omp parallel for num_threads(device->threads) schedule(static) if (pieces > 1)
    for (size_t i = 0; i < pieces; i++) {
        size_t begin = i * PIECE, left = elements - begin;
        round_range(to + begin, from + begin, left < PIECE ? left : PIECE);
    }
}

void cpu_float16_round(const yoke_device *device, float *values, size_t elements) {
    round_to(device, values, values, elements);
}

/* The plan. */

/* A rounded copy of what the plan of float32 reads. elements 0: it reads the original. */
typedef struct rounded_copy {
    size_t offset, elements;
} rounded_copy;

typedef struct float16_plan {
    yoke_plan base;
    yoke_plan *inner;
    rounded_copy weights, input;
    size_t outputs, inputs[YOKE_PLAN_INPUTS]; /* elements to round */
    bool trains;
} float16_plan;

/* Copies live from forward to backward, behind what the plan of float32 saves; or while it runs. */
static char *copies_of(const float16_plan *self) {
    const yoke_plan_binding *binding = &self->base.binding;
    return self->trains ? binding->saved : binding->scratch;
}

static float *copy_of(const float16_plan *self, const rounded_copy *copy) {
    return copy->elements > 0 ? (float *)(copies_of(self) + copy->offset) : NULL;
}

static yoke_status float16_bind(yoke_plan *plan, const yoke_plan_binding *binding) {
    const float16_plan *self = (const float16_plan *)plan;
    yoke_plan_binding own = *binding;
    float *weights = copy_of(self, &self->weights), *input = copy_of(self, &self->input);
    if (weights != NULL) own.parameters[0] = weights;
    if (input != NULL) own.inputs[0] = input;
    return yoke_plan_bind(self->inner, &own);
}

static yoke_status float16_forward(yoke_plan *plan, const yoke_plan_step *step) {
    const float16_plan *self = (const float16_plan *)plan;
    const yoke_plan_binding *binding = &plan->binding;
    float *weights = copy_of(self, &self->weights), *input = copy_of(self, &self->input);
    if (step->idle) return yoke_plan_forward(self->inner, step);
    if (weights != NULL)
        round_to(plan->device, weights, binding->parameters[0], self->weights.elements);
    if (input != NULL) round_to(plan->device, input, binding->inputs[0], self->input.elements);
    TRY(yoke_plan_forward(self->inner, step));
    if (self->outputs > 0) cpu_float16_round(plan->device, binding->output, self->outputs);
    return YOKE_OK;
}

static void round_gradients(const float16_plan *self) {
    const yoke_plan_binding *binding = &self->base.binding;
    for (int k = 0; k < YOKE_PLAN_INPUTS; k++)
        if (binding->input_gradients[k] != NULL)
            cpu_float16_round(self->base.device, binding->input_gradients[k], self->inputs[k]);
}

static yoke_status float16_backward(yoke_plan *plan, const yoke_plan_step *step) {
    const float16_plan *self = (const float16_plan *)plan;
    TRY(yoke_plan_backward(self->inner, step));
    if (!step->idle) round_gradients(self);
    return YOKE_OK;
}

static yoke_status float16_backward_part(yoke_plan *plan, yoke_direction direction) {
    const float16_plan *self = (const float16_plan *)plan;
    TRY(yoke_plan_backward_part(self->inner, direction));
    if (direction == YOKE_BACKWARD_DATA) round_gradients(self);
    return YOKE_OK;
}

static void float16_destroy(yoke_plan *plan) {
    yoke_plan_destroy(((float16_plan *)plan)->inner);
    yoke_free(plan);
}

static const yoke_plan_calls calls = {.bind = float16_bind,
                                      .forward = float16_forward,
                                      .backward = float16_backward,
                                      .destroy = float16_destroy};

/* Whether the operation reads its weights and input in the compute precision; the others read what
 * they get, and weights in float32. */
static bool is_product(yoke_operation_kind kind) {
    return kind == YOKE_OP_CONV2D || kind == YOKE_OP_CONV_TRANSPOSE2D || kind == YOKE_OP_LINEAR ||
           kind == YOKE_OP_RECURRENCE;
}

static void add_copy(rounded_copy *copy, size_t *bytes, size_t own_bytes) {
    *copy = (rounded_copy){.offset = cpu_align(*bytes, CPU_LINE),
                           .elements = own_bytes / sizeof(float)};
    *bytes = copy->offset + own_bytes;
}

static void place_copies(float16_plan *self, const yoke_plan_request *request) {
    yoke_plan_needs *needs = &self->base.needs;
    size_t *bytes = self->trains ? &needs->saved_bytes : &needs->scratch_bytes;
    if (!is_product(request->operation->kind)) return;
    add_copy(&self->weights, bytes, needs->parameters[0].bytes);
    if (!cpu_is_float16(&request->inputs[0]))
        add_copy(&self->input, bytes, request->inputs[0].bytes);
}

/* The model's output is float32. */
static void mark_output(float16_plan *self, const yoke_plan_request *request) {
    yoke_layout *output = &self->base.needs.output;
    if (request->operation->kind == YOKE_OP_OUTPUT || output->bytes == 0) return;
    output->opaque[1] = MARK;
    self->outputs = output->bytes / sizeof(float);
}

/* A plan that computes a part of what follows would not round in between. */
static yoke_plan_request float32_request(const yoke_plan_request *request) {
    yoke_plan_request own = *request;
    own.precision = YOKE_FLOAT32;
    memset(own.next, 0, sizeof own.next);
    own.loss = NULL;
    return own;
}

yoke_status cpu_plan_float16(yoke_plan **plan, cpu_device *device, const yoke_plan_request *request,
                             cpu_planner *planner) {
    const yoke_plan_request own = float32_request(request);
    TRY(yoke_plan_allocate(plan, sizeof(float16_plan), &device->base, request, &calls));
    float16_plan *self = (float16_plan *)*plan;
    yoke_status status = planner(&self->inner, device, &own);
    TRY(status);
    self->trains = request->training;
    self->base.needs = self->inner->needs;
    self->base.needs.packed_bytes = 0; /* the inner plan packs rounded weights */
    self->base.factors = self->inner->factors;
    memcpy(self->base.algorithms, self->inner->algorithms, sizeof self->base.algorithms);
    if (self->inner->backward_part != NULL) self->base.backward_part = float16_backward_part;
    if (self->inner->backward == NULL) self->base.backward = NULL;
    for (int k = 0; k < YOKE_PLAN_INPUTS; k++)
        self->inputs[k] = request->inputs[k].bytes / sizeof(float);
    place_copies(self, request);
    mark_output(self, request);
    return YOKE_OK;
}
