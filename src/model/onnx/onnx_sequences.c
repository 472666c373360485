/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that move elements, and those of sequences, as nodes of ONNX. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/onnx/onnx_writer.h"

typedef const char *(*write)(yoke_onnx_writer *writer, const yoke_node *layer);

static const char *input_of(yoke_onnx_writer *w, const yoke_node *layer, int k) {
    return yoke_onnx_input_of(w, layer, k);
}

static const char *with_axis(yoke_onnx_writer *w, const char *kind, const char *a, const char *b,
                             int64_t axis) {
    const char *const inputs[] = {a, b, NULL};
    const yoke_onnx_given attributes[] = {{.name = "axis", .i = axis}, {0}};
    return yoke_onnx_emit(w, kind, inputs, attributes);
}

/* Moves. */

static const char *reshape(yoke_onnx_writer *w, const yoke_node *layer) {
    int64_t sizes[4] = {0}; /* 0: as before */
    int rank = yoke_onnx_row_sizes(layer->shape, sizes + 1);
    return yoke_onnx_to_shape(w, input_of(w, layer, 0), sizes, rank + 1);
}

static const char *sequence(yoke_onnx_writer *w, const yoke_node *layer) {
    static const int64_t order[] = {0, 2, 1};
    const int64_t sizes[] = {0, layer->shape.channels, layer->shape.height};
    return yoke_onnx_turn(w, yoke_onnx_to_shape(w, input_of(w, layer, 0), sizes, 3), order, 3);
}

/* Axes of a row in another order, then a part or padding of each. All rows have three here. */
static const char *move(yoke_onnx_writer *w, const yoke_node *layer) {
    const yoke_operation *o = &layer->operation;
    size_t from[3], to[3];
    yoke_row_axes(o->input, from);
    yoke_row_axes(o->output, to);
    const int64_t all[] = {0, (int64_t)from[0], (int64_t)from[1], (int64_t)from[2]};
    const int64_t order[] = {0, o->move.order[0] + 1, o->move.order[1] + 1, o->move.order[2] + 1};
    yoke_shape shape = yoke_value_shape(w->model, layer->inputs[0]);
    const char *name = input_of(w, layer, 0);
    if (shape.flat || shape.sequence) name = yoke_onnx_to_shape(w, name, all, 4);
    if (order[1] != 1 || order[2] != 2) name = yoke_onnx_turn(w, name, order, 4);
    int64_t pads[8] = {0};
    bool padded = false;
    for (int i = 0; i < 3; i++) {
        int64_t length = (int64_t)from[o->move.order[i]], begin = o->move.begin[i];
        int64_t end = begin + (int64_t)to[i];
        pads[1 + i] = begin < 0 ? -begin : 0;
        pads[5 + i] = end > length ? end - length : 0;
        padded = padded || pads[1 + i] > 0 || pads[5 + i] > 0;
        if (begin > 0 || end < length)
            name =
                yoke_onnx_cut(w, name, i + 1, begin < 0 ? 0 : begin, end > length ? length : end);
    }
    if (padded) {
        const char *const inputs[] = {name, yoke_onnx_wholes(w, pads, 8),
                                      yoke_onnx_scalar(w, (double)o->move.fill), NULL};
        name = yoke_onnx_emit(w, "Pad", inputs, NULL);
    }
    if (!layer->shape.flat && !layer->shape.sequence) return name;
    int64_t sizes[4] = {0};
    int rank = yoke_onnx_row_sizes(layer->shape, sizes + 1);
    return yoke_onnx_to_shape(w, name, sizes, rank + 1);
}

/* The input with the batch, where the layer's output has it. */
static const char *side(yoke_onnx_writer *w, const yoke_node *layer, int k) {
    const char *name = input_of(w, layer, k);
    if (w->alone[layer->output] || !w->alone[layer->inputs[k]]) return name;
    int64_t row[3];
    int rank = yoke_onnx_row_sizes(yoke_value_shape(w->model, layer->inputs[k]), row);
    return yoke_onnx_with_batch(w, name, row, rank);
}

static const char *concat(yoke_onnx_writer *w, const yoke_node *layer) {
    const char *left = side(w, layer, 0), *right = side(w, layer, 1);
    return with_axis(w, "Concat", left, right, layer->shape.sequence ? 2 : 1);
}

static const char *class_token(yoke_onnx_writer *w, const yoke_node *layer) {
    const int64_t row[] = {1, layer->shape.channels};
    const char *token = yoke_onnx_tensor_of(w, layer->tensors[0]);
    if (!w->alone[layer->inputs[0]]) token = yoke_onnx_with_batch(w, token, row, 2);
    return with_axis(w, "Concat", token, input_of(w, layer, 0), 1);
}

