/* SPDX-License-Identifier: Apache-2.0 */
/* Linear with the cross-entropy behind it, some rows at a time: with a vocabulary of 50,000 words
 * the table of logits, and its gradient, would be the largest values of a model. Each block of rows
 * goes through the plan of a linear layer of so many rows, forward and backward, and through the
 * loss, so that one block of logits exists at a time, whose gradient takes its place. The gradients
 * wait in `saved` for backward. In a step whose outputs somebody reads, the blocks fill them in
 * forward, and backward reads their gradient. */
#include "device/cpu/linear_loss.h"

#include <stdlib.h>
#include <string.h>

#include "device/cpu/loss.h"

#define LEAST_TABLE_BYTES ((size_t)64 << 20) /* of logits in float32 that are worth it */
enum { ROWS = 512, SETS = 2, SINGLE = 1 };

/* Rows are positions, too. */
typedef struct block {
    size_t first, rows;
    yoke_plan *linear;      /* of one sequence of so many positions */
    cpu_call widen, narrow; /* its output to float32, and a gradient back; empty: it is float32 */
} block;

typedef struct linear_loss {
    yoke_plan base;
    size_t rows, in, out, element; /* element: bytes of a value */
    block sets[SETS];              /* a whole block, and the last one if it has fewer rows */
    yoke_plan *loss;
    /* In scratch: of one block, but for the rows of the loss. */
    char *input, *values, *input_gradient, *own_scratch;
    float *logits, *gradients[YOKE_PLAN_PARAMETERS];
    void *row_losses, *loss_saved;
    /* In saved, of all rows. */
    float *sums[YOKE_PLAN_PARAMETERS];
    char *whole_input_gradient;
} linear_loss;

static linear_loss *self_of(yoke_plan *plan) {
    return (linear_loss *)plan;
}

/* Memory. */

/* Cuts memory into arrays; from NULL it only counts. */
typedef struct cutter {
    char *memory;
    size_t used;
} cutter;

static void *cut(cutter *from, size_t bytes) {
    char *array = from->memory != NULL ? from->memory + from->used : NULL;
    from->used += cpu_align(bytes, CPU_LINE);
    return array;
}

static bool trains(const linear_loss *self) {
    return self->base.backward != NULL && !self->base.frozen;
}

static bool wants_input(const linear_loss *self) {
    return self->base.algorithms[YOKE_BACKWARD_DATA] != NULL;
}

static size_t own_scratch_bytes(const linear_loss *self) {
    size_t bytes = 0;
    for (int i = 0; i < SETS; i++)
        if (self->sets[i].linear != NULL && self->sets[i].linear->needs.scratch_bytes > bytes)
            bytes = self->sets[i].linear->needs.scratch_bytes;
    return bytes;
}

/* The linear plan adds to its gradients itself, or writes those of a block for others to add. */
static bool adds_itself(const linear_loss *self) {
    return self->sets[0].linear->needs.adds_parameter_gradients;
}

static size_t cut_scratch(linear_loss *self, char *memory) {
    cutter from = {memory, 0};
    size_t rows = self->sets[0].rows;
    bool half = self->element < sizeof(float);
    self->own_scratch = cut(&from, own_scratch_bytes(self));
    self->input = cut(&from, rows * self->in * self->element);
    self->values = cut(&from, rows * self->out * self->element);
    self->logits = half ? cut(&from, rows * self->out * sizeof(float)) : (float *)self->values;
    self->row_losses = cut(&from, self->loss->needs.scratch_bytes);
    self->loss_saved = cut(&from, self->loss->needs.saved_bytes);
    if (wants_input(self)) self->input_gradient = cut(&from, rows * self->in * self->element);
    for (int k = 0; k < YOKE_PLAN_PARAMETERS && trains(self); k++)
        if (!adds_itself(self))
            self->gradients[k] = cut(&from, self->base.needs.parameters[k].bytes);
    return from.used;
}

