/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on a sequence that comes in parts: the embedding of positions from a row's offset on,
 * and causal attention over the keys and values of earlier parts. Arithmetic is float32, in an
 * order that depends on the shape and the position alone: neither on the parts nor on the threads.
 */
#include <math.h>
#include <string.h>

#include "device/cpu/clones.h"
#include "device/cpu/cpu.h"
#include "device/cpu/functions.h"

enum {
    LANES = 16,
    PARALLEL_WORK = 1 << 15 /* multiplications; below, a team costs more than it saves */
};

typedef struct continued_plan {
    yoke_plan base;
    size_t positions, channels, capacity; /* channels: of the output */
    size_t heads, size;                   /* attention; size: features of a head */
    bool half;                            /* values in bfloat16 */
} continued_plan;

/* The place of a row's position in the whole sequence; -1: it is padding. */
static ptrdiff_t place_of(const continued_plan *self, size_t row, size_t position) {
    float begin = ((const float *)self->base.binding.inputs[1])[row];
    float limit = (float)self->capacity;
    if (!(begin > -limit && begin < limit)) return -1;
    ptrdiff_t place = (ptrdiff_t)begin + (ptrdiff_t)position;
    return place < (ptrdiff_t)self->capacity ? place : -1;
}

static yoke_status create(yoke_plan **plan, cpu_device *device, const yoke_plan_request *request,
                          const yoke_plan_calls *calls) {
    const yoke_operation *operation = request->operation;
    if (request->training)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: a sequence in parts has no backward",
                    operation->name);
    TRY(yoke_plan_allocate(plan, sizeof(continued_plan), &device->base, request, calls));
    continued_plan *self = (continued_plan *)*plan;
    self->positions = (size_t)operation->output.height;
    self->channels = (size_t)operation->output.channels;
    self->capacity = (size_t)operation->capacity;
    self->half = cpu_layout_desc(&request->inputs[0])->type == dnnl_bf16;
    return cpu_plan_plain_output(*plan, request, self->half ? dnnl_bf16 : dnnl_f32);
}

/* Positions. */

static yoke_status positions_forward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const continued_plan *self = (const continued_plan *)plan;
    const yoke_plan_binding *binding = &plan->binding;
    for (size_t row = 0; row < plan->rows; row++)
        for (size_t i = 0; i < self->positions; i++) {
            size_t at = (row * self->positions + i) * self->channels;
            ptrdiff_t place = place_of(self, row, i);
            const float *weight =
                binding->parameters[0] + (place > 0 ? (size_t)place : 0) * self->channels;
            for (size_t k = 0; k < self->channels; k++)
                cpu_store(binding->output, at + k, self->half,
                          cpu_load(binding->inputs[0], at + k, self->half) + weight[k]);
        }
    return YOKE_OK;
}

yoke_status cpu_plan_continued_positions(yoke_plan **plan, cpu_device *device,
                                         const yoke_plan_request *request) {
    static const yoke_plan_calls calls = {NULL, positions_forward, NULL, NULL, YOKE_HAS_PARAMETERS};
    TRY(create(plan, device, request, &calls));
    const yoke_operation *operation = request->operation;
    const int64_t shape[] = {operation->table, operation->output.channels};
    return yoke_layout_plain(&device->base, shape, 2, &(*plan)->needs.parameters[0]);
}

/* Attention. Kept for each row and head: keys [capacity, size], then values. */

typedef struct one_query {
    const float *query, *keys, *values;
    size_t count, size; /* positions that it reads */
    float *scores, *output;
} one_query;

static inline float dot(const float *a, const float *b, size_t count) {
    float lanes[LANES] = {0}, sum = 0;
    size_t whole = count - count % LANES;
    for (size_t i = 0; i < whole; i += LANES)
        for (size_t lane = 0; lane < LANES; lane++)
            lanes[lane] += a[i + lane] * b[i + lane];
    for (size_t half = LANES / 2; half > 0; half /= 2)
        for (size_t lane = 0; lane < half; lane++)
            lanes[lane] += lanes[lane + half];
    for (size_t i = whole; i < count; i++)
        sum += a[i] * b[i];
    return lanes[0] + sum;
}