static const char *chosen(yoke_onnx_writer *w, const yoke_node *layer) {
    int64_t begin = layer->operation.index;
    static const int64_t axis[] = {1};
    const char *part = yoke_onnx_cut(w, input_of(w, layer, 0), 1, begin, begin + 1);
    return yoke_onnx_one(w, "Squeeze", part, yoke_onnx_wholes(w, axis, 1));
}

/* Sources. */

static const char *parameter(yoke_onnx_writer *w, const yoke_node *layer) {
    int64_t sizes[4] = {1};
    int rank = yoke_onnx_row_sizes(layer->shape, sizes + 1);
    return yoke_onnx_to_shape(w, yoke_onnx_tensor_of(w, layer->tensors[0]), sizes, rank + 1);
}

static const char *constant(yoke_onnx_writer *w, const yoke_node *layer) {
    int64_t sizes[4] = {1};
    int rank = yoke_onnx_row_sizes(layer->shape, sizes + 1);
    return yoke_onnx_one(w, "Identity",
                         yoke_onnx_reals(w, NULL, sizes, rank + 1, layer->operation.weights), NULL);
}

static const char *embedding(yoke_onnx_writer *w, const yoke_node *layer) {
    const char *ids = input_of(w, layer, 0);
    const char *const inputs[] = {ids, NULL};
    const yoke_onnx_given whole[] = {{.name = "to", .i = 7}, {0}};
    if (!w->ids[layer->inputs[0]]) ids = yoke_onnx_emit(w, "Cast", inputs, whole);
    return with_axis(w, "Gather", yoke_onnx_tensor_of(w, layer->tensors[0]), ids, 0);
}

static const char *positions(yoke_onnx_writer *w, const yoke_node *layer) {
    const char *table = yoke_onnx_tensor_of(w, layer->tensors[0]);
    if (w->model->tensors[layer->tensors[0]].shape[0] > layer->shape.height)
        table = yoke_onnx_cut(w, table, 0, 0, layer->shape.height);
    return yoke_onnx_one(w, "Add", input_of(w, layer, 0), table);
}

/* Attention: q, k and v of each position, each the heads side by side. */

static const char *attention(yoke_onnx_writer *w, const yoke_node *layer) {
    static const int64_t apart[] = {2, 0, 3, 1, 4}, turned[] = {0, 1, 3, 2}, back[] = {0, 2, 1, 3};
    static const int64_t first[] = {0};
    int64_t length = layer->shape.height, width = layer->shape.channels;
    int64_t heads = layer->operation.heads, size = width / heads;
    const int64_t sizes[] = {0, length, 3, heads, size}, merged[] = {0, length, width};
    const char *all = yoke_onnx_to_shape(w, input_of(w, layer, 0), sizes, 5), *parts[3];
    all = yoke_onnx_turn(w, all, apart, 5);
    for (int i = 0; i < 3; i++)
        parts[i] = yoke_onnx_one(w, "Squeeze", yoke_onnx_cut(w, all, 0, i, i + 1),
                                 yoke_onnx_wholes(w, first, 1));
    const char *queries =
        yoke_onnx_one(w, "Mul", parts[0], yoke_onnx_scalar(w, 1 / sqrt((double)size)));
    const char *scores =
        yoke_onnx_one(w, "MatMul", queries, yoke_onnx_turn(w, parts[1], turned, 4));
    if (layer->operation.causal) {
        const int64_t square[] = {1, 1, length, length};
        float *mask = yoke_onnx_keep(w, (size_t)(length * length) * sizeof *mask);
        for (int64_t i = 0; mask != NULL && i < length * length; i++)
            mask[i] = i % length > i / length ? -1e30f : 0;
        if (mask != NULL)
            scores = yoke_onnx_one(w, "Add", scores, yoke_onnx_reals(w, NULL, square, 4, mask));
    }
    const char *weights = with_axis(w, "Softmax", scores, NULL, -1);
    const char *made = yoke_onnx_turn(w, yoke_onnx_one(w, "MatMul", weights, parts[2]), back, 4);
    return yoke_onnx_to_shape(w, made, merged, 3);
}

/* Recurrence. */

/* The gates of a tensor in ONNX's order: i o f c of i f g o, z r h of r z n. */
static const char *gates_of(yoke_onnx_writer *w, const char *name, int64_t hidden, bool gru) {
    static const int lstm_order[] = {0, 3, 1, 2}, gru_order[] = {1, 0, 2};
    const int *order = gru ? gru_order : lstm_order;
    int gates = gru ? 3 : 4;
    const char *parts[5] = {NULL};
    for (int i = 0; i < gates; i++)
        parts[i] = yoke_onnx_cut(w, name, 0, order[i] * hidden, (order[i] + 1) * hidden);
    const yoke_onnx_given attributes[] = {{.name = "axis", .i = 0}, {0}};
    return yoke_onnx_emit(w, "Concat", parts, attributes);
}

