/* SPDX-License-Identifier: Apache-2.0 */
/* The recurrent part of an LSTM's or a GRU's layer in one direction. A block of rows is one
 * thread's and walks through all positions, so that no thread waits for another and the bits do not
 * depend on the threads; its states stay in the caches. Backward walks back, and computes the
 * weight's gradient as one product over all positions. */
#include <omp.h>
#include <string.h>

#include "device/cpu/clones.h"
#include "device/cpu/functions.h"
#include "device/cpu/plain.h"

enum {
    BLOCK_ROWS = 32,
    PART_GATES = 128, /* rows of the weight's gradient that one thread takes at a time */
    KEPT_GATES = 4    /* LSTM: i, f, g, o; GRU: r, z, n and the state's share of n */
};

typedef struct recurrence_plan {
    cpu_plain_plan plain;
    size_t positions, hidden, gates, blocks; /* gates: 3 or 4 times hidden */
    bool gru, reverse;
} recurrence_plan;

/* What forward keeps for backward, [rows, positions, ...]: the gates, [4 * hidden], and the states
 * and an LSTM's cells that it read. NULL: inference. */
typedef struct kept {
    float *gates, *states, *cells;
} kept;

/* A block of rows, and what it works with: [BLOCK_ROWS, ...] each. In backward the gradients. */
typedef struct block {
    size_t first, rows;
    float *gates, *state, *cell;
} block;

static size_t sites(const recurrence_plan *self) {
    return self->plain.base.rows * self->positions;
}

static kept kept_of(const recurrence_plan *self) {
    float *saved = self->plain.base.binding.saved;
    if (self->plain.base.backward == NULL) return (kept){0};
    float *states = saved + KEPT_GATES * self->hidden * sites(self);
    return (kept){saved, states, states + self->hidden * sites(self)};
}

static size_t block_floats(const recurrence_plan *self) {
    return BLOCK_ROWS * (self->gates + 2 * self->hidden);
}

static block block_of(const recurrence_plan *self, size_t index) {
    float *memory = (float *)self->plain.base.binding.scratch + index * block_floats(self);
    size_t first = index * BLOCK_ROWS, left = self->plain.base.rows - first;
    return (block){.first = first,
                   .rows = left < BLOCK_ROWS ? left : BLOCK_ROWS,
                   .gates = memory,
                   .state = memory + BLOCK_ROWS * self->gates,
                   .cell = memory + BLOCK_ROWS * (self->gates + self->hidden)};
}

/* The gradients of what the state gave to the gates, [rows, positions, gates]. An LSTM adds it to
 * the input's share, which then has the same gradient. */
static float *state_gradients(const recurrence_plan *self) {
    const yoke_plan_binding *at = &self->plain.base.binding;
    if (!self->gru && at->input_gradients[0] != NULL) return at->input_gradients[0];
    return (float *)at->scratch + self->blocks * block_floats(self);
}

/* The place of a row's position, of those that forward visits number `turn`. */
static size_t site_of(const recurrence_plan *self, size_t row, size_t turn) {
    return row * self->positions + (self->reverse ? self->positions - 1 - turn : turn);
}

static bool is_valid(const recurrence_plan *self, size_t site) {
    const float *valid = self->plain.base.binding.inputs[1];
    return self->plain.input_count < 2 || valid[site] != 0;
}

/* to [m, n] += a [m, k] b [k, n], where a or b is stored transposed if `turned` names it. */
static void add_product(size_t m, size_t n, size_t k, const float *a, const float *b, char turned,
                        float *to) {
    dnnl_dim_t rows = (dnnl_dim_t)m, columns = (dnnl_dim_t)n, inner = (dnnl_dim_t)k;
    dnnl_sgemm('N', turned == 'b' ? 'T' : 'N', rows, columns, inner, 1, a, inner, b,
               turned == 'b' ? inner : columns, 1, to, columns);
}

/* Forward. `gates` holds the state's share, and then the gates themselves. */

