/* SPDX-License-Identifier: Apache-2.0 */
/* Products of matrices, linear layers, embeddings, reductions and softmax. */
#include <math.h>
#include <string.h>

#include "model/onnx/onnx_reader.h"
#include "yoke/composed.h"
#include "yoke/transformer.h"

/* Linear layers. */

/* Whether this is a parameter that a linear layer can have. */
static bool can_be_layers(const yoke_onnx_call *call, const yoke_onnx_value *value) {
    return value->kind == YOKE_ONNX_PARAMETER &&
           call->reader->parameters[value->parameter].node.index < 0;
}

/* A parameter [features] that no layer has yet. */
static bool is_bias(const yoke_onnx_call *call, const yoke_onnx_value *value, int64_t features) {
    return can_be_layers(call, value) && value->sizes.rank == 1 && value->sizes.at[0] == features &&
           call->reader->parameters[value->parameter].layer == NULL;
}

/* x times the matrix, a parameter [in, out], which may be the transpose of one; bias: of the layer,
 * or NULL. A matrix whose name an exporter made up is the transpose of PyTorch's weight. */
static yoke_status linear(yoke_onnx_call *call, yoke_onnx_value *input, yoke_onnx_value matrix,
                          const yoke_onnx_value *bias, yoke_onnx_value *made) {
    yoke_onnx_reader *reader = call->reader;
    yoke_onnx_sizes row = yoke_onnx_row(&input->sizes, input->batch);
    char name[YOKE_ONNX_NAME_BYTES];
    yoke_linear_options options = YOKE_LINEAR_OPTIONS_INIT;
    yoke_value node;
    int axis;
    TRY(yoke_onnx_row_axis(input, input->sizes.rank - 1, &axis));
    const yoke_onnx_parameter *parameter = &reader->parameters[matrix.parameter];
    bool turns = parameter->generated && !matrix.transposed && parameter->layer == NULL;
    if (parameter->generated) TRY(yoke_onnx_apart(call, &matrix, "weight"));
    parameter = &reader->parameters[matrix.parameter];
    turns = turns && strchr(parameter->name, ':') == NULL; /* it has a module's name now */
    yoke_onnx_value weight = matrix;
    if (matrix.transposed || turns) {
        weight.sizes.at[0] = matrix.sizes.at[1];
        weight.sizes.at[1] = matrix.sizes.at[0];
        weight.transposed = false;
    }
    TRY(yoke_onnx_layer_name(call, &matrix, ".weight", name));
    options.name = name;
    options.shared_with = parameter->layer;
    options.transposed = !matrix.transposed && !turns && !parameter->turned;
    options.out_features = (int)matrix.sizes.at[1];
    options.no_bias = bias == NULL;
    if (row.rank > 1)
        row = (yoke_onnx_sizes){
            2, {(int64_t)yoke_onnx_count(&row, 0, row.rank - 1), row.at[row.rank - 1]}};
    TRY(yoke_onnx_as(call, input, yoke_onnx_natural(&row), &node));
    node = yoke_linear(call->model, node, &options);
    TRY(yoke_onnx_check(call));
    const yoke_node *layer = &call->model->layers[call->model->layer_count - 1];
    int tensors[2] = {layer->tensors[0], layer->tensors[1]};
    if (options.shared_with == NULL) {
        if (turns) reader->parameters[matrix.parameter].turned = true;
        TRY(yoke_onnx_own(call, tensors[0], &weight, name));
        if (bias != NULL) TRY(yoke_onnx_own(call, tensors[1], bias, name));
    }
    *made = (yoke_onnx_value){
        .kind = YOKE_ONNX_COMPUTED, .sizes = input->sizes, .batch = input->batch, .node = node};
    made->sizes.at[made->sizes.rank - 1] = matrix.sizes.at[1];
    return YOKE_OK;
}

