/* SPDX-License-Identifier: Apache-2.0 */
/* The recurrent part of an LSTM's or a GRU's layer in one direction. A block of rows is one
 * thread's and walks through all positions, so that no thread waits for another and the bits do not
 * depend on the threads; its states stay in the caches. Backward walks back, and computes the
 * weight's gradient as one product over all positions. Rows of matrices of its own are padded
 * (sgemm.h), and both passes copy the weight once, forward to its transpose: products of few rows
 * are fastest with it. */
#include <omp.h>
#include <string.h>

#include "device/cpu/clones.h"
#include "device/cpu/functions.h"
#include "device/cpu/plain.h"
#include "device/cpu/sgemm.h"

enum {
    BLOCK_ROWS = 32,
    PART_GATES = 128, /* rows of the weight's gradient that one thread takes at a time */
    KEPT_GATES = 4    /* LSTM: i, f, g, o; GRU: r, z, n and the state's share of n */
};

typedef struct recurrence_plan {
    cpu_plain_plan plain;
    size_t positions, hidden, gates, blocks; /* gates: 3 or 4 times hidden */
    size_t state_row, gates_row;             /* padded */
    bool gru, reverse;
} recurrence_plan;

/* What forward keeps for backward, [rows, positions, ...]: the gates, [4 * hidden], and the states,
 * [state_row], and an LSTM's cells that it read. NULL: inference. */
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
    return (kept){saved, states, states + self->state_row * sites(self)};
}

static size_t block_floats(const recurrence_plan *self) {
    return BLOCK_ROWS * (self->gates_row + 2 * self->state_row);
}

/* Scratch: the copy of the weight, the blocks, the gradients of the gates. */

static size_t weight_floats(const recurrence_plan *self) {
    size_t forward = self->hidden * self->gates_row, backward = self->gates * self->state_row;
    return forward > backward ? forward : backward;
}

static float *weight_copy(const recurrence_plan *self) {
    return self->plain.base.binding.scratch;
}

static block block_of(const recurrence_plan *self, size_t index) {
    float *memory = weight_copy(self) + weight_floats(self) + index * block_floats(self);
    size_t first = index * BLOCK_ROWS, left = self->plain.base.rows - first;
    return (block){.first = first,
                   .rows = left < BLOCK_ROWS ? left : BLOCK_ROWS,
                   .gates = memory,
                   .state = memory + BLOCK_ROWS * self->gates_row,
                   .cell = memory + BLOCK_ROWS * (self->gates_row + self->state_row)};
}

/* The gradients of what the state gave to the gates, [rows, positions, gates_row]. An LSTM adds it
 * to the input's share, which then has the same gradient. */
static float *state_gradients(const recurrence_plan *self) {
    return weight_copy(self) + weight_floats(self) + self->blocks * block_floats(self);
}

/* The place of a row's position, of those that forward visits number `turn`. */
static size_t site_of(const recurrence_plan *self, size_t row, size_t turn) {
    return row * self->positions + (self->reverse ? self->positions - 1 - turn : turn);
}

static bool is_valid(const recurrence_plan *self, size_t site) {
    const float *valid = self->plain.base.binding.inputs[1];
    return self->plain.input_count < 2 || valid[site] != 0;
}

/* [gates, hidden] to [hidden, gates_row] or [gates, state_row]. */
static void copy_weight(const recurrence_plan *self, bool transposed) {
    const float *weight = self->plain.base.binding.parameters[0];
    float *copy = weight_copy(self);
#pragma omp parallel for num_threads(self->plain.base.device->threads)
    for (size_t gate = 0; gate < self->gates; gate++)
        if (transposed)
            for (size_t k = 0; k < self->hidden; k++)
                copy[k * self->gates_row + gate] = weight[gate * self->hidden + k];
        else
            memcpy(copy + gate * self->state_row, weight + gate * self->hidden,
                   self->hidden * sizeof *copy);
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
    float *state = b->state + row * self->state_row, *cell = b->cell + row * self->state_row;
    float *gates = b->gates + row * self->gates_row, *output = (float *)at->output + site * hidden;
    const float *input = (const float *)at->inputs[0] + site * self->gates;
    if (keep.gates != NULL) memcpy(keep.states + site * self->state_row, state, bytes);
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
            memcpy(b->gates + row * self->gates_row, bias, bytes);
        else
            memset(b->gates + row * self->gates_row, 0, bytes);
}