CPU_CLONES static void lstm_cell(size_t hidden, const float *restrict input, float *restrict gates,
                                 float *restrict cell, float *restrict state) {
    const size_t f = hidden, g = 2 * hidden, o = 3 * hidden;
#pragma omp simd
    for (size_t k = 0; k < hidden; k++) {
        float take = cpu_sigmoid(input[k] + gates[k]);
        float keep = cpu_sigmoid(input[f + k] + gates[f + k]);
        float news = cpu_tanh(input[g + k] + gates[g + k]);
        float show = cpu_sigmoid(input[o + k] + gates[o + k]);
        cell[k] = keep * cell[k] + take * news;
        state[k] = show * cpu_tanh(cell[k]);
        gates[k] = take;
        gates[f + k] = keep;
        gates[g + k] = news;
        gates[o + k] = show;
    }
}

/* share: gets the state's share of n. */
CPU_CLONES static void gru_cell(size_t hidden, const float *restrict input, float *restrict gates,
                                float *restrict share, float *restrict state) {
    const size_t z = hidden, n = 2 * hidden;
#pragma omp simd
    for (size_t k = 0; k < hidden; k++) {
        float reset = cpu_sigmoid(input[k] + gates[k]);
        float update = cpu_sigmoid(input[z + k] + gates[z + k]);
        float own = gates[n + k], news = cpu_tanh(input[n + k] + reset * own);
        state[k] = news + update * (state[k] - news);
        gates[k] = reset;
        gates[z + k] = update;
        gates[n + k] = news;
        share[k] = own;
    }
}

static void visit(const recurrence_plan *self, const block *b, size_t row, size_t site) {
    const yoke_plan_binding *at = &self->plain.base.binding;
    const kept keep = kept_of(self);
    size_t hidden = self->hidden, bytes = hidden * sizeof(float);
    float *state = b->state + row * hidden, *cell = b->cell + row * hidden;
    float *gates = b->gates + row * self->gates, *output = (float *)at->output + site * hidden;
    const float *input = (const float *)at->inputs[0] + site * self->gates;
    if (keep.gates != NULL) memcpy(keep.states + site * hidden, state, bytes);
    if (keep.gates != NULL && !self->gru) memcpy(keep.cells + site * hidden, cell, bytes);
    if (!is_valid(self, site)) {
        memset(output, 0, bytes);
        return;
    }
    if (self->gru)
        gru_cell(hidden, input, gates, cell, state); /* a GRU has no cell of its own */
    else
        lstm_cell(hidden, input, gates, cell, state);
    memcpy(output, state, bytes);
    if (keep.gates == NULL) return;
    memcpy(keep.gates + site * KEPT_GATES * hidden, gates, self->gates * sizeof(float));
    if (self->gru) memcpy(keep.gates + site * KEPT_GATES * hidden + self->gates, cell, bytes);
}

/* What the gates get from a state of zeros. */
static void begin_gates(const recurrence_plan *self, const block *b) {
    const float *bias = self->plain.base.binding.parameters[1];
    size_t bytes = self->gates * sizeof(float);
    for (size_t row = 0; row < b->rows; row++)
        if (self->plain.base.operation.bias)
            memcpy(b->gates + row * self->gates, bias, bytes);
        else
            memset(b->gates + row * self->gates, 0, bytes);
}

static void forward_block(const recurrence_plan *self, const block *b) {
    const float *weight = self->plain.base.binding.parameters[0];
    memset(b->state, 0, BLOCK_ROWS * self->hidden * sizeof(float));
    memset(b->cell, 0, BLOCK_ROWS * self->hidden * sizeof(float));
    for (size_t turn = 0; turn < self->positions; turn++) {
        begin_gates(self, b);
        if (turn > 0)
            add_product(b->rows, self->gates, self->hidden, b->state, weight, 'b', b->gates);
        for (size_t row = 0; row < b->rows; row++)
            visit(self, b, row, site_of(self, b->first + row, turn));
    }
}

