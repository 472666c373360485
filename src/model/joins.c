/* SPDX-License-Identifier: Apache-2.0 */
/* A linear layer that computes the ReLU behind it, and one that computes backward of the ReLU
 * before it and the bias's gradient of the layer before that; without training a convolution that
 * computes the batch norm and the activation behind it: where nobody else reads the values between
 * them, and the plans can. */
#include "model/program.h"

/* The only node that reads `value`; NONE when several do. */
static int only_reader(const yoke_model *model, int value) {
    int reader = YOKE_NONE;
    for (int i = 0; i < model->node_count; i++)
        for (int k = 0; k < model->nodes[i].input_count; k++) {
            if (model->nodes[i].inputs[k] != value) continue;
            if (reader != YOKE_NONE) return YOKE_NONE;
            reader = i;
        }
    return reader;
}

/* The node that writes `value`; NONE: an input of the model. */
static int writer_of(const yoke_model *model, int value) {
    for (int i = 0; i < model->node_count; i++)
        if (model->nodes[i].output == value) return i;
    return YOKE_NONE;
}

static bool is_linear(const yoke_model *model, int node) {
    return node != YOKE_NONE && model->nodes[node].operation.kind == YOKE_OP_LINEAR;
}

static bool is_relu(const yoke_model *model, int node) {
    if (node == YOKE_NONE) return false;
    const yoke_operation *operation = &model->nodes[node].operation;
    return operation->kind == YOKE_OP_ACTIVATION && operation->activation == YOKE_RELU;
}

/* The linear layer whose ReLU this node reads, each the only reader of the other; or NONE. */
static int linear_before(const yoke_model *model, int node) {
    int relu = writer_of(model, model->nodes[node].inputs[0]);
    if (!is_relu(model, relu) || only_reader(model, model->nodes[relu].output) != node)
        return YOKE_NONE;
    int before = writer_of(model, model->nodes[relu].inputs[0]);
    bool joined =
        is_linear(model, before) && only_reader(model, model->nodes[before].output) == relu;
    return joined ? before : YOKE_NONE;
}

/* Whether the node alone writes a gradient of its bias. */
static bool has_own_bias(const yoke_program *program, int node) {
    const yoke_model *model = program->model;
    if (model->nodes[node].tensor_count < 2) return false;
    int bias = model->nodes[node].tensors[1], users = 0;
    for (int i = 0; i < model->node_count; i++)
        for (int k = 0; k < model->nodes[i].tensor_count; k++)
            users += model->nodes[i].tensors[k] == bias;
    return users == 1 && !yoke_is_frozen(program->frozen, bias);
}

/* Whether a plan may compute a batch norm or an activation right behind its own operation: what a
 * batch norm adds must be there by then. */
static bool may_follow(const yoke_program *program, int node) {
    const yoke_node *next = &program->model->nodes[node];
    yoke_operation_kind kind = next->operation.kind;
    if (kind == YOKE_OP_ACTIVATION) return true;
    return kind == YOKE_OP_BATCH_NORM &&
           (!next->operation.add || program->layouts[next->inputs[1]].bytes > 0);
}

/* One batch norm, then one activation. */
static void offer_next(const yoke_program *program, int node, yoke_plan_request *request) {
    const yoke_model *model = program->model;
    for (int count = 0; count < YOKE_PLAN_NEXT; count++) {
        node = only_reader(model, model->nodes[node].output);
        if (node == YOKE_NONE || !may_follow(program, node)) return;
        const yoke_node *next = &model->nodes[node];
        if (count > 0 && next->operation.kind == request->next[count - 1]->kind) return;
        request->next[count] = &next->operation;
        if (next->operation.add) request->added = program->layouts[next->inputs[1]];
        if (next->operation.kind == YOKE_OP_ACTIVATION) return;
    }
}

int yoke_next_node(const yoke_program *program, int node) {
    return only_reader(program->model, program->model->nodes[node].output);
}

void yoke_place_next(yoke_program *program) {
    for (int i = 0; i < program->model->node_count; i++) {
        int count = yoke_plan_describe(program->plans[i])->computes_next;
        for (int next = i; count > 0; count--) {
            next = yoke_next_node(program, next);
            program->places[next].skips_forward = true;
        }
    }
}

void yoke_offer_joins(const yoke_program *program, int node, yoke_plan_request *request) {
    const yoke_model *model = program->model;
    bool convolves = request->operation->kind == YOKE_OP_CONV2D;
    if (convolves && !program->training) offer_next(program, node, request);
    if (request->operation->kind != YOKE_OP_LINEAR) return;
    int relu = only_reader(model, model->nodes[node].output);
    request->relu = is_relu(model, relu);
    int value = request->relu ? model->nodes[relu].output : YOKE_NONE;
    request->relu_mask = request->relu && program->training && program->requires_gradient[value] &&
                         is_linear(model, only_reader(model, value));
    int before = linear_before(model, node);
    request->input_masked = before != YOKE_NONE && program->training &&
                            yoke_plan_describe(program->plans[before])->mask_bytes > 0;
    request->input_bias = request->input_masked && has_own_bias(program, before);
}

/* What the plan of this node does in place of the ReLU before it. */
static void place_mask(yoke_program *program, int node) {
    const yoke_model *model = program->model;
    const yoke_plan_needs *needs = yoke_plan_describe(program->plans[node]);
    if (!needs->masks_input_gradient) return;
    int before = linear_before(model, node);
    program->places[node].mask_of = before;
    program->places[before].skips_bias = needs->sums_input_bias;
    program->places[writer_of(model, model->nodes[node].inputs[0])].skips_backward = true;
}

void yoke_place_masks(yoke_program *program) {
    for (int i = 0; i < program->model->node_count; i++)
        place_mask(program, i);
}

void yoke_place_joins(yoke_program *program) {
    const yoke_model *model = program->model;
    for (int i = 0; i < model->node_count; i++) {
        if (!yoke_plan_describe(program->plans[i])->applies_relu) continue;
        int from = model->nodes[i].output, relu = only_reader(model, from);
        int to = model->nodes[relu].output;
        /* Elsewhere the ReLU copies the value: applied twice it is the same. */
        program->places[relu].skips_forward = program->values[to] == program->values[from];
    }
}
