/* SPDX-License-Identifier: Apache-2.0 */
/* Linear for few rows, as where a text is continued token by token: it takes as long as reading the
 * weights once. Each thread reads a part of them from its beginning to its end. An output is one
 * sum in an order that depends on the shape alone, neither on the threads nor on the other rows. */
#include "device/cpu/few_rows.h"
#include "device/cpu/clones.h"
#include "device/cpu/cpu.h"

enum {
    LANES = 64,   /* partial sums of an output whose weights lie side by side */
    STREAMS = 4,  /* inputs whose weights are read at a time where those of an input do */
    LINE = 16,    /* floats of a cache line: two threads never write the same one */
    BLOCK = 1024, /* outputs that stay in the first-level cache, and STREAMS times their weights */
    PARALLEL = 1 << 14
};

typedef struct few_rows_plan {
    yoke_plan base;
    size_t rows, in, out;
    bool by_input; /* weights are [in, out] in memory, otherwise [out, in] */
} few_rows_plan;

/* to = input * weights + bias, outputs begin .. end - 1 of every row */
typedef struct product {
    const float *input, *weights, *bias; /* bias NULL: none */
    float *to;
    size_t rows, in, out;
} product;

CPU_CLONES static void by_output(const product *p, size_t begin, size_t end) {
    size_t whole = p->in - p->in % LANES;
    for (size_t o = begin; o < end; o++) {
        const float *weights = p->weights + o * p->in;
        for (size_t row = 0; row < p->rows; row++) {
            const float *input = p->input + row * p->in;
            float lanes[LANES] = {0}, rest = p->bias != NULL ? p->bias[o] : 0;
            for (size_t i = 0; i < whole; i += LANES)
                for (size_t lane = 0; lane < LANES; lane++)
                    lanes[lane] += input[i + lane] * weights[i + lane];
            for (size_t half = LANES / 2; half > 0; half /= 2)
                for (size_t lane = 0; lane < half; lane++)
                    lanes[lane] += lanes[lane + half];
            for (size_t i = whole; i < p->in; i++)
                rest += input[i] * weights[i];
            p->to[row * p->out + o] = lanes[0] + rest;
        }
    }
}

/* to[begin .. end) += STREAMS inputs * their weights, which lie p->out apart. */
static inline void add_streams(const product *p, const float *input, const float *weights,
                               float *to, size_t count) {
    const float a = input[0], b = input[1], c = input[2], d = input[3];
    const float *w0 = weights, *w1 = w0 + p->out, *w2 = w1 + p->out, *w3 = w2 + p->out;
#pragma omp simd
    for (size_t o = 0; o < count; o++)
        to[o] = to[o] + a * w0[o] + b * w1[o] + c * w2[o] + d * w3[o];
}

static inline void add_stream(float input, const float *weights, float *to, size_t count) {
#pragma omp simd
    for (size_t o = 0; o < count; o++)
        to[o] += input * weights[o];
}

_Static_assert(STREAMS == 4, "add_streams names four");

CPU_CLONES static void by_input(const product *p, size_t begin, size_t end) {
    for (size_t first = begin; first < end; first += BLOCK) {
        size_t count = end - first < BLOCK ? end - first : BLOCK, i = 0;
        for (size_t row = 0; row < p->rows; row++)
            for (size_t o = first; o < first + count; o++)
                p->to[row * p->out + o] = p->bias != NULL ? p->bias[o] : 0;
        for (; i + STREAMS <= p->in; i += STREAMS)
            for (size_t row = 0; row < p->rows; row++)
                add_streams(p, p->input + row * p->in + i, p->weights + i * p->out + first,
                            p->to + row * p->out + first, count);
        for (; i < p->in; i++)
            for (size_t row = 0; row < p->rows; row++)
                add_stream(p->input[row * p->in + i], p->weights + i * p->out + first,
                           p->to + row * p->out + first, count);
    }
}

static yoke_status few_rows_forward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const few_rows_plan *self = (const few_rows_plan *)plan;
    const yoke_plan_binding *binding = &plan->binding;
    const product p = {binding->inputs[0],
                       binding->parameters[0],
                       binding->parameters[1],
                       binding->output,
                       self->rows,
                       self->in,
                       self->out};
    size_t threads = (size_t)plan->device->threads, lines = (p.out + LINE - 1) / LINE;
    if (p.in * p.out < PARALLEL) threads = 1;
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
    for (size_t thread = 0; thread < threads; thread++) {
        size_t begin = lines * thread / threads * LINE, end = lines * (thread + 1) / threads * LINE;
        if (end > p.out) end = p.out;
        (self->by_input ? by_input : by_output)(&p, begin, end);
    }
    return YOKE_OK;
}

bool cpu_takes_few_rows(const yoke_plan_request *request) {
    const yoke_operation *operation = request->operation;
    size_t rows = (size_t)request->rows * (size_t)operation->input.height;
    return operation->plain_weight && operation->input.sequence && !request->training &&
           request->precision == YOKE_FLOAT32 && rows <= CPU_FEW_ROWS &&
           cpu_layout_desc(&request->inputs[0])->type == dnnl_f32;
}

yoke_status cpu_plan_few_rows(yoke_plan **plan, cpu_device *device,
                              const yoke_plan_request *request) {
    static const yoke_plan_calls calls = {NULL, few_rows_forward};
    TRY(yoke_plan_allocate(plan, sizeof(few_rows_plan), &device->base, request, &calls));
    few_rows_plan *self = (few_rows_plan *)*plan;
    const yoke_operation *operation = request->operation;
    self->rows = (size_t)request->rows * (size_t)operation->input.height;
    self->in = (size_t)operation->input.channels;
    self->out = (size_t)operation->output.channels;
    self->by_input = operation->transposed;
    yoke_plan_needs *needs = &self->base.needs;
    const int64_t in = operation->input.channels, out = operation->output.channels;
    const int64_t shape[] = {operation->transposed ? in : out, operation->transposed ? out : in};
    TRY(yoke_layout_plain(&device->base, shape, 2, &needs->parameters[0]));
    if (operation->bias) TRY(yoke_layout_plain(&device->base, &out, 1, &needs->parameters[1]));
    return cpu_plan_plain_output(*plan, request, dnnl_f32);
}