static void recurrence_forward(const cpu_plain_plan *plain) {
    const recurrence_plan *self = (const recurrence_plan *)plain;
#pragma omp parallel for num_threads(plain->base.device->threads)
    for (size_t i = 0; i < self->blocks; i++) {
        const block b = block_of(self, i);
        forward_block(self, &b);
    }
}

/* Backward. dstate and dcell are gradients of what this position wrote, and then of what it read;
 * what dstate gets through the weight comes later. */

CPU_CLONES static void lstm_slopes(size_t hidden, const float *restrict gates,
                                   const float *restrict cell, float *restrict dstate,
                                   float *restrict dcell, float *restrict dgates) {
    const size_t f = hidden, g = 2 * hidden, o = 3 * hidden;
#pragma omp simd
    for (size_t k = 0; k < hidden; k++) {
        float take = gates[k], keep = gates[f + k], news = gates[g + k], show = gates[o + k];
        float shown = cpu_tanh(keep * cell[k] + take * news);
        float slope = dcell[k] + dstate[k] * show * (1 - shown * shown);
        dgates[k] = slope * news * take * (1 - take);
        dgates[f + k] = slope * cell[k] * keep * (1 - keep);
        dgates[g + k] = slope * take * (1 - news * news);
        dgates[o + k] = dstate[k] * shown * show * (1 - show);
        dcell[k] = slope * keep;
        dstate[k] = 0;
    }
}

/* dnews: gets the gradient of the input's share of n. */
CPU_CLONES static void gru_slopes(size_t hidden, const float *restrict gates,
                                  const float *restrict state, float *restrict dstate,
                                  float *restrict dnews, float *restrict dgates) {
    const size_t z = hidden, n = 2 * hidden, share = 3 * hidden;
#pragma omp simd
    for (size_t k = 0; k < hidden; k++) {
        float reset = gates[k], update = gates[z + k], news = gates[n + k];
        dnews[k] = dstate[k] * (1 - update) * (1 - news * news);
        dgates[k] = dnews[k] * gates[share + k] * reset * (1 - reset);
        dgates[z + k] = dstate[k] * (state[k] - news) * update * (1 - update);
        dgates[n + k] = dnews[k] * reset;
        dstate[k] *= update;
    }
}

static void visit_back(const recurrence_plan *self, const block *b, size_t row, size_t site) {
    const yoke_plan_binding *at = &self->plain.base.binding;
    const kept keep = kept_of(self);
    size_t hidden = self->hidden, gates = self->gates;
    float *dstate = b->state + row * hidden, *dcell = b->cell + row * hidden;
    float *dgates = b->gates + row * gates, *dinput = at->input_gradients[0];
    const float *dy = (const float *)at->output_gradient + site * hidden;
    const float *kept_gates = keep.gates + site * KEPT_GATES * hidden;
    if (dinput != NULL) dinput += site * gates;
    if (!is_valid(self, site)) {
        memset(dgates, 0, gates * sizeof(float));
        if (self->gru) memset(dcell, 0, hidden * sizeof(float));
    } else {
        for (size_t k = 0; k < hidden; k++)
            dstate[k] += dy[k];
        if (self->gru)
            gru_slopes(hidden, kept_gates, keep.states + site * hidden, dstate, dcell, dgates);
        else
            lstm_slopes(hidden, kept_gates, keep.cells + site * hidden, dstate, dcell, dgates);
    }
    memcpy(state_gradients(self) + site * gates, dgates, gates * sizeof(float));
    if (dinput == NULL || !self->gru) return;
    memcpy(dinput, dgates, 2 * hidden * sizeof(float));
    memcpy(dinput + 2 * hidden, dcell, hidden * sizeof(float));
}

static void backward_block(const recurrence_plan *self, const block *b) {
    const float *weight = self->plain.base.binding.parameters[0];
    memset(b->state, 0, BLOCK_ROWS * self->hidden * sizeof(float));
    memset(b->cell, 0, BLOCK_ROWS * self->hidden * sizeof(float));
    for (size_t turn = self->positions; turn-- > 0;) {
        for (size_t row = 0; row < b->rows; row++)
            visit_back(self, b, row, site_of(self, b->first + row, turn));
        if (turn > 0)
            add_product(b->rows, self->hidden, self->gates, b->gates, weight, 0, b->state);
    }
}

