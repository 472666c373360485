/* SPDX-License-Identifier: Apache-2.0 */
/* Linear with the cross-entropy behind it: with a vocabulary of 50,000 words the logits, their copy
 * in float32 and the gradients of both would be the largest values of a model. Here the logits stay
 * in the compute type, one kernel reads them and writes their gradient over them, and backward
 * reads it from there. In a step whose outputs somebody reads, forward copies the logits to
 * float32, and backward takes the outputs' gradient.
 *
 * Tensor cores want rows of a multiple of 16 bytes. Inside this plan alone, a vocabulary of another
 * size gets padding. Its products read a copy of the weights whose last rows, or columns, are zero,
 * and write a copy of their gradient, of which the plan cuts those off. No kernel counts a padded
 * logit, and its gradient is zero. */
#include "device/cuda/classifier.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/kernels.h"
#include "device/cuda/weighted.h"

enum { ALIGNED_OUTPUTS = 8, PADDED_OUTPUTS = 64 }; /* a padded vocabulary is a multiple of these */

typedef struct classifier {
    yoke_plan base;
    yoke_plan *linear, *loss;
    size_t rows, in, outputs, padded; /* rows: of all positions; padded: as many as outputs where
                                         nothing is padded */
    cuda_type type;
    void *logits;      /* in saved: [rows, padded] */
    void *weight_copy; /* in scratch: the padded weight, or its gradient */
    float *bias_copy;  /* likewise */
    char names[YOKE_DIRECTIONS][128];
} classifier;

static classifier *self_of(yoke_plan *plan) {
    return (classifier *)plan;
}

static bool pads(const classifier *self) {
    return self->padded > self->outputs;
}

/* Memory. */

static size_t weight_copy_bytes(const classifier *self) {
    return pads(self) ? cuda_aligned(self->padded * self->in * sizeof(float)) : 0;
}

static size_t bias_copy_bytes(const classifier *self) {
    bool copies = pads(self) && self->base.operation.bias;
    return copies ? cuda_aligned(self->padded * sizeof(float)) : 0;
}

static size_t logits_bytes(const classifier *self) {
    return cuda_aligned(self->rows * self->padded * cuda_type_bytes(self->type));
}

static void *behind(void *memory, size_t bytes) {
    return memory != NULL ? (char *)memory + bytes : NULL;
}

static yoke_status bind(yoke_plan *plan, const yoke_plan_binding *given) {
    classifier *self = self_of(plan);
    yoke_plan_binding linear = *given;
    void *scratch = given->scratch;
    self->weight_copy = scratch;
    self->bias_copy = behind(scratch, weight_copy_bytes(self));
    linear.scratch = behind(scratch, weight_copy_bytes(self) + bias_copy_bytes(self));
    self->logits = given->saved;
    linear.saved = behind(given->saved, logits_bytes(self));
    linear.output = linear.output_gradient = self->logits;
    if (pads(self)) {
        linear.parameters[0] = linear.parameter_gradients[0] = (float *)self->weight_copy;
        linear.shadows[0] = self->weight_copy;
        if (plan->operation.bias) linear.parameters[1] = self->bias_copy;
        if (given->parameter_gradients[1] != NULL) linear.parameter_gradients[1] = self->bias_copy;
    }
    TRY(yoke_plan_bind(self->linear, &linear));
    const yoke_plan_binding loss = {.scratch = linear.scratch,
                                    .labels = given->labels,
                                    .mixes = given->mixes,
                                    .scalars = given->scalars,
                                    .on_host = given->on_host};
    return yoke_plan_bind(self->loss, &loss);
}

/* Running. */

static yoke_status copy(const classifier *self, void *to, const void *from, size_t bytes) {
    TRY_CUDA(cuda_of(self->base.device),
             cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, cuda_compute(&self->base)));
    return YOKE_OK;
}

static yoke_status clear(const classifier *self, void *from, size_t bytes) {
    TRY_CUDA(cuda_of(self->base.device),
             cudaMemsetAsync(from, 0, bytes, cuda_compute(&self->base)));
    return YOKE_OK;
}

/* [outputs, row] becomes [padded, row], of elements of so many bytes. */
static yoke_status pad_rows(const classifier *self, void *to, const void *from, size_t row_bytes) {
    size_t bytes = self->outputs * row_bytes;
    TRY(copy(self, to, from, bytes));
    return clear(self, (char *)to + bytes, (self->padded - self->outputs) * row_bytes);
}