static void clear_states(const recurrence_plan *self, const block *b) {
    memset(b->state, 0, BLOCK_ROWS * self->state_row * sizeof(float));
    memset(b->cell, 0, BLOCK_ROWS * self->state_row * sizeof(float));
}

static dnnl_status_t forward_block(const recurrence_plan *self, const block *b) {
    const cpu_sgemm share = {.add = true,
                             .rows = b->rows,
                             .columns = self->gates,
                             .depth = self->hidden,
                             .a = b->state,
                             .a_row = self->state_row,
                             .b = weight_copy(self),
                             .b_row = self->gates_row,
                             .to = b->gates,
                             .to_row = self->gates_row};
    dnnl_status_t status = dnnl_success;
    clear_states(self, b);
    for (size_t turn = 0; status == dnnl_success && turn < self->positions; turn++) {
        begin_gates(self, b);
        if (turn > 0) status = cpu_sgemm_run(&share);
        for (size_t row = 0; row < b->rows; row++)
            visit(self, b, row, site_of(self, b->first + row, turn));
    }
    return status;
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
    float *dstate = b->state + row * self->state_row, *dcell = b->cell + row * self->state_row;
    float *dgates = b->gates + row * self->gates_row, *dinput = at->input_gradients[0];
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
            gru_slopes(hidden, kept_gates, keep.states + site * self->state_row, dstate, dcell,
                       dgates);
        else
            lstm_slopes(hidden, kept_gates, keep.cells + site * hidden, dstate, dcell, dgates);
    }
    memcpy(state_gradients(self) + site * self->gates_row, dgates, gates * sizeof(float));
    if (dinput == NULL) return;
    memcpy(dinput, dgates, gates * sizeof(float));
    if (self->gru) memcpy(dinput + 2 * hidden, dcell, hidden * sizeof(float));
}

static dnnl_status_t backward_block(const recurrence_plan *self, const block *b) {
    const cpu_sgemm share = {.add = true,
                             .rows = b->rows,
                             .columns = self->hidden,
                             .depth = self->gates,
                             .a = b->gates,
                             .a_row = self->gates_row,
                             .b = weight_copy(self),
                             .b_row = self->state_row,
                             .to = b->state,
                             .to_row = self->state_row};
    dnnl_status_t status = dnnl_success;
    clear_states(self, b);
    for (size_t turn = self->positions; status == dnnl_success && turn-- > 0;) {
        for (size_t row = 0; row < b->rows; row++)
            visit_back(self, b, row, site_of(self, b->first + row, turn));
        if (turn > 0) status = cpu_sgemm_run(&share);
    }
    return status;
}

/* The gradients of `count` rows of the weight, from row `first`, and of their biases. */
static dnnl_status_t weight_part(const recurrence_plan *self, size_t first, size_t count) {
    const yoke_plan_binding *at = &self->plain.base.binding;
    const float *slopes = state_gradients(self) + first;
    const cpu_sgemm product = {.transpose_a = true,
                               .rows = count,
                               .columns = self->hidden,
                               .depth = sites(self),
                               .a = slopes,
                               .a_row = self->gates_row,
                               .b = kept_of(self).states,
                               .b_row = self->state_row,
                               .to = at->parameter_gradients[0] + first * self->hidden,
                               .to_row = self->hidden};
    double sums[PART_GATES] = {0};
    for (size_t site = 0; self->plain.base.operation.bias && site < sites(self); site++)
        for (size_t k = 0; k < count; k++)
            sums[k] += (double)slopes[site * self->gates_row + k];
    for (size_t k = 0; self->plain.base.operation.bias && k < count; k++)
        at->parameter_gradients[1][first + k] = (float)sums[k];
    return cpu_sgemm_run(&product);
}