/* The gradients of `count` rows of the weight, from row `first`, and of their biases. */
static void weight_part(const recurrence_plan *self, size_t first, size_t count) {
    const yoke_plan_binding *at = &self->plain.base.binding;
    const float *slopes = state_gradients(self) + first;
    dnnl_dim_t hidden = (dnnl_dim_t)self->hidden, gates = (dnnl_dim_t)self->gates;
    dnnl_sgemm('T', 'N', (dnnl_dim_t)count, hidden, (dnnl_dim_t)sites(self), 1, slopes, gates,
               kept_of(self).states, hidden, 0, at->parameter_gradients[0] + first * self->hidden,
               hidden);
    if (!self->plain.base.operation.bias) return;
    double sums[PART_GATES] = {0};
    for (size_t site = 0; site < sites(self); site++)
        for (size_t k = 0; k < count; k++)
            sums[k] += (double)slopes[site * self->gates + k];
    for (size_t k = 0; k < count; k++)
        at->parameter_gradients[1][first + k] = (float)sums[k];
}

static void recurrence_backward(const cpu_plain_plan *plain) {
    const recurrence_plan *self = (const recurrence_plan *)plain;
    const yoke_plan_binding *at = &plain->base.binding;
    int threads = plain->base.device->threads;
#pragma omp parallel for num_threads(threads)
    for (size_t i = 0; i < self->blocks; i++) {
        const block b = block_of(self, i);
        backward_block(self, &b);
    }
    if (at->input_gradients[1] != NULL)
        memset(at->input_gradients[1], 0, sites(self) * sizeof(float));
    if (plain->base.frozen) return;
#pragma omp parallel for num_threads(threads)
    for (size_t first = 0; first < self->gates; first += PART_GATES) {
        size_t left = self->gates - first;
        weight_part(self, first, left < PART_GATES ? left : PART_GATES);
    }
}

static yoke_status recurrence_prepare(cpu_plain_plan *plain, const yoke_plan_request *request) {
    recurrence_plan *self = (recurrence_plan *)plain;
    const yoke_operation *operation = request->operation;
    yoke_plan_needs *needs = &plain->base.needs;
    int64_t weight[] = {operation->input.channels, operation->output.channels};
    self->positions = (size_t)operation->output.height;
    self->hidden = (size_t)operation->output.channels;
    self->gates = (size_t)operation->input.channels;
    self->gru = self->gates == 3 * self->hidden;
    self->reverse = operation->reverse;
    self->blocks = (plain->base.rows + BLOCK_ROWS - 1) / BLOCK_ROWS;
    TRY(yoke_layout_plain(plain->base.device, weight, 2, &needs->parameters[0]));
    if (operation->bias)
        TRY(yoke_layout_plain(plain->base.device, weight, 1, &needs->parameters[1]));
    size_t scratch = self->blocks * block_floats(self);
    if (request->training) {
        size_t values = self->gru ? KEPT_GATES + 1 : KEPT_GATES + 2;
        needs->saved_bytes = sites(self) * values * self->hidden * sizeof(float);
        scratch += sites(self) * self->gates;
    }
    needs->scratch_bytes += scratch * sizeof(float);
    return YOKE_OK;
}

yoke_status cpu_plan_recurrence(yoke_plan **plan, cpu_device *device,
                                const yoke_plan_request *request) {
    static const cpu_plain_operation calls = {.flags = YOKE_READS_SECOND | YOKE_HAS_PARAMETERS,
                                              .bytes = sizeof(recurrence_plan),
                                              .prepare = recurrence_prepare,
                                              .forward = recurrence_forward,
                                              .backward = recurrence_backward,
                                              .float32 = true};
    return cpu_plain_plan_create(plan, device, request, &calls,
                                 request->operation->others[0].height > 0 ? 2 : 1);
}
