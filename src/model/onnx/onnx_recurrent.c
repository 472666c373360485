/* SPDX-License-Identifier: Apache-2.0 */
/* LSTM and GRU. ONNX orders gates i o f c and z r h; the model, as PyTorch, i f g o and r z n. Each
 * node is one layer in one or both directions. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/onnx/onnx_reader.h"
#include "yoke/recurrent.h"

typedef struct cell {
    int gates, ways;
    size_t hidden, features;
    const int *order; /* [gates] gate g of the model is gate order[g] of ONNX */
    char name[YOKE_ONNX_NAME_BYTES];
    int layer; /* K of weight_ih_lK */
} cell;

/* One tensor of the model out of `columns` numbers for each gate and unit; from: where it begins.
 */
static yoke_status give_gates(yoke_onnx_call *call, const cell *c, int tensor, const float *from,
                              size_t columns) {
    size_t block = c->hidden * columns;
    float *values = yoke_malloc((size_t)c->gates * block * sizeof *values);
    if (values == NULL) return FAIL_MEMORY((size_t)c->gates * block * sizeof *values, "weights");
    for (int gate = 0; gate < c->gates; gate++)
        memcpy(values + (size_t)gate * block, from + (size_t)c->order[gate] * block,
               block * sizeof *values);
    yoke_onnx_give(call->model, tensor, values);
    return YOKE_OK;
}

/* PyTorch's name, with the number of the layer. */
static yoke_status rename_tensor(yoke_onnx_call *call, const cell *c, int tensor, const char *word,
                                 int way) {
    char name[YOKE_ONNX_NAME_BYTES + 32];
    snprintf(name, sizeof name, "%s.%s_l%d%s", c->name, word, c->layer, way ? "_reverse" : "");
    if (yoke_model_find_tensor(call->model, name, NULL) < 0)
        yoke_tensor_rename(call->model, &call->model->tensors[tensor], name);
    return yoke_onnx_check(call);
}

/* Tensors `first` on of the model, in the order in which the call has added them. */
static yoke_status give_tensors(yoke_onnx_call *call, const cell *c, int first) {
    float *all[3] = {NULL};
    yoke_status status = YOKE_OK;
    size_t rows = (size_t)c->gates * c->hidden;
    bool bias = yoke_onnx_has(call, 3);
    for (int i = 0; i < 2 + bias && status == YOKE_OK; i++)
        status = yoke_onnx_floats(call, call->in[1 + i], &all[i]);
    int next = first;
    for (int way = 0; way < c->ways && status == YOKE_OK; way++) {
        const size_t steps[] = {rows * c->features, rows * c->hidden};
        const size_t columns[] = {c->features, c->hidden};
        static const char *const words[] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh"};
        for (int side = 0; side < 2 && status == YOKE_OK; side++) {
            status =
                give_gates(call, c, next, all[side] + (size_t)way * steps[side], columns[side]);
            if (status == YOKE_OK) status = rename_tensor(call, c, next++, words[side], way);
            if (!bias || status != YOKE_OK) continue;
            status = give_gates(call, c, next, all[2] + ((size_t)way * 2 + (size_t)side) * rows, 1);
            if (status == YOKE_OK) status = rename_tensor(call, c, next++, words[2 + side], way);
        }
    }
    for (int i = 0; i < 3; i++)
        yoke_free(all[i]);
    return status;
}

/* Nodes of one module are its layers. */
static void name_cell(yoke_onnx_call *call, cell *c) {
    char tensor[YOKE_ONNX_NAME_BYTES + 32];
    if (!yoke_onnx_module_name(call, c->name) || strlen(c->name) > 90)
        snprintf(c->name, sizeof c->name, "%s.%d", c->gates == 3 ? "gru" : "lstm", call->index);
    for (c->layer = 0;; c->layer++) {
        snprintf(tensor, sizeof tensor, "%s.weight_ih_l%d", c->name, c->layer);
        if (yoke_model_find_tensor(call->model, tensor, NULL) < 0) return;
    }
}