/* output = softmax(query keys^T / sqrt(size)) values */
CPU_CLONES static void attend(const one_query *of) {
    float scale = 1 / sqrtf((float)of->size), most = -INFINITY, sum = 0;
    for (size_t j = 0; j < of->count; j++) {
        of->scores[j] = scale * dot(of->query, of->keys + j * of->size, of->size);
        most = of->scores[j] > most ? of->scores[j] : most;
    }
    for (size_t j = 0; j < of->count; j++)
        of->scores[j] = cpu_exp_below_zero(of->scores[j] - most);
    for (size_t j = 0; j < of->count; j++)
        sum += of->scores[j];
    for (size_t d = 0; d < of->size; d++)
        of->output[d] = 0;
    for (size_t j = 0; j < of->count; j++)
        for (size_t d = 0; d < of->size; d++)
            of->output[d] += of->scores[j] * of->values[j * of->size + d];
    for (size_t d = 0; d < of->size; d++)
        of->output[d] /= sum;
}

/* Keeps keys and values of the part, then reads all up to each position. */
static void run_head(const continued_plan *self, size_t index, float *scratch) {
    const yoke_plan_binding *binding = &self->base.binding;
    size_t row = index / self->heads, head = index % self->heads, size = self->size;
    float *keys = (float *)binding->kept + index * 2 * self->capacity * size;
    float *values = keys + self->capacity * size;
    float *query = scratch, *output = scratch + size, *scores = scratch + 2 * size;
    for (size_t i = 0; i < self->positions; i++) {
        ptrdiff_t place = place_of(self, row, i);
        size_t from = (row * self->positions + i) * 3 * self->channels + head * size;
        size_t to = (row * self->positions + i) * self->channels + head * size;
        memset(output, 0, size * sizeof *output);
        for (size_t d = 0; place >= 0 && d < size; d++) {
            size_t kept = (size_t)place * size + d;
            query[d] = cpu_load(binding->inputs[0], from + d, self->half);
            keys[kept] = cpu_load(binding->inputs[0], from + self->channels + d, self->half);
            values[kept] = cpu_load(binding->inputs[0], from + 2 * self->channels + d, self->half);
        }
        if (place >= 0)
            attend(&(one_query){query, keys, values, (size_t)place + 1, size, scores, output});
        for (size_t d = 0; d < size; d++)
            cpu_store(binding->output, to + d, self->half, output[d]);
    }
}

static size_t scratch_floats(const continued_plan *self) {
    return cpu_align((2 * self->size + self->capacity) * sizeof(float), CPU_LINE) / sizeof(float);
}

/* A head of a row is one thread's. */
static yoke_status attention_forward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const continued_plan *self = (const continued_plan *)plan;
    size_t count = plan->rows * self->heads, threads = (size_t)plan->device->threads;
    size_t work = plan->rows * self->positions * self->channels * self->capacity;
    if (work < PARALLEL_WORK) threads = 1;
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
    for (size_t thread = 0; thread < threads; thread++)
        for (size_t i = count * thread / threads; i < count * (thread + 1) / threads; i++)
            run_head(self, i, (float *)plan->binding.scratch + thread * scratch_floats(self));
    return YOKE_OK;
}

yoke_status cpu_plan_continued_attention(yoke_plan **plan, cpu_device *device,
                                         const yoke_plan_request *request) {
    static const yoke_plan_calls calls = {NULL, attention_forward};
    TRY(create(plan, device, request, &calls));
    continued_plan *self = (continued_plan *)*plan;
    self->heads = (size_t)request->operation->heads;
    self->size = self->channels / self->heads;
    yoke_plan_needs *needs = &self->base.needs;
    needs->scratch_bytes = (size_t)device->base.threads * scratch_floats(self) * sizeof(float);
    needs->kept_bytes = self->base.rows * 2 * self->capacity * self->channels * sizeof(float);
    return YOKE_OK;
}