/* The Add of a bias that alone reads this product; NULL: there is none. *bias gets that value. */
static yoke_onnx_name *bias_behind(yoke_onnx_call *call, int64_t features, yoke_onnx_value *bias) {
    yoke_onnx_reader *reader = call->reader;
    yoke_onnx_name *own = yoke_onnx_find(reader, call->node->output[0]);
    if (own == NULL || own->uses != 1 || own->reader < 0) return NULL;
    const Yoke__Onnx__Node *add = reader->graph->node[own->reader];
    if (strcmp(add->op_type, "Add") != 0 || add->n_input != 2 || add->n_output != 1) return NULL;
    int side = strcmp(add->input[0], own->text) == 0;
    yoke_onnx_name *other = yoke_onnx_find(reader, add->input[side]);
    if (other == NULL) return NULL;
    *bias = other->value;
    if (yoke_onnx_apart(call, bias, "bias") != YOKE_OK || !is_bias(call, bias, features))
        return NULL;
    reader->done[own->reader] = true;
    return yoke_onnx_find(reader, add->output[0]);
}

static yoke_status times_parameter(yoke_onnx_call *call, yoke_onnx_value *input,
                                   yoke_onnx_value *matrix) {
    yoke_onnx_value bias, made;
    TRY(yoke_onnx_original(call, matrix));
    bool shared = call->reader->parameters[matrix->parameter].layer != NULL;
    if (input->sizes.at[input->sizes.rank - 1] != matrix->sizes.at[0])
        return FAIL(YOKE_ERROR_DATA, "%lld columns and %lld rows",
                    (long long)input->sizes.at[input->sizes.rank - 1],
                    (long long)matrix->sizes.at[0]);
    yoke_onnx_name *sum = shared ? NULL : bias_behind(call, matrix->sizes.at[1], &bias);
    TRY(linear(call, input, *matrix, sum != NULL ? &bias : NULL, &made));
    if (sum != NULL) sum->value = made;
    if (call->out[0] != NULL) *call->out[0] = made;
    return YOKE_OK;
}

/* Products of matrices of each row. */

static yoke_status stack(yoke_onnx_call *call, yoke_onnx_value *value, const yoke_onnx_sizes *sizes,
                         yoke_onnx_batch batch, yoke_value *node) {
    yoke_onnx_sizes full = *sizes;
    int rank = value->sizes.rank;
    for (int i = 0; i < 2; i++)
        full.at[full.rank - 2 + i] = value->sizes.at[rank - 2 + i];
    TRY(yoke_onnx_expanded(call, value, &full, batch, node));
    yoke_onnx_sizes row = yoke_onnx_row(&full, batch);
    *node = yoke_onnx_image(call, *node, yoke_onnx_count(&row, 0, row.rank - 2),
                            (size_t)row.at[row.rank - 2], (size_t)row.at[row.rank - 1]);
    return yoke_onnx_check(call);
}

static yoke_status product(yoke_onnx_call *call, yoke_onnx_value *left, yoke_onnx_value *right,
                           yoke_onnx_value *made) {
    yoke_onnx_sizes ahead[2] = {left->sizes, right->sizes}, sizes;
    yoke_onnx_value *sides[] = {left, right};
    yoke_onnx_batch batch = yoke_onnx_no_batch();
    yoke_value nodes[2];
    if (left->sizes.rank < 2 || right->sizes.rank < 2)
        return FAIL(YOKE_ERROR_ARGUMENT, "a product with a vector");
    for (int k = 0; k < 2; k++)
        ahead[k].rank -= 2;
    if (left->sizes.at[ahead[0].rank + 1] != right->sizes.at[ahead[1].rank])
        return FAIL(YOKE_ERROR_DATA, "%lld columns and %lld rows",
                    (long long)left->sizes.at[ahead[0].rank + 1],
                    (long long)right->sizes.at[ahead[1].rank]);
    TRY(yoke_onnx_broadcast_sizes(&ahead[0], &ahead[1], &sizes));
    sizes.at[sizes.rank++] = left->sizes.at[left->sizes.rank - 2];
    sizes.at[sizes.rank++] = right->sizes.at[right->sizes.rank - 1];
    TRY(yoke_onnx_sizes_check(&sizes));
    for (int k = 0; k < 2; k++) {
        if (sides[k]->batch.at < 0) continue;
        batch = sides[k]->batch;
        batch.at += sizes.rank - sides[k]->sizes.rank;
        if (batch.at >= sizes.rank - 2)
            return FAIL(YOKE_ERROR_ARGUMENT, "a product of matrices along the batch");
    }
    for (int k = 0; k < 2; k++)
        TRY(stack(call, sides[k], &sizes, batch, &nodes[k]));
    *made = (yoke_onnx_value){.kind = YOKE_ONNX_COMPUTED,
                              .sizes = sizes,
                              .batch = batch,
                              .node = yoke_matmul(call->model, nodes[0], nodes[1], false, false)};
    return yoke_onnx_check(call);
}