static size_t cut_saved(linear_loss *self, char *memory) {
    cutter from = {memory, 0};
    for (int k = 0; k < YOKE_PLAN_PARAMETERS && trains(self); k++)
        self->sums[k] = cut(&from, self->base.needs.parameters[k].bytes);
    if (wants_input(self))
        self->whole_input_gradient = cut(&from, self->rows * self->in * self->element);
    return from.used;
}

/* Binding. */

static yoke_status bind_block(linear_loss *self, block *of, const yoke_plan_binding *given) {
    yoke_plan_binding binding = {.inputs = {self->input},
                                 .output = self->values,
                                 .output_gradient = self->values,
                                 .input_gradients = {self->input_gradient},
                                 .scratch = self->own_scratch};
    for (int k = 0; k < YOKE_PLAN_PARAMETERS; k++) {
        binding.parameters[k] = given->parameters[k];
        binding.shadows[k] = given->shadows[k];
        binding.parameter_gradients[k] = adds_itself(self) ? self->sums[k] : self->gradients[k];
    }
    TRY(yoke_plan_bind(of->linear, &binding));
    if ((void *)self->logits == (void *)self->values) return YOKE_OK;
    cpu_device *device = cpu_of(self->base.device);
    const yoke_dims dims = of->linear->operation.output;
    const cpu_desc *values = NULL, *logits = NULL;
    TRY(cpu_value_desc(&values, device, SINGLE, dims, dnnl_bf16, dnnl_nchw));
    TRY(cpu_value_desc(&logits, device, SINGLE, dims, dnnl_f32, dnnl_nchw));
    cpu_call_destroy(&of->widen);
    cpu_call_destroy(&of->narrow);
    TRY(cpu_reorder(&of->widen, device, values, self->values, logits, self->logits));
    return cpu_reorder(&of->narrow, device, logits, self->logits, values, self->values);
}

static yoke_status linear_loss_bind(yoke_plan *plan, const yoke_plan_binding *given) {
    linear_loss *self = self_of(plan);
    cut_scratch(self, given->scratch);
    cut_saved(self, given->saved);
    for (int i = 0; i < SETS; i++)
        if (self->sets[i].linear != NULL) TRY(bind_block(self, &self->sets[i], given));
    const yoke_plan_binding binding = {.saved = self->loss_saved,
                                       .scratch = self->row_losses,
                                       .labels = given->labels,
                                       .mixes = given->mixes,
                                       .scalars = given->scalars};
    return yoke_plan_bind(self->loss, &binding);
}

/* Running. */

typedef yoke_status block_function(const linear_loss *self, const block *of,
                                   const yoke_plan_step *step);

static yoke_status for_blocks(const linear_loss *self, const yoke_plan_step *step,
                              block_function *function) {
    for (size_t first = 0; first < self->rows; first += self->sets[0].rows) {
        block of = self->sets[self->rows - first < self->sets[0].rows];
        of.first = first;
        TRY(function(self, &of, step));
    }
    return YOKE_OK;
}

static void read_input(const linear_loss *self, const block *of) {
    size_t row = self->in * self->element;
    memcpy(self->input, (const char *)self->base.binding.inputs[0] + of->first * row,
           of->rows * row);
}

/* Logits of the block's rows, in float32. */
static yoke_status multiply(const linear_loss *self, const block *of, const yoke_plan_step *step) {
    read_input(self, of);
    TRY(yoke_plan_forward(of->linear, step));
    return cpu_call_run(&of->widen, cpu_of(self->base.device));
}

static yoke_status add_parameters(const linear_loss *self, const block *of) {
    for (int k = 0; k < YOKE_PLAN_PARAMETERS && trains(self) && !adds_itself(self); k++) {
        size_t bytes = self->base.needs.parameters[k].bytes;
        const float *both[] = {self->sums[k], self->gradients[k]};
        if (of->first == 0)
            memcpy(self->sums[k], self->gradients[k], bytes);
        else
            TRY(cpu_sum(self->base.device, YOKE_STREAM_COMPUTE, self->sums[k], both, 2,
                        bytes / sizeof(float)));
    }
    return YOKE_OK;
}

