/* SPDX-License-Identifier: Apache-2.0 */
/* Multi-head attention over the packed projections [q | k | v]. Each head of each row is computed
 * alone, by one thread. */
#include <string.h>

#include "device/cpu/attention_head.h"
#include "device/cpu/cpu.h"

enum { FEW_HEADS = 8 }; /* for each thread */

typedef struct attention_plan {
    yoke_plan base;
    size_t heads, channels, positions; /* channels: of the output */
    bool input_half, output_half;
    size_t parts;          /* of a head's queries, where threads share a head; 1: they do not */
    size_t scratch_floats; /* of a thread */
} attention_plan;

/* A head's part of a value [rows, positions, channels]; of the input, `part` 0, 1, 2 are q, k, v.
 */
static cpu_head_values values_of(const attention_plan *attention, void *value, size_t index,
                                 size_t parts, size_t part) {
    size_t row = index / attention->heads, head = index % attention->heads;
    size_t stride = parts * attention->channels, size = attention->channels / attention->heads;
    size_t at = row * attention->positions * stride + part * attention->channels + head * size;
    bool half = parts > 1 ? attention->input_half : attention->output_half;
    return (cpu_head_values){(char *)value + at * (half ? sizeof(uint16_t) : sizeof(float)), stride,
                             half};
}

static cpu_head head_at(const attention_plan *attention, size_t index, size_t thread) {
    const yoke_plan_binding *binding = &attention->base.binding;
    cpu_head head = {
        .positions = attention->positions,
        .size = attention->channels / attention->heads,
        .causal = attention->base.operation.causal,
        .query = values_of(attention, binding->inputs[0], index, 3, 0),
        .key = values_of(attention, binding->inputs[0], index, 3, 1),
        .value = values_of(attention, binding->inputs[0], index, 3, 2),
        .output = values_of(attention, binding->output, index, 1, 0),
        .scratch = (float *)binding->scratch + thread * attention->scratch_floats,
    };
    if (attention->base.needs.saved_bytes > 0)
        head.log_sum = (float *)binding->saved + index * attention->positions;
    return head;
}

static dnnl_status_t run_head(const attention_plan *attention, size_t index, size_t thread,
                              bool backward) {
    const yoke_plan_binding *binding = &attention->base.binding;
    cpu_head head = head_at(attention, index / attention->parts, thread);
    head.part = index % attention->parts;
    head.parts = attention->parts;
    if (!backward) return cpu_head_forward(&head);
    void *gradient = binding->input_gradients[0];
    head.output_gradient = values_of(attention, binding->output_gradient, index, 1, 0);
    head.query_gradient = values_of(attention, gradient, index, 3, 0);
    head.key_gradient = values_of(attention, gradient, index, 3, 1);
    head.value_gradient = values_of(attention, gradient, index, 3, 2);
    return cpu_head_backward(&head);
}

/* The heads of all rows, or parts of them, that one thread computes. */
static dnnl_status_t run_part(const attention_plan *attention, size_t thread, size_t threads,
                              bool backward) {
    size_t count = attention->base.rows * attention->heads * attention->parts;
    dnnl_status_t status = dnnl_success;
    for (size_t i = count * thread / threads;
         status == dnnl_success && i < count * (thread + 1) / threads; i++)
        status = run_head(attention, i, thread, backward);
    return status;
}

static yoke_status run_heads(const attention_plan *attention, bool backward) {
    size_t threads = (size_t)attention->base.device->threads;
    dnnl_status_t status = dnnl_success;
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (size_t thread = 0; thread < threads; thread++) {
        cpu_keep_failure(&status, run_part(attention, thread, threads, backward));
    }
    if (status != dnnl_success) return cpu_dnnl_failed(status, "dnnl_sgemm of attention");
    return YOKE_OK;
}

static yoke_status attention_forward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    return run_heads((const attention_plan *)plan, false);
}

static yoke_status attention_backward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const attention_plan *attention = (const attention_plan *)plan;
    if (attention->base.binding.input_gradients[0] == NULL) return YOKE_OK;
    return run_heads(attention, true);
}

yoke_status cpu_plan_attention(yoke_plan **plan, cpu_device *device,
                               const yoke_plan_request *request) {
    static const yoke_plan_calls calls = {NULL, attention_forward, attention_backward, NULL,
                                          YOKE_READS_INPUT | YOKE_READS_OUTPUT};
    TRY(yoke_plan_allocate(plan, sizeof(attention_plan), &device->base, request, &calls));
    attention_plan *attention = (attention_plan *)*plan;
    const yoke_operation *operation = request->operation;
    dnnl_data_type_t type = cpu_data_type(request->precision);
    attention->heads = (size_t)operation->heads;
    attention->channels = (size_t)operation->output.channels;
    attention->positions = (size_t)operation->output.height;
    attention->input_half = cpu_layout_desc(&request->inputs[0])->type == dnnl_bf16;
    attention->output_half = type == dnnl_bf16;
    TRY(cpu_plan_plain_output(*plan, request, type));

    /* Three heads of one row would leave two threads one and two. */
    size_t heads = (size_t)request->rows * attention->heads, threads = (size_t)device->base.threads;
    bool halves = attention->input_half || attention->output_half;
    bool uneven = heads % threads != 0 && heads < FEW_HEADS * threads;
    bool shared = request->inference && uneven && !halves && attention->positions >= threads;
    attention->parts = shared ? threads : 1;

    bool trains = request->training && request->input_gradient;
    const cpu_head head = {.positions = attention->positions,
                           .size = attention->channels / attention->heads,
                           .causal = operation->causal,
                           .query.half = attention->input_half,
                           .output.half = attention->output_half};
    attention->scratch_floats = cpu_head_scratch_floats(&head, trains);
    yoke_plan_needs *needs = &attention->base.needs;
    needs->scratch_bytes = (size_t)device->base.threads * attention->scratch_floats * sizeof(float);
    if (trains)
        needs->saved_bytes =
            attention->base.rows * attention->heads * attention->positions * sizeof(float);
    return YOKE_OK;
}