static yoke_status matmul(yoke_onnx_call *call) {
    TRY(yoke_onnx_need(call, 2));
    yoke_onnx_value *left = call->in[0], *right = call->in[1], made;
    bool matrix = left->batch.at >= 0 && right->sizes.rank == 2 && left->sizes.rank >= 2;
    if (matrix && can_be_layers(call, right)) return times_parameter(call, left, right);
    if (matrix && right->batch.at < 0) {
        /* A matrix that all rows share: one product of all positions. */
        int axis;
        yoke_value node, other;
        yoke_onnx_sizes row = yoke_onnx_row(&left->sizes, left->batch);
        TRY(yoke_onnx_row_axis(left, left->sizes.rank - 1, &axis));
        if (row.at[row.rank - 1] != right->sizes.at[0])
            return FAIL(YOKE_ERROR_DATA, "its matrices do not fit");
        TRY(yoke_onnx_node(call, left, &node));
        TRY(yoke_onnx_node(call, right, &other));
        node = yoke_onnx_image(call, node, 1, yoke_onnx_count(&row, 0, row.rank - 1),
                               (size_t)row.at[row.rank - 1]);
        other =
            yoke_onnx_image(call, other, 1, (size_t)right->sizes.at[0], (size_t)right->sizes.at[1]);
        yoke_onnx_sizes sizes = left->sizes;
        sizes.at[sizes.rank - 1] = right->sizes.at[1];
        return yoke_onnx_result(call, 0, &sizes, left->batch,
                                yoke_matmul(call->model, node, other, false, false));
    }
    TRY(product(call, left, right, &made));
    if (call->out[0] != NULL) *call->out[0] = made;
    return YOKE_OK;
}

static yoke_status gemm(yoke_onnx_call *call) {
    static const int turned[] = {1, 0};
    TRY(yoke_onnx_need(call, 2));
    yoke_onnx_value right = *call->in[1], made;
    yoke_onnx_value *bias = yoke_onnx_has(call, 2) ? call->in[2] : NULL;
    if (yoke_onnx_int(call, "transA", 0) != 0)
        return FAIL(YOKE_ERROR_ARGUMENT, "it transposes its first matrix, and so the batch");
    if (yoke_onnx_real(call, "alpha", 1) != 1 || yoke_onnx_real(call, "beta", 1) != 1)
        return FAIL(YOKE_ERROR_ARGUMENT, "it scales its product");
    if (right.sizes.rank != 2 || call->in[0]->sizes.rank != 2)
        return FAIL(YOKE_ERROR_DATA, "it multiplies no matrices");
    if (yoke_onnx_int(call, "transB", 0) != 0)
        TRY(yoke_onnx_permute_value(call, &right, turned, &right));
    yoke_onnx_value *given[3] = {call->in[0], &right, NULL}, **before = call->in;
    int count = call->in_count;
    bool plain = can_be_layers(call, &right) && call->in[0]->batch.at >= 0;
    if (plain && call->in[0]->sizes.at[1] != right.sizes.at[0])
        return FAIL(YOKE_ERROR_DATA, "its matrices do not fit");
    if (bias != NULL) TRY(yoke_onnx_apart(call, bias, "bias"));
    bool joined = bias != NULL && plain && is_bias(call, bias, right.sizes.at[1]) &&
                  call->reader->parameters[right.parameter].layer == NULL;
    if (plain) {
        TRY(linear(call, call->in[0], right, joined ? bias : NULL, &made));
    } else {
        call->in = given;
        call->in_count = 2;
        yoke_onnx_value *out = call->out[0];
        call->out[0] = &made;
        yoke_status status = matmul(call);
        call->in = before;
        call->in_count = count;
        call->out[0] = out;
        TRY(status);
    }
    yoke_onnx_value *const sides[] = {&made, bias};
    if (bias != NULL && !joined) {
        yoke_onnx_value sum;
        TRY(yoke_onnx_combine(call, YOKE_FN_ADD, sides, 2, &sum));
        made = sum;
    }
    if (call->out[0] != NULL) *call->out[0] = made;
    return YOKE_OK;
}

/* Tables. */