static yoke_status run_blocks(const recurrence_plan *self,
                              dnnl_status_t (*run)(const recurrence_plan *, const block *)) {
    dnnl_status_t status = dnnl_success;
#pragma omp parallel for num_threads(self->plain.base.device->threads)
    for (size_t i = 0; i < self->blocks; i++) {
        const block b = block_of(self, i);
        cpu_keep_failure(&status, run(self, &b));
    }
    TRY_DNNL(status);
    return YOKE_OK;
}

static yoke_status weight_gradient(const recurrence_plan *self) {
    dnnl_status_t status = dnnl_success;
#pragma omp parallel for num_threads(self->plain.base.device->threads)
    for (size_t first = 0; first < self->gates; first += PART_GATES) {
        size_t left = self->gates - first;
        cpu_keep_failure(&status, weight_part(self, first, left < PART_GATES ? left : PART_GATES));
    }
    TRY_DNNL(status);
    return YOKE_OK;
}

static yoke_status recurrence_call(const cpu_plain_plan *plain, bool backward) {
    const recurrence_plan *self = (const recurrence_plan *)plain;
    const yoke_plan_binding *at = &plain->base.binding;
    copy_weight(self, !backward);
    TRY(run_blocks(self, backward ? backward_block : forward_block));
    if (backward && at->input_gradients[1] != NULL)
        memset(at->input_gradients[1], 0, sites(self) * sizeof(float));
    return backward && !plain->base.frozen ? weight_gradient(self) : YOKE_OK;
}

static yoke_status recurrence_prepare(cpu_plain_plan *plain, const yoke_plan_request *request) {
    recurrence_plan *self = (recurrence_plan *)plain;
    const yoke_operation *operation = request->operation;
    yoke_plan_needs *needs = &plain->base.needs;
    int64_t weight[] = {operation->input.channels, operation->output.channels};
    self->positions = (size_t)operation->output.height;
    self->hidden = (size_t)operation->output.channels;
    self->gates = (size_t)operation->input.channels;
    self->state_row = cpu_sgemm_pitch(self->hidden);
    self->gates_row = cpu_sgemm_pitch(self->gates);
    self->gru = self->gates == 3 * self->hidden;
    self->reverse = operation->reverse;
    self->blocks = (plain->base.rows + BLOCK_ROWS - 1) / BLOCK_ROWS;
    TRY(yoke_layout_plain(plain->base.device, weight, 2, &needs->parameters[0]));
    if (operation->bias)
        TRY(yoke_layout_plain(plain->base.device, weight, 1, &needs->parameters[1]));
    size_t scratch = weight_floats(self) + self->blocks * block_floats(self);
    if (request->training) {
        size_t values = self->gru ? KEPT_GATES : KEPT_GATES + 1;
        needs->saved_bytes =
            sites(self) * (values * self->hidden + self->state_row) * sizeof(float);
        scratch += sites(self) * self->gates_row;
    }
    needs->scratch_bytes += scratch * sizeof(float);
    return YOKE_OK;
}

yoke_status cpu_plan_recurrence(yoke_plan **plan, cpu_device *device,
                                const yoke_plan_request *request) {
    static const cpu_plain_operation calls = {.flags = YOKE_READS_SECOND | YOKE_HAS_PARAMETERS,
                                              .bytes = sizeof(recurrence_plan),
                                              .prepare = recurrence_prepare,
                                              .call = recurrence_call,
                                              .float32 = true};
    return cpu_plain_plan_create(plan, device, request, &calls,
                                 request->operation->others[0].height > 0 ? 2 : 1);
}
