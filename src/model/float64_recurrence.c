/* SPDX-License-Identifier: Apache-2.0 */
/* The float64 reference of a recurrence: forward of the whole row comes first in backward, too,
 * which then needs no more than the states and cells of all positions. */
#include <math.h>
#include <string.h>

#include "model/float64.h"

/* One row. */
typedef struct row {
    size_t positions, hidden, gates;
    bool gru, reverse;
    const double *input, *weight, *bias, *valid; /* no bias, all are valid: NULL */
    /* Before each position, and behind the last: [positions + 1, hidden]. */
    double *states, *cells;
} row;

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

static size_t position_at(const row *w, size_t turn) {
    return w->reverse ? w->positions - 1 - turn : turn;
}

/* The state's share of gate `gate`. */
static double share_of(const row *w, size_t turn, size_t gate) {
    double sum = w->bias != NULL ? w->bias[gate] : 0;
    for (size_t k = 0; k < w->hidden; k++)
        sum += w->weight[gate * w->hidden + k] * w->states[turn * w->hidden + k];
    return sum;
}

/* The gates of feature k: LSTM i, f, g, o; GRU r, z, n and the state's share of n. */
static void gates_of(const row *w, size_t turn, size_t k, double gates[4]) {
    const double *input = w->input + position_at(w, turn) * w->gates;
    size_t h = w->hidden;
    for (size_t g = 0; g < 2; g++)
        gates[g] = sigmoid(input[g * h + k] + share_of(w, turn, g * h + k));
    gates[3] = share_of(w, turn, w->gates - h + k);
    if (w->gru) {
        gates[2] = tanh(input[2 * h + k] + gates[0] * gates[3]);
        return;
    }
    gates[2] = tanh(input[2 * h + k] + share_of(w, turn, 2 * h + k));
    gates[3] = sigmoid(input[3 * h + k] + gates[3]);
}

static bool is_valid(const row *w, size_t turn) {
    return w->valid == NULL || w->valid[position_at(w, turn)] != 0;
}

static void run(const row *w, double *output) {
    size_t h = w->hidden;
    for (size_t i = 0; i < w->positions * h; i++) {
        size_t turn = i / h, k = i % h;
        double state = w->states[i], cell = w->cells[i], gates[4];
        if (is_valid(w, turn)) {
            gates_of(w, turn, k, gates);
            cell = w->gru ? 0 : gates[1] * cell + gates[0] * gates[2];
            state = w->gru ? gates[2] + gates[1] * (state - gates[2]) : gates[3] * tanh(cell);
        }
        w->states[i + h] = state;
        w->cells[i + h] = cell;
        if (output != NULL) output[position_at(w, turn) * h + k] = is_valid(w, turn) ? state : 0;
    }
}

/* The gradients of a row, [hidden] or as the row's. */
typedef struct row_slopes {
    const double *output;
    double *input, *weight, *bias; /* added to */
    double *state, *cell, *next;   /* of what a position wrote; of the state that it read */
} row_slopes;

/* To the gradients by what the state's share of a gate gets. */
static void add_share(const row *w, const row_slopes *d, size_t turn, size_t gate, double slope) {
    if (d->bias != NULL) d->bias[gate] += slope;
    for (size_t k = 0; k < w->hidden; k++) {
        d->weight[gate * w->hidden + k] += slope * w->states[turn * w->hidden + k];
        d->next[k] += slope * w->weight[gate * w->hidden + k];
    }
}

static void differentiate(const row *w, const row_slopes *d, size_t turn, size_t k) {
    size_t h = w->hidden, at = position_at(w, turn);
    double g[4], inputs[4], shares[4], *input = d->input + at * w->gates;
    double state = d->state[k] + d->output[at * h + k];
    gates_of(w, turn, k, g);
    if (w->gru) {
        inputs[2] = state * (1 - g[1]) * (1 - g[2] * g[2]);
        inputs[0] = inputs[2] * g[3] * g[0] * (1 - g[0]);
        inputs[1] = state * (w->states[turn * h + k] - g[2]) * g[1] * (1 - g[1]);
        d->next[k] += state * g[1];
    } else {
        double shown = tanh(w->cells[(turn + 1) * h + k]);
        double cell = d->cell[k] + state * g[3] * (1 - shown * shown);
        inputs[0] = cell * g[2] * g[0] * (1 - g[0]);
        inputs[1] = cell * w->cells[turn * h + k] * g[1] * (1 - g[1]);
        inputs[2] = cell * g[0] * (1 - g[2] * g[2]);
        inputs[3] = state * shown * g[3] * (1 - g[3]);
        d->cell[k] = cell * g[1];
    }
    for (size_t gate = 0; gate < w->gates / h; gate++) {
        shares[gate] = inputs[gate] * (w->gru && gate == 2 ? g[0] : 1);
        input[gate * h + k] += inputs[gate];
        add_share(w, d, turn, gate * h + k, shares[gate]);
    }
}

static void run_back(const row *w, const row_slopes *d) {
    for (size_t turn = w->positions; turn-- > 0;) {
        if (!is_valid(w, turn)) continue; /* what it wrote is what it read */
        for (size_t k = 0; k < w->hidden; k++)
            d->next[k] = 0;
        for (size_t k = 0; k < w->hidden; k++)
            differentiate(w, d, turn, k);
        for (size_t k = 0; k < w->hidden; k++)
            d->state[k] = d->next[k];
    }
}

size_t yoke_float64_recurrence_scratch(const yoke_node *layer) {
    size_t positions = (size_t)layer->shape.height, hidden = (size_t)layer->shape.channels;
    bool needed = layer->operation.kind == YOKE_OP_RECURRENCE;
    return needed ? (2 * (positions + 1) + 3) * hidden : 0; /* states, cells; three gradients */
}

void yoke_float64_recurrence(yoke_float64_model *r, const yoke_node *layer, bool backward) {
    size_t h = (size_t)layer->shape.channels, positions = (size_t)layer->shape.height;
    size_t gates = (size_t)layer->operation.input.channels;
    bool bias = layer->operation.bias;
    row w = {.positions = positions,
             .hidden = h,
             .gates = gates,
             .gru = gates == 3 * h,
             .reverse = layer->operation.reverse,
             .weight = r->tensors[layer->tensors[0]],
             .bias = bias ? r->tensors[layer->tensors[1]] : NULL,
             .states = r->scratch,
             .cells = r->scratch + (positions + 1) * h};
    for (size_t i = 0; i < (size_t)r->rows; i++) {
        memset(r->scratch, 0, yoke_float64_recurrence_scratch(layer) * sizeof(double));
        w.input = r->values[layer->inputs[0]] + i * positions * gates;
        if (layer->input_count > 1) w.valid = r->values[layer->inputs[1]] + i * positions;
        run(&w, backward ? NULL : r->values[layer->output] + i * positions * h);
        if (!backward) continue;
        double *slopes = w.cells + (positions + 1) * h;
        const row_slopes d = {.output = r->gradients[layer->output] + i * positions * h,
                              .input = r->gradients[layer->inputs[0]] + i * positions * gates,
                              .weight = r->tensor_gradients[layer->tensors[0]],
                              .bias = bias ? r->tensor_gradients[layer->tensors[1]] : NULL,
                              .state = slopes,
                              .cell = slopes + h,
                              .next = slopes + 2 * h};
        run_back(&w, &d);
    }
}