static yoke_status embedding(yoke_onnx_call *call, yoke_onnx_value *table, yoke_onnx_value *ids) {
    yoke_onnx_parameter *parameter = &call->reader->parameters[table->parameter];
    yoke_onnx_sizes row = yoke_onnx_row(&ids->sizes, ids->batch), sizes = ids->sizes;
    char name[YOKE_ONNX_NAME_BYTES];
    yoke_value node, made;
    const yoke_onnx_sizes line = {1, {(int64_t)yoke_onnx_whole(&row)}};
    if (sizes.rank >= YOKE_ONNX_RANK) return FAIL(YOKE_ERROR_ARGUMENT, "too many dimensions");
    sizes.at[sizes.rank++] = table->sizes.at[1];
    yoke_shape shape = yoke_model_value_shape(call->model, ids->node);
    bool plain =
        ids->raw_input && shape.flat && parameter->layer == NULL && parameter->node.index < 0;
    if (plain) {
        yoke_embedding_options options = YOKE_EMBEDDING_OPTIONS_INIT;
        TRY(yoke_onnx_layer_name(call, table, ".weight", name));
        options.name = name;
        options.count = (int)table->sizes.at[0];
        options.features = (int)table->sizes.at[1];
        made = yoke_embedding(call->model, ids->node, &options);
        TRY(yoke_onnx_check(call));
        TRY(yoke_onnx_own(call, call->model->layers[call->model->layer_count - 1].tensors[0], table,
                          name));
    } else { /* a second look-up, or computed ids: a product with ones at the ids */
        yoke_value rows;
        TRY(yoke_onnx_as(call, table, yoke_onnx_natural(&table->sizes), &rows));
        TRY(yoke_onnx_as(call, ids, yoke_onnx_natural(&line), &node));
        made = yoke_index_select(call->model, rows, node);
    }
    return yoke_onnx_result(call, 0, &sizes, ids->batch, made);
}

static yoke_status gather(yoke_onnx_call *call) {
    TRY(yoke_onnx_need(call, 2));
    yoke_onnx_value *data = call->in[0], *ids = call->in[1];
    int dim;
    TRY(yoke_onnx_axis(yoke_onnx_int(call, "axis", 0), data->sizes.rank, &dim));
    bool table = data->batch.at < 0 && data->sizes.rank == 2 && dim == 0 && !data->transposed;
    if (table && ids->kind == YOKE_ONNX_COMPUTED) {
        if (data->kind == YOKE_ONNX_PARAMETER) return embedding(call, data, ids);
        yoke_value rows, node;
        yoke_onnx_sizes row = yoke_onnx_row(&ids->sizes, ids->batch), sizes = ids->sizes;
        const yoke_onnx_sizes line = {1, {(int64_t)yoke_onnx_whole(&row)}};
        if (sizes.rank >= YOKE_ONNX_RANK) return FAIL(YOKE_ERROR_ARGUMENT, "too many dimensions");
        sizes.at[sizes.rank++] = data->sizes.at[1];
        TRY(yoke_onnx_as(call, data, yoke_onnx_natural(&data->sizes), &rows));
        TRY(yoke_onnx_as(call, ids, yoke_onnx_natural(&line), &node));
        return yoke_onnx_result(call, 0, &sizes, ids->batch,
                                yoke_index_select(call->model, rows, node));
    }
    return yoke_onnx_gather_part(call);
}

/* Reductions. */

enum { SUM, MEAN, MAX, L2, SUM_SQUARE };