static const char *one_way(yoke_onnx_writer *w, const char *name) {
    static const int64_t first[] = {0};
    return yoke_onnx_one(w, "Unsqueeze", name, yoke_onnx_wholes(w, first, 1));
}

/* The linear layer that computes the inputs' share of the gates. */
static const yoke_node *share_of(const yoke_onnx_writer *w, const yoke_node *layer) {
    int value = layer->inputs[0];
    const yoke_node *before = value > 0 ? &w->model->layers[value - 1] : NULL;
    bool linear =
        before != NULL && before->operation.kind == YOKE_OP_LINEAR && !before->operation.transposed;
    return linear ? before : NULL;
}

/* The node is called as PyTorch's exporter calls it, "/lstm/LSTM", so that the names of its weights
 * can be found again. */
static void name_cell(yoke_onnx_writer *w, const yoke_node *layer, bool gru) {
    const char *tensor = yoke_onnx_tensor_of(w, layer->tensors[0]);
    const char *end = strstr(tensor, ".weight_hh_l");
    if (w->status != YOKE_OK || end == NULL) return;
    w->graph->node[w->graph->n_node - 1]->name =
        (char *)yoke_onnx_name_of(w, "/%.*s/%s", (int)(end - tensor), tensor, gru ? "GRU" : "LSTM");
}

static const char *recurrence(yoke_onnx_writer *w, const yoke_node *layer) {
    static const int64_t turned[] = {1, 0, 2}, way[] = {1};
    const yoke_node *share = share_of(w, layer);
    int64_t hidden = layer->shape.channels;
    bool gru = layer->operation.input.channels == 3 * layer->shape.channels;
    if (share == NULL || layer->input_count > 1 || share->operation.bias != layer->operation.bias) {
        w->status = FAIL(YOKE_ERROR_ARGUMENT,
                         "%s: rows of different length have no form in ONNX that Yoke writes",
                         layer->operation.name);
        return "";
    }
    const char *inputs[5] = {yoke_onnx_turn(w, w->values[share->inputs[0]], turned, 3)};
    inputs[1] = one_way(w, gates_of(w, yoke_onnx_tensor_of(w, share->tensors[0]), hidden, gru));
    inputs[2] = one_way(w, gates_of(w, yoke_onnx_tensor_of(w, layer->tensors[0]), hidden, gru));
    if (layer->operation.bias) {
        const char *own = gates_of(w, yoke_onnx_tensor_of(w, layer->tensors[1]), hidden, gru);
        const char *of = gates_of(w, yoke_onnx_tensor_of(w, share->tensors[1]), hidden, gru);
        inputs[3] = one_way(w, with_axis(w, "Concat", of, own, 0));
    }
    const yoke_onnx_given attributes[] = {
        {.name = "hidden_size", .i = hidden},
        {.name = "direction", .text = layer->operation.reverse ? "reverse" : "forward"},
        {.name = gru ? "linear_before_reset" : NULL, .i = 1},
        {0}};
    const char *states = yoke_onnx_emit(w, gru ? "GRU" : "LSTM", inputs, attributes);
    name_cell(w, layer, gru);
    states = yoke_onnx_one(w, "Squeeze", states, yoke_onnx_wholes(w, way, 1));
    return yoke_onnx_turn(w, states, turned, 3);
}

static const write rows[] = {
    [YOKE_OP_CONCAT] = concat,       [YOKE_OP_FLATTEN] = reshape,
    [YOKE_OP_SEQUENCE] = sequence,   [YOKE_OP_EMBEDDING] = embedding,
    [YOKE_OP_POSITIONS] = positions, [YOKE_OP_CLASS_TOKEN] = class_token,
    [YOKE_OP_SELECT] = chosen,       [YOKE_OP_RECURRENCE] = recurrence,
    [YOKE_OP_ATTENTION] = attention, [YOKE_OP_RESHAPE] = reshape,
    [YOKE_OP_MOVE] = move,           [YOKE_OP_PARAMETER] = parameter,
    [YOKE_OP_CONSTANT] = constant,
};

const char *yoke_onnx_write_sequence(yoke_onnx_writer *writer, const yoke_node *layer) {
    size_t kind = (size_t)layer->operation.kind;
    if (kind >= sizeof rows / sizeof *rows || rows[kind] == NULL) return NULL;
    return rows[kind](writer, layer);
}
