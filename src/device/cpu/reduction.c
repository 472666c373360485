/* SPDX-License-Identifier: Apache-2.0 */
/* Sums, means and maxima over axes of a row, in double. The gradient of a maximum is shared by the
 * elements that equal it. */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "device/cpu/plain.h"

typedef struct reduction_plan {
    cpu_plain_plan plain;
    yoke_view view; /* operand 0: the input, operand 1: the output */
    size_t results; /* elements of the output's row */
    double scale;   /* of a mean; otherwise 1 */
} reduction_plan;

enum { RESULTS = 2 }; /* doubles that a thread keeps for each result: itself, and a count */

/* Calls `body` with the places of each element of a row: `from` in the input, `to` in the
 * output. */
#define EACH(view, from, to, body)                                                                 \
    for (size_t i_ = 0; i_ < (view)->lengths[0]; i_++)                                             \
        for (size_t j_ = 0; j_ < (view)->lengths[1]; j_++) {                                       \
            const size_t *in_ = (view)->steps[0], *out_ = (view)->steps[1];                        \
            size_t from = i_ * in_[0] + j_ * in_[1], to = i_ * out_[0] + j_ * out_[1];             \
            for (size_t k_ = 0; k_ < (view)->lengths[2]; k_++, from += in_[2], to += out_[2])      \
                body;                                                                              \
        }

static void forward_row(const reduction_plan *self, const void *input, void *output,
                        double *results) {
    bool half = self->plain.half, maximum = self->plain.base.operation.reduction == YOKE_REDUCE_MAX;
    for (size_t i = 0; i < self->results; i++)
        results[i] = maximum ? -INFINITY : 0;
    if (maximum) {
        EACH(&self->view, from, to, {
            double value = (double)cpu_load(input, from, half);
            if (value > results[to] || isnan(value)) results[to] = value; /* NaN stays */
        })
    } else {
        EACH(&self->view, from, to, results[to] += (double)cpu_load(input, from, half))
    }
    for (size_t i = 0; i < self->results; i++)
        cpu_store(output, i, half, (float)(results[i] * self->scale));
}

static void backward_row(const reduction_plan *self, size_t row, double *results) {
    const cpu_plain_plan *plain = &self->plain;
    const yoke_plan_binding *at = &plain->base.binding;
    size_t elements = self->view.elements;
    bool half = plain->half, maximum = plain->base.operation.reduction == YOKE_REDUCE_MAX;
    const void *input = cpu_plain_row(plain, at->inputs[0], row, elements);
    const void *output = cpu_plain_row(plain, at->output, row, self->results);
    const void *dy = cpu_plain_row(plain, at->output_gradient, row, self->results);
    void *dx = cpu_plain_row(plain, at->input_gradients[0], row, elements);
    double *counts = results + self->results;
    for (size_t i = 0; i < self->results; i++) {
        results[i] = (double)cpu_load(dy, i, half) * self->scale;
        counts[i] = 0;
    }
    if (!maximum) {
        EACH(&self->view, from, to, cpu_store(dx, from, half, (float)results[to]))
        return;
    }
    EACH(&self->view, from, to,
         counts[to] += cpu_load(input, from, half) == cpu_load(output, to, half))
    EACH(&self->view, from, to, {
        bool largest = cpu_load(input, from, half) == cpu_load(output, to, half);
        cpu_store(dx, from, half, largest ? (float)(results[to] / counts[to]) : 0);
    })
}

static double *results_of_thread(const reduction_plan *self) {
    double *scratch = self->plain.base.binding.scratch;
    return scratch + (size_t)omp_get_thread_num() * RESULTS * self->results;
}

static void reduction_forward(const cpu_plain_plan *plain) {
    const reduction_plan *self = (const reduction_plan *)plain;
    const yoke_plan_binding *at = &plain->base.binding;
    size_t rows = plain->base.rows, elements = self->view.elements;
    int threads = plain->base.device->threads;
#pragma omp parallel for num_threads(threads) if (cpu_is_parallel(threads, rows * elements))
    for (size_t row = 0; row < rows; row++)
        forward_row(self, cpu_plain_row(plain, at->inputs[0], row, elements),
                    cpu_plain_row(plain, at->output, row, self->results), results_of_thread(self));
}

static void reduction_backward(const cpu_plain_plan *plain) {
    const reduction_plan *self = (const reduction_plan *)plain;
    size_t rows = plain->base.rows;
    int threads = plain->base.device->threads;
    if (plain->base.binding.input_gradients[0] == NULL) return;
#pragma omp parallel for num_threads(                                                              \
    threads) if (cpu_is_parallel(threads, rows * self->view.elements))
    for (size_t row = 0; row < rows; row++)
        backward_row(self, row, results_of_thread(self));
}

static yoke_status reduction_prepare(cpu_plain_plan *plain, const yoke_plan_request *request) {
    reduction_plan *self = (reduction_plan *)plain;
    const yoke_operation *operation = request->operation;
    yoke_plan_needs *needs = &plain->base.needs;
    const yoke_dims operands[] = {operation->input, operation->output};
    bool maximum = operation->reduction == YOKE_REDUCE_MAX;
    self->view = yoke_view_of(operation->input, operands, 2, false);
    self->results = yoke_row_elements(operation->output);
    self->scale = operation->reduction == YOKE_REDUCE_MEAN
                      ? (double)self->results / (double)self->view.elements
                      : 1;
    needs->backward_reads[0] = needs->backward_reads[0] && maximum;
    needs->backward_reads_output = needs->backward_reads_output && maximum;
    needs->scratch_bytes +=
        (size_t)plain->base.device->threads * RESULTS * self->results * sizeof(double);
    return YOKE_OK;
}

yoke_status cpu_plan_reduction(yoke_plan **plan, cpu_device *device,
                               const yoke_plan_request *request) {
    static const cpu_plain_operation calls = {.flags = YOKE_READS_INPUT | YOKE_READS_OUTPUT,
                                              .bytes = sizeof(reduction_plan),
                                              .prepare = reduction_prepare,
                                              .forward = reduction_forward,
                                              .backward = reduction_backward};
    return cpu_plain_plan_create(plan, device, request, &calls, 1);
}