static yoke_status reduce(yoke_onnx_call *call) {
    yoke_onnx_sizes axes;
    TRY(yoke_onnx_need(call, 1));
    yoke_onnx_value *input = call->in[0];
    TRY(yoke_onnx_numbers(call, 1, "axes", &axes));
    yoke_onnx_sizes row = yoke_onnx_row(&input->sizes, input->batch), kept = input->sizes,
                    left = {0};
    if (axes.rank <= 0 && yoke_onnx_int(call, "noop_with_empty_axes", 0) != 0)
        return FAIL(YOKE_ERROR_ARGUMENT, "it reduces nothing");
    if (axes.rank <= 0)
        for (axes.rank = 0; axes.rank < input->sizes.rank; axes.rank++)
            axes.at[axes.rank] = axes.rank;
    unsigned dims = 0, places = 0;
    for (int i = 0; i < axes.rank; i++) {
        int dim, axis;
        TRY(yoke_onnx_axis(axes.at[i], input->sizes.rank, &dim));
        TRY(yoke_onnx_row_axis(input, dim, &axis));
        dims |= 1u << dim;
        places |= 1u << axis;
        kept.at[dim] = 1;
    }
    yoke_value node;
    TRY(yoke_onnx_node(call, input, &node));
    if (call->word >= L2) node = yoke_map(call->model, YOKE_FN_SQUARE, node);
    yoke_reduce_kind kind = call->word == MEAN  ? YOKE_REDUCE_MEAN
                            : call->word == MAX ? YOKE_REDUCE_MAX
                                                : YOKE_REDUCE_SUM;
    yoke_shape shape = yoke_model_value_shape(call->model, node);
    bool image = row.rank == 3 && !shape.flat && !shape.sequence && shape.channels == row.at[0] &&
                 shape.height == row.at[1];
    if (kind == YOKE_REDUCE_MEAN && image && places == 6) {
        node = yoke_global_average_pool(call->model, node);
        places = 0;
    }
    for (int axis = 0; axis < row.rank; axis++) { /* neighbours as one */
        if (!(places >> axis & 1)) continue;
        int last = axis;
        while (last + 1 < row.rank && places >> (last + 1) & 1)
            last++;
        node = yoke_onnx_image(call, node, yoke_onnx_count(&row, 0, axis),
                               yoke_onnx_count(&row, axis, last + 1),
                               yoke_onnx_count(&row, last + 1, row.rank));
        node = yoke_reduce_axes(call->model, node, kind, YOKE_AXIS_HEIGHT);
        for (; axis <= last; axis++)
            row.at[axis] = 1;
    }
    if (call->word == L2) node = yoke_map(call->model, YOKE_FN_SQRT, node);
    yoke_onnx_value made = {
        .kind = YOKE_ONNX_COMPUTED, .sizes = kept, .batch = input->batch, .node = node};
    TRY(yoke_onnx_check(call));
    for (int i = 0; i < kept.rank; i++)
        if (!(dims >> i & 1)) left.at[left.rank++] = kept.at[i];
    if (yoke_onnx_int(call, "keepdims", 1) == 0) {
        made.batch.at = 0;
        for (int i = 0; i < input->batch.at; i++)
            made.batch.at += !(dims >> i & 1);
        if (input->batch.at < 0) made.batch.at = -1;
        made.sizes = left;
    }
    if (call->out[0] != NULL) *call->out[0] = made;
    return YOKE_OK;
}

/* Softmax; word: its logarithm. */
static yoke_status softmax(yoke_onnx_call *call) {
    int dim, axis;
    yoke_value node;
    TRY(yoke_onnx_need(call, 1));
    yoke_onnx_value *input = call->in[0];
    TRY(yoke_onnx_axis(yoke_onnx_int(call, "axis", -1), input->sizes.rank, &dim));
    TRY(yoke_onnx_row_axis(input, dim, &axis));
    yoke_onnx_sizes row = yoke_onnx_row(&input->sizes, input->batch);
    if (axis == row.rank - 1 && call->word == 0) {
        if (row.rank > 1)
            row = (yoke_onnx_sizes){
                2, {(int64_t)yoke_onnx_count(&row, 0, row.rank - 1), row.at[row.rank - 1]}};
        TRY(yoke_onnx_as(call, input, yoke_onnx_natural(&row), &node));
        node = yoke_softmax(call->model, node);
    } else {
        TRY(yoke_onnx_around(call, input, axis, &node));
        node = call->word ? yoke_log_softmax_along(call->model, node, YOKE_AXIS_HEIGHT)
                          : yoke_softmax_along(call->model, node, YOKE_AXIS_HEIGHT);
    }
    return yoke_onnx_result(call, 0, &input->sizes, input->batch, node);
}

const yoke_onnx_operator yoke_onnx_products[] = {
    {"Gather", gather, 0},
    {"Gemm", gemm, 0},
    {"LogSoftmax", softmax, 1},
    {"MatMul", matmul, 0},
    {"ReduceL2", reduce, L2},
    {"ReduceMax", reduce, MAX},
    {"ReduceMean", reduce, MEAN},
    {"ReduceSum", reduce, SUM},
    {"ReduceSumSquare", reduce, SUM_SQUARE},
    {"Softmax", softmax, 0},
    {NULL, NULL, 0},
};