static yoke_status has_sizes(const yoke_onnx_call *call, int index, int64_t a, int64_t b,
                             int64_t c) {
    const yoke_onnx_sizes *sizes = &call->in[index]->sizes;
    int rank = c > 0 ? 3 : 2;
    if (sizes->rank == rank && sizes->at[0] == a && sizes->at[1] == b &&
        (rank == 2 || sizes->at[2] == c))
        return YOKE_OK;
    return FAIL(YOKE_ERROR_DATA, "input %d has other sizes than the operator needs", index);
}

static yoke_status is_zero(yoke_onnx_call *call, int index) {
    const double *elements;
    if (!yoke_onnx_has(call, index)) return YOKE_OK;
    yoke_onnx_value *value = call->in[index];
    bool zero = yoke_onnx_known(call, value);
    if (zero) TRY(yoke_onnx_elements_of(call, value, &elements));
    for (size_t i = 0; zero && i < yoke_onnx_whole(&value->sizes); i++)
        zero = elements[i] == 0;
    return zero ? YOKE_OK
                : FAIL(YOKE_ERROR_ARGUMENT, "input %d: its first state is other than zeros", index);
}

static yoke_status check_cell(yoke_onnx_call *call, bool gru) {
    static const char *const functions[] = {"Sigmoid", "Tanh", "Tanh"}; /* of a GRU, two */
    char text[32];
    yoke_onnx_value *input = call->in[0];
    if (strcmp(yoke_onnx_text(call, "direction", "forward", text), "reverse") == 0)
        return FAIL(YOKE_ERROR_ARGUMENT, "it reads its input from the end only");
    if (yoke_onnx_int(call, "layout", 0) != 0 || input->sizes.rank != 3 || input->batch.at != 1 ||
        input->batch.before * input->batch.after != 1)
        return FAIL(YOKE_ERROR_ARGUMENT, "its input is not [positions, batch, features]");
    if (gru && yoke_onnx_int(call, "linear_before_reset", 0) == 0)
        return FAIL(YOKE_ERROR_ARGUMENT, "linear_before_reset is 0, PyTorch's GRU has 1");
    if (yoke_onnx_real(call, "clip", 0) > 0 || yoke_onnx_int(call, "input_forget", 0) != 0)
        return FAIL(YOKE_ERROR_ARGUMENT, "it clips, or couples gates");
    if (yoke_onnx_has(call, 4)) { /* all rows are whole */
        const double *lengths;
        bool whole = yoke_onnx_known(call, call->in[4]);
        if (whole) TRY(yoke_onnx_elements_of(call, call->in[4], &lengths));
        for (size_t i = 0; whole && i < yoke_onnx_whole(&call->in[4]->sizes); i++)
            whole = lengths[i] == (double)input->sizes.at[0];
        if (!whole) return FAIL(YOKE_ERROR_ARGUMENT, "its rows have different lengths");
    }
    if (!yoke_onnx_texts_are(call, "activations", functions, gru ? 2 : 3))
        return FAIL(YOKE_ERROR_ARGUMENT, "its activations are not those of PyTorch");
    if (yoke_onnx_has(call, 7)) return FAIL(YOKE_ERROR_ARGUMENT, "it has peepholes");
    TRY(is_zero(call, 5));
    return gru ? YOKE_OK : is_zero(call, 6);
}