/* A transposed weight [in, outputs] gets its padding behind each row. */
static cuda_pad_job column_job(const classifier *self, cuda_type type) {
    return (cuda_pad_job){.type = type,
                          .outer = self->in,
                          .channels = (int)self->outputs,
                          .padded = (int)self->padded};
}

static yoke_status read_parameters(const classifier *self) {
    const yoke_plan_binding *at = &self->base.binding;
    if (!pads(self)) return YOKE_OK;
    const bool *shadow = self->base.needs.reads_shadow;
    size_t element = cuda_type_bytes(shadow[0] ? self->type : CUDA_FLOAT32);
    const void *weight = shadow[0] ? at->shadows[0] : at->parameters[0];
    if (self->base.operation.transposed) {
        cuda_pad_job job = column_job(self, shadow[0] ? self->type : CUDA_FLOAT32);
        job.to = self->weight_copy;
        job.from = weight;
        TRY_CUDA(cuda_of(self->base.device), cuda_run_pad_weights(&job, cuda_compute(&self->base)));
    } else {
        TRY(pad_rows(self, self->weight_copy, weight, self->in * element));
    }
    if (!self->base.operation.bias) return YOKE_OK;
    return pad_rows(self, self->bias_copy, at->parameters[1], sizeof(float));
}

static yoke_status write_gradients(const classifier *self) {
    const yoke_plan_binding *at = &self->base.binding;
    float *weight = at->parameter_gradients[0], *bias = at->parameter_gradients[1];
    if (!pads(self)) return YOKE_OK;
    if (self->base.operation.bias && bias != NULL)
        TRY(copy(self, bias, self->bias_copy, self->outputs * sizeof *bias));
    if (!self->base.operation.transposed)
        return copy(self, weight, self->weight_copy, self->outputs * self->in * sizeof *weight);
    cuda_pad_job job = column_job(self, CUDA_FLOAT32);
    job.to = weight;
    job.from = self->weight_copy;
    TRY_CUDA(cuda_of(self->base.device), cuda_run_cut_weights(&job, cuda_compute(&self->base)));
    return YOKE_OK;
}

static cuda_logits_job logits_job(const classifier *self, void *plain) {
    return (cuda_logits_job){.logits = self->logits,
                             .type = self->type,
                             .rows = self->rows,
                             .outputs = self->outputs,
                             .stride = self->padded,
                             .plain = plain};
}

static yoke_status forward(yoke_plan *plan, const yoke_plan_step *step) {
    const classifier *self = self_of(plan);
    TRY(read_parameters(self));
    TRY(yoke_plan_forward(self->linear, step));
    if (step->loss_only) {
        bool backward = self->linear->algorithms[YOKE_BACKWARD_WEIGHTS] != NULL ||
                        self->linear->algorithms[YOKE_BACKWARD_DATA] != NULL;
        return cuda_loss_over(self->loss,
                              &(cuda_logits){self->logits, self->type, self->padded, backward});
    }
    const cuda_logits_job job = logits_job(self, plan->binding.output);
    TRY_CUDA(cuda_of(plan->device), cuda_run_read_logits(&job, cuda_compute(plan)));
    return YOKE_OK;
}

/* The copy of the weight's gradient takes the place of the weight's, which the data's gradient then
 * needs again. */
static yoke_status part(yoke_plan *plan, yoke_direction direction) {
    const classifier *self = self_of(plan);
    if (self->linear->algorithms[direction] == NULL) return YOKE_OK;
    if (direction == YOKE_BACKWARD_DATA) TRY(read_parameters(self));
    TRY(yoke_plan_backward_part(self->linear, direction));
    return direction == YOKE_BACKWARD_WEIGHTS ? write_gradients(self) : YOKE_OK;
}

static yoke_status backward(yoke_plan *plan, const yoke_plan_step *step) {
    const classifier *self = self_of(plan);
    if (!step->loss_only) {
        const cuda_logits_job job = logits_job(self, plan->binding.output_gradient);
        TRY_CUDA(cuda_of(plan->device), cuda_run_write_logits(&job, cuda_compute(plan)));
    }
    TRY(part(plan, YOKE_BACKWARD_WEIGHTS));
    return part(plan, YOKE_BACKWARD_DATA);
}

static void destroy(yoke_plan *plan) {
    classifier *self = self_of(plan);
    yoke_plan_destroy(self->linear);
    yoke_plan_destroy(self->loss);
    yoke_free(self);
}

/* Planning. */