/* From the gradient of the logits, which lies where they did. */
static yoke_status backward_of_block(const linear_loss *self, const block *of,
                                     const yoke_plan_step *step, char *input_gradient) {
    yoke_plan_step own = *step;
    own.adds_parameter_gradients = of->first > 0;
    TRY(cpu_call_run(&of->narrow, cpu_of(self->base.device)));
    TRY(yoke_plan_backward(of->linear, &own));
    TRY(add_parameters(self, of));
    size_t row = self->in * self->element;
    if (wants_input(self))
        memcpy(input_gradient + of->first * row, self->input_gradient, of->rows * row);
    return YOKE_OK;
}

static yoke_status loss_of_block(const linear_loss *self, const block *of,
                                 const yoke_plan_step *step) {
    bool backward = trains(self) || wants_input(self);
    const cpu_loss_rows rows = {of->first, of->rows, self->logits, backward ? self->logits : NULL};
    TRY(multiply(self, of, step));
    cpu_cross_entropy_of_rows(self->loss, step, &rows);
    return backward ? backward_of_block(self, of, step, self->whole_input_gradient) : YOKE_OK;
}

static yoke_status outputs_of_block(const linear_loss *self, const block *of,
                                    const yoke_plan_step *step) {
    TRY(multiply(self, of, step));
    memcpy((float *)self->base.binding.output + of->first * self->out, self->logits,
           of->rows * self->out * sizeof(float));
    return YOKE_OK;
}

static yoke_status gradient_of_block(const linear_loss *self, const block *of,
                                     const yoke_plan_step *step) {
    read_input(self, of);
    memcpy(self->logits, (const float *)self->base.binding.output_gradient + of->first * self->out,
           of->rows * self->out * sizeof(float));
    return backward_of_block(self, of, step, self->base.binding.input_gradients[0]);
}

static yoke_status linear_loss_forward(yoke_plan *plan, const yoke_plan_step *step) {
    return for_blocks(self_of(plan), step, step->loss_only ? loss_of_block : outputs_of_block);
}

static yoke_status linear_loss_backward(yoke_plan *plan, const yoke_plan_step *step) {
    const linear_loss *self = self_of(plan);
    const yoke_plan_binding *at = &plan->binding;
    if (!step->loss_only) TRY(for_blocks(self, step, gradient_of_block));
    for (int k = 0; k < YOKE_PLAN_PARAMETERS && trains(self); k++)
        if (plan->needs.parameters[k].bytes > 0)
            memcpy(at->parameter_gradients[k], self->sums[k], plan->needs.parameters[k].bytes);
    if (step->loss_only && wants_input(self))
        memcpy(at->input_gradients[0], self->whole_input_gradient,
               self->rows * self->in * self->element);
    return YOKE_OK;
}

static void linear_loss_destroy(yoke_plan *plan) {
    linear_loss *self = self_of(plan);
    for (int i = 0; i < SETS; i++) {
        cpu_call_destroy(&self->sets[i].widen);
        cpu_call_destroy(&self->sets[i].narrow);
        yoke_plan_destroy(self->sets[i].linear);
    }
    yoke_plan_destroy(self->loss);
    yoke_free(self);
}

/* Planning. */

/* What the row of a plan depends on stays the same in all blocks, whatever the rows of this plan:
 * the most of all plans decide whether a table of logits is too large. */
yoke_status cpu_takes_linear_loss(bool *takes, cpu_device *device,
                                  const yoke_plan_request *request) {
    const yoke_operation *operation = request->operation;
    size_t rows = (size_t)(request->most_rows > 0 ? request->most_rows : request->rows);
    size_t table = rows * (size_t)operation->input.height * (size_t)operation->output.channels;
    const cpu_desc *input = NULL;
    *takes = request->loss != NULL && request->loss->kind == YOKE_OP_CROSS_ENTROPY &&
             table * sizeof(float) > LEAST_TABLE_BYTES;
    if (!*takes) return YOKE_OK;
    TRY(cpu_value_desc(&input, device, request->rows, operation->input,
                       cpu_data_type(request->precision), dnnl_nchw));
    *takes = cpu_layout_desc(&request->inputs[0]) == input;
    return YOKE_OK;
}