/* The states behind the last position that each direction reads: [directions, batch, hidden]. */
static yoke_status last_states(yoke_onnx_call *call, const cell *c, yoke_value states) {
    yoke_model *model = call->model;
    int positions = (int)call->in[0]->sizes.at[0], hidden = (int)c->hidden;
    yoke_value made = {YOKE_NONE};
    for (int way = 0; way < c->ways; way++) {
        int place = way == 0 ? positions - 1 : 0;
        yoke_value state = yoke_slice(model, states, YOKE_AXIS_HEIGHT, place, place + 1, 0);
        if (c->ways == 2)
            state =
                yoke_slice(model, state, YOKE_AXIS_CHANNELS, way * hidden, (way + 1) * hidden, 0);
        made = way == 0 ? state : yoke_concat_along(model, made, state, YOKE_AXIS_HEIGHT);
    }
    const yoke_onnx_sizes sizes = {3, {c->ways, call->in[0]->sizes.at[1], (int64_t)c->hidden}};
    return yoke_onnx_result(call, 1, &sizes, (yoke_onnx_batch){1, 1, 1}, made);
}

static yoke_status recurrent(yoke_onnx_call *call) {
    static const int lstm[] = {0, 2, 3, 1}, gru[] = {1, 0, 2};
    bool is_gru = call->word != 0;
    char text[32];
    TRY(yoke_onnx_need(call, 3));
    TRY(check_cell(call, is_gru));
    yoke_onnx_value *input = call->in[0];
    cell c = {.gates = is_gru ? 3 : 4, .order = is_gru ? gru : lstm};
    int64_t hidden = yoke_onnx_int(call, "hidden_size", 0);
    if (hidden < 1 || hidden > 1 << 20)
        return FAIL(YOKE_ERROR_DATA, "%lld hidden features", (long long)hidden);
    c.hidden = (size_t)hidden;
    c.features = (size_t)input->sizes.at[2];
    c.ways = 1 + (strcmp(yoke_onnx_text(call, "direction", "forward", text), "bidirectional") == 0);
    int64_t rows = c.gates * hidden;
    for (int i = 1; i < 3 + yoke_onnx_has(call, 3); i++)
        if (call->in[i]->kind == YOKE_ONNX_COMPUTED)
            return FAIL(YOKE_ERROR_ARGUMENT, "its weights are computed of inputs");
    TRY(has_sizes(call, 1, c.ways, rows, input->sizes.at[2]));
    TRY(has_sizes(call, 2, c.ways, rows, hidden));
    if (yoke_onnx_has(call, 3)) TRY(has_sizes(call, 3, c.ways, 2 * rows, 0));
    if (call->out_count > 2 && call->out[2] != NULL)
        return FAIL(YOKE_ERROR_ARGUMENT, "its last cell is read");
    char name[YOKE_ONNX_NAME_BYTES + 16];
    name_cell(call, &c);
    snprintf(name, sizeof name, "%s%s%.0d", c.name, c.layer > 0 ? "#" : "", c.layer);
    yoke_recurrent_options options = YOKE_RECURRENT_OPTIONS_INIT;
    options.name = name;
    options.hidden = (int)hidden;
    options.bidirectional = c.ways == 2;
    options.no_bias = !yoke_onnx_has(call, 3);
    yoke_value node;
    yoke_onnx_sizes row = yoke_onnx_row(&input->sizes, input->batch);
    TRY(yoke_onnx_as(call, input, yoke_onnx_natural(&row), &node));
    int first = call->model->tensor_count;
    node = is_gru ? yoke_gru(call->model, node, &options) : yoke_lstm(call->model, node, &options);
    TRY(yoke_onnx_check(call));
    TRY(give_tensors(call, &c, first));
    if (call->out_count > 1 && call->out[1] != NULL) TRY(last_states(call, &c, node));
    if (call->out_count == 0 || call->out[0] == NULL) return YOKE_OK;
    if (c.ways == 2) node = yoke_onnx_image(call, node, (size_t)input->sizes.at[0], 2, c.hidden);
    const yoke_onnx_sizes sizes = {4, {input->sizes.at[0], c.ways, input->sizes.at[1], hidden}};
    return yoke_onnx_result(call, 0, &sizes, (yoke_onnx_batch){2, 1, 1}, node);
}

const yoke_onnx_operator yoke_onnx_recurrent[] = {
    {"GRU", recurrent, 1},
    {"LSTM", recurrent, 0},
    {NULL, NULL, 0},
};