/* An engine that only predicts reads its outputs, and few rows at a time. */
bool cuda_takes_classifier(const yoke_plan_request *request) {
    const yoke_dims output = request->operation->output;
    return request->loss != NULL && request->loss->kind == YOKE_OP_CROSS_ENTROPY &&
           !request->inference && output.channels >= CUDA_CLASSIFIER_OUTPUTS &&
           request->loss->input.channels == output.channels &&
           (output.sequence || output.height * output.width == 1);
}

static int padded_outputs(const yoke_plan_request *request) {
    int outputs = request->operation->output.channels;
    bool aligned = outputs % ALIGNED_OUTPUTS == 0;
    if (aligned || request->precision == YOKE_FLOAT32) return outputs; /* strict: no tensor cores */
    return (outputs + PADDED_OUTPUTS - 1) / PADDED_OUTPUTS * PADDED_OUTPUTS;
}

static yoke_status plan_linear(classifier *self, const yoke_plan_request *request) {
    yoke_operation operation = *request->operation;
    yoke_plan_request own = *request;
    operation.output.channels = (int)self->padded;
    own.operation = &operation;
    own.loss = NULL;
    memset(own.next, 0, sizeof own.next);
    for (int k = 0; k < YOKE_PLAN_PARAMETERS && pads(self); k++)
        own.parameters[k].bytes = 0;
    return yoke_plan_create(&self->linear, self->base.device, &own);
}

static yoke_status plan_loss(classifier *self, const yoke_plan_request *request) {
    const yoke_plan_request own = {.operation = request->loss, .rows = request->rows};
    return yoke_plan_create(&self->loss, self->base.device, &own);
}

static yoke_status describe_parameters(const classifier *self, const yoke_plan_request *request,
                                       yoke_plan_needs *needs) {
    const cuda_layout weight = cuda_linear_weight(request->operation);
    const cuda_layout bias = {CUDA_FLOAT32, false, 1, {request->operation->output.channels}};
    cuda_layout_store(&needs->parameters[0], &weight);
    if (request->operation->bias) cuda_layout_store(&needs->parameters[1], &bias);
    if (request->parameters[0].bytes == 0 ||
        yoke_layout_equal(&needs->parameters[0], &request->parameters[0]))
        return YOKE_OK;
    return FAIL(YOKE_ERROR_INTERNAL, "%s: the weight has a layout that no plan reads",
                self->base.device->name);
}

static void name_algorithms(classifier *self) {
    for (int i = 0; i < YOKE_DIRECTIONS; i++) {
        const char *name = self->linear->algorithms[i];
        self->base.algorithms[i] = name;
        if (name == NULL || !pads(self)) continue;
        snprintf(self->names[i], sizeof self->names[i], "%s, %zu outputs", name, self->padded);
        self->base.algorithms[i] = self->names[i];
    }
}

yoke_status cuda_plan_classifier(yoke_plan **plan, cuda_device *device,
                                 const yoke_plan_request *request) {
    static const yoke_plan_calls calls = {bind, forward, backward, destroy, .backward_part = part};
    TRY(yoke_plan_allocate(plan, sizeof(classifier), &device->base, request, &calls));
    classifier *self = self_of(*plan);
    const yoke_operation *operation = request->operation;
    yoke_plan_needs *needs = &self->base.needs;
    cuda_layout output = cuda_value_layout(request->rows, operation->output, request->precision);
    self->rows = (size_t)request->rows * (size_t)operation->output.height;
    self->in = (size_t)operation->input.channels;
    self->outputs = (size_t)operation->output.channels;
    self->padded = (size_t)padded_outputs(request);
    self->type = cuda_compute_type(request->precision);
    TRY(plan_linear(self, request));
    TRY(plan_loss(self, request));
    const yoke_plan_needs *linear = yoke_plan_describe(self->linear);
    size_t loss_bytes = yoke_plan_describe(self->loss)->scratch_bytes;
    *needs = *linear;
    TRY(describe_parameters(self, request, needs));
    output.type = CUDA_FLOAT32;
    output.channels_last = false;
    cuda_layout_store(&needs->output, &output);
    needs->computes_next = 1;
    needs->computes_loss = true;
    needs->saved_bytes = logits_bytes(self) + linear->saved_bytes;
    needs->scratch_bytes =
        weight_copy_bytes(self) + bias_copy_bytes(self) +
        (linear->scratch_bytes > loss_bytes ? linear->scratch_bytes : loss_bytes);
    name_algorithms(self);
    return YOKE_OK;
}