/* The parameters' layouts are those of the first set. */
static yoke_status plan_block(linear_loss *self, const yoke_plan_request *request, block *of) {
    cpu_device *device = cpu_of(self->base.device);
    yoke_operation operation = *request->operation;
    operation.input = (yoke_dims){(int)self->in, (int)of->rows, 1, true};
    operation.output = (yoke_dims){(int)self->out, (int)of->rows, 1, true};
    yoke_plan_request own = {.operation = &operation,
                             .rows = SINGLE,
                             .training = request->training,
                             .inference = request->inference,
                             .precision = request->precision,
                             .algorithm = request->algorithm,
                             .input_gradient = request->input_gradient,
                             .frozen = request->frozen,
                             .forms = {YOKE_FORM_FLOAT32},
                             .algorithms = request->algorithms};
    const cpu_desc *input = NULL;
    TRY(cpu_value_desc(&input, device, SINGLE, operation.input, cpu_data_type(request->precision),
                       dnnl_nchw));
    cpu_layout_store(&own.inputs[0], input);
    for (int k = 0; k < YOKE_PLAN_PARAMETERS; k++)
        own.parameters[k] =
            of == self->sets ? request->parameters[k] : self->sets[0].linear->needs.parameters[k];
    return yoke_plan_create(&of->linear, &device->base, &own);
}

static yoke_status plan_loss(linear_loss *self, const yoke_plan_request *request) {
    yoke_plan_request own = {.operation = request->loss,
                             .rows = request->rows,
                             .training = request->training,
                             .input_gradient = request->training};
    return yoke_plan_create(&self->loss, self->base.device, &own);
}

/* A product in bfloat16 converts its weights for each block anew, and oneDNN 2.6 loses the data
 * gradient of a few rows where outputs are odd in number: there blocks are larger, and of about one
 * size. */
static size_t rows_of_block(const linear_loss *self) {
    bool half = self->element < sizeof(float);
    size_t most = half ? 2 * ROWS : ROWS, blocks = (self->rows + most - 1) / most;
    if (blocks == 1) return self->rows;
    return half ? (self->rows + blocks - 1) / blocks : most;
}

yoke_status cpu_plan_linear_loss(yoke_plan **plan, cpu_device *device,
                                 const yoke_plan_request *request) {
    static const yoke_plan_calls calls = {linear_loss_bind, linear_loss_forward,
                                          linear_loss_backward, linear_loss_destroy};
    TRY(yoke_plan_allocate(plan, sizeof(linear_loss), &device->base, request, &calls));
    linear_loss *self = self_of(*plan);
    const yoke_operation *operation = request->operation;
    self->rows = (size_t)request->rows * (size_t)operation->input.height;
    self->in = (size_t)operation->input.channels;
    self->out = (size_t)operation->output.channels;
    self->element = request->precision == YOKE_BFLOAT16 ? sizeof(uint16_t) : sizeof(float);
    self->sets[0].rows = rows_of_block(self);
    self->sets[1].rows = self->rows % self->sets[0].rows;
    TRY(plan_loss(self, request));
    for (int i = 0; i < SETS; i++)
        if (self->sets[i].rows > 0) TRY(plan_block(self, request, &self->sets[i]));
    const yoke_plan *first = self->sets[0].linear;
    yoke_plan_needs *needs = &self->base.needs;
    memcpy(self->base.algorithms, first->algorithms, sizeof first->algorithms);
    memcpy(needs->parameters, first->needs.parameters, sizeof needs->parameters);
    memcpy(needs->reads_shadow, first->needs.reads_shadow, sizeof needs->reads_shadow);
    needs->computes_next = 1;
    needs->computes_loss = true;
    needs->backward_reads[0] = request->training; /* and the loss, behind all forwards */
    needs->scratch_bytes = cut_scratch(self, NULL);
    if (request->training) needs->saved_bytes = cut_saved(self, NULL);
    return cpu_plan_plain_output(*plan, request, cpu_data_type(request->precision));
}
